"""Index a book with the real model and engine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from recto.book.sources.tree import MarkdownTree
from recto.errors import FingerprintMismatch, InvalidArgument
from recto.indexing.indexer import IndexJob, IndexProgress, index_book
from recto.protocols import Embedder
from recto.search.retriever import Retriever
from recto.stores.edge.store import EdgeStore
from recto.types.index import Fingerprint


def test_a_small_book(small_book: Path, home: Path, embedder: Embedder) -> None:
    store = EdgeStore(home)
    seen: list[IndexProgress] = []
    report = index_book(
        IndexJob(MarkdownTree(small_book), embedder),
        store,
        "garden",
        journal=home / "journal",
        progress=seen.append,
    )
    assert (len(report.plan.pages), report.plan.failed, report.published) == (4, (), True)
    assert report.plan.modules() == {"garden": (2, 2), "kitchen": (1, 1), "intro": (1, 1)}
    assert (seen[0].done, seen[-1].done, seen[-1].chunks) == (0, 4, 4)
    assert [now.done for now in seen] == sorted(now.done for now in seen)
    fingerprint = report.info.fingerprint
    assert fingerprint is not None
    assert (fingerprint.embedder, fingerprint.pages) == (embedder.fingerprint, 4)
    best = Retriever(embedder, store, "garden").search("How do I make dough?").hits[0].chunk
    assert (best.page_url, best.module, best.source) == (
        "local://docs/docs/module-2-kitchen/01-bread",
        "kitchen",
        "module-2-kitchen/01-bread.md",
    )


def test_a_new_title_is_published_without_embedding(small_book: Path, home: Path, embedder: Embedder) -> None:
    store = EdgeStore(home)
    source = MarkdownTree(small_book)
    runs = []
    for source.title in ("Houses", "  Houses and \n gardens  ", "Houses and gardens"):
        job = IndexJob(source, embedder)
        runs.append(index_book(job, store, "garden", journal=home / "journal"))
    assert [run.published for run in runs] == [True, True, False]
    assert runs[1].plan.texts == 0
    fingerprint = store.open("garden").info.fingerprint
    assert fingerprint is not None
    assert (fingerprint.title, fingerprint.logo) == ("Houses and gardens", "")
    older = {name: value for name, value in fingerprint.to_dict().items() if name not in ("title", "logo")}
    assert Fingerprint.from_dict(older) == replace(fingerprint, title="")
    assert "logo" not in fingerprint.summary()


def test_a_book_without_text_is_an_error(
    tmp_path: Path, small_book: Path, home: Path, embedder: Embedder
) -> None:
    store = EdgeStore(home)
    index_book(IndexJob(MarkdownTree(small_book), embedder), store, "garden", journal=home / "journal")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InvalidArgument, match=r"There is no \.md, .* or \.pdf file"):
        MarkdownTree(empty)
    (empty / "blank.md").write_text("---\ntitle: Blank\n---\n\n")
    with pytest.raises(InvalidArgument, match="no text"):
        index_book(IndexJob(MarkdownTree(empty), embedder), store, "garden", journal=home / "journal")
    with pytest.raises(InvalidArgument, match="does not exist"):
        MarkdownTree(tmp_path / "missing")
    assert store.open("garden").count() == 4


def test_an_index_of_another_model_is_an_error(small_book: Path, home: Path, embedder: Embedder) -> None:
    from dataclasses import replace

    from recto.embedders.onnx import LocalEmbedder, Sessions

    store = EdgeStore(home)
    index_book(IndexJob(MarkdownTree(small_book), embedder), store, "garden", journal=home / "journal")

    def never(threads: int = 1) -> NoReturn:
        raise AssertionError("the check needs no model")

    other = LocalEmbedder(replace(embedder.fingerprint, revision="another"), 512, never, Sessions(never, 1))
    with pytest.raises(FingerprintMismatch, match="was indexed with") as caught:
        Retriever(other, store, "garden").search("dough")
    assert f"recto index {small_book.resolve()} --collection garden" in caught.value.hint
