"""A LangChain retriever over a book."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recto.integrations import CollectionClient, content, metadata, not_installed, split_options
from recto.types.request import DEFAULT_TOP_K
from recto.types.search import SearchResponse

try:
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
    from pydantic import ConfigDict, Field, PrivateAttr
except ModuleNotFoundError as error:
    raise not_installed("LangChain", "langchain") from error


class RectoLangChainRetriever(BaseRetriever):
    """Retrieves chunks of a book; `k` and the search options can also be given to `invoke`."""

    # Unknown fields are errors: a misspelt `collection` would search another book.
    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    collection: str | None = None
    retriever: Any = Field(default=None, exclude=True, repr=False)
    k: int = DEFAULT_TOP_K
    options: dict[str, Any] = Field(default_factory=dict)
    _client: CollectionClient = PrivateAttr()

    def __init__(self, **values: Any) -> None:
        options, others = split_options(values)
        super().__init__(**others, options={**others.pop("options", {}), **options})

    def model_post_init(self, context: Any) -> None:
        """Prepare the connection, which is opened on first use."""
        super().model_post_init(context)
        self._client = CollectionClient(self.collection, self.retriever)

    def __getstate__(self) -> dict[Any, Any]:
        """Pickle the collection's name instead of open connections."""
        state: dict[Any, Any] = super().__getstate__()
        return {
            **state,
            "__dict__": {**state["__dict__"], "retriever": None, "collection": self._client.collection},
        }

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: Any = None,  # noqa: ARG002 - LangChain passes it
        **options: Any,
    ) -> list[Document]:
        return _documents(self._client.search(query, self._options(options)))

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: Any = None,  # noqa: ARG002 - LangChain passes it
        **options: Any,
    ) -> list[Document]:
        return _documents(await self._client.asearch(query, self._options(options)))

    def _options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of a search: those that are given, else the retriever's."""
        options, others = split_options(given)
        if unknown := others.keys() - {"k"}:
            raise TypeError(f"unknown options: {', '.join(sorted(unknown))}")
        options = {name: value for name, value in options.items() if value is not None}
        return {**self.options, "top_k": given.get("k") or self.k, **options}


def _documents(response: SearchResponse) -> list[Document]:
    return [
        Document(id=hit.chunk.id, page_content=content(hit), metadata=metadata(hit, response))
        for hit in response.hits
    ]
