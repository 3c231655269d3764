"""Stores for chunks and vectors; here, what they share: payloads, checks, errors about collections."""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import MISSING, fields
from typing import Any

from recto._util.text import filter_keys, nearest, page_key
from recto.errors import CollectionMissing, ConfigurationError, EmbeddingError, InvalidArgument
from recto.types.index import IndexInfo
from recto.types.search import Chunk, Filters, Payload, Vector

LEXICAL = "lexical"
"""The name of the sparse vector; the dense vector has no name."""
KEYWORD_FIELDS = ("module_name", "module_keys", "page_key", "book", "language", "version", "locales")
INTEGER_FIELDS = ("chunk_index",)
"""The fields with a payload index on a server: for filters, facets and reading in order."""

_KEYS = {field.name: field.name for field in fields(Chunk) if field.name != "id"}
_KEYS |= {"title": "page_title", "module": "module_name"}
"""The payload key of each attribute; two of them have the names that other pipelines use, too."""
_REQUIRED = frozenset(field.name for field in fields(Chunk) if field.default is MISSING)
_PACKED = "chunk"
_TUPLES = ("module_keys", "headings", "anchors", "locales", "questions")
_LEFT_OUT_IF_EMPTY = ("locales", "questions")  # most books have neither
_PACKED_FIELDS = ("module_name", "module_keys", "page_key", "language", "version", "locales")
_MORE_CANDIDATES = 24
"""How many candidates a hybrid query fetches beyond its limit, so that the first hits do not depend on it."""

Scores = dict[Hashable, float]


def to_payload(chunk: Chunk) -> Payload:
    """Return the payload of a chunk: all fields but the id, and the normalised page URL for filters."""
    payload = {key: getattr(chunk, name) for name, key in _KEYS.items()}
    payload.update((name, list(payload[name])) for name in _TUPLES)
    for name in _LEFT_OUT_IF_EMPTY:
        if not payload[name]:
            del payload[name]
    return payload | {"page_key": page_key(chunk.page_url)}


def to_packed_payload(chunk: Chunk) -> Payload:
    """Return the payload of the embedded engine: the fields of filters, and the chunk as one JSON text.

    The engine takes a value of Python at a time, so one text costs a quarter of twenty values.
    """
    payload = to_payload(chunk)
    packed = {name: payload[name] for name in _PACKED_FIELDS if name in payload}
    return packed | {_PACKED: json.dumps(payload, ensure_ascii=False, separators=(",", ":"))}


def from_payload(id: str, payload: Payload) -> Chunk:
    """Read a payload; optional fields that it does not have keep their defaults."""
    if _PACKED in payload:
        payload = json.loads(payload[_PACKED])
    values = {name: payload[key] for name, key in _KEYS.items() if key in payload or name in _REQUIRED}
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


def filter_values(filters: Filters) -> dict[str, list[str]]:
    """Return the values that each field of Recto's own payloads may have; a chunk must match all fields."""
    values = {
        "module_keys": filter_keys(filters.modules),
        "page_key": [] if filters.page_url is None else [page_key(filters.page_url)],
        "language": [] if filters.language is None else [filters.language],
        "version": list(filters.versions),
        "locales": list(filters.locales),
    }
    return {field: allowed for field, allowed in values.items() if allowed}


def candidate_limit(limit: int) -> int:
    """Return how many chunks a hybrid query takes from each ranking, dense and lexical.

    Chunks of both rankings get both scores. With these candidates, the first hits have the order of scoring
    all chunks for more than 99.5 % of readers' questions, whatever the limit (decision 11).
    """
    return limit + _MORE_CANDIDATES


def without_last_tie(scores: Scores, limit: int) -> Scores:
    """Drop the chunks that share the last score if a limit may have cut through the tie.

    Engines order ties differently. Without them, every store has the same candidates.
    """
    least = min(scores.values(), default=0.0)
    if len(scores) < limit or least == max(scores.values()):
        return scores
    return {id: score for id, score in scores.items() if score > least}


def no_lexical_vectors(info: IndexInfo) -> ConfigurationError:
    """Return the error for a lexical query of an index without lexical vectors."""
    return ConfigurationError(
        f"Collection '{info.collection}' has no lexical vectors, so it can only be searched in dense mode",
        hint="Index the book again with `recto index PATH --collection NAME`, or use the dense mode.",
    )


def missing_collection(name: str, location: str, others: Iterable[str]) -> CollectionMissing:
    """Return the error for a name that is neither a collection nor an alias."""
    existing = sorted(set(others))
    near = nearest(name, existing)
    return CollectionMissing(
        f"Collection '{name}' does not exist{location}",
        hint=(f"Did you mean '{near}'? " if near else "")
        + f"Index a book with `recto index PATH --collection {name}`"
        + (f", or use one of: {', '.join(existing)}." if existing else "."),
    )


def choose_generation(
    collection: str, names: list[str], current: str, generation: str | None, hint: str
) -> str:
    """Return the generation that a rollback restores: the given one, or the next older one of `names`."""
    older = names[names.index(current) + 1 :] if current in names else names
    target = generation or next(iter(older), None)
    if target is None or target not in names:
        what = f"generation '{generation}'" if generation else "earlier generation to go back to"
        message = f"`recto collections {collection}` lists its generations. {hint}"
        raise CollectionMissing(f"Collection '{collection}' has no {what}", hint=message)
    return target


def is_alias(name: str, collection: str) -> InvalidArgument:
    """Return the error for deleting a collection by one of its aliases."""
    return InvalidArgument(
        f"'{name}' is another name of the collection '{collection}'", hint=f"Run `recto delete {collection}`."
    )
