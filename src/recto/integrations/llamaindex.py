"""A LlamaIndex retriever over a book."""

from __future__ import annotations

from typing import Any

from recto.integrations import CollectionClient, content, metadata, not_installed, split_options
from recto.search.retriever import Retriever
from recto.types.request import DEFAULT_TOP_K
from recto.types.search import SearchResponse

try:
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
except ModuleNotFoundError as error:
    raise not_installed("LlamaIndex", "llamaindex") from error

_LLM_FIELDS = ("title", "module", "headings", "url")


class RectoLlamaIndexRetriever(BaseRetriever):
    """Retrieves chunks of a book; the keyword arguments are search options, such as `module` and `mode`."""

    def __init__(
        self,
        collection: str | None = None,
        *,
        retriever: Retriever | None = None,
        similarity_top_k: int = DEFAULT_TOP_K,
        **kwargs: Any,
    ) -> None:
        options, others = split_options(kwargs)
        super().__init__(**others)
        self._client = CollectionClient(collection, retriever)
        self._options = {"top_k": similarity_top_k, **options}

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return _nodes(self._client.search(query_bundle.query_str, self._options))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return _nodes(await self._client.asearch(query_bundle.query_str, self._options))


def _nodes(response: SearchResponse) -> list[NodeWithScore]:
    nodes = []
    for hit in response.hits:
        fields = metadata(hit, response)
        excluded = [name for name in fields if name not in _LLM_FIELDS]  # the LLM needs no scores
        node = TextNode(
            id_=hit.chunk.id, text=content(hit), metadata=fields, excluded_llm_metadata_keys=excluded
        )
        nodes.append(NodeWithScore(node=node, score=hit.score))
    return nodes
