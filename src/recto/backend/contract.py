"""The contract's view of a search: results with clamped scores and whole metadata, and the flat JSON response."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from recto.types import Hit

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
            {"rank": result.rank, "score": result.score, "text": result.text, "metadata": asdict(result.metadata)} for result in results
        ],
    }


def valid_url(url: str) -> bool:
    """Whether a text is an absolute address without characters that an address cannot have."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return bool(_SCHEME.fullmatch(parts.scheme)) and bool(parts.netloc) and url.isprintable() and not re.search(r"\s", url)


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
    return SearchResult(rank, round(min(1.0, max(0.0, hit.score)), 6), _text(chunk.text), metadata, chunk.module_keys)


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
