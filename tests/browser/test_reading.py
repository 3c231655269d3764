"""A result in its page, selected text and what goes with it, and the way back."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Route, expect

from recto.search.retriever import Retriever
from tests.browser.desk import SAMPLE_PAGE, Desk

SENTENCE = "A ROS 2 node is a participant in the robot's software that has a name and does one job"


def select(passage: Locator, words: str) -> None:
    """Select some words, as a mouse does."""
    passage.evaluate(
        """(element, words) => {
            const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
            while (walker.nextNode() && !walker.currentNode.data.includes(words));
            const at = walker.currentNode.data.indexOf(words);
            getSelection().setBaseAndExtent(walker.currentNode, at, walker.currentNode, at + words.length);
        }""",
        words,
    )


def painted(desk: Desk, name: str) -> list[str]:
    found: list[str] = desk.page.evaluate("name => [...(CSS.highlights.get(name) ?? [])].map(String)", name)
    return found


def test_a_result_opens_in_its_page_with_the_passage_marked(desk: Desk, retriever: Retriever) -> None:
    desk.open(q="Which tool builds a workspace?")
    link = desk.links.filter(has_text="Workspaces, packages and colcon")
    link.click()
    here = desk.page.locator(".passage.here")
    expect(here).to_have_count(1)
    expect(here).to_contain_text("A ROS 2 workspace is a directory")
    expect(here).to_be_focused()
    expect(here.locator("h3")).to_be_in_viewport()
    expect(desk.page.get_by_role("heading", level=2, name="ROS 2 Fundamentals")).to_have_count(1)
    assert desk.page.locator("#recto .passage").count() == len(retriever.page(SAMPLE_PAGE).chunks)
    assert "workspace" in {words.lower() for words in painted(desk, "words")}
    assert desk.state == {
        "q": ["Which tool builds a workspace?"],
        "page": [SAMPLE_PAGE],
        "anchor": ["workspaces"],
        "passage": [here.get_attribute("data-passage")],
    }
    expect(desk.results.locator(".result[aria-current=true]")).to_have_text("Workspaces, packages and colcon")
    other = desk.tab()
    other.goto(desk.page.url)
    expect(other.locator(".passage.here")).to_contain_text("A ROS 2 workspace is a directory")
    expect(other.locator(".passage.here h3")).to_be_in_viewport()
    desk.page.go_back()
    expect(desk.page.locator("#recto")).to_be_hidden()
    expect(link).to_be_focused()
    desk.page.go_forward()
    expect(here).to_be_focused()


def test_a_section_is_found_where_a_newer_index_counts_otherwise(desk: Desk) -> None:
    desk.open(page=SAMPLE_PAGE, anchor="nodes", passage=9)
    expect(desk.page.locator(".passage.here")).to_contain_text("A ROS 2 node is a participant")


def test_selected_text_finds_what_goes_with_it(desk: Desk) -> None:
    desk.open(page=SAMPLE_PAGE, q="roscore")
    passage = desk.page.locator(".passage", has_text=SENTENCE)
    tool = desk.page.locator("#related-tool")
    expect(tool).to_be_hidden()
    select(passage, SENTENCE)
    expect(tool).to_be_visible()
    tool.click()
    expect(desk.page.get_by_role("heading", name="Related passages")).to_be_focused()
    desk.settle()
    assert desk.state["selection"] == [SENTENCE]
    expect(desk.page.locator("#list .selected")).to_have_text(SENTENCE)
    expect(desk.page.locator("#list")).to_contain_text("1 passage that holds this text is left out.")
    assert desk.results.count() == 10
    assert SENTENCE not in " ".join(desk.results.all_inner_texts())
    expect(passage).to_be_visible()  # the page stays beside the list
    assert painted(desk, "selected") == [SENTENCE]
    alone = desk.links.all_inner_texts()
    desk.page.get_by_role("link", name=re.compile("Together with the question")).click()
    expect(desk.page).to_have_url(re.compile("ask=1"))
    desk.settle()
    assert desk.links.all_inner_texts() != alone
    desk.page.reload()
    desk.settle()
    expect(desk.page.get_by_role("link", name=re.compile("Without the question"))).to_be_visible()
    assert painted(desk, "selected") == [SENTENCE]
    desk.page.get_by_role("link", name="Close related passages").click()
    expect(desk.page.get_by_role("heading", name="Passages", exact=True)).to_be_visible()
    expect(desk.page.locator("#recto")).to_be_visible()


def test_a_long_selection_is_bounded_and_says_so(desk: Desk) -> None:
    desk.open(page=SAMPLE_PAGE)
    desk.page.evaluate("getSelection().selectAllChildren(document.querySelector('#recto .text'))")
    desk.page.locator("#related-tool").click()
    expect(desk.page.get_by_role("heading", name="Related passages")).to_be_visible()
    desk.settle()
    assert len(desk.page.url) < 7000
    expect(desk.page.locator("#list .note").last).to_contain_text(
        re.compile(r"The model reads the first [\d,]+ characters of it\.")
    )
    expect(desk.results.first).to_be_visible()


def test_links_between_pages_stay_in_the_book(desk: Desk) -> None:
    desk.open(page=SAMPLE_PAGE)
    desk.page.locator("#recto .text").get_by_role("link", name="DDS and Quality of Service").click()
    expect(desk.page.get_by_role("heading", level=2, name="DDS and Quality of Service")).to_be_visible()
    desk.settle()
    expect(desk.page.locator(".passage.here")).to_have_attribute("data-anchor", "what-is-dds")
    desk.page.get_by_role("navigation", name="Pages before and after").get_by_role(
        "link", name=re.compile("^Before")
    ).click()
    expect(desk.page.get_by_role("heading", level=2, name="Humanoid URDF")).to_be_visible()


def test_a_page_that_is_not_there_is_named_with_the_nearest(desk: Desk) -> None:
    desk.open(page=SAMPLE_PAGE + "s")
    notice = desk.page.locator("#recto .notice")
    expect(notice).to_contain_text("It is not there.")
    expect(notice).to_contain_text(f"Did you mean '{SAMPLE_PAGE}'?")


def test_the_page_waits_while_the_health_is_looked_at(desk: Desk) -> None:
    desk.open(page=SAMPLE_PAGE, q="nodes")
    desk.page.get_by_role("link", name="Health").click()
    expect(desk.page.locator("#recto")).to_be_hidden()
    desk.page.get_by_role("link", name="Search", exact=True).click()
    expect(desk.page.locator("#recto .passage").first).to_be_visible()
    expect(desk.results.first).to_be_visible()
    assert desk.page.title() == "ROS 2 Fundamentals · Recto"


def test_a_heading_that_a_passage_states_itself_is_not_put_back_twice(desk: Desk) -> None:
    """A short section may be joined to the one before it, whose passage then ends within it."""

    def joined(route: Route) -> None:
        page = route.fetch().json()
        page["chunks"][1]["text"] += f"\n\n## {page['chunks'][2]['headings'][-1]}\n\nThe section begins here."
        route.fulfill(json=page)

    desk.page.route("**/v1/pages/local*", joined)
    desk.open(page=SAMPLE_PAGE)
    headings = desk.page.locator("#recto .text :is(h3, h4)").all_inner_texts()
    assert headings[:3] == [
        "What is a ROS 2 node?",
        "How do ROS 2 nodes communicate?",
        "Topics, messages and interface types",
    ]
