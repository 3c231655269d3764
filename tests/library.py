"""A book of thirteen short pages about a household: large enough for statistics, small enough to embed in a moment.

`library.txt` has its text: a line with a path begins a page, `heading: text` is a section, and `+ module: text`
is added to each section of a module, so that it is long enough for a chunk of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from recto.book.sources.tree import open_book
from recto.indexing.indexer import IndexJob, IndexReport, index_book
from recto.protocols import Embedder, Source
from recto.stores.edge import EdgeStore

FILE = Path(__file__).with_suffix(".txt")


def _read() -> tuple[dict[str, list[tuple[str, str]]], dict[str, str]]:
    pages: dict[str, list[tuple[str, str]]] = {}
    endings: dict[str, str] = {}
    for line in filter(None, FILE.read_text("utf-8").splitlines()):
        heading, separator, text = line.partition(": ")
        if not separator:
            pages[line] = []
        elif heading.startswith("+ "):
            endings[heading.removeprefix("+ ")] = text
        else:
            pages[list(pages)[-1]].append((heading, text))
    return pages, endings


PAGES, ENDINGS = _read()


def write_library(root: Path) -> Path:
    """Write the book."""
    for name, sections in PAGES.items():
        ending = next(text for module, text in ENDINGS.items() if module in name)
        blocks = [
            f"{'#' if number == 0 else '##'} {heading}\n\n{text} {ending}\n"
            for number, (heading, text) in enumerate(sections)
        ]
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(blocks), "utf-8")
    (root / "welcome.md").write_text(
        "# Welcome\n\nThis book is about the garden, the kitchen and the workshop of a house.\n", "utf-8"
    )
    return root


def write_index(book: Path | Source, embedder: Embedder, home: Path, name: str, **more: Any) -> IndexReport:
    """Index a book in an embedded store."""
    job = IndexJob(open_book(book) if isinstance(book, Path) else book, embedder, **more)
    return index_book(job, EdgeStore(home), name, journal=home / "journal")
