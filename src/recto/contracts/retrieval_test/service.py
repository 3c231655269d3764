"""Embed, search and format for document 003, with the time of each step."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any, Self

from recto._util.retry import Notify
from recto.contracts.retrieval_test.contract import (
    DEFAULT_COLLECTION,
    DEFAULT_TOP_K,
    ArgumentError,
    CohereAPIError,
    QdrantAPIError,
    SearchResult,
    check_embedding,
    check_response,
    check_results,
    checked_query,
    checked_top_k,
    checked_vector,
    looks_like_injection,
    response_of,
    results_of,
)
from recto.errors import InvalidArgument, RectoError
from recto.settings import Settings, check_collection_name, load_settings
from recto.types import NO_FILTERS, Hit, Mode, Outcome, SearchResponse, Timings

if TYPE_CHECKING:
    from recto.protocols import Embedder, Index, Store
    from recto.search.retriever import Retriever

COMPONENTS = ("embed", "search", "format", "total")
_SLOW_MS = 2000.0
_LOG = logging.getLogger("recto.contracts.retrieval_test")
_CLI, _EMBED, _SEARCH, _FORMAT = map(_LOG.getChild, ("cli", "embed", "search", "format"))


class Backend:
    """Embeds queries and searches collections with the configured embedder and store."""

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
        """The settings, loaded on first use."""
        with self._opening:
            if self._settings is None:
                self._settings = load_settings()
            return self._settings

    @property
    def model(self) -> str:
        """The name of the embedding model."""
        return self._open_embedder().fingerprint.model

    @property
    def store(self) -> Store | None:
        """The store, if a collection was opened."""
        return self._store

    @property
    def dim(self) -> int:
        """The dimension of the model's vectors."""
        return self._open_embedder().dim

    def embed(self, query_text: str, collection_name: str | None = None) -> list[float]:
        """Embed one query, with the model of a collection if one is given."""
        text = checked_query(query_text)
        if looks_like_injection(text):
            _EMBED.info("the query looks like an injection; it is searched as text: %s", text)
        began = perf_counter()
        made_with = None if collection_name is None else self._query_embedder(collection_name)
        try:
            embedder = made_with or self._open_embedder()
            vector = embedder.embed_query(text)
        except RectoError as error:
            _EMBED.error("failed: %s", error)
            raise CohereAPIError.of(error) from error
        check_embedding(vector, embedder.dim)
        _EMBED.debug("%d numbers in %.1f ms", len(vector), (perf_counter() - began) * 1e3)
        return vector

    def search(
        self,
        query_embedding: Sequence[float],
        top_k: int = DEFAULT_TOP_K,
        collection_name: str = DEFAULT_COLLECTION,
    ) -> list[SearchResult]:
        """Return the chunks nearest to a vector, best first."""
        limit = checked_top_k(top_k)
        made_with = self._query_embedder(collection_name)
        if made_with is not self._open_embedder():
            raise QdrantAPIError(
                f"Collection '{collection_name}' was indexed with {made_with.fingerprint}, "
                f"but embed_query embeds with {self._open_embedder().fingerprint}",
                hint="Index the book again, or set RECTO_MODEL to the model that made the collection.",
            )
        results = results_of(self.query(query_embedding, limit, collection_name))
        check_results(results, top_k)
        return results

    def query(self, query_embedding: Sequence[float], top_k: int, collection_name: str) -> Sequence[Hit]:
        """Return the hits nearest to a vector, best first."""
        limit = checked_top_k(top_k)
        index = self.open(collection_name)
        vector = checked_vector(query_embedding, index.info.dim or self.dim)
        began = perf_counter()
        try:
            hits = index.query(vector, limit)
        except RectoError as error:
            _SEARCH.error("failed: %s", error)
            raise QdrantAPIError.of(error) from error
        _SEARCH.debug("%d results in %.1f ms", len(hits), (perf_counter() - began) * 1e3)
        return hits

    def query_text(self, query: str, top_k: int, collection_name: str, mode: Mode) -> SearchResponse:
        """Search for a text in a mode."""
        known = self.open(collection_name).info.warnings
        try:
            response = self._retriever(collection_name).search(query, top_k, mode=mode)
        except RectoError as error:
            _SEARCH.error("failed: %s", error)
            raise QdrantAPIError.of(error) from error
        for warning in response.warnings:
            if warning not in known:
                self._notify(f"[WARNING] {warning}")
        return response

    def open(self, collection_name: str = DEFAULT_COLLECTION) -> Index:
        """Open a collection; raise if it is missing, empty, or made with another model."""
        try:
            check_collection_name(collection_name, "collection_name")
        except InvalidArgument as error:
            raise ArgumentError(error.message, hint=error.hint) from None
        try:
            return self._retriever(collection_name).open()
        except RectoError as error:
            _SEARCH.error("failed: %s", error)
            raise QdrantAPIError.of(error) from error

    def _query_embedder(self, collection_name: str) -> Embedder:
        self.open(collection_name)
        return self._retriever(collection_name).query_embedder

    def warm_up(self) -> None:
        """Load the model, so that the first query is as fast as the others."""
        try:
            self._open_embedder().warm_up()
        except RectoError as error:
            raise CohereAPIError.of(error) from error

    def close(self) -> None:
        """Close the embedder and the store; the next call loads the settings and opens them again."""
        with self._opening:
            for part in (self._embedder, self._store):
                if part is not None:
                    part.close()
            self._embedder = self._store = None
            self._retrievers.clear()
            self._settings = self._given

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def collection(self, name: str) -> str:
        """Return the collection to search: COLLECTION_NAME replaces the default, but no other name."""
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


@dataclass(frozen=True, slots=True)
class FormattedResponse(SearchResponse):
    """A response with document 003's results and JSON, and the time that formatting took."""

    results: tuple[SearchResult, ...] = ()
    document: dict[str, Any] = field(default_factory=dict)
    format_ms: float = 0.0

    @property
    def latency_ms(self) -> dict[str, float]:
        """The milliseconds of each component."""
        steps = (self.timings.embed_ms, self.timings.search_ms, self.format_ms)
        times = (*steps, sum(steps))
        return {name: round(time, 3) for name, time in zip(COMPONENTS, times, strict=True)}


def ask(
    backend: Backend, query: str, top_k: int, collection: str = DEFAULT_COLLECTION, mode: Mode = "dense"
) -> FormattedResponse:
    """Validate a query, embed it, search and format; only the query is logged, never the results."""
    text, limit = checked_query(query), checked_top_k(top_k)
    _CLI.info("query (top_k %d): %s", limit, text)
    began = perf_counter()
    if mode == "dense":
        vector = backend.embed(text, collection)
        embed_ms = (perf_counter() - began) * 1e3
        hits = backend.query(vector, limit, collection)
    else:
        found = backend.query_text(text, limit, collection, mode)
        embed_ms, hits = found.timings.embed_ms, found.hits
    search_ms = (perf_counter() - began) * 1e3 - embed_ms
    response = format_response(text, hits, limit, embed_ms, search_ms)
    if (total := response.latency_ms["total"]) > _SLOW_MS:
        _CLI.warning("slow: %.0f ms for %s", total, text)
    return response


def format_response(
    query: str, hits: Sequence[Hit], top_k: int, embed_ms: float, search_ms: float
) -> FormattedResponse:
    """Format hits as document 003's JSON, and check it."""
    began = perf_counter()
    results = results_of(hits)
    check_results(results, top_k)
    document = response_of(query, results, top_k)
    check_response(document)
    format_ms = (perf_counter() - began) * 1e3
    _FORMAT.debug("%d results in %.1f ms", len(results), format_ms)
    return FormattedResponse(
        query=query,
        hits=tuple(hits),
        filters=NO_FILTERS,
        collection="",
        outcome=Outcome.FOUND if hits else Outcome.NO_MATCH,
        timings=Timings(embed_ms, search_ms, embed_ms + search_ms),
        results=tuple(results),
        document=document,
        format_ms=format_ms,
    )
