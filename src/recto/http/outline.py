"""A book's pages as a list: what a reader sees before asking anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from recto.errors import ErrorKind, RectoError
from recto.http.strict import shortened
from recto.modules import filter_keys, nearest
from recto.types import Chunk


class ModuleMissing(RectoError):
    """The book has no such module."""

    kind = ErrorKind.MISSING
    label = "Not found"


@dataclass(frozen=True, slots=True)
class OutlinePage:
    """One page, and how many passages it has; `module_keys` are all names of its module."""

    url: str
    title: str
    module: str
    module_keys: tuple[str, ...]
    passages: int
    source: str


@dataclass(frozen=True, slots=True)
class Outline:
    """All pages: modules in reading order, the pages of each in the order of their files. `titles` are those of the modules."""

    pages: tuple[OutlinePage, ...]
    titles: Mapping[str, str] = field(default_factory=dict)

    def of_module(self, module: str) -> Outline:
        """Return the pages of one module, by any of its names, or say which modules there are."""
        asked = set(filter_keys([module]))
        found = tuple(page for page in self.pages if not asked.isdisjoint(page.module_keys))
        if not found:
            names = self.modules()
            near = nearest(module, names)
            raise ModuleMissing(
                f"There is no module '{shortened(module)}'",
                hint=(f"Did you mean '{near}'? " if near else "") + f"Modules: {', '.join(names)}.",
            )
        return Outline(found, self.titles)

    def modules(self) -> dict[str, tuple[int, int]]:
        """Return each module's passages and pages, in the order of the book."""
        found: dict[str, tuple[int, int]] = {}
        for page in self.pages:
            passages, pages = found.get(page.module, (0, 0))
            found[page.module] = (passages + page.passages, pages + 1)
        return found


def outline_of(chunks: Iterable[Chunk], modules: Sequence[tuple[str, str]] = ()) -> Outline:
    """Gather the pages that chunks come from; `modules` are names and titles in reading order."""
    order = {name: place for place, (name, _) in enumerate(modules)}
    found: dict[str, OutlinePage] = {}
    for chunk in chunks:
        known = found.get(chunk.page_url)
        passages = known.passages + 1 if known else 1
        found[chunk.page_url] = OutlinePage(chunk.page_url, chunk.page_title, chunk.module_name, chunk.module_keys, passages, chunk.source)
    pages = sorted(found.values(), key=lambda page: (order.get(page.module, len(order)), page.source, page.url))
    return Outline(tuple(pages), {name: title for name, title in modules if title})
