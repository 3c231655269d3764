"""Document 003's types, errors and checks of queries, vectors, results and responses."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar
from urllib.parse import quote, urlsplit

from recto._util.numbers import clamp
from recto._util.text import encodable
from recto.errors import ErrorKind, InvalidArgument, InvalidQuery, RectoError
from recto.search.query import FLAGS, check_query, check_top_k
from recto.types import Hit

SCHEMA_VERSION = "1.0"
DEFAULT_COLLECTION = "website_embeddings"
DEFAULT_TOP_K = 5
MAX_TOP_K = 50
_SAFE_IN_URL = "/:?#[]@!$&'()*+,;=%-._~"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_FOREIGN = "The collection has points that Recto cannot read. Make a new one with `recto index PATH`."
_INJECTION = re.compile(
    r"(?i)\b(?:union\s+select|drop\s+table|insert\s+into|delete\s+from|or\s+1\s*=\s*1)\b|<script\b|\$\{jndi:|\{\{.*\}\}|;\s*--"
)
RESPONSE_FIELDS: Mapping[str, type] = {
    "schema_version": str,
    "query": str,
    "top_k": int,
    "result_count": int,
    "results": list,
}
RESULT_FIELDS: Mapping[str, type] = {"rank": int, "score": float, "text": str, "metadata": dict}
METADATA_FIELDS: Mapping[str, type] = {
    "url": str,
    "page_title": str,
    "chunk_index": int,
    "total_chunks": int,
    "source": str,
}


class QueryError(InvalidQuery, ValueError):
    """The query is empty, too long, or not a string."""


class ArgumentError(InvalidArgument, ValueError):
    """The number of results or the vector is invalid."""

    label = ""


class APIError(RectoError):
    """Embedding or search failed; `reason` is the kind of the underlying error."""

    kind = ErrorKind.CONNECTION
    label = ""
    component: ClassVar[str]

    def __init__(self, message: str, *, hint: str = "", reason: ErrorKind = ErrorKind.CONNECTION) -> None:
        super().__init__(message, hint=hint)
        self.reason = reason

    @classmethod
    def of(cls, error: RectoError) -> APIError:
        """Return the contract's error for a core error, whose message never contains a key."""
        return cls(str(error), hint=error.hint, reason=error.kind)


class CohereAPIError(APIError):
    """Cohere, or the configured local model, could not embed the query."""

    component = "EMBED"


class QdrantAPIError(APIError):
    """Qdrant, or the configured embedded engine, could not search the collection."""

    component = "SEARCH"


class ResponseError(APIError):
    """The response does not conform to the contract."""

    component = "FORMAT"


def error_document(message: str, hint: str, kind: str, component: str = "CLI") -> dict[str, Any]:
    """Return the JSON of an error."""
    return {"error": {"kind": kind, "component": component, "message": message, "hint": hint}}


def kind_of(error: RectoError) -> str:
    """Return the kind of an error, for scripts."""
    return (error.reason if isinstance(error, APIError) else error.kind).value


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
    """One result; `modules` are the names of its module, which the JSON does not contain."""

    rank: int
    score: float
    text: str
    metadata: Metadata
    modules: tuple[str, ...] = ()


def results_of(hits: Sequence[Hit]) -> list[SearchResult]:
    """Convert hits to the contract's results, and fill in fields that other pipelines do not store."""
    return [_result(rank, hit) for rank, hit in enumerate(hits, 1)]


def response_of(query: str, results: Sequence[SearchResult], top_k: int) -> dict[str, Any]:
    """Return the JSON response."""
    return {
        "schema_version": SCHEMA_VERSION,
        "query": query,
        "top_k": top_k,
        "result_count": len(results),
        "results": [
            {
                "rank": result.rank,
                "score": result.score,
                "text": result.text,
                "metadata": asdict(result.metadata),
            }
            for result in results
        ],
    }


def valid_url(url: str) -> bool:
    """Return whether a text is an absolute URL without invalid characters."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return (
        bool(_SCHEME.fullmatch(parts.scheme))
        and bool(parts.netloc)
        and url.isprintable()
        and not re.search(r"\s", url)
    )


def _result(rank: int, hit: Hit) -> SearchResult:
    chunk = hit.chunk
    url = _address(chunk.page_url, chunk.id)
    metadata = Metadata(
        url=url,
        page_title=encodable(chunk.page_title).strip() or url,
        chunk_index=chunk.chunk_index,
        total_chunks=max(chunk.total_chunks, chunk.chunk_index + 1),
        source=encodable(chunk.source) or url,
    )
    # Six decimals: further ones differ between machines.
    return SearchResult(rank, round(clamp(hit.score), 6), encodable(chunk.text), metadata, chunk.module_keys)


def _address(url: str, id: str) -> str:
    """Return an absolute URL; a path without a host, as some pipelines store it, becomes a `local://` URL."""
    url = encodable(url).strip()
    if valid_url(url):
        return url
    escaped = quote(url.replace("\\", "/"), safe=_SAFE_IN_URL)
    if valid_url(escaped):
        return escaped
    path = quote(url.replace("\\", "/").lstrip("/"), safe="/#-._~")
    return f"local://{path}" if path else f"local://chunk/{quote(id, safe='')}"


def checked_query(query: Any) -> str:
    """Return the stripped query, or raise."""
    try:
        return check_query("" if query is None else query)
    except InvalidQuery as error:
        raise QueryError(error.message, hint=error.hint) from None


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
    if problem := _vector_problem(vector, dim):
        raise CohereAPIError(
            f"The embedder returned a vector that cannot be used: {problem}",
            hint="Try again; check RECTO_MODEL.",
        )


def checked_vector(vector: Any, dim: int | None) -> list[float]:
    """Return a caller's vector, or raise if it does not fit the collection."""
    if not isinstance(vector, list | tuple):
        raise ArgumentError(
            f"query_embedding must be a list of numbers, not {type(vector).__name__}",
            hint="Pass what embed_query returned.",
        )
    if problem := _vector_problem(vector, len(vector) if dim is None else dim):
        raise ArgumentError(
            f"query_embedding cannot be used: {problem}", hint="Pass what embed_query returned."
        )
    return [float(number) for number in vector]


def check_results(results: Sequence[SearchResult], top_k: int) -> None:
    """Raise if results are not in order, or have an invalid score or field."""
    if len(results) > top_k:
        raise _broken(f"{len(results)} results where at most {top_k} were asked for")
    best = math.inf
    for number, result in enumerate(results, 1):
        if result.rank != number:
            raise _broken(f"result {number} has rank {result.rank}")
        if not 0.0 <= result.score <= 1.0:  # also false for NaN
            raise _broken(f"result {number} has a score of {result.score}")
        if result.score > best:
            raise _broken(f"result {number} has a higher score than the one before it")
        best = result.score
        meta = result.metadata
        if not valid_url(meta.url):
            raise _broken(f"result {number} has no usable address: {meta.url[:80]!r}")
        if not meta.page_title.strip():
            raise _broken(f"result {number} has no page title")
        if not 0 <= meta.chunk_index < meta.total_chunks:
            raise _broken(f"result {number} is chunk {meta.chunk_index} of {meta.total_chunks}")


def check_response(response: Mapping[str, Any]) -> None:
    """Raise if a response does not serialise to JSON or lacks a field."""
    try:
        again = json.loads(json.dumps(response, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise _invalid(f"The response cannot be written as JSON: {error}") from None
    _fields(again, RESPONSE_FIELDS, "The response")
    if again["result_count"] != len(again["results"]):
        raise _invalid("result_count is not the number of results")
    for number, result in enumerate(again["results"], 1):
        _fields(result, RESULT_FIELDS, f"Result {number}")
        _fields(result["metadata"], METADATA_FIELDS, f"The metadata of result {number}")


def _fields(value: Any, fields: Mapping[str, type], what: str) -> None:
    for name, kind in fields.items():
        found = value.get(name) if isinstance(value, dict) else None
        if not isinstance(found, kind) or isinstance(found, bool):
            raise _invalid(f"{what} has no {name} of type {kind.__name__}")


def _vector_problem(vector: Sequence[Any], dim: int) -> str:
    if len(vector) != dim or dim == 0:
        return f"{len(vector)} numbers where {dim or 'some'} are needed"
    if not all(isinstance(number, int | float) and not isinstance(number, bool) for number in vector):
        return "not everything in it is a number"
    return "" if all(map(math.isfinite, vector)) else "not every number is finite"


def _invalid(message: str) -> ResponseError:
    return ResponseError(message, hint=_FOREIGN, reason=ErrorKind.DAMAGED)


def _broken(what: str) -> QdrantAPIError:
    return QdrantAPIError(
        f"The engine's answer cannot be used: {what}", hint=_FOREIGN, reason=ErrorKind.DAMAGED
    )
