"""Every view, light and dark, for those who do not see it, do not point at it, or do not tell its colours apart."""

from __future__ import annotations

import re
from typing import Literal

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.checks import problems, unseen_focus
from tests.browser.desk import Desk
from tests.browser.test_looks import VIEWS
from tests.server.http.service import Service


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_can_be_used_by_everyone(
    browser: Browser, service: Service, scheme: Literal["light", "dark"]
) -> None:
    with Desk(browser, service.port, scheme=scheme, reduced_motion="reduce") as desk:
        for name, state in VIEWS.items():
            desk.open(**state)
            assert problems(desk.page) == [], name
            assert unseen_focus(desk.page) == [], name
        desk.page.get_by_role("button", name="Keys").click()
        expect(desk.page.get_by_role("dialog", name="Keys")).to_be_visible()
        assert problems(desk.page) == []


def test_the_checks_see_what_is_wrong(desk: Desk) -> None:
    """A check that cannot fail checks nothing."""
    desk.open()
    assert problems(desk.page) == []
    desk.page.evaluate(
        """() => {
            const add = (tag, attributes = {}, text = "") => {
                const one = document.createElement(tag);
                for (const [name, value] of Object.entries(attributes)) one.setAttribute(name, value);
                one.textContent = text;
                document.querySelector("main").append(one);
                return one;
            };
            add("button");
            add("input");
            add("h5", {}, "deep");
            add("span", {}, "pale").style.color = "#ccc";
            add("p", { id: "q" }, "twice");
            add("a", { href: "#", "aria-labelledby": "nowhere" }, "named by nothing");
            add("a", { href: "#", tabindex: "3" }, "first");
            add("button", {}, "flat").style.cssText = "outline: none; border-color: transparent";
            document.documentElement.lang = "";
        }"""
    )
    found = " ".join(problems(desk.page))
    for wrong in (
        "no name: <button>",
        "no label: <input>",
        "h5 after h",
        "contrast 1.",
        "twice: #q",
        "aria-labelledby leads nowhere",
        "tab order is forced",
        "no language",
    ):
        assert wrong in found, wrong
    assert any("flat" in control for control in unseen_focus(desk.page))


def test_changes_are_said_aloud(desk: Desk) -> None:
    desk.open(q="What is ROS 2?")
    live = desk.page.get_by_role("status")
    expect(live).to_contain_text(re.compile(r"Passages: \d+ passages on 10 pages$"))
    desk.ask("best pizza recipe in town")
    expect(live).to_contain_text(
        re.compile(r"Passages: The book does not seem to cover this\. \d+ passages on \d+ pages")
    )
    desk.unfold()
    desk.links.first.click()
    expect(live).to_contain_text("Page: ")
    desk.page.get_by_role("link", name="Health").click()
    expect(live).to_contain_text("A sample search works. 2 things to do.")
