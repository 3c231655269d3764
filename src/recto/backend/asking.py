"""Ask one question from end to end, with the time of every step."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from recto.backend.checks import check_response, checked_query, checked_top_k
from recto.backend.contract import DEFAULT_COLLECTION, SearchResult, response_of
from recto.backend.service import Backend
from recto.types import Mode

COMPONENTS = ("embed", "search", "format", "total")
SLOW_MS = 2000.0

_CLI = logging.getLogger("recto.backend.cli")
_FORMAT = logging.getLogger("recto.backend.format")


@dataclass(frozen=True, slots=True)
class Answered:
    """A response with what it was made of."""

    response: dict[str, Any]
    results: tuple[SearchResult, ...]
    latency_ms: dict[str, float]


def ask(backend: Backend, query: str, top_k: int, collection: str = DEFAULT_COLLECTION, mode: Mode = "dense") -> Answered:
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
