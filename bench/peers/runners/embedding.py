"""The embedding model that all systems share: Recto's own, or its cached vectors, with its time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from recto.protocols import Embedder

Vector = list[float]
_T = TypeVar("_T")


@dataclass(slots=True)
class Embedding:
    """Embeds documents and queries, and sums up the time."""

    embed_documents: Callable[[Sequence[str]], list[Vector]]
    question: Callable[[str], Vector]
    dim: int = 384
    wall: float = 0.0
    embedder: Embedder | None = field(default=None, repr=False)

    def documents(self, texts: Sequence[str]) -> list[Vector]:
        """Embed documents."""
        return self._timed(lambda: self.embed_documents(texts))

    def query(self, text: str) -> Vector:
        """Embed a query."""
        return self._timed(lambda: self.question(text))

    def _timed(self, work: Callable[[], _T]) -> _T:
        began = perf_counter()
        result = work()
        self.wall += perf_counter() - began
        return result


def model(home: Path, threads: int, *, once: bool = False) -> Embedding:
    """Return Recto's local embedder; RECTO_MODEL and RECTO_PRECISION choose another model or precision."""
    from recto.api import open_embedder
    from recto.settings import load_settings

    settings = replace(load_settings(), embedder="local", store="edge", home=home, threads=threads)
    embedder = open_embedder(settings, lambda _: None, single_query=once)
    return Embedding(_cutting(embedder), embedder.embed_query, embedder=embedder)


def cached(cache: Path, home: Path, threads: int) -> Embedding:
    """Return the model with a cache on disk, for what is not timed."""
    from bench.vectors import VectorCache

    direct = model(home, threads)
    assert direct.embedder is not None
    vectors = VectorCache(cache, str(direct.embedder.fingerprint))

    def question(text: str) -> Vector:
        return vectors.embed([text], lambda _: [direct.question(text)], query=True)[0]

    return Embedding(
        lambda texts: vectors.embed(texts, direct.embed_documents, query=False),
        question,
        embedder=direct.embedder,
    )


def chosen(how: str, folder: str, home: str, threads: int) -> Embedding:
    """Return the embedding that a command names."""
    if how == "model":
        return model(Path(home), threads)
    return cached(Path(folder), Path(home), threads)


def _cutting(embedder: Embedder) -> Callable[[Sequence[str]], list[Vector]]:
    """Embed documents; cut those that are too long for the model like queries, as other systems do."""
    from recto.errors import EmbeddingError

    def embed_documents(texts: Sequence[str]) -> list[Vector]:
        try:
            return embedder.embed_documents(texts)
        except EmbeddingError:
            if len(texts) == 1:
                return embedder.embed_queries(texts)
            return [embed_documents([text])[0] for text in texts]

    return embed_documents


def as_array(vectors: Any) -> Any:
    """Return vectors as a float32 array."""
    import numpy as np

    return np.asarray(vectors, np.float32)
