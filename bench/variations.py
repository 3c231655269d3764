"""Chunk pages with Recto's reader and chunker, in variations of the embedded text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from bench.vectors import Vectors
from recto.book.chunking import ChunkSize, PlannedChunk, chunk_page
from recto.book.parsing import read
from recto.types.book import Page
from recto.types.search import Chunk

Variation = Literal["default", "no heading path", "one sentence of overlap"]
VARIATIONS: tuple[Variation, ...] = ("default", "no heading path", "one sentence of overlap")

_SENTENCE = re.compile(r"(?<=[.!?…])[\"'”’)\]]*\s+")
_WORDS = 3  # fewer are not a sentence


@dataclass(frozen=True, slots=True)
class EmbeddedChunk:
    """A chunk, its embedded text, and the text that it repeats from the previous chunk."""

    chunk: Chunk
    embedded: str
    repeated: str = ""


def chunk_pages(
    pages: Iterable[Page], book: str, size: ChunkSize, vectors: Vectors, variation: Variation = "default"
) -> list[EmbeddedChunk]:
    """Read and chunk pages, and change the embedded text according to the variation."""
    found: list[EmbeddedChunk] = []
    for page in pages:
        inputs = chunk_page(page, read(page), book, vectors.count, vectors.max_tokens, size)
        if variation == "no heading path":
            found += [EmbeddedChunk(one.chunk, one.chunk.text) for one in inputs]
        elif variation == "one sentence of overlap":
            found += _overlapping(inputs, vectors)
        else:
            found += [EmbeddedChunk(one.chunk, one.embedded) for one in inputs]
    return found


def _overlapping(inputs: list[PlannedChunk], vectors: Vectors) -> list[EmbeddedChunk]:
    """Prefix each chunk with the last sentence of the previous one of its section, if the model has room."""
    divided: list[EmbeddedChunk] = []
    before: PlannedChunk | None = None
    for one in inputs:
        chunk = one.chunk
        repeated = (
            _last_sentence(before.chunk.text) if before and before.chunk.headings == chunk.headings else ""
        )
        embedded = (
            f"{one.embedded.removesuffix(chunk.text)}{repeated}\n{chunk.text}" if repeated else one.embedded
        )
        if vectors.count(embedded) > vectors.max_tokens:
            repeated, embedded = "", one.embedded
        divided.append(EmbeddedChunk(chunk, embedded, repeated))
        before = one
    return divided


def _last_sentence(text: str) -> str:
    """Return the last sentence of a text's last line, unless it ends a fence or a table."""
    sentence = _SENTENCE.split(text.rsplit("\n", 1)[-1])[-1]
    return sentence if len(sentence.split()) >= _WORDS else ""
