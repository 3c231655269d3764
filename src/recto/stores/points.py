"""What all stores share: chunks as points with a payload, and the candidates of hybrid search."""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any

from recto._util.text import page_key
from recto.errors import ConfigurationError, EmbeddingError, InvalidArgument
from recto.types import Candidates, Chunk, IndexInfo, IndexQuery, Payload, Vector

LEXICAL = "lexical"
"""The name of the sparse vector; the dense vector has no name."""
KEYWORD_FIELDS = ("module_name", "module_keys", "page_key", "book")
INTEGER_FIELDS = ("chunk_index",)
"""The fields with a payload index on a server: for filters, facets and reading in order."""

_FIELDS = tuple(field.name for field in fields(Chunk) if field.name != "id")
_REQUIRED = frozenset(field.name for field in fields(Chunk) if field.default is MISSING)
_PACKED = "chunk"
_TUPLES = ("module_keys", "headings", "anchors")
_DENSE, _LEXICAL, _RESCORED = 20, 50, 20
"""How many candidates a hybrid query fetches at least; more cost more than they find (decision 11)."""

Scores = dict[Hashable, float]


def to_payload(chunk: Chunk) -> Payload:
    """Return the payload of a chunk: all fields but the id, and the normalised page URL for filters."""
    payload = {name: getattr(chunk, name) for name in _FIELDS}
    payload.update((name, list(payload[name])) for name in _TUPLES)
    return payload | {"page_key": page_key(chunk.page_url)}


def to_packed_payload(chunk: Chunk) -> Payload:
    """Return the payload of the embedded engine: the fields of filters, and the chunk as one JSON text.

    The engine takes a value of Python at a time, so one text costs a quarter of twenty values.
    """
    payload = to_payload(chunk)
    packed = {name: payload[name] for name in ("module_name", "module_keys", "page_key")}
    return packed | {_PACKED: json.dumps(payload, ensure_ascii=False, separators=(",", ":"))}


def from_payload(id: str, payload: Payload) -> Chunk:
    """Read a payload; fields that an older version did not write keep their defaults."""
    if _PACKED in payload:
        payload = json.loads(payload[_PACKED])
    values = {name: payload[name] for name in _FIELDS if name in payload or name in _REQUIRED}
    for name in _TUPLES:
        if name in values:
            values[name] = tuple(values[name])
    return Chunk(id, **values)


def check_vectors(chunks: Sequence[Chunk], vectors: Sequence[Vector], dim: int) -> None:
    """Raise `EmbeddingError` unless all vectors are `dim` finite numbers; engines do not check that."""
    for chunk, vector in zip(chunks, vectors, strict=True):
        if len(vector) != dim or not all(map(math.isfinite, vector)):
            raise EmbeddingError(
                f"The vector of {chunk.page_url} (chunk {chunk.chunk_index}) is not {dim} finite numbers",
                hint="Check the embedding model; nothing was published.",
            )


def dense_vector(stored: Any, name: str | None = None) -> Vector:
    """Return the dense vector of a point, which has a name if there are several."""
    if isinstance(stored, dict):
        stored = stored.get(name or "", [])
    return [float(number) for number in stored or []]


@dataclass(frozen=True, slots=True)
class CandidateLimits:
    """How many points a query fetches: by cosine, by BM25, and how many of the latter get a cosine."""

    dense: int
    lexical: int
    rescored: int


def candidate_limits(limit: int, *, hybrid: bool) -> CandidateLimits:
    """Return how many candidates are needed to rank the best `limit`."""
    if not hybrid:
        return CandidateLimits(limit, limit, 0)
    return CandidateLimits(max(_DENSE, limit), max(_LEXICAL, 2 * limit), max(_RESCORED, limit))


def merge_candidates(query: IndexQuery, found: Sequence[Scores], limits: CandidateLimits) -> Candidates:
    """Merge the scores of one query: dense, lexical, and the cosines of the best lexical ones.

    Engines order ties differently. Where a limit cuts through a tie, all of it is dropped, so that every
    store returns the same candidates.
    """
    if query.dense is None:
        return Candidates(lexical=found[0] if found else {})
    if len(found) == 1:
        return Candidates(found[0])
    dense, lexical, rescored = found
    scores = list(lexical.values())  # best first
    if len(scores) > limits.rescored:
        least = scores[limits.rescored]
        rescored = {id: score for id, score in rescored.items() if lexical.get(id, least) > least}
    if len(scores) >= limits.lexical and scores[-1] < scores[0]:
        lexical = {id: score for id, score in lexical.items() if score > scores[-1]}
    # The keys of `dense` win: on a server, they come with their chunks.
    return Candidates(dense | rescored, lexical)


def no_lexical_vectors(info: IndexInfo) -> ConfigurationError:
    """Return the error for a lexical query of an index without lexical vectors."""
    return ConfigurationError(
        f"Collection '{info.collection}' has no lexical vectors, so it can only be searched in dense mode",
        hint="Index the book again with `recto index PATH --collection NAME`, or use the dense mode.",
    )


def is_alias(name: str, collection: str) -> InvalidArgument:
    """Return the error for deleting a collection by one of its aliases."""
    return InvalidArgument(
        f"'{name}' is another name of the collection '{collection}'", hint=f"Run `recto delete {collection}`."
    )
