"""The data for all systems: any number of chunks of a book, queries, and precomputed vectors."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bench.chunk_quality import BookQuestion
from bench.peers.runners.embedding import key
from bench.vectors import Vectors
from recto.book.chunking import DEFAULT_SIZE, PlannedChunk, chunk_page
from recto.book.parsing import read
from recto.protocols import Source
from recto.types.search import Chunk

_NOISE = 0.35  # length of the noise in the vector of a copy: its cosine to the original is about 0.94
_SEED = 8


@dataclass(frozen=True, slots=True)
class Dataset:
    """Chunks and vectors of one size, as files."""

    size: int
    folder: Path
    real: int

    @property
    def pieces(self) -> Path:
        """The file with one chunk per line."""
        return self.folder / "pieces.jsonl"


@dataclass(frozen=True, slots=True)
class Book:
    """A book's chunks, queries about it, and the module for filtered queries."""

    name: str
    inputs: tuple[PlannedChunk, ...]
    questions: tuple[str, ...]
    module: str
    share: float


def read_book(source: Source, asked: Sequence[BookQuestion], vectors: Vectors, most: int) -> Book:
    """Read and chunk a book; take queries evenly from the whole list."""
    inputs = [
        one
        for page in source.pages()
        for one in chunk_page(page, read(page), source.book, vectors.count, vectors.max_tokens, DEFAULT_SIZE)
    ]
    step = max(1, len(asked) // most)
    # Copies do not change the share of a module: filter by one with about a fifth of the book at every size.
    counts = Counter(one.chunk.module for one in inputs)
    module = min(counts, key=lambda name: (abs(counts[name] / len(inputs) - 0.2), name))
    questions = tuple(question.text for question in asked[::step][:most])
    return Book(source.book, tuple(inputs), questions, module, counts[module] / len(inputs))


def write_dataset(book: Book, size: int, vectors: Vectors, scratch: Path) -> Dataset:
    """Write a number of chunks with vectors; beyond the book's size, modified copies with a nearby vector."""
    import numpy as np

    folder = scratch / f"dataset-{size}"
    folder.mkdir(parents=True, exist_ok=True)
    base = book.inputs[: min(size, len(book.inputs))]
    known = vectors.documents([one.embedded for one in base], f"chunks of {book.name}")
    asked = vectors.questions(list(book.questions), f"questions about {book.name}")
    rows = np.empty((size + len(asked), known.shape[1]), np.float32)
    names = []
    with (folder / "pieces.jsonl").open("w", encoding="utf-8") as lines:
        for number, piece in enumerate(_pieces(base, size)):
            lines.write(json.dumps(piece) + "\n")
            names.append(key(piece["text"]))
            rows[number] = known[number % len(base)]
    noise = np.random.default_rng(_SEED)
    for start in range(len(base), size, 10_000):
        end = min(size, start + 10_000)
        added = noise.standard_normal((end - start, known.shape[1]), np.float32)
        rows[start:end] += added * (_NOISE / np.linalg.norm(added, axis=1, keepdims=True))
        rows[start:end] /= np.linalg.norm(rows[start:end], axis=1, keepdims=True)
    rows[size:] = asked
    _write_vectors(folder, [*names, *map(key, book.questions)], rows)
    return Dataset(size, folder, len(base))


def write_texts(
    texts: dict[str, str], questions: Sequence[str], vectors: Vectors, scratch: Path, name: str
) -> Dataset:
    """Write texts by their ids, and queries about them; texts that are too long are cut for all systems."""
    import numpy as np

    folder = scratch / f"dataset-{name}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "pieces.jsonl").open("w", encoding="utf-8") as lines:
        for number, (id, text) in enumerate(texts.items()):
            chunk = Chunk(
                id,
                text,
                f"local://{name}/{number}",
                name,
                name,
                (name,),
                (),
                "",
                0,
                1,
                1,
                1,
                key(text),
                str(number),
            )
            lines.write(json.dumps(_piece(chunk, text)) + "\n")
    every = [*texts.values(), *questions]
    rows = np.concatenate(
        [
            vectors.questions(list(texts.values()), f"texts of {name}"),
            vectors.questions(list(questions), f"questions, {name}"),
        ]
    )
    _write_vectors(folder, [key(text) for text in every], rows)
    return Dataset(len(texts), folder, len(texts))


def _write_vectors(folder: Path, names: Sequence[str], rows: Any) -> None:
    import numpy as np

    np.save(folder / "vectors.npy", rows)
    (folder / "texts.txt").write_text("\n".join(names), "ascii")


def _pieces(base: Sequence[PlannedChunk], size: int) -> Iterator[dict[str, Any]]:
    for number in range(size):
        one, copy = base[number % len(base)], number // len(base)
        chunk, text = one.chunk, one.embedded
        if copy:
            text = f"{text}\n\nCopy {copy}."
            chunk = replace(
                chunk, id=_id(chunk.id, copy), text=f"{chunk.text}\n\nCopy {copy}.", content_hash=key(text)
            )
        yield _piece(chunk, text)


def _piece(chunk: Chunk, text: str) -> dict[str, Any]:
    return {
        "id": chunk.id,
        "text": text,
        "module": chunk.module,
        "page_url": chunk.page_url,
        "source": chunk.source,
        "chunk": asdict(chunk),
    }


def _id(id: str, copy: int) -> str:
    from uuid import UUID, uuid5

    return str(uuid5(UUID(id), str(copy)))
