"""The question sets for training are complete, known and free of the books' text; their answers are located."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from training.import_sets import imported
from training.prepare import Passage, Question, located

TRAINING = Path(__file__).parents[2] / "training"
SETS = sorted((TRAINING / "questions").glob("*.jsonl"))
BOOKS: dict[str, dict[str, Any]] = json.loads((TRAINING / "books.json").read_text("utf-8"))
TYPES = {"concept", "howto", "keyword", "exact", "trouble", "compare"}
FORBIDDEN = {"facebook/docusaurus", "fastapi/fastapi", "tiangolo/fastapi", "squidfunk/mkdocs-material"}
FORBIDDEN |= {"pydantic/pydantic", "rust-lang/book", "vuejs/docs", "d2l-ai/d2l-en", "ray-project/ray"}
"""The books that measure the model, and those that are kept back."""


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_there_are_enough_questions_and_books() -> None:
    assert len(SETS) >= 45
    ids = [row["id"] for path in SETS for row in rows(path)]
    assert len(ids) == len(set(ids)) >= 4000


@pytest.mark.parametrize("path", SETS, ids=lambda path: path.stem)
def test_set_is_well_formed(path: Path) -> None:
    book = BOOKS[path.stem]
    assert set(book) == {"repository", "commit", "docs", "exclude"}
    assert re.fullmatch("[0-9a-f]{40}", book["commit"])
    for row in rows(path):
        assert set(row) == {"id", "question", "type", "match", "expected", "line"}
        assert row["id"].startswith(f"{path.stem}-")
        assert row["question"].strip()
        assert row["type"] in TYPES
        assert row["match"] in {"any", "all", "none"}
        assert all(set(place) == {"page", "section"} for place in row["expected"])
        assert bool(row["expected"]) == (row["match"] != "none")
        assert row["line"] is None or (row["expected"] and row["line"] >= 1)
        pages = [f"/{place['page']}" for place in row["expected"]]
        assert not any(part in page for page in pages for part in book["exclude"])


def test_no_forbidden_book_is_used() -> None:
    repositories = {book["repository"].lower() for book in BOOKS.values()}
    assert not FORBIDDEN & repositories
    assert not [name for name in repositories if re.search("physical|humanoid", name)]


def chunk(text: str, source: str, lines: tuple[int, int], *headings: str) -> Passage:
    return Passage(text, " > ".join(headings), headings, source, *lines)


CHUNKS = [
    chunk("Welcome.", "a.md", (1, 4), "Guide"),
    chunk("Run it with care.", "a.md", (5, 9), "Guide", "Run"),
    chunk("Stop it.", "a.md", (10, 12), "Guide", "Stop"),
    chunk("Elsewhere.", "b.md", (1, 9), "Other"),
]


ROW: dict[str, Any] = {"id": "x-1", "question": "q", "type": "exact", "match": "any"}


def ask(*expected: tuple[str, str], line: int | None = None, quote: str = "") -> dict[str, object]:
    return located(Question("x-1", "how?", "howto", "any", expected, line, quote), CHUNKS)


@pytest.mark.parametrize(
    ("found", "pos", "by"),
    [
        (ask(("a.md", "Stop"), line=6), [1], "quote"),
        (ask(("a.md", ""), quote="Run *it* with `care`"), [1], "quote"),  # markup is ignored
        (ask(("a.md", "`Stop`"), ("b.md", ""), line=40), [2, 3], "section"),
        (ask(("a.md", "")), [0], "section"),  # the beginning of the page
        (ask(("a.md", "Missing")), [0, 1, 2], "page"),
        (ask(), [], "none"),
    ],
)
def test_the_place_of_an_answer(found: dict[str, object], pos: list[int], by: str) -> None:
    assert (found["pos"], found["by"]) == (pos, by)


def test_import_keeps_no_text_of_the_book(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("nothing", "utf-8")
    (tmp_path / "b.md").write_text("# B\n\nthe answer is here", "utf-8")
    expected = [{"page": page, "section": ""} for page in ("a.md", "b.md")]
    row = {**ROW, "expected": expected, "evidence": ["answer is here"]}
    found = imported(row, tmp_path)
    assert found is not None
    assert "evidence" not in found
    assert (found["expected"][0]["page"], found["line"]) == ("b.md", 3)
    (tmp_path / "a.md").unlink()
    assert imported(row, tmp_path) is None
