"""The question sets for training are complete, known and free of the books' text."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

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
