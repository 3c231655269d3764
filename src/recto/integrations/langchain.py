"""A LangChain retriever over a book."""

from __future__ import annotations

from typing import Any

from recto.integrations import CollectionClient, content, metadata, not_installed
from recto.search.query import DEFAULT_TOP_K
from recto.types.search import Mode, SearchResponse

try:
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
    from pydantic import ConfigDict, Field, PrivateAttr
except ModuleNotFoundError as error:
    raise not_installed("LangChain", "langchain") from error

_OPTIONS = ("k", "module", "url", "mode", "section_tokens", "lang", "version")


class RectoLangChainRetriever(BaseRetriever):
    """Retrieves chunks of a book; `invoke` also takes its options from `k` to `version`.

    With `section_tokens`, documents have the section around the chunk, with at most that many tokens.
    """

    # Unknown fields are errors: a misspelt `collection` would search another book.
    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    collection: str | None = None
    retriever: Any = Field(default=None, exclude=True, repr=False)
    k: int = DEFAULT_TOP_K
    module: str | tuple[str, ...] = ()
    url: str | None = None
    mode: Mode = "hybrid"
    section_tokens: int | None = None
    lang: str | None = None
    version: str | None = None
    _client: CollectionClient = PrivateAttr()

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
        return _documents(self._client.search(query, **self._search(**options)))

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: Any = None,  # noqa: ARG002 - LangChain passes it
        **options: Any,
    ) -> list[Document]:
        return _documents(await self._client.asearch(query, **self._search(**options)))

    def _search(self, **given: Any) -> dict[str, Any]:
        """Return the options of a search: those that are given, else the retriever's own."""
        if unknown := given.keys() - {*_OPTIONS}:
            raise TypeError(f"unknown options: {', '.join(sorted(unknown))}")
        options = {name: given.get(name) for name in _OPTIONS}
        options = {name: getattr(self, name) if one in (None, "") else one for name, one in options.items()}
        return {"top_k": options.pop("k"), **options}


def _documents(response: SearchResponse) -> list[Document]:
    return [
        Document(id=hit.chunk.id, page_content=content(hit), metadata=metadata(hit, response))
        for hit in response.hits
    ]
