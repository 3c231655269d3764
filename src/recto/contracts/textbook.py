"""Document 004: `TextbookRetriever` and its results."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from recto._util.numbers import clamp
from recto.errors import InvalidArgument, RectoError
from recto.search.query import CONTRACT_MODES, check_mode
from recto.settings import Settings, check_collection_name, load_settings
from recto.types import NO_FILTERS, Filters, Hit, Mode, SearchResponse

if TYPE_CHECKING:
    from recto.search.retriever import Retriever

DEFAULT_COLLECTION = "rag_embedding"
DEFAULT_TOP_K, MIN_TOP_K, MAX_TOP_K = 5, 3, 10
_MODULE_KEYS = ("module", "modules", "module_name", "module_id", "module_ids")
_PAGE_KEYS = ("url", "page_url")
_PROBE = "What is this book about?"
_LOG = logging.getLogger("recto")


@dataclass(frozen=True, slots=True)
class RetrievalResult:
    """One result; `metadata` has `module_name` and what else a citation needs."""

    content: str
    url: str
    title: str
    relevance_score: float
    chunk_index: int
    total_chunks: int
    metadata: dict[str, Any] = field(default_factory=dict)


class RetrievalResults(list[RetrievalResult]):
    """The results, best first; `response` has the search's message, warnings, timings and noise floor."""

    def __init__(self, response: SearchResponse) -> None:
        super().__init__(_result(hit) for hit in response.hits)
        self.response = response

    @property
    def message(self) -> str:
        """Why there are no results; empty if there are some."""
        return self.response.message


class TextbookRetriever:
    """Searches a textbook with the settings of the environment and `.env`; safe for threads and event loops.

    It connects on first use. Errors are `RectoError`s with a hint, and the next call tries again. Results are
    ranked by cosine similarity; pass `mode="hybrid"` to add the lexical score.
    """

    def __init__(
        self, collection_name: str | None = None, *, settings: Settings | None = None, mode: Mode = "dense"
    ) -> None:
        self._settings = settings or load_settings()
        if collection_name is not None:
            check_collection_name(collection_name, "collection_name")
        check_mode(mode, CONTRACT_MODES)
        self.mode: Mode = mode
        self.collection_name: str = collection_name or self._settings.collection_or(DEFAULT_COLLECTION)
        self.connection_error: RectoError | None = None
        self._connected: Retriever | None = None
        self._connecting = threading.Lock()

    @property
    def qdrant_client(self) -> Any:
        """The official Qdrant client, or the store if the profile is embedded."""
        store = self._retriever().store
        return getattr(store, "client", store)

    @property
    def cohere_client(self) -> Any:
        """The official Cohere client, or None with a local model."""
        return getattr(self._retriever().embedder, "client", None)

    def search(
        self, query: str, top_k: int = DEFAULT_TOP_K, filters: Mapping[str, Any] | None = None
    ) -> RetrievalResults:
        """Return the chunks nearest to a query; `filters` may have `module` (one or several) and `url`."""
        return RetrievalResults(
            self._retriever().search(query, _checked(top_k), _filters(filters), mode=self.mode)
        )

    def search_by_module(
        self, query: str, module_ids: Sequence[str], top_k: int = DEFAULT_TOP_K
    ) -> RetrievalResults:
        """Return the nearest chunks of the given modules, named by short or directory name."""
        return RetrievalResults(
            self._retriever().search(query, _checked(top_k), _modules(module_ids), mode=self.mode)
        )

    def search_with_selection(
        self, selected_text: str, context_query: str | None = None, top_k: int = DEFAULT_TOP_K
    ) -> RetrievalResults:
        """Return chunks related to a selected text, without those that contain it."""
        return RetrievalResults(
            self._retriever().related(selected_text, context_query, _checked(top_k), mode=self.mode)
        )

    def validate_connection(self) -> bool:
        """Return whether a search works now; if not, `connection_error` and the log say why."""
        try:
            self._retriever().search(_PROBE, 1, mode=self.mode)
        except RectoError as error:
            return self._broken(error)
        self.connection_error = None
        return True

    async def asearch(
        self, query: str, top_k: int = DEFAULT_TOP_K, filters: Mapping[str, Any] | None = None
    ) -> RetrievalResults:
        """Search without blocking the event loop."""
        return RetrievalResults(
            await (await self._aretriever()).asearch(
                query, _checked(top_k), _filters(filters), mode=self.mode
            )
        )

    async def asearch_by_module(
        self, query: str, module_ids: Sequence[str], top_k: int = DEFAULT_TOP_K
    ) -> RetrievalResults:
        """Search modules without blocking the event loop."""
        return RetrievalResults(
            await (await self._aretriever()).asearch(
                query, _checked(top_k), _modules(module_ids), mode=self.mode
            )
        )

    async def asearch_with_selection(
        self, selected_text: str, context_query: str | None = None, top_k: int = DEFAULT_TOP_K
    ) -> RetrievalResults:
        """Return chunks related to a selected text without blocking the event loop."""
        return RetrievalResults(
            await (await self._aretriever()).arelated(
                selected_text, context_query, _checked(top_k), mode=self.mode
            )
        )

    async def avalidate_connection(self) -> bool:
        """Return whether a search works now without blocking the event loop."""
        try:
            await (await self._aretriever()).asearch(_PROBE, 1, mode=self.mode)
        except RectoError as error:
            return self._broken(error)
        self.connection_error = None
        return True

    def close(self) -> None:
        """Close connections and open indexes; the next call opens them again."""
        with self._connecting:
            if self._connected is not None:
                self._connected.close()

    async def aclose(self) -> None:
        """Close the connections of this event loop, and all others."""
        if self._connected is not None:
            await self._connected.aclose()
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _retriever(self) -> Retriever:
        with self._connecting:
            if self._connected is None:
                from recto.api import open_retriever

                self._connected = open_retriever(
                    self._settings, DEFAULT_COLLECTION, _LOG.info, collection=self.collection_name
                )
            return self._connected

    async def _aretriever(self) -> Retriever:
        if self._connected is not None:
            return self._connected
        from asyncio import to_thread

        return await to_thread(self._retriever)

    def _broken(self, error: RectoError) -> bool:
        self.connection_error = error
        _LOG.warning("%s %s", error, error.hint)
        return False


def _result(hit: Hit) -> RetrievalResult:
    chunk = hit.chunk
    metadata = {
        "module_name": chunk.module_name,
        "headings": list(chunk.headings),
        "anchor": chunk.anchor,
        "link": chunk.link,
        "chunk_id": chunk.id,
        "source": chunk.source,
        "start_line": chunk.start_line,
        "end_line": chunk.end_line,
        "book": chunk.book,
        "version": chunk.version,
        "locale": chunk.locale,
        "content_hash": chunk.content_hash,
        "score": hit.score,
        "dense": hit.dense,
        "lexical": hit.lexical,
    }
    score = clamp(hit.score)
    return RetrievalResult(
        chunk.text, chunk.page_url, chunk.page_title, score, chunk.chunk_index, chunk.total_chunks, metadata
    )


def _checked(top_k: int) -> int:
    if isinstance(top_k, bool) or not isinstance(top_k, int) or not MIN_TOP_K <= top_k <= MAX_TOP_K:
        raise InvalidArgument(
            f"top_k must be between {MIN_TOP_K} and {MAX_TOP_K}", hint=f"The default is {DEFAULT_TOP_K}."
        )
    return top_k


def _filters(filters: Mapping[str, Any] | None) -> Filters:
    if filters is None:
        return NO_FILTERS
    if not isinstance(filters, Mapping):
        raise InvalidArgument(
            f"filters must be a dict, not {type(filters).__name__}", hint="Such as {'module': 'ros2'}."
        )
    unknown = [key for key in filters if key not in (*_MODULE_KEYS, *_PAGE_KEYS)]
    if unknown:
        raise InvalidArgument(
            f"filters has no {unknown[0]!r}", hint="It may have 'module' (one or several names) and 'url'."
        )
    modules = [
        name
        for key in _MODULE_KEYS
        if filters.get(key) is not None
        for name in _modules(filters[key]).modules
    ]
    pages = [filters[key] for key in _PAGE_KEYS if filters.get(key) is not None]
    if any(not isinstance(page, str) or not page.strip() for page in pages) or len(set(pages)) > 1:
        raise InvalidArgument("filters['url'] must be one page's address", hint="Use the url of a result.")
    return Filters(tuple(modules), pages[0] if pages else None)


def _modules(names: Sequence[str]) -> Filters:
    """Return the filter; a string is one name, not a list of letters."""
    listed = [names] if isinstance(names, str) else list(names) if isinstance(names, Iterable) else []
    if not listed or any(not isinstance(name, str) or not name.strip() for name in listed):
        raise InvalidArgument(
            "Modules must be one or more names",
            hint="Such as ['ros2', 'module-3-isaac']; search() searches all modules.",
        )
    return Filters(tuple(listed))
