"""One collection on a server, read as it is: Recto's own, or one that another pipeline wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from recto.stores.dialect_filters import CLIENT_SIDE, FieldFilter, Stored, deduplicate, matches, module_candidates, url_candidates
from recto.stores.dialects import Dialect
from recto.stores.server.connection import Connection, IndexRequired
from recto.types import NO_FILTERS, Chunk, Filters, Hit, IndexInfo, Vector

if TYPE_CHECKING:
    from qdrant_client import QdrantClient, models

Result = TypeVar("Result")

_SCAN = 1000  # points that are looked at where the server cannot filter
_FACET_LIMIT = 10_000


@dataclass(frozen=True, slots=True)
class Shape:
    """What must be known of a collection to search it."""

    collection: str
    vector_name: str | None
    dialect: Dialect
    own: bool
    known_modules: Mapping[str, tuple[Stored, ...]]


class ServerIndex:
    """Asks the server; where it cannot filter by a field, a bounded number of points is filtered here, with a warning."""

    def __init__(self, connection: Connection, shape: Shape, info: IndexInfo) -> None:
        self._connection = connection
        self._shape = shape
        self._info = info
        self._here: set[str] = set()

    @property
    def info(self) -> IndexInfo:
        """What this index is, with a warning for every filter that the server could not apply."""
        return self._info

    @property
    def shape(self) -> Shape:
        """How the collection is read."""
        return self._shape

    def query(self, vector: Vector, limit: int, filters: Filters = NO_FILTERS, min_score: float | None = None) -> list[Hit]:
        """Return the nearest chunks, best first."""
        return self.query_batch([vector], limit, filters, min_score)[0]

    def query_batch(
        self, vectors: Sequence[Vector], limit: int, filters: Filters = NO_FILTERS, min_score: float | None = None
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
        self, vectors: Sequence[Vector], limit: int, filters: Filters = NO_FILTERS, min_score: float | None = None
    ) -> list[list[Hit]]:
        """Answer several queries without holding up the event loop; what the server cannot do in one call goes the other way."""
        conditions = self._conditions(filters)
        if vectors and conditions is not None and self._shape.own:
            requests = [self._request(vector, limit, _condition(conditions), min_score) for vector in vectors]
            answers = await self._connection.aread(lambda client: client.query_batch_points(self._shape.collection, requests))
            return [self._hits(answer.points, filters) for answer in answers]
        from asyncio import to_thread

        return await to_thread(self.query_batch, vectors, limit, filters, min_score)

    def _nearest(
        self, vectors: Sequence[Vector], wanted: int, condition: models.Filter | None, min_score: float | None, filters: Filters
    ) -> tuple[list[list[Hit]], bool]:
        """Return the hits that remain, and whether there are no more points than were looked at."""
        requests = [self._request(vector, wanted, condition, min_score) for vector in vectors]
        answers = self._read(lambda client: client.query_batch_points(self._shape.collection, requests))
        return [self._hits(answer.points, filters) for answer in answers], all(len(answer.points) < wanted for answer in answers)

    def count(self, filters: Filters = NO_FILTERS) -> int:
        """Count the chunks that a filter lets through."""

        def ask(condition: models.Filter | None, *, all_here: bool) -> int:
            if all_here:
                return sum(1 for chunk in islice(self._scroll(None, 256), _SCAN) if matches(chunk, filters))
            counted = self._read(lambda client: client.count(self._shape.collection, count_filter=condition, exact=True))
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
        records = self._read(lambda client: client.retrieve(collection, points, with_payload=False, with_vectors=True))
        return {str(record.id): self._vector(record.vector) for record in records}

    def modules(self) -> dict[str, int]:
        """Count the chunks of each module."""
        return self._facet(self._shape.dialect.module if self._shape.own else "", lambda chunk: chunk.module_name)

    def pages(self) -> dict[str, int]:
        """Count the chunks of each page address."""
        return self._facet("page_key" if self._shape.own else "", lambda chunk: chunk.page_url)

    def _facet(self, field: str, key: Callable[[Chunk], str]) -> dict[str, int]:
        if field:
            answer = self._read(lambda client: client.facet(self._shape.collection, key=field, limit=_FACET_LIMIT, exact=True))
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
            self._warn(f"No field of this collection can be filtered by, so only the first {_SCAN} points are looked at.")
            return None
        conditions = [candidate for candidate in candidates if isinstance(candidate, FieldFilter)]
        return None if self._here & {condition.field for condition in conditions} else conditions

    def _warn(self, warning: str) -> None:
        if warning not in self._info.warnings:
            self._info = replace(self._info, warnings=(*self._info.warnings, warning))

    def _request(self, vector: Vector, limit: int, condition: models.Filter | None, min_score: float | None) -> models.QueryRequest:
        from qdrant_client import models

        return models.QueryRequest(
            query=vector,
            using=self._shape.vector_name,
            filter=condition,
            limit=limit,
            with_payload=True,
            score_threshold=min_score,
        )

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
        return self._read(lambda client: client.scroll(collection, scroll_filter=condition, limit=batch, offset=offset, with_payload=True))

    def _hits(self, points: Sequence[Any], filters: Filters) -> list[Hit]:
        hits = [Hit(float(point.score), self._shape.dialect.read(str(point.id), point.payload or {})) for point in points]
        hits = [hit for hit in hits if not filters or matches(hit.chunk, filters)]
        hits.sort(key=lambda hit: (-hit.score, hit.chunk.page_url, hit.chunk.chunk_index, hit.chunk.id))
        return hits if self._shape.own else deduplicate(hits)

    def _vector(self, stored: Any) -> Vector:
        if isinstance(stored, dict):
            stored = stored.get(self._shape.vector_name or "", [])
        return [float(number) for number in stored or []]

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
