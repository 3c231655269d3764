"""Split a page into chunks: whole blocks of one section, sized by the embedder's tokenizer."""

from __future__ import annotations

import hashlib
import math
import re
import uuid
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice, pairwise

from recto._util.languages import detect_language, is_between_characters, language_tag
from recto._util.markdown import FENCE_START, SENTENCE_END, without_fences
from recto.errors import ConfigurationError
from recto.settings import CHUNK_TOKENS
from recto.types.book import Block, Document, Page, Section
from recto.types.index import SparseVector
from recto.types.search import HEADING_SEPARATOR, Chunk

Count = Callable[[str], int]
"""Counts the tokens of a text."""
Cuts = Callable[[str, int, int], Sequence[int]]
"""Returns the positions between two ends of a text where it may be split."""

VERSION = 7
_NAMESPACE = uuid.UUID("6b2e3c86-4a4e-5a53-9d5b-6f0f5e6c7a10")
_MIN_TOKENS = 32  # a model that reads less than this cannot be chunked for
_MARGIN = 4  # tokens that joining blocks may add to the sum of their counts
_SEPARATOR_TOKENS = 3  # a blank line between two blocks, rounded up
_SAFE_SHARE = 0.75  # a sum of counts below this share of the model's limit cannot exceed the limit as a whole
_SENTENCE = re.compile(SENTENCE_END)
"""The end of a sentence; in scripts that have their own full stop, no space needs to follow."""
_OTHER_LANGUAGE_FACTOR = 2  # a model's tokens are half as long in languages that it does not know, or shorter
_FIRST_MARK = "\u0300"  # the first character that belongs to the one before it
_BLOCKS_TO_DETECT = 60  # blocks of a page that tell its language
_WHOLE = re.compile(r"`[^`\n]+`|\$[^$\n]+\$")
_SMALL_GLUE = 3  # characters of white space that `_SEPARATOR_TOKENS` covers
_LARGEST_GLUE = 64
_GRAIN = 120  # characters; smaller parts are counted together, because tokenizing is slow
_CHARACTERS_AT_A_TIME = 8
_LARGE = 64  # characters per token of the limit; a longer block does not fit, whatever its tokens
EMBEDDED_QUESTIONS = 4
"""How many section questions are embedded with a chunk; more of them gain nothing (decision 21)."""
_TABLE_HEAD = 2  # a table's first row and the line of dashes under it


@dataclass(frozen=True, slots=True)
class BlockPart:
    """A part of a block; `glue` is the white space between it and the part before it.

    `repeated` and `closing` are added at the start and the end of a chunk: the header of a table, the first
    and last line of a fence.
    """

    text: str
    first: int
    last: int
    tokens: int
    glue: str = "\n\n"
    repeated: str = ""
    closing: str = ""


def split_block(block: Block, limit: int, count: Count) -> list[BlockPart]:
    """Split a block into parts of at most `limit` tokens; no character is lost or repeated."""
    if len(block.text) <= limit * _LARGE:
        tokens = count(block.text)
        if tokens <= limit:
            return [BlockPart(block.text, block.first, block.last, tokens)]
    return _split_frame(block, limit, count) or list(_divided(block, limit, count))


def _after(pattern: str) -> Cuts:
    """Return cuts after each match of a pattern."""
    compiled = re.compile(pattern)
    return lambda text, start, end: [
        cut
        for match in compiled.finditer(text, start, end)
        if start < (cut := match.end()) < end
        and (cut == len(text) or text[cut] < _FIRST_MARK or is_between_characters(text, cut))
    ]


_blank_lines, _lines, _words = _after(r"\n[ \t]*\n"), _after("\n"), _after(r"\s+|[、，；،؛]")


def _levels(block: Block) -> list[Cuts]:
    """Return where to split a block, best places first."""
    if block.kind == "paragraph":
        return [_sentences, _words, _characters]
    if block.cuts:
        return [*(_inner(block, lines) for lines in block.cuts), _lines, _sentences, _words, _characters]
    return [_blank_lines, _lines, _words, _characters]


def _split_frame(block: Block, limit: int, count: Count) -> list[BlockPart]:
    """Split a table or a fence into parts that repeat its first and last lines; return [] if it has none.

    If these lines take most of the limit they are not repeated. An unclosed fence is split as text.
    """
    head, body, closing = block.text, "", ""
    if block.kind == "table":
        *rows, body = block.text.split("\n", _TABLE_HEAD)
        head = "\n".join(rows) + "\n" if len(rows) == _TABLE_HEAD else block.text
    elif block.kind == "code":
        opening, _, rest = block.text.partition("\n")
        body, _, last = rest.rpartition("\n")
        opened, closed = FENCE_START.match(opening), last.strip()
        if opened and body.strip() and closed.startswith(opened[1]) and not closed.strip(opened[1][0]):
            head, closing = f"{opening}\n", f"\n{last}"
    around = limit if head == block.text else count(head) + (count(closing) if closing else 0)
    if around > limit // 2:
        return []
    before = head.count("\n")
    lines = tuple(block.source_line(before + number) for number in range(body.count("\n") + 1))
    inner = _divided(Block(block.kind, body, lines[0], lines[-1], (), lines), limit - around, count)
    parts = [replace(part, tokens=part.tokens + around, repeated=head, closing=closing) for part in inner]
    if parts:
        parts[0] = replace(parts[0], text=head + parts[0].text, first=block.first, repeated="")
        parts[-1] = replace(parts[-1], text=parts[-1].text + closing, last=block.last, closing="")
    return parts


def _divided(block: Block, limit: int, count: Count) -> Iterator[BlockPart]:
    """Yield the parts of a block; the white space between them becomes glue."""
    text, before, line, counted = block.text, 0, 0, 0
    for start, end, tokens in _spans(text, 0, len(text), _levels(block), limit, count):
        part = text[start:end]
        begin = start + len(part) - len(part.lstrip("\n"))
        stop = start + len(part.rstrip())
        if begin >= stop:
            continue
        line, counted = line + text.count("\n", counted, begin), begin
        part = text[begin:stop]
        first, last = block.source_line(line), block.source_line(line + part.count("\n"))
        glue = text[before:begin] if before else "\n\n"
        if len(glue) > _LARGEST_GLUE:  # some tokenizers count white space character by character
            glue = "\n\n" if "\n" in glue else " "
        yield BlockPart(part, first, last, tokens + max(0, len(glue) - _SMALL_GLUE), glue)
        before = stop


def _spans(
    text: str, start: int, end: int, levels: Sequence[Cuts], limit: int, count: Count, grain: int = _GRAIN
) -> Iterator[tuple[int, int, int]]:
    """Yield spans (start, end, tokens) up to the limit; a span that is too long is cut at the next level.

    The tokenizer takes nearly all the time of chunking. So neighbouring parts are counted together until they
    have `grain` characters, and each part is counted once: the sum of counts stands for the count of a span.
    """
    cuts = levels[0](text, start, end)
    while not cuts and len(levels) > 1:
        levels = levels[1:]
        cuts = levels[0](text, start, end)
    # The open span begins at `begin` and has `tokens`. It grows by one part (left, right) at a time.
    begin, tokens = start, 0
    for left, right in pairwise([start, *_coarse(cuts, start, grain), end]):
        size = count(text[left:right]) if right - left <= limit * _LARGE else limit + 1
        if tokens and tokens + size > limit:
            yield begin, left, tokens
            begin, tokens = left, 0
        # A part that is too long is split at the cuts of this level that `_coarse` has skipped, else at the
        # cuts of the next level. The last level has no next one, so a few characters may exceed the limit.
        has_skipped_cuts = bisect_left(cuts, right) - bisect_left(cuts, left + 1) > 0
        if size > limit and (has_skipped_cuts or len(levels) > 1):
            next_levels, next_grain = (levels, 0) if has_skipped_cuts else (levels[1:], _GRAIN)
            yield from _spans(text, left, right, next_levels, limit, count, next_grain)
            begin, tokens = right, 0
        else:
            tokens += size
    if begin < end:
        yield begin, end, tokens


def _coarse(cuts: Sequence[int], start: int, grain: int) -> Iterator[int]:
    """Skip cuts that are too near to the one before."""
    for cut in cuts:
        if cut - start >= grain:
            yield cut
            start = cut


def _inner(block: Block, numbers: Sequence[int]) -> Cuts:
    """Cut where nested blocks begin and end."""
    starts = [0, *_lines(block.text, 0, len(block.text) + 1)]
    lines = block.lines or range(block.first, block.first + len(starts))
    indexes = {bisect_left(lines, number) for number in numbers}
    cuts = sorted(starts[index] for index in indexes if index < len(starts))
    return lambda _, start, end: cuts[bisect_left(cuts, start + 1) : bisect_left(cuts, end)]


def _sentences(text: str, start: int, end: int) -> Sequence[int]:
    """Cut after sentences, but not within inline code or math."""
    protected = [match.span() for match in _WHOLE.finditer(text, start, end)]

    def is_inside(cut: int) -> bool:
        before = bisect_left(protected, (cut, 0))  # the number of spans that begin before the cut
        return before > 0 and protected[before - 1][1] > cut

    ends = (match.end() for match in _SENTENCE.finditer(text, start, end))
    return [cut for cut in ends if cut < end and not is_inside(cut) and is_between_characters(text, cut)]


def _characters(text: str, start: int, end: int) -> Sequence[int]:
    cuts = range(start + _CHARACTERS_AT_A_TIME, end, _CHARACTERS_AT_A_TIME)
    return cuts if text.isascii() else [cut for cut in cuts if is_between_characters(text, cut)]


@dataclass(frozen=True, slots=True)
class ChunkSize:
    """The most tokens that a chunk may have, heading path included."""

    max_tokens: int = CHUNK_TOKENS

    def __str__(self) -> str:
        """Return the chunker's version and parameters, as the fingerprint stores them."""
        return f"recto-{VERSION} max_tokens={self.max_tokens}"


DEFAULT_SIZE = ChunkSize()


@dataclass(frozen=True, slots=True)
class PlannedChunk:
    """A chunk of a new index; each step of an index run adds what it finds out.

    The chunker sets `embedded`: the heading path, the first section questions, then the text as written.
    Reading the page adds the number of `tokens` to embed and the `lexical` vector. The plan sets `unchanged`
    if the current index has the very same chunk, and `tokens` to 0 if its text is not embedded again. A chunk
    that is kept from the current index without being read has neither `embedded` nor `lexical`.
    """

    chunk: Chunk
    embedded: str = ""
    tokens: int = 0
    lexical: SparseVector | None = None
    unchanged: bool = False


@dataclass(frozen=True, slots=True)
class _ChunkDraft:
    """A chunk before it has an id: consecutive parts of one section."""

    section: Section
    path: str
    parts: list[BlockPart] = field(default_factory=list)

    @property
    def text(self) -> str:
        first, *others = self.parts
        rest = "".join(part.glue + part.text for part in others)
        return first.repeated + first.text + rest + self.parts[-1].closing

    def embedded(self, questions: int = 0) -> str:
        return embedded_text(self.path, self.section.questions[:questions], self.text)

    @property
    def tokens(self) -> int:
        return sum(part.tokens + _SEPARATOR_TOKENS for part in self.parts)


def chunk_page(
    page: Page,
    document: Document,
    book: str,
    count_tokens: Count,
    max_tokens: int,
    size: ChunkSize,
    model_languages: Sequence[str] = (),
) -> list[PlannedChunk]:
    """Split a page into chunks that the model reads whole; a chunk never holds text of two sections.

    `model_languages` are the languages that the model knows; it is empty if it knows all.
    """
    language = page_language(page, document)
    limit = _limit(size, max_tokens, is_known=not model_languages or language in ("", *model_languages))
    special = count_tokens("")

    @cache  # headings repeat in the paths of their subsections
    def count(text: str) -> int:
        return count_tokens(text) - special

    while True:
        margin = special + _MARGIN
        drafts = [draft for section in document.sections for draft in _drafts(section, limit, margin, count)]
        # The tokens of the whole may differ from the sum of its parts. Count the whole where it could exceed
        # the model's limit, and if it does, split the page again with a smaller limit.
        close = (draft for draft in drafts if draft.tokens + count(draft.path) > max_tokens * _SAFE_SHARE)
        if limit <= _MIN_TOKENS or all(count_tokens(draft.embedded()) <= max_tokens for draft in close):
            break
        limit = limit * 3 // 4
    anchors = _anchors(document.sections, drafts)
    chunks = []
    for index, draft in enumerate(drafts):
        first, last = draft.parts[0].first, draft.parts[-1].last
        embedded = _with_questions(draft, count_tokens, max_tokens)
        chunk = Chunk(
            id=chunk_id(book, page.path, index),
            text=draft.text,
            page_url=page.url,
            title=document.title,
            module=page.module,
            module_keys=page.module_keys,
            headings=draft.section.headings,
            anchor=draft.section.anchor,
            chunk_index=index,
            total_chunks=len(drafts),
            start_line=page.lines[first - 1] if page.lines else first,
            end_line=page.lines[last - 1] if page.lines else last,
            content_hash=hashlib.sha256(embedded.encode()).hexdigest(),
            source=page.path,
            book=book,
            anchors=anchors[index],
            version=page.version,
            locale=page.locale,
            language=language,
            locales=page.locales,
            questions=draft.section.questions,
        )
        chunks.append(PlannedChunk(chunk, embedded))
    return chunks


def embedded_text(path: str, questions: Sequence[str], text: str) -> str:
    """Return what is embedded for a chunk: the heading path, section questions, and its text."""
    return "\n\n".join((path, *(["\n".join(questions)] if questions else []), text))


def _with_questions(draft: _ChunkDraft, count_tokens: Count, max_tokens: int) -> str:
    """Return what is embedded for a chunk, with as many of its first questions as the model can read."""
    for questions in range(min(len(draft.section.questions), EMBEDDED_QUESTIONS), 0, -1):
        if count_tokens(embedded := draft.embedded(questions)) <= max_tokens:
            return embedded
    return draft.embedded()


def _limit(size: ChunkSize, max_tokens: int, *, is_known: bool) -> int:
    """Return the most tokens of a chunk: more of them if the model does not know the language."""
    limit = min(size.max_tokens * (1 if is_known else _OTHER_LANGUAGE_FACTOR), max_tokens)
    if limit < _MIN_TOKENS:
        raise ConfigurationError(
            f"The embedding model reads only {max_tokens} tokens, too few for a chunk",
            hint="Choose another RECTO_MODEL.",
        )
    return limit


def page_language(page: Page, document: Document) -> str:
    """Return the language of a page: stated in its front matter, detected, or configured for the site.

    The configured language comes last, because sites have pages that are not translated yet.
    """
    if stated := language_tag(document.front_matter.get("lang")):
        return stated
    blocks = (block for section in document.sections for block in section.blocks if block.kind != "code")
    text = "\n\n".join(block.text for block in islice(blocks, _BLOCKS_TO_DETECT))
    return detect_language(f"{document.title}\n\n{text}") or language_tag(page.locale)


def chunk_id(book: str, path: str, index: int) -> str:
    """Return the id of a chunk; it is the same in every run."""
    return str(uuid.uuid5(_NAMESPACE, f"{book}\n{path}\n{index}"))


def _anchors(sections: Sequence[Section], drafts: Sequence[_ChunkDraft]) -> list[tuple[str, ...]]:
    """Assign each anchor to the chunk of its section that holds its line, or to the section's last chunk."""
    by_draft = [[draft.section.anchor] if draft.section.anchor else [] for draft in drafts]
    index = 0
    for section in sections:
        while drafts[index].section is not section:
            index += 1
        for line, anchor in section.anchors:
            while drafts[index].parts[-1].last < line and drafts[index + 1 : index + 2]:
                if drafts[index + 1].section is not section:
                    break
                index += 1
            by_draft[index].append(anchor)
    return [tuple(dict.fromkeys(anchors)) for anchors in by_draft]


def _drafts(section: Section, limit: int, margin: int, count: Count) -> list[_ChunkDraft]:
    """Pack a section's blocks into chunks of about equal size."""
    path = _heading_path(section, limit, count)
    room = limit - count(path) - margin
    parts = [part for block in section.blocks for part in split_block(block, room, count)]
    total = sum(part.tokens + _SEPARATOR_TOKENS for part in parts)
    # Filling each chunk to the brim would leave a crumb at the end. All get about the same size instead.
    fair = total / math.ceil(total / room)
    drafts = [_ChunkDraft(section, path)]
    tokens = 0
    for part in parts:
        if drafts[-1].parts and (tokens + part.tokens + _SEPARATOR_TOKENS > room or tokens >= fair):
            drafts.append(_ChunkDraft(section, path))
            tokens = 0
        drafts[-1].parts.append(part)
        tokens += part.tokens + _SEPARATOR_TOKENS
    return drafts


def _heading_path(section: Section, limit: int, count: Count) -> str:
    """Return the heading path, without its outer headings if it takes more than a quarter of the chunk."""
    headings = section.headings
    while len(headings) > 1 and count(HEADING_SEPARATOR.join(headings)) > limit // 4:
        headings = headings[1:]
    path = HEADING_SEPARATOR.join(headings)
    while count(path) > limit // 4:
        path = path[: len(path) // 2]
    return path


# Markup of generators that no rule resolved, and that is left in the text of chunks.
_ANY_CODE = re.compile(r"(?<!`)(`+)(?!`)[^\n]{0,1000}?(?<!`)\1(?!`)|<code\b[^<>\n]*>[^\n]{0,1000}?</code>")
_DOUBLE_CODE = re.compile(r"(?<!`)(`{2,9})(?!`)[^\n]{0,1000}?(?<!`)\1(?!`)")  # can show a role
_UNRESOLVED_ROLES = {
    "{…}`…` (role)": re.compile(r"(?<![\w`/=:@^-])\{[a-z][\w:+-]*\}`[^`\n]+`"),
    ":…:`…` (role)": re.compile(r"(?<![\w`])(?::[a-z][\w+-]*){1,2}:`[^`\n]+`"),
}
_UNRESOLVED = {
    "{{…}} (template)": re.compile(r"(?<!=)\{\{(?![<%])[^{}\n]+\}\}"),
    "{%…%} (template)": re.compile(r"\{%[^{}\n]+%\}"),
    "{{<…>}} (shortcode)": re.compile(r"\{\{[<%][^{}\n]{0,1000}[%>]\}\}"),
    ":::{…} (directive)": re.compile(r"^[ \t>]*:{3,}[ \t]*\{", re.MULTILINE),
    ".. …:: (directive)": re.compile(r"^[ \t]*\.\. [a-z][\w:-]*::", re.MULTILINE),
    "<<< (snippet)": re.compile(r"^[ \t]*<<< \S", re.MULTILINE),
    "::: … (API reference)": re.compile(r"^[ \t]*::: [A-Za-z_]\w*(?:\.\w+)+[ \t]*$", re.MULTILINE),
    "#|… (option)": re.compile(r"^[ \t]*#\|[^\n]", re.MULTILINE),
    "…::…[] (macro)": re.compile(r"^[a-z]++::[^\s\[]*+\[[^\]\n]*+\]$", re.MULTILINE),
}
_MAY_BE_UNRESOLVED = re.compile(r"\{|:`|::|<<<|#\|")


def find_leftovers(text: str) -> Iterator[tuple[int, str]]:
    """Yield the markup in the text of a page that is not code: the index of its line, and its kind.

    The text of one chunk is not enough: it may begin or end within a fence.
    """
    if not _MAY_BE_UNRESOLVED.search(text):
        return
    text = _DOUBLE_CODE.sub("", without_fences(text))
    for kind, mark in _UNRESOLVED_ROLES.items():  # their text looks like code
        for match in mark.finditer(text):
            line = text.rfind("\n", 0, match.start()) + 1
            if text.count("`", line, match.start()) % 2 == 0:  # else it ends a code span: `a.{b}` and `b`
                yield text.count("\n", 0, line), kind
        text = mark.sub("", text)
    text = _ANY_CODE.sub("", text)
    for kind, mark in _UNRESOLVED.items():
        yield from ((text.count("\n", 0, match.start()), kind) for match in mark.finditer(text))


def leftovers(text: str) -> Counter[str]:
    """Count the markup in a text that is not code."""
    return Counter(kind for _, kind in find_leftovers(text))


def describe_leftovers(counts: Counter[str]) -> str:
    """Return a sentence about markup that was not resolved, without a full stop."""
    kinds = ", ".join(f"{number:,} {kind}" for kind, number in counts.most_common())
    return f"Markup that was not resolved and is kept as text: {kinds}"
