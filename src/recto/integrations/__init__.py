"""Adapters for LangChain, LlamaIndex, Haystack and MkDocs, each an extra, and the code that they share."""

from __future__ import annotations

import logging
import threading
from asyncio import to_thread
from collections.abc import Mapping
from typing import Any

from recto import api
from recto.errors import install_command
from recto.search.query import make_request
from recto.search.retriever import Retriever
from recto.types.request import SearchRequest, options_of
from recto.types.search import Hit, SearchResponse

_LOG = logging.getLogger("recto")
OPTION_NAMES = tuple(option.name for option in options_of("framework"))
"""The search options of all adapters."""


class CollectionClient:
    """Searches a collection with a given retriever, or connects to it by name on first use.

    You can copy and pickle it: a copy has only the name, and connects again.
    """

    def __init__(self, collection: str | None = None, retriever: Retriever | None = None) -> None:
        self.collection = retriever.collection if retriever else collection
        self._retriever = retriever
        self._connecting = threading.Lock()

    def __reduce__(self) -> tuple[type[CollectionClient], tuple[str | None]]:
        """Pickle only the name."""
        return CollectionClient, (self.collection,)

    def retriever(self) -> Retriever:
        """Return the retriever; connect on first use."""
        with self._connecting:
            if self._retriever is None:
                self._retriever = api.connect(self.collection)
            return self._retriever

    def search(self, query: str, options: Mapping[str, Any]) -> SearchResponse:
        """Search with options, of which those that are None do not count.

        Log the reason if there are no hits, because frameworks have no field for it.
        """
        return _logged(self.retriever().search(_request(query, options)))

    async def asearch(self, query: str, options: Mapping[str, Any]) -> SearchResponse:
        """Search without blocking the event loop."""
        retriever = self._retriever
        if retriever is None:
            retriever = await to_thread(self.retriever)
        return _logged(await retriever.asearch(_request(query, options)))


def split_options(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the search options among keyword arguments, and the other arguments."""
    options = {name: value for name, value in values.items() if name in OPTION_NAMES}
    return options, {name: value for name, value in values.items() if name not in OPTION_NAMES}


def content(hit: Hit) -> str:
    """Return the text for the model: the section if it was asked for, else the chunk."""
    return hit.chunk.text if hit.section_text is None else hit.section_text


def metadata(hit: Hit, response: SearchResponse) -> dict[str, Any]:
    """Return everything that a citation needs, as plain JSON values; `url` opens the section."""
    return hit.to_dict(None, "framework") | {
        "above_noise": response.above_noise(hit),
        "chunk_id": hit.chunk.id,
        "mode": response.mode,
        "answerable": response.answerable,
        "coverage": response.coverage,
        "collection": response.collection,
    }


def not_installed(framework: str, extra: str) -> ImportError:
    """Return the error for a framework that is not installed."""
    return ImportError(f"{framework} is not installed. Install it with: {install_command(extra)}")


def _request(query: str, options: Mapping[str, Any]) -> SearchRequest:
    given: Any = {name: value for name, value in options.items() if value is not None and value != ""}
    return make_request(query, **given)


def _logged(response: SearchResponse) -> SearchResponse:
    if not response.hits:
        _LOG.warning("%s", response.message)
    return response
