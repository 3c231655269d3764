"""Recto: its store and retriever. `bench.books` indexes files with `recto.index` itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.peers.runners.embedding import Embedding
from bench.peers.runners.protocol import main
from bench.peers.runners.system import COLLECTION, Found, Piece

_WRITTEN = 96  # chunks of a batch, as in the indexer


class Counted:
    """Recto's embedder with its time measured, as for the other systems."""

    def __init__(self, embedding: Embedding) -> None:
        self._embedding = embedding
        self._embedder: Any = embedding.embedder

    def __getattr__(self, name: str) -> Any:
        """Forward everything else to the embedder."""
        return getattr(self._embedder, name)

    def embed_query(self, text: str) -> list[float]:
        """Embed a query."""
        return self._embedding.query(text)

    def embed_queries(self, texts: Sequence[str]) -> list[list[float]]:
        """Embed queries."""
        return [self._embedding.query(text) for text in texts]

    def embed_documents(self, texts: Sequence[str], progress: Any = None) -> list[list[float]]:
        """Embed documents."""
        vectors = self._embedding.documents(texts)
        if progress:
            progress(len(texts), len(texts))
        return vectors


class Recto:
    """This project."""

    def load(self) -> None:
        """Import the retriever."""
        from recto import Retriever

        self._retriever_class = Retriever

    def index(self, pieces: Sequence[Piece], folder: Path, embedding: Embedding) -> None:
        """Embed in batches and publish; a batch is written while the next one is embedded."""
        from recto.stores.edge import EdgeStore

        embedder = Counted(embedding)
        with EdgeStore(folder).build(COLLECTION, embedder.fingerprint, rebuild=True) as build:
            for start in range(0, len(pieces), _WRITTEN):
                batch = pieces[start : start + _WRITTEN]
                build.add(
                    [_chunk(piece) for piece in batch],
                    embedder.embed_documents([piece.text for piece in batch]),
                )
            build.publish(_fingerprint(embedder))

    def open(self, folder: Path, embedding: Embedding) -> None:
        """Connect a retriever."""
        from recto.stores.edge import EdgeStore

        self._retriever = self._retriever_class(Counted(embedding), EdgeStore(folder), COLLECTION)
        self._retriever.open()

    def ask(self, question: str, top: int, module: str | None) -> Any:
        """Search."""
        if module is None:
            return self._retriever.search(question, top_k=top, mode="dense")
        return self._retriever.search(question, top_k=top, module=module, mode="dense")

    def found(self, answer: Any) -> Found:
        """Return the ids of the chunks."""
        return [(hit.chunk.id, hit.chunk.source) for hit in answer.hits]


def _chunk(piece: Piece) -> Any:
    from recto.types.search import Chunk

    lists = {name: tuple(value) for name, value in piece.chunk.items() if isinstance(value, list)}
    return Chunk(**{**piece.chunk, **lists})


def _fingerprint(embedder: Any) -> Any:
    from recto import __version__
    from recto.types.index import Fingerprint

    return Fingerprint(
        embedder.fingerprint, "given", COLLECTION, "given", "", 1, __version__, "2026-01-01T00:00:00+00:00"
    )


if __name__ == "__main__":
    main(Recto())
