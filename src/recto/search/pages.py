"""Read a page of the index: its chunks in order, as Markdown with headings."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby, takewhile
from weakref import WeakKeyDictionary

from recto._util.text import MARKDOWN_SUFFIXES, MDX_SUFFIXES, nearest, page_key
from recto.errors import InvalidArgument, PageMissing
from recto.protocols import Index
from recto.search.query import is_text
from recto.types.search import Chunk, Filters

_MAX_HEADING_LEVEL = 6
_MOST_COMPARED = 200  # pages
_FENCE = re.compile(r" {0,3}(?:`{3,}|~{3,})")
_TABLE_LINE = re.compile(r"[ |:-]*-[ |:-]*")


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
            anchors = dict.fromkeys(
                name for chunk in chunks for name in (chunk.anchor, *chunk.anchors) if name
            )
            near = nearest(anchor, anchors)
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
        return to_markdown(self.section(anchor) if anchor else self.chunks)


def to_markdown(chunks: Sequence[Chunk], path: tuple[str, ...] = ()) -> str:
    """Return consecutive chunks of a page as Markdown with headings; those of `path` were shown before."""
    return "\n\n".join(_blocks(chunks, path))


def section_runs(chunks: Sequence[Chunk]) -> list[tuple[int, int]]:
    """Return where each section of a page starts and ends: consecutive chunks with the same headings."""
    runs, start = [], 0
    for _, group in groupby(chunks, key=lambda chunk: chunk.headings):
        end = start + len(list(group))
        runs.append((start, end))
        start = end
    return runs


def read_page(index: Index, url: str, collection: str) -> BookPage:
    """Return a page by its URL in any usual spelling; an anchor in the URL is ignored.

    `collection` is the name to show in errors.
    """
    if not is_text(url) or not url.strip():
        raise InvalidArgument("The page's URL is missing", hint="Copy it from a search result.")
    address = url.partition("#")[0]
    chunks = sorted(index.scroll(Filters(page_url=address)), key=lambda chunk: (chunk.chunk_index, chunk.id))
    if not chunks:
        near = nearest_page(index, address)
        raise PageMissing(
            f"There is no page '{address}' in '{collection}'",
            hint=f"Did you mean '{near}'?" if near else "Copy the URL from a search result.",
        )
    # The pages /a and /a/ are different ones in some books.
    first = next((chunk for chunk in chunks if chunk.page_url == address), chunks[0])
    own = tuple(chunk for chunk in chunks if chunk.page_url == first.page_url)
    return BookPage(first.page_url, first.title, first.module, own)


@dataclass(frozen=True, slots=True)
class _PageNames:
    """The pages of an index in alphabetical order, and by the last part of their URLs."""

    ordered: list[str]
    by_last_part: Mapping[str, list[str]]


_page_names: WeakKeyDictionary[Index, _PageNames] = WeakKeyDictionary()  # listing all pages takes long


def nearest_page(index: Index, url: str) -> str | None:
    """Return the page that was probably meant: one whose URL ends with the given one, or a similar one.

    Only pages next to it in alphabetical order are compared, so the work does not grow with the book.
    """
    names: _PageNames | None = None
    with suppress(TypeError):  # an index of a plugin may not support weak references
        names = _page_names.get(index)
    if names is None:
        ordered = sorted(index.pages())
        by_last_part = defaultdict(list)
        for page in ordered:
            by_last_part[page.rpartition("/")[2]].append(page)
        names = _PageNames(ordered, by_last_part)
        with suppress(TypeError):
            _page_names[index] = names
    key = page_key(url).strip("/")
    same_end = names.by_last_part.get(key.rpartition("/")[2], [])[:_MOST_COMPARED]
    start = max(0, bisect_left(names.ordered, key) - _MOST_COMPARED // 2)
    return next((page for page in same_end if page.endswith(f"/{key}")), None) or nearest(
        key, names.ordered[start : start + _MOST_COMPARED]
    )


def _blocks(chunks: Sequence[Chunk], path: tuple[str, ...]) -> Iterator[str]:
    """Yield the texts of chunks, with the headings that the texts themselves do not contain.

    Parts of one paragraph, list, table or code block are put together again.
    """
    block, before = "", None  # what was not yielded yet, and the chunk it ends with
    cut = 0  # lines of that chunk's start that were left out
    for chunk in chunks:
        joined = _join(block, before, cut, chunk) if before is not None else None
        if joined is not None:
            block, cut, before = *joined, chunk
            continue
        if before is not None:
            yield block
        headings = chunk.headings
        if headings and _has_heading(chunk.text, headings[-1]):
            headings = headings[:-1]  # the chunk starts in the section before
        shared = list(takewhile(lambda pair: pair[0] == pair[1], zip(path, headings, strict=False)))
        for depth in range(len(shared), len(headings)):
            if before is None or not _has_heading(before.text, headings[depth]):
                heading = " ".join(headings[depth].split())  # a title may have line ends
                yield f"{'#' * min(depth + 1, _MAX_HEADING_LEVEL)} {heading}"
        path, before, block, cut = chunk.headings, chunk, chunk.text, 0
    if before is not None:
        yield block


def _join(block: str, before: Chunk, cut: int, chunk: Chunk) -> tuple[str, int] | None:
    """Continue a block with the next chunk; return it with the number of lines that the chunk repeats.

    Return None if a new block begins, or if that is not certain: the lines of the source decide. Only
    Markdown has a block on lines of its own.
    """
    if before.headings != chunk.headings or not chunk.source.endswith(MARKDOWN_SUFFIXES + MDX_SUFFIXES):
        return None
    gap = chunk.start_line - before.end_line
    head, *rest = chunk.text.split("\n")
    added_before, added = _added_lines(before) - cut, _added_lines(chunk)
    if _FENCE.match(head) and added_before > 0 and added > 0 and gap > 0:
        opened = [line for line in before.text.split("\n")[:-1] if _FENCE.match(line)]
        if opened and opened[-1] == head:  # its last line closes the part, not the block
            return block.rpartition("\n")[0] + "\n" * gap + "\n".join(rest), 1
    if gap not in (0, 1):
        return None
    glue = (" ", "\n")[gap]
    if rest and _TABLE_LINE.fullmatch(rest[0]) and f"{head}\n{rest[0]}\n" in f"{block}\n":
        return block + glue + "\n".join(rest[1:]), 2
    return (block + glue + chunk.text, 0) if max(added_before, added) <= 0 else None


def _added_lines(chunk: Chunk) -> int:
    """Return how many lines of a chunk are not in the source: those that its parts of a block repeat."""
    return chunk.text.count("\n") - (chunk.end_line - chunk.start_line)


def _has_heading(text: str, heading: str) -> bool:
    return re.search(rf"^#{{1,6}} {re.escape(heading)}$", text, re.MULTILINE) is not None
