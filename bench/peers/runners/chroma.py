"""Chroma: a persistent client and a collection with an embedding function; no loader and no splitter."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.peers.runners.embedding import Embedding, as_array
from bench.peers.runners.protocol import main
from bench.peers.runners.system import COLLECTION, Found, Piece

_WRITTEN = 5000  # its limit per call


class Chroma:
    """The store with its own query call."""

    def load(self) -> None:
        """Import the client."""
        import chromadb

        self._chromadb = chromadb

    def index(self, pieces: Sequence[Piece], folder: Path, embedding: Embedding) -> None:
        """Add texts, which the collection embeds and stores."""
        collection = self._collection(folder, embedding)
        for start in range(0, len(pieces), _WRITTEN):
            batch = pieces[start : start + _WRITTEN]
            collection.add(
                ids=[piece.id for piece in batch],
                documents=[piece.text for piece in batch],
                metadatas=[
                    {"module": piece.module, "page_url": piece.page_url, "source": piece.source}
                    for piece in batch
                ],
            )

    def open(self, folder: Path, embedding: Embedding) -> None:
        """Open the collection."""
        self._opened = self._collection(folder, embedding)

    def ask(self, question: str, top: int, module: str | None) -> Any:
        """Query by text."""
        return self._opened.query(
            query_texts=[question], n_results=top, where=None if module is None else {"module": module}
        )

    def found(self, answer: Any) -> Found:
        """Return the ids of the documents."""
        return [
            (id, str(meta["source"]))
            for id, meta in zip(answer["ids"][0], answer["metadatas"][0], strict=True)
        ]

    def _collection(self, folder: Path, embedding: Embedding) -> Any:
        chromadb = self._chromadb

        class Given(chromadb.EmbeddingFunction[Any]):  # type: ignore[misc,name-defined]
            """The embedding model that all systems share."""

            def __init__(self) -> None:
                """Nothing to set up."""

            def __call__(self, input: Any) -> Any:
                """Embed documents."""
                return list(as_array(embedding.documents(list(input))))

            def embed_query(self, input: Any) -> Any:
                """Embed queries."""
                return [as_array(embedding.query(text)) for text in input]

        settings = chromadb.Settings(anonymized_telemetry=False)
        client = chromadb.PersistentClient(path=str(folder), settings=settings)
        return client.get_or_create_collection(
            COLLECTION, embedding_function=Given(), configuration={"hnsw": {"space": "cosine"}}
        )


if __name__ == "__main__":
    main(Chroma())
