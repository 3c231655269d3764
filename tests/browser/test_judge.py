"""Test the judging page: a person grades results with the keyboard alone, and each grade is in the file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Page, expect

from recto.evaluation.suites import load_suite
from recto.search.retriever import Retriever
from tests.browser.webui import PHONE, WIDE, WebUI, invisible_focus, problems
from tests.server.judging import TOKEN, JudgingService, read_entries, write_suite

QUESTIONS: list[dict[str, Any]] = [
    {"query": "How do I feed leaven?", "expect": {"module": "kitchen"}},
    {"query": "When do I sow beans?", "expect": {"module": "garden"}},
    {"query": "What keeps slugs away?", "expect": {"module": "garden"}},
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_suite(tmp_path / "suite.json", QUESTIONS)


@pytest.fixture
def judging(path: Path, house_retriever: Retriever) -> Iterator[JudgingService]:
    with JudgingService(path, house_retriever) as service:
        yield service


def open_page(ui: WebUI) -> Page:
    ui.page.goto(f"{ui.origin}/#{TOKEN}")
    expect(ui.page.locator("#candidate-title, #summary-title").first).to_be_visible()
    return ui.page


def grades(path: Path) -> list[int]:
    return [grade for one in load_suite(path).expectations for _, grade in one.grades]


def test_all_questions_are_judged_by_keyboard(browser: Browser, judging: JudgingService, path: Path) -> None:
    totals = [len(question.candidates) for question in judging.pool.questions]
    with WebUI(browser, judging.port) as ui:
        page = open_page(ui)
        assert TOKEN not in page.url
        counts, query = page.locator("#counts"), page.locator("#query")
        expect(counts).to_have_text(f"0 judged, {sum(totals)} left")
        expect(query).to_have_text(QUESTIONS[0]["query"])
        for number, total in enumerate(totals):
            expect(query).to_have_text(QUESTIONS[number]["query"])
            for position in range(total):
                page.keyboard.press(str((number + position) % 3))
        expect(page.locator("#summary-title")).to_have_text("All results are judged")
        expect(page.locator("#summary tbody tr")).to_have_count(3)
        expect(page.locator("#summary")).to_contain_text("house, lexical")
        expect(counts).to_have_text(f"{sum(totals)} judged, 0 left")
    suite = load_suite(path)
    pairs = zip(judging.pool.questions, suite.expectations, strict=True)
    for number, (question, expectation) in enumerate(pairs):
        expected = {one.name: (number + rank) % 3 for rank, one in enumerate(question.candidates)}
        assert dict(expectation.grades) == expected


def test_moves_skips_and_undo(browser: Browser, judging: JudgingService, path: Path) -> None:
    with WebUI(browser, judging.port) as ui:
        page = open_page(ui)
        current, query = page.locator("#candidates [aria-current] .number"), page.locator("#query")
        for key, number in (("j", "2"), ("ArrowDown", "3"), ("k", "2"), ("ArrowUp", "1"), ("ArrowUp", "1")):
            page.keyboard.press(key)
            expect(current).to_have_text(number)
        page.keyboard.press("s")
        expect(current).to_have_text("2")
        page.keyboard.press("2")
        expect(current).to_have_text("3")
        page.keyboard.press("n")
        expect(query).to_have_text("When do I sow beans?")
        page.keyboard.press("0")
        page.keyboard.press("u")
        expect(page.locator("#candidates [data-grade]")).to_have_count(0)
        page.keyboard.press("u")
        expect(query).to_have_text("How do I feed leaven?")
        expect(current).to_have_text("2")
        assert read_entries(path) == QUESTIONS
        page.keyboard.press("u")
        expect(page.locator("#message")).to_contain_text("nothing to undo")
        page.keyboard.press("1")
        expect(page.locator("#message")).to_be_empty()
        page.keyboard.press("Shift+?")
        expect(page.get_by_role("dialog")).to_be_visible()
        page.keyboard.press("2")
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_be_hidden()
        for key in "nnn":
            page.keyboard.press(key)
        left = sum(len(question.candidates) for question in judging.pool.questions) - 1
        expect(page.locator("#summary-title")).to_have_text(f"{left} results left")
        page.keyboard.press("p")
        expect(query).to_have_text("What keeps slugs away?")
        page.reload()
        expect(query).to_have_text("How do I feed leaven?")
        expect(page.locator("#counts")).to_have_text(re.compile("^1 judged"))
        expect(current).to_have_text("1")
    assert grades(path) == [1]


def test_grades_that_cannot_be_saved_are_kept(browser: Browser, judging: JudgingService, path: Path) -> None:
    with WebUI(browser, judging.port) as ui:
        page = open_page(ui)
        message = page.locator("#message")
        moved = path.rename(path.with_name("moved.json"))
        page.keyboard.press("2")
        expect(message).to_contain_text("1 grade not saved")
        expect(message).to_contain_text("cannot be read")
        page.keyboard.press("0")
        page.keyboard.press("1")
        page.keyboard.press("u")
        expect(message).to_contain_text("2 grades not saved")
        moved.rename(path)
        expect(message).to_be_empty()
        assert grades(path) == [2, 0]


def test_a_wrong_address(browser: Browser, judging: JudgingService) -> None:
    with WebUI(browser, judging.port) as ui:
        ui.page.goto(f"{ui.origin}/")
        expect(ui.page.locator("#message")).to_contain_text("recto judge")


@pytest.mark.parametrize(
    ("size", "scheme"), [(WIDE, "light"), (WIDE, "dark"), (PHONE, "light"), (PHONE, "dark")]
)
def test_the_page_is_accessible(
    browser: Browser, judging: JudgingService, size: tuple[int, int], scheme: Literal["light", "dark"]
) -> None:
    with WebUI(browser, judging.port, size, scheme, reduced_motion="reduce") as ui:
        page = open_page(ui)
        for key in "201":
            page.keyboard.press(key)
        expect(page.locator("#candidates [data-grade]")).to_have_count(3)
        page.keyboard.press("k")
        for _ in range(2):
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert problems(page) == ["no [role=search], search"], "there is nothing to search"
            assert invisible_focus(page) == []
            for key in "nnn":
                page.keyboard.press(key)
            expect(page.locator("#summary-title")).to_be_visible()
