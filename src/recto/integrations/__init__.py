"""Adapters for LangChain, LlamaIndex, Haystack and MkDocs, each an extra, and the code that they share."""

from __future__ import annotations

import logging
import threading
from asyncio import to_thread
from collections.abc import Sequence
from typing import Any

from recto import api
from recto.errors import install_command
from recto.search.display import pick
from recto.search.query import make_filters
from recto.search.retriever import Retriever
from recto.types.search import Hit, SearchResponse

ModuleFilter = str | Sequence[str] | None
"""One module, any of several, or all."""

_LOG = logging.getLogger("recto")
_FIELDS = (
    *("url", "page_url", "anchor", "title", "section", "module", "module_title", "headings"),
    *("score", "dense", "lexical"),
    *("chunk_index", "total_chunks", "source", "start_line", "end_line", "version", "locale", "language"),
)


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

    def search(self, query: str, **options: Any) -> SearchResponse:
        """Search with `module`, `url`, `lang`, `version` and the options of `Retriever.search`.

        Log the reason if there are no hits, because frameworks have no field for it.
        """
        return _logged(self.retriever().search(query, **_with_filters(**options)))

    async def asearch(self, query: str, **options: Any) -> SearchResponse:
        """Search without blocking the event loop."""
        retriever = self._retriever
        if retriever is None:
            retriever = await to_thread(self.retriever)
        return _logged(await retriever.asearch(query, **_with_filters(**options)))


def content(hit: Hit) -> str:
    """Return the text for the model: the section if it was asked for, else the chunk."""
    return hit.chunk.text if hit.section_text is None else hit.section_text


def metadata(hit: Hit, response: SearchResponse) -> dict[str, Any]:
    """Return everything that a citation needs, as plain JSON values; `url` opens the section."""
    return pick(hit.to_dict(digits=None), _FIELDS) | {
        "above_noise": response.above_noise(hit),
        "book": hit.chunk.book,
        "chunk_id": hit.chunk.id,
        "mode": response.mode,
        "answerable": response.answerable,
        "coverage": response.coverage,
        "collection": response.collection,
    }


def not_installed(framework: str, extra: str) -> ImportError:
    """Return the error for a framework that is not installed."""
    return ImportError(f"{framework} is not installed. Install it with: {install_command(extra)}")


def _with_filters(
    module: ModuleFilter = None,
    url: str | None = None,
    lang: str | None = None,
    version: str | None = None,
    **options: Any,
) -> dict[str, Any]:
    modules = (module,) if isinstance(module, str) else module or ()
    return options | {"filters": make_filters(modules, url, lang, version)}


def _logged(response: SearchResponse) -> SearchResponse:
    if not response.hits:
        _LOG.warning("%s", response.message)
    return response
