"""Limits on the cost of a search, counted instead of timed: calls of the engine, file access, memory, calls."""

from __future__ import annotations

import gc
import os
import sys
import threading
import tracemalloc
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from recto.protocols import Progress
from recto.search.retriever import Retriever
from recto.stores.edge import index as edge_index
from recto.stores.edge.index import EdgeIndex
from recto.stores.edge.store import EdgeStore
from recto.testing.values import EMBEDDER, chunk, fingerprint, vector
from recto.types import Calibration, Filters, Outcome, Vector

SMALL, LARGE = 300, 6_000
PAGE = 20
STATS = 3  # the aliases, the pointer to the current generation, its calibration
CALLS = 140  # of functions, built-in ones included; about 130 now
BYTES = 6_000  # peak memory; about 3 800 now
QUESTION, OTHER, THIRD = "one", "another", "a third"
FILTERS = [Filters(), Filters(("module-1",)), Filters((), "local://docs/docs/page-0003")]


class FixedEmbedder:
    """An embedder with a fixed vector for each query, so that embedding costs nothing."""

    fingerprint = EMBEDDER
    dim = EMBEDDER.dim
    max_tokens = 512

    def __init__(self) -> None:
        self._vectors = {text: vector(10**6 + number) for number, text in enumerate((QUESTION, OTHER, THIRD))}

    def warm_up(self) -> None: ...

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def embed_query(self, text: str) -> Vector:
        return self._vectors[text]

    def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        return [self._vectors[text] for text in texts]

    def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> list[Vector]:
        raise NotImplementedError

    def close(self) -> None: ...


class RecordingShard:
    """Passes all calls on to the engine, and records them and the ids of the chunks that are read."""

    def __init__(self, shard: Any) -> None:
        self._shard = shard
        self.calls: list[str] = []
        self.read: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        self.calls.append(name)
        return getattr(self._shard, name)

    def retrieve(self, ids: list[Any], with_payload: bool, with_vector: bool) -> Any:
        self.calls.append("retrieve")
        self.read += ids
        return self._shard.retrieve(ids, with_payload, with_vector)


@dataclass(slots=True)
class Events:
    """Records the audit events (files, imports) of one thread."""

    thread: int = 0
    seen: list[str] = field(default_factory=list)

    def note(self, event: str, _: Any) -> None:
        if self.thread == threading.get_ident():
            self.seen.append(event)

    def during(self, work: Callable[[], object]) -> list[str]:
        self.seen.clear()
        self.thread = threading.get_ident()
        try:
            work()
        finally:
            self.thread = 0
        return list(self.seen)


@pytest.fixture(scope="module")
def events() -> Events:
    found = Events()
    sys.addaudithook(found.note)  # cannot be removed, so it does nothing unless a thread is recorded
    return found


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


@pytest.fixture(params=[SMALL, LARGE])
def retriever(homes: dict[int, Path], request: pytest.FixtureRequest) -> Retriever:
    return open_retriever(homes[request.param])


def open_retriever(home: Path) -> Retriever:
    return Retriever(FixedEmbedder(), EdgeStore(home), "alias")


def record_calls(retriever: Retriever) -> RecordingShard:
    index = retriever.open()
    assert isinstance(index, EdgeIndex)
    index._shard = found = RecordingShard(index._shard)  # type: ignore[assignment]
    return found


def test_a_search_is_one_call_of_the_engine(retriever: Retriever) -> None:
    engine = record_calls(retriever)
    first = retriever.search(QUESTION)
    assert engine.calls == ["query_batch", "retrieve"]
    assert sorted(map(str, engine.read)) == sorted(hit.chunk.id for hit in first.hits)
    assert retriever.search(QUESTION).hits == first.hits
    assert engine.calls == ["query_batch", "retrieve", "query_batch"]


def test_a_batch_is_one_call_of_the_engine(retriever: Retriever) -> None:
    engine = record_calls(retriever)
    first = retriever.search_batch([QUESTION, OTHER, THIRD])
    assert engine.calls == ["query_batch", "retrieve"]
    assert retriever.search_batch([QUESTION, OTHER, THIRD])[2].hits == first[2].hits
    assert engine.calls == ["query_batch", "retrieve", "query_batch"]


def test_a_chunk_is_read_once(retriever: Retriever) -> None:
    engine = record_calls(retriever)
    shown = {hit.chunk.id for text in (QUESTION, OTHER, QUESTION) for hit in retriever.search(text, 50).hits}
    shown |= {
        hit.chunk.id for response in retriever.search_batch([THIRD, QUESTION], 70) for hit in response.hits
    }
    assert Counter(map(str, engine.read)) == Counter(shown)


def test_the_chunk_cache_is_bounded(homes: dict[int, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [open_retriever(homes[SMALL]).search(text, 30).hits for text in (QUESTION, OTHER, THIRD)]
    monkeypatch.setattr(edge_index, "_MAX_CACHED", 40)
    retriever = open_retriever(homes[SMALL])
    index = retriever.open()
    assert isinstance(index, EdgeIndex)
    for _ in range(3):
        for text, hits in zip((QUESTION, OTHER, THIRD), expected, strict=True):
            assert retriever.search(text, 30).hits == hits
            assert 30 <= len(index._cache) <= 40
    assert [response.hits for response in retriever.search_batch([QUESTION, OTHER, THIRD], 30)] == expected


@pytest.mark.parametrize(
    ("filters", "min_score", "calls"),
    [
        (Filters(), 1.0, ["query_batch"]),
        (Filters(("module-1",)), 1.0, ["query_batch", "count"]),
        (Filters(("nowhere",)), None, ["query_batch", "count", "count", "facet"]),
        (Filters((), "local://nowhere"), None, ["query_batch", "count", "count", "facet"]),
        (
            Filters(("nowhere",), "local://nowhere"),
            None,
            ["query_batch", "count", "count", "facet", "count", "facet"],
        ),
    ],
)
def test_an_empty_result_is_explained_with_few_calls(
    retriever: Retriever, filters: Filters, min_score: float | None, calls: list[str]
) -> None:
    engine = record_calls(retriever)
    assert retriever.search(QUESTION, filters=filters, min_score=min_score).outcome is not Outcome.FOUND
    assert engine.calls == calls


def test_a_search_opens_no_file(
    retriever: Retriever, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    stat = os.stat

    def counted(path: Any, *arguments: Any, **more: Any) -> os.stat_result:
        looked.append(os.path.basename(path))
        return stat(path, *arguments, **more)

    # The first search opens the index, which shows that the hook works.
    assert "open" in events.during(lambda: retriever.search(QUESTION))
    monkeypatch.setattr(os, "stat", counted)
    assert events.during(lambda: retriever.search(QUESTION)) == []
    assert len(looked) <= STATS
    assert sorted(looked) == ["CURRENT", "aliases.json", "gen-000001.notes"]
    looked.clear()
    heard = events.during(lambda: retriever.search(THIRD, filters=Filters(("module-1",))))
    assert heard == []  # uncached chunks come from memory-mapped files
    assert len(looked) <= STATS


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


def count_calls(work: Callable[[], object]) -> int:
    """Count the function calls of some work, without those of the garbage collector."""
    calls = 0

    def note(frame: FrameType, event: str, what: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    gc.disable()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
        gc.enable()
    return calls


@pytest.mark.parametrize("filters", FILTERS)
def test_a_search_allocates_little_memory(warm: dict[int, Retriever], filters: Filters) -> None:
    taken = {
        size: allocated_bytes(partial(retriever.search, QUESTION, filters=filters))
        for size, retriever in warm.items()
    }
    assert taken[SMALL] <= BYTES
    assert taken[LARGE] <= taken[SMALL] + 256


@pytest.mark.parametrize("filters", FILTERS)
def test_the_number_of_calls_does_not_grow_with_the_book(
    warm: dict[int, Retriever], filters: Filters
) -> None:
    counts = {
        size: count_calls(partial(retriever.search, QUESTION, filters=filters))
        for size, retriever in warm.items()
    }
    assert counts[SMALL] == counts[LARGE] <= CALLS


def test_uncached_chunks_cost_no_more_in_a_large_book(homes: dict[int, Path]) -> None:
    counts, taken = {}, {}
    for size, home in homes.items():
        retriever = open_retriever(home)
        retriever.search(OTHER)
        counts[size] = count_calls(partial(retriever.search, QUESTION))
        taken[size] = allocated_bytes(partial(retriever.search, THIRD))
    assert counts[SMALL] == counts[LARGE]
    assert taken[LARGE] == pytest.approx(taken[SMALL], rel=0.2)
