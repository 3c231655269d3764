"""An embedder that notes what it was asked to embed; the work itself is done by the real one."""

from __future__ import annotations

from collections.abc import Sequence

from recto.protocols import Embedder, Progress
from recto.types.search import Vector
from tests.shared_embedder import ForwardingEmbedder


class Counting(ForwardingEmbedder):
    def __init__(self, embedder: Embedder) -> None:
        super().__init__(embedder)
        self.embedded: list[str] = []
        self.calls = 0

    def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> list[Vector]:
        vectors = super().embed_documents(texts, progress)
        self.calls += 1
        self.embedded += texts
        return vectors


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
