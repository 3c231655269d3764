"""A Haystack component over a book."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from recto.integrations import CollectionClient, content, metadata, not_installed
from recto.search.query import DEFAULT_TOP_K
from recto.search.retriever import Retriever
from recto.types.search import Mode, SearchResponse

try:
    from haystack import Document, component, default_from_dict, default_to_dict
except ModuleNotFoundError as error:
    raise not_installed("Haystack", "haystack") from error


@component
class RectoHaystackRetriever:
    """Retrieves chunks of a book; when serialized, it keeps the name of the collection and its options.

    With `section_tokens`, documents have the section around the chunk, with at most that many tokens.
    """

    def __init__(
        self,
        collection: str | None = None,
        top_k: int = DEFAULT_TOP_K,
        module: str | Sequence[str] = (),
        url: str | None = None,
        mode: Mode = "hybrid",
        section_tokens: int | None = None,
        lang: str | None = None,
        version: str | None = None,
        *,
        retriever: Retriever | None = None,
    ) -> None:
        self._client = CollectionClient(collection, retriever)
        self._settings: dict[str, Any] = {
            "top_k": top_k,
            "module": module if isinstance(module, str) else list(module),
            "url": url,
            "mode": mode,
            "section_tokens": section_tokens,
            "lang": lang,
            "version": version,
        }

    def warm_up(self) -> None:
        """Open the index and load the model."""
        self._client.retriever().warm_up()

    @component.output_types(documents=list[Document])
    def run(
        self,
        query: str,
        top_k: int | None = None,
        module: str | list[str] | None = None,
        url: str | None = None,
        mode: Mode | None = None,
        lang: str | None = None,
        version: str | None = None,
    ) -> dict[str, Any]:
        """Return the chunks that answer a query, best first; arguments override the configured values."""
        options = self._search(top_k=top_k, module=module, url=url, mode=mode, lang=lang, version=version)
        return _documents(self._client.search(query, **options))

    @component.output_types(documents=list[Document])
    async def run_async(
        self,
        query: str,
        top_k: int | None = None,
        module: str | list[str] | None = None,
        url: str | None = None,
        mode: Mode | None = None,
        lang: str | None = None,
        version: str | None = None,
    ) -> dict[str, Any]:
        """Run without blocking the event loop."""
        options = self._search(top_k=top_k, module=module, url=url, mode=mode, lang=lang, version=version)
        return _documents(await self._client.asearch(query, **options))

    def to_dict(self) -> dict[str, Any]:
        """Serialize the component."""
        return dict(default_to_dict(self, collection=self._client.collection, **self._settings))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> RectoHaystackRetriever:
        """Deserialize the component."""
        return default_from_dict(cls, data)

    def _search(self, **given: Any) -> dict[str, Any]:
        return self._settings | {name: value for name, value in given.items() if value is not None}


def _documents(response: SearchResponse) -> dict[str, Any]:
    hits = response.hits
    return {
        "documents": [
            Document(id=hit.chunk.id, content=content(hit), meta=metadata(hit, response), score=hit.score)
            for hit in hits
        ]
    }
