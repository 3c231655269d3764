"""Test the health view."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from recto.evaluation import records
from recto.evaluation.coverage import cover
from recto.evaluation.runs import run_suite
from recto.evaluation.suites import Expectation, Suite
from recto.protocols import Embedder
from recto.search.retriever import Retriever
from recto.settings import Settings
from recto.stores.edge.store import EdgeStore
from tests.breaking import Passages, publish_broken
from tests.browser.webui import WebUI
from tests.server.http.service import Service


@pytest.fixture(scope="module")
def measured(house: Path, embedder: Embedder, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """An index in which two sections cannot be found, with its coverage and the run of a suite."""
    home = tmp_path_factory.mktemp("measured") / "home"
    shutil.copytree(house / "home", home)
    store = EdgeStore(home)

    def spoilt(passages: Passages) -> Passages:
        return [
            (one, [-number for number in numbers] if one.anchor in ("slugs", "brakes") else numbers)
            for one, numbers in passages
        ]

    publish_broken(store, "house", "broken", spoilt)
    retriever = Retriever(embedder, store, "broken")
    records.keep_coverage(home, retriever.open().info, cover(retriever))
    questions = (
        Expectation("When are beans sown?", modules=("garden",)),
        Expectation("What eats lettuce at night?", modules=("kitchen",)),
    )
    run = run_suite(retriever, Suite("household", questions))
    records.keep_run(home, retriever.open().info, run, "recto validate --suite household.json")
    return Settings("local", "edge", home, threads=1, collection="broken")


def test_measurements_are_shown(browser: Browser, measured: Settings) -> None:
    with Service(measured) as service, WebUI(browser, service.port) as ui:
        ui.open(q="How is jam made?")
        ui.page.get_by_role("link", name="Health").click()
        expect(ui.page.get_by_role("heading", name="Health")).to_be_focused()
        ui.settle()
        health = ui.page.locator("#health")
        expect(health.locator("header")).to_contain_text(
            "A sample search works. 1 question of the last suite failed. 2 sections cannot be found well."
        )
        facts = dict(
            zip(health.locator("dt").all_inner_texts(), health.locator("dd").all_inner_texts(), strict=True)
        )
        assert facts["Collection"] == "broken"
        assert facts["Sample search works"] == "yes"
        assert int(facts["Passages"]) > 30
        assert int(facts["Searches"]) >= 1
        expect(health.get_by_role("img", name=re.compile(r"^\d+ of \d+ sections are found"))).to_be_visible()
        expect(health.locator(".page-coverage .cell.unreachable")).to_have_count(2)
        assert health.locator(".page-coverage .cell.reached").count() > 20
        pests = health.locator(".page-coverage", has=ui.page.get_by_role("link", name="Pests"))
        expect(pests.get_by_role("img")).to_have_attribute("aria-label", "2 of 3 sections found")
        pests.locator("summary").click()
        expect(pests.locator("details li")).to_have_text(["Slugs: not found"])
        expect(health).to_contain_text("1 of 2 questions passed in household")
        expect(health.locator(".latency .value").first).to_be_visible()
        expect(health.get_by_role("img", name=re.compile(r"^The latest \d+ search"))).to_be_visible()
        health.get_by_role("link", name="What eats lettuce at night?").click()
        expect(ui.page.locator("#q")).to_have_value("What eats lettuce at night?")
        ui.page.go_back()
        expect(health).to_be_visible()
        ui.settle()
        pests.locator("summary").click()
        pests.get_by_role("link", name="Slugs").click()
        expect(ui.page.locator(".chunk.current")).to_contain_text("Slugs come out at night")


def test_missing_measurements_are_shown_with_their_commands(ui: WebUI) -> None:
    ui.open(view="health")
    advice = ui.page.locator(".advice")
    expect(advice.locator("code").first).to_have_text("recto coverage --collection humanoid_robotics_book")
    expect(ui.page.locator("#health")).to_contain_text("No evaluation suite was run.")
    ui.page.keyboard.press("Escape")
    expect(ui.page.locator("#list .contents")).to_be_visible()
