"""Make chunks, vectors and fingerprints for tests, without a book and without a model."""

from __future__ import annotations

import hashlib
import math
import random
import uuid
import zlib
from collections.abc import Sequence
from dataclasses import replace

from recto.errors import EmbeddingError
from recto.protocols import Progress, Store
from recto.search.analyzer import ANALYZER
from recto.search.lexical import LexiconBuilder
from recto.types.index import EmbedderFingerprint, Fingerprint, IndexInfo
from recto.types.search import Chunk, Vector

DIM = 8
EMBEDDER = EmbedderFingerprint("test-model", "r1", DIM)


class HashEmbedder:
    """Hashes the words of a text into a vector: fast, deterministic, and near for texts that share words."""

    dim = 64
    max_tokens = 256
    fingerprint = EmbedderFingerprint("recto-testing-hash", "1", dim)

    def warm_up(self) -> None:
        """Do nothing."""

    def count_tokens(self, text: str) -> int:
        """Count the words."""
        return len(text.split())

    def embed_query(self, text: str) -> Vector:
        """Embed one query."""
        vector = [0.0] * self.dim
        for word in text.lower().split()[: self.max_tokens] or [""]:
            vector[zlib.crc32(word.encode("utf-8", "replace")) % self.dim] += 1.0
        length = math.hypot(*vector)
        return [number / length for number in vector]

    def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        """Embed several queries."""
        return [self.embed_query(text) for text in texts]

    def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> list[Vector]:
        """Embed chunks."""
        if any(self.count_tokens(text) > self.max_tokens for text in texts):
            raise EmbeddingError(f"A text has more than {self.max_tokens} words", hint="Split it.")
        if progress and texts:
            progress(len(texts), len(texts))
        return self.embed_queries(texts)

    def close(self) -> None:
        """Do nothing."""


def chunk(
    number: int, *, module: str = "ros2", directory: str = "module-1-ros2", page: str = "a", text: str = ""
) -> Chunk:
    """Return a chunk; its number is its place in the page."""
    text = text or f"Passage {number}"
    return Chunk(
        id=str(uuid.uuid5(uuid.NAMESPACE_URL, f"{page}/{number}")),
        text=text,
        page_url=f"local://docs/docs/{page}",
        title=page.upper(),
        module=module,
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
    """Return a random vector of length one; the same one for the same seed."""
    numbers = random.Random(seed)
    raw = [numbers.gauss(0, 1) for _ in range(dim)]
    length = math.sqrt(sum(number * number for number in raw))
    return [number / length for number in raw]


def fingerprint(book: str = "test-book", embedder: EmbedderFingerprint = EMBEDDER) -> Fingerprint:
    """Return the fingerprint of an index without lexical vectors."""
    created = ("0" * 64, 1, "0", "2026-01-01T00:00:00+00:00")
    return Fingerprint(
        embedder, "recto-1", book, "somewhere", *created, title="The book", logo="data:image/png;base64,AA=="
    )


def publish(store: Store, name: str, chunks: list[Chunk], *, book: str = "test-book") -> IndexInfo:
    """Publish chunks without lexical vectors; the seeds of the dense vectors count from zero."""
    with store.build(name, EMBEDDER, rebuild=True) as build:
        build.add(chunks, [vector(number) for number in range(len(chunks))])
        return build.publish(fingerprint(book))


def publish_lexical(
    store: Store, name: str, chunks: list[Chunk], *, rebuild: bool = True, book: str = "test-book"
) -> IndexInfo:
    """Publish chunks with lexical vectors; a chunk's number is the seed of its dense vector."""
    lexicon = LexiconBuilder()
    with store.build(name, EMBEDDER, analyzer=ANALYZER, rebuild=rebuild) as build:
        build.add(chunks, [vector(one.chunk_index) for one in chunks], lexicon.vectors(chunks))
        return build.publish(replace(fingerprint(book), analyzer=ANALYZER), lexicon.to_bytes())
