"""Test a page of the book: the marked passage, links, selected text, and the way back."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Route, expect

from recto.search.retriever import Retriever
from tests.browser.webui import SAMPLE_PAGE, SAMPLE_TITLE, WebUI

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
    pages = ui.results.evaluate_all("all => all.map(one => one.dataset.page)")
    assert 1 < len(pages) == len(set(pages)) <= 10
    assert SENTENCE not in " ".join(ui.results.all_inner_texts())
    expect(chunk).to_be_visible()  # the page stays open next to the list
    assert highlighted(ui, "selected") == [SENTENCE]
    alone = ui.links.all_inner_texts()
    ui.page.get_by_role("link", name=re.compile("Search with the question")).click()
    expect(ui.page).to_have_url(re.compile("ask=1"))
    ui.settle()
    assert ui.links.all_inner_texts() != alone
    ui.page.reload()
    ui.settle()
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
    ui.page.get_by_role("navigation", name="Previous and next page").get_by_role(
        "link", name=re.compile("^Previous")
    ).click()
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
        page["chunks"][1]["html"] += (
            f"<h2>{page['chunks'][2]['headings'][-1]}</h2><p>The section begins here.</p>"
        )
        route.fulfill(json=page)

    ui.page.route("**/v1/pages/local*", joined)
    ui.open(page=SAMPLE_PAGE)
    headings = ui.page.locator("#page-panel .text :is(h3, h4)").all_inner_texts()
    assert headings[:3] == [
        "What is a ROS 2 node?",
        "How do ROS 2 nodes communicate?",
        "Topics, messages and interface types",
    ]
