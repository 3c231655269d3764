"""Test searches: results, filters, modes, and empty results."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import Browser, Route, expect

from recto.book.sources.options import SiteOptions
from recto.book.sources.tree import open_book
from recto.indexing.indexer import IndexJob, index_book
from recto.protocols import Embedder
from recto.settings import Settings
from recto.stores.edge.store import EdgeStore
from tests.book.files import write
from tests.browser.webui import SAMPLE_TITLE, WebUI
from tests.search.test_editions import FILES
from tests.server.http.service import Service


def test_results_have_a_path_and_a_score(ui: WebUI) -> None:
    ui.open()
    expect(ui.page.locator(".book-size")).to_have_text(re.compile(r"\d+ passages on 28 pages in 5 modules"))
    assert ui.focused() == "q"
    ui.page.fill("#q", "   ")
    ui.page.get_by_role("button", name="Search").click()
    assert ui.state == {}, "an empty query is not sent"
    ui.ask("How do ROS 2 nodes communicate?")
    first = ui.results.first
    expect(first.locator("h3")).to_have_text("How do ROS 2 nodes communicate?")
    expect(first.locator(".path")).to_have_text(
        "Module 1: ROS 2, the Robotic Nervous System›ROS 2 Fundamentals"
    )
    assert {"ros", "2", "nodes"} <= {mark.lower() for mark in first.locator("mark").all_inner_texts()}
    expect(first.locator(".score-bar")).to_have_attribute(
        "aria-label", re.compile(r"^Score 0\.\d{3}, above the noise floor of 0\.\d{3}$")
    )
    assert first.evaluate(
        "entry => parseFloat(entry.querySelector('.value').getAttribute('width'))"
    ) > first.evaluate("entry => parseFloat(entry.querySelector('.tick').getAttribute('x1'))")
    expect(ui.page.locator("#live")).to_contain_text(re.compile(r"Passages: \d+ passages on 10 pages"))
    assert ui.state == {"q": ["How do ROS 2 nodes communicate?"]}
    assert ui.page.title() == f"How do ROS 2 nodes communicate? · {SAMPLE_TITLE}"
    ui.ask("QoS compatibility rules")
    expect(first.locator("table")).to_have_count(0)
    first.get_by_role("button", name="Show the whole passage").click()
    expect(first.locator("table")).to_be_visible()
    first.get_by_role("button", name="Show less").click()
    expect(first.locator("table")).to_have_count(0)


def test_filters_by_module_and_page(ui: WebUI) -> None:
    ui.open(q="How do robots see?")
    ui.open_filters()
    box = ui.page.get_by_role("checkbox", name=re.compile("^Module 3: The NVIDIA Isaac Platform"))
    expect(ui.page.locator(".module-filter", has_text="Isaac").locator(".count")).to_contain_text(
        re.compile(r"\d+ passages")
    )
    box.check()
    expect(ui.page).to_have_url(re.compile("module=isaac"))
    ui.settle()
    isaac, vla = "Module 3: The NVIDIA Isaac Platform", "Module 4: Vision-Language-Action"
    assert set(ui.results.locator(".module").all_text_contents()) == {isaac}
    expect(ui.page.locator("#chosen")).to_have_text(isaac)
    expect(box).to_be_focused()
    ui.page.get_by_role("checkbox", name=re.compile(f"^{vla}")).check()
    expect(ui.page).to_have_url(re.compile("module=vla"))
    ui.settle()
    assert set(ui.results.locator(".module").all_text_contents()) <= {isaac, vla}
    offered = ui.page.locator("#page-filter optgroup").evaluate_all("all => all.map(one => one.label)")
    assert offered == [isaac, vla]
    ui.page.get_by_label("Page", exact=True).select_option(label="Isaac ROS")
    expect(ui.page).to_have_url(re.compile("url="))
    ui.settle()
    assert set(ui.results.evaluate_all("all => all.map(one => one.dataset.page)")) == {
        "local://docs/docs/module-3-isaac/02-isaac-ros"
    }
    expect(ui.page.locator("#chosen")).to_have_text(f"{isaac} · {vla} · Isaac ROS")
    for _ in range(3):
        ui.page.go_back()
    ui.settle()
    expect(box).not_to_be_checked()
    assert ui.state == {"q": ["How do robots see?"]}


def test_results_are_folded_if_the_book_does_not_cover_the_query(ui: WebUI) -> None:
    ui.open(q="best pizza recipe in town")
    expect(ui.page.locator(".not-covered")).to_have_text("The book does not seem to cover this.")
    expect(ui.results.first).to_be_hidden()
    ui.page.get_by_text("Show the nearest passages").click()
    expect(ui.results.first).to_be_visible()
    expect(ui.results.first.locator(".score .verdict")).to_have_text("weak")
    expect(ui.results.first.locator(".score-bar")).to_have_attribute(
        "aria-label", re.compile("below the noise floor")
    )
    ui.ask("quaternoin")
    expect(ui.page.locator(".not-covered")).to_have_count(0)
    correction = "“quaternoin” is not in the book. Searched for “quaternion”."
    expect(ui.page.locator(".correction")).to_have_text(correction)
    assert "quaternion" in {mark.lower() for mark in ui.page.locator("#list mark").all_text_contents()}


def test_results_are_grouped_by_page(ui: WebUI) -> None:
    ui.open(q="QoS profiles")
    pages = ui.results.evaluate_all("all => all.map(one => one.dataset.page)")
    assert len(pages) == len(set(pages)) == 10
    first = ui.results.first
    others = first.locator(".other")
    expect(others.first).to_be_hidden()
    first.get_by_text(re.compile(r"^\d+ more sections? on this page$")).click()
    expect(others.first).to_be_visible()
    assert {one.lower() for one in others.locator("mark").all_inner_texts()} & {"qos", "profile", "profiles"}
    assert set(others.evaluate_all("all => all.map(one => one.dataset.page)")) == {pages[0]}
    titles = others.locator(".result").all_inner_texts()
    assert len(titles) == len(set(titles)), "each section once"
    title = others.first.locator(".result").inner_text()
    others.first.locator(".result").click()
    expect(ui.page.locator("#page-panel .chunk.current")).to_be_visible()
    ui.page.reload()
    ui.settle()
    expect(ui.results.first.locator(".other .result[aria-current=true]")).to_have_text(title)
    expect(ui.results.first.locator(".other .result[aria-current=true]")).to_be_visible()


def test_weak_results_are_folded_below_the_others(ui: WebUI) -> None:
    ui.open(q="wake word detection")
    shown = ui.page.locator("#list > .entries > .entry")
    folded = ui.page.locator("#list > .fold .entry")
    expect(ui.page.locator(".not-covered")).to_have_count(0)
    assert shown.count() + folded.count() == 10
    expect(shown.last).not_to_have_class(re.compile("weak"))
    expect(folded.first).to_be_hidden()
    results = "result" if folded.count() == 1 else "results"
    ui.page.get_by_text(f"Show {folded.count()} weaker {results}").click()
    expect(folded.first).to_be_visible()
    assert folded.locator(".score .verdict").all_text_contents() == ["weak"] * folded.count()
    ui.page.get_by_role("link", name="More results").click()
    expect(ui.results).to_have_count(20)
    expect(ui.links.nth(10)).to_be_focused()


def test_the_mode_is_kept_in_the_url(ui: WebUI) -> None:
    ui.open(q="QoS depth")
    ui.open_filters()
    for mode, bars in (("lexical", 0), ("dense", 1)):
        ui.page.get_by_label("Mode", exact=True).select_option(mode)
        expect(ui.page).to_have_url(re.compile(f"mode={mode}"))
        ui.settle()
        expect(ui.results.first.locator(".score-bar")).to_have_count(bars)
    ui.page.reload()
    ui.settle()
    expect(ui.page.locator("#mode")).to_have_value("dense")
    expect(ui.page.locator("#chosen")).to_have_text("Dense")
    ui.open_filters()
    ui.page.get_by_label("Mode", exact=True).select_option("")
    expect(ui.page).to_have_url(re.compile(r"\?q=QoS\+depth$"))


def test_filters_that_exclude_everything(ui: WebUI) -> None:
    ui.open(q="robot", module="rosy")
    notice = ui.page.locator(".notice")
    expect(notice).to_contain_text("The filters exclude every passage.")
    expect(notice).to_contain_text("There is no module 'rosy'. Did you mean 'ros2'?")
    ui.open_filters()
    expect(ui.page.get_by_role("checkbox", name=re.compile("^rosy"))).to_be_checked()
    notice.get_by_role("link", name="Search the whole book").click()
    expect(ui.results).to_have_count(10)


def test_an_outdated_response_is_dropped(ui: WebUI) -> None:
    held: list[Route] = []

    def hold(route: Route) -> None:
        if "slow query" in (route.request.post_data or ""):
            held.append(route)
        else:
            route.continue_()

    ui.open()
    ui.page.route("**/v1/search", hold)
    ui.page.fill("#q", "slow query")
    with ui.page.expect_request("**/v1/search"):
        ui.page.press("#q", "Enter")
    expect(ui.page.locator("#list")).to_have_attribute("aria-busy", "true")
    expect(ui.page.locator(".contents")).to_be_visible()
    ui.ask("How do ROS 2 nodes communicate?")
    expect(ui.results.first.locator("h3")).to_have_text("How do ROS 2 nodes communicate?")
    (route,) = held
    assert route.request.failure is not None  # the request was cancelled


def test_a_collection_can_be_chosen(ui: WebUI) -> None:
    ui.open(q="robot")
    ui.page.get_by_label("Book", exact=True).select_option("hostile")
    expect(ui.page).to_have_url(re.compile("collection=hostile"))
    ui.settle()
    ui.unfold()
    assert set(ui.results.locator(".module").all_text_contents()) == {"Danger"}
    expect(ui.page.locator("#book-title")).to_have_text("hostile")  # the book has no title
    ui.page.go_back()
    ui.settle()
    expect(ui.page.get_by_label("Book", exact=True)).to_have_value("")
    expect(ui.page.locator("#book-title")).to_have_text(SAMPLE_TITLE)
    assert "Danger" not in ui.results.locator(".module").all_text_contents()


def test_a_version_can_be_chosen(ui: WebUI, browser: Browser, embedder: Embedder, tmp_path: Path) -> None:
    ui.open(q="robot")
    ui.open_filters()
    expect(ui.page.locator("#version-field")).to_be_hidden()  # the book has one version
    source = open_book(write(tmp_path / "garden", FILES), SiteOptions(version="all", locale="all"))
    index_book(IndexJob(source, embedder), EdgeStore(tmp_path), "garden", journal=tmp_path / "journal")
    settings = Settings("local", "edge", tmp_path, threads=2, precision="fp32", collection="garden")
    with Service(settings) as service, WebUI(browser, service.port) as other:
        other.open(q="pump")
        other.open_filters()
        choice = other.page.get_by_label("Version", exact=True)
        assert choice.locator("option").all_text_contents() == [
            "Current version", "2.0", "current", "1.0", "All versions"
        ]  # fmt: skip
        choice.select_option("1.0")
        expect(other.page).to_have_url(re.compile("version=1.0"))
        other.settle()
        pages = other.results.evaluate_all("all => all.map(one => one.dataset.page)")
        assert "https://x.org/docs/1.0/water" in pages
        assert "https://x.org/docs/water" not in pages
        expect(other.page.locator("#chosen")).to_have_text("1.0")
        expect(other.page.get_by_label("Page", exact=True)).to_be_hidden()
        other.page.go_back()
        other.settle()
        expect(choice).to_have_value("")


def test_the_language_decides_the_direction_of_a_passage(ui: WebUI) -> None:
    """A passage in Urdu can begin with a Latin word, by which the browser would decide."""

    def in_urdu(route: Route) -> None:
        response = route.fetch()
        data = response.json()
        for result in data["results"]:
            result["language"] = "ur"
        route.fulfill(response=response, json=data)

    ui.page.route("**/v1/search", in_urdu)
    ui.open(q="How do ROS 2 nodes communicate?")
    for part in ("h3", ".chunk-text"):
        direction = ui.results.first.locator(part).evaluate("one => getComputedStyle(one).direction")
        assert direction == "rtl", part
