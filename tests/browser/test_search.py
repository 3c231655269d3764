"""Test searches, pages of the book, and the keyboard."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import Browser, Locator, Route, expect

from recto.book.sources.options import SiteOptions
from recto.book.sources.tree import open_book
from recto.protocols import Embedder
from recto.search.retriever import Retriever
from tests.book.files import write
from tests.browser.webui import SAMPLE_PAGE, SAMPLE_TITLE, WebUI
from tests.search.test_editions import FILES
from tests.server.http.service import Service, indexed


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
    path = "Module 1: ROS 2, the Robotic Nervous System›ROS 2 Fundamentals"
    expect(first.locator(".path")).to_have_text(path)
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
    count = ui.page.locator(".module-filter", has_text="Isaac").locator(".count")
    expect(count).to_contain_text(re.compile(r"\d+ passages"))
    box.check()
    ui.settle("module=isaac")
    isaac, vla = "Module 3: The NVIDIA Isaac Platform", "Module 4: Vision-Language-Action"
    assert ui.modules == {isaac}
    expect(ui.page.locator("#chosen")).to_have_text(isaac)
    expect(box).to_be_focused()
    ui.page.get_by_role("checkbox", name=re.compile(f"^{vla}")).check()
    ui.settle("module=vla")
    assert ui.modules <= {isaac, vla}
    offered = ui.page.locator("#page-filter optgroup").evaluate_all("all => all.map(one => one.label)")
    assert offered == [isaac, vla]
    ui.page.get_by_label("Page", exact=True).select_option(label="Isaac ROS")
    ui.settle("url=")
    assert set(ui.pages) == {"local://docs/docs/module-3-isaac/02-isaac-ros"}
    expect(ui.page.locator("#chosen")).to_have_text(f"{isaac} · {vla} · Isaac ROS")
    for _ in range(3):
        ui.go_back()
    expect(box).not_to_be_checked()
    assert ui.state == {"q": ["How do robots see?"]}


def test_results_are_folded_if_the_book_does_not_cover_the_query(ui: WebUI) -> None:
    ui.open(q="best pizza recipe in town")
    expect(ui.page.locator(".not-covered")).to_have_text("The book does not seem to cover this.")
    expect(ui.results.first).to_be_hidden()
    ui.page.get_by_text("Show the nearest passages").click()
    expect(ui.results.first).to_be_visible()
    expect(ui.results.first.locator(".score .verdict")).to_have_text("weak")
    label = re.compile("below the noise floor")
    expect(ui.results.first.locator(".score-bar")).to_have_attribute("aria-label", label)
    ui.ask("quaternoin")
    expect(ui.page.locator(".not-covered")).to_have_count(0)
    correction = "“quaternoin” is not in the book. Searched for “quaternion”."
    expect(ui.page.locator(".correction")).to_have_text(correction)
    assert "quaternion" in {mark.lower() for mark in ui.page.locator("#list mark").all_text_contents()}


def test_results_are_grouped_by_page(ui: WebUI) -> None:
    ui.open(q="QoS profiles")
    pages = ui.pages
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
    ui.reload()
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
        ui.settle(f"mode={mode}")
        expect(ui.results.first.locator(".score-bar")).to_have_count(bars)
    ui.reload()
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
    ui.settle("collection=hostile")
    ui.unfold()
    assert ui.modules == {"Danger"}
    expect(ui.page.locator("#book-title")).to_have_text("hostile")  # the book has no title
    ui.go_back()
    expect(ui.page.get_by_label("Book", exact=True)).to_have_value("")
    expect(ui.page.locator("#book-title")).to_have_text(SAMPLE_TITLE)
    assert "Danger" not in ui.modules


def test_a_version_can_be_chosen(ui: WebUI, browser: Browser, embedder: Embedder, tmp_path: Path) -> None:
    ui.open(q="robot")
    ui.open_filters()
    expect(ui.page.locator("#version-field")).to_be_hidden()  # the book has one version
    source = open_book(write(tmp_path / "garden", FILES), SiteOptions(version="all", locale="all"))
    settings = indexed(tmp_path, "garden", source, embedder)
    with Service(settings) as service, WebUI(browser, service.port) as other:
        other.open(q="pump")
        other.open_filters()
        choice = other.page.get_by_label("Version", exact=True)
        assert choice.locator("option").all_text_contents() == [
            "Current version", "2.0", "current", "1.0", "All versions"
        ]  # fmt: skip
        choice.select_option("1.0")
        other.settle("version=1.0")
        pages = other.pages
        assert "https://x.org/docs/1.0/water" in pages
        assert "https://x.org/docs/water" not in pages
        expect(other.page.locator("#chosen")).to_have_text("1.0")
        expect(other.page.get_by_label("Page", exact=True)).to_be_hidden()
        other.go_back()
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


SENTENCE = "A ROS 2 node is a participant in the robot's software that has a name and does one job"


def select(chunk: Locator, words: str) -> None:
    """Select some words."""
    chunk.evaluate(
        """(element, words) => {
            const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
            while (walker.nextNode() && !walker.currentNode.data.includes(words));
            const at = walker.currentNode.data.indexOf(words);
            getSelection().setBaseAndExtent(walker.currentNode, at, walker.currentNode, at + words.length);
        }""",
        words,
    )


def highlighted(ui: WebUI, name: str) -> list[str]:
    found: list[str] = ui.page.evaluate("name => [...(CSS.highlights.get(name) ?? [])].map(String)", name)
    return found


def test_a_result_opens_its_page_with_the_passage_marked(ui: WebUI, retriever: Retriever) -> None:
    ui.open(q="Which tool builds a workspace?")
    link = ui.links.filter(has_text="Workspaces, packages and colcon")
    link.click()
    here = ui.page.locator(".chunk.current")
    expect(here).to_have_count(1)
    expect(here).to_contain_text("A ROS 2 workspace is a directory")
    expect(here).to_be_focused()
    expect(here.locator("h3")).to_be_in_viewport()
    expect(ui.page.get_by_role("heading", level=2, name="ROS 2 Fundamentals")).to_have_count(1)
    assert ui.page.locator("#page-panel .chunk").count() == len(retriever.page(SAMPLE_PAGE).chunks)
    assert "workspace" in {words.lower() for words in highlighted(ui, "words")}
    assert ui.state == {
        "q": ["Which tool builds a workspace?"],
        "page": [SAMPLE_PAGE],
        "anchor": ["workspaces"],
        "chunk": [here.get_attribute("data-chunk")],
    }
    expect(ui.results.locator(".result[aria-current=true]")).to_have_text("Workspaces, packages and colcon")
    other = ui.tab()
    other.goto(ui.page.url)
    expect(other.locator(".chunk.current")).to_contain_text("A ROS 2 workspace is a directory")
    expect(other.locator(".chunk.current h3")).to_be_in_viewport()
    ui.page.go_back()
    expect(ui.page.locator("#page-panel")).to_be_hidden()
    expect(link).to_be_focused()
    ui.page.go_forward()
    expect(here).to_be_focused()


def test_the_anchor_decides_if_a_new_index_numbers_chunks_differently(ui: WebUI) -> None:
    ui.open(page=SAMPLE_PAGE, anchor="nodes", chunk=9)
    expect(ui.page.locator(".chunk.current")).to_contain_text("A ROS 2 node is a participant")


def test_passages_related_to_selected_text(ui: WebUI) -> None:
    ui.open(page=SAMPLE_PAGE, q="roscore")
    chunk = ui.page.locator(".chunk", has_text=SENTENCE)
    tool = ui.page.locator("#related-tool")
    expect(tool).to_be_hidden()
    select(chunk, SENTENCE)
    expect(tool).to_be_visible()
    tool.click()
    expect(ui.page.get_by_role("heading", name="Related passages")).to_be_focused()
    ui.settle()
    assert ui.state["selection"] == [SENTENCE]
    expect(ui.page.locator("#list .selected")).to_have_text(SENTENCE)
    expect(ui.page.locator("#list")).to_contain_text("1 passage that contains this text is left out.")
    expect(ui.page.locator(".list-head .note")).to_contain_text("10 passages on ")
    pages = ui.pages
    assert 1 < len(pages) == len(set(pages)) <= 10
    assert SENTENCE not in " ".join(ui.results.all_inner_texts())
    expect(chunk).to_be_visible()  # the page stays open next to the list
    assert highlighted(ui, "selected") == [SENTENCE]
    alone = ui.links.all_inner_texts()
    ui.page.get_by_role("link", name=re.compile("Search with the question")).click()
    ui.settle("ask=1")
    assert ui.links.all_inner_texts() != alone
    ui.reload()
    expect(ui.page.get_by_role("link", name=re.compile("Search without the question"))).to_be_visible()
    assert highlighted(ui, "selected") == [SENTENCE]
    ui.page.get_by_role("link", name="Close related passages").click()
    expect(ui.page.get_by_role("heading", name="Passages", exact=True)).to_be_visible()
    expect(ui.page.locator("#page-panel")).to_be_visible()


def test_links_between_pages_open_in_the_book(ui: WebUI) -> None:
    ui.open(page=SAMPLE_PAGE)
    ui.page.locator("#page-panel .text").get_by_role("link", name="DDS and Quality of Service").click()
    expect(ui.page.get_by_role("heading", level=2, name="DDS and Quality of Service")).to_be_visible()
    ui.settle()
    expect(ui.page.locator(".chunk.current")).to_have_attribute("data-anchors", re.compile("what-is-dds"))
    navigation = ui.page.get_by_role("navigation", name="Previous and next page")
    navigation.get_by_role("link", name=re.compile("^Previous")).click()
    expect(ui.page.get_by_role("heading", level=2, name="Humanoid URDF")).to_be_visible()


def test_the_page_is_kept_while_the_health_view_is_open(ui: WebUI) -> None:
    ui.open(page=f"{SAMPLE_PAGE}s", q="nodes")
    expect(ui.page.locator("#page-panel .notice")).to_contain_text(f"Did you mean '{SAMPLE_PAGE}'?")
    ui.open(page=SAMPLE_PAGE, q="nodes")
    ui.page.get_by_role("link", name="Health").click()
    expect(ui.page.locator("#page-panel")).to_be_hidden()
    ui.page.get_by_role("link", name="Search", exact=True).click()
    expect(ui.page.locator("#page-panel .chunk").first).to_be_visible()
    expect(ui.results.first).to_be_visible()
    assert ui.page.title() == f"ROS 2 Fundamentals · {SAMPLE_TITLE}"


def test_a_heading_in_a_chunk_is_not_repeated(ui: WebUI) -> None:
    """Another pipeline may join a short section to the one before it."""

    def joined(route: Route) -> None:
        page = route.fetch().json()
        heading = page["chunks"][2]["headings"][-1]
        page["chunks"][1]["html"] += f"<h2>{heading}</h2><p>The section begins here.</p>"
        route.fulfill(json=page)

    ui.page.route("**/v1/pages/local*", joined)
    ui.open(page=SAMPLE_PAGE)
    headings = ui.page.locator("#page-panel .text :is(h3, h4)").all_inner_texts()
    nodes, topics = "How do ROS 2 nodes communicate?", "Topics, messages and interface types"
    assert headings[:3] == ["What is a ROS 2 node?", nodes, topics]


def test_search_read_and_related_passages(ui: WebUI) -> None:
    ui.open(module="ros2")
    keyboard = ui.page.keyboard
    ui.page.locator("body").press("Tab")
    assert ui.focused() == "Skip to content"
    keyboard.press("/")
    assert ui.focused() == "q"
    keyboard.press("/")  # not typed into the empty field
    keyboard.type("What is a ROS 2 node/topic?")  # in the search field, a slash is a character
    keyboard.press("Enter")
    ui.settle("q=What")
    titles = ui.links.all_inner_texts()
    keyboard.press("ArrowDown")
    keyboard.press("ArrowDown")
    assert ui.focused() == titles[1]
    keyboard.press("ArrowUp")
    assert ui.focused() == titles[0]
    keyboard.press("Enter")
    expect(ui.page.locator(".chunk.current")).to_be_focused()
    keyboard.press("r")
    expect(ui.page.get_by_role("heading", name="Related passages")).to_be_focused()
    ui.settle()
    keyboard.press("ArrowDown")
    assert ui.focused() == ui.links.first.inner_text()
    keyboard.press("Enter")
    expect(ui.page.locator(".chunk.current")).to_be_focused()
    assert "selection" in ui.state
    keyboard.press("Escape")
    expect(ui.page.get_by_role("heading", name="Passages", exact=True)).to_be_visible()
    ui.settle()
    assert "selection" not in ui.state
    keyboard.press("Escape")
    expect(ui.page.locator("#page-panel")).to_be_hidden()
    assert ui.state == {"q": ["What is a ROS 2 node/topic?"], "module": ["ros2"]}


def test_the_down_arrow_searches_for_what_was_typed(ui: WebUI) -> None:
    ui.open(q="sensors")
    ui.settle()
    ui.page.fill("#q", "What is a ROS 2 node?")
    ui.page.keyboard.press("ArrowDown")
    ui.settle("q=What")
    expect(ui.links.first).to_be_focused()
    ui.page.keyboard.press("Enter")
    expect(ui.page.locator(".chunk.current")).to_be_focused()


def test_escape_clears_the_selection_first(ui: WebUI) -> None:
    ui.open(page=SAMPLE_PAGE)
    ui.page.evaluate("getSelection().selectAllChildren(document.querySelector('.chunk .body'))")
    expect(ui.page.locator("#related-tool")).to_be_visible()
    expect(ui.page.locator("#live")).to_contain_text("Text is selected. Press r for related passages.")
    ui.page.keyboard.press("Escape")
    expect(ui.page.locator("#related-tool")).to_be_hidden()
    expect(ui.page.locator("#page-panel")).to_be_visible()


def test_single_keys_can_be_disabled(ui: WebUI) -> None:
    ui.open()
    ui.page.locator("#list-title").focus()
    ui.page.keyboard.press("?")
    help = ui.page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(help).to_be_visible()
    help.get_by_role("checkbox").uncheck()
    ui.page.keyboard.press("Escape")
    expect(help).to_be_hidden()
    ui.reload()
    ui.page.locator("#list-title").focus()
    ui.page.keyboard.press("/")
    ui.page.keyboard.press("?")
    assert ui.focused() == "list-title"
    expect(help).to_be_hidden()


def test_the_tab_key_reaches_every_control(ui: WebUI) -> None:
    ui.open(q="nodes", page=SAMPLE_PAGE, chunk=1)
    controls = 'a[href], button, input, select, summary, [tabindex="0"]'
    count = ui.page.evaluate(
        """(controls) => {
            window.seen = () => [...document.querySelectorAll(controls)].filter(one => one.checkVisibility());
            window.reached = new Set();
            document.addEventListener("focusin", (event) => window.reached.add(event.target));
            document.activeElement.blur();
            return window.seen().length;
        }""",
        controls,
    )
    for _ in range(count + 5):
        ui.page.keyboard.press("Tab")
    missed = "window.seen().filter(one => !window.reached.has(one)).map(one => one.outerHTML)"
    assert ui.page.evaluate(missed) == []
