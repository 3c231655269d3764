"""What a store accepts: engines take wrong numbers in silence."""

from __future__ import annotations

import math
from collections.abc import Sequence

from recto._util.names import page_key
from recto.errors import EmbeddingError
from recto.types import Chunk, Payload, Vector

KEYWORD_FIELDS = ("module_name", "module_keys", "page_key", "book")
INTEGER_FIELDS = ("chunk_index",)
"""Fields that a server gives an index: those that filters, facets and reading in order need."""


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
        "module_title": chunk.module_title,
    }


def from_payload(id: str, payload: Payload) -> Chunk:
    """Read what `to_payload` wrote."""
    return Chunk(
        id=id,
        text=payload["text"],
        page_url=payload["page_url"],
        page_title=payload["page_title"],
        module_name=payload["module_name"],
        module_keys=tuple(payload["module_keys"]),
        headings=tuple(payload["headings"]),
        anchor=payload["anchor"],
        chunk_index=payload["chunk_index"],
        total_chunks=payload["total_chunks"],
        start_line=payload["start_line"],
        end_line=payload["end_line"],
        content_hash=payload["content_hash"],
        source=payload["source"],
        book=payload.get("book", ""),
        anchors=tuple(payload.get("anchors", ())),
        version=payload.get("version", ""),
        locale=payload.get("locale", ""),
        revision=payload.get("revision", ""),
        module_title=payload.get("module_title", ""),
    )


def check_vectors(chunks: Sequence[Chunk], vectors: Sequence[Vector], dim: int) -> None:
    """Refuse a batch in which any vector does not have the dimension or is not finite."""
    for chunk, vector in zip(chunks, vectors, strict=True):
        if len(vector) != dim or not all(map(math.isfinite, vector)):
            raise EmbeddingError(
                f"The vector of {chunk.page_url} (chunk {chunk.chunk_index}) is not {dim} finite numbers",
                hint="Check the embedding model; nothing was published.",
            )
