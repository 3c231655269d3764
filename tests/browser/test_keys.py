"""Everything by the keyboard alone."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.desk import SAMPLE_PAGE, Desk


def test_a_reader_without_a_mouse_searches_reads_relates_and_returns(desk: Desk) -> None:
    desk.open(module="ros2")
    keyboard = desk.page.keyboard
    desk.page.locator("body").press("Tab")
    assert desk.focused() == "Skip to content"
    keyboard.press("/")
    assert desk.focused() == "q"
    keyboard.type("What is a ROS 2 node/topic?")  # within the question, a slash is a slash
    keyboard.press("Enter")
    expect(desk.page).to_have_url(re.compile("q=What"))
    desk.settle()
    titles = desk.links.all_inner_texts()
    keyboard.press("ArrowDown")
    keyboard.press("ArrowDown")
    assert desk.focused() == titles[1]
    keyboard.press("ArrowUp")
    assert desk.focused() == titles[0]
    keyboard.press("Enter")
    expect(desk.page.locator(".passage.here")).to_be_focused()
    keyboard.press("r")
    expect(desk.page.get_by_role("heading", name="Related passages")).to_be_focused()
    desk.settle()
    keyboard.press("ArrowDown")
    assert desk.focused() == desk.links.first.inner_text()
    keyboard.press("Enter")
    expect(desk.page.locator(".passage.here")).to_be_focused()
    assert "selection" in desk.state
    keyboard.press("Escape")
    expect(desk.page.get_by_role("heading", name="Passages", exact=True)).to_be_visible()
    desk.settle()
    assert "selection" not in desk.state
    keyboard.press("Escape")
    expect(desk.page.locator("#recto")).to_be_hidden()
    assert desk.state == {"q": ["What is a ROS 2 node/topic?"], "module": ["ros2"]}


def test_escape_lets_go_of_a_selection_first(desk: Desk) -> None:
    desk.open(page=SAMPLE_PAGE)
    desk.page.evaluate("getSelection().selectAllChildren(document.querySelector('.passage .body'))")
    expect(desk.page.locator("#related-tool")).to_be_visible()
    expect(desk.page.locator("#live")).to_contain_text("Text is selected. The key r shows related passages.")
    desk.page.keyboard.press("Escape")
    expect(desk.page.locator("#related-tool")).to_be_hidden()
    expect(desk.page.locator("#recto")).to_be_visible()


def test_single_keys_can_be_switched_off(desk: Desk) -> None:
    desk.open()
    desk.page.locator("#list-title").focus()
    desk.page.keyboard.press("?")
    help = desk.page.get_by_role("dialog", name="Keys")
    expect(help).to_be_visible()
    help.get_by_role("checkbox").uncheck()
    desk.page.keyboard.press("Escape")
    expect(help).to_be_hidden()
    desk.page.reload()
    desk.settle()
    desk.page.locator("#list-title").focus()
    desk.page.keyboard.press("/")
    desk.page.keyboard.press("?")
    assert desk.focused() == "list-title"
    expect(help).to_be_hidden()


def test_the_tab_key_reaches_every_control(desk: Desk) -> None:
    desk.open(q="nodes", page=SAMPLE_PAGE, passage=1)
    controls = 'a[href], button, input, select, summary, [tabindex="0"]'
    count = desk.page.evaluate(
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
        desk.page.keyboard.press("Tab")
    assert (
        desk.page.evaluate(
            "window.seen().filter(one => !window.reached.has(one)).map(one => one.outerHTML.slice(0, 120))"
        )
        == []
    )
