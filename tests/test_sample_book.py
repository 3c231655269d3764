"""The sample book: a real textbook in a real Docusaurus tree, and it answers what people ask."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from recto.book.parsing.markdown import parse
from recto.evaluation.runs import validate
from recto.evaluation.suites import documented_suite, load_suite
from recto.search.retriever import Retriever
from tests.running import ROOT, SAMPLE_DOCS

PAGES = sorted(path for path in (SAMPLE_DOCS / "docs").rglob("*.md*"))
HELD_OUT = ROOT / "tests" / "evaluation" / "heldout.json"
DEVELOPMENT = ROOT / "src" / "recto" / "sample" / "development.json"


def test_it_is_a_book_with_what_real_books_have() -> None:
    text = "\n".join(page.read_text("utf-8") for page in PAGES)
    assert len(PAGES) >= 20
    assert len(text.split()) >= 15_000
    folders = {"docs", "module-1-ros2", "module-2-simulation", "module-3-isaac", "module-4-vla"}
    assert {page.parent.name for page in PAGES} == folders
    for feature in (
        "```mermaid",
        "<Tabs",
        "<TabItem",
        ":::note",
        ":::warning",
        "<details>",
        "| --- |",
        "```xml",
        "{#",
    ):
        assert feature in text, feature
    assert (SAMPLE_DOCS / "docusaurus.config.js").is_file()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_page_is_whole(page: Path) -> None:
    text = page.read_text("utf-8")
    document = parse(text, mdx=True)
    assert document.front_matter["title"] == document.title
    assert {"sidebar_position", "description", "keywords"} <= set(document.front_matter)
    assert f"# {document.title}\n" in text
    assert len(re.findall(r"^(```|~~~)", text, re.MULTILINE)) % 2 == 0
    assert len(re.findall(r"^:::", text, re.MULTILINE)) % 2 == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((\.{1,2}/[^)#\s]+)?(?:#([\w-]+))?\)", page.read_text("utf-8")):
        file = (page.parent / target).resolve() if target else page
        assert file.is_file(), target
        if anchor:
            assert anchor in {
                section.anchor for section in parse(file.read_text("utf-8"), mdx=True).sections
            }, f"{target}#{anchor}"


@pytest.mark.parametrize(
    ("query", "page"),
    [
        ("What is DDS in ROS 2?", "04-dds-and-qos"),
        ("How do QoS profiles work?", "04-dds-and-qos"),
        ("Explain URDF syntax", "03-humanoid-urdf"),
        ("How does ROS 2 differ from ROS 1?", "01-ros2-fundamentals"),
        ("What is a digital twin?", "05-digital-twins"),
        ("Why use Unity for robot simulation?", "04-unity-simulation"),
        ("How to create a ROS 2 publisher in Python?", "02-python-ros-control"),
        ("How to configure Gazebo physics?", "02-physics-and-contacts"),
        ("How to integrate Unity with ROS 2?", "04-unity-simulation"),
        ("ROS 2 communication patterns", "05-services-actions-parameters"),
    ],
)
def test_every_answerable_query_of_the_test_contract_has_its_page_first(
    retriever: Retriever, query: str, page: str
) -> None:
    assert retriever.search(query).hits[0].chunk.page_url.endswith(page)


def test_visualization_and_simulation_and_a_very_short_query(retriever: Retriever) -> None:
    assert {hit.chunk.module for hit in retriever.search("Robot visualization and simulation").hits[:2]} <= {
        "simulation",
        "isaac",
    }
    assert retriever.search("ros2").hits[0].chunk.module == "ros2"
    irrelevant, relevant = retriever.search("quantum entanglement"), retriever.search("What is ROS 2?")
    assert irrelevant.hits[0].score < relevant.hits[0].score - 0.15


def test_the_documented_suite_passes_whole(retriever: Retriever) -> None:
    report = validate(retriever, documented_suite())
    assert (report.passed, report.share, report.sufficient) == (5, 1.0, True)


@pytest.mark.parametrize("path", [DEVELOPMENT, HELD_OUT], ids=lambda path: path.stem)
def test_learners_questions_find_their_module(retriever: Retriever, path: Path) -> None:
    suite = load_suite(path)
    assert len(suite.expectations) >= 60
    report = validate(retriever, suite)
    assert report.share is not None
    assert report.share >= 0.94
    page_hits = report.page_hits(5)
    assert page_hits is not None
    assert page_hits >= 0.95
