"""The embedding model that all systems share: Recto's own, or precomputed vectors, with its time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from recto.protocols import Embedder

Vector = list[float]
_PROBES = frozenset({"dummy_text"})  # LangChain embeds this to find out the dimension
_T = TypeVar("_T")


@dataclass(slots=True)
class Embedding:
    """Embeds documents and queries, and sums up the time."""

    embed_documents: Callable[[Sequence[str]], list[Vector]]
    question: Callable[[str], Vector]
    dim: int = 384
    wall: float = 0.0
    cpu: float = 0.0
    embedder: Embedder | None = field(default=None, repr=False)

    def documents(self, texts: Sequence[str]) -> list[Vector]:
        """Embed documents."""
        return self._timed(lambda: self.embed_documents(texts))

    def query(self, text: str) -> Vector:
        """Embed a query."""
        return self._timed(lambda: self.question(text))

    def _timed(self, work: Callable[[], _T]) -> _T:
        wall, cpu = perf_counter(), process_time()
        result = work()
        self.wall += perf_counter() - wall
        self.cpu += process_time() - cpu
        return result


def model(home: Path, threads: int, *, once: bool = False) -> Embedding:
    """Return Recto's local embedder; RECTO_MODEL and RECTO_PRECISION choose another model or precision."""
    from recto.api import open_embedder
    from recto.settings import load_settings

    settings = replace(load_settings(), embedder="local", store="edge", home=home, threads=threads)
    embedder = open_embedder(settings, lambda _: None, single_query=once)
    return Embedding(_cutting(embedder), embedder.embed_query, embedder=embedder)


def precomputed(folder: Path, home: Path, threads: int) -> Embedding:
    """Return precomputed vectors; a text without one is an error."""
    import numpy as np

    vectors = np.load(folder / "vectors.npy", mmap_mode="r")
    names = (folder / "texts.txt").read_text("ascii").split()
    place = {name: row for row, name in enumerate(names)}

    def one(text: str) -> Vector:
        row: Vector = vectors[0 if text in _PROBES else place[key(text)]].tolist()
        return row

    return Embedding(lambda texts: [one(text) for text in texts], one, embedder=model(home, threads).embedder)


def cached(cache: Path, home: Path, threads: int) -> Embedding:
    """Return the model with a cache on disk, for measurements of quality only."""
    from bench.vectors import Vectors

    made = model(home, threads)
    vectors = Vectors(made.embedder, cache)  # type: ignore[arg-type]

    def embed_documents(texts: Sequence[str]) -> list[Vector]:
        found: dict[str, Any] = {}
        long = {text for text in texts if vectors.count(text) > vectors.max_tokens}
        # A document that is too long is cut, like a query.
        for part, embed in (
            ([*long], vectors.questions),
            ([text for text in texts if text not in long], vectors.documents),
        ):
            if part:
                found.update(zip(part, embed(part, "documents").tolist(), strict=True))
        return [found[text] for text in texts]

    def question(text: str) -> Vector:
        (row,) = vectors.questions([text], "question").tolist()
        return list(row)

    return Embedding(embed_documents, question, embedder=made.embedder)


def chosen(how: str, folder: str, home: str, threads: int) -> Embedding:
    """Return the embedding that a command names."""
    if how == "model":
        return model(Path(home), threads)
    return {"precomputed": precomputed, "cached": cached}[how](Path(folder), Path(home), threads)


def key(text: str) -> str:
    """Return the hash of a text."""
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def _cutting(embedder: Embedder) -> Callable[[Sequence[str]], list[Vector]]:
    """Embed documents; cut those that are too long for the model, as other systems do."""
    from recto.errors import EmbeddingError

    def embed_documents(texts: Sequence[str]) -> list[Vector]:
        try:
            return embedder.embed_documents(texts)
        except EmbeddingError:
            return embedder.embed_queries(texts)

    return embed_documents


def as_array(vectors: Any) -> Any:
    """Return vectors as a float32 array."""
    import numpy as np

    return np.asarray(vectors, np.float32)
