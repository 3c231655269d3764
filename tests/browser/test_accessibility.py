"""Test the accessibility of every view, light and dark."""

from __future__ import annotations

import re
from typing import Literal

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.checks import invisible_focus, problems
from tests.browser.test_looks import VIEWS
from tests.browser.webui import WebUI
from tests.server.http.service import Service


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_view_has_accessibility_problems(
    browser: Browser, service: Service, scheme: Literal["light", "dark"]
) -> None:
    with WebUI(browser, service.port, scheme=scheme, reduced_motion="reduce") as ui:
        for name, state in VIEWS.items():
            ui.open(**state)
            assert problems(ui.page) == [], name
            assert invisible_focus(ui.page) == [], name
        ui.page.get_by_role("button", name="Shortcuts").click()
        expect(ui.page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
        assert problems(ui.page) == []


def test_changes_are_announced(ui: WebUI) -> None:
    ui.open(q="What is ROS 2?")
    live = ui.page.get_by_role("status")
    expect(live).to_contain_text(re.compile(r"Passages: \d+ passages on 10 pages$"))
    ui.ask("best pizza recipe in town")
    expect(live).to_contain_text(
        re.compile(r"Passages: The book does not seem to cover this\. \d+ passages on \d+ pages")
    )
    ui.unfold()
    ui.links.first.click()
    expect(live).to_contain_text("Page: ")
    ui.page.get_by_role("link", name="Health").click()
    expect(live).to_contain_text("A sample search works. 2 things to do.")
