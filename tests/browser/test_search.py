"""A question, what it finds, and what is said when it finds nothing."""

from __future__ import annotations

import re

from playwright.sync_api import Route, expect

from tests.browser.desk import SAMPLE_PAGE, Desk


def test_a_question_finds_passages_with_their_place_and_their_score(desk: Desk) -> None:
    desk.open()
    expect(desk.page.locator(".colophon")).to_have_text(re.compile(r"\d+ passages on 28 pages in 5 modules"))
    assert desk.focused() == "q"
    desk.ask("What is a ROS 2 node?")
    first = desk.results.first
    expect(first.locator("h3")).to_have_text("What is a ROS 2 node?")
    expect(first.locator(".path")).to_contain_text("ROS 2 Fundamentals")
    assert {"ros", "2", "node"} <= {mark.lower() for mark in first.locator("mark").all_inner_texts()}
    expect(first.locator(".score-bar")).to_have_attribute(
        "aria-label", re.compile(r"^Cosine 0\.\d{3}, above the noise floor of 0\.\d{3}$")
    )
    assert first.evaluate(
        "entry => parseFloat(entry.querySelector('.value').getAttribute('width'))"
    ) > first.evaluate("entry => parseFloat(entry.querySelector('.tick').getAttribute('x1'))")
    expect(desk.page.locator("#live")).to_contain_text(re.compile(r"Passages: \d+ passages on 10 pages"))
    assert desk.state == {"q": ["What is a ROS 2 node?"]}
    assert desk.page.title() == "What is a ROS 2 node? · Recto"


def test_a_cut_passage_is_shown_whole_on_request(desk: Desk) -> None:
    desk.open(q="QoS compatibility rules")
    first = desk.results.first
    expect(first.locator("table")).to_have_count(0)
    first.get_by_role("button", name="Whole passage").click()
    expect(first.locator("table")).to_be_visible()
    first.get_by_role("button", name="Less").click()
    expect(first.locator("table")).to_have_count(0)


def test_modules_and_pages_narrow_a_search(desk: Desk) -> None:
    desk.open(q="How do robots see?")
    box = desk.page.get_by_role("checkbox", name=re.compile("^isaac"))
    expect(desk.page.locator(".facet", has_text="isaac").locator(".count")).to_contain_text(
        re.compile(r"\d+ passages")
    )
    box.check()
    expect(desk.page).to_have_url(re.compile("module=isaac"))
    desk.settle()
    assert set(desk.results.locator(".module").all_inner_texts()) == {"ISAAC"}
    expect(box).to_be_focused()
    desk.page.get_by_role("checkbox", name=re.compile("^vla")).check()
    expect(desk.page).to_have_url(re.compile("module=vla"))
    desk.settle()
    assert set(desk.results.locator(".module").all_inner_texts()) <= {"ISAAC", "VLA"}
    offered = desk.page.locator("#page-filter optgroup").evaluate_all("all => all.map(one => one.label)")
    assert offered == ["isaac", "vla"]
    desk.page.get_by_label("Page", exact=True).select_option(label="Isaac ROS")
    expect(desk.page).to_have_url(re.compile("url="))
    desk.settle()
    assert set(desk.results.evaluate_all("all => all.map(one => one.dataset.page)")) == {
        "local://docs/docs/module-3-isaac/02-isaac-ros"
    }
    for _ in range(3):
        desk.page.go_back()
    desk.settle()
    expect(box).not_to_be_checked()
    assert desk.state == {"q": ["How do robots see?"]}


def test_more_results_are_added_where_the_reader_is(desk: Desk) -> None:
    desk.open(q="robot")
    expect(desk.results).to_have_count(10)
    desk.page.get_by_role("link", name="More results").click()
    expect(desk.results).to_have_count(20)
    expect(desk.links.nth(10)).to_be_focused()
    assert desk.state["limit"] == ["20"]


def test_what_the_book_does_not_cover_is_said_and_its_weak_passages_are_folded(desk: Desk) -> None:
    desk.open(q="best pizza recipe in town")
    expect(desk.page.locator(".not-covered")).to_have_text("The book does not seem to cover this.")
    expect(desk.results.first).to_be_hidden()
    desk.page.get_by_text("Show the nearest passages").click()
    expect(desk.results.first).to_be_visible()
    expect(desk.results.first.locator(".score .verdict")).to_have_text("weak")
    expect(desk.results.first.locator(".score-bar")).to_have_attribute(
        "aria-label", re.compile("below the noise floor")
    )
    desk.ask("What is ROS 2?")
    expect(desk.page.locator(".not-covered")).to_have_count(0)


def test_passages_are_grouped_by_page(desk: Desk) -> None:
    desk.open(q="QoS profiles")
    pages = desk.results.evaluate_all("all => all.map(one => one.dataset.page)")
    assert len(pages) == len(set(pages)) == 10
    first = desk.results.first
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
    expect(desk.page.locator("#recto .passage.here")).to_be_visible()
    desk.page.reload()
    desk.settle()
    expect(desk.results.first.locator(".other .result[aria-current=true]")).to_have_text(title)
    expect(desk.results.first.locator(".other .result[aria-current=true]")).to_be_visible()


def test_a_misspelt_word_is_corrected_and_said(desk: Desk) -> None:
    desk.open(q="quaternoin")
    expect(desk.page.locator(".correction")).to_have_text(
        "“quaternoin” is not in the book. Searched for “quaternion”."
    )
    assert "quaternion" in {mark.lower() for mark in desk.page.locator("#list mark").all_text_contents()}


def test_the_mode_is_chosen_and_kept_in_the_address(desk: Desk) -> None:
    desk.open(q="QoS depth")
    for mode, bars in (("lexical", 0), ("dense", 1)):
        desk.page.get_by_label("Mode", exact=True).select_option(mode)
        expect(desk.page).to_have_url(re.compile(f"mode={mode}"))
        desk.settle()
        expect(desk.results.first.locator(".score-bar")).to_have_count(bars)
    desk.page.reload()
    desk.settle()
    expect(desk.page.locator("#mode")).to_have_value("dense")
    desk.page.get_by_label("Mode", exact=True).select_option("")
    expect(desk.page).to_have_url(re.compile(r"\?q=QoS\+depth$"))


def test_filters_that_leave_nothing_are_told_from_no_match(desk: Desk) -> None:
    desk.open(q="robot", module="rosy")
    notice = desk.page.locator(".notice")
    expect(notice).to_contain_text("The filters leave nothing to search in.")
    expect(notice).to_contain_text("There is no module 'rosy'. Did you mean 'ros2'?")
    expect(desk.page.get_by_role("checkbox", name=re.compile("^rosy"))).to_be_checked()
    notice.get_by_role("link", name="Search the whole book").click()
    expect(desk.results).to_have_count(10)


def test_an_empty_question_is_not_asked(desk: Desk) -> None:
    desk.open()
    desk.page.fill("#q", "   ")
    desk.page.get_by_role("button", name="Search").click()
    assert desk.state == {}
    expect(desk.page.locator("#q")).to_be_focused()


def test_an_answer_that_was_overtaken_is_dropped(desk: Desk) -> None:
    """The first question's answer comes after the second's."""
    held: list[Route] = []

    def hold(route: Route) -> None:
        if "slow question" in (route.request.post_data or ""):
            held.append(route)
        else:
            route.continue_()

    desk.open()
    desk.page.route("**/v1/search", hold)
    desk.page.fill("#q", "slow question")
    with desk.page.expect_request("**/v1/search"):
        desk.page.press("#q", "Enter")
    expect(desk.page.locator("#list")).to_have_attribute("aria-busy", "true")
    expect(desk.page.locator(".contents")).to_be_visible()
    desk.ask("What is a ROS 2 node?")
    expect(desk.results.first.locator("h3")).to_have_text("What is a ROS 2 node?")
    (route,) = held
    assert route.request.failure is not None  # the browser no longer waits for it


def test_the_address_holds_everything(desk: Desk) -> None:
    desk.open(q="nodes", module=["ros2", "isaac"], url=SAMPLE_PAGE, limit=3)
    expect(desk.page.locator("#q")).to_have_value("nodes")
    expect(desk.page.get_by_role("checkbox", name=re.compile("^ros2"))).to_be_checked()
    expect(desk.page.locator("#page-filter")).to_have_value(SAMPLE_PAGE)
    expect(desk.results).to_have_count(1)
    assert desk.page.locator("#nav-health").get_attribute("href") == (
        f"?q=nodes&module=ros2&module=isaac&url={SAMPLE_PAGE.replace('/', '%2F').replace(':', '%3A')}&view=health&limit=3"
    )


def test_books_are_chosen_from_those_that_are_served(desk: Desk) -> None:
    desk.open(q="robot")
    desk.page.get_by_label("Book", exact=True).select_option("hostile")
    expect(desk.page).to_have_url(re.compile("collection=hostile"))
    desk.settle()
    desk.unfold()
    assert set(desk.results.locator(".module").all_inner_texts()) == {"DANGER"}
    desk.page.go_back()
    desk.settle()
    expect(desk.page.get_by_label("Book", exact=True)).to_have_value("")
    assert "DANGER" not in desk.results.locator(".module").all_inner_texts()
