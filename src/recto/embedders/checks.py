"""What every vector must be before it is searched with or stored."""

from __future__ import annotations

from typing import Any

from recto.errors import EmbeddingError
from recto.types import Vector


def checked(vectors: Any, count: int, dim: int) -> list[Vector]:
    """Return `count` normalised vectors of `dim` finite numbers, or raise."""
    import numpy as np

    array = np.asarray(vectors, dtype=np.float32)
    if array.shape != (count, dim):
        raise EmbeddingError(
            f"The embedder returned {array.shape} numbers where ({count}, {dim}) were expected",
            hint="The model does not fit its description; check RECTO_MODEL.",
        )
    norms = np.linalg.norm(array, axis=1, keepdims=True)
    if not np.isfinite(norms).all() or not (norms > 0).all():
        raise EmbeddingError("The embedder returned a vector that is zero or not finite", hint="The model is damaged; check RECTO_MODEL.")
    normalised: list[Vector] = (array / norms).tolist()
    return normalised
