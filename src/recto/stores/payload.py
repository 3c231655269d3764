"""Recto's own payload: how a chunk is stored next to its vector, in every store alike."""

from __future__ import annotations

from typing import Any

from recto.addresses import page_key
from recto.types import Chunk, Payload

KEYWORD_FIELDS = ("module_name", "module_keys", "page_key", "book")
INTEGER_FIELDS = ("chunk_index",)
"""Fields with an index: those that filters, facets and reading in order need."""


def to_payload(chunk: Chunk) -> Payload:
    """Return what is stored of a chunk; the id is the point's own."""
    return {
        "text": chunk.text,
        "page_url": chunk.page_url,
        "page_key": page_key(chunk.page_url),
        "page_title": chunk.page_title,
        "module_name": chunk.module_name,
        "module_keys": list(chunk.module_keys),
        "headings": list(chunk.headings),
        "anchor": chunk.anchor,
        "anchors": list(chunk.anchors),
        "chunk_index": chunk.chunk_index,
        "total_chunks": chunk.total_chunks,
        "start_line": chunk.start_line,
        "end_line": chunk.end_line,
        "content_hash": chunk.content_hash,
        "source": chunk.source,
        "book": chunk.book,
        "version": chunk.version,
        "locale": chunk.locale,
        "revision": chunk.revision,
    }


class _OpenChunk:
    """A chunk in the making: same fields, not yet frozen. A frozen class sets its fields one slow call each, in every hit of a search."""

    __slots__ = Chunk.__slots__


def from_payload(id: str, payload: Payload) -> Chunk:
    """Read what `to_payload` wrote."""
    open_chunk: Any = _OpenChunk()
    open_chunk.id = id
    open_chunk.text = payload["text"]
    open_chunk.page_url = payload["page_url"]
    open_chunk.page_title = payload["page_title"]
    open_chunk.module_name = payload["module_name"]
    open_chunk.module_keys = tuple(payload["module_keys"])
    open_chunk.headings = tuple(payload["headings"])
    open_chunk.anchor = payload["anchor"]
    open_chunk.chunk_index = payload["chunk_index"]
    open_chunk.total_chunks = payload["total_chunks"]
    open_chunk.start_line = payload["start_line"]
    open_chunk.end_line = payload["end_line"]
    open_chunk.content_hash = payload["content_hash"]
    open_chunk.source = payload["source"]
    open_chunk.book = payload.get("book", "")
    open_chunk.anchors = tuple(payload.get("anchors", ()))
    open_chunk.version = payload.get("version", "")
    open_chunk.locale = payload.get("locale", "")
    open_chunk.revision = payload.get("revision", "")
    open_chunk.__class__ = Chunk
    chunk: Chunk = open_chunk
    return chunk
