"""The data for all systems: chunks of a book as files, and queries about it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

import recto
from recto import Chunk, Settings

SUITE = Path(recto.__file__).parent / "sample" / "development.json"
_FILTERED_SHARE = 0.2  # a module with about a fifth of the book: neither all of it nor a few chunks


@dataclass(frozen=True, slots=True)
class Book:
    """A book's chunks, queries about it, and the module for filtered queries."""

    name: str
    chunks: tuple[Chunk, ...]
    queries: tuple[str, ...]
    module: str
    share: float


def read_book(docs: Path | None, home: Path, most: int, threads: int) -> Book:
    """Index a book, by default the sample book, and take queries evenly from the sample's suite."""
    from recto.api import sample_source

    settings = Settings("local", "edge", home, threads=threads)
    recto.index(docs or sample_source(), "book", settings=settings)
    with recto.connect("book", settings=settings) as retriever:
        chunks = sorted(retriever.open().scroll(), key=lambda chunk: (chunk.source, chunk.chunk_index))
    counts = Counter(chunk.module for chunk in chunks)
    module = min(counts, key=lambda name: (abs(counts[name] / len(chunks) - _FILTERED_SHARE), name))
    queries = [expectation.query for expectation in recto.load_suite(SUITE).expectations]
    queries = queries[:: max(1, len(queries) // most)][:most]
    name = docs.name if docs else "the sample book"
    return Book(name, tuple(chunks), tuple(queries), module, counts[module] / len(chunks))


def write_pieces(book: Book, size: int, folder: Path) -> Path:
    """Write a number of chunks, one per line; beyond the size of the book, numbered copies."""
    path = folder / f"pieces-{size}.jsonl"
    if not path.exists():
        path.write_text("".join(f"{json.dumps(piece)}\n" for piece in _pieces(book, size)), "utf-8")
    return path


def _pieces(book: Book, size: int) -> Iterator[dict[str, Any]]:
    for number in range(size):
        chunk, copy = book.chunks[number % len(book.chunks)], number // len(book.chunks)
        fields = asdict(chunk)
        if copy:
            fields["id"] = str(uuid5(UUID(chunk.id), str(copy)))
            fields["text"] = f"{chunk.text}\n\nCopy {copy}."
        heading = " > ".join(chunk.headings)
        yield {
            "id": fields["id"],
            "text": f"{heading}\n\n{fields['text']}",
            "module": chunk.module,
            "page_url": chunk.page_url,
            "source": chunk.source,
            "chunk": fields,
        }
