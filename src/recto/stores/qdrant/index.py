"""One collection on a server, read as it is: Recto's own, or one that another pipeline wrote."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from recto.stores.candidates import LEXICAL, Limits, join, limits_for, no_lexical_vectors
from recto.stores.qdrant.build import decode_lexicon, dense_vector
from recto.stores.qdrant.connection import Connection, IndexRequired
from recto.stores.qdrant.dialects import Dialect
from recto.stores.qdrant.filters import (
    CLIENT_SIDE,
    FieldFilter,
    Stored,
    deduplicate,
    matches,
    module_candidates,
    url_candidates,
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
    Vector,
)

if TYPE_CHECKING:
    from qdrant_client import QdrantClient, models

Result = TypeVar("Result")

_SCAN = 1000  # points that are looked at where the server cannot filter
_FACET_LIMIT = 10_000
REPAIR = "Index the book again with `recto index PATH --collection NAME`."


@dataclass(frozen=True, slots=True)
class CollectionSchema:
    """What must be known of a collection to search it."""

    collection: str
    vector_name: str | None
    dialect: Dialect
    own: bool
    known_modules: Mapping[str, tuple[Stored, ...]]
    lexical: bool = False
    shards: int = 1


@dataclass(frozen=True, slots=True)
class _PointId:
    """A point's id, with the chunk if the search already returned it; the collection may change before the next one."""

    point: int | str
    chunk: Chunk | None = field(default=None, compare=False, repr=False)


class ServerIndex:
    """Asks the server; where it cannot filter by a field, a bounded number of points is filtered here, with a warning."""

    def __init__(
        self, connection: Connection, shape: CollectionSchema, info: IndexInfo, lexicon: str = ""
    ) -> None:
        self._connection = connection
        self._shape = shape
        self._info = info
        self._encoded_lexicon = lexicon
        self._lexicon: bytes | None = None
        self._here: set[str] = set()

    @property
    def info(self) -> IndexInfo:
        """What this index is, with a warning for every filter that the server could not apply."""
        return self._info

    @property
    def shape(self) -> CollectionSchema:
        """How the collection is read."""
        return self._shape

    @property
    def payload_schema(self) -> PayloadSchema:
        """How the payloads are read."""
        dialect = self._shape.dialect
        missing = tuple(name for name in ("text", "page_url") if not dialect.path(name))
        return PayloadSchema(dialect.name, self._shape.own, missing, dialect.describe())

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
        """Answer several queries in one call of the server."""
        if not vectors:
            return []

        def ask(condition: models.Filter | None, *, all_here: bool) -> list[list[Hit]]:
            wanted = _SCAN if all_here else limit
            while True:
                found, complete = self._nearest(vectors, wanted, condition, min_score, filters)
                # Copies of a chunk take places; where they left too few, more are asked for.
                if complete or wanted >= _SCAN or all(len(hits) >= limit for hits in found):
                    return [hits[:limit] for hits in found]
                wanted = min(_SCAN, 4 * wanted)

        return self._filtered(filters, ask)

    async def aquery_batch(
        self,
        vectors: Sequence[Vector],
        limit: int,
        filters: Filters = NO_FILTERS,
        min_score: float | None = None,
    ) -> list[list[Hit]]:
        """Answer several queries without holding up the event loop; what the server cannot do in one call goes the other way."""
        conditions = self._conditions(filters)
        if vectors and conditions is not None and self._shape.own:
            requests = [self._request(vector, limit, _condition(conditions), min_score) for vector in vectors]
            answers = await self._connection.aread(
                lambda client: client.query_batch_points(self._shape.collection, requests)
            )
            return [self._hits(answer.points, filters) for answer in answers]
        from asyncio import to_thread

        return await to_thread(self.query_batch, vectors, limit, filters, min_score)

    def candidates(
        self, queries: Sequence[IndexQuery], limit: int, filters: Filters = NO_FILTERS
    ) -> list[Candidates]:
        """Return the scores of the chunks that may be among the best `limit` of each query, in one call of the server."""
        if not self._has_lexical_part(queries):
            found = iter(
                self.query_batch(
                    [query.dense for query in queries if query.dense is not None], limit, filters
                )
            )
            return [_from_hits(next(found)) if query.dense is not None else Candidates() for query in queries]

        def ask(condition: models.Filter | None, *, all_here: bool) -> list[Candidates]:
            requests = [
                self._candidate_requests(query, limit, condition, all_here=all_here) for query in queries
            ]
            every = [request for each in requests for request in each]
            answers = (
                self._read(lambda client: client.query_batch_points(self._shape.collection, every))
                if every
                else []
            )
            return self._candidates(queries, requests, answers, filters if all_here else NO_FILTERS)

        return self._filtered(filters, ask)

    async def acandidates(
        self, queries: Sequence[IndexQuery], limit: int, filters: Filters = NO_FILTERS
    ) -> list[Candidates]:
        """Return the candidates without holding up the event loop; what the server cannot do in one call goes the other way."""
        conditions = self._conditions(filters)
        if conditions is not None and self._has_lexical_part(queries):
            requests = [
                self._candidate_requests(query, limit, _condition(conditions), all_here=False)
                for query in queries
            ]
            every = [request for each in requests for request in each]
            with suppress(IndexRequired):
                read = self._connection.aread
                answers = (
                    await read(lambda client: client.query_batch_points(self._shape.collection, every))
                    if every
                    else []
                )
                return self._candidates(queries, requests, answers, NO_FILTERS)
        from asyncio import to_thread

        return await to_thread(self.candidates, queries, limit, filters)

    def chunks(self, ids: Iterable[Hashable]) -> dict[Hashable, Chunk]:
        """Return chunks by the ids that `candidates` gave; those that were deleted since are left out."""
        found, missing = _known_chunks(ids)
        records = (
            self._read(lambda client: client.retrieve(self._shape.collection, missing, with_payload=True))
            if missing
            else []
        )
        return {**found, **self._by_id(records)}

    async def achunks(self, ids: Iterable[Hashable]) -> dict[Hashable, Chunk]:
        """Return chunks by the ids that `acandidates` gave."""
        found, missing = _known_chunks(ids)
        if missing:
            read = self._connection.aread(
                lambda client: client.retrieve(self._shape.collection, missing, with_payload=True)
            )
            found.update(self._by_id(await read))
        return found

    def lexicon(self) -> bytes:
        """Return the vocabulary that was published with the collection, or nothing if there is none."""
        if self._lexicon is None:
            try:
                self._lexicon = (
                    decode_lexicon(self._encoded_lexicon)
                    if self._encoded_lexicon and self._shape.lexical
                    else b""
                )
            except ValueError:
                self._lexicon = b""
                self._warn(
                    f"The vocabulary of collection '{self._info.collection}' is damaged, so it is searched in dense mode. {REPAIR}"
                )
            self._encoded_lexicon = ""
        return self._lexicon

    def _nearest(
        self,
        vectors: Sequence[Vector],
        wanted: int,
        condition: models.Filter | None,
        min_score: float | None,
        filters: Filters,
    ) -> tuple[list[list[Hit]], bool]:
        """Return the hits that remain, and whether there are no more points than were looked at."""
        requests = [self._request(vector, wanted, condition, min_score) for vector in vectors]
        answers = self._read(lambda client: client.query_batch_points(self._shape.collection, requests))
        return [self._hits(answer.points, filters) for answer in answers], all(
            len(answer.points) < wanted for answer in answers
        )

    def count(self, filters: Filters = NO_FILTERS) -> int:
        """Count the chunks that a filter lets through."""

        def ask(condition: models.Filter | None, *, all_here: bool) -> int:
            if all_here:
                return sum(1 for chunk in islice(self._scroll(None, 256), _SCAN) if matches(chunk, filters))
            counted = self._read(
                lambda client: client.count(self._shape.collection, count_filter=condition, exact=True)
            )
            return int(counted.count)

        return self._filtered(filters, ask)

    def scroll(self, filters: Filters = NO_FILTERS, batch: int = 256) -> Iterator[Chunk]:
        """Yield every chunk that a filter lets through, once."""

        def ask(condition: models.Filter | None, *, all_here: bool) -> Iterator[Chunk]:
            chunks = self._scroll(condition, batch)
            if all_here:
                return (chunk for chunk in chunks if matches(chunk, filters))
            first = list(islice(chunks, 1))  # so that a refusal is noticed here
            return _chained(first, chunks)

        return self._filtered(filters, ask)

    def vectors(self, ids: Sequence[str]) -> dict[str, Vector]:
        """Return the stored vectors of the chunks that exist."""
        collection = self._shape.collection
        # Other pipelines number their points; the server takes a number only as one.
        points: list[int | str] = [int(id) if id.isdecimal() else id for id in ids]
        wanted: bool | list[str] = [""] if self._shape.lexical else True
        records = self._read(
            lambda client: client.retrieve(collection, points, with_payload=False, with_vectors=wanted)
        )
        return {str(record.id): dense_vector(record.vector, self._shape.vector_name) for record in records}

    def modules(self) -> dict[str, int]:
        """Count the chunks of each module."""
        return self._facet(
            self._shape.dialect.module if self._shape.own else "", lambda chunk: chunk.module_name
        )

    def pages(self) -> dict[str, int]:
        """Count the chunks of each page address."""
        return self._facet("page_key" if self._shape.own else "", lambda chunk: chunk.page_url)

    def _facet(self, field: str, key: Callable[[Chunk], str]) -> dict[str, int]:
        if field:
            answer = self._read(
                lambda client: client.facet(self._shape.collection, key=field, limit=_FACET_LIMIT, exact=True)
            )
            return dict(sorted((str(hit.value), int(hit.count)) for hit in answer.hits))
        counts: dict[str, int] = {}
        for chunk in islice(self._scroll(None, 256), _SCAN):
            counts[key(chunk)] = counts.get(key(chunk), 0) + 1
        return dict(sorted(counts.items()))

    def _filtered(self, filters: Filters, ask: Callable[..., Result]) -> Result:
        """Let the server filter where it can, and filter here where it cannot."""
        conditions = self._conditions(filters)
        if conditions is not None:
            try:
                return ask(_condition(conditions), all_here=False)
            except IndexRequired as error:
                self._here.add(error.field)
                self._warn(
                    f"The server has no payload index on '{error.field}', so only the first {_SCAN} points are filtered. "
                    f"`recto prepare {self._info.collection}` creates it."
                )
        return ask(None, all_here=True)

    def _conditions(self, filters: Filters) -> list[FieldFilter] | None:
        """Return what the server can be asked for, or None if it cannot."""
        candidates = (
            module_candidates(self._shape.dialect, filters, self._shape.known_modules),
            url_candidates(self._shape.dialect, filters),
        )
        if CLIENT_SIDE in candidates:
            self._warn(
                f"No field of this collection can be filtered by, so only the first {_SCAN} points are looked at."
            )
            return None
        conditions = [candidate for candidate in candidates if isinstance(candidate, FieldFilter)]
        return None if self._here & {condition.field for condition in conditions} else conditions

    def _warn(self, warning: str) -> None:
        if warning not in self._info.warnings:
            self._info = replace(self._info, warnings=(*self._info.warnings, warning))

    def _request(
        self, vector: Vector, limit: int, condition: models.Filter | None, min_score: float | None
    ) -> models.QueryRequest:
        from qdrant_client import models

        return models.QueryRequest(
            query=vector,
            using=self._shape.vector_name,
            filter=condition,
            limit=limit,
            with_payload=True,
            score_threshold=min_score,
        )

    def _has_lexical_part(self, queries: Sequence[IndexQuery]) -> bool:
        """Whether any of the queries is lexical; raises `ConfigurationError` if the collection cannot answer that."""
        lexical = any(query.lexical is not None for query in queries)
        if lexical and not self._shape.lexical:
            raise no_lexical_vectors(self._info)
        return lexical

    def _candidate_requests(
        self, query: IndexQuery, limit: int, condition: models.Filter | None, *, all_here: bool
    ) -> list[models.QueryRequest]:
        """Return the requests for one query: the dense leg, the lexical leg, and the cosines of what the latter finds.

        Payloads come only with points that are sure or likely to be shown, or if they are filtered here.
        """
        from qdrant_client import models

        dense, lexical = query.dense, query.lexical
        limits = limits_for(limit, hybrid=dense is not None and lexical is not None)
        if all_here:
            limits = Limits(_SCAN, _SCAN, _SCAN)
        requests = []
        if dense is not None:
            requests.append(self._request(dense, limits.dense, condition, None))
        if lexical is not None and lexical.indices:
            terms = models.SparseVector(indices=list(lexical.indices), values=list(lexical.values))
            with_payload = all_here or dense is None
            requests.append(
                models.QueryRequest(
                    query=terms,
                    using=LEXICAL,
                    filter=condition,
                    limit=limits.lexical,
                    with_payload=with_payload,
                )
            )
            if dense is not None:
                found = models.Prefetch(query=terms, using=LEXICAL, filter=condition, limit=limits.rescored)
                # Each shard looks for candidates of its own and scores them again: none of the best may be cut off.
                again = self._request(dense, limits.rescored * self._shape.shards, None, None)
                requests.append(again.model_copy(update={"prefetch": [found], "with_payload": all_here}))
        return requests

    def _candidates(
        self,
        queries: Sequence[IndexQuery],
        requests: Sequence[Sequence[Any]],
        answers: Sequence[Any],
        filters: Filters,
    ) -> list[Candidates]:
        """Gather what the legs of each query found."""
        rest = iter(answers)
        gathered = []
        for query, each in zip(queries, requests, strict=True):
            scores = [self._scores(next(rest).points, filters) for _ in each]
            if query.dense is not None and len(scores) > 1:
                limits = Limits(each[0].limit, each[1].limit, each[2].prefetch[0].limit)
                gathered.append(join(scores[0], scores[1], scores[2], limits))
            elif query.dense is not None:
                gathered.append(Candidates(scores[0]))
            else:
                gathered.append(Candidates(lexical=scores[0] if scores else {}))
        return gathered

    def _scores(self, points: Sequence[Any], filters: Filters) -> dict[Hashable, float]:
        scores: dict[Hashable, float] = {}
        for point in points:
            chunk = self._shape.dialect.read(str(point.id), point.payload) if point.payload else None
            if not filters or (chunk is not None and matches(chunk, filters)):
                scores[_PointId(point.id, chunk)] = float(point.score)
        return scores

    def _by_id(self, records: Sequence[Any]) -> dict[Hashable, Chunk]:
        return {
            _PointId(record.id): self._shape.dialect.read(str(record.id), record.payload or {})
            for record in records
        }

    def _scroll(self, condition: models.Filter | None, batch: int) -> Iterator[Chunk]:
        offset: Any = None
        while True:
            records, offset = self._page(condition, batch, offset)
            for record in records:
                yield self._shape.dialect.read(str(record.id), record.payload or {})
            if offset is None:
                return

    def _page(self, condition: models.Filter | None, batch: int, offset: Any) -> Any:
        collection = self._shape.collection
        return self._read(
            lambda client: client.scroll(
                collection, scroll_filter=condition, limit=batch, offset=offset, with_payload=True
            )
        )

    def _hits(self, points: Sequence[Any], filters: Filters) -> list[Hit]:
        read = self._shape.dialect.read
        hits = [
            Hit(score := float(point.score), read(str(point.id), point.payload or {}), score)
            for point in points
        ]
        hits = [hit for hit in hits if not filters or matches(hit.chunk, filters)]
        hits.sort(key=lambda hit: (-hit.score, hit.chunk.page_url, hit.chunk.chunk_index, hit.chunk.id))
        return hits if self._shape.own else deduplicate(hits)

    def _read(self, call: Callable[[QdrantClient], Any]) -> Any:
        return self._connection.read(call)


def _condition(conditions: Sequence[FieldFilter]) -> models.Filter | None:
    """Make the client's form of a filter; a condition compares one type at a time."""
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


def _chained(first: list[Chunk], rest: Iterator[Chunk]) -> Iterator[Chunk]:
    yield from first
    yield from rest


def _from_hits(hits: Sequence[Hit]) -> Candidates:
    return Candidates({_PointId(hit.chunk.id, hit.chunk): hit.score for hit in hits})


def _known_chunks(ids: Iterable[Hashable]) -> tuple[dict[Hashable, Chunk], list[int | str]]:
    """Return the chunks that came with the ids, and the points that must be read."""
    found: dict[Hashable, Chunk] = {}
    missing: list[int | str] = []
    for id in ids:
        if not isinstance(id, _PointId):
            raise TypeError(f"{id!r} is not an id that `candidates` gave")
        if id.chunk is not None:
            found[id] = id.chunk
        else:
            missing.append(id.point)
    return found, missing
