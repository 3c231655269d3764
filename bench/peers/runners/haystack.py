"""Haystack: a query pipeline over one of several stores.

The store is in memory, alone or with BM25 (`hybrid`), or Qdrant in local mode (`qdrant`).
Annotations are evaluated here: Haystack compares the types of what it connects.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.peers.runners.embedding import Embedding
from bench.peers.runners.protocol import main
from bench.peers.runners.system import COLLECTION, Found, Piece, markdown_files, relative


class Haystack:
    """The in-memory store."""

    def load(self) -> None:
        """Import the pipeline and the store."""
        import haystack
        from haystack import Document, Pipeline, component

        @component  # type: ignore[untyped-decorator,unused-ignore]
        class Given:
            """The shared embedding model as a text embedder."""

            def __init__(self, embedding: Embedding) -> None:
                self._embedding = embedding

            @component.output_types(embedding=list[float])  # type: ignore[untyped-decorator,unused-ignore]
            def run(self, text: str) -> dict[str, Any]:
                """Embed a query."""
                return {"embedding": self._embedding.query(text)}

        @component  # type: ignore[untyped-decorator,unused-ignore]
        class GivenDocuments:
            """The shared embedding model as a document embedder."""

            def __init__(self, embedding: Embedding) -> None:
                self._embedding = embedding

            @component.output_types(documents=list[Document])  # type: ignore[untyped-decorator,unused-ignore]
            def run(self, documents: list[Document]) -> dict[str, Any]:
                """Embed documents."""
                vectors = self._embedding.documents([document.content or "" for document in documents])
                return {
                    "documents": [
                        _with(document, vector) for document, vector in zip(documents, vectors, strict=True)
                    ]
                }

        self._haystack, self._document, self._pipeline = haystack, Document, Pipeline
        self._given, self._given_documents = Given, GivenDocuments
        self._load_store()

    def _load_store(self) -> None:
        from haystack.components.retrievers.in_memory import InMemoryEmbeddingRetriever
        from haystack.document_stores.in_memory import InMemoryDocumentStore

        self._store_class, self._retriever = InMemoryDocumentStore, InMemoryEmbeddingRetriever

    def index(self, pieces: Sequence[Piece], folder: Path, embedding: Embedding) -> None:
        """Run a pipeline of embedder and writer."""
        documents = [
            self._document(
                id=piece.id,
                content=piece.text,
                meta={"module": piece.module, "page_url": piece.page_url, "source": piece.source},
            )
            for piece in pieces
        ]
        store = self._new_store(folder, embedding)
        self._indexing(store, embedding).run({"embedder": {"documents": documents}})
        self._keep(store, folder)

    def open(self, folder: Path, embedding: Embedding) -> None:
        """Open the store and connect the query pipeline."""
        pipeline = self._pipeline()
        pipeline.add_component("embedder", self._given(embedding))
        pipeline.add_component(
            "retriever", self._retriever(document_store=self._open_store(folder, embedding))
        )
        pipeline.connect("embedder.embedding", "retriever.query_embedding")
        self._opened = pipeline

    def ask(self, question: str, top: int, module: str | None) -> Any:
        """Run the query pipeline."""
        filters = None if module is None else {"field": "meta.module", "operator": "==", "value": module}
        return self._opened.run(
            {"embedder": {"text": question}, "retriever": {"top_k": top, "filters": filters}}
        )

    def found(self, answer: Any) -> Found:
        """Return the ids of the documents."""
        return [(document.id, _source(document)) for document in answer["retriever"]["documents"]]

    def texts(self, answer: Any) -> list[str]:
        """Return the contents of the documents."""
        return [str(document.content) for document in answer["retriever"]["documents"]]

    def read(self, docs: Path, folder: Path, embedding: Embedding) -> int:
        """Convert, split, embed and write in one pipeline."""
        from haystack.components.converters import MarkdownToDocument
        from haystack.components.preprocessors import DocumentSplitter

        store = self._new_store(folder, embedding)
        pipeline = self._indexing(store, embedding)
        pipeline.add_component("converter", MarkdownToDocument(progress_bar=False))
        pipeline.add_component("splitter", DocumentSplitter())
        pipeline.connect("converter", "splitter")
        pipeline.connect("splitter", "embedder")
        files = markdown_files(docs)
        meta = [{"source": relative(str(path), str(docs))} for path in files]
        done = pipeline.run({"converter": {"sources": [str(path) for path in files], "meta": meta}})
        self._keep(store, folder)
        return int(done["writer"]["documents_written"])

    def _indexing(self, store: Any, embedding: Embedding) -> Any:
        from haystack.components.writers import DocumentWriter
        from haystack.document_stores.types import DuplicatePolicy

        pipeline = self._pipeline()
        pipeline.add_component("embedder", self._given_documents(embedding))
        pipeline.add_component(
            "writer", DocumentWriter(document_store=store, policy=DuplicatePolicy.OVERWRITE)
        )
        pipeline.connect("embedder", "writer")
        return pipeline

    def _new_store(self, folder: Path, embedding: Embedding) -> Any:
        del embedding
        folder.mkdir(parents=True, exist_ok=True)
        return self._store_class(embedding_similarity_function="cosine")

    def _open_store(self, folder: Path, embedding: Embedding) -> Any:
        del embedding
        return self._store_class.load_from_disk(str(folder / "store.json"))

    def _keep(self, store: Any, folder: Path) -> None:
        store.save_to_disk(str(folder / "store.json"))


class HaystackHybrid(Haystack):
    """The in-memory store's two retrievers, joined by reciprocal rank fusion."""

    def open(self, folder: Path, embedding: Embedding) -> None:
        """Open the store and connect both retrievers to a joiner."""
        from haystack.components.joiners import DocumentJoiner
        from haystack.components.retrievers.in_memory import InMemoryBM25Retriever

        store = self._open_store(folder, embedding)
        pipeline = self._pipeline()
        pipeline.add_component("embedder", self._given(embedding))
        pipeline.add_component("dense", self._retriever(document_store=store))
        pipeline.add_component("lexical", InMemoryBM25Retriever(document_store=store))
        pipeline.add_component("retriever", DocumentJoiner(join_mode="reciprocal_rank_fusion"))
        pipeline.connect("embedder.embedding", "dense.query_embedding")
        pipeline.connect("dense", "retriever")
        pipeline.connect("lexical", "retriever")
        self._opened = pipeline

    def ask(self, question: str, top: int, module: str | None) -> Any:
        """Run the query pipeline."""
        filters = None if module is None else {"field": "meta.module", "operator": "==", "value": module}
        limits = {"top_k": top, "filters": filters}
        return self._opened.run(
            {"embedder": {"text": question}, "dense": limits, "lexical": {"query": question, **limits}}
        )


class HaystackQdrant(Haystack):
    """The official Qdrant store over a directory."""

    def _load_store(self) -> None:
        from haystack_integrations.components.retrievers.qdrant import QdrantEmbeddingRetriever
        from haystack_integrations.document_stores.qdrant import QdrantDocumentStore

        self._store_class, self._retriever = QdrantDocumentStore, QdrantEmbeddingRetriever

    def _new_store(self, folder: Path, embedding: Embedding) -> Any:
        return self._open_store(folder, embedding)

    def _open_store(self, folder: Path, embedding: Embedding) -> Any:
        return self._store_class(
            path=str(folder),
            index=COLLECTION,
            embedding_dim=embedding.dim,
            similarity="cosine",
            progress_bar=False,
        )

    def _keep(self, store: Any, folder: Path) -> None:
        del folder
        store._client.close()


def _with(document: Any, vector: list[float]) -> Any:
    from dataclasses import replace

    return replace(document, embedding=vector)


def _source(document: Any) -> str:
    return str(document.meta["source"])


if __name__ == "__main__":
    os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
    kinds = {"memory": Haystack, "hybrid": HaystackHybrid, "qdrant": HaystackQdrant}
    main(kinds[sys.argv.pop(1)]())
