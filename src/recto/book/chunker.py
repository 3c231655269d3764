"""Turn a page into chunks: whole blocks under their headings, sized by the embedder's own tokenizer."""

from __future__ import annotations

import hashlib
import math
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from recto.book.document import Document, Section
from recto.book.split import Count, Piece, pieces
from recto.errors import ConfigurationError
from recto.types import HEADING_SEPARATOR, Chunk, Page

VERSION = 1
_NAMESPACE = uuid.UUID("6b2e3c86-4a4e-5a53-9d5b-6f0f5e6c7a10")
_SMALLEST = 32  # tokens; a model that reads less than this cannot be chunked for
_SPARE = 4  # tokens that joining and the model's own marks may add to a sum of parts


@dataclass(frozen=True, slots=True)
class ChunkSize:
    """How large a chunk may become, and below what it is joined to a neighbour, in tokens."""

    largest: int = 320
    crumb: int = 64

    def __str__(self) -> str:
        """The chunker's version and sizes, as the fingerprint has them."""
        return f"recto-{VERSION} largest={self.largest} crumb={self.crumb}"


DEFAULT_SIZE = ChunkSize()


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk and the text that is embedded for it: its heading path, then what is written."""

    chunk: Chunk
    embedded: str


@dataclass(frozen=True, slots=True)
class _Draft:
    section: Section
    text: str
    first: int
    last: int
    tokens: int


def chunk_page(page: Page, document: Document, book: str, count_tokens: Count, max_tokens: int, size: ChunkSize) -> list[Passage]:
    """Divide a page; every passage is short enough for the model."""
    largest = min(size.largest, max_tokens)
    if largest < _SMALLEST:
        raise ConfigurationError(
            f"The embedding model reads only {max_tokens} tokens, too few for a passage", hint="Choose another RECTO_MODEL."
        )
    while True:
        drafts = _drafts(document.sections, largest, size.crumb, count_tokens)
        texts = [f"{_heading_path(draft.section, largest, count_tokens)}\n\n{draft.text}" for draft in drafts]
        # Parts add up to a little more or less than the whole: if ever to more than the model reads, divide finer.
        if all(count_tokens(text) <= max_tokens for text in texts) or largest <= _SMALLEST:
            break
        largest = largest * 3 // 4
    return [
        Passage(_chunk(page, document.title, book, draft, index, len(drafts), text), text)
        for index, (draft, text) in enumerate(zip(drafts, texts, strict=True))
    ]


def _chunk(page: Page, title: str, book: str, draft: _Draft, index: int, total: int, embedded: str) -> Chunk:
    return Chunk(
        id=str(uuid.uuid5(_NAMESPACE, f"{book}\n{page.path}\n{index}")),
        text=draft.text,
        page_url=page.url,
        page_title=title,
        module_name=page.module,
        module_keys=page.module_keys,
        headings=draft.section.headings,
        anchor=draft.section.anchor,
        chunk_index=index,
        total_chunks=total,
        start_line=draft.first,
        end_line=draft.last,
        content_hash=hashlib.sha256(embedded.encode()).hexdigest(),
        source=page.path,
        book=book,
    )


def _drafts(sections: Sequence[Section], largest: int, crumb: int, count: Count) -> list[_Draft]:
    drafts: list[_Draft] = []
    for section in sections:
        room = largest - count(_heading_path(section, largest, count)) - _SPARE
        for draft in _section_drafts(section, room, count):
            if drafts and _belong_together(drafts[-1], draft, room, crumb):
                drafts[-1] = _joined(drafts[-1], draft, count)
            else:
                drafts.append(draft)
    return drafts


def _section_drafts(section: Section, room: int, count: Count) -> list[_Draft]:
    """Pack a section's blocks into chunks of about equal size."""
    parts = [piece for block in section.blocks for piece in pieces(block, room, count)]
    total = sum(part.tokens for part in parts)
    fair = total / math.ceil(total / room)
    packed: list[list[Piece]] = [[]]
    tokens = 0
    for part in parts:
        if packed[-1] and (tokens + part.tokens > room or tokens >= fair):
            packed.append([])
            tokens = 0
        packed[-1].append(part)
        tokens += part.tokens
    return [_packed(section, group, count) for group in packed]


def _packed(section: Section, parts: Sequence[Piece], count: Count) -> _Draft:
    text = parts[0].repeated + parts[0].text + "".join(part.glue + part.text for part in parts[1:])
    return _Draft(section, text, parts[0].first, parts[-1].last, count(text))


def _belong_together(before: _Draft, after: _Draft, room: int, crumb: int) -> bool:
    """A crumb joins its neighbour if both fit into one chunk."""
    if before.tokens >= crumb and after.tokens >= crumb:
        return False
    return before.tokens + after.tokens + 2 * _SPARE + len(after.section.headings[-1]) <= room


def _joined(before: _Draft, after: _Draft, count: Count) -> _Draft:
    text = before.text
    if after.section is not before.section:
        text += f"\n\n{'#' * after.section.level} {after.section.headings[-1]}"
    text += f"\n\n{after.text}"
    return replace(before, text=text, last=after.last, tokens=count(text))


def _heading_path(section: Section, largest: int, count: Callable[[str], int]) -> str:
    """Return the heading path, without its outer headings where it would take more than a quarter of the chunk."""
    headings = section.headings
    while len(headings) > 1 and count(HEADING_SEPARATOR.join(headings)) > largest // 4:
        headings = headings[1:]
    path = HEADING_SEPARATOR.join(headings)
    while count(path) > largest // 4:
        path = path[: len(path) // 2]
    return path
