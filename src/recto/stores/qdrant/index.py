"""Read a collection on a server: Recto's own, or one that another pipeline wrote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Any, TypeVar
from uuid import UUID

from qdrant_client import AsyncQdrantClient, QdrantClient, models

from recto.errors import ConfigurationError
from recto.stores import LEXICAL, candidate_limit, dense_vector, no_lexical_vectors, without_last_tie
from recto.stores.qdrant.collections import (
    REINDEX,
    base_name,
    decode_lexicon,
    read_fingerprint,
    read_lexical,
    read_vectors,
)
from recto.stores.qdrant.connection import IndexRequired, ServerConnection
from recto.stores.qdrant.dialects import RECTO, SAMPLE, Dialect, choose
from recto.stores.qdrant.filters import (
    FieldFilters,
    Stored,
    field_filters,
    matches,
    stored_modules,
    to_server_filter,
)
from recto.types.index import Candidates, IndexInfo, IndexQuery, PayloadSchema, SparseVector
from recto.types.search import NO_FILTERS, Chunk, Filters, Vector

Result = TypeVar("Result")

_MAX_SCANNED = 1000  # points that are read where the server cannot filter
_FACET_LIMIT = 10_000  # pages or modules that are counted
_MODULE_LIMIT = 1000  # stored names of modules
# Below so many numbers in all vectors, a search compares all of them, like an embedded index without a graph
# (50 000 chunks of 384 dimensions). Qdrant's default ef, 100, misses too much: see docs/how-to/deploy.md.
_EXACT_BELOW = 50_000 * 384
_HNSW_EF = 512
_LIMITED = "The server limits searches, so they may miss chunks (strict mode)"


@dataclass(frozen=True, slots=True)
class _PointId:
    """A point's id, with the chunk that the search returned: a later call may find it changed."""

    point: int | str | UUID
    chunk: Chunk | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class CollectionSchema:
    """How to search and read a physical collection; `is_own` means that Recto wrote its payloads."""

    collection: str
    vector_name: str | None
    dialect: Dialect
    is_own: bool
    known_modules: Mapping[str, tuple[Stored, ...]]
    lexical: bool = False
    shards: int = 1
    params: models.SearchParams | None = None
    """Of dense searches."""

    def chunk(self, point: Any) -> Chunk:
        """Read the payload of a point."""
        return self.dialect.read(str(point.id), point.payload or {})

    def scores(self, points: Sequence[Any], filters: Filters = NO_FILTERS) -> dict[Hashable, float]:
        """Return the scores of the points that match the filters.

        Repeated runs of another pipeline leave copies of a chunk with other ids: only the best one counts.
        """
        scores: dict[Hashable, float] = {}
        copies = set()
        for point in points:  # best first
            chunk = self.chunk(point) if point.payload is not None else None
            if filters and (chunk is None or not matches(chunk, filters)):
                continue
            if chunk is not None and not self.is_own:
                key = (chunk.page_url, chunk.chunk_index, chunk.text)
                if key in copies:
                    continue
                copies.add(key)
            scores[_PointId(point.id, chunk)] = float(point.score)
        return scores

    def request(
        self, vector: Vector | SparseVector, limit: int, condition: models.Filter | None
    ) -> models.QueryRequest:
        """Return the request for a dense or lexical search."""
        query: Any = vector
        if is_lexical := isinstance(vector, SparseVector):
            # Multiplied by the IDF over all shards, which a server would compute for each of them.
            values = [value * idf for value, idf in zip(vector.values, vector.idf, strict=True)]
            query = models.SparseVector(indices=list(vector.indices), values=values)
        return models.QueryRequest(
            query=query,
            using=LEXICAL if is_lexical else self.vector_name,
            filter=condition,
            limit=limit,
            with_payload=True,
            params=None if is_lexical else self.params,
        )

    def rescored(self, request: models.QueryRequest, candidates: models.QueryRequest) -> models.QueryRequest:
        """Return a request for the scores that `request` gives to the points of another request.

        Each shard scores its own candidates, so the limit must not cut off any of them.
        """
        prefetch = models.Prefetch(
            query=candidates.query,
            using=candidates.using,
            filter=candidates.filter,
            limit=candidates.limit,
            params=candidates.params,
        )
        changes = {
            "prefetch": [prefetch],
            "filter": None,
            "limit": (candidates.limit or 0) * self.shards,
            "with_payload": False,
        }
        return request.model_copy(update=changes)


def open_index(
    connection: ServerConnection, name: str, physical: str, dialect: Dialect | None
) -> ServerIndex:
    """Open a collection, and find out how it must be read if another pipeline wrote it."""
    collection = connection.read(QdrantClient.get_collection, name)
    config = collection.config
    vector_name, size, distance = read_vectors(config.params.vectors)
    if distance.lower() != "cosine":
        raise ConfigurationError(
            f"Collection '{name}' uses {distance} distance, but Recto needs cosine",
            hint="Index the book again with `recto index PATH`.",
        )
    fingerprint, calibration = read_fingerprint(config)
    is_own = fingerprint is not None
    sample = []
    if not is_own:
        points, _ = connection.read(QdrantClient.scroll, physical, limit=SAMPLE, with_payload=True)
        sample = [point.payload or {} for point in points]
    dialect = choose(dialect, sample, is_own=is_own)
    modules: list[Stored] = []
    if not is_own and dialect.module in (collection.payload_schema or {}):
        field = dialect.module
        facet = connection.read(QdrantClient.facet, physical, key=field, limit=_MODULE_LIMIT)
        modules = [hit.value for hit in facet.hits]
    lexical, lexicon, warning = read_lexical(config, fingerprint)
    params, limited = _search_params(config.strict_mode_config, (collection.points_count or 0) * size)
    schema = CollectionSchema(
        physical,
        vector_name,
        dialect,
        is_own and dialect is RECTO,
        stored_modules(dialect, sample, modules),
        lexical,
        config.params.shard_number or 1,
        params,
    )
    warnings = tuple(filter(None, (warning, limited)))
    info = IndexInfo(
        base_name(physical), physical, collection.points_count or 0, fingerprint, warnings, size, calibration
    )
    return ServerIndex(connection, schema, info, lexicon)


def _search_params(
    strict: models.StrictModeConfigOutput | None, numbers: int
) -> tuple[models.SearchParams, str]:
    """Return the parameters of dense searches, and a warning if the strict mode of the server limits them.

    A small collection is searched exactly, a larger one with a large `ef`.
    """
    may_be_exact, max_ef = True, _HNSW_EF
    if strict is not None and strict.enabled:
        may_be_exact = strict.search_allow_exact is not False
        max_ef = min(strict.search_max_hnsw_ef or _HNSW_EF, _HNSW_EF)
    if numbers < _EXACT_BELOW and may_be_exact:
        return models.SearchParams(exact=True), ""
    is_limited = numbers < _EXACT_BELOW or max_ef < _HNSW_EF
    return models.SearchParams(hnsw_ef=max_ef), _LIMITED if is_limited else ""


@dataclass(eq=False)
class ServerIndex:
    """Searches a collection on a server; `info` has the warnings about filters.

    Where the server cannot filter by a field, a limited number of points is filtered on the client, with a
    warning.
    """

    connection: ServerConnection
    schema: CollectionSchema
    info: IndexInfo
    encoded_lexicon: str = ""
    _unindexed: set[str] = field(default_factory=set)

    def candidates(
        self, queries: Sequence[IndexQuery], limit: int, filters: Filters = NO_FILTERS
    ) -> list[Candidates]:
        """Return the scores of chunks that can be among the best `limit`, with one call of the server."""
        self._check_lexical(queries)

        def search(condition: models.Filter | None, client_side: bool) -> list[Candidates]:
            fetched = _MAX_SCANNED if client_side else limit
            left = NO_FILTERS if self.schema.is_own and not client_side else filters
            while True:
                batches = self._candidate_requests(queries, limit, condition, fetched)
                requests = list(chain(*batches))
                read, name = self.connection.read, self.schema.collection
                answers = read(QdrantClient.query_batch_points, name, requests) if requests else []
                results = self._to_candidates(queries, batches, answers, limit, left)
                # Copies of chunks may have been dropped: then the next points have more of the best chunks.
                pairs = zip(answers, results, strict=False)
                too_few = any(
                    len(answer.points) >= fetched and len(result.dense) < limit for answer, result in pairs
                )
                if self.schema.is_own or fetched >= _MAX_SCANNED or not too_few:
                    return results
                fetched = min(_MAX_SCANNED, 4 * fetched)

        return self._filtered(filters, search)

    async def acandidates(
        self, queries: Sequence[IndexQuery], limit: int, filters: Filters = NO_FILTERS
    ) -> list[Candidates]:
        """Return the candidates without blocking; in a thread if that may take several calls."""
        self._check_lexical(queries)
        conditions = self._conditions(filters)
        if conditions is not None and self.schema.is_own:
            batches = self._candidate_requests(queries, limit, to_server_filter(conditions), limit)
            with suppress(IndexRequired):
                requests = list(chain(*batches))
                read, name = self.connection.aread, self.schema.collection
                answers = await read(AsyncQdrantClient.query_batch_points, name, requests) if requests else []
                return self._to_candidates(queries, batches, answers, limit)
        from asyncio import to_thread

        return await to_thread(self.candidates, queries, limit, filters)

    def chunks(self, ids: Iterable[Hashable]) -> dict[Hashable, Chunk]:
        """Return chunks by the ids that `candidates` returned; the search has fetched them."""
        return {id: id.chunk for id in ids if isinstance(id, _PointId) and id.chunk is not None}

    async def achunks(self, ids: Iterable[Hashable]) -> dict[Hashable, Chunk]:
        """Return chunks by the ids that `acandidates` returned."""
        return self.chunks(ids)

    def lexicon(self) -> bytes:
        """Return the vocabulary that was published with the collection, or nothing if there is none."""
        if self.encoded_lexicon and self.schema.lexical:
            try:
                return decode_lexicon(self.encoded_lexicon)
            except ValueError:
                self._warn(
                    f"The vocabulary of collection '{self.info.collection}' is damaged, "
                    f"so it is searched in dense mode. {REINDEX}"
                )
        return b""

    def count(self, filters: Filters = NO_FILTERS) -> int:
        """Count the chunks that match the filters."""

        def count(condition: models.Filter | None, client_side: bool) -> int:
            if client_side:
                return sum(matches(chunk, filters) for chunk in islice(self.scroll(), _MAX_SCANNED))
            counted = self.connection.read(
                QdrantClient.count, self.schema.collection, count_filter=condition, exact=True
            )
            return int(counted.count)

        return self._filtered(filters, count)

    def scroll(self, filters: Filters = NO_FILTERS, batch: int = 256) -> Iterator[Chunk]:
        """Yield every chunk that matches the filters, once."""

        def scroll(condition: models.Filter | None, client_side: bool) -> Iterator[Chunk]:
            name, read = self.schema.collection, self.connection.scroll
            chunks = map(self.schema.chunk, read(name, batch, scroll_filter=condition, with_payload=True))
            if client_side:
                return (chunk for chunk in chunks if matches(chunk, filters))
            return chain(list(islice(chunks, 1)), chunks)  # reads the first chunk now, to notice a refusal

        return self._filtered(filters, scroll)

    def vectors(self, ids: Sequence[str]) -> dict[str, Vector]:
        """Return the stored dense vectors of the chunks that exist."""
        # Other pipelines use numbers as ids, and the server does not accept them as strings.
        points: list[int | str] = [int(id) if id.isdecimal() else id for id in ids]
        names: bool | list[str] = [""] if self.schema.lexical else True
        records = self.connection.read(
            QdrantClient.retrieve, self.schema.collection, points, with_payload=False, with_vectors=names
        )
        return {str(record.id): dense_vector(record.vector, self.schema.vector_name) for record in records}

    def modules(self) -> dict[str, int]:
        """Count the chunks of each module."""
        return self._facet(self.schema.dialect.module, lambda chunk: chunk.module)

    def pages(self) -> dict[str, int]:
        """Count the chunks of each page URL."""
        return self._facet("page_key", lambda chunk: chunk.page_url)

    def _facet(self, field: str, key: Callable[[Chunk], str]) -> dict[str, int]:
        """Count the chunks by a field of Recto's own payloads, or by a key of the first points of others."""
        if self.schema.is_own:
            answer = self.connection.read(
                QdrantClient.facet, self.schema.collection, key=field, limit=_FACET_LIMIT, exact=True
            )
            return dict(sorted((str(hit.value), int(hit.count)) for hit in answer.hits))
        return dict(sorted(Counter(map(key, islice(self.scroll(), _MAX_SCANNED))).items()))

    def _filtered(self, filters: Filters, search: Callable[[models.Filter | None, bool], Result]) -> Result:
        """Call `search` with the server's filter, or with `client_side=True` if the server cannot filter."""
        conditions = self._conditions(filters)
        if conditions is not None:
            try:
                return search(to_server_filter(conditions), False)
            except IndexRequired as error:
                self._unindexed.add(error.field)
                self._warn(
                    f"The server has no payload index on '{error.field}', so only the first {_MAX_SCANNED} "
                    f"points are filtered. `recto prepare {self.info.collection}` creates it."
                )
        return search(None, True)

    def _conditions(self, filters: Filters) -> FieldFilters | None:
        """Return the filters for the server, or None if it cannot filter."""
        fields = field_filters(self.schema.dialect, filters, self.schema.known_modules)
        if fields is None:
            self._warn(
                "This collection has no field to filter by, "
                f"so only the first {_MAX_SCANNED} points are searched."
            )
        elif self._unindexed & fields.keys():
            return None
        return fields

    def _warn(self, warning: str) -> None:
        if warning not in self.info.warnings:
            self.info = replace(self.info, warnings=(*self.info.warnings, warning))

    def _candidate_requests(
        self, queries: Sequence[IndexQuery], limit: int, condition: models.Filter | None, fetched: int
    ) -> list[list[models.QueryRequest]]:
        """Return the requests of each query: dense, lexical, and each of them for what the other finds."""
        schema, batches = self.schema, []
        for query in queries:
            most = max(fetched, candidate_limit(limit)) if query.is_hybrid else fetched
            vectors = (query.dense, query.lexical if query.lexical and query.lexical.indices else None)
            requests = [schema.request(vector, most, condition) for vector in vectors if vector is not None]
            if len(requests) == 2:
                dense, lexical = requests
                requests += [schema.rescored(dense, lexical), schema.rescored(lexical, dense)]
            batches.append(requests)
        return batches

    def _to_candidates(
        self,
        queries: Sequence[IndexQuery],
        batches: Sequence[Sequence[models.QueryRequest]],
        answers: Sequence[Any],
        limit: int,
        filters: Filters = NO_FILTERS,
    ) -> list[Candidates]:
        """Return the candidates of each query from the answers to its requests (`_candidate_requests`)."""
        points, results = iter(answers), []
        for query, batch in zip(queries, batches, strict=True):
            scores = self.schema.scores
            parts = [
                scores(next(points).points, filters if number < 2 else NO_FILTERS)
                for number in range(len(batch))
            ]
            if query.dense is None:
                results.append(Candidates(lexical=parts[0] if parts else {}))
            elif len(parts) == 1:
                results.append(Candidates(parts[0]))
            else:
                dense, lexical, cosines, terms = parts
                lexical = without_last_tie(lexical, candidate_limit(limit))
                # Every shard has rescored its own candidates: keep the candidates of the whole collection.
                dense |= {id: cosines[id] for id in lexical if id in cosines}
                results.append(Candidates(dense, {id: terms[id] for id in dense if id in terms} | lexical))
        return results

    def _check_lexical(self, queries: Sequence[IndexQuery]) -> None:
        if not self.schema.lexical and any(query.lexical is not None for query in queries):
            raise no_lexical_vectors(self.info)


def payload_schema(schema: CollectionSchema) -> PayloadSchema:
    """Explain how the payloads of a collection are read."""
    missing = tuple(name for name in ("text", "page_url") if not schema.dialect.path(name))
    return PayloadSchema(schema.dialect.name, schema.is_own, missing, schema.dialect.describe())
