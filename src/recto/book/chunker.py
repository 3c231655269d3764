"""Turn a page into chunks: whole blocks of one section, sized by the embedder's own tokenizer."""

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

VERSION = 5
_NAMESPACE = uuid.UUID("6b2e3c86-4a4e-5a53-9d5b-6f0f5e6c7a10")
_MIN_TOKENS = 32  # a model that reads less than this cannot be chunked for
_MARGIN = 4  # tokens that joining blocks may add to the sum of their counts
_SEPARATOR_TOKENS = 3  # a blank line between two blocks, rounded up
_SAFE_SHARE = 0.75  # a sum of counts below this share of the model's limit cannot exceed the limit as a whole
_CACHED_LENGTH = 300  # characters; headings repeat in the paths of their subsections, paragraphs do not


@dataclass(frozen=True, slots=True)
class ChunkSize:
    """The most tokens that a chunk may have, heading path included."""

    max_tokens: int = 160

    def __str__(self) -> str:
        """Return the chunker's version and parameters, as the fingerprint stores them."""
        return f"recto-{VERSION} max_tokens={self.max_tokens}"


DEFAULT_SIZE = ChunkSize()


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk and the text that is embedded for it: its heading path, then the text as written."""

    chunk: Chunk
    embedded: str


@dataclass(frozen=True, slots=True)
class _Draft:
    """A chunk before it has an id: consecutive pieces of one section."""

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
    """Counts the tokens of a text without the special ones; counts of short texts are cached."""

    def __init__(self, count: Count) -> None:
        self._count = count
        self._known: dict[str, int] = {}
        self.special = count("")

    def whole(self, text: str) -> int:
        """Count the tokens that the model reads, special ones included."""
        return self._count(text)

    def __call__(self, text: str) -> int:
        if len(text) > _CACHED_LENGTH:
            return self._count(text) - self.special
        if text not in self._known:
            self._known[text] = self._count(text) - self.special
        return self._known[text]


def chunk_page(page: Page, document: Document, book: str, count_tokens: Count, max_tokens: int, size: ChunkSize) -> list[Passage]:
    """Split a page into chunks that the model reads whole; a chunk never holds text of two sections."""
    limit = min(size.max_tokens, max_tokens)
    if limit < _MIN_TOKENS:
        raise ConfigurationError(
            f"The embedding model reads only {max_tokens} tokens, too few for a chunk", hint="Choose another RECTO_MODEL."
        )
    count = _Tokens(count_tokens)
    while True:
        drafts = [draft for section in document.sections for draft in _section_drafts(section, limit, count)]
        # The sum of the parts' tokens may differ a little from the whole's. Where the whole could exceed the model's
        # limit, it is counted; if it does exceed it, the page is split again with a smaller limit.
        close = (draft for draft in drafts if draft.tokens + count(draft.path) > max_tokens * _SAFE_SHARE)
        if limit <= _MIN_TOKENS or all(count.whole(draft.embedded) <= max_tokens for draft in close):
            break
        limit = limit * 3 // 4
    anchors = _anchors(document.sections, drafts)
    return [
        Passage(_chunk(page, document.title, book, draft, index, len(drafts), anchors[index]), draft.embedded)
        for index, draft in enumerate(drafts)
    ]


def chunk_id(book: str, path: str, index: int) -> str:
    """Return the id of a chunk; it is the same in every run."""
    return str(uuid.uuid5(_NAMESPACE, f"{book}\n{path}\n{index}"))


def _anchors(sections: Sequence[Section], drafts: Sequence[_Draft]) -> list[tuple[str, ...]]:
    """Assign each anchor to the chunk of its section that holds its line, or to the section's last chunk."""
    found = [[draft.section.anchor] if draft.section.anchor else [] for draft in drafts]
    index = 0
    for section in sections:
        while drafts[index].section is not section:
            index += 1
        for line, anchor in section.anchors:
            while drafts[index].last < line and index + 1 < len(drafts) and drafts[index + 1].section is section:
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


def _section_drafts(section: Section, limit: int, count: _Tokens) -> list[_Draft]:
    """Pack a section's blocks into chunks of about equal size."""
    path = _heading_path(section, limit, count)
    room = limit - count(path) - count.special - _MARGIN
    parts = [piece for block in section.blocks for piece in pieces(block, room, count)]
    total = sum(part.tokens + _SEPARATOR_TOKENS for part in parts)
    fair = total / math.ceil(total / room)
    packed: list[list[Piece]] = [[]]
    tokens = 0
    for part in parts:
        if packed[-1] and (tokens + part.tokens + _SEPARATOR_TOKENS > room or tokens >= fair):
            packed.append([])
            tokens = 0
        packed[-1].append(part)
        tokens += part.tokens + _SEPARATOR_TOKENS
    return [_packed(section, path, group) for group in packed]


def _packed(section: Section, path: str, parts: Sequence[Piece]) -> _Draft:
    text = parts[0].repeated + parts[0].text + "".join(part.glue + part.text for part in parts[1:]) + parts[-1].closing
    tokens = sum(part.tokens + _SEPARATOR_TOKENS for part in parts)
    return _Draft(section, path, text, parts[0].first, parts[-1].last, tokens)


def _heading_path(section: Section, limit: int, count: Callable[[str], int]) -> str:
    """Return the heading path, without its outer headings where it would take more than a quarter of the chunk."""
    headings = section.headings
    while len(headings) > 1 and count(HEADING_SEPARATOR.join(headings)) > limit // 4:
        headings = headings[1:]
    path = HEADING_SEPARATOR.join(headings)
    while count(path) > limit // 4:
        path = path[: len(path) // 2]
    return path
