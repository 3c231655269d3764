"""Pages as Markdown: whole, by section, and a long one in parts that an agent can read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from recto.errors import InvalidArgument
from recto.mcp.results import PageResult
from recto.retriever import Retriever
from recto.types import Chunk

LONGEST_PART = 20_000  # characters of passages: some five thousand tokens, which every client lets a tool return


def whole_page(retriever: Retriever, address: str) -> str:
    """Return a page, or the section that its anchor opens."""
    return retriever.page(address).markdown(address.partition("#")[2])


def page_part(retriever: Retriever, address: str, part: int) -> PageResult:
    """Return one part of a page, or of the section that its anchor opens."""
    page, anchor = retriever.page(address), address.partition("#")[2]
    parts = _parts(page.section(anchor) if anchor else page.chunks)
    if part > len(parts):
        raise InvalidArgument(f"There is no part {part}: {page.url} has {len(parts)}", hint="Parts are counted from 1.")
    note = ""
    if part < len(parts):
        note = f"This is part {part} of {len(parts)}. Call read_page with part={part + 1} for the next, or with an #anchor for one section."
    return PageResult(
        link=f"{page.url}#{anchor}" if anchor else page.url,
        title=page.title,
        module=page.module,
        markdown=replace(page, chunks=parts[part - 1]).markdown(),
        part=part,
        parts=len(parts),
        note=note,
    )


def _parts(chunks: Sequence[Chunk]) -> list[tuple[Chunk, ...]]:
    """Put as many passages in a row together as may be returned at once."""
    parts: list[list[Chunk]] = []
    room = 0
    for chunk in _bounded(chunks):
        if not parts or len(chunk.text) > room:
            parts.append([])
            room = LONGEST_PART
        parts[-1].append(chunk)
        room -= len(chunk.text)
    return [tuple(part) for part in parts]


def _bounded(chunks: Sequence[Chunk]) -> Iterator[Chunk]:
    """Cut passages that are too long by themselves; only collections that others made have them."""
    for chunk in chunks:
        for start in range(0, max(1, len(chunk.text)), LONGEST_PART):
            yield replace(chunk, text=chunk.text[start : start + LONGEST_PART])
