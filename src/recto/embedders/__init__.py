"""Embedders turn text into vectors: local models, Cohere, or a server with OpenAI's API."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import hypot, isfinite

from recto.errors import EmbeddingError
from recto.types.search import Vector

_UNIT_TOLERANCE = 1e-6  # rounding error of a length in single precision


def check_lengths(texts: Sequence[str], lengths: Iterable[int], max_tokens: int) -> None:
    """Raise an error if a document has more tokens than the model reads."""
    for text, tokens in zip(texts, lengths, strict=True):
        if tokens > max_tokens:
            raise EmbeddingError(
                f"A text of {tokens} tokens is longer than the {max_tokens} tokens of the model: "
                f"{text[:60]!r} …",
                hint="Split the text. `recto index` does this automatically.",
            )


def normalize_vectors(vectors: Sequence[Sequence[float]], count: int, dim: int) -> list[Vector]:
    """Return the vectors with a length of 1; raise unless there are `count` of `dim` finite numbers."""
    if len(vectors) != count or any(len(vector) != dim for vector in vectors):
        dims = sorted({len(vector) for vector in vectors})
        raise EmbeddingError(
            f"The embedder returned {len(vectors)} vectors of {dims} numbers, expected {count} of {dim}",
            hint="The model does not fit its description. Check RECTO_MODEL.",
        )
    return [_normalize(vector) for vector in vectors]


def _normalize(vector: Sequence[float]) -> Vector:
    length = hypot(*vector)
    if not isfinite(length) or length == 0:
        raise EmbeddingError(
            "The embedder returned a vector that is zero or not finite",
            hint="The model is damaged. Check RECTO_MODEL.",
        )
    return list(vector) if abs(length - 1) < _UNIT_TOLERANCE else [number / length for number in vector]
