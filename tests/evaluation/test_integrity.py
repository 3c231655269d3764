"""Text integrity: what is stored is what was written, numbered and embedded."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recto.book.chunking import DEFAULT_SIZE, chunk_page
from recto.book.parsing.formats import read
from recto.book.sources.tree import open_book
from recto.evaluation.integrity import (
    IssueKind,
    Issues,
    check_integrity,
    compare_with_source,
    contained,
    embedded_text,
    similar,
    words,
)
from recto.indexing.indexer import IndexJob, index_book
from recto.protocols import Embedder
from recto.stores.edge.store import EdgeStore
from recto.types.search import Chunk
from tests import breaking
from tests.breaking import Passages

TORTURE = Path(__file__).parent.parent / "book" / "torture"
SITES = Path(__file__).parent.parent / "book" / "sites"


def inputs_of(path: Path, embedder: Embedder) -> list[tuple[Chunk, str]]:
    book = open_book(path)
    found = (
        chunk_page(page, read(page), book.book, embedder.count_tokens, embedder.max_tokens, DEFAULT_SIZE)
        for page in book.pages()
    )
    return [(one.chunk, one.embedded) for inputs in found for one in inputs]


@pytest.fixture
def store(house: Path, tmp_path: Path) -> EdgeStore:
    """A copy of a healthy collection, to break."""
    return EdgeStore(shutil.copytree(house / "home", tmp_path / "home"))


def corpora() -> list[Path]:
    root = os.environ.get("RECTO_CORPORA", "")
    return sorted(path for path in Path(root, "books").iterdir() if path.is_dir()) if root else []


@pytest.mark.parametrize(
    "book", [TORTURE, SITES / "docusaurus", SITES / "mkdocs", *corpora()], ids=lambda path: path.name
)
def test_what_reading_leaves_out_or_repeats_is_no_damage(book: Path, embedder: Embedder) -> None:
    """Entities, dropped tags, divided tables and fences, diagrams, partials: all are found at their lines."""
    issues, inputs = Issues(), inputs_of(book, embedder)
    assert all(embedded_text(chunk) == embedded for chunk, embedded in inputs)
    chunks = [chunk for chunk, _ in inputs]
    assert compare_with_source(chunks, open_book(book), issues) == len(chunks) > 0
    assert issues.listed() == ()


def test_partials_are_found_at_the_line_that_shows_them(tmp_path: Path, embedder: Embedder) -> None:
    (tmp_path / "docusaurus.config.js").write_text(
        "module.exports = {title: 'T', url: 'https://x.org', baseUrl: '/', presets: [['classic', {}]]};"
    )
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "_shared.mdx").write_text(
        "Shared words about whistling kettles.\n\nMore shared words about steam.\n"
    )
    (docs / "page.mdx").write_text(
        "import Shared from './_shared.mdx';\n\n# Page\n\nBefore it.\n\n<Shared />\n\nAfter it.\n"
    )
    issues = Issues()
    chunks = [chunk for chunk, _ in inputs_of(tmp_path, embedder)]
    assert any("kettles" in chunk.text for chunk in chunks)
    assert compare_with_source(chunks, open_book(tmp_path), issues) == len(chunks)
    assert issues.listed() == ()


def test_a_page_that_was_edited_is_no_damage(house: Path, tmp_path: Path) -> None:
    shutil.copytree(house / "book", tmp_path / "book")
    soil = "module-1-garden/01-soil.md"
    (tmp_path / "book" / soil).write_text("# Soil\n\nQuite another page.\n")
    index = EdgeStore(house / "home").open("house")
    found = check_integrity(index, None, open_book(tmp_path / "book"))
    assert {issue.kind for issue in found.issues} == {IssueKind.NOT_IN_SOURCE}
    assert check_integrity(index, None, open_book(tmp_path / "book"), changed=frozenset({soil})).issues == ()


def test_lines_that_are_wrong_are_told_from_texts_that_are_gone(house: Path, store: EdgeStore) -> None:
    def moved(passages: Passages) -> Passages:
        return [
            (replace(one, start_line=1, end_line=1) if one.anchor == "lamps" else one, numbers)
            for one, numbers in passages
        ]

    breaking.publish_broken(store, "house", "broken", moved)
    issues = check_integrity(store.open("broken"), None, open_book(house / "book")).issues
    (issue,) = [issue for issue in issues if issue.kind is IssueKind.OTHER_LINES]
    assert issue.places == ("module-3-workshop/04-electricity.md, lines 1 to 1",)


def test_noise_is_found(store: EdgeStore, embedder: Embedder) -> None:
    for seed in range(3):
        breaking.publish_broken(store, "house", "broken", breaking.with_noise(0.25, seed))
        (issue,) = check_integrity(store.open("broken"), embedder).issues
        assert issue.kind is IssueKind.OTHER_VECTOR


def test_vectors_of_two_pages_exchanged(store: EdgeStore, embedder: Embedder) -> None:

    def exchanged(passages: Passages) -> Passages:
        pages = {one.source: numbers for one, numbers in passages if one.chunk_index == 0}
        jam, knives = "module-2-kitchen/03-jam.md", "module-2-kitchen/04-knives.md"
        other = {jam: pages[knives], knives: pages[jam]}
        return [(one, other.get(one.source, numbers)) for one, numbers in passages]

    breaking.publish_broken(store, "house", "broken", exchanged)
    (issue,) = check_integrity(store.open("broken"), embedder).issues
    assert issue.kind is IssueKind.OTHER_VECTOR
    assert {"knives" in place or "jam" in place for place in issue.places} == {True}


def test_a_part_of_a_large_index_is_checked(house: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from recto.evaluation import integrity

    monkeypatch.setattr(integrity, "MOST", 5)
    index = EdgeStore(house / "home").open("house")
    part = check_integrity(index)
    assert (part.checked, part.complete, part.issues) == (5, False, ())
    assert check_integrity(index, everything=True).complete


def test_fields_that_are_wrong(store: EdgeStore) -> None:
    changes: list[tuple[IssueKind, dict[str, Any]]] = [
        (IssueKind.NO_TITLE, {"title": " "}),
        (IssueKind.BAD_URL, {"page_url": "no address"}),
        (IssueKind.NO_URL, {"page_url": ""}),
        (IssueKind.NO_TEXT, {"text": " "}),
        (IssueKind.BAD_NUMBER, {"total_chunks": 0}),
    ]

    def spoilt(passages: Passages) -> Passages:
        pairs = zip(passages, changes, strict=False)
        return [(replace(one, **change), numbers) for (one, numbers), (_, change) in pairs]

    breaking.publish_broken(store, "house", "broken", spoilt)
    kinds = {issue.kind for issue in check_integrity(store.open("broken")).issues}
    assert {kind for kind, _ in changes} <= kinds


def test_long_heading_paths_were_shortened_and_are_known_again(tmp_path: Path, embedder: Embedder) -> None:
    (tmp_path / "page.md").write_text(f"# {'Very ' * 200}long\n\n## {'And ' * 150}on\n\nA text.\n")
    for chunk, embedded in inputs_of(tmp_path, embedder):
        assert embedded_text(chunk) == embedded
        assert embedded_text(replace(chunk, text="Another text.")) is None


def test_the_sample_book(sample_home: Path) -> None:
    from recto.api import sample_source

    found = check_integrity(EdgeStore(sample_home).open("recto-sample"), None, sample_source())
    assert found.issues == ()
    assert found.sourced == found.chunks


def test_a_rerun_that_changes_nothing_keeps_everything(
    tmp_path: Path, small_book: Path, embedder: Embedder
) -> None:
    store = EdgeStore(tmp_path / "home")
    for _ in range(2):
        index_book(IndexJob(open_book(small_book), embedder), store, "garden", journal=tmp_path / "journal")
    (small_book / "welcome.md").write_text("# Welcome\n\nA changed page about gardens.\n")
    index_book(IndexJob(open_book(small_book), embedder), store, "garden", journal=tmp_path / "journal")
    assert check_integrity(store.open("garden"), embedder, open_book(small_book)).issues == ()


def test_words() -> None:
    assert contained(words("a &amp; b &lt;c&gt;"), words("A B C D")) == 1
    assert contained(words(""), words("x")) == 1
    assert contained(words("one two"), words("two three")) == 0.5
    assert similar("one two", "two three") == pytest.approx(1 / 3)
    assert similar("", "") == 1
