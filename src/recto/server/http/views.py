"""Views: pure functions from the core's values to the JSON of the responses."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from starlette.responses import Response

from recto._util.text import filter_keys, nearest
from recto.errors import ErrorKind, RectoError
from recto.search.display import chunk_to_dict, group_ranks, hit_to_dict, is_covered, pick
from recto.search.lexical import QueryWord
from recto.search.pages import BookPage
from recto.server.http.errors import shortened
from recto.server.http.models import ChunkModel, HitModel
from recto.types import Chunk, Hit, IndexInfo, SearchResponse


class ModuleMissing(RectoError):
    """The book does not have the module."""

    kind = ErrorKind.MISSING
    label = "Not found"


@dataclass(frozen=True, slots=True)
class OutlinePage:
    """A page with its number of chunks; `module_keys` are all names of its module."""

    url: str
    title: str
    module: str
    module_keys: tuple[str, ...]
    chunks: int
    source: str


@dataclass(frozen=True, slots=True)
class Outline:
    """All pages in reading order; `titles` are the titles of the modules."""

    pages: tuple[OutlinePage, ...]
    titles: Mapping[str, str] = field(default_factory=dict)

    def of_module(self, module: str) -> Outline:
        """Return the pages of a module, by any of its names."""
        asked = set(filter_keys([module]))
        found = tuple(page for page in self.pages if not asked.isdisjoint(page.module_keys))
        if not found:
            names = self.modules()
            near = nearest(module, names)
            raise ModuleMissing(
                f"There is no module '{shortened(module)}'",
                hint=(f"Did you mean '{near}'? " if near else "") + f"Modules: {', '.join(names)}.",
            )
        return Outline(found, self.titles)

    def modules(self) -> dict[str, tuple[int, int]]:
        """Return the numbers of chunks and pages of each module, in reading order."""
        found: dict[str, tuple[int, int]] = {}
        for page in self.pages:
            chunks, pages = found.get(page.module, (0, 0))
            found[page.module] = (chunks + page.chunks, pages + 1)
        return found


def outline_of(chunks: Iterable[Chunk], modules: Sequence[tuple[str, str]] = ()) -> Outline:
    """Collect the pages of chunks; `modules` are names and titles in reading order."""
    order = {name: place for place, (name, _) in enumerate(modules)}
    found: dict[str, OutlinePage] = {}
    for chunk in chunks:
        known = found.get(chunk.page_url)
        count = known.chunks + 1 if known else 1
        found[chunk.page_url] = OutlinePage(
            chunk.page_url, chunk.page_title, chunk.module_name, chunk.module_keys, count, chunk.source
        )
    pages = sorted(
        found.values(), key=lambda page: (order.get(page.module, len(order)), page.source, page.url)
    )
    return Outline(tuple(pages), {name: title for name, title in modules if title})


_PREVIEW = 200
_CHUNK_FIELDS = tuple(ChunkModel.model_fields)
_HIT_FIELDS = tuple(name for name in HitModel.model_fields if name != "rank")


def respond(data: Mapping[str, Any]) -> Response:
    """Return a JSON response; lone surrogates become question marks."""
    body = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode(
        "utf-8", "replace"
    )
    return Response(body, media_type="application/json")


def contract_view(response: SearchResponse, total_ms: float) -> dict[str, Any]:
    """Return the response of `/retrieve`, in the contract's format."""
    return {
        "query": response.query,
        "results": [_contract_result(hit) for hit in response.hits],
        "total_results": len(response.hits),
        "query_time_ms": round(total_ms, 2),
    }


def _contract_result(hit: Hit) -> dict[str, Any]:
    chunk = hit.chunk
    return {
        "score": round(min(1.0, max(0.0, hit.score)), 6),
        "payload": {
            "url": chunk.page_url,
            "title": chunk.page_title,
            "content": chunk.text,
            "headings": list(chunk.headings),
            "chunk_index": chunk.chunk_index,
            "source_document": chunk.source,
            "metadata": {
                "id": chunk.id,
                "module": chunk.module_name,
                "anchor": chunk.anchor,
                "link": chunk.link,
                "total_chunks": chunk.total_chunks,
                "start_line": chunk.start_line,
                "end_line": chunk.end_line,
                "version": chunk.version,
                "locale": chunk.locale,
            },
        },
        "url": chunk.page_url,
        "title": chunk.page_title,
        "content": preview(chunk.text),
    }


def preview(text: str) -> str:
    """Return the start of a text in one line, cut between words."""
    line = " ".join(text.split())
    if len(line) <= _PREVIEW:
        return line
    cut = line[:_PREVIEW].rpartition(" ")[0] or line[:_PREVIEW]
    return f"{cut}..."


def search_view(response: SearchResponse, words: Sequence[QueryWord]) -> dict[str, Any]:
    """Return the response of `/v1/search`."""
    return {
        "query": response.query,
        "collection": response.collection,
        "generation": response.generation,
        "mode": response.mode,
        "outcome": response.outcome.value,
        "message": response.message,
        "warnings": list(response.warnings),
        "answerable": response.answerable,
        "covered": is_covered(response),
        "corrections": {word: list(meant) for word, meant in response.corrections},
        "noise_floor": response.noise_floor,
        "results": [_ranked(rank, hit, response, words) for rank, hit in enumerate(response.hits, 1)],
        "groups": group_ranks(response),
        "timings": {
            "embed_ms": round(response.timings.embed_ms, 3),
            "search_ms": round(response.timings.search_ms, 3),
            "total_ms": round(response.timings.total_ms, 3),
        },
    }


def related_view(response: SearchResponse, words: Sequence[QueryWord]) -> dict[str, Any]:
    """Return the response of `/v1/related`."""
    chosen = response.selection
    if chosen is None:
        raise ValueError("the response has no selection")
    return search_view(response, words) | {
        "selection": {
            "text": chosen.text,
            "given": chosen.given,
            "cut": chosen.cut,
            "left_out": chosen.left_out,
        }
    }


def _ranked(rank: int, hit: Hit, response: SearchResponse, words: Sequence[QueryWord]) -> dict[str, Any]:
    return {"rank": rank} | pick(hit_to_dict(hit, response, words, digits=6), _HIT_FIELDS)


def page_view(collection: str, page: BookPage) -> dict[str, Any]:
    """Return the chunks of a page in reading order."""
    return {
        "collection": collection,
        "url": page.url,
        "title": page.title,
        "module": page.module,
        "chunks": [pick(chunk_to_dict(chunk), _CHUNK_FIELDS) for chunk in page.chunks],
    }


def modules_view(collection: str, outline: Outline) -> dict[str, Any]:
    """Return the modules with their numbers of chunks and pages."""
    modules = [
        {"name": name, "title": outline.titles.get(name, name), "chunks": chunks, "pages": pages}
        for name, (chunks, pages) in outline.modules().items()
    ]
    return {"collection": collection, "modules": modules}


def pages_view(collection: str, outline: Outline) -> dict[str, Any]:
    """Return the pages with their numbers of chunks."""
    pages = [
        {"url": page.url, "title": page.title, "module": page.module, "chunks": page.chunks}
        for page in outline.pages
    ]
    return {"collection": collection, "pages": pages}


def timestamp(info: IndexInfo) -> str | None:
    """Return when an index was made, in the contract's format, or None if it is unknown."""
    if info.fingerprint is None:
        return None
    try:
        made = datetime.fromisoformat(info.fingerprint.created_at)
    except ValueError:
        return None
    return made.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if made.tzinfo else None
