"""A LlamaIndex retriever over a book."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from recto.integrations import absent
from recto.integrations.common import Book, citation
from recto.search.query import DEFAULT_TOP_K
from recto.search.retriever import Retriever
from recto.types import Mode, SearchResponse

try:
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
except ModuleNotFoundError as error:
    raise absent("LlamaIndex", "llamaindex") from error

_FOR_THE_MODEL = ("title", "module", "headings", "link")


class RectoRetriever(BaseRetriever):
    """Finds passages of a book."""

    def __init__(
        self,
        collection: str | None = None,
        *,
        retriever: Retriever | None = None,
        similarity_top_k: int = DEFAULT_TOP_K,
        modules: Sequence[str] = (),
        page: str | None = None,
        mode: Mode = "hybrid",
        **more: Any,
    ) -> None:
        super().__init__(**more)
        self._book = Book(collection, retriever)
        self._search: dict[str, Any] = {
            "top_k": similarity_top_k,
            "modules": modules,
            "page": page,
            "mode": mode,
        }

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return _nodes(self._book.search(query_bundle.query_str, **self._search))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return _nodes(await self._book.asearch(query_bundle.query_str, **self._search))


def _nodes(response: SearchResponse) -> list[NodeWithScore]:
    nodes = []
    for hit in response.hits:
        metadata = citation(hit, response)
        unseen = [
            name for name in metadata if name not in _FOR_THE_MODEL
        ]  # the model reads what it can cite, not our numbers
        node = TextNode(
            id_=hit.chunk.id, text=hit.chunk.text, metadata=metadata, excluded_llm_metadata_keys=unseen
        )
        nodes.append(NodeWithScore(node=node, score=hit.score))
    return nodes
