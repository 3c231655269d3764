"""Ask one question from end to end, with the time of every step."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from recto._util.retry import Notify
from recto.contracts.retrieval_test import contract as checks
from recto.contracts.retrieval_test.contract import (
    DEFAULT_COLLECTION,
    DEFAULT_TOP_K,
    ArgumentError,
    CohereAPIError,
    QdrantAPIError,
    SearchResult,
    check_response,
    checked_query,
    checked_top_k,
    response_of,
    results_of,
)
from recto.errors import InvalidArgument, RectoError
from recto.settings import Settings, check_collection_name, load_settings
from recto.types import Mode

if TYPE_CHECKING:
    from recto.protocols import Embedder, Index, Store
    from recto.search.retriever import Retriever
    from recto.types import Mode

_EMBED = logging.getLogger("recto.contracts.retrieval_test.embed")
_SEARCH = logging.getLogger("recto.contracts.retrieval_test.search")


class Backend:
    """Embeds queries and searches collections as the settings say."""

    def __init__(self, settings: Settings | None = None, notify: Notify = _SEARCH.info) -> None:
        self._given = settings
        self._settings = settings
        self._notify = notify
        self._embedder: Embedder | None = None
        self._store: Store | None = None
        self._retrievers: dict[str, Retriever] = {}
        self._opening = threading.RLock()

    @property
    def settings(self) -> Settings:
        """What is configured; read once."""
        with self._opening:
            if self._settings is None:
                self._settings = load_settings()
            return self._settings

    @property
    def model(self) -> str:
        """The embedding model, as results of different models are told apart."""
        return self._open_embedder().fingerprint.model

    @property
    def dim(self) -> int:
        """How many numbers the model's vectors have."""
        return self._open_embedder().dim

    def embed(self, query_text: str) -> list[float]:
        """Embed one question."""
        text = checks.checked_query(query_text)
        if checks.looks_like_injection(text):
            _EMBED.info("the query looks like an injection; it is searched for as text: %s", text)
        began = perf_counter()
        try:
            embedder = self._open_embedder()
            vector = embedder.embed_query(text)
        except RectoError as error:
            _EMBED.error("failed: %s", error)
            raise CohereAPIError.of(error) from error
        checks.check_embedding(vector, embedder.dim)
        _EMBED.debug("%d numbers in %.1f ms", len(vector), (perf_counter() - began) * 1e3)
        return vector

    def search(
        self,
        query_embedding: Sequence[float],
        top_k: int = DEFAULT_TOP_K,
        collection_name: str = DEFAULT_COLLECTION,
    ) -> list[SearchResult]:
        """Return the passages nearest to a vector, best first."""
        limit = checks.checked_top_k(top_k)
        index = self.open(collection_name)
        vector = checks.checked_vector(query_embedding, index.info.dim or self.dim)
        began = perf_counter()
        try:
            hits = index.query(vector, limit)
        except RectoError as error:
            _SEARCH.error("failed: %s", error)
            raise QdrantAPIError.of(error) from error
        results = results_of(hits)
        checks.check_results(results, limit)
        _SEARCH.debug("%d results in %.1f ms", len(results), (perf_counter() - began) * 1e3)
        return results

    def search_text(
        self, query_text: str, top_k: int, collection_name: str, mode: Mode
    ) -> tuple[list[SearchResult], float]:
        """Return the passages that match a question in a mode, best first, and the seconds that embedding it took."""
        text, limit = checks.checked_query(query_text), checks.checked_top_k(top_k)
        known = self.open(collection_name).info.warnings
        try:
            response = self._retriever(collection_name).search(text, limit, mode=mode)
        except RectoError as error:
            _SEARCH.error("failed: %s", error)
            raise QdrantAPIError.of(error) from error
        for warning in response.warnings:
            if warning not in known:
                self._notify(f"[WARNING] {warning}")
        results = results_of(response.hits)
        checks.check_results(results, limit)
        return results, response.timings.embed_ms / 1e3

    def open(self, collection_name: str = DEFAULT_COLLECTION) -> Index:
        """Return the current state of a collection, checked: it exists, is not empty, and was made with the same model."""
        try:
            check_collection_name(collection_name, "collection_name")
        except InvalidArgument as error:
            raise ArgumentError(error.message, hint=error.hint) from None
        try:
            return self._retriever(collection_name).open()
        except RectoError as error:
            _SEARCH.error("failed: %s", error)
            raise QdrantAPIError.of(error) from error

    def warm_up(self) -> None:
        """Load the model, so that the first question is as fast as the others."""
        try:
            self._open_embedder().warm_up()
        except RectoError as error:
            raise CohereAPIError.of(error) from error

    def close(self) -> None:
        """Let go of everything; the next call reads the settings and opens it again."""
        with self._opening:
            for part in (self._embedder, self._store):
                if part is not None:
                    part.close()
            self._embedder = self._store = None
            self._retrievers.clear()
            self._settings = self._given

    def __enter__(self) -> Self:
        """Use it in a `with` block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def collection(self, name: str) -> str:
        """Return the collection that is searched: COLLECTION_NAME stands in for the default, not for a name that was chosen."""
        return self.settings.collection_or(name) if name == DEFAULT_COLLECTION else name

    def _retriever(self, name: str) -> Retriever:
        with self._opening:
            collection = self.collection(name)
            if collection not in self._retrievers:
                from recto.api import open_collection, open_store

                if self._store is None:
                    self._store = open_store(self.settings, self._notify)
                self._retrievers[collection] = open_collection(
                    self.settings, self._open_embedder(), self._store, collection, self._notify
                )
            return self._retrievers[collection]

    def _open_embedder(self) -> Embedder:
        with self._opening:
            if self._embedder is None:
                from recto.api import open_embedder

                self._embedder = open_embedder(self.settings, self._notify)
            return self._embedder


COMPONENTS = ("embed", "search", "format", "total")
SLOW_MS = 2000.0

_CLI = logging.getLogger("recto.contracts.retrieval_test.cli")
_FORMAT = logging.getLogger("recto.contracts.retrieval_test.format")


@dataclass(frozen=True, slots=True)
class Answered:
    """A response with what it was made of."""

    response: dict[str, Any]
    results: tuple[SearchResult, ...]
    latency_ms: dict[str, float]


def ask(
    backend: Backend, query: str, top_k: int, collection: str = DEFAULT_COLLECTION, mode: Mode = "dense"
) -> Answered:
    """Validate, embed, search, format; only the query's text is logged, never what was found."""
    text = checked_query(query)
    limit = checked_top_k(top_k)
    _CLI.info("query (top_k %d): %s", limit, text)
    began = perf_counter()
    if mode == "dense":
        vector = backend.embed(text)
        embedded = perf_counter()
        results = backend.search(vector, limit, collection)
    else:
        results, seconds = backend.search_text(text, limit, collection, mode)
        embedded = began + seconds
    searched = perf_counter()
    response = response_of(text, results, limit)
    check_response(response)
    ended = perf_counter()
    _FORMAT.debug("%d results in %.1f ms", len(results), (ended - searched) * 1e3)
    times = (embedded - began, searched - embedded, ended - searched, ended - began)
    latency = {name: round(seconds * 1e3, 3) for name, seconds in zip(COMPONENTS, times, strict=True)}
    if latency["total"] > SLOW_MS:
        _CLI.warning("slow: %.0f ms for %s", latency["total"], text)
    return Answered(response, tuple(results), latency)
