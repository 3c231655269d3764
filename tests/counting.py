"""An embedder that notes what it was asked to embed; the work itself is done by the real one."""

from __future__ import annotations

from collections.abc import Sequence

from recto.protocols import Embedder, Progress
from recto.types import Vector
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
