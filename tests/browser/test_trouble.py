"""What the page shows when the service stops, its engine is down, or a key is required."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

from playwright.sync_api import Browser, expect

from recto.server.http.options import ServeOptions
from recto.settings import Settings
from tests.browser.desk import Desk
from tests.server.http.service import Service

KEY = "a-key-of-twenty-chars"


def test_a_service_that_stops_between_two_questions(browser: Browser, house_settings: Settings) -> None:
    running = ExitStack()
    service = running.enter_context(Service(house_settings))
    with running, Desk(browser, service.port) as desk:
        desk.open(q="When are beans sown?")
        expect(desk.results.first.locator("h3")).to_have_text("Sowing beans")
        desk.context.set_offline(True)
        desk.ask("Which insects eat aphids?")
        notice = desk.page.locator(".notice")
        expect(notice).to_have_role("alert")
        expect(notice).to_contain_text("The service does not answer.")
        expect(notice).to_contain_text("start it with recto serve")
        expect(desk.results).to_have_count(0)
        desk.context.set_offline(False)
        desk.page.get_by_role("button", name="Try again").click()
        expect(desk.results.first.locator("h3")).to_have_text("Ladybirds")
        running.close()
        desk.ask("How is jam made?")
        expect(notice).to_contain_text("The service does not answer.")


def test_an_engine_that_is_down(browser: Browser, tmp_path: Path, closed_port: int) -> None:
    settings = Settings(
        "local",
        "server",
        tmp_path,
        threads=2,
        collection="house",
        qdrant_url=f"http://127.0.0.1:{closed_port}",
    )
    with Service(settings) as service, Desk(browser, service.port) as desk:
        desk.open(q="When are beans sown?")
        notice = desk.page.locator("#list .notice")
        expect(notice).to_contain_text("The book cannot be searched at the moment.")
        expect(notice).to_contain_text("The engine behind this service is unreachable")
        assert str(closed_port) not in desk.page.content()
        desk.page.get_by_role("link", name="Health").click()
        expect(desk.page.locator("#health .notice")).to_contain_text("is unreachable")


def test_a_service_that_wants_a_key(browser: Browser, house_settings: Settings) -> None:
    with Service(house_settings, ServeOptions(keys=(KEY,))) as service, Desk(browser, service.port) as desk:
        desk.page.goto(f"{desk.origin}/?q=When+are+beans+sown%3F")
        dialog = desk.page.get_by_role("dialog", name="An API key is required")
        field = dialog.get_by_label("Key", exact=True)
        expect(field).to_be_focused()
        dialog.get_by_role("button", name="Not now").click()
        expect(desk.page.locator(".notice")).to_contain_text("An API key is required.")
        desk.page.get_by_role("button", name="Enter the key").click()
        field.fill("not the key")
        field.press("Enter")
        expect(dialog.get_by_text("The service did not accept that key.")).to_be_visible()
        field.fill(KEY)
        field.press("Enter")
        expect(desk.results.first.locator("h3")).to_have_text("Sowing beans")
        expect(dialog).to_be_hidden()
        desk.page.reload()
        expect(desk.results.first).to_be_visible()
        assert KEY not in desk.page.url + desk.page.content()
        assert desk.page.evaluate("JSON.stringify(localStorage)") == "{}"
        other = desk.tab()
        other.goto(desk.page.url)
        expect(
            other.get_by_role("dialog", name="An API key is required")
        ).to_be_visible()  # a key is one tab's


def test_a_book_that_is_not_served(desk: Desk) -> None:
    desk.open(q="robot", collection="nowhere")
    expect(desk.page.locator(".notice")).to_contain_text("There is no such collection here.")


def test_a_question_that_is_too_long_for_the_service(desk: Desk) -> None:
    """The field holds no more than the service takes, and an address that holds more is cut."""
    desk.open(q="robot " * 1000)
    expect(desk.results.first).to_be_visible()
    assert len(desk.page.input_value("#q")) <= 2000


def test_too_many_requests(browser: Browser, house_settings: Settings) -> None:
    with Service(house_settings, ServeOptions(rate=6)) as service, Desk(browser, service.port) as desk:
        desk.open(q="When are beans sown?")
        for number in range(8):
            desk.ask(f"How is jam made {number}?")
        expect(desk.page.locator(".notice")).to_contain_text("Too many requests.")
        expect(desk.page.locator(".notice")).to_contain_text(re.compile(r"Wait \d+ seconds\."))
