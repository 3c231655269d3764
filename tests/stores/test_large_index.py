"""Large indexes with HNSW and quantization: high recall, and the scores of the full vectors."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recto.stores import to_payload
from recto.stores.edge import engine
from recto.stores.edge.build import _build, send
from recto.stores.edge.engine import HIGH_EF_FROM, HNSW_FROM, MAPPED_FROM, large_config, search_params
from recto.stores.edge.index import EdgeIndex
from recto.testing.parts import chunk, fingerprint
from recto.testing.stores import nearest
from recto.types.index import IndexInfo, SparseVector
from recto.types.search import Filters, Payload, Vector

pytestmark = pytest.mark.slow
DIM = 384
COUNT = 8_000  # enough vectors for the engine to build HNSW
PAGE, MODULES = 20, 5
QUESTIONS = 30
MODULE_2 = [number for number in range(COUNT) if number // PAGE % MODULES == 2]
PAGE_37 = Filters(page_url="local://docs/docs/page-37")
TOP = 10


@dataclass(frozen=True, slots=True)
class LargeIndex:
    """An index, its vectors, and queries."""

    index: EdgeIndex
    ids: list[str]
    vectors: Any
    queries: Any

    def recall(self, filters: Filters, among: Any) -> float:
        """Return the recall of searches, and check that scores are those of the full vectors."""
        results = 0
        for query in self.queries:
            hits = nearest(self.index, query.tolist(), TOP, filters)
            assert len(hits) == TOP
            full = [float(self.vectors[self.ids.index(hit.chunk.id)] @ query) for hit in hits]
            assert [hit.score for hit in hits] == pytest.approx(full, abs=1e-5)
            exact = np.argsort(-(self.vectors[among] @ query))[:TOP]
            results += len({hit.chunk.id for hit in hits} & {self.ids[among[one]] for one in exact})
        return results / (TOP * len(self.queries))


def clustered_vectors(random: np.random.Generator, count: int) -> Any:
    """Return vectors in clusters with a common component, like those of chunks."""
    fixed = np.random.default_rng(1)
    common, middles = fixed.standard_normal((1, DIM)), fixed.standard_normal((100, DIM))
    rows = common + middles[random.integers(0, 100, count)] * 0.6 + random.standard_normal((count, DIM)) * 0.6
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(HNSW_FROM, id="large"),
        pytest.param(HIGH_EF_FROM, id="high-ef", marks=pytest.mark.long),
    ],
)
def large_index(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LargeIndex]:
    """A few thousand chunks, indexed like many more; only modules are larger than the full scan threshold."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "_FULL_SCAN_KB", COUNT // MODULES * DIM * 4 // 1_000 // 4)
        yield from build_large_index(request.param, tmp_path_factory)


def build_large_index(size: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LargeIndex]:
    path = tmp_path_factory.mktemp("sized") / "shard"
    chunks = [
        chunk(number, page=f"page-{number // PAGE}", module=f"module-{number // PAGE % MODULES}")
        for number in range(COUNT)
    ]
    vectors = clustered_vectors(np.random.default_rng(2), COUNT)
    rows: list[Vector] = vectors.tolist()
    shard = engine.create_shard(path, DIM)
    for start in range(0, COUNT, 1_000):
        points = zip(chunks[start : start + 1_000], rows[start : start + 1_000], strict=True)
        engine.upsert(shard, [(part.id, row, None, to_payload(part)) for part, row in points])
    engine.finish_shard(shard, path, size, DIM)
    shard = engine.load_shard(path)
    assert shard.info().indexed_vectors_count == COUNT
    assert set(shard.info().payload_schema) == {"language", "module_keys", "module_name", "page_key"}
    index = EdgeIndex(shard, IndexInfo("sized", "gen-000001", size, fingerprint(), (), DIM), path / "notes")
    queries = clustered_vectors(np.random.default_rng(3), QUESTIONS)
    yield LargeIndex(index, [part.id for part in chunks], vectors, queries)
    shard.close()


def test_recall(large_index: LargeIndex) -> None:
    assert large_index.recall(Filters(), range(COUNT)) >= 0.95
    assert large_index.recall(Filters(("module-2",)), MODULE_2) >= 0.95
    assert large_index.recall(PAGE_37, range(37 * PAGE, 38 * PAGE)) == 1, "a page is searched exactly"


class TruncatedShard:
    """A shard whose HNSW searches return only one hit."""

    def __init__(self, shard: Any) -> None:
        self._shard = shard

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shard, name)

    def query(self, request: Any) -> Any:
        exact = request.params is not None and request.params.exact
        return self._shard.query(request)[: None if exact else 1]

    def query_batch(self, batch: Any) -> Any:
        return [results[:1] for results in self._shard.query_batch(batch)]


def test_too_few_hits_are_searched_exactly(large_index: LargeIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_index.index, "_shard", TruncatedShard(large_index.index._shard))
    assert large_index.recall(Filters(("module-2",)), MODULE_2) == 1
    hits = nearest(large_index.index, large_index.queries[0].tolist(), TOP, PAGE_37)
    assert len(hits) == 1, "pages are searched exactly anyway"


def test_mapped_indexes_find_all_without_a_graph(tmp_path_factory: pytest.TempPathFactory) -> None:
    building = build_large_index(HNSW_FROM - 1, tmp_path_factory)
    mapped = next(building)
    assert mapped.recall(Filters(), range(COUNT)) == 1
    assert mapped.recall(Filters(("module-2",)), MODULE_2) == 1
    assert next(building, None) is None  # closes it


def test_parameters_follow_the_size() -> None:
    assert (large_config(MAPPED_FROM - 1, DIM), search_params(MAPPED_FROM - 1)) == (None, None)
    large, larger = (search_params(size) for size in (HIGH_EF_FROM - 1, HIGH_EF_FROM))
    assert large is not None
    assert larger is not None
    assert (larger.hnsw_ef or 0) > (large.hnsw_ef or 0) > 100


@pytest.mark.parametrize(
    ("hnsw_from", "segments"),
    [pytest.param(1_000_000, 3, id="mapped"), pytest.param(14_500, 1, id="graph", marks=pytest.mark.long)],
)
def test_mapped_parts(hnsw_from: int, segments: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts are searched like one; if there is a graph, they are merged."""
    part, count = 7_000, 15_000  # the engine does not optimize fewer vectors
    random = np.random.default_rng(4)
    vectors = clustered_vectors(random, count)
    terms = [sorted({1 + number % 7, 10 + number % 501, 1_000 + number // 3_000}) for number in range(count)]
    ids = [chunk(number).id for number in range(count)]
    monkeypatch.setattr(engine, "MAPPED_FROM", part)
    monkeypatch.setattr(engine, "HNSW_FROM", hnsw_from)
    with (tmp_path / "messages").open("w+b") as pipe:
        for start in range(0, count, 500):
            some = range(start, start + 500)
            sparse = [SparseVector(tuple(terms[number]), (1.0,) * 3) for number in some]
            payloads: list[Payload] = [
                {"module_keys": ["m"], "module_name": "m", "page_key": f"p{number // 9}"} for number in some
            ]
            points = list(zip(ids[start : start + 500], payloads, strict=True))
            send(pipe, points, vectors[start : start + 500].tolist(), sparse)
        send(pipe, [], [])
        pipe.seek(0)
        result = _build(tmp_path / "shard", DIM, pipe)
    assert result is not None
    assert result["count"] == count
    shard = engine.load_shard(tmp_path / "shard")
    assert shard.info().segments_count <= segments + 1  # one is empty
    query = clustered_vectors(random, 1)[0]
    results = shard.query(engine.query_request(query.tolist(), 10, params=search_params(count)))
    expected_ids = {ids[number] for number in np.argsort(-(vectors @ query))[:10]}
    missed = expected_ids - {str(hit.id) for hit in results}
    assert len(missed) <= (3 if segments == 1 else 0), "only HNSW may miss some"
    request = engine.query_request(SparseVector((3, 77, 1_004), (1.0, 1.0, 1.0)), 10)
    scores = {str(hit.id): hit.score for hit in shard.query(request)}
    frequency = Counter(term for own in terms for term in own)
    idf = {term: math.log((count - n + 0.5) / (n + 0.5) + 1) for term, n in frequency.items()}
    expected = [sum(idf[term] for term in (3, 77, 1_004) if term in own) for own in terms]
    best = sorted(expected, reverse=True)[:10]
    assert sorted(scores.values(), reverse=True) == pytest.approx(best, rel=1e-4)
    assert all(expected[ids.index(id)] == pytest.approx(score, rel=1e-4) for id, score in scores.items())
    shard.close()
