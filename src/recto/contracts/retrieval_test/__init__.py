"""Document 003: embed a query, search for it, and format the results, with its errors and checks."""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar

from recto._util import clamp
from recto._util.text import absolute_url, encodable, is_absolute_url
from recto.api import LazyConnection
from recto.contracts import DEFAULT_COLLECTIONS, TEST_COLLECTION
from recto.errors import ErrorKind, InvalidArgument, RectoError
from recto.plugins import Notify
from recto.search.pipeline import nearest_chunks
from recto.search.query import FLAGS, check_query, check_top_k, current_edition, vector_problem
from recto.settings import Settings, check_collection_name
from recto.types.request import DEFAULT_TOP_K
from recto.types.search import Hit, Mode

if TYPE_CHECKING:
    from recto.search.retriever import Retriever

SCHEMA_VERSION = "1.0"
MAX_TOP_K = 50
COMPONENTS = ("embed", "search", "format", "total")
_SLOW_MS = 2000.0
_LOG = logging.getLogger("recto.contracts.retrieval_test")
_CLI, _EMBED, _SEARCH, _FORMAT = map(_LOG.getChild, ("cli", "embed", "search", "format"))
_FOREIGN = "The collection has points that Recto cannot read. Make a new one with `recto index PATH`."
_INJECTION = re.compile(
    r"(?i)\b(?:union\s+select|drop\s+table|insert\s+into|delete\s+from|or\s+1\s*=\s*1)\b|<script\b|\$\{jndi:|\{\{.{0,1000}?\}\}|;\s*--"
)
_RESPONSE_TYPES = {"schema_version": str, "query": str, "top_k": int, "result_count": int, "results": list}


class ArgumentError(InvalidArgument):
    """The number of results, the vector or the name of the collection is invalid."""

    label = ""


class APIError(RectoError):
    """Embedding or search failed; `reason` is the kind of the underlying error."""

    kind = ErrorKind.CONNECTION
    label = ""
    component: ClassVar[str]

    def __init__(self, message: str, *, hint: str = "", reason: ErrorKind = ErrorKind.CONNECTION) -> None:
        super().__init__(message, hint=hint)
        self.reason = reason


class CohereAPIError(APIError):
    """Cohere, or the configured local model, could not embed the query."""

    component = "EMBED"


class QdrantAPIError(APIError):
    """Qdrant, or the configured embedded engine, could not search the collection."""

    component = "SEARCH"


class ResponseError(APIError):
    """The response does not conform to the contract."""

    component = "FORMAT"


@contextmanager
def raising(kind: type[APIError]) -> Iterator[None]:
    """Log errors of the core, whose messages never contain a key, and raise the contract's error instead."""
    try:
        yield
    except RectoError as error:
        _LOG.getChild(kind.component.lower()).error("failed: %s", error)
        raise kind(str(error), hint=error.hint, reason=error.kind) from error


@dataclass(frozen=True, slots=True)
class Metadata:
    """The source of a result."""

    url: str
    page_title: str
    chunk_index: int
    total_chunks: int
    source: str


@dataclass(frozen=True, slots=True)
class SearchResult:
    """One result."""

    rank: int
    score: float
    text: str
    metadata: Metadata


@dataclass(frozen=True, slots=True)
class FormattedResponse:
    """The results of a query, their JSON, and the milliseconds of each component."""

    query: str
    hits: tuple[Hit, ...]
    results: tuple[SearchResult, ...]
    document: dict[str, Any]
    latency_ms: dict[str, float]


class Backend(LazyConnection):
    """Embeds queries and searches collections with the configured embedder and store."""

    def __init__(self, settings: Settings | None = None, notify: Notify = _SEARCH.info) -> None:
        super().__init__(settings, notify, DEFAULT_COLLECTIONS)

    def collection(self, name: str) -> str:
        """Return the collection to search: COLLECTION_NAME replaces the default, but no other name."""
        return self.settings.collection_or(name) if name == TEST_COLLECTION else name

    def retriever(self, collection: str = TEST_COLLECTION) -> Retriever:
        """Return the retriever of a collection; raise if it is missing, empty, or made with another model."""
        try:
            check_collection_name(collection, "collection_name")
        except InvalidArgument as error:
            raise ArgumentError(error.message, hint=error.hint) from None
        with raising(QdrantAPIError):
            retriever = super().retriever(self.collection(collection))
            retriever.open()
            return retriever

    def embed(self, query_text: str, collection_name: str | None = None) -> list[float]:
        """Embed one query, with the model of a collection if one is given."""
        text = checked_query(query_text)
        if looks_like_injection(text):
            _EMBED.info("the query looks like an injection; it is searched as text: %s", text)
        began = perf_counter()
        retriever = None if collection_name is None else self.retriever(collection_name)
        with raising(CohereAPIError):
            embedder = self.embedder if retriever is None else retriever.query_embedder
            vector = embedder.embed_query(text)
        check_embedding(vector, embedder.dim)
        _EMBED.debug("%d numbers in %.1f ms", len(vector), (perf_counter() - began) * 1e3)
        return vector

    def search(
        self,
        query_embedding: Sequence[float],
        top_k: int = DEFAULT_TOP_K,
        collection_name: str = TEST_COLLECTION,
    ) -> list[SearchResult]:
        """Return the chunks nearest to a vector of `embed`, best first."""
        limit = checked_top_k(top_k)
        query_embedder = self.retriever(collection_name).query_embedder
        if query_embedder is not self.embedder:
            raise QdrantAPIError(
                f"Collection '{collection_name}' was indexed with {query_embedder.fingerprint}, "
                f"but embed_query embeds with {self.embedder.fingerprint}",
                hint="Index the book again, or set RECTO_MODEL to the model that made the collection.",
            )
        results = results_of(self.query(query_embedding, limit, collection_name))
        check_results(results, limit)
        return results

    def query(self, query_embedding: Sequence[float], top_k: int, collection_name: str) -> Sequence[Hit]:
        """Return the hits nearest to a vector, best first."""
        index = self.retriever(collection_name).open()
        vector = checked_vector(query_embedding, index.info.dim or self.embedder.dim)
        began = perf_counter()
        with raising(QdrantAPIError):
            (hits,) = nearest_chunks(index, [vector], top_k, current_edition(index))
        _SEARCH.debug("%d results in %.1f ms", len(hits), (perf_counter() - began) * 1e3)
        return hits


def ask(
    backend: Backend, query: str, top_k: int, collection: str = TEST_COLLECTION, mode: Mode = "dense"
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
        retriever = backend.retriever(collection)
        with raising(QdrantAPIError):
            response = retriever.search(text, top_k=limit, mode=mode)
        for warning in set(response.warnings) - set(retriever.open().info.warnings):
            backend.notify(f"[WARNING] {warning}")
        embed_ms, hits = response.timings.embed_ms, response.hits
    search_ms = (perf_counter() - began) * 1e3 - embed_ms
    formatted = format_response(text, hits, limit, embed_ms, search_ms)
    if (total := formatted.latency_ms["total"]) > _SLOW_MS:
        _CLI.warning("slow: %.0f ms for %s", total, text)
    return formatted


def format_response(
    query: str, hits: Sequence[Hit], top_k: int, embed_ms: float, search_ms: float
) -> FormattedResponse:
    """Format hits as document 003's JSON, and check it."""
    began = perf_counter()
    results = results_of(hits)
    document = format_results(query, results, top_k)
    format_ms = (perf_counter() - began) * 1e3
    _FORMAT.debug("%d results in %.1f ms", len(results), format_ms)
    times = (embed_ms, search_ms, format_ms, embed_ms + search_ms + format_ms)
    latency = {name: round(ms, 3) for name, ms in zip(COMPONENTS, times, strict=True)}
    return FormattedResponse(query, tuple(hits), tuple(results), document, latency)


def format_results(query: str, results: Sequence[SearchResult], top_k: int) -> dict[str, Any]:
    """Check a query and its results, and return their JSON."""
    text, limit = checked_query(query), checked_top_k(top_k)
    check_results(results, limit)
    response = response_of(text, results, limit)
    check_response(response)
    return response


def response_of(query: str, results: Sequence[SearchResult], top_k: int) -> dict[str, Any]:
    """Return the JSON of results."""
    return {
        "schema_version": SCHEMA_VERSION,
        "query": query,
        "top_k": top_k,
        "result_count": len(results),
        "results": [asdict(result) for result in results],
    }


def results_of(hits: Sequence[Hit]) -> list[SearchResult]:
    """Convert hits to the contract's results, and fill in fields that other pipelines do not store."""
    return [_result(rank, hit) for rank, hit in enumerate(hits, 1)]


def _result(rank: int, hit: Hit) -> SearchResult:
    chunk = hit.chunk
    url = absolute_url(chunk.page_url, f"chunk/{chunk.id}")
    metadata = Metadata(
        url=url,
        page_title=encodable(chunk.title).strip() or url,
        chunk_index=chunk.chunk_index,
        total_chunks=max(chunk.total_chunks, chunk.chunk_index + 1),
        source=encodable(chunk.source) or url,
    )
    # Six decimals: further ones differ between machines.
    return SearchResult(rank, round(clamp(hit.score), 6), encodable(chunk.text), metadata)


def checked_query(query: Any) -> str:
    """Return the stripped query, or raise."""
    return check_query("" if query is None else query)


def checked_top_k(top_k: Any) -> int:
    """Return the number of results, or raise."""
    try:
        check_top_k(top_k, MAX_TOP_K, FLAGS.top_k)
    except InvalidArgument as error:
        raise ArgumentError(error.message, hint=error.hint) from None
    return int(top_k)


def looks_like_injection(query: str) -> bool:
    """Return whether a query looks like an attack; it is logged, and searched like any other."""
    return _INJECTION.search(query) is not None


def check_embedding(vector: Sequence[Any], dim: int) -> None:
    """Raise if an embedder's vector has the wrong dimension or is not finite."""
    if problem := vector_problem(vector, dim):
        message = f"The embedder returned a vector that cannot be used: {problem}"
        raise CohereAPIError(message, hint="Try again; check RECTO_MODEL.")


def checked_vector(vector: Any, dim: int) -> list[float]:
    """Return a caller's vector, or raise if it does not fit the collection."""
    hint = "Pass what embed_query returned."
    if not isinstance(vector, list | tuple):
        message = f"query_embedding must be a list of numbers, not {type(vector).__name__}"
        raise ArgumentError(message, hint=hint)
    if problem := vector_problem(vector, dim):
        raise ArgumentError(f"query_embedding cannot be used: {problem}", hint=hint)
    return [float(number) for number in vector]


def check_results(results: Sequence[SearchResult], top_k: int) -> None:
    """Raise if results are not in order, or have an invalid score or field."""
    problem = f"{len(results)} results where at most {top_k} were asked for" if len(results) > top_k else ""
    best = math.inf
    for number, result in enumerate(results, 1):
        problem = problem or _result_problem(number, result, best)
        best = result.score
    if problem:
        message = f"The engine's answer cannot be used: {problem}"
        raise QdrantAPIError(message, hint=_FOREIGN, reason=ErrorKind.DAMAGED)


def _result_problem(number: int, result: SearchResult, best: float) -> str:
    meta = result.metadata
    problems = {
        f"has rank {result.rank}": result.rank != number,
        f"has a score of {result.score}": not 0.0 <= result.score <= 1.0,  # also for NaN
        "has a higher score than the one before it": result.score > best,
        f"has no usable address: {meta.url[:80]!r}": not is_absolute_url(meta.url),
        "has no page title": not meta.page_title.strip(),
        f"is chunk {meta.chunk_index} of {meta.total_chunks}": not 0 <= meta.chunk_index < meta.total_chunks,
    }
    return next((f"result {number} {problem}" for problem, exists in problems.items() if exists), "")


def check_response(response: Mapping[str, Any]) -> None:
    """Raise if a response does not serialise to JSON, or lacks a field."""
    problem = ""
    try:
        json.dumps(response, allow_nan=False)
        for result in response["results"]:
            SearchResult(**{**result, "metadata": Metadata(**result["metadata"])})
    except (KeyError, TypeError, ValueError) as error:
        problem = f": {error}"
    # `type`, not `isinstance`: True is not a number of results.
    types = {name: type(response.get(name)) for name in _RESPONSE_TYPES}
    if problem or types != _RESPONSE_TYPES or response["result_count"] != len(response["results"]):
        message = f"The response does not conform to the schema{problem}"
        raise ResponseError(message, hint=_FOREIGN, reason=ErrorKind.DAMAGED)


def error_document(error: RectoError) -> dict[str, Any]:
    """Return the JSON of an error."""
    if isinstance(error, APIError):
        return problem_document(str(error), error.hint, error.reason.value, error.component)
    return problem_document(str(error), error.hint, error.kind.value)


def problem_document(message: str, hint: str, kind: str, component: str = "CLI") -> dict[str, Any]:
    """Return the JSON of a problem that is not a `RectoError`."""
    return {"error": {"kind": kind, "component": component, "message": message, "hint": hint}}
