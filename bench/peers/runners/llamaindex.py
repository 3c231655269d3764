"""LlamaIndex: `VectorStoreIndex` over one of several stores.

The store is the default one, alone or with BM25 (`hybrid`), or Qdrant in local mode (`qdrant`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from bench.peers.runners.embedding import Embedding
from bench.peers.runners.protocol import main
from bench.peers.runners.system import COLLECTION, Found, Piece, relative

_BATCH = 100  # the default of 10 would pad more


class LlamaIndex:
    """The default store, kept in a directory."""

    def load(self) -> None:
        """Import the index."""
        from llama_index import core
        from llama_index.core.base.embeddings.base import BaseEmbedding
        from llama_index.core.vector_stores import MetadataFilter, MetadataFilters

        class Given(BaseEmbedding):  # type: ignore[misc]
            """The shared embedding model."""

            given: Any

            def _get_query_embedding(self, query: str) -> list[float]:
                vector: list[float] = self.given.query(query)
                return vector

            def _get_text_embedding(self, text: str) -> list[float]:
                return self._get_text_embeddings([text])[0]

            def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
                vectors: list[list[float]] = self.given.documents(texts)
                return vectors

            async def _aget_query_embedding(self, query: str) -> list[float]:
                return self._get_query_embedding(query)

        self._core, self._given, self._filter, self._filters = core, Given, MetadataFilter, MetadataFilters

    def index(self, pieces: Sequence[Piece], folder: Path, embedding: Embedding) -> None:
        """Make an index of nodes; only their text is embedded, as in the other systems."""
        from llama_index.core.schema import TextNode

        names = ["module", "page_url", "source"]
        nodes = [
            TextNode(
                id_=piece.id,
                text=piece.text,
                metadata={"module": piece.module, "page_url": piece.page_url, "source": piece.source},
                excluded_embed_metadata_keys=names,
            )
            for piece in pieces
        ]
        storage = self._new_storage(folder)
        index = self._core.VectorStoreIndex(
            nodes, storage_context=storage, embed_model=self._model(embedding)
        )
        self._keep(index, folder)

    def open(self, folder: Path, embedding: Embedding) -> None:
        """Load the index from its directory."""
        storage = self._core.StorageContext.from_defaults(persist_dir=str(folder))
        self._opened = self._core.load_index_from_storage(storage, embed_model=self._model(embedding))

    def ask(self, question: str, top: int, module: str | None) -> Any:
        """Retrieve."""
        filters = (
            None if module is None else self._filters(filters=[self._filter(key="module", value=module)])
        )
        return self._opened.as_retriever(similarity_top_k=top, filters=filters).retrieve(question)

    def found(self, answer: Any) -> Found:
        """Return the ids of the nodes."""
        return [(hit.node.node_id, hit.node.metadata["source"]) for hit in answer]

    def texts(self, answer: Any) -> list[str]:
        """Return the texts of the nodes."""
        return [str(hit.node.get_content()) for hit in answer]

    def read(self, docs: Path, folder: Path, embedding: Embedding) -> int:
        """Read the directory and index its documents with the defaults."""
        documents = self._documents(docs)
        index = self._core.VectorStoreIndex.from_documents(
            documents, storage_context=self._new_storage(folder), embed_model=self._model(embedding)
        )
        self._keep(index, folder)
        return len(self._core.node_parser.SentenceSplitter().get_nodes_from_documents(documents))

    def _documents(self, docs: Path) -> Any:
        reader = self._core.SimpleDirectoryReader(str(docs), recursive=True, required_exts=[".md", ".mdx"])
        documents = reader.load_data()
        for document in documents:
            document.metadata["source"] = relative(document.metadata["file_path"], str(docs))
            for excluded in (document.excluded_embed_metadata_keys, document.excluded_llm_metadata_keys):
                excluded.append("source")  # a separate name for the file: it embeds its own
        return documents

    def _model(self, embedding: Embedding) -> Any:
        return self._given(given=embedding, embed_batch_size=_BATCH)

    def _new_storage(self, folder: Path) -> Any:
        del folder
        return None

    def _keep(self, index: Any, folder: Path) -> None:
        index.storage_context.persist(persist_dir=str(folder))


class LlamaIndexHybrid(LlamaIndex):
    """The default store and BM25, joined by reciprocal rank fusion."""

    def open(self, folder: Path, embedding: Embedding) -> None:
        """Load the index and make a BM25 retriever of its nodes."""
        from llama_index.core.llms import MockLLM
        from llama_index.core.retrievers import QueryFusionRetriever
        from llama_index.retrievers.bm25 import BM25Retriever

        super().open(folder, embedding)
        nodes = list(self._opened.docstore.docs.values())

        @cache  # build the BM25 index once
        def fused(top: int) -> Any:
            lexical = BM25Retriever.from_defaults(nodes=nodes, similarity_top_k=min(top, len(nodes)))
            dense = self._opened.as_retriever(similarity_top_k=top)
            # The language model is never called with one query, but the retriever requires one.
            return QueryFusionRetriever(
                [dense, lexical],
                llm=MockLLM(),
                mode="reciprocal_rerank",
                similarity_top_k=top,
                num_queries=1,
                use_async=False,
            )

        self._fused = fused

    def ask(self, question: str, top: int, module: str | None) -> Any:
        """Retrieve by both and fuse."""
        if module is not None:
            raise NotImplementedError("the hybrid retriever is not measured with a filter")
        return self._fused(top).retrieve(question)


class LlamaIndexQdrant(LlamaIndex):
    """The official Qdrant store over a directory."""

    def load(self) -> None:
        """Import store and client."""
        super().load()
        from llama_index.vector_stores.qdrant import QdrantVectorStore
        from qdrant_client import QdrantClient

        self._store_class, self._client_class = QdrantVectorStore, QdrantClient

    def open(self, folder: Path, embedding: Embedding) -> None:
        """Open the directory."""
        store = self._store_class(COLLECTION, client=self._client_class(path=str(folder)))
        self._opened = self._core.VectorStoreIndex.from_vector_store(
            store, embed_model=self._model(embedding)
        )

    def _new_storage(self, folder: Path) -> Any:
        self._writer = self._client_class(path=str(folder))
        return self._core.StorageContext.from_defaults(
            vector_store=self._store_class(COLLECTION, client=self._writer)
        )

    def _keep(self, index: Any, folder: Path) -> None:
        del index, folder
        self._writer.close()


if __name__ == "__main__":
    kinds = {
        "memory": LlamaIndex,
        "hybrid": LlamaIndexHybrid,
        "qdrant": LlamaIndexQdrant,
    }
    main(kinds[sys.argv.pop(1)]())
