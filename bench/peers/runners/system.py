"""The interface of every system, and the data that it gets."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from bench.peers.runners.embedding import Embedding

COLLECTION = "bench"


@dataclass(frozen=True, slots=True)
class Piece:
    """A chunk as a system gets it: the embedded text, fields for filters, and the whole chunk for Recto."""

    id: str
    text: str
    module: str
    page_url: str
    source: str
    chunk: dict[str, Any]


Found = list[tuple[str, str]]
"""The ids and the files of the found chunks, best first."""


class System(Protocol):
    """A measured system; each method does what the system's documentation shows."""

    def load(self) -> None:
        """Import what a search needs."""

    def index(self, pieces: Sequence[Piece], folder: Path, embedding: Embedding) -> None:
        """Embed and store chunks so that another process can open them."""

    def open(self, folder: Path, embedding: Embedding) -> None:
        """Open what `index` or `read` stored."""

    def ask(self, question: str, top: int, module: str | None) -> Any:
        """Search as a user of the system does, and return its result."""

    def found(self, answer: Any) -> Found:
        """Return ids and files of a result; not timed."""


@runtime_checkable
class BookLoader(Protocol):
    """A system that can also read the files of a book."""

    def read(self, docs: Path, folder: Path, embedding: Embedding) -> int:
        """Load, split, embed and store a directory of Markdown files; return the number of chunks."""

    def texts(self, answer: Any) -> list[str]:
        """Return the texts of a result, for a language model."""


def pieces(path: Path) -> Iterator[Piece]:
    """Read chunks, one per line."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield Piece(**json.loads(line))


def markdown_files(docs: Path) -> list[Path]:
    """Return the files of a book in a stable order."""
    return sorted(path for path in docs.rglob("*") if path.suffix in {".md", ".mdx"})


def relative(path: str, docs: str) -> str:
    """Return the path of a file within its book."""
    return path.removeprefix(docs).lstrip("/")
