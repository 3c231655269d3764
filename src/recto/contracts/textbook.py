"""Document 004: `TextbookRetriever` and its results."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from recto._util import clamp
from recto.api import LazyConnection, in_thread
from recto.contracts import CLASS_COLLECTION, DEFAULT_COLLECTIONS
from recto.errors import InvalidArgument, RectoError
from recto.search.query import CONTRACT_MODES, check_mode, check_top_k, to_filters
from recto.search.retriever import Retriever
from recto.settings import Settings, check_collection_name, load_settings
from recto.types.search import Filters, Hit, Mode, SearchResponse

DEFAULT_TOP_K, MIN_TOP_K, MAX_TOP_K = 5, 3, 10
_CORE_NAMES = {"page_url": "url"} | dict.fromkeys(
    ("modules", "module_name", "module_id", "module_ids"), "module"
)
"""Other names of filters that callers of such a class use."""
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
        self.collection_name: str = collection_name or self._settings.collection_or(CLASS_COLLECTION)
        self.connection_error: RectoError | None = None
        self._connection = LazyConnection(self._settings, _LOG.info, DEFAULT_COLLECTIONS)

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
        check_top_k(top_k, MAX_TOP_K, least=MIN_TOP_K)
        chosen = _filters({} if filters is None else filters)
        return RetrievalResults(self._retriever().search(query, top_k=top_k, filters=chosen, mode=self.mode))

    def search_by_module(
        self, query: str, module_ids: Sequence[str], top_k: int = DEFAULT_TOP_K
    ) -> RetrievalResults:
        """Return the nearest chunks of the given modules, named by short or directory name."""
        return self.search(query, top_k, {"module": () if module_ids is None else module_ids})

    def search_with_selection(
        self, selected_text: str, context_query: str | None = None, top_k: int = DEFAULT_TOP_K
    ) -> RetrievalResults:
        """Return chunks related to a selected text, without those that contain it."""
        check_top_k(top_k, MAX_TOP_K, least=MIN_TOP_K)
        retriever = self._retriever()
        return RetrievalResults(retriever.related(selected_text, context_query, top_k=top_k, mode=self.mode))

    def validate_connection(self) -> bool:
        """Return whether a search works now; if not, `connection_error` and the log say why."""
        try:
            self._retriever().search(_PROBE, top_k=1, mode=self.mode)
        except RectoError as error:
            self.connection_error = error
            _LOG.warning("%s %s", error, error.hint)
            return False
        self.connection_error = None
        return True

    def close(self) -> None:
        """Close connections and open indexes; the next call opens them again."""
        self._connection.close()

    asearch = in_thread(search)
    asearch_by_module = in_thread(search_by_module)
    asearch_with_selection = in_thread(search_with_selection)
    avalidate_connection = in_thread(validate_connection)
    aclose = in_thread(close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _retriever(self) -> Retriever:
        return self._connection.retriever(self.collection_name)


def _result(hit: Hit) -> RetrievalResult:
    chunk = hit.chunk
    metadata = {
        "module_name": chunk.module,
        "headings": list(chunk.headings),
        "anchor": chunk.anchor,
        "link": chunk.url,
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
        chunk.text, chunk.page_url, chunk.title, score, chunk.chunk_index, chunk.total_chunks, metadata
    )


def _filters(filters: Mapping[str, Any]) -> Filters:
    """Translate the names of filters to the core's."""
    if not isinstance(filters, Mapping):
        message = f"filters must be a dict, not {type(filters).__name__}"
        raise InvalidArgument(message, hint="Such as {'module': 'ros2'}.")
    given = [(_CORE_NAMES.get(key, key), value) for key, value in filters.items() if value is not None]
    translated = dict(given)
    if len(translated) < len(given):
        raise InvalidArgument("filters has two names for one filter", hint="Use 'module' and 'url'.")
    if "module" in translated and not translated["module"]:
        raise InvalidArgument(
            "Modules must be one or more names",
            hint="Such as ['ros2', 'module-3-isaac']; search() searches all modules.",
        )
    return to_filters(translated)
