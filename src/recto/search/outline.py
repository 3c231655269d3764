"""The outline of a book: its modules and pages in reading order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from recto._util.text import filter_keys, nearest, shortened
from recto.errors import ErrorKind, RectoError
from recto.protocols import Index
from recto.types import Chunk

_LANDING = re.compile(r"(?:\d+[-_. ]+)?(?:index|readme|intro|introduction|overview)", re.IGNORECASE)


class ModuleMissing(RectoError):
    """The book does not have the module."""

    kind = ErrorKind.MISSING
    label = "Not found"


@dataclass(frozen=True, slots=True)
class OutlinePage:
    """A page with its number of chunks; `module_keys` are all names of its module."""

    url: str
    title: str
    module: str
    module_keys: tuple[str, ...]
    chunks: int
    source: str


@dataclass(frozen=True, slots=True)
class Outline:
    """All pages in reading order; `titles` are those of the modules, `title` is that of the book or ""."""

    pages: tuple[OutlinePage, ...]
    titles: Mapping[str, str] = field(default_factory=dict)
    title: str = ""

    def of_module(self, module: str) -> Outline:
        """Return the pages of a module, by any of its names."""
        asked = set(filter_keys([module]))
        found = tuple(page for page in self.pages if not asked.isdisjoint(page.module_keys))
        if not found:
            names = self.modules()
            near = nearest(module, names)
            raise ModuleMissing(
                f"There is no module '{shortened(module)}'",
                hint=(f"Did you mean '{near}'? " if near else "") + f"Modules: {', '.join(names)}.",
            )
        return replace(self, pages=found)

    def modules(self) -> dict[str, tuple[int, int]]:
        """Return the numbers of chunks and pages of each module, in reading order."""
        found: dict[str, tuple[int, int]] = {}
        for page in self.pages:
            chunks, pages = found.get(page.module, (0, 0))
            found[page.module] = (chunks + page.chunks, pages + 1)
        return found


def _place(source: str) -> list[tuple[bool, str]]:
    """Return a sort key for the path of a page: the landing page of a directory comes first in it."""
    *folders, name = re.sub(r"\.\w+$", "", source).split("/")
    return [*((True, folder) for folder in folders), (not _LANDING.fullmatch(name), name)]


def outline_of(chunks: Iterable[Chunk], modules: Sequence[tuple[str, str]] = ()) -> Outline:
    """Collect the pages of chunks; `modules` are names and titles in reading order."""
    order = {name: place for place, (name, _) in enumerate(modules)}
    found: dict[str, OutlinePage] = {}
    for chunk in chunks:
        known = found.get(chunk.page_url)
        count = known.chunks + 1 if known else 1
        found[chunk.page_url] = OutlinePage(
            chunk.page_url, chunk.page_title, chunk.module_name, chunk.module_keys, count, chunk.source
        )
    pages = sorted(
        found.values(),
        key=lambda page: (order.get(page.module, len(order)), _place(page.source), page.source, page.url),
    )
    return Outline(tuple(pages), {name: title for name, title in modules if title})


def read_outline(index: Index) -> Outline:
    """Return the outline of an index."""
    made = index.info.fingerprint
    outline = outline_of(index.scroll(), made.modules if made else ())
    return replace(outline, title=made.title) if made else outline
