"""The cost of a search without its time: it opens no file, and its memory does not grow with the book."""

from __future__ import annotations

import gc
import sys
import threading
import tracemalloc
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

from recto.search.retriever import Retriever
from recto.stores.edge import EdgeStore
from recto.stores.edge import index as edge_index
from recto.testing.parts import EMBEDDER, HashEmbedder, chunk, fingerprint, vector
from recto.types.index import Calibration
from recto.types.search import Filters, Vector

SMALL, LARGE = 300, 3_000
PAGE = 20
MAX_BYTES = 8_000  # peak memory of a search; about 4 500 now
QUESTION, OTHER, THIRD = "one", "another", "a third"
FILTERS = [Filters(), Filters(("module-1",)), Filters((), "local://docs/docs/page-0003")]


class FixedEmbedder(HashEmbedder):
    """An embedder with a fixed vector for each query, so that embedding costs nothing."""

    fingerprint, dim = EMBEDDER, EMBEDDER.dim
    vectors: ClassVar = {text: vector(10**6 + number) for number, text in enumerate((QUESTION, OTHER, THIRD))}

    def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        return [self.vectors[text] for text in texts]


class Events:
    """Records the audit events (files, imports) of one thread."""

    def __init__(self) -> None:
        self._thread, self._seen = 0, list[str]()
        sys.addaudithook(self._note)  # cannot be removed, so it does nothing unless a thread is recorded

    def _note(self, event: str, _: Any) -> None:
        if self._thread == threading.get_ident():
            self._seen.append(event)

    def during(self, work: Callable[[], object]) -> list[str]:
        self._seen, self._thread = [], threading.get_ident()
        try:
            work()
        finally:
            self._thread = 0
        return self._seen


@pytest.fixture(scope="module")
def events() -> Events:
    return Events()


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """A book of few chunks and one of many, both with a calibration."""
    found = {}
    for size in (SMALL, LARGE):
        found[size] = tmp_path_factory.mktemp(f"book-of-{size}")
        store = EdgeStore(found[size])
        with store.build("book", EMBEDDER) as build:
            chunks = [
                chunk(number, page=f"page-{number // PAGE:04}", module=f"module-{number // PAGE % 5}")
                for number in range(size)
            ]
            build.add(chunks, [vector(number) for number in range(size)])
            info = build.publish(fingerprint())
        store.save_calibration(info, Calibration(0.1, 0.9, 10, 10))
        store.set_aliases(["alias"], "book")
    return found


@pytest.fixture(scope="module")
def warm(homes: dict[int, Path]) -> dict[int, Retriever]:
    """A retriever of each book, after the first searches."""
    found = {size: open_retriever(home) for size, home in homes.items()}
    for retriever in found.values():
        for filters in FILTERS * 2:
            assert len(retriever.search(QUESTION, filters=filters).hits) == 5
    return found


def open_retriever(home: Path) -> Retriever:
    return Retriever(FixedEmbedder(), EdgeStore(home), "alias")


def test_a_small_cache_gives_the_same_hits(homes: dict[int, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    texts = (QUESTION, OTHER, THIRD)
    expected = [open_retriever(homes[SMALL]).search(text, top_k=30).hits for text in texts]
    monkeypatch.setattr(edge_index, "_MAX_CACHED", 40)
    retriever = open_retriever(homes[SMALL])
    for _ in range(3):
        assert [retriever.search(text, top_k=30).hits for text in texts] == expected
    assert [response.hits for response in retriever.search_batch(texts, top_k=30)] == expected


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_a_search_opens_no_file(homes: dict[int, Path], events: Events, size: int) -> None:
    retriever = open_retriever(homes[size])
    # The first search opens the index, which shows that the hook works.
    assert "open" in events.during(lambda: retriever.search(QUESTION))
    assert events.during(lambda: retriever.search(QUESTION)) == []
    # Chunks that are not cached come from memory-mapped files.
    assert events.during(lambda: retriever.search(THIRD, filters=Filters(("module-1",)))) == []


def allocated_bytes(work: Callable[[], object]) -> int:
    """Return the peak memory of some work: the minimum of several runs, because other threads and caches add to it."""
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        peaks = []
        for _ in range(5):
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            work()
            peaks.append(tracemalloc.get_traced_memory()[1] - before)
        return min(peaks)
    finally:
        tracemalloc.stop()
        gc.enable()


@pytest.mark.parametrize("filters", FILTERS)
def test_a_search_needs_as_much_memory_in_a_large_book(warm: dict[int, Retriever], filters: Filters) -> None:
    searches = (partial(retriever.search, QUESTION, filters=filters) for retriever in warm.values())
    small, large = map(allocated_bytes, searches)
    assert large <= small + 256 <= MAX_BYTES
