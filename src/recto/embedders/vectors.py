"""What every vector must be before it is searched with or stored."""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot, isfinite

from recto.errors import EmbeddingError
from recto.types import Vector

_ROUNDING = 1e-6  # of a length in single precision


def checked(vectors: Sequence[Sequence[float]], count: int, dim: int) -> list[Vector]:
    """Return `count` normalised vectors of `dim` finite numbers, or raise."""
    if len(vectors) != count or any(len(vector) != dim for vector in vectors):
        found = sorted({len(vector) for vector in vectors})
        raise EmbeddingError(
            f"The embedder returned {len(vectors)} vectors of {found} numbers where {count} of {dim} were expected",
            hint="The model does not fit its description; check RECTO_MODEL.",
        )
    return [_normalised(vector) for vector in vectors]


def _normalised(vector: Sequence[float]) -> Vector:
    length = hypot(*vector)
    if not isfinite(length) or length == 0:
        raise EmbeddingError(
            "The embedder returned a vector that is zero or not finite",
            hint="The model is damaged; check RECTO_MODEL.",
        )
    return list(vector) if abs(length - 1) < _ROUNDING else [number / length for number in vector]
