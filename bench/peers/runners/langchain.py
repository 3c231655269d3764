"""LangChain: a retriever over one of several stores.

The store is in memory, alone or with BM25 (`hybrid`), or Qdrant in local mode (`qdrant`). Files are read as
by `TextLoader` and split by the recursive splitter with the sizes of LangChain's tutorial.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.peers.runners.embedding import Embedding
from bench.peers.runners.protocol import main
from bench.peers.runners.system import COLLECTION, Found, Piece, markdown_files, relative

_SIZE, _OVERLAP = 1000, 200


class LangChain:
    """The in-memory store."""

    def load(self) -> None:
        """Import the store."""
        from langchain_core.documents import Document
        from langchain_core.embeddings import Embeddings
        from langchain_core.vectorstores import InMemoryVectorStore

        class Given(Embeddings):  # type: ignore[misc]
            """The shared embedding model."""

            def __init__(self, embedding: Embedding) -> None:
                self._embedding = embedding

            def embed_documents(self, texts: list[str]) -> list[list[float]]:
                """Embed documents."""
                return self._embedding.documents(texts)

            def embed_query(self, text: str) -> list[float]:
                """Embed a query."""
                return self._embedding.query(text)

        self._document, self._given, self._memory = Document, Given, InMemoryVectorStore

    def index(self, pieces: Sequence[Piece], folder: Path, embedding: Embedding) -> None:
        """Add documents and write them to disk."""
        documents = [
            self._document(
                id=piece.id,
                page_content=piece.text,
                metadata={"module": piece.module, "page_url": piece.page_url, "source": piece.source},
            )
            for piece in pieces
        ]
        self._store(documents, folder, embedding)

    def open(self, folder: Path, embedding: Embedding) -> None:
        """Load the store from disk."""
        self._opened = self._memory.load(str(folder / "store.json"), self._given(embedding))

    def ask(self, question: str, top: int, module: str | None) -> Any:
        """Invoke a retriever."""
        how: dict[str, Any] = {"k": top}
        if module is not None:
            how["filter"] = lambda document: document.metadata["module"] == module
        return self._opened.as_retriever(search_kwargs=how).invoke(question)

    def found(self, answer: Any) -> Found:
        """Return the ids of the documents."""
        return [
            (str(document.id or document.metadata.get("_id")), document.metadata["source"])
            for document in answer
        ]

    def texts(self, answer: Any) -> list[str]:
        """Return the contents of the documents."""
        return [str(document.page_content) for document in answer]

    def read(self, docs: Path, folder: Path, embedding: Embedding) -> int:
        """Read, split, store."""
        from langchain_text_splitters import RecursiveCharacterTextSplitter

        documents = [
            self._document(
                page_content=path.read_text("utf-8"), metadata={"source": relative(str(path), str(docs))}
            )
            for path in markdown_files(docs)
        ]
        splitter = RecursiveCharacterTextSplitter(chunk_size=_SIZE, chunk_overlap=_OVERLAP)
        split = splitter.split_documents(documents)
        self._store(split, folder, embedding)
        return len(split)

    def _store(self, documents: Sequence[Any], folder: Path, embedding: Embedding) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        store = self._memory(self._given(embedding))
        store.add_documents(list(documents))
        store.dump(str(folder / "store.json"))


class LangChainHybrid(LangChain):
    """The in-memory store and BM25, joined by reciprocal rank fusion with equal weights."""

    def open(self, folder: Path, embedding: Embedding) -> None:
        """Load the store and make a BM25 retriever of its documents."""
        from langchain_classic.retrievers import EnsembleRetriever
        from langchain_community.retrievers import BM25Retriever

        super().open(folder, embedding)
        stored = self._opened.store.values()
        documents = [
            self._document(id=each["id"], page_content=each["text"], metadata=each["metadata"])
            for each in stored
        ]
        self._lexical, self._ensemble = BM25Retriever.from_documents(documents), EnsembleRetriever

    def ask(self, question: str, top: int, module: str | None) -> Any:
        """Invoke the ensemble."""
        if module is not None:
            raise NotImplementedError("the BM25 retriever has no filter")
        self._lexical.k = top
        dense = self._opened.as_retriever(search_kwargs={"k": top})
        return self._ensemble(retrievers=[self._lexical, dense], weights=[0.5, 0.5]).invoke(question)


class LangChainQdrant(LangChain):
    """The official Qdrant store over a directory."""

    def load(self) -> None:
        """Import store and client."""
        super().load()
        from langchain_qdrant import QdrantVectorStore
        from qdrant_client import QdrantClient, models

        self._qdrant, self._client_class, self._models = QdrantVectorStore, QdrantClient, models

    def open(self, folder: Path, embedding: Embedding) -> None:
        """Open the directory."""
        client = self._client_class(path=str(folder))
        self._opened = self._qdrant(
            client=client, collection_name=COLLECTION, embedding=self._given(embedding)
        )

    def ask(self, question: str, top: int, module: str | None) -> Any:
        """Invoke a retriever."""
        how: dict[str, Any] = {"k": top}
        if module is not None:
            match = self._models.MatchValue(value=module)
            how["filter"] = self._models.Filter(
                must=[self._models.FieldCondition(key="metadata.module", match=match)]
            )
        return self._opened.as_retriever(search_kwargs=how).invoke(question)

    def _store(self, documents: Sequence[Any], folder: Path, embedding: Embedding) -> None:
        models = self._models
        client = self._client_class(path=str(folder))
        client.create_collection(
            COLLECTION,
            vectors_config=models.VectorParams(size=embedding.dim, distance=models.Distance.COSINE),
        )
        store = self._qdrant(client=client, collection_name=COLLECTION, embedding=self._given(embedding))
        store.add_documents(list(documents))
        client.close()


if __name__ == "__main__":
    os.environ["LANGSMITH_TRACING"] = "false"
    kinds = {"memory": LangChain, "hybrid": LangChainHybrid, "qdrant": LangChainQdrant}
    main(kinds[sys.argv.pop(1)]())
