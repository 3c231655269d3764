"""An embedder that notes what it was asked to embed; the work itself is done by the real one."""

from __future__ import annotations

from collections.abc import Sequence

from recto.protocols import Embedder, Progress
from recto.types import EmbedderFingerprint, Vector


class Counting:
    """Passes everything on."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self.embedded: list[str] = []
        self.calls = 0

    @property
    def fingerprint(self) -> EmbedderFingerprint:
        return self._embedder.fingerprint

    @property
    def dim(self) -> int:
        return self._embedder.dim

    @property
    def max_tokens(self) -> int:
        return self._embedder.max_tokens

    def warm_up(self) -> None:
        self._embedder.warm_up()

    def count_tokens(self, text: str) -> int:
        return self._embedder.count_tokens(text)

    def embed_query(self, text: str) -> Vector:
        return self._embedder.embed_query(text)

    def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        return self._embedder.embed_queries(texts)

    def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> list[Vector]:
        vectors = self._embedder.embed_documents(texts, progress)
        self.calls += 1
        self.embedded += texts
        return vectors

    def close(self) -> None:
        self._embedder.close()


class CountingQueries(Counting):
    """Notes how many queries each call to the model had."""

    def __init__(self, embedder: Embedder) -> None:
        super().__init__(embedder)
        self.passes: list[int] = []

    def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        self.passes.append(len(texts))
        return super().embed_queries(texts)

    def embed_query(self, text: str) -> Vector:
        raise AssertionError("queries are embedded in batches")
