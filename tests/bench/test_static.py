"""The benchmark of static search: the same ranking as the service for the questions about whole books."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench.question_sets import load_books
from bench.static import measure_book
from recto.book.sources.tree import open_book
from recto.embedders.granite.embedder import built_in_embedder
from recto.evaluation.calibration import calibrate
from recto.indexing.indexer import IndexJob, index_book
from recto.search.retriever import Retriever
from recto.stores.edge.store import EdgeStore


def test_static_search_ranks_as_the_service(tmp_path: Path, corpora: Path, shared_home: Path) -> None:
    """For a tiny book, and for those of RECTO_CORPORA."""
    embedder = built_in_embedder(shared_home, 2, "int8")
    store = EdgeStore(tmp_path / "home")
    given = os.environ.get("RECTO_CORPORA")
    folders = [corpora, *([Path(given)] if given else [])]
    for folder in folders:
        for book in load_books(folder / "questions", folder / "books", []):
            job = IndexJob(open_book(book.docs, book=book.name), embedder, calibrate=calibrate)
            index_book(job, store, book.name, journal=tmp_path / "journal")
            directory = tmp_path / book.name / "recto"
            directory.parent.mkdir()
            found = measure_book(book, Retriever(embedder, store, book.name), directory)
            # Rounding to int8 depends on the processor, so near chunks may change places.
            assert found.same_words == pytest.approx(1, abs=0.02), book.name
            assert found.same_first >= 0.99, book.name
            assert found.same_five >= 0.95, book.name
            assert found.gap <= 0.02, book.name
