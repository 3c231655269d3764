"""Turn a page into chunks: whole blocks under their headings, sized by the embedder's own tokenizer."""

from __future__ import annotations

import hashlib
import math
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from recto.book.document import Document, Section
from recto.book.split import Count, Piece, pieces
from recto.errors import ConfigurationError
from recto.types import HEADING_SEPARATOR, Chunk, Page

VERSION = 4
_NAMESPACE = uuid.UUID("6b2e3c86-4a4e-5a53-9d5b-6f0f5e6c7a10")
_SMALLEST = 32  # tokens; a model that reads less than this cannot be chunked for
_SPARE = 4  # tokens that joining may add to a sum of parts
_GLUE = 3  # tokens that a block takes beyond its own: a blank line, and a spare that keeps chunks as large as version 1 made them
_SURE = 0.75  # a sum of parts that is below this share of what the model reads cannot be above it as a whole
_SHORT = 300  # characters; headings come again in the paths of the sections below, a whole paragraph does not


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
    """A chunk in the making: the sections it holds, and the one of them that names it."""

    sections: tuple[Section, ...]
    section: Section
    path: str
    text: str
    first: int
    last: int
    tokens: int

    @property
    def embedded(self) -> str:
        return f"{self.path}\n\n{self.text}"


class _Tokens:
    """Counts tokens: of a text alone, without the marks that the model adds; short texts that come again are counted once."""

    def __init__(self, count: Count) -> None:
        self._count = count
        self._known: dict[str, int] = {}
        self.marks = count("")

    def whole(self, text: str) -> int:
        """The tokens that the model reads."""
        return self._count(text)

    def __call__(self, text: str) -> int:
        if len(text) > _SHORT:
            return self._count(text) - self.marks
        if text not in self._known:
            self._known[text] = self._count(text) - self.marks
        return self._known[text]


def chunk_page(page: Page, document: Document, book: str, count_tokens: Count, max_tokens: int, size: ChunkSize) -> list[Passage]:
    """Divide a page; every passage is short enough for the model."""
    largest = min(size.largest, max_tokens)
    if largest < _SMALLEST:
        raise ConfigurationError(
            f"The embedding model reads only {max_tokens} tokens, too few for a passage", hint="Choose another RECTO_MODEL."
        )
    count = _Tokens(count_tokens)
    while True:
        drafts = _drafts(document.sections, largest, size.crumb, count)
        # Parts add up to a little more or less than the whole: where that could be more than the model reads, the whole is counted, and
        # if it is, all is divided finer.
        close = (draft for draft in drafts if draft.tokens + count(draft.path) > max_tokens * _SURE)
        if largest <= _SMALLEST or all(count.whole(draft.embedded) <= max_tokens for draft in close):
            break
        largest = largest * 3 // 4
    anchors = _anchors(document.sections, drafts)
    return [
        Passage(_chunk(page, document.title, book, draft, index, len(drafts), anchors[index]), draft.embedded)
        for index, draft in enumerate(drafts)
    ]


def chunk_id(book: str, path: str, index: int) -> str:
    """Return the id of a passage; it is the same in every run."""
    return str(uuid.uuid5(_NAMESPACE, f"{book}\n{path}\n{index}"))


def _anchors(sections: Sequence[Section], drafts: Sequence[_Draft]) -> list[tuple[str, ...]]:
    """Give each anchor to the first chunk of its section that ends at its line or below, or to the last that there is."""
    found = [[draft.section.anchor] if draft.section.anchor else [] for draft in drafts]
    index = 0
    for section in sections:
        while all(section is not held for held in drafts[index].sections):
            index += 1
        for line, anchor in section.anchors:
            while drafts[index].last < line and index + 1 < len(drafts) and drafts[index + 1].sections[0] is section:
                index += 1
            found[index].append(anchor)
    return [tuple(dict.fromkeys(anchors)) for anchors in found]


def _chunk(page: Page, title: str, book: str, draft: _Draft, index: int, total: int, anchors: tuple[str, ...]) -> Chunk:
    return Chunk(
        id=chunk_id(book, page.path, index),
        text=draft.text,
        page_url=page.url,
        page_title=title,
        module_name=page.module,
        module_keys=page.module_keys,
        headings=draft.section.headings,
        anchor=draft.section.anchor,
        chunk_index=index,
        total_chunks=total,
        start_line=page.lines[draft.first - 1] if page.lines else draft.first,
        end_line=page.lines[draft.last - 1] if page.lines else draft.last,
        content_hash=hashlib.sha256(draft.embedded.encode()).hexdigest(),
        source=page.path,
        book=book,
        anchors=anchors,
        version=page.version,
        locale=page.locale,
    )


def _drafts(sections: Sequence[Section], largest: int, crumb: int, count: _Tokens) -> list[_Draft]:
    drafts: list[_Draft] = []
    for section in sections:
        path = _heading_path(section, largest, count)
        room = largest - count(path) - count.marks - _SPARE
        for draft in _section_drafts(section, path, room, count):
            if drafts and _belong_together(drafts[-1], draft, room, crumb, count):
                drafts[-1] = _joined(drafts[-1], draft, count)
            else:
                drafts.append(draft)
    return drafts


def _section_drafts(section: Section, path: str, room: int, count: _Tokens) -> list[_Draft]:
    """Pack a section's blocks into chunks of about equal size."""
    parts = [piece for block in section.blocks for piece in pieces(block, room, count)]
    total = sum(part.tokens + _GLUE for part in parts)
    fair = total / math.ceil(total / room)
    packed: list[list[Piece]] = [[]]
    tokens = 0
    for part in parts:
        if packed[-1] and (tokens + part.tokens + _GLUE > room or tokens >= fair):
            packed.append([])
            tokens = 0
        packed[-1].append(part)
        tokens += part.tokens + _GLUE
    return [_packed(section, path, group) for group in packed]


def _packed(section: Section, path: str, parts: Sequence[Piece]) -> _Draft:
    text = parts[0].repeated + parts[0].text + "".join(part.glue + part.text for part in parts[1:]) + parts[-1].closing
    return _Draft((section,), section, path, text, parts[0].first, parts[-1].last, sum(part.tokens + _GLUE for part in parts))


def _belong_together(before: _Draft, after: _Draft, room: int, crumb: int, count: _Tokens) -> bool:
    """A crumb joins its neighbour if both fit into one chunk."""
    if before.tokens >= crumb and after.tokens >= crumb:
        return False
    return before.tokens + after.tokens + _GLUE + count(_opening(before, after) + _heading(before, after)) <= room


def _heading(before: _Draft, after: _Draft) -> str:
    """The heading that a chunk needs where it goes on with another section."""
    return "" if after.section is before.sections[-1] else f"\n\n{_line(after.section)}"


def _opening(before: _Draft, after: _Draft) -> str:
    """The heading that a chunk begins with where the section behind it gives it its name, and that name does not tell it."""
    section = before.sections[0]
    begins = section is before.section and bool(section.blocks) and before.first == section.blocks[0].first
    told = after.section.headings[: len(section.headings)] == section.headings
    return f"{_line(section)}\n\n" if begins and not told and after.tokens > before.tokens else ""


def _line(section: Section) -> str:
    return f"{'#' * section.level} {section.headings[-1]}"


def _joined(before: _Draft, after: _Draft, count: _Tokens) -> _Draft:
    opening, heading = _opening(before, after), _heading(before, after)
    text = f"{opening}{before.text}{heading}\n\n{after.text}"
    sections = before.sections if not heading else (*before.sections, after.section)
    # A few words that introduce a page do not name the chunk, if the section below them is the larger part of it.
    section, path = (after.section, after.path) if after.tokens > before.tokens else (before.section, before.path)
    tokens = before.tokens + after.tokens + count(opening + heading) + _GLUE
    return _Draft(sections, section, path, text, before.first, after.last, tokens)


def _heading_path(section: Section, largest: int, count: Callable[[str], int]) -> str:
    """Return the heading path, without its outer headings where it would take more than a quarter of the chunk."""
    headings = section.headings
    while len(headings) > 1 and count(HEADING_SEPARATOR.join(headings)) > largest // 4:
        headings = headings[1:]
    path = HEADING_SEPARATOR.join(headings)
    while count(path) > largest // 4:
        path = path[: len(path) // 2]
    return path
