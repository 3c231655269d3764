"""A book and questions that try to run something in the reader's browser: nothing runs, nothing is fetched, nothing is injected."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.desk import Desk
from tests.browser.hostile import ATTACKS

PAGES = ("01-titles", "02-links", "03-code")
QUESTIONS = (
    ATTACKS[1],
    '"><svg onload=window.ran=1>',
    "javascript:window.ran=1",
    "](javascript:window.ran=1)",
    "(((((.*+?^${}|[\\",
)
_STRANGERS = """
[...document.querySelectorAll("script, iframe, img, object, embed, base, style, link, meta[http-equiv], form, animate")]
    .filter(one => !["static/theme.js", "static/main.js"].includes(one.getAttribute("src")))
    .filter(one => !/^static\\//.test(one.getAttribute("href") ?? ""))
    .filter(one => one.id !== "search" && one.getAttribute("method") !== "dialog")
    .map(one => one.outerHTML)
"""
_HANDLERS = """
[...document.querySelectorAll("*")].flatMap(one => [...one.attributes].map(({ name }) => name)).filter(name => /^on|^style$/i.test(name))
"""
_SCHEMES = "[...new Set([...document.querySelectorAll('[href]')].map(one => new URL(one.getAttribute('href'), location.href).protocol))]"


def nothing_ran(desk: Desk) -> None:
    page = desk.page
    assert page.evaluate("window.ran") is None
    assert page.evaluate(_STRANGERS) == []
    # Where the floating button stands is set by the page itself.
    assert page.evaluate(_HANDLERS) in ([], ["style"])
    assert set(page.evaluate(_SCHEMES)) <= {"http:", "https:"}
    assert page.evaluate("location.origin") == desk.origin
    expect(page.locator("body")).to_be_visible()


@pytest.mark.parametrize("name", PAGES)
def test_a_hostile_page_is_only_text(desk: Desk, name: str) -> None:
    desk.open(collection="hostile", q="poison", page=f"local://docs/docs/module-1-danger/{name}")
    expect(desk.page.locator("#recto .passage").first).to_be_visible()
    nothing_ran(desk)
    for link in desk.page.locator("#recto .text a").all():
        address = link.get_attribute("href") or ""
        assert address.startswith(("https://elsewhere.invalid/", "?")), address
        assert link.get_attribute("rel") == "noopener noreferrer" or address.startswith("?")
    desk.unfold()
    desk.results.locator("button").evaluate_all("all => all.forEach(one => one.click())")
    nothing_ran(desk)
    text = desk.page.locator("#recto").inner_text()
    assert "window.ran" in text  # it is all there, to be read


def test_a_hostile_title_stays_a_title_everywhere(desk: Desk) -> None:
    desk.open(collection="hostile")
    expect(desk.page.locator(".contents a").first).to_have_text(f"Poison {ATTACKS[0]}")
    nothing_ran(desk)
    desk.ask("the poison of a heading")
    nothing_ran(desk)
    desk.unfold()
    desk.links.first.click()
    expect(desk.page.locator(".passage.here")).to_be_visible()
    nothing_ran(desk)
    desk.page.locator(".passage.here").get_by_role("button").click()
    expect(desk.page.get_by_role("heading", name="Related passages")).to_be_visible()
    desk.settle()
    nothing_ran(desk)


@pytest.mark.parametrize("attack", QUESTIONS)
def test_a_hostile_question_is_only_a_question(desk: Desk, attack: str) -> None:
    desk.open()
    desk.ask(attack)
    desk.unfold()
    expect(desk.results.first).to_be_visible()
    nothing_ran(desk)
    desk.open(
        q=attack,
        module=attack,
        url=attack,
        page=attack,
        anchor=attack,
        selection=attack,
        collection="hostile",
    )
    expect(desk.page.locator("#list .notice")).to_contain_text("The filters leave nothing to search in.")
    expect(desk.page.locator("#recto .notice")).to_be_visible()
    nothing_ran(desk)


def test_the_policy_forbids_what_the_page_never_does(desk: Desk) -> None:
    """The second line of defence: were a script or a style injected, it would not run."""
    desk.open()
    policy = desk.page.evaluate("fetch('/').then(answer => answer.headers.get('content-security-policy'))")
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    desk.page.evaluate(
        """() => {
            const script = document.createElement("script");
            script.textContent = "window.ran = 1";
            document.body.append(script);
            const style = document.createElement("style");
            style.textContent = "body { color: red }";
            document.head.append(style);
        }"""
    )
    assert desk.page.evaluate("window.ran") is None
    assert sorted(desk.page.evaluate("window.violations.splice(0).map(one => one.split(' ')[0])")) == [
        "script-src-elem",
        "style-src-elem",
    ]
    desk.page.wait_for_timeout(0)  # what the console says of it has come by now
    desk.wrong.clear()
