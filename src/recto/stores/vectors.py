"""What a store accepts: engines take wrong numbers in silence."""

from __future__ import annotations

import math
from collections.abc import Sequence

from recto.errors import EmbeddingError
from recto.types import Chunk, Vector


def check_vectors(chunks: Sequence[Chunk], vectors: Sequence[Vector], dim: int) -> None:
    """Refuse a batch in which any vector does not have the dimension or is not finite."""
    for chunk, vector in zip(chunks, vectors, strict=True):
        if len(vector) != dim or not all(map(math.isfinite, vector)):
            raise EmbeddingError(
                f"The vector of {chunk.page_url} (chunk {chunk.chunk_index}) is not {dim} finite numbers",
                hint="Check the embedding model; nothing was published.",
            )
