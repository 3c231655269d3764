"""Test the page about the HTTP API: it shows the whole description, and sends requests."""

from __future__ import annotations

from typing import Literal

import pytest
from playwright.sync_api import Browser, expect

from recto.server.http import ServeOptions
from recto.settings import Settings
from tests.browser.checks import invisible_focus, problems
from tests.browser.webui import PHONE, WIDE, WebUI
from tests.server.http.service import Service

KEY = "a-key-of-twenty-chars"


@pytest.mark.parametrize(("size", "scheme"), [(WIDE, "light"), (PHONE, "dark")])
def test_the_whole_description_is_shown(
    browser: Browser, service: Service, size: tuple[int, int], scheme: Literal["light", "dark"]
) -> None:
    described = service.get("/openapi.json").json()
    operations = [
        f"{method.upper()} {path}" for path, methods in described["paths"].items() for method in methods
    ]
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


def test_a_key_is_required(browser: Browser, house_settings: Settings) -> None:
    with Service(house_settings, ServeOptions(keys=(KEY,))) as service, WebUI(browser, service.port) as ui:
        ui.page.goto(f"{ui.origin}/docs")
        expect(ui.page.locator("#message")).to_contain_text("An API key is required")
        ui.page.get_by_label("API key", exact=False).last.fill(KEY)
        ui.page.keyboard.press("Enter")
        expect(ui.page.locator(".operation").first).to_be_visible()
        expect(ui.page.locator("#message")).to_be_empty()
        assert KEY not in ui.page.content()
