"""Places in a book as people name them: a page by its address or its path, and an anchor on it."""

from __future__ import annotations

from dataclasses import dataclass

from recto.addresses import page_key
from recto.errors import InvalidArgument
from recto.modules import nearest
from recto.protocols import Index
from recto.types import Chunk, Filters


@dataclass(frozen=True, slots=True)
class Place:
    """A page and, if one is named, an anchor on it."""

    page: str
    anchor: str = ""

    def __str__(self) -> str:
        """The way it was written."""
        return f"{self.page}#{self.anchor}" if self.anchor else self.page


@dataclass(frozen=True, slots=True)
class Found:
    """The passages of a place; where there are none, `missing` says why and `near` what was perhaps meant."""

    chunks: tuple[Chunk, ...]
    missing: str = ""
    near: str = ""


def parse_place(text: str) -> Place:
    """Read `page#anchor`."""
    page, _, anchor = text.strip().partition("#")
    if not page:
        raise InvalidArgument("--expect needs a page, as page#anchor", hint="Name it by its address, or by its path in the book.")
    return Place(page, anchor)


def find_place(index: Index, place: Place) -> Found:
    """Return the passages of a place, or say what of it is not in the index."""
    chunks = list(index.scroll(Filters(page_url=place.page))) or _by_path(index, place.page)
    if isinstance(chunks, str):
        return Found((), f"There is no page '{place.page}' in the index.", chunks)
    if not place.anchor:
        return Found(tuple(chunks))
    there = tuple(chunk for chunk in chunks if place.anchor in (chunk.anchor, *chunk.anchors))
    if there:
        return Found(there)
    anchors = dict.fromkeys(anchor for chunk in chunks for anchor in (chunk.anchor, *chunk.anchors) if anchor)
    if not anchors:
        return Found(tuple(chunks), f"No anchors are stored for '{place.page}', so the whole page counts.")
    near = nearest(place.anchor, anchors)
    return Found((), f"There is no '#{place.anchor}' on '{place.page}'.", f"{place.page}#{near}" if near else "")


def _by_path(index: Index, page: str) -> list[Chunk] | str:
    """Return the passages of the page with a path in the book, or the nearest name that there is."""
    wanted = page_key(page)
    known: dict[str, str] = {}
    found: list[Chunk] = []
    for chunk in index.scroll():
        known[page_key(chunk.source)] = chunk.source
        known[page_key(chunk.page_url)] = chunk.page_url
        if wanted == page_key(chunk.source):
            found.append(chunk)
    return found or _nearest(wanted, known)


def _nearest(wanted: str, known: dict[str, str]) -> str:
    """Guess by the whole name, else by its last part: people leave out what stands before it."""
    meant = nearest(wanted, known)
    if meant is None:
        last = {_last(name): name for name in known}
        meant = last.get(nearest(_last(wanted), last) or "")
    return known[meant] if meant else ""


def _last(name: str) -> str:
    return name.rpartition("/")[2]
