"""A Haystack component over a book."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recto.integrations import OPTION_NAMES, CollectionClient, content, metadata, not_installed, split_options
from recto.search.retriever import Retriever
from recto.types.search import SearchResponse

try:
    from haystack import Document, component, default_from_dict, default_to_dict
except ModuleNotFoundError as error:
    raise not_installed("Haystack", "haystack") from error


@component
class RectoHaystackRetriever:
    """Retrieves chunks of a book; the keyword arguments are search options, such as `top_k` and `module`.

    When serialized, it keeps the name of the collection and the options.
    """

    def __init__(
        self,
        collection: str | None = None,
        *,
        retriever: Retriever | None = None,
        **options: Any,
    ) -> None:
        self._options, unknown = split_options(options)
        if unknown:
            raise TypeError(f"unknown options: {', '.join(sorted(unknown))}")
        if isinstance(self._options.get("module"), tuple):  # a serialized pipeline has only lists
            self._options["module"] = list(self._options["module"])
        self._client = CollectionClient(collection, retriever)
        for name in OPTION_NAMES:
            component.set_input_type(self, name, Any, None)

    def warm_up(self) -> None:
        """Open the index and load the model."""
        self._client.retriever().warm_up()

    @component.output_types(documents=list[Document])
    def run(self, query: str, **options: Any) -> dict[str, Any]:
        """Return the chunks that answer a query, best first; options override the configured ones."""
        return _documents(self._client.search(query, self._merged(options)))

    @component.output_types(documents=list[Document])
    async def run_async(self, query: str, **options: Any) -> dict[str, Any]:
        """Run without blocking the event loop."""
        return _documents(await self._client.asearch(query, self._merged(options)))

    def to_dict(self) -> dict[str, Any]:
        """Serialize the component."""
        return dict(default_to_dict(self, collection=self._client.collection, **self._options))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> RectoHaystackRetriever:
        """Deserialize the component."""
        return default_from_dict(cls, data)

    def _merged(self, given: Mapping[str, Any]) -> dict[str, Any]:
        return self._options | {name: value for name, value in given.items() if value is not None}


def _documents(response: SearchResponse) -> dict[str, Any]:
    hits = response.hits
    return {
        "documents": [
            Document(id=hit.chunk.id, content=content(hit), meta=metadata(hit, response), score=hit.score)
            for hit in hits
        ]
    }
