"""What the adapters share: a collection that connects on first use, and the metadata of a hit."""

from __future__ import annotations

import logging
import threading
from asyncio import to_thread
from collections.abc import Sequence
from typing import Any

from recto.api import connect
from recto.search.display import hit_to_dict, pick
from recto.search.retriever import Retriever
from recto.types import Filters, Hit, Mode, SearchResponse

ModuleFilter = str | Sequence[str] | None
"""One module, any of several, or all."""

_LOG = logging.getLogger("recto")


class Book:
    """Searches a retriever, or a collection by name; the environment and `.env` say how to connect.

    You can copy and pickle it: a copy has only the name, and connects again.
    """

    def __init__(self, collection: str | None = None, retriever: Retriever | None = None) -> None:
        self.collection = retriever.collection if retriever else collection
        self._retriever = retriever
        self._connecting = threading.Lock()

    def __reduce__(self) -> tuple[type[Book], tuple[str | None]]:
        """Pickle the name only."""
        return Book, (self.collection,)

    def connected(self) -> Retriever:
        """Return the retriever; connect on first use."""
        with self._connecting:
            if self._retriever is None:
                self._retriever = connect(self.collection)
            return self._retriever

    def search(
        self, query: str, top_k: int, module: ModuleFilter, url: str | None, mode: Mode = "hybrid"
    ) -> SearchResponse:
        """Search; log the reason if there are no hits, because frameworks have no field for it."""
        return _logged(self.connected().search(query, top_k, _filters(module, url), mode=mode))

    async def asearch(
        self, query: str, top_k: int, module: ModuleFilter, url: str | None, mode: Mode = "hybrid"
    ) -> SearchResponse:
        """Search without blocking the event loop."""
        retriever = self._retriever
        if retriever is None:
            retriever = await to_thread(self.connected)
        return _logged(await retriever.asearch(query, top_k, _filters(module, url), mode=mode))


_FIELDS = (
    "url",
    "page_url",
    "anchor",
    "title",
    "section",
    "module",
    "module_title",
    "headings",
    "score",
    "dense",
    "lexical",
    "above_noise",
    "chunk_index",
    "total_chunks",
    "source",
    "start_line",
    "end_line",
    "book",
    "version",
    "locale",
)


def metadata(hit: Hit, response: SearchResponse) -> dict[str, Any]:
    """Return everything that a citation needs, as plain JSON values; `url` opens the section."""
    return pick(hit_to_dict(hit, response), _FIELDS) | {
        "chunk_id": hit.chunk.id,
        "mode": response.mode,
        "answerable": response.answerable,
        "collection": response.collection,
    }


def _filters(module: ModuleFilter, url: str | None) -> Filters:
    return Filters((module,) if isinstance(module, str) else tuple(module or ()), url)


def _logged(response: SearchResponse) -> SearchResponse:
    if not response.hits:
        _LOG.warning("%s", response.message)
    return response
