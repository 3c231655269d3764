"""One published generation, open for reading."""

from __future__ import annotations

import atexit
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakSet

import qdrant_edge as edge

from recto.errors import IndexDamaged
from recto.stores import candidate_limit, dense_vector, from_payload, no_lexical_vectors, without_last_tie
from recto.stores.edge.engine import (
    HNSW_FROM,
    engine_errors,
    load_shard,
    private_files,
    query_request,
    search_params,
    to_edge_filter,
)
from recto.stores.edge.layout import LEXICON, CollectionDirectory, FileState, file_state, read_calibration
from recto.types.index import Candidates, IndexInfo, IndexQuery
from recto.types.search import NO_FILTERS, Chunk, Filters, Vector

_MAX_CACHED = 2_000  # chunks of about 3 kB: most textbooks as a whole, and a few megabytes of a large one
_open_indexes: WeakSet[EdgeIndex] = WeakSet()  # of the whole process, for `_leak_open_indexes`


class EdgeIndex:
    """Searches one generation. It is thread-safe and immutable, and closes when nothing refers to it."""

    def __init__(
        self, shard: edge.EdgeShard, info: IndexInfo, calibration: Path, lexicon: Path | None = None
    ) -> None:
        self._shard = shard
        self._info = info
        self._calibration = str(calibration)
        self._calibration_state: FileState | None = None
        self._lexicon = lexicon
        self._params = search_params(info.chunks)
        self._cache: dict[Any, Chunk] = {}
        _open_indexes.add(self)

    def __del__(self) -> None:
        """Close the shard."""
        with private_files():
            del self._shard

    @property
    def info(self) -> IndexInfo:
        """The collection, the generation and how it was made; the calibration may be newer than the index."""
        try:
            state = file_state(self._calibration)
        except OSError:
            return self._info
        if state is not None and state != self._calibration_state:
            self._info = replace(self._info, calibration=read_calibration(Path(self._calibration)))
            self._calibration_state = state
        return self._info

    def candidates(
        self, queries: Sequence[IndexQuery], limit: int, filters: Filters = NO_FILTERS
    ) -> list[Candidates]:
        """Return the scores of chunks that can be among the best `limit`, with two calls of the engine."""
        fingerprint = self._info.fingerprint
        if not (fingerprint and fingerprint.analyzer) and any(query.lexical is not None for query in queries):
            raise no_lexical_vectors(self._info)
        requests: list[Any] = []
        for query in queries:
            most = candidate_limit(limit) if query.is_hybrid else limit
            if query.dense is not None:
                requests.append(query_request(query.dense, most, filters, params=self._params))
            if query.lexical is not None and query.lexical.indices:
                requests.append(query_request(query.lexical, most, filters))
        with engine_errors("searching"):
            answers = iter(self._run(requests))
            results = []
            for query in queries:
                candidates = Candidates()
                if query.dense is not None:
                    points = self._complete(next(answers), query.dense, limit, filters)
                    candidates.dense.update((point.id, point.score) for point in points)
                if query.lexical is not None and query.lexical.indices:
                    scores = {point.id: point.score for point in next(answers)}
                    if query.is_hybrid:
                        scores = without_last_tie(scores, candidate_limit(limit))
                    candidates.lexical.update(scores)
                results.append(candidates)
            self._add_missing_scores(queries, results)
        return results

    def _add_missing_scores(self, queries: Sequence[IndexQuery], results: Sequence[Candidates]) -> None:
        """Score the chunks of one ranking in the other one, too, so that a hybrid search can compare them."""
        requests: list[Any] = []
        targets: list[dict[Hashable, float]] = []
        for query, candidates in zip(queries, results, strict=True):
            if query.dense is None or query.lexical is None or not query.lexical.indices:
                continue
            if only_lexical := candidates.lexical.keys() - candidates.dense.keys():
                requests.append(query_request(query.dense, len(only_lexical), ids=only_lexical))
                targets.append(candidates.dense)
            if only_dense := candidates.dense.keys() - candidates.lexical.keys():
                requests.append(query_request(query.lexical, len(only_dense), ids=only_dense))
                targets.append(candidates.lexical)
        for scores, points in zip(targets, self._run(requests), strict=True):
            scores.update((point.id, point.score) for point in points)

    def _run(self, requests: list[Any]) -> list[list[Any]]:
        return list(self._shard.query_batch(edge.QueryBatchRequest(queries=requests))) if requests else []

    def chunks(self, ids: Iterable[Hashable]) -> dict[Hashable, Chunk]:
        """Return chunks by the ids that `candidates` returned."""
        ids, cached = list(ids), self._cache
        if any(id not in cached for id in ids):
            with engine_errors("reading"):
                cached = self._load(set(ids))
        return {id: cached[id] for id in ids}

    def lexicon(self) -> bytes:
        """Return the vocabulary that was published with the index, or nothing if there is none."""
        if self._lexicon is not None:
            with suppress(OSError):
                return self._lexicon.read_bytes()
        return b""

    def count(self, filters: Filters = NO_FILTERS) -> int:
        """Count the chunks that match the filters."""
        with engine_errors("counting"):
            return int(self._shard.count(edge.CountRequest(filter=to_edge_filter(filters), exact=True)))

    def scroll(self, filters: Filters = NO_FILTERS, batch: int = 256) -> Iterator[Chunk]:
        """Yield every chunk that matches the filters, once."""
        offset: Any = None
        while True:
            with engine_errors("reading"):
                request = edge.ScrollRequest(
                    offset=offset, limit=batch, with_payload=True, filter=to_edge_filter(filters)
                )
                records, offset = self._shard.scroll(request)
            for record in records:
                yield from_payload(str(record.id), record.payload or {})
            if offset is None:
                return

    def vectors(self, ids: Sequence[str]) -> dict[str, Vector]:
        """Return the stored dense vectors of the chunks that exist."""
        with engine_errors("reading"):
            records = self._shard.retrieve(list(ids), False, True)
            return {str(record.id): dense_vector(record.vector) for record in records}

    def modules(self) -> dict[str, int]:
        """Count the chunks of each module."""
        return self._facet("module_name")

    def pages(self) -> dict[str, int]:
        """Count the chunks of each page URL."""
        return self._facet("page_key")

    def leak_on_exit(self) -> None:
        """Never close the shard.

        When the engine closes it, it drops the files from the system's cache, and the next process must read
        the disk.
        """
        from ctypes import py_object, pythonapi

        pythonapi.Py_IncRef(py_object(self._shard))

    def _complete(self, points: list[Any], vector: Vector, limit: int, filters: Filters) -> list[Any]:
        """Search exactly if HNSW returned too few chunks of a filter; a page is always searched exactly."""
        if len(points) >= limit or not filters or filters.page_url or self._info.chunks < HNSW_FROM:
            return points
        return self._shard.query(query_request(vector, limit, filters, params=edge.SearchParams(exact=True)))

    def _load(self, ids: set[Any]) -> dict[Any, Chunk]:
        """Read the chunks that are not in the cache, with one call of the engine, and return the cache.

        Searches use the cache without a lock. So nothing is ever removed from it: if it is too large, a new
        one replaces it, and running searches keep the old one.
        """
        cache = self._cache
        missing = [id for id in ids if id not in cache]
        if len(cache) + len(missing) > _MAX_CACHED:
            cache, missing = {}, [*ids]
            self._cache = cache
        cache.update(
            (record.id, from_payload(str(record.id), record.payload or {}))
            for record in self._shard.retrieve(missing, True, False)
        )
        return cache

    def _facet(self, field: str) -> dict[str, int]:
        with engine_errors("counting"):
            hits = self._shard.facet(edge.FacetRequest(field, limit=max(self._info.chunks, 1))).hits
            return dict(sorted((str(hit.value), int(hit.count)) for hit in hits))


def open_generation(
    directory: CollectionDirectory, collection: str, name: str, warnings: tuple[str, ...] = ()
) -> EdgeIndex:
    """Open a generation, or raise `IndexDamaged` if it does not match its manifest."""
    manifest = directory.verify(name)
    path = directory.generation(name)
    with engine_errors("opening"):
        shard = load_shard(path)
        count = shard.info().points_count
    if count != manifest.chunks:
        raise IndexDamaged(f"{path} has {count} chunks, but its manifest says {manifest.chunks}")
    fingerprint = manifest.fingerprint
    info = IndexInfo(collection, name, manifest.chunks, fingerprint, warnings, fingerprint.embedder.dim)
    lexicon = path / LEXICON if LEXICON in manifest.files else None
    return EdgeIndex(shard, info, directory.calibration(name), lexicon)


@atexit.register
def _leak_open_indexes() -> None:
    # There may be no ctypes, or another thread may be opening an index: then the next process reads the disk.
    with suppress(ImportError, RuntimeError):
        for index in list(_open_indexes):
            index.leak_on_exit()
