"""What the adapters share: a collection that is connected when it is first asked, and what a citation needs."""

from __future__ import annotations

import logging
import threading
from asyncio import to_thread
from collections.abc import Sequence
from typing import Any

from recto.search.display import above_noise
from recto.search.retriever import Retriever
from recto.types import Filters, Hit, Mode, SearchResponse

_LOG = logging.getLogger("recto")


class Book:
    """Searches a retriever, or the collection of a name; that is then connected as the environment and `.env` say.

    It can be copied and pickled: only the name travels, and the copy connects anew.
    """

    def __init__(self, collection: str | None = None, retriever: Retriever | None = None) -> None:
        self.collection = retriever.collection if retriever else collection
        self._retriever = retriever
        self._connecting = threading.Lock()

    def __reduce__(self) -> tuple[type[Book], tuple[str | None]]:
        """Travel by name."""
        return Book, (self.collection,)

    def connected(self) -> Retriever:
        """Return the retriever, connected once."""
        with self._connecting:
            if self._retriever is None:
                self._retriever = Retriever.connect(self.collection)
            return self._retriever

    def search(
        self, query: str, top_k: int, modules: Sequence[str] | None, page: str | None, mode: Mode = "hybrid"
    ) -> SearchResponse:
        """Search; an empty answer is logged with its reason, as frameworks have no place for it."""
        return _logged(self.connected().search(query, top_k, _filters(modules, page), mode=mode))

    async def asearch(
        self, query: str, top_k: int, modules: Sequence[str] | None, page: str | None, mode: Mode = "hybrid"
    ) -> SearchResponse:
        """Search without holding up the event loop."""
        retriever = self._retriever
        if retriever is None:
            retriever = await to_thread(self.connected)
        return _logged(await retriever.asearch(query, top_k, _filters(modules, page), mode=mode))


def citation(hit: Hit, response: SearchResponse) -> dict[str, Any]:
    """Return everything that a citation needs, as plain JSON values; `link` opens the section."""
    chunk = hit.chunk
    return {
        "link": chunk.link,
        "page_url": chunk.page_url,
        "anchor": chunk.anchor,
        "title": chunk.page_title,
        "module": chunk.module_name,
        "headings": list(chunk.headings),
        "mode": response.mode,
        "score": hit.score,
        "dense": hit.dense,
        "lexical": hit.lexical,
        "above_noise": above_noise(hit, response),
        "answerable": response.answerable,
        "chunk_id": chunk.id,
        "chunk_index": chunk.chunk_index,
        "total_chunks": chunk.total_chunks,
        "source": chunk.source,
        "start_line": chunk.start_line,
        "end_line": chunk.end_line,
        "book": chunk.book,
        "version": chunk.version,
        "locale": chunk.locale,
        "collection": response.collection,
    }


def _filters(modules: Sequence[str] | None, page: str | None) -> Filters:
    return Filters((modules,) if isinstance(modules, str) else tuple(modules or ()), page)


def _logged(response: SearchResponse) -> SearchResponse:
    if not response.hits:
        _LOG.warning("%s", response.message)
    return response
