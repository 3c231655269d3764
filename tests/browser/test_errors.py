"""Test what the page shows when the service stops, its engine is down, or a key is required."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

from playwright.sync_api import Browser, expect

from recto.server.http import ServeOptions
from recto.settings import Settings
from tests.browser.webui import WebUI
from tests.server.http.service import Service

KEY = "a-key-of-twenty-chars"


def test_the_service_stops(browser: Browser, house_settings: Settings) -> None:
    running = ExitStack()
    service = running.enter_context(Service(house_settings))
    with running, WebUI(browser, service.port) as ui:
        ui.open(q="When are beans sown?")
        expect(ui.results.first.locator("h3")).to_have_text("Sowing beans")
        ui.context.set_offline(True)
        ui.ask("Which insects eat aphids?")
        notice = ui.page.locator(".notice")
        expect(notice).to_have_role("alert")
        expect(notice).to_contain_text("The service does not answer.")
        expect(notice).to_contain_text("start it with recto serve")
        expect(ui.results).to_have_count(0)
        ui.context.set_offline(False)
        ui.page.get_by_role("button", name="Try again").click()
        expect(ui.results.first.locator("h3")).to_have_text("Ladybirds")
        running.close()
        ui.ask("How is jam made?")
        expect(notice).to_contain_text("The service does not answer.")


def test_the_engine_is_down(browser: Browser, tmp_path: Path, closed_port: int) -> None:
    url = f"http://127.0.0.1:{closed_port}"
    settings = Settings("local", "server", tmp_path, threads=1, collection="house", qdrant_url=url)
    with Service(settings) as service, WebUI(browser, service.port) as ui:
        ui.open(q="When are beans sown?")
        notice = ui.page.locator("#list .notice")
        expect(notice).to_contain_text("The book cannot be searched at the moment.")
        expect(notice).to_contain_text("The engine behind this service is unreachable")
        assert str(closed_port) not in ui.page.content()
        ui.page.get_by_role("link", name="Health").click()
        expect(ui.page.locator("#health .notice")).to_contain_text("is unreachable")


def test_a_key_is_required(browser: Browser, house_settings: Settings) -> None:
    with Service(house_settings, ServeOptions(keys=(KEY,))) as service, WebUI(browser, service.port) as ui:
        ui.page.goto(f"{ui.origin}/?q=When+are+beans+sown%3F")
        dialog = ui.page.get_by_role("dialog", name="An API key is required")
        field = dialog.get_by_label("Key", exact=True)
        expect(field).to_be_focused()
        dialog.get_by_role("button", name="Not now").click()
        expect(ui.page.locator(".notice")).to_contain_text("An API key is required.")
        ui.page.get_by_role("button", name="Enter the key").click()
        field.fill("not the key")
        field.press("Enter")
        expect(dialog.get_by_text("The service did not accept that key.")).to_be_visible()
        field.fill(KEY)
        field.press("Enter")
        expect(ui.results.first.locator("h3")).to_have_text("Sowing beans")
        expect(dialog).to_be_hidden()
        ui.page.reload()
        expect(ui.results.first).to_be_visible()
        assert KEY not in ui.page.url + ui.page.content()
        assert ui.page.evaluate("JSON.stringify(localStorage)") == "{}"
        other = ui.tab()
        other.goto(ui.page.url)
        expect(
            other.get_by_role("dialog", name="An API key is required")
        ).to_be_visible()  # each tab has its own key


def test_an_unknown_collection_and_a_long_query(ui: WebUI) -> None:
    ui.open(q="robot", collection="nowhere")
    expect(ui.page.locator(".notice")).to_contain_text("There is no such collection here.")
    ui.open(q="robot " * 1000)
    expect(ui.results.first).to_be_visible()
    assert len(ui.page.input_value("#q")) <= 2000


def test_too_many_requests(browser: Browser, house_settings: Settings) -> None:
    with Service(house_settings, ServeOptions(rate=6)) as service, WebUI(browser, service.port) as ui:
        ui.open(q="When are beans sown?")
        for number in range(8):
            ui.ask(f"How is jam made {number}?")
        expect(ui.page.locator(".notice")).to_contain_text("Too many requests.")
        expect(ui.page.locator(".notice")).to_contain_text(re.compile(r"Wait \d+ seconds\."))
