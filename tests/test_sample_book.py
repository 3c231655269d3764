"""The sample book: a real textbook in a real Docusaurus tree, and it answers what people ask."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from recto.book.parsing.markdown import parse
from recto.evaluation.runs import validate
from recto.evaluation.suites import load_suite
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
    features = ("```mermaid", "<Tabs", "<TabItem", ":::note", ":::warning", "<details>", "| --- |", "{#")
    assert [one for one in features if one not in text] == []
    assert (SAMPLE_DOCS / "docusaurus.config.js").is_file()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_page_is_whole_and_its_links_lead_somewhere(page: Path) -> None:
    text = page.read_text("utf-8")
    document = parse(text, mdx=True)
    assert document.front_matter["title"] == document.title
    assert {"sidebar_position", "description", "keywords"} <= set(document.front_matter)
    assert f"# {document.title}\n" in text
    assert len(re.findall(r"^(```|~~~)", text, re.MULTILINE)) % 2 == 0
    assert len(re.findall(r"^:::", text, re.MULTILINE)) % 2 == 0
    for target, anchor in re.findall(r"\]\((\.{1,2}/[^)#\s]+)?(?:#([\w-]+))?\)", text):
        file = (page.parent / target).resolve() if target else page
        assert file.is_file(), target
        if anchor:
            assert anchor in {
                section.anchor for section in parse(file.read_text("utf-8"), mdx=True).sections
            }, f"{target}#{anchor}"


@pytest.mark.parametrize("path", [DEVELOPMENT, HELD_OUT], ids=lambda path: path.stem)
def test_learners_questions_find_their_module(retriever: Retriever, path: Path) -> None:
    suite = load_suite(path)
    assert len(suite.expectations) >= 60
    report = validate(retriever, suite)
    assert (report.share or 0) >= 0.94
    assert (report.page_hits(5) or 0) >= 0.95
