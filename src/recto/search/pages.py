"""Read a page of the index: its chunks in order, as Markdown with headings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

from recto._util.text import nearest, page_key
from recto.errors import InvalidArgument, PageMissing
from recto.protocols import Index
from recto.search.query import is_text
from recto.types import Chunk, Filters

_MAX_HEADING_LEVEL = 6


@dataclass(frozen=True, slots=True)
class BookPage:
    """The chunks of one page, in the order of the page."""

    url: str
    title: str
    module: str
    chunks: tuple[Chunk, ...]

    def section(self, anchor: str) -> tuple[Chunk, ...]:
        """Return the chunks of the section with an anchor, and of its subsections."""
        chunks = self.chunks
        first = next(
            (index for index, chunk in enumerate(chunks) if anchor in (chunk.anchor, *chunk.anchors)), None
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
        """Return the page, or the section with an anchor, as Markdown with headings."""
        return "\n\n".join(_blocks(self.section(anchor) if anchor else self.chunks))


def read_page(index: Index, url: str, collection: str) -> BookPage:
    """Return a page by its URL in any usual spelling; an anchor in the URL is ignored.

    `collection` is the name to show in errors.
    """
    if not is_text(url) or not url.strip():
        raise InvalidArgument("The page's URL is missing", hint="Copy it from a search result.")
    address = url.partition("#")[0]
    chunks = sorted(index.scroll(Filters(page_url=address)), key=lambda chunk: (chunk.chunk_index, chunk.id))
    if not chunks:
        near = _nearest_page(index, page_key(address))
        raise PageMissing(
            f"There is no page '{address}' in '{collection}'",
            hint=f"Did you mean '{near}'?" if near else "Copy the URL from a search result.",
        )
    first = chunks[0]
    return BookPage(first.page_url, first.page_title, first.module_name, tuple(chunks))


def _nearest_page(index: Index, key: str) -> str | None:
    """Return the page that was probably meant: one whose URL ends with the given one, or a similar one."""
    known = index.pages()
    ending = f"/{key.strip('/')}"
    return next((page for page in known if page.endswith(ending)), None) or nearest(key, known)


def _blocks(chunks: tuple[Chunk, ...]) -> Iterator[str]:
    """Yield the texts of chunks, with the headings that the texts themselves do not contain."""
    path: tuple[str, ...] = ()
    before = ""
    for chunk in chunks:
        headings = chunk.headings
        if headings and _has_heading(chunk.text, headings[-1]):
            headings = headings[:-1]  # the chunk starts in the section before
        shared = list(takewhile(lambda pair: pair[0] == pair[1], zip(path, headings, strict=False)))
        for depth in range(len(shared), len(headings)):
            if not _has_heading(before, headings[depth]):
                yield f"{'#' * min(depth + 1, _MAX_HEADING_LEVEL)} {headings[depth]}"
        path, before = chunk.headings, chunk.text
        yield chunk.text


def _has_heading(text: str, heading: str) -> bool:
    return re.search(rf"^#{{1,6}} {re.escape(heading)}$", text, re.MULTILINE) is not None
