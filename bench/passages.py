"""Chunk pages with Recto's reader and chunker, in variations of the embedded text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from bench.vectors import Vectors
from recto.book.chunking import ChunkSize, EmbeddingInput, chunk_page
from recto.book.parsing.formats import read
from recto.types import Chunk, Page

Variation = Literal["default", "no heading path", "one sentence of overlap"]
VARIATIONS: tuple[Variation, ...] = ("default", "no heading path", "one sentence of overlap")

_SENTENCE = re.compile(r"(?<=[.!?…])[\"'”’)\]]*\s+")
_WORDS = 3  # fewer are not a sentence


@dataclass(frozen=True, slots=True)
class Divided:
    """A chunk, its embedded text, and the text that it repeats from the previous chunk."""

    chunk: Chunk
    embedded: str
    repeated: str = ""


def divide(
    pages: Iterable[Page], book: str, size: ChunkSize, vectors: Vectors, variation: Variation = "default"
) -> list[Divided]:
    """Read and chunk pages, and change the embedded text according to the variation."""
    found: list[Divided] = []
    for page in pages:
        passages = chunk_page(page, read(page), book, vectors.count, vectors.max_tokens, size)
        if variation == "no heading path":
            found += [Divided(passage.chunk, passage.chunk.text) for passage in passages]
        elif variation == "one sentence of overlap":
            found += _overlapping(passages, vectors)
        else:
            found += [Divided(passage.chunk, passage.embedded) for passage in passages]
    return found


def _overlapping(passages: list[EmbeddingInput], vectors: Vectors) -> list[Divided]:
    """Prefix each chunk with the last sentence of the previous one of its section, if the model has room."""
    divided: list[Divided] = []
    before: EmbeddingInput | None = None
    for passage in passages:
        chunk = passage.chunk
        repeated = (
            _last_sentence(before.chunk.text) if before and before.chunk.headings == chunk.headings else ""
        )
        embedded = (
            f"{passage.embedded.removesuffix(chunk.text)}{repeated}\n{chunk.text}"
            if repeated
            else passage.embedded
        )
        if vectors.count(embedded) > vectors.max_tokens:
            repeated, embedded = "", passage.embedded
        divided.append(Divided(chunk, embedded, repeated))
        before = passage
    return divided


def _last_sentence(text: str) -> str:
    """Return the last sentence of a text's last line, unless it ends a fence or a table."""
    sentence = _SENTENCE.split(text.rsplit("\n", 1)[-1])[-1]
    return sentence if len(sentence.split()) >= _WORDS else ""
