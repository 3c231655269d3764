"""The shapes that large indexes get: what is found and how it is scored stays what comparing with every vector gives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from recto.stores.edge import engine
from recto.stores.edge.index import EdgeIndex
from recto.stores.edge.sizing import GRAPH_FROM, SMALL_CODES_FROM, VERY_LARGE_FROM, finished_config, search_params
from recto.stores.payload import to_payload
from recto.types import Filters, IndexInfo, Vector
from tests.making import chunk, fingerprint

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
            full = {self.ids[place]: float(self.vectors[place] @ question) for place in among}
            assert [hit.score for hit in hits] == pytest.approx([full[hit.chunk.id] for hit in hits], abs=1e-5)
            found += len({hit.chunk.id for hit in hits} & set(self.nearest(question, among)))
        return found / (TOP * len(self.asked))


def around(random: np.random.Generator, count: int) -> Any:
    """Return vectors that lie in groups, as those of a library's subjects do."""
    middles = np.random.default_rng(1).standard_normal((100, DIM), np.float32)
    rows = middles[random.integers(0, len(middles), count)] + random.standard_normal((count, DIM), np.float32) * 0.8
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture(scope="module", params=[GRAPH_FROM, SMALL_CODES_FROM, VERY_LARGE_FROM], ids=["graph", "codes", "far"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    """A few thousand chunks in the shape of many."""
    path = tmp_path_factory.mktemp("sized") / "shard"
    chunks = [chunk(number, page=f"page-{number // PAGE}", module=f"module-{number // PAGE % MODULES}") for number in range(COUNT)]
    vectors = around(np.random.default_rng(2), COUNT)
    rows: list[Vector] = vectors.tolist()
    shard = engine.create_shard(path, DIM)
    for start in range(0, COUNT, 1_000):
        points = zip(chunks[start : start + 1_000], rows[start : start + 1_000], strict=True)
        engine.upsert(shard, [(part.id, row, to_payload(part)) for part, row in points])
    engine.finish_shard(shard, path, request.param, DIM)
    shard = engine.load_shard(path)
    assert shard.info().indexed_vectors_count == COUNT
    index = EdgeIndex(shard, IndexInfo("sized", "gen-000001", request.param, fingerprint(), (), DIM), path / "notes")
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


def test_counts_are_the_books(made: Made) -> None:
    assert made.index.modules() == {f"module-{number}": COUNT // MODULES for number in range(MODULES)}
    assert set(made.index.pages().values()) == {PAGE}
    assert len(made.index.pages()) == COUNT // PAGE
    assert made.index.count(Filters(("module-1",), "local://docs/docs/page-1")) == PAGE


def test_a_textbook_is_compared_whole() -> None:
    assert finished_config(GRAPH_FROM - 1, DIM) is None
    assert search_params(SMALL_CODES_FROM - 1) is None
