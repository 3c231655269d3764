"""The shapes that large indexes get: what is found and how it is scored stays what comparing with every vector gives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from recto.stores.edge import engine
from recto.stores.edge import engine as sizing
from recto.stores.edge.engine import (
    GRAPH_FROM,
    QUANTIZE_FROM,
    VERY_LARGE_FROM,
    finished_config,
    search_params,
)
from recto.stores.edge.index import EdgeIndex
from recto.stores.payload import to_payload
from recto.testing.values import chunk, fingerprint
from recto.types import Filters, IndexInfo, Vector

DIM = 384
COUNT = 8_000  # enough numbers for the engine to build its graph
PAGE, MODULES = 20, 5
QUESTIONS = 30
TOP = 10


@dataclass(frozen=True, slots=True)
class Made:
    """An index, and the vectors that it was made of."""

    index: EdgeIndex
    ids: list[str]
    vectors: Any
    asked: Any

    def nearest(self, question: Any, among: Any) -> dict[str, float]:
        """Compare with every vector that a filter leaves."""
        scores = self.vectors[among] @ question
        return {self.ids[among[place]]: float(scores[place]) for place in np.argsort(-scores)[:TOP]}

    def compare(self, filters: Filters, among: Any) -> float:
        """Return the share of the nearest that searches find; every score is that of the full vectors."""
        found = 0
        for question in self.asked:
            hits = self.index.query(question.tolist(), TOP, filters)
            assert len(hits) == TOP
            full = [float(self.vectors[self.ids.index(hit.chunk.id)] @ question) for hit in hits]
            assert [hit.score for hit in hits] == pytest.approx(full, abs=1e-5)
            found += len({hit.chunk.id for hit in hits} & set(self.nearest(question, among)))
        return found / (TOP * len(self.asked))


def around(random: np.random.Generator, count: int) -> Any:
    """Return vectors that lie in groups and have something in common, as those of passages do."""
    given = np.random.default_rng(1)
    common, middles = (
        given.standard_normal((1, DIM), np.float32),
        given.standard_normal((100, DIM), np.float32),
    )
    rows = (
        common
        + middles[random.integers(0, len(middles), count)] * 0.6
        + random.standard_normal((count, DIM), np.float32) * 0.6
    )
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture(
    scope="module", params=[GRAPH_FROM, QUANTIZE_FROM, VERY_LARGE_FROM], ids=["graph", "codes", "far"]
)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    """A few thousand chunks in the shape of many; a module has more vectors than are compared one by one, a page has not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sizing, "_FULL_SCAN_KB", COUNT // MODULES * DIM * 4 // 1_000 // 4)
        yield from make(request.param, tmp_path_factory)


def make(size: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    path = tmp_path_factory.mktemp("sized") / "shard"
    chunks = [
        chunk(number, page=f"page-{number // PAGE}", module=f"module-{number // PAGE % MODULES}")
        for number in range(COUNT)
    ]
    vectors = around(np.random.default_rng(2), COUNT)
    rows: list[Vector] = vectors.tolist()
    shard = engine.create_shard(path, DIM)
    for start in range(0, COUNT, 1_000):
        points = zip(chunks[start : start + 1_000], rows[start : start + 1_000], strict=True)
        engine.upsert(shard, [(part.id, row, None, to_payload(part)) for part, row in points])
    engine.finish_shard(shard, path, size, DIM)
    shard = engine.load_shard(path)
    assert shard.info().indexed_vectors_count == COUNT
    assert set(shard.info().payload_schema) == {"module_keys", "module_name", "page_key"}
    index = EdgeIndex(shard, IndexInfo("sized", "gen-000001", size, fingerprint(), (), DIM), path / "notes")
    yield Made(index, [part.id for part in chunks], vectors, around(np.random.default_rng(3), QUESTIONS))
    shard.close()


def test_nearly_all_is_found(made: Made) -> None:
    assert made.compare(Filters(), range(COUNT)) >= 0.95


def test_a_module_is_searched_as_well(made: Made) -> None:
    among = [number for number in range(COUNT) if number // PAGE % MODULES == 2]
    assert made.compare(Filters(("module-2",)), among) >= 0.95


def test_of_a_page_nothing_is_missed(made: Made) -> None:
    among = range(37 * PAGE, 38 * PAGE)
    assert made.compare(Filters(page_url="local://docs/docs/page-37"), among) == 1


class Early:
    """The engine with a graph whose walks end at their first place."""

    def __init__(self, shard: Any) -> None:
        self._shard = shard
        self.exact = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shard, name)

    def query(self, request: Any) -> Any:
        exact = request.params is not None and request.params.exact
        self.exact += exact
        return self._shard.query(request)[: None if exact else 1]

    def query_batch(self, batch: Any) -> Any:
        return [found[:1] for found in self._shard.query_batch(batch)]


def test_a_walk_that_ends_early_in_a_module_is_made_good(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Early(made.index._shard)
    monkeypatch.setattr(made.index, "_shard", engine)
    among = [number for number in range(COUNT) if number // PAGE % MODULES == 2]
    assert made.compare(Filters(("module-2",)), among) == 1
    batch = made.index.query_batch(made.asked.tolist(), TOP, Filters(("module-2",)))
    assert [len(hits) for hits in batch] == [TOP] * QUESTIONS
    assert engine.exact == 2 * QUESTIONS
    assert len(made.index.query(made.asked[0].tolist(), TOP, Filters(("module-2",)), min_score=0.0)) == 1
    assert (
        len(made.index.query(made.asked[0].tolist(), TOP, Filters(page_url="local://docs/docs/page-37"))) == 1
    )
    assert engine.exact == 2 * QUESTIONS


def test_counts_are_the_books(made: Made) -> None:
    assert made.index.modules() == {f"module-{number}": COUNT // MODULES for number in range(MODULES)}
    assert set(made.index.pages().values()) == {PAGE}
    assert len(made.index.pages()) == COUNT // PAGE
    assert made.index.count(Filters(("module-1",), "local://docs/docs/page-1")) == PAGE


def test_a_textbook_is_compared_whole() -> None:
    assert finished_config(GRAPH_FROM - 1, DIM) is None
    assert search_params(QUANTIZE_FROM - 1) is None


def test_a_very_large_index_is_searched_wider() -> None:
    large, larger = search_params(VERY_LARGE_FROM - 1), search_params(VERY_LARGE_FROM)
    assert large is not None
    assert larger is not None
    assert (larger.hnsw_ef or 0) > (large.hnsw_ef or 0) > 100
