"""What every query, vector, result and response must be; checked at run time, so that a broken promise is an error and no answer."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar
from urllib.parse import quote, urlsplit

from recto.errors import ErrorKind, InvalidArgument, InvalidQuery, RectoError
from recto.search.query import FLAGS, check_query, check_top_k
from recto.types import Hit


class QueryError(InvalidQuery, ValueError):
    """The query is empty, too long, or no text."""


class ArgumentError(InvalidArgument, ValueError):
    """A number of results or a vector that cannot be searched with."""

    label = ""


class APIError(RectoError):
    """An engine could not do its part; `reason` tells a missing collection from an empty one and from a broken connection."""

    kind = ErrorKind.CONNECTION
    label = ""
    component: ClassVar[str]

    def __init__(self, message: str, *, hint: str = "", reason: ErrorKind = ErrorKind.CONNECTION) -> None:
        super().__init__(message, hint=hint)
        self.reason = reason

    @classmethod
    def of(cls, error: RectoError) -> APIError:
        """Return the contract's error for one of the core's, whose messages never have a key in them."""
        return cls(str(error), hint=error.hint, reason=error.kind)


class CohereAPIError(APIError):
    """The query could not be embedded: by Cohere, or by the local model where that is configured."""

    component = "EMBED"


class QdrantAPIError(APIError):
    """The collection could not be searched: on a Qdrant server, or in the embedded engine where that is configured."""

    component = "SEARCH"


class ResponseError(APIError):
    """What would be answered is not what the contract promises."""

    component = "FORMAT"


def error_document(message: str, hint: str, kind: str, component: str = "CLI") -> dict[str, Any]:
    """Return what is printed instead of results."""
    return {"error": {"kind": kind, "component": component, "message": message, "hint": hint}}


def kind_of(error: RectoError) -> str:
    """Return the kind that a script can act on."""
    return (error.reason if isinstance(error, APIError) else error.kind).value


SCHEMA_VERSION = "1.0"
DEFAULT_COLLECTION = "website_embeddings"
DEFAULT_TOP_K = 5
MAX_TOP_K = 50

_SAFE_IN_URL = "/:?#[]@!$&'()*+,;=%-._~"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")


@dataclass(frozen=True, slots=True)
class Metadata:
    """Where a passage stands."""

    url: str
    page_title: str
    chunk_index: int
    total_chunks: int
    source: str


@dataclass(frozen=True, slots=True)
class SearchResult:
    """One passage; `modules` are the names of the book's part that it is from, which the JSON does not show."""

    rank: int
    score: float
    text: str
    metadata: Metadata
    modules: tuple[str, ...] = ()


def results_of(hits: Sequence[Hit]) -> list[SearchResult]:
    """Return hits as the contract has them, in their order; what another pipeline did not store is filled in."""
    return [_result(rank, hit) for rank, hit in enumerate(hits, 1)]


def response_of(query: str, results: Sequence[SearchResult], top_k: int) -> dict[str, Any]:
    """Return the flat response; the same input always gives the same output."""
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
    """Whether a text is an absolute address without characters that an address cannot have."""
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
        page_title=_text(chunk.page_title).strip() or url,
        chunk_index=chunk.chunk_index,
        total_chunks=max(chunk.total_chunks, chunk.chunk_index + 1),
        source=_text(chunk.source) or url,
    )
    # A score is shown to six places: what is behind them differs between machines.
    return SearchResult(
        rank, round(min(1.0, max(0.0, hit.score)), 6), _text(chunk.text), metadata, chunk.module_keys
    )


def _address(url: str, id: str) -> str:
    """Return an absolute address: a path without a host, as some pipelines store it, is one in the local book."""
    url = _text(url).strip()
    if valid_url(url):
        return url
    escaped = quote(url.replace("\\", "/"), safe=_SAFE_IN_URL)
    if valid_url(escaped):
        return escaped
    path = quote(url.replace("\\", "/").lstrip("/"), safe="/#-._~")
    return f"local://{path}" if path else f"local://chunk/{quote(id, safe='')}"


def _text(text: str) -> str:
    """Return a text that can be written as UTF-8: half of a surrogate pair is no character."""
    return text.encode("utf-8", "replace").decode("utf-8")


_FOREIGN = "The collection holds points that Recto cannot show; `recto index PATH` makes a new one."
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


def checked_query(query: Any) -> str:
    """Return the text that is searched for, or say why there is none."""
    try:
        return check_query("" if query is None else query)
    except InvalidQuery as error:
        raise QueryError(error.message, hint=error.hint) from None


def checked_top_k(top_k: Any) -> int:
    """Return the number of results, or say why it cannot be asked for."""
    try:
        check_top_k(top_k, MAX_TOP_K, FLAGS.top_k)
    except InvalidArgument as error:
        raise ArgumentError(error.message, hint=error.hint) from None
    return int(top_k)


def looks_like_injection(query: str) -> bool:
    """Whether a query has the look of an attack; it is searched for like any other text, and worth a line in the log."""
    return _INJECTION.search(query) is not None


def check_embedding(vector: Sequence[Any], dim: int) -> None:
    """Refuse a vector of the embedder that does not have the model's dimension or is not finite."""
    if problem := _vector_problem(vector, dim):
        raise CohereAPIError(
            f"The embedder's answer cannot be used: {problem}", hint="Try again; check RECTO_MODEL."
        )


def checked_vector(vector: Any, dim: int | None) -> list[float]:
    """Return a caller's vector if it fits the collection, or say why it does not."""
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
    """Refuse results that are not what a search promises."""
    if len(results) > top_k:
        raise _broken(f"{len(results)} results where at most {top_k} were asked for")
    best = math.inf
    for place, result in enumerate(results, 1):
        if result.rank != place:
            raise _broken(f"result {place} has rank {result.rank}")
        if not 0.0 <= result.score <= 1.0:  # which a number that is none fails too
            raise _broken(f"result {place} has a score of {result.score}")
        if result.score > best:
            raise _broken(f"result {place} has a higher score than the one before it")
        best = result.score
        meta = result.metadata
        if not valid_url(meta.url):
            raise _broken(f"result {place} has no usable address: {meta.url[:80]!r}")
        if not meta.page_title.strip():
            raise _broken(f"result {place} has no page title")
        if not 0 <= meta.chunk_index < meta.total_chunks:
            raise _broken(f"result {place} is chunk {meta.chunk_index} of {meta.total_chunks}")


def check_response(response: Mapping[str, Any]) -> None:
    """Refuse a response that is not JSON or lacks a field of the contract."""
    try:
        again = json.loads(json.dumps(response, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ResponseError(
            f"The response cannot be written as JSON: {error}", hint=_FOREIGN, reason=ErrorKind.DAMAGED
        ) from None
    _fields(again, RESPONSE_FIELDS, "The response")
    if again["result_count"] != len(again["results"]):
        raise ResponseError(
            "result_count is not the number of results", hint=_FOREIGN, reason=ErrorKind.DAMAGED
        )
    for place, result in enumerate(again["results"], 1):
        _fields(result, RESULT_FIELDS, f"Result {place}")
        _fields(result["metadata"], METADATA_FIELDS, f"The metadata of result {place}")


def _fields(value: Any, fields: Mapping[str, type], what: str) -> None:
    for name, kind in fields.items():
        found = value.get(name) if isinstance(value, dict) else None
        if not isinstance(found, kind) or isinstance(found, bool):
            raise ResponseError(
                f"{what} has no {name} of type {kind.__name__}", hint=_FOREIGN, reason=ErrorKind.DAMAGED
            )


def _vector_problem(vector: Sequence[Any], dim: int) -> str:
    if len(vector) != dim or dim == 0:
        return f"{len(vector)} numbers where {dim or 'some'} are needed"
    if not all(isinstance(number, int | float) and not isinstance(number, bool) for number in vector):
        return "not everything in it is a number"
    return "" if all(map(math.isfinite, vector)) else "not every number is finite"


def _broken(what: str) -> QdrantAPIError:
    return QdrantAPIError(
        f"The engine's answer cannot be used: {what}", hint=_FOREIGN, reason=ErrorKind.DAMAGED
    )
