"""Test the web UI with the keyboard alone."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.webui import SAMPLE_PAGE, WebUI


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
    expect(ui.page).to_have_url(re.compile("q=What"))
    ui.settle()
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
    ui.page.reload()
    ui.settle()
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
    assert (
        ui.page.evaluate(
            "window.seen().filter(one => !window.reached.has(one)).map(one => one.outerHTML.slice(0, 120))"
        )
        == []
    )
