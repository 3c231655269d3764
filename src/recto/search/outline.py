"""The outline of a book: its modules and pages in reading order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from recto._util.text import filter_keys, nearest, shortened
from recto.errors import ErrorKind, RectoError
from recto.protocols import Index
from recto.types.search import Chunk

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
    """All pages in reading order, the `titles` of the modules, and the `title` of the book, or ""."""

    pages: tuple[OutlinePage, ...]
    titles: Mapping[str, str] = field(default_factory=dict)
    title: str = ""

    def of_module(self, module: str) -> Outline:
        """Return the pages of a module, by any of its names."""
        asked = set(filter_keys([module]))
        pages = tuple(page for page in self.pages if not asked.isdisjoint(page.module_keys))
        if not pages:
            names = self.modules()
            near = nearest(module, names)
            raise ModuleMissing(
                f"There is no module '{shortened(module)}'",
                hint=(f"Did you mean '{near}'? " if near else "") + f"Modules: {', '.join(names)}.",
            )
        return replace(self, pages=pages)

    def modules(self) -> dict[str, tuple[int, int]]:
        """Return the numbers of chunks and pages of each module, in reading order."""
        counts: dict[str, tuple[int, int]] = {}
        for page in self.pages:
            chunks, pages = counts.get(page.module, (0, 0))
            counts[page.module] = (chunks + page.chunks, pages + 1)
        return counts


def _sort_key(source: str) -> list[tuple[bool, str]]:
    """Return a sort key for the path of a page: the landing page of a directory comes first in it."""
    *folders, name = re.sub(r"\.\w+$", "", source).split("/")
    return [*((True, folder) for folder in folders), (not _LANDING.fullmatch(name), name)]


def outline_of(chunks: Iterable[Chunk], modules: Sequence[tuple[str, str]] = ()) -> Outline:
    """Collect the pages of chunks; `modules` are names and titles in reading order."""
    order = {name: number for number, (name, _) in enumerate(modules)}
    by_url: dict[str, OutlinePage] = {}
    for chunk in chunks:
        before = by_url.get(chunk.page_url)
        count = before.chunks + 1 if before else 1
        by_url[chunk.page_url] = OutlinePage(
            chunk.page_url, chunk.title, chunk.module, chunk.module_keys, count, chunk.source
        )
    pages = sorted(
        by_url.values(),
        key=lambda page: (order.get(page.module, len(order)), _sort_key(page.source), page.source, page.url),
    )
    return Outline(tuple(pages), {name: title for name, title in modules if title})


def read_outline(index: Index) -> Outline:
    """Return the outline of an index."""
    fingerprint = index.info.fingerprint
    if fingerprint is None:
        return outline_of(index.scroll())
    return replace(outline_of(index.scroll(), fingerprint.modules), title=fingerprint.title)
