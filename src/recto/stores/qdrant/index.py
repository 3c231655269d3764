"""Read a collection on a server: Recto's own, or one that another pipeline wrote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeVar

from recto.stores.points import (
    LEXICAL,
    candidate_limit,
    dense_vector,
    no_lexical_vectors,
    without_last_tie,
)
from recto.stores.qdrant.build import decode_lexicon
from recto.stores.qdrant.connection import Connection, IndexRequired, SearchParamsRefused
from recto.stores.qdrant.dialects import Dialect
from recto.stores.qdrant.filters import (
    CLIENT_SIDE,
    FieldFilter,
    Stored,
    deduplicate,
    matches,
    module_filter,
    url_filter,
)
from recto.types import (
    NO_FILTERS,
    Candidates,
    Chunk,
    Filters,
    Hit,
    IndexInfo,
    IndexQuery,
    PayloadSchema,
    SparseVector,
    Vector,
    hit_order,
)

if TYPE_CHECKING:
    from qdrant_client import models

Result = TypeVar("Result")

_MAX_SCANNED = 1000  # points that are read where the server cannot filter
_FACET_LIMIT = 10_000
# Below so many numbers in all vectors, a search compares all of them, like an embedded index without a graph
# (50 000 chunks of 384 dimensions). Qdrant's default ef, 100, misses too much: see docs/how-to/scale.md.
_EXACT_BELOW = 50_000 * 384
_HNSW_EF = 512
REINDEX = "Index the book again with `recto index PATH --collection NAME`."


@dataclass(frozen=True, slots=True)
class CollectionSchema:
    """How to search and read a physical collection; `own` means that Recto wrote its payloads."""

    collection: str
    vector_name: str | None
    dialect: Dialect
    own: bool
    known_modules: Mapping[str, tuple[Stored, ...]]
    lexical: bool = False
    shards: int = 1
    server_idf: bool = False
    """The server multiplies by the IDF, which it computes for each shard (collections of Recto 0.1)."""


@dataclass(frozen=True, slots=True)
class _PointId:
    """A point's id, with its chunk if the search returned it: a later call may find it changed."""

    point: int | str
    chunk: Chunk | None = field(default=None, compare=False, repr=False)


class ServerIndex:
    """Searches a collection on a server.

    Where the server cannot filter by a field, a limited number of points is filtered on the client, with a
    warning.
    """

    def __init__(
        self, connection: Connection, schema: CollectionSchema, info: IndexInfo, lexicon: str = ""
    ) -> None:
        self._connection = connection
        self._schema = schema
        self._info = info
        self._encoded_lexicon = lexicon
        self._lexicon: bytes | None = None
        self._unindexed: set[str] = set()
        self._params_allowed = True

    @property
    def info(self) -> IndexInfo:
        """The collection, the generation and how it was made, with warnings about filters."""
        return self._info

    @property
    def schema(self) -> CollectionSchema:
        """How the collection is searched and read."""
        return self._schema

    @property
    def payload_schema(self) -> PayloadSchema:
        """How the payloads are read."""
        dialect = self._schema.dialect
        missing = tuple(name for name in ("text", "page_url") if not dialect.path(name))
        return PayloadSchema(dialect.name, self._schema.own, missing, dialect.describe())

    def query(
        self, vector: Vector, limit: int, filters: Filters = NO_FILTERS, min_score: float | None = None
    ) -> list[Hit]:
        """Return the nearest chunks, best first."""
        return self.query_batch([vector], limit, filters, min_score)[0]

    def query_batch(
        self,
        vectors: Sequence[Vector],
        limit: int,
        filters: Filters = NO_FILTERS,
        min_score: float | None = None,
    ) -> list[list[Hit]]:
        """Return the nearest chunks of several vectors, with one call of the server."""
        if not vectors:
            return []

        def search(condition: models.Filter | None, client_side: bool) -> list[list[Hit]]:
            wanted = _MAX_SCANNED if client_side else limit
            while True:
                requests = [self._request(vector, wanted, condition, min_score) for vector in vectors]
                answers = self._query(requests)
                found = [self._hits(answer.points, filters) for answer in answers]
                complete = all(len(answer.points) < wanted for answer in answers)
                # Copies of chunks are dropped. If too few hits are left, fetch more points.
                if complete or wanted >= _MAX_SCANNED or all(len(hits) >= limit for hits in found):
                    return [hits[:limit] for hits in found]
                wanted = min(_MAX_SCANNED, 4 * wanted)

        return self._filtered(filters, search)

    async def aquery_batch(
        self,
        vectors: Sequence[Vector],
        limit: int,
        filters: Filters = NO_FILTERS,
        min_score: float | None = None,
    ) -> list[list[Hit]]:
        """Return the nearest chunks without blocking; in a thread if that may take several calls."""
        conditions = self._conditions(filters)
        if vectors and conditions is not None and self._schema.own:
            requests = [self._request(vector, limit, _to_filter(conditions), min_score) for vector in vectors]
            return [self._hits(answer.points, filters) for answer in await self._aquery(requests)]
        from asyncio import to_thread

        return await to_thread(self.query_batch, vectors, limit, filters, min_score)

    def candidates(
        self, queries: Sequence[IndexQuery], limit: int, filters: Filters = NO_FILTERS
    ) -> list[Candidates]:
        """Return the scores of chunks that can be among the best `limit`, with one call of the server."""
        if not self._has_lexical_part(queries):
            dense = [query.dense for query in queries if query.dense is not None]
            found = iter(self.query_batch(dense, limit, filters))
            return [_from_hits(next(found)) if query.dense is not None else Candidates() for query in queries]

        def search(condition: models.Filter | None, client_side: bool) -> list[Candidates]:
            batches = self._candidate_requests(queries, limit, condition, client_side)
            answers = self._query(list(chain(*batches)))
            return self._candidates(queries, batches, answers, limit, filters if client_side else NO_FILTERS)

        return self._filtered(filters, search)

    async def acandidates(
        self, queries: Sequence[IndexQuery], limit: int, filters: Filters = NO_FILTERS
    ) -> list[Candidates]:
        """Return the candidates without blocking; in a thread if that may take several calls."""
        conditions = self._conditions(filters)
        if conditions is not None and self._has_lexical_part(queries):
            batches = self._candidate_requests(queries, limit, _to_filter(conditions), client_side=False)
            with suppress(IndexRequired):
                answers = await self._aquery(list(chain(*batches)))
                return self._candidates(queries, batches, answers, limit, NO_FILTERS)
        from asyncio import to_thread

        return await to_thread(self.candidates, queries, limit, filters)

    def chunks(self, ids: Iterable[Hashable]) -> dict[Hashable, Chunk]:
        """Return chunks by the ids that `candidates` returned, without those that were deleted since."""
        found, missing = _known_chunks(ids)
        if missing:
            found |= self._by_id(
                self._connection.read(
                    lambda client: client.retrieve(self._schema.collection, missing, with_payload=True)
                )
            )
        return found

    async def achunks(self, ids: Iterable[Hashable]) -> dict[Hashable, Chunk]:
        """Return chunks by the ids that `acandidates` returned, without those that were deleted since."""
        found, missing = _known_chunks(ids)
        if missing:
            found |= self._by_id(
                await self._connection.aread(
                    lambda client: client.retrieve(self._schema.collection, missing, with_payload=True)
                )
            )
        return found

    def lexicon(self) -> bytes:
        """Return the vocabulary that was published with the collection, or nothing if there is none."""
        if self._lexicon is None:
            self._lexicon = b""
            if self._encoded_lexicon and self._schema.lexical:
                try:
                    self._lexicon = decode_lexicon(self._encoded_lexicon)
                except ValueError:
                    self._warn(
                        f"The vocabulary of collection '{self._info.collection}' is damaged, "
                        f"so it is searched in dense mode. {REINDEX}"
                    )
            self._encoded_lexicon = ""
        return self._lexicon

    def count(self, filters: Filters = NO_FILTERS) -> int:
        """Count the chunks that match the filters."""

        def count(condition: models.Filter | None, client_side: bool) -> int:
            if client_side:
                return sum(matches(chunk, filters) for chunk in islice(self._scroll(None, 256), _MAX_SCANNED))
            counted = self._connection.read(
                lambda client: client.count(self._schema.collection, count_filter=condition, exact=True)
            )
            return int(counted.count)

        return self._filtered(filters, count)

    def scroll(self, filters: Filters = NO_FILTERS, batch: int = 256) -> Iterator[Chunk]:
        """Yield every chunk that matches the filters, once."""

        def scroll(condition: models.Filter | None, client_side: bool) -> Iterator[Chunk]:
            chunks = self._scroll(condition, batch)
            if client_side:
                return (chunk for chunk in chunks if matches(chunk, filters))
            return chain(list(islice(chunks, 1)), chunks)  # reads the first chunk now, to notice a refusal

        return self._filtered(filters, scroll)

    def vectors(self, ids: Sequence[str]) -> dict[str, Vector]:
        """Return the stored dense vectors of the chunks that exist."""
        # Other pipelines use numbers as ids, and the server does not accept them as strings.
        points: list[int | str] = [int(id) if id.isdecimal() else id for id in ids]
        wanted: bool | list[str] = [""] if self._schema.lexical else True
        records = self._connection.read(
            lambda client: client.retrieve(
                self._schema.collection, points, with_payload=False, with_vectors=wanted
            )
        )
        return {str(record.id): dense_vector(record.vector, self._schema.vector_name) for record in records}

    def modules(self) -> dict[str, int]:
        """Count the chunks of each module."""
        return self._facet(self._schema.dialect.module, lambda chunk: chunk.module_name)

    def pages(self) -> dict[str, int]:
        """Count the chunks of each page URL."""
        return self._facet("page_key", lambda chunk: chunk.page_url)

    def _facet(self, field: str, key: Callable[[Chunk], str]) -> dict[str, int]:
        """Count the chunks by a field of Recto's own payloads, or by a key of the first points of others."""
        if self._schema.own:
            answer = self._connection.read(
                lambda client: client.facet(
                    self._schema.collection, key=field, limit=_FACET_LIMIT, exact=True
                )
            )
            return dict(sorted((str(hit.value), int(hit.count)) for hit in answer.hits))
        return dict(sorted(Counter(map(key, islice(self._scroll(None, 256), _MAX_SCANNED))).items()))

    def _filtered(self, filters: Filters, search: Callable[[models.Filter | None, bool], Result]) -> Result:
        """Call `search` with the server's filter, or with `client_side=True` if the server cannot filter."""
        conditions = self._conditions(filters)
        if conditions is not None:
            try:
                return search(_to_filter(conditions), False)
            except IndexRequired as error:
                self._unindexed.add(error.field)
                self._warn(
                    f"The server has no payload index on '{error.field}', so only the first {_MAX_SCANNED} "
                    f"points are filtered. `recto prepare {self._info.collection}` creates it."
                )
        return search(None, True)

    def _conditions(self, filters: Filters) -> list[FieldFilter] | None:
        """Return the filters for the server, or None if it cannot filter."""
        dialect = self._schema.dialect
        modules = module_filter(dialect, filters, self._schema.known_modules)
        conditions = [modules, url_filter(dialect, filters)]
        if CLIENT_SIDE in conditions:
            self._warn(
                "This collection has no field to filter by, "
                f"so only the first {_MAX_SCANNED} points are searched."
            )
            return None
        found = [condition for condition in conditions if condition is not None]
        return None if self._unindexed & {condition.field for condition in found} else found

    def _warn(self, warning: str) -> None:
        if warning not in self._info.warnings:
            self._info = replace(self._info, warnings=(*self._info.warnings, warning))

    def _query(self, requests: Sequence[models.QueryRequest]) -> Sequence[Any]:
        if not requests:
            return []
        try:
            return self._connection.read(
                lambda client: client.query_batch_points(self._schema.collection, requests)
            )
        except SearchParamsRefused as error:
            return self._query(self._without_params(requests, error))

    async def _aquery(self, requests: Sequence[models.QueryRequest]) -> Sequence[Any]:
        if not requests:
            return []
        try:
            return await self._connection.aread(
                lambda client: client.query_batch_points(self._schema.collection, requests)
            )
        except SearchParamsRefused as error:
            return await self._aquery(self._without_params(requests, error))

    def _without_params(
        self, requests: Sequence[models.QueryRequest], error: SearchParamsRefused
    ) -> list[models.QueryRequest]:
        """Return the requests with the defaults of the server, which are used from now on."""
        if all(request.params is None for request in requests):
            raise error
        self._params_allowed = False
        self._warn(f"The server limits searches, so they may miss chunks ({error.message})")
        return [request.model_copy(update={"params": None}) for request in requests]

    def _search_params(self, dim: int) -> models.SearchParams | None:
        """Return the parameters of a dense search: exact in a small collection, else with a large `ef`."""
        from qdrant_client import models

        if not self._params_allowed:
            return None
        if self._info.chunks * dim < _EXACT_BELOW:
            return models.SearchParams(exact=True)
        return models.SearchParams(hnsw_ef=_HNSW_EF)

    def _request(
        self, vector: Vector, limit: int, condition: models.Filter | None, min_score: float | None = None
    ) -> models.QueryRequest:
        from qdrant_client import models

        return models.QueryRequest(
            query=vector,
            using=self._schema.vector_name,
            filter=condition,
            limit=limit,
            with_payload=True,
            score_threshold=min_score,
            params=self._search_params(len(vector)),
        )

    def _has_lexical_part(self, queries: Sequence[IndexQuery]) -> bool:
        """Return whether any query is lexical; raise `ConfigurationError` if there are no lexical vectors."""
        lexical = any(query.lexical is not None for query in queries)
        if lexical and not self._schema.lexical:
            raise no_lexical_vectors(self._info)
        return lexical

    def _candidate_requests(
        self,
        queries: Sequence[IndexQuery],
        limit: int,
        condition: models.Filter | None,
        client_side: bool,
    ) -> list[list[models.QueryRequest]]:
        """Return the requests of each query: dense, lexical, and each of them for what the other finds.

        Payloads are fetched only of points that will probably be shown, or for filtering on the client.
        """
        from qdrant_client import models

        batches = []
        for query in queries:
            most = _candidate_limit(query, limit, client_side)
            requests = []
            if query.dense is not None:
                requests.append(self._request(query.dense, most, condition))
            if query.lexical is not None and query.lexical.indices:
                terms = models.QueryRequest(
                    query=self._terms(query.lexical),
                    using=LEXICAL,
                    filter=condition,
                    limit=most,
                    with_payload=client_side or query.dense is None,
                )
                requests.append(terms)
                if query.dense is not None:
                    dense = requests[0]
                    requests.append(self._rescored(dense, terms, client_side))
                    requests.append(self._rescored(terms, dense, client_side))
            batches.append(requests)
        return batches

    def _rescored(
        self, request: models.QueryRequest, found_by: models.QueryRequest, with_payload: bool
    ) -> models.QueryRequest:
        """Return a request for the scores of the points that another request finds.

        Each shard scores its own candidates, so the limit must not cut off any of them.
        """
        from qdrant_client import models

        prefetch = models.Prefetch(
            query=found_by.query,
            using=found_by.using,
            filter=found_by.filter,
            limit=found_by.limit,
            params=found_by.params,
        )
        changes = {
            "prefetch": [prefetch],
            "filter": None,
            "limit": (found_by.limit or 0) * self._schema.shards,
            "with_payload": with_payload,
        }
        return request.model_copy(update=changes)

    def _terms(self, lexical: SparseVector) -> models.SparseVector:
        """Multiply the terms by their IDF over all shards, unless the server does it."""
        from qdrant_client import models

        values = list(lexical.values)
        if not self._schema.server_idf:
            values = [value * idf for value, idf in zip(values, lexical.idf, strict=True)]
        return models.SparseVector(indices=list(lexical.indices), values=values)

    def _candidates(
        self,
        queries: Sequence[IndexQuery],
        batches: Sequence[Sequence[Any]],
        answers: Sequence[Any],
        limit: int,
        filters: Filters,
    ) -> list[Candidates]:
        rest = iter(answers)
        found = []
        for query, batch in zip(queries, batches, strict=True):
            scores = [self._scores(next(rest).points, filters) for _ in batch]
            if query.dense is None:
                found.append(Candidates(lexical=scores[0] if scores else {}))
            elif len(scores) == 1:
                found.append(Candidates(scores[0]))
            else:
                dense, lexical, cosines, terms = scores
                lexical = without_last_tie(lexical, candidate_limit(limit))
                # Shards return the candidates of each shard: keep those of the whole collection. The keys
                # of `dense` come first, because they come with their chunks.
                dense |= {id: score for id, score in cosines.items() if id in lexical}
                found.append(Candidates(dense, {id: terms[id] for id in dense if id in terms} | lexical))
        return found

    def _scores(self, points: Sequence[Any], filters: Filters) -> dict[Hashable, float]:
        scores: dict[Hashable, float] = {}
        for point in points:
            chunk = self._chunk(point) if point.payload else None
            if not filters or (chunk is not None and matches(chunk, filters)):
                scores[_PointId(point.id, chunk)] = float(point.score)
        return scores

    def _by_id(self, records: Sequence[Any]) -> dict[Hashable, Chunk]:
        return {_PointId(record.id): self._chunk(record) for record in records}

    def _chunk(self, point: Any) -> Chunk:
        return self._schema.dialect.read(str(point.id), point.payload or {})

    def _scroll(self, condition: models.Filter | None, batch: int) -> Iterator[Chunk]:
        offset: Any = None
        while True:
            records, offset = self._scroll_page(condition, batch, offset)
            yield from map(self._chunk, records)
            if offset is None:
                return

    def _scroll_page(self, condition: models.Filter | None, batch: int, offset: Any) -> tuple[list[Any], Any]:
        return self._connection.read(
            lambda client: client.scroll(
                self._schema.collection,
                scroll_filter=condition,
                limit=batch,
                offset=offset,
                with_payload=True,
            )
        )

    def _hits(self, points: Sequence[Any], filters: Filters) -> list[Hit]:
        hits = [Hit(score := float(point.score), self._chunk(point), score) for point in points]
        hits = [hit for hit in hits if not filters or matches(hit.chunk, filters)]
        hits.sort(key=hit_order)
        return hits if self._schema.own else deduplicate(hits)


def _candidate_limit(query: IndexQuery, limit: int, client_side: bool) -> int:
    if client_side:
        return _MAX_SCANNED
    return candidate_limit(limit) if query.is_hybrid else limit


def _to_filter(conditions: Sequence[FieldFilter]) -> models.Filter | None:
    """Return the server's filter; a condition compares either strings or numbers."""
    if not conditions:
        return None
    from qdrant_client import models

    def any_of(field: str, values: Sequence[Stored]) -> models.Filter:
        words = [value for value in values if isinstance(value, str)]
        numbers = [value for value in values if isinstance(value, int)]
        either = [models.MatchAny(any=words)] if words or not numbers else []
        either += [models.MatchAny(any=numbers)] if numbers else []
        return models.Filter(should=[models.FieldCondition(key=field, match=match) for match in either])

    return models.Filter(must=[any_of(condition.field, condition.values) for condition in conditions])


def _from_hits(hits: Sequence[Hit]) -> Candidates:
    return Candidates({_PointId(hit.chunk.id, hit.chunk): hit.score for hit in hits})


def _known_chunks(ids: Iterable[Hashable]) -> tuple[dict[Hashable, Chunk], list[int | str]]:
    """Return the chunks that came with the ids, and the points that must be read."""
    found: dict[Hashable, Chunk] = {}
    missing: list[int | str] = []
    for id in ids:
        if not isinstance(id, _PointId):
            raise TypeError(f"{id!r} is not an id that `candidates` returned")
        if id.chunk is not None:
            found[id] = id.chunk
        else:
            missing.append(id.point)
    return found, missing
