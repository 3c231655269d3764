"""Test the parts around the search: the book's header, the health view, the page about the API, and errors."""

from __future__ import annotations

import re
import shutil
from base64 import b64encode
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, expect

from recto.evaluation import report
from recto.evaluation.coverage import cover
from recto.evaluation.runs import run_suite
from recto.evaluation.suites import Expectation, Suite
from recto.protocols import Embedder
from recto.search.retriever import Retriever
from recto.server.http import ServeOptions
from recto.settings import Settings
from recto.stores.edge import EdgeStore
from tests.breaking import publish_broken, with_opposite_vectors
from tests.browser.hostile import ATTACKS
from tests.browser.test_looks import nothing_ran
from tests.browser.webui import PHONE, SAMPLE_PAGE, SAMPLE_TITLE, WIDE, WebUI, invisible_focus, problems
from tests.server.http.service import Service, served

_LOGO = '<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16"><rect width="16" height="16"/></svg>'
_HOSTILE_LOGO = (
    '<svg xmlns="http://www.w3.org/2000/svg" onload="parent.ran = 1"><script>parent.ran = 2</script></svg>'
)
_HIDDEN_BY_HEADER = """
() => {
    if (document.querySelector("#top").contains(document.activeElement)) return false;
    const header = document.querySelector("#top").getBoundingClientRect();
    const focused = document.activeElement.getBoundingClientRect();
    return header.top !== 0 || focused.top < header.bottom || focused.bottom > innerHeight;
}
"""


def test_the_book_is_named_and_its_modules_have_one_order(ui: WebUI, service: Service) -> None:
    modules = [module["title"] for module in service.get("/v1/modules").json()["modules"]]
    logo = f"data:image/svg+xml;base64,{b64encode(_LOGO.encode()).decode()}"
    book = {"name": "humanoid_robotics_book", "default": True, "title": "The Voyage", "logo": logo}
    page = ui.page
    page.route("**/v1/collections", lambda route: route.fulfill(json={"collections": [book]}))
    ui.open()
    expect(page.get_by_role("heading", level=1)).to_have_text("The Voyage")
    assert page.title() == "The Voyage"
    assert page.locator("#logo").evaluate("image => image.decode().then(() => image.naturalWidth)") == 16
    assert page.locator(".contents h3").all_text_contents() == modules
    ui.open_filters()
    filters = page.locator(".module-filter > span").evaluate_all("all => all.map(one => one.firstChild.data)")
    groups = page.locator("#page-filter optgroup").evaluate_all("all => all.map(one => one.label)")
    assert filters == groups == modules
    ui.open(view="health")
    assert page.title() == "Health · The Voyage"
    ui.open(page=SAMPLE_PAGE)
    expect(page.locator("#page-panel .module")).to_have_text(re.compile("^Module 1: ROS 2"))
    assert page.title() == "ROS 2 Fundamentals · The Voyage"


@pytest.mark.parametrize(
    "logo",
    [
        f"data:image/svg+xml;base64,{b64encode(_HOSTILE_LOGO.encode()).decode()}",
        "data:text/html,<script>parent.ran = 3</script>",
        "https://elsewhere.invalid/logo.png",
        "javascript:window.ran = 4",
    ],
)
def test_a_hostile_title_and_logo(ui: WebUI, logo: str) -> None:
    book = {"name": "x", "default": True, "title": ATTACKS[1], "logo": logo}
    ui.page.route("**/v1/collections", lambda route: route.fulfill(json={"collections": [book]}))
    ui.open()
    expect(ui.page.locator("#book-title")).to_have_text(ATTACKS[1])
    images = ui.page.locator("#logo, #icon[href^='data:']")
    expect(images).to_have_count(2 if logo.startswith("data:image/") else 0)
    images.evaluate_all("all => all.forEach(one => one.remove())")
    nothing_ran(ui)


@pytest.mark.parametrize("size", [WIDE, PHONE])
def test_the_header_stays_and_hides_nothing(browser: Browser, books: Path, size: tuple[int, int]) -> None:
    """With several books, the header of a phone has two lines."""
    with Service(served(books)) as service, WebUI(browser, service.port, size, reduced_motion="reduce") as ui:
        ui.open(q="nodes", page=SAMPLE_PAGE, anchor="workspaces", chunk=99)
        expect(ui.page.locator("#book-title")).to_have_text(SAMPLE_TITLE)
        expect(ui.page.locator("#top")).to_be_in_viewport()
        expect(ui.page.locator(".chunk.current")).to_be_in_viewport()
        assert not ui.page.evaluate(
            "document.querySelector('.chunk.current').getBoundingClientRect().top"
            " < document.querySelector('#top').getBoundingClientRect().bottom"
        )
        ui.open(q="nodes", top_k=20)
        ui.unfold()
        ui.links.last.focus()
        for key in ("ArrowUp",) * 30 + ("Shift+Tab",) * 10:
            ui.page.keyboard.press(key)
            assert not ui.page.evaluate(_HIDDEN_BY_HEADER), ui.focused()


KEY = "a-key-of-twenty-chars"


def test_the_service_stops(browser: Browser, house_settings: Settings) -> None:
    running = ExitStack()
    service = running.enter_context(Service(house_settings))
    with running, WebUI(browser, service.port) as ui:
        ui.open(q="When are beans sown?")
        expect(ui.results.first.locator("h3")).to_have_text("Sowing beans")
        ui.context.set_offline(True)
        ui.ask("Which insects eat aphids?")
        notice = ui.page.locator(".notice")
        expect(notice).to_have_role("alert")
        expect(notice).to_contain_text("The service does not answer.")
        expect(notice).to_contain_text("start it with recto serve")
        expect(ui.results).to_have_count(0)
        ui.context.set_offline(False)
        ui.page.get_by_role("button", name="Try again").click()
        expect(ui.results.first.locator("h3")).to_have_text("Ladybirds")
        running.close()
        ui.ask("How is jam made?")
        expect(notice).to_contain_text("The service does not answer.")


def test_the_engine_is_down(browser: Browser, tmp_path: Path, closed_port: int) -> None:
    url = f"http://127.0.0.1:{closed_port}"
    settings = Settings("local", "server", tmp_path, threads=1, collection="house", qdrant_url=url)
    with Service(settings) as service, WebUI(browser, service.port) as ui:
        ui.open(q="When are beans sown?")
        notice = ui.page.locator("#list .notice")
        expect(notice).to_contain_text("The book cannot be searched at the moment.")
        expect(notice).to_contain_text("The engine behind this service is unreachable")
        assert str(closed_port) not in ui.page.content()
        ui.page.get_by_role("link", name="Health").click()
        expect(ui.page.locator("#health .notice")).to_contain_text("is unreachable")


def test_a_key_is_required(browser: Browser, house_settings: Settings) -> None:
    with Service(house_settings, ServeOptions(keys=(KEY,))) as service, WebUI(browser, service.port) as ui:
        ui.page.goto(f"{ui.origin}/?q=When+are+beans+sown%3F")
        dialog = ui.page.get_by_role("dialog", name="An API key is required")
        field = dialog.get_by_label("Key", exact=True)
        expect(field).to_be_focused()
        dialog.get_by_role("button", name="Not now").click()
        expect(ui.page.locator(".notice")).to_contain_text("An API key is required.")
        ui.page.get_by_role("button", name="Enter the key").click()
        field.fill("not the key")
        field.press("Enter")
        expect(dialog.get_by_text("The service did not accept that key.")).to_be_visible()
        field.fill(KEY)
        field.press("Enter")
        expect(ui.results.first.locator("h3")).to_have_text("Sowing beans")
        expect(dialog).to_be_hidden()
        ui.page.reload()
        expect(ui.results.first).to_be_visible()
        assert KEY not in ui.page.url + ui.page.content()
        assert ui.page.evaluate("JSON.stringify(localStorage)") == "{}"
        other = ui.tab()
        other.goto(ui.page.url)
        # Each tab has its own key.
        expect(other.get_by_role("dialog", name="An API key is required")).to_be_visible()


def test_an_unknown_collection_and_a_long_query(ui: WebUI) -> None:
    ui.open(q="robot", collection="nowhere")
    expect(ui.page.locator(".notice")).to_contain_text("There is no such collection here.")
    ui.open(q="robot " * 1000)
    expect(ui.results.first).to_be_visible()
    assert len(ui.page.input_value("#q")) <= 2000


def test_too_many_requests(browser: Browser, house_settings: Settings) -> None:
    with Service(house_settings, ServeOptions(rate=6)) as service, WebUI(browser, service.port) as ui:
        ui.open(q="When are beans sown?")
        for number in range(8):
            ui.ask(f"How is jam made {number}?")
        expect(ui.page.locator(".notice")).to_contain_text("Too many requests.")
        expect(ui.page.locator(".notice")).to_contain_text(re.compile(r"Wait \d+ seconds\."))


@pytest.fixture(scope="module")
def measured(house: Path, embedder: Embedder, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """An index in which two sections cannot be found, with its coverage and the run of a suite."""
    home = shutil.copytree(house / "home", tmp_path_factory.mktemp("measured") / "home")
    publish_broken(home, with_opposite_vectors("slugs", "brakes"))
    retriever = Retriever(embedder, EdgeStore(home), "broken")
    report.keep_coverage(home, retriever.open().info, cover(retriever))
    questions = (
        Expectation("When are beans sown?", modules=("garden",)),
        Expectation("What eats lettuce at night?", modules=("kitchen",)),
    )
    run = run_suite(retriever, Suite("household", questions))
    report.keep_run(home, retriever.open().info, run, "recto validate --suite household.json")
    return Settings("local", "edge", home, threads=1, collection="broken")


def test_measurements_are_shown(browser: Browser, measured: Settings) -> None:
    with Service(measured) as service, WebUI(browser, service.port) as ui:
        ui.open(q="How is jam made?")
        ui.page.get_by_role("link", name="Health").click()
        expect(ui.page.get_by_role("heading", name="Health")).to_be_focused()
        ui.settle()
        health = ui.page.locator("#health")
        expect(health.locator("header")).to_contain_text(
            "A sample search works. 1 question of the last suite failed. 2 sections cannot be found well."
        )
        terms, values = (health.locator(name).all_inner_texts() for name in ("dt", "dd"))
        facts = dict(zip(terms, values, strict=True))
        assert facts["Collection"] == "broken"
        assert facts["Sample search works"] == "yes"
        assert int(facts["Passages"]) > 30
        assert int(facts["Searches"]) >= 1
        expect(health.get_by_role("img", name=re.compile(r"^\d+ of \d+ sections are found"))).to_be_visible()
        expect(health.locator(".page-coverage .cell.unreachable")).to_have_count(2)
        assert health.locator(".page-coverage .cell.reached").count() > 20
        pests = health.locator(".page-coverage", has=ui.page.get_by_role("link", name="Pests"))
        expect(pests.get_by_role("img")).to_have_attribute("aria-label", "2 of 3 sections found")
        pests.locator("summary").click()
        expect(pests.locator("details li")).to_have_text(["Slugs: not found"])
        expect(health).to_contain_text("1 of 2 questions passed in household")
        expect(health.locator(".latency .value").first).to_be_visible()
        expect(health.get_by_role("img", name=re.compile(r"^The latest \d+ search"))).to_be_visible()
        health.get_by_role("link", name="What eats lettuce at night?").click()
        expect(ui.page.locator("#q")).to_have_value("What eats lettuce at night?")
        ui.page.go_back()
        expect(health).to_be_visible()
        ui.settle()
        pests.locator("summary").click()
        pests.get_by_role("link", name="Slugs").click()
        expect(ui.page.locator(".chunk.current")).to_contain_text("Slugs come out at night")


def test_missing_measurements_are_shown_with_their_commands(ui: WebUI) -> None:
    ui.open(view="health")
    advice = ui.page.locator(".advice")
    expect(advice.locator("code").first).to_have_text("recto coverage --collection humanoid_robotics_book")
    expect(ui.page.locator("#health")).to_contain_text("No evaluation suite was run.")
    ui.page.keyboard.press("Escape")
    expect(ui.page.locator("#list .contents")).to_be_visible()


@pytest.mark.parametrize(("size", "scheme"), [(WIDE, "light"), (PHONE, "dark")])
def test_the_whole_description_is_shown(
    browser: Browser, service: Service, size: tuple[int, int], scheme: Literal["light", "dark"]
) -> None:
    described = service.get("/openapi.json").json()
    paths = described["paths"].items()
    operations = [f"{method.upper()} {path}" for path, methods in paths for method in methods]
    with WebUI(browser, service.port, size, scheme, reduced_motion="reduce") as ui:
        ui.page.goto(f"{ui.origin}/docs")
        expect(ui.page.locator(".operation h3").first).to_be_visible()
        assert sorted(ui.page.locator(".operation h3").all_inner_texts()) == sorted(operations)
        shown = set(ui.page.locator(".schema h3").all_inner_texts())
        assert shown == set(described["components"]["schemas"])
        assert ui.page.evaluate(
            "[...document.querySelectorAll('a[href^=\"#\"]')].every("
            "(link) => document.getElementById(link.hash.slice(1)))"
        )
        assert ui.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        ui.page.locator(".operation details").evaluate_all("all => all.forEach(one => one.open = true)")
        assert problems(ui.page) == ["no [role=search], search"], "only the web UI searches"
        assert invisible_focus(ui.page) == []


def test_requests_can_be_tried(browser: Browser, service: Service) -> None:
    with WebUI(browser, service.port) as ui:
        ui.page.goto(f"{ui.origin}/docs")
        for name, field, value in (
            ("GET /v1/search", "q", "What is ROS 2?"),
            ("GET /v1/pages/{address}", "address", "local://docs/docs/intro"),
        ):
            section = ui.page.get_by_role("region", name=name, exact=True)
            section.get_by_text("Try it").click()
            section.get_by_label(field, exact=True).fill(value)
            section.get_by_role("button", name="Send").click()
            expect(section.get_by_role("status")).to_contain_text("200")
            expect(section.locator("pre")).to_contain_text('"collection"')
        posted = ui.page.get_by_role("region", name="POST /v1/search", exact=True)
        posted.get_by_text("Try it").click()
        posted.get_by_role("button", name="Send").click()
        expect(posted.get_by_role("status")).to_contain_text("200")
        posted.get_by_label("Body").fill('{"query": ""}')
        posted.get_by_role("button", name="Send").click()
        expect(posted.get_by_role("status")).to_contain_text("400")
        expect(posted.locator("pre")).to_contain_text("empty")


def test_the_page_about_the_api_needs_a_key(browser: Browser, house_settings: Settings) -> None:
    with Service(house_settings, ServeOptions(keys=(KEY,))) as service, WebUI(browser, service.port) as ui:
        ui.page.goto(f"{ui.origin}/docs")
        expect(ui.page.locator("#message")).to_contain_text("An API key is required")
        ui.page.get_by_label("API key", exact=False).last.fill(KEY)
        ui.page.keyboard.press("Enter")
        expect(ui.page.locator(".operation").first).to_be_visible()
        expect(ui.page.locator("#message")).to_be_empty()
        assert KEY not in ui.page.content()
