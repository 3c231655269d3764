"""One published generation, open for reading."""

from __future__ import annotations

import atexit
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from operator import le
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from recto.errors import IndexDamaged
from recto.stores.candidates import Limits, join, limits_for, no_lexical_vectors
from recto.stores.edge.engine import (
    GRAPH_FROM,
    candidate_requests,
    engine_errors,
    load_shard,
    request,
    search_params,
    translate_filters,
)
from recto.stores.edge.layout import (
    LEXICON,
    CollectionDirectory,
    FileState,
    file_state,
    read_manifest,
    read_notes,
    verify_files,
)
from recto.stores.payload import from_payload
from recto.types import NO_FILTERS, Candidates, Chunk, Filters, Hit, IndexInfo, IndexQuery, Vector

if TYPE_CHECKING:
    import qdrant_edge

_KEPT = 2_000  # chunks, of about 3 kB each: most textbooks whole, and a few megabytes of a large one
_unclosed: WeakSet[EdgeIndex] = WeakSet()  # of the whole process, as its end is one, too


class EdgeIndex:
    """Answers from one generation; shared by threads, never changed, closed when nobody holds it any more."""

    def __init__(
        self, shard: qdrant_edge.EdgeShard, info: IndexInfo, notes: Path, lexicon: Path | None = None
    ) -> None:
        self._shard = shard
        self._info = info
        self._notes = str(notes)
        self._lexicon = lexicon
        self._params = search_params(info.chunks)
        self._noted: FileState | None = None
        self._kept: dict[Any, Chunk] = {}
        _unclosed.add(self)

    @property
    def info(self) -> IndexInfo:
        """What this index is; what was measured of it may have been written down after it was opened."""
        try:
            noted = file_state(self._notes)
        except OSError:
            return self._info
        if noted is not None and noted != self._noted:
            self._info = replace(self._info, calibration=read_notes(Path(self._notes)))
            self._noted = noted
        return self._info

    def query(
        self, vector: Vector, limit: int, filters: Filters = NO_FILTERS, min_score: float | None = None
    ) -> list[Hit]:
        """Return the nearest chunks, best first."""
        with engine_errors("searching"):
            found = self._shard.query(request(vector, limit, filters, min_score, self._params))
            return self._hits([self._whole(found, vector, limit, filters, min_score)])[0]

    def query_batch(
        self,
        vectors: Sequence[Vector],
        limit: int,
        filters: Filters = NO_FILTERS,
        min_score: float | None = None,
    ) -> list[list[Hit]]:
        """Answer several queries in one call of the engine."""
        import qdrant_edge as edge

        with engine_errors("searching"):
            queries = [request(vector, limit, filters, min_score, self._params) for vector in vectors]
            answers = self._shard.query_batch(edge.QueryBatchRequest(queries=queries))
            pairs = zip(answers, vectors, strict=True)
            return self._hits(
                [self._whole(found, vector, limit, filters, min_score) for found, vector in pairs]
            )

    def candidates(
        self, queries: Sequence[IndexQuery], limit: int, filters: Filters = NO_FILTERS
    ) -> list[Candidates]:
        """Return the scores of the chunks that may be among the best `limit` of each query, in one call of the engine."""
        import qdrant_edge as edge

        made = self._info.fingerprint
        if not (made and made.analyzer) and any(query.lexical is not None for query in queries):
            raise no_lexical_vectors(self._info)
        limits = [
            limits_for(limit, hybrid=query.dense is not None and query.lexical is not None)
            for query in queries
        ]
        asked = [
            candidate_requests(query, each, filters, self._params)
            for query, each in zip(queries, limits, strict=True)
        ]
        with engine_errors("searching"):
            requests = [request for each in asked for request in each]
            answers = iter(
                self._shard.query_batch(edge.QueryBatchRequest(queries=requests)) if requests else []
            )
            found = [[next(answers) for _ in each] for each in asked]
            return [self._scores(*each, limit, filters) for each in zip(queries, found, limits, strict=True)]

    def _scores(
        self, query: IndexQuery, answers: list[Any], limits: Limits, limit: int, filters: Filters
    ) -> Candidates:
        """Gather what the legs of one query found."""
        if query.dense is not None:
            answers[0] = self._whole(answers[0], query.dense, limit, filters, None)
        scores = [{point.id: point.score for point in found} for found in answers]
        if query.dense is not None and len(scores) > 1:
            return join(scores[0], scores[1], scores[2], limits)
        return (
            Candidates(scores[0])
            if query.dense is not None
            else Candidates(lexical=scores[0] if scores else {})
        )

    def chunks(self, ids: Iterable[Hashable]) -> dict[Hashable, Chunk]:
        """Return chunks by the ids that `candidates` gave."""
        wanted = list(ids)
        kept = self._kept
        if any(id not in kept for id in wanted):
            with engine_errors("reading"):
                kept = self._read(set(wanted))
        return {id: kept[id] for id in wanted}

    def lexicon(self) -> bytes:
        """Return the vocabulary that was published with the index, or nothing if there is none."""
        if self._lexicon is None:
            return b""
        try:
            return self._lexicon.read_bytes()
        except OSError:
            return b""

    def count(self, filters: Filters = NO_FILTERS) -> int:
        """Count the chunks that a filter lets through."""
        import qdrant_edge as edge

        with engine_errors("counting"):
            return int(self._shard.count(edge.CountRequest(filter=translate_filters(filters), exact=True)))

    def scroll(self, filters: Filters = NO_FILTERS, batch: int = 256) -> Iterator[Chunk]:
        """Yield every chunk that a filter lets through, once."""
        import qdrant_edge as edge

        offset: Any = None
        while True:
            with engine_errors("reading"):
                page = edge.ScrollRequest(
                    offset=offset, limit=batch, with_payload=True, filter=translate_filters(filters)
                )
                records, offset = self._shard.scroll(page)
            for record in records:
                yield from_payload(str(record.id), record.payload or {})
            if offset is None:
                return

    def vectors(self, ids: Sequence[str]) -> dict[str, Vector]:
        """Return the stored vectors of the chunks that exist."""
        with engine_errors("reading"):
            records = self._shard.retrieve(list(ids), False, True)
            return {str(record.id): _as_vector(record.vector) for record in records}

    def modules(self) -> dict[str, int]:
        """Count the chunks of each module."""
        return self._facet("module_name")

    def pages(self) -> dict[str, int]:
        """Count the chunks of each page address."""
        return self._facet("page_key")

    def leak_on_exit(self) -> None:
        """Never close the shard: when the engine does, it drops the files from the system's cache, and the next process reads the disk."""
        from ctypes import py_object, pythonapi

        pythonapi.Py_IncRef(py_object(self._shard))

    def _whole(
        self, found: list[Any], vector: Vector, limit: int, filters: Filters, min_score: float | None
    ) -> list[Any]:
        """Compare all that a filter leaves if a walk over the graph ended early.

        With a least score few hits are no sign of that, and a page's chunks are compared one by one anyway.
        """
        if (
            len(found) >= limit
            or not filters.modules
            or filters.page_url
            or min_score is not None
            or self._info.chunks < GRAPH_FROM
        ):
            return found
        import qdrant_edge as edge

        return self._shard.query(request(vector, limit, filters, None, edge.SearchParams(exact=True)))

    def _hits(self, answers: Sequence[Sequence[Any]]) -> list[list[Hit]]:
        """Make hits of the engine's points."""
        kept = self._kept
        try:
            return [
                _ordered([Hit(score := point.score, kept[point.id], score) for point in found])
                for found in answers
            ]
        except KeyError:
            kept = self._read({point.id for found in answers for point in found})
            return [
                _ordered([Hit(score := point.score, kept[point.id], score) for point in found])
                for found in answers
            ]

    def _read(self, ids: set[Any]) -> dict[Any, Chunk]:
        """Read the chunks that no search has found before, in one call of the engine, and keep them: a generation never changes.

        Searches take what is kept without a lock, so nothing is ever taken out; what has grown too large is left to those who use it.
        """
        kept = self._kept
        missing = [id for id in ids if id not in kept]
        if len(kept) + len(missing) > _KEPT:
            kept, missing = {}, [*ids]
            self._kept = kept
        kept.update(
            (record.id, from_payload(str(record.id), record.payload or {}))
            for record in self._shard.retrieve(missing, True, False)
        )
        return kept

    def _facet(self, field: str) -> dict[str, int]:
        import qdrant_edge as edge

        with engine_errors("counting"):
            found = self._shard.facet(edge.FacetRequest(field, limit=max(self._info.chunks, 1))).hits
            return dict(sorted((str(hit.value), int(hit.count)) for hit in found))


def open_generation(
    directory: CollectionDirectory, collection: str, name: str, warnings: tuple[str, ...]
) -> EdgeIndex:
    """Open a generation that is what its manifest says, or raise `IndexDamaged`."""
    manifest = read_manifest(directory.manifest(name))
    verify_files(directory.generation(name), manifest, directory.seen(name))
    with engine_errors("opening"):
        shard = load_shard(directory.generation(name))
        found = shard.info().points_count
    if found != manifest.chunks:
        raise IndexDamaged(
            f"{directory.generation(name)} holds {found} chunks, its manifest says {manifest.chunks}"
        )
    info = IndexInfo(
        collection, name, manifest.chunks, manifest.fingerprint, warnings, manifest.fingerprint.embedder.dim
    )
    lexicon = directory.generation(name) / LEXICON if LEXICON in manifest.files else None
    return EdgeIndex(shard, info, directory.notes(name), lexicon)


@atexit.register
def _end() -> None:
    with suppress(
        ImportError, RuntimeError
    ):  # without ctypes, or while a thread still opens one: the next process reads the disk
        for index in list(_unclosed):
            index.leak_on_exit()


def _ordered(hits: list[Hit]) -> list[Hit]:
    """Sort hits unless the engine's own order is right already: it is but for equal scores."""
    scores = [hit.score for hit in hits]
    if any(map(le, scores, scores[1:])):
        hits.sort(key=lambda hit: (-hit.score, hit.chunk.page_url, hit.chunk.chunk_index, hit.chunk.id))
    return hits


def _as_vector(vector: Any) -> Vector:
    return [float(number) for number in (vector[""] if isinstance(vector, dict) else vector)]
