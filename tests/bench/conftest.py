"""Benchmarks use the real embedder, and a tiny book with readers' questions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recto.protocols import Embedder

PAGES = {
    "garden/seeds.md": "# Seeds\n\nSeeds are small.\n\n## Sowing `beans`\n\nBeans are sown after the last frost, two fingers deep.\n",
    "kitchen/bread.md": "# Bread\n\n## Dough\n\nKnead the dough until it is smooth. The zwieback_oven must be hot.\n",
}
QUOTES = {
    "garden/seeds.md": "two fingers deep",
    "kitchen/bread.md": "Knead the dough until it is *smooth*",
}
QUESTIONS: list[tuple[str, str, list[tuple[str, str]]]] = [
    ("When are beans sown after the frost?", "any", [("garden/seeds.md", "Sowing `beans`")]),
    ("How long do I knead the dough?", "any", [("kitchen/bread.md", "")]),
    ("beans dough", "all", [("garden/seeds.md", ""), ("kitchen/bread.md", "")]),
    ("Who won the football match?", "none", []),
]


@pytest.fixture(scope="session")
def embedder(real_embedder: Embedder) -> Embedder:
    return real_embedder


@pytest.fixture
def corpora(tmp_path: Path) -> Path:
    """A directory with the set of questions `tiny`, and its book with the docs in a folder below."""
    for path, text in PAGES.items():
        page = tmp_path / "books" / "tiny" / "website" / "docs" / path
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, "utf-8")
    (tmp_path / "questions").mkdir()
    with (tmp_path / "questions" / "tiny.jsonl").open("w", encoding="utf-8") as file:
        for number, (question, match, expected) in enumerate(QUESTIONS, 1):
            places = [{"page": page, "section": section} for page, section in expected]
            evidence = [QUOTES[place["page"]] for place in places]
            entry = {"id": f"t-{number}", "question": question, "type": "howto", "match": match}
            file.write(f"{json.dumps({**entry, 'expected': places, 'evidence': evidence})}\n")
    return tmp_path


@pytest.fixture
def options(corpora: Path, shared_home: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The options of a run on the tiny book, with an empty home that has the model's weights."""
    monkeypatch.chdir(corpora)  # a directory without settings
    (corpora / "home").mkdir()
    (corpora / "home" / "cache").symlink_to(shared_home / "cache")
    folders = [f"--{name}={corpora / name}" for name in ("cache", "home")]
    return [*folders, f"--corpora={corpora}", "--threads=1"]
