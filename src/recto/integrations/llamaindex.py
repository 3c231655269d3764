"""A LlamaIndex retriever over a book."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from recto.integrations import CollectionClient, content, metadata, not_installed
from recto.search.query import DEFAULT_TOP_K
from recto.search.retriever import Retriever
from recto.types.search import Mode, SearchResponse

try:
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
except ModuleNotFoundError as error:
    raise not_installed("LlamaIndex", "llamaindex") from error

_LLM_FIELDS = ("title", "module", "headings", "url")


class RectoLlamaIndexRetriever(BaseRetriever):
    """Retrieves chunks of a book.

    With `section_tokens`, nodes have the section around the chunk, with at most that many tokens.
    """

    def __init__(
        self,
        collection: str | None = None,
        *,
        retriever: Retriever | None = None,
        similarity_top_k: int = DEFAULT_TOP_K,
        module: str | Sequence[str] = (),
        url: str | None = None,
        mode: Mode = "hybrid",
        section_tokens: int | None = None,
        lang: str | None = None,
        version: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._client = CollectionClient(collection, retriever)
        self._search: dict[str, Any] = {
            "top_k": similarity_top_k,
            "module": module,
            "url": url,
            "mode": mode,
            "section_tokens": section_tokens,
            "lang": lang,
            "version": version,
        }

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return _nodes(self._client.search(query_bundle.query_str, **self._search))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return _nodes(await self._client.asearch(query_bundle.query_str, **self._search))


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
