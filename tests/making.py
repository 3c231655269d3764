"""Make chunks, vectors and fingerprints for tests of stores: real values without a book."""

from __future__ import annotations

import hashlib
import math
import random
import uuid
from dataclasses import replace

from recto.protocols import Store
from recto.search.analyzer import ANALYZER
from recto.search.lexical import LexiconBuilder
from recto.types import Chunk, EmbedderFingerprint, Fingerprint, IndexInfo, Vector

DIM = 8
EMBEDDER = EmbedderFingerprint("test-model", "r1", DIM)


def chunk(
    number: int, *, module: str = "ros2", directory: str = "module-1-ros2", page: str = "a", text: str = ""
) -> Chunk:
    text = text or f"Passage {number}"
    return Chunk(
        id=str(uuid.uuid5(uuid.NAMESPACE_URL, f"{page}/{number}")),
        text=text,
        page_url=f"local://docs/docs/{page}",
        page_title=page.upper(),
        module_name=module,
        module_keys=(module, directory),
        headings=(page.upper(), f"Section {number}"),
        anchor=f"section-{number}",
        chunk_index=number,
        total_chunks=number + 1,
        start_line=number + 1,
        end_line=number + 2,
        content_hash=hashlib.sha256(text.encode()).hexdigest(),
        source=f"{page}.md",
    )


def vector(seed: int, dim: int = DIM) -> Vector:
    numbers = random.Random(seed)
    raw = [numbers.gauss(0, 1) for _ in range(dim)]
    length = math.sqrt(sum(number * number for number in raw))
    return [number / length for number in raw]


def fingerprint(book: str = "test-book", embedder: EmbedderFingerprint = EMBEDDER) -> Fingerprint:
    return Fingerprint(embedder, "recto-1", book, "somewhere", "0" * 64, 1, "0", "2026-01-01T00:00:00+00:00")


def publish(store: Store, name: str, chunks: list[Chunk], *, book: str = "test-book") -> IndexInfo:
    with store.build(name, EMBEDDER, rebuild=True) as build:
        build.add(chunks, [vector(number) for number in range(len(chunks))])
        return build.publish(fingerprint(book))


def publish_lexical(
    store: Store, name: str, chunks: list[Chunk], *, rebuild: bool = True, book: str = "test-book"
) -> IndexInfo:
    """Publish chunks with lexical vectors and a vocabulary; a chunk's dense vector depends on its number alone."""
    lexicon = LexiconBuilder()
    with store.build(name, EMBEDDER, analyzer=ANALYZER, rebuild=rebuild) as build:
        build.add(chunks, [vector(one.chunk_index) for one in chunks], lexicon.vectors(chunks))
        return build.publish(replace(fingerprint(book), analyzer=ANALYZER), lexicon.to_bytes())
