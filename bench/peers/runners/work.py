"""What every system is asked to do, and the material it is given."""

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
    """A passage as it is handed to a system: what is embedded, what it is filtered by, and for Recto the whole chunk."""

    id: str
    text: str
    module: str
    page_url: str
    source: str
    chunk: dict[str, Any]


Found = list[tuple[str, str]]
"""The ids of the passages found and the files they are from, best first."""


class System(Protocol):
    """A system under test; all of it in the way that its own documentation shows."""

    def load(self) -> None:
        """Import what a search needs."""

    def index(self, pieces: Sequence[Piece], folder: Path, embedding: Embedding) -> None:
        """Embed and store passages so that another process can open them."""

    def open(self, folder: Path, embedding: Embedding) -> None:
        """Open what `index` or `read` has stored."""

    def ask(self, question: str, top: int, module: str | None) -> Any:
        """Search as a user of the system does, and return what it returns."""

    def found(self, answer: Any) -> Found:
        """Name what was found; not timed."""


@runtime_checkable
class Reader(Protocol):
    """A system that can also take in a book's files by itself."""

    def read(self, docs: Path, folder: Path, embedding: Embedding) -> int:
        """Load, split, embed and store a directory of Markdown as the documentation shows; return how many passages there are."""

    def split(self, file: Path) -> list[str]:
        """Return the passages that a Markdown file is split into."""


def pieces(path: Path) -> Iterator[Piece]:
    """Read passages, one a line."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield Piece(**json.loads(line))


def markdown_files(docs: Path) -> list[Path]:
    """Return the files of a book in a stable order."""
    return sorted(path for path in docs.rglob("*") if path.suffix in {".md", ".mdx"})


def relative(path: str, docs: str) -> str:
    """Name a file within its book."""
    return path.removeprefix(docs).lstrip("/")
