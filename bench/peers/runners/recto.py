"""Recto: its store and retriever; files are indexed by `index_book`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.peers.runners.embedding import Embedding
from bench.peers.runners.protocol import main
from bench.peers.runners.system import COLLECTION, Found, Piece


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
        """Embed in the indexer's batches and publish; a batch is written while the next one is embedded."""
        from recto.indexing.indexer import _BATCH
        from recto.stores.edge import EdgeStore

        embedder = Counted(embedding)
        with EdgeStore(folder).build(COLLECTION, embedder.fingerprint, rebuild=True) as build:
            for start in range(0, len(pieces), _BATCH):
                batch = pieces[start : start + _BATCH]
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
            return self._retriever.search(question, top, mode="dense")
        from recto import Filters

        return self._retriever.search(question, top, Filters(modules=(module,)), mode="dense")

    def found(self, answer: Any) -> Found:
        """Return the ids of the chunks."""
        return [(hit.chunk.id, hit.chunk.source) for hit in answer.hits]

    def read(self, docs: Path, folder: Path, embedding: Embedding) -> int:
        """Index the directory as `recto index` does."""
        from recto.book.sources.tree import MarkdownTree
        from recto.indexing.indexer import IndexJob, index_book
        from recto.stores.edge import EdgeStore

        work: Any = IndexJob(MarkdownTree(docs), Counted(embedding))
        return index_book(work, EdgeStore(folder), COLLECTION, journal=folder / "journal").info.chunks

    def texts(self, answer: Any) -> list[str]:
        """Return the texts of the chunks."""
        return [hit.chunk.text for hit in answer.hits]

    def split(self, file: Path) -> list[str]:
        """Return the chunks of a page."""
        from recto.book.chunking import DEFAULT_SIZE, chunk_page
        from recto.book.parsing import read
        from recto.book.sources.tree import MarkdownTree
        from recto.embedders.granite.embedder import built_in_embedder

        embedder = built_in_embedder(file.parent / "home", 1)
        (page,) = MarkdownTree(file).pages()
        divided = chunk_page(
            page, read(page), COLLECTION, embedder.count_tokens, embedder.max_tokens, DEFAULT_SIZE
        )
        return [passage.chunk.text for passage in divided]


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
