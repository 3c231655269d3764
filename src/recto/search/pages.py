"""A page of the book as it is indexed: its passages in order, put together again as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from recto._util.names import nearest, page_key
from recto.errors import InvalidArgument, PageMissing
from recto.protocols import Index
from recto.search.query import is_text
from recto.types import Chunk, Filters

_LARGEST_LEVEL = 6


@dataclass(frozen=True, slots=True)
class BookPage:
    """The passages of one page, in the page's order."""

    url: str
    title: str
    module: str
    chunks: tuple[Chunk, ...]

    def section(self, anchor: str) -> tuple[Chunk, ...]:
        """Return the passages of the section that an anchor opens, those of the sections below it included."""
        chunks = self.chunks
        first = next(
            (place for place, chunk in enumerate(chunks) if anchor in (chunk.anchor, *chunk.anchors)), None
        )
        if first is None:
            known = dict.fromkeys(name for chunk in chunks for name in (chunk.anchor, *chunk.anchors) if name)
            near = nearest(anchor, known)
            raise PageMissing(
                f"There is no section '#{anchor}' on {self.url}",
                hint=f"Did you mean '#{near}'?" if near else "Leave the anchor out to get the whole page.",
            )
        path = chunks[first].headings
        last = first + 1
        while last < len(chunks) and (
            anchor in chunks[last].anchors or chunks[last].headings[: len(path)] == path
        ):
            last += 1
        return chunks[first:last]

    def markdown(self, anchor: str = "") -> str:
        """Return the page, or the section that an anchor opens, with its headings put back."""
        return "\n\n".join(_blocks(self.section(anchor) if anchor else self.chunks))


def read_page(index: Index, url: str, collection: str) -> BookPage:
    """Return a page by its address, spelled as people spell it; an anchor behind it is not looked at.

    `collection` is the name that the caller knows the index by.
    """
    if not is_text(url) or not url.strip():
        raise InvalidArgument("A page needs an address", hint="Take it from a search's results.")
    address = url.partition("#")[0]
    chunks = sorted(index.scroll(Filters(page_url=address)), key=lambda chunk: (chunk.chunk_index, chunk.id))
    if not chunks:
        known = index.pages()
        part = page_key(address).strip("/")
        near = next((page for page in known if page.endswith(f"/{part}")), None) or nearest(
            page_key(address), known
        )
        raise PageMissing(
            f"There is no page '{address}' in '{collection}'",
            hint=f"Did you mean '{near}'?" if near else "Take the address from a search's results.",
        )
    first = chunks[0]
    return BookPage(first.page_url, first.page_title, first.module_name, tuple(chunks))


def _blocks(chunks: tuple[Chunk, ...]) -> Iterator[str]:
    """Yield headings where the path changes, and the passages below them; what a passage states itself is not said twice."""
    path: tuple[str, ...] = ()
    before = ""
    for chunk in chunks:
        headings = chunk.headings
        if headings and _states(chunk.text, headings[-1]):
            headings = headings[:-1]  # it began in the section before
        for depth in range(_common(path, headings), len(headings)):
            if not _states(before, headings[depth]):
                yield f"{'#' * min(depth + 1, _LARGEST_LEVEL)} {headings[depth]}"
        path, before = chunk.headings, chunk.text
        yield chunk.text


def _common(path: tuple[str, ...], other: tuple[str, ...]) -> int:
    """Return how many headings two paths share from the top."""
    return next(
        (depth for depth, pair in enumerate(zip(path, other, strict=False)) if pair[0] != pair[1]),
        min(len(path), len(other)),
    )


def _states(text: str, heading: str) -> bool:
    return re.search(rf"^#{{1,6}} {re.escape(heading)}$", text, re.MULTILINE) is not None
