"""Turn a page into chunks: whole blocks of one section, sized by the embedder's own tokenizer."""

from __future__ import annotations

import hashlib
import math
import re
import uuid
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from recto.book.parsing.document import Block, Document, Section
from recto.errors import ConfigurationError
from recto.types import HEADING_SEPARATOR, Chunk, Page

Count = Callable[[str], int]
"""How many tokens a text has, without those that the model adds to every text."""
Cuts = Callable[[str, int, int], Sequence[int]]
"""Where a stretch of a text may be divided: positions between its two ends."""

_SENTENCE = re.compile(r"(?<=[.!?…。！？])[\"'”’)\]]*\s+")
_WHOLE = re.compile(r"`[^`\n]+`|\$[^$\n]+\$")
_WORD = re.compile(r"\s+")
_LINE_END = re.compile("\n")
_BLANK_LINE = re.compile(r"\n[ \t]*\n")
_FENCE = re.compile(r"[ ]{0,3}(`{3,}|~{3,})")
_SMALL_GLUE = 3  # characters of white space that whoever joins pieces has counted already
_LARGEST_GLUE = 64
_GRAIN = 120  # characters; smaller parts are counted together, as every count has its cost
_CHARACTERS_AT_A_TIME = 8
_LARGE = 64  # characters per token that fits: a block that is longer is too large, without counting it whole
_TABLE_HEAD = 2  # a table's first row and the line of dashes under it


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a block; `glue` joins it to the part before it.

    `repeated` stands before it and `closing` behind it where the part before it or behind it is missing: the head of a table, the first
    and the last line of a fence.
    """

    text: str
    first: int
    last: int
    tokens: int
    glue: str = "\n\n"
    repeated: str = ""
    closing: str = ""


def pieces(block: Block, limit: int, count: Count) -> list[Piece]:
    """Return a block as one piece, or as several of at most `limit` tokens each; no character is lost or doubled."""
    if len(block.text) <= limit * _LARGE:
        tokens = count(block.text)
        if tokens <= limit:
            return [Piece(block.text, block.first, block.last, tokens)]
    if block.kind == "table" and (divided := _table(block, limit, count)):
        return divided
    if block.kind == "code" and (divided := _fence(block, limit, count)):
        return divided
    return list(_divided(block, limit, count))


def _levels(block: Block) -> list[Cuts]:
    """Name the kinds of places to divide at, the best first."""
    if block.kind == "paragraph":
        return [_sentences, _words, _anywhere]
    if block.cuts:
        return [*(_inner(block, lines) for lines in block.cuts), _lines, _sentences, _words, _anywhere]
    return [_blank_lines, _lines, _words, _anywhere]


def _table(block: Block, limit: int, count: Count) -> list[Piece]:
    """Divide between rows and let every part have the head; a head that takes most of the room is not worth it."""
    rows = block.text.split("\n", _TABLE_HEAD)
    if len(rows) <= _TABLE_HEAD:
        return []
    head = "\n".join(rows[:_TABLE_HEAD]) + "\n"
    return _repeating(block, "rows", head, rows[_TABLE_HEAD], "", limit, count)


def _fence(block: Block, limit: int, count: Count) -> list[Piece]:
    """Divide code between its lines and let every part be a fence of its own; one that is never closed is only lines."""
    opening, _, rest = block.text.partition("\n")
    body, _, closing = rest.rpartition("\n")
    opened, closed = _FENCE.match(opening), closing.strip()
    if not opened or not body.strip() or not closed.startswith(opened[1]) or closed.strip(opened[1][0]):
        return []
    return _repeating(block, "code", f"{opening}\n", body, f"\n{closing}", limit, count)


def _repeating(
    block: Block, kind: str, head: str, body: str, closing: str, limit: int, count: Count
) -> list[Piece]:
    """Divide what stands between a head and an end that every part repeats."""
    around = count(head) + count(closing) if closing else count(head)
    if around > limit // 2:
        return []
    before = head.count("\n")
    lines = tuple(block.source_line(before + number) for number in range(body.count("\n") + 1))
    parts = list(_divided(Block(kind, body, lines[0], lines[-1], (), lines), limit - around, count))
    if not parts:
        return []
    parts = [replace(part, tokens=part.tokens + around, repeated=head, closing=closing) for part in parts]
    parts[0] = replace(parts[0], text=head + parts[0].text, first=block.first, repeated="")
    parts[-1] = replace(parts[-1], text=parts[-1].text + closing, last=block.last, closing="")
    return parts


def _divided(block: Block, limit: int, count: Count) -> Iterator[Piece]:
    """Turn the stretches of a block into pieces; the white space between them becomes glue."""
    text, before, line, counted = block.text, 0, 0, 0
    for start, end, tokens in _stretches(text, 0, len(text), _levels(block), limit, count):
        part = text[start:end]
        begin = start + len(part) - len(part.lstrip("\n"))
        stop = start + len(part.rstrip())
        if begin >= stop:
            continue
        line, counted = line + text.count("\n", counted, begin), begin
        part = text[begin:stop]
        first, last = block.source_line(line), block.source_line(line + part.count("\n"))
        glue = _bounded(text[before:begin]) if before else "\n\n"
        yield Piece(part, first, last, tokens + max(0, len(glue) - _SMALL_GLUE), glue)
        before = stop


def _bounded(blanks: str) -> str:
    """White space as it is, unless it goes on for ever: a model may count every blank of it."""
    return blanks if len(blanks) <= _LARGEST_GLUE else "\n\n" if "\n" in blanks else " "


def _stretches(
    text: str, start: int, end: int, levels: Sequence[Cuts], limit: int, count: Count, grain: int = _GRAIN
) -> Iterator[tuple[int, int, int]]:
    """Fill stretches up to the limit with what lies between two cuts; what does not fit alone is cut at the next level."""
    every = levels[0](text, start, end)
    while not every and len(levels) > 1:
        levels = levels[1:]
        every = levels[0](text, start, end)
    begin, tokens = start, 0
    for left, right in pairwise([start, *_coarse(every, start, grain), end]):
        size = count(text[left:right]) if right - left <= limit * _LARGE else limit + 1
        if tokens and tokens + size > limit:
            yield begin, left, tokens
            begin, tokens = left, 0
        finer = bisect_left(every, right) - bisect_left(every, left + 1) > 0
        if size > limit and (finer or len(levels) > 1):
            # Small parts that were counted together are tried one by one, before they are cut themselves.
            yield from _stretches(
                text, left, right, levels if finer else levels[1:], limit, count, 0 if finer else _GRAIN
            )
            begin, tokens = right, 0
        else:
            tokens += size
    if begin < end:
        yield begin, end, tokens


def _coarse(cuts: Sequence[int], start: int, grain: int) -> Iterator[int]:
    """Leave out cuts that are too near to the one before."""
    for cut in cuts:
        if cut - start >= grain:
            yield cut
            start = cut


def _inner(block: Block, numbers: Sequence[int]) -> Cuts:
    """Cut where the blocks begin and end that it holds."""
    starts = [0, *(found.end() for found in _LINE_END.finditer(block.text))]
    lines = block.lines or range(block.first, block.first + len(starts))
    places = sorted(
        {starts[place] for number in numbers if (place := bisect_left(lines, number)) < len(starts)}
    )

    def cuts(_: str, start: int, end: int) -> Sequence[int]:
        return places[bisect_left(places, start + 1) : bisect_left(places, end)]

    return cuts


def _blank_lines(text: str, start: int, end: int) -> Sequence[int]:
    return [found.end() for found in _BLANK_LINE.finditer(text, start, end) if found.end() < end]


def _lines(text: str, start: int, end: int) -> Sequence[int]:
    return [found.end() for found in _LINE_END.finditer(text, start, end) if found.end() < end]


def _sentences(text: str, start: int, end: int) -> Sequence[int]:
    """Cut behind sentences, but not within code or math that one line holds."""
    whole = [found.span() for found in _WHOLE.finditer(text, start, end)]
    cuts = (found.end() for found in _SENTENCE.finditer(text, start, end) if found.end() < end)
    return [
        cut
        for cut in cuts
        if not ((place := bisect_left(whole, (cut, 0)) - 1) >= 0 and whole[place][1] > cut)
    ]


def _words(text: str, start: int, end: int) -> Sequence[int]:
    return [found.end() for found in _WORD.finditer(text, start, end) if start < found.end() < end]


def _anywhere(_: str, start: int, end: int) -> Sequence[int]:
    return range(start + _CHARACTERS_AT_A_TIME, end, _CHARACTERS_AT_A_TIME)


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
class EmbeddingInput:
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


def chunk_page(
    page: Page, document: Document, book: str, count_tokens: Count, max_tokens: int, size: ChunkSize
) -> list[EmbeddingInput]:
    """Split a page into chunks that the model reads whole; a chunk never holds text of two sections."""
    limit = min(size.max_tokens, max_tokens)
    if limit < _MIN_TOKENS:
        raise ConfigurationError(
            f"The embedding model reads only {max_tokens} tokens, too few for a chunk",
            hint="Choose another RECTO_MODEL.",
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
        EmbeddingInput(
            _chunk(page, document.title, book, draft, index, len(drafts), anchors[index]), draft.embedded
        )
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
            while (
                drafts[index].last < line and index + 1 < len(drafts) and drafts[index + 1].section is section
            ):
                index += 1
            found[index].append(anchor)
    return [tuple(dict.fromkeys(anchors)) for anchors in found]


def _chunk(
    page: Page, title: str, book: str, draft: _Draft, index: int, total: int, anchors: tuple[str, ...]
) -> Chunk:
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
    text = (
        parts[0].repeated
        + parts[0].text
        + "".join(part.glue + part.text for part in parts[1:])
        + parts[-1].closing
    )
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
