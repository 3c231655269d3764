"""An embedder that hashes words into a vector. Replace the hashing with your model."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence

from recto import Settings
from recto.errors import EmbeddingError
from recto.plugins import Notify
from recto.protocols import Progress
from recto.types.index import EmbedderFingerprint
from recto.types.search import Vector


class HashEmbedder:
    """Counts the words of a text by their hashes."""

    dim = 256
    max_tokens = 512
    fingerprint = EmbedderFingerprint("demo-hash", revision="1", dim=256)

    def warm_up(self) -> None:
        """Load the model, if there is one."""

    def count_tokens(self, text: str) -> int:
        """Count the words."""
        return len(text.split())

    def embed_query(self, text: str) -> Vector:
        """Embed one query; words beyond `max_tokens` are ignored."""
        vector = [0.0] * self.dim
        for word in text.lower().split()[: self.max_tokens] or [""]:
            vector[zlib.crc32(word.encode()) % self.dim] += 1.0
        length = math.hypot(*vector)
        return [value / length for value in vector]

    def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        """Embed several queries."""
        return [self.embed_query(text) for text in texts]

    def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> list[Vector]:
        """Embed chunks; a chunk that is too long is an error."""
        if any(self.count_tokens(text) > self.max_tokens for text in texts):
            raise EmbeddingError(f"A chunk has more than {self.max_tokens} words")
        if progress:
            progress(len(texts), len(texts))
        return self.embed_queries(texts)

    def close(self) -> None:
        """Close connections, if there are any."""


def open_embedder(settings: Settings, notify: Notify) -> HashEmbedder:
    """Return the embedder for `RECTO_EMBEDDER=demo-hash`."""
    return HashEmbedder()
