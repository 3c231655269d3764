"""Check that an index still contains what was published: texts, fields, order and vectors of all chunks."""

from __future__ import annotations

import hashlib
import html
import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from heapq import nsmallest
from itertools import accumulate, islice
from statistics import median
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from recto._util import cosine
from recto._util.languages import UNSPACED
from recto._util.markdown import code_fences, heading_key
from recto._util.text import plural
from recto.book.chunking import EMBEDDED_QUESTIONS, chunk_id, embedded_text, find_leftovers
from recto.indexing.planner import content_digest
from recto.protocols import Embedder, Index, Source
from recto.types.book import Page
from recto.types.search import HEADING_SEPARATOR, Chunk, Vector

if TYPE_CHECKING:
    from numpy.typing import NDArray

_EXAMPLES = 5
_WORD = re.compile(rf"[{UNSPACED}]|[^\W_{UNSPACED}]+")  # chunks end anywhere in text without spaces
_HERE = 0.8  # share of a chunk's words that its lines must contain
_CUT_WORDS = 2  # a chunk may begin and end within a long word
_EXACT_FORMATS = frozenset({"markdown", "mdx"})  # readers that convert a format know lines approximately
_OPEN_TAG = re.compile(r"<[A-Za-z][^<>]*$")
_LONGEST_TAG = 20  # lines
_REPEATED = ("|", "```", "~~~", ":::", "<", "#", "!!!", "???", "===", "participant ", "actor ", ":", ".. ")
"""Prefixes of lines that may be shown elsewhere, such as table headers and attributes."""
_RULE = re.compile(r"[ \t:-]*+\|[ \t:|-]*+")  # below the head of a table

_PAGES = 32  # pages whose shortest chunk is embedded again
_SUSPECTS = 6  # chunks that are farthest from the others: noise is among them, if there is any
_BATCH = 256  # chunks that are checked together; the first batch gives the mean vector
_LENGTH_OFF = 0.01
_SAME = 0.97  # least cosine of the same text and model, in any precision
_FOREIGN_SAME = 0.5  # the same for foreign chunks, which may be embedded with more text around them
MOST = 10_000
"""Chunks to check in a large index, unless all are requested."""

_FEWEST_WORDS = 30  # fewer lost words may be links and settings
_LINE_WORDS = 4  # a line with fewer distinct words may be markup
_LOST = 0.5  # share of the words of a page, or of a line, that are not in the index
_EXCERPT = 80  # characters of a line that are quoted
_UNREAD_FORMATS = frozenset({"html", "epub", "ipynb"})  # their source is mostly markup
_DIRECTIVE = re.compile(r"\{(?!code)[\w:-]+\}|mdx-code-block")  # fences whose content is text
_COMMENT = re.compile(r"[ \t]*+#{1,6}+[ \t]++(.+)")
_LITERAL = r"^([ \t]*+)(?=[^\n]*::(?:[ \t]|\n))[^\n]*+\n(?:[ \t]*\n|\1[ \t]+\S[^\n]*(?:\n|\Z))+"
_NOT_TEXT = re.compile(rf"<!--.*?(?:-->|\Z)|{_LITERAL}", re.MULTILINE | re.DOTALL)
_NOT_SHOWN = re.compile(
    r"\A---\n.*?^---$|<!--.*?(?:-->|\Z)|^////\n.*?(?:^////$|\Z)|^\.\.[ \t][^\n:]*\n(?:[ \t]+\S[^\n]*\n)*"
    r"|\{/\*.*?(?:\*/\}|\Z)|^(?:import|export)\b[^\n]*|^:[\w-]+:[^\n]*|\]\([^)\n]{0,1000}\)"
    r"|</?[A-Za-z][^<>]{0,1000}>|https?://\S+|\[\[[^\]]{0,500}\]\]"
    r"|^\[[^\]\n]*\]$|\b[a-z]{1,30}+::?[^\s\[]{0,99}+(?=\[)|^[ \t]*[!-~]+$",
    re.MULTILINE | re.DOTALL,
)


class IssueKind(StrEnum):
    """A kind of damage, with its message."""

    message: str

    def __new__(cls, value: str, message: str) -> Self:
        """Create a kind."""
        kind = str.__new__(cls, value)
        kind._value_, kind.message = value, message
        return kind

    NO_TEXT = "no_text", "{chunks} without text"
    NO_URL = "no_url", "{chunks} without a page URL"
    BAD_URL = "bad_url", "{chunks} with an invalid URL"
    NO_TITLE = "no_title", "{chunks} without a page title"
    NO_MODULE = "no_module", "{chunks} without a module, which module filters never return"
    BAD_NUMBER = "bad_number", "{chunks} with an invalid index within the page"
    MISSING = "missing_chunks", "{chunks} missing from pages"
    REPEATED = "repeated_chunks", "{chunks} with the same index as another chunk of the page"
    SHUFFLED = "shuffled_chunks", "{chunks} not in the order of the lines"
    WRONG_ID = "wrong_id", "{chunks} with the id of another chunk"
    OTHER_TEXT = "text_is_not_what_was_embedded", "{chunks} with a text that differs from the embedded one"
    NOT_AS_PUBLISHED = "not_as_published", "The index does not match what was published"
    BAD_VECTOR = "unusable_vector", "{vectors} that cannot be used: zero, not finite or not of length one"
    OTHER_VECTOR = "vector_of_another_text", "{vectors} of another text"
    OTHER_MODEL = (
        "vectors_of_another_model",
        "Another model made the vectors, not the one that embeds queries",
    )
    NOT_IN_SOURCE = "text_not_in_source", "{chunks} not on the page in the book"
    OTHER_LINES = "text_at_other_lines", "{chunks} at other lines in the book"
    EMPTY_HEADING = "empty_heading", "{chunks} below a heading without a word"
    CODE_HEADING = "heading_from_code", "{headings} made from comments or code"
    SHRUNK = "text_lost", "{pages} with less than half of the words of the source"
    MARKUP = "markup", "{chunks} with markup that was not resolved"


READING = frozenset({IssueKind.EMPTY_HEADING, IssueKind.CODE_HEADING, IssueKind.SHRUNK, IssueKind.MARKUP})
"""What goes wrong when a book is read: the index is as it was published."""


@dataclass(slots=True)
class Issue:
    """A kind of damage, its count, and a few examples."""

    kind: IssueKind
    count: int = 0
    places: list[str] = field(default_factory=list)

    @property
    def message(self) -> str:
        """The damage and its count."""
        counts = {f"{noun}s": plural(self.count, noun) for noun in ("chunk", "vector", "heading", "page")}
        return self.kind.message.format_map(counts)


class Issues(dict[IssueKind, Issue]):
    """The issues that are found while an index is read."""

    def add(self, kind: IssueKind, place: str, count: int = 1) -> None:
        """Count an issue, and keep its place if there are few examples yet."""
        issue = self.setdefault(kind, Issue(kind))
        issue.count += count
        if len(issue.places) < _EXAMPLES and place not in issue.places:
            issue.places.append(place)

    def listed(self) -> tuple[Issue, ...]:
        """Return the issues in the order of their kinds."""
        return tuple(self[kind] for kind in IssueKind if kind in self)


def describe(chunk: Chunk) -> str:
    """Return the page and index of a chunk, for people."""
    return f"{chunk.page_url or chunk.source or chunk.id} (chunk {chunk.chunk_index})"


def _lines(chunk: Chunk) -> str:
    """Return the page and lines of a chunk, for people."""
    return f"{chunk.source}, lines {chunk.start_line} to {chunk.end_line}"


def indexed_text(chunk: Chunk) -> str | None:
    """Return the text that was embedded for a chunk, by its content hash; None if the text has changed.

    The chunker shortens a heading path that is too long: outer headings first, then the last one by halves.
    It leaves out the last section questions if the model cannot read all of them.
    """
    headings = chunk.headings
    paths = [HEADING_SEPARATOR.join(headings[start:]) for start in range(max(len(headings), 1))]
    while len(paths[-1]) > 1:
        paths.append(paths[-1][: len(paths[-1]) // 2])
    counts = range(min(len(chunk.questions), EMBEDDED_QUESTIONS), -1, -1)
    texts = (embedded_text(path, chunk.questions[:count], chunk.text) for path in paths for count in counts)
    known = chunk.content_hash
    return next((text for text in texts if hashlib.sha256(text.encode()).hexdigest() == known), None)


def words(text: str) -> Counter[str]:
    """Count the words of a text, with HTML entities decoded."""
    return Counter(_WORD.findall((html.unescape(text) if "&" in text else text).lower()))


def contained(part: Counter[str], whole: Counter[str]) -> float:
    """Return the share of a text's distinct words that another text contains."""
    return len(part.keys() & whole.keys()) / len(part) if part else 1.0


def _holds(whole: Counter[str], part: Counter[str]) -> bool:
    """Return whether a text contains nearly all words of a chunk."""
    return len(part.keys() - whole.keys()) <= _CUT_WORDS or contained(part, whole) >= _HERE


def similar(text: str, other: str) -> float:
    """Return the share of words that two texts have in common (Jaccard index of word counts)."""
    left, right = words(text), words(other)
    either = (left | right).total()
    return (left & right).total() / either if either else 1.0


def compare_with_source(
    chunks: Iterable[Chunk],
    source: Source,
    issues: Issues,
    changed: frozenset[str] = frozenset(),
    *,
    complete: bool = True,
) -> int:
    """Compare chunks with the pages of a book, and return how many were compared.

    Pages in `changed` were edited since the book was indexed: a missing text there is not damage. Unless the
    chunks are `complete`, a page without chunks is not damage either.
    """
    by_page, compared = _by_page(chunks), 0
    for page in source.pages():
        found = by_page.get(page.path, [])
        compared += len(found)
        lines = page.text.split("\n")
        numbers: Sequence[int] = page.lines or range(1, len(lines) + 1)  # included files have no numbers
        _check_headings(found, issues, page.text)
        if page.path in changed or not _check_lines(page, lines, numbers, found, issues):
            continue
        is_whole = len(found) == found[0].total_chunks if found else complete
        lost = _lost_line(page, found) if is_whole else None
        damage = [(IssueKind.CODE_HEADING, line) for line in _code_headings(lines, found)]
        for kind, line in damage if lost is None else [*damage, (IssueKind.SHRUNK, lost)]:
            issues.add(kind, f"{page.path}, line {numbers[line]}: {lines[line].strip()[:_EXCERPT]}")
    return compared


def _check_lines(
    page: Page, lines: Sequence[str], numbers: Sequence[int], chunks: Iterable[Chunk], issues: Issues
) -> bool:
    """Check that chunks are on their page, at their lines; return whether all are on the page."""
    whole = words("\n".join((page.text, *(label for _, label in page.references))))
    pairs = zip(lines, [*lines[1:], ""], strict=True)  # the head of a table may have no pipe at its start
    rows = [above for above, line in pairs if above.lstrip().startswith(_REPEATED) or _RULE.fullmatch(line)]
    repeated = words("\n".join(rows))
    is_there = True
    for chunk in chunks:
        first, last = bisect_left(numbers, chunk.start_line), bisect_right(numbers, chunk.end_line)
        # The text of a tag is at its first line, wherever its attributes are.
        end = min(last + _LONGEST_TAG, len(lines))
        while last < end and _OPEN_TAG.search("\n".join(lines[first:last])):
            last += 1
        text = words(chunk.text)
        if _holds(words("\n".join(lines[first:last])) + repeated, text):
            continue
        if not _holds(whole, text):
            is_there = False
            issues.add(IssueKind.NOT_IN_SOURCE, _lines(chunk))
        elif page.format in _EXACT_FORMATS:
            issues.add(IssueKind.OTHER_LINES, _lines(chunk))
    return is_there


def _count_markup(chunks: Iterable[Chunk], issues: Issues) -> Counter[str]:
    """Count the markup that was not resolved, by kind."""
    counts: Counter[str] = Counter()
    for name, found in _by_page(chunks).items():
        texts = [f"{chunk.text}\n\n" for chunk in found]
        starts = list(accumulate((text.count("\n") for text in texts), initial=0))
        for line, kind in find_leftovers("".join(texts)):
            index = bisect_right(starts, line) - 1
            number = min(found[index].start_line + line - starts[index], found[index].end_line)
            counts[kind] += 1
            issues.add(IssueKind.MARKUP, f"{name}, line {number}: {kind}")
    return counts


def _by_page(chunks: Iterable[Chunk]) -> dict[str, list[Chunk]]:
    """Group chunks by page, in the order of the page."""
    by_page: dict[str, list[Chunk]] = defaultdict(list)
    for chunk in sorted(chunks, key=lambda chunk: chunk.chunk_index):
        by_page[chunk.source].append(chunk)
    return by_page


def _check_headings(chunks: Iterable[Chunk], issues: Issues, text: str = "") -> None:
    """Check that headings have words; an operator may be one if the text of the page shows it as code."""
    for chunk in chunks:
        symbols = [heading for heading in chunk.headings if not any(map(str.isalnum, heading))]
        if any(not heading or f"`{heading}`" not in text for heading in symbols):
            issues.add(IssueKind.EMPTY_HEADING, f"{_lines(chunk)}: {chunk.headings}")


def _blank(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")


def _prose(text: str) -> str:
    """Blank the lines of code and comments; the content of a directive is text."""
    parts, end = [], 0
    for opened, closed in code_fences(text):
        first, last = opened.end(), closed.start() if closed else len(text)
        inner = text[first:last]
        is_text = _DIRECTIVE.match(opened["info"])
        parts += [text[end:first], _prose(inner) if is_text else "\n" * inner.count("\n")]
        end = last
    return _NOT_TEXT.sub(_blank, "".join([*parts, text[end:]]))


def _code_headings(lines: Sequence[str], chunks: Sequence[Chunk]) -> Iterator[int]:
    """Yield the indexes of the lines of code and comments that became headings."""
    headings = {heading_key(name) for chunk in chunks for name in chunk.headings if name != chunk.title}
    comments = {
        index: key
        for index, line in enumerate(lines)
        if (comment := _COMMENT.match(line)) and (key := heading_key(comment[1].rstrip(" \t#"))) in headings
    }
    if comments:
        prose = _prose("\n".join(lines)).split("\n")
        written = {heading_key(line.strip(" \t#=")) for line in prose}
        yield from (index for index, key in comments.items() if key not in written)


def _lost_line(page: Page, chunks: Sequence[Chunk]) -> int | None:
    """Return the index of the first line that is not in the index, if most of the page is not."""
    if page.format in _UNREAD_FORMATS:
        return None
    known = words("\n".join(part for chunk in chunks for part in (*chunk.headings, chunk.text)))
    by_line = [words(line) for line in _NOT_SHOWN.sub(_blank, page.text).split("\n")]
    sizes = {index: len(line) for index, line in enumerate(by_line) if len(line) >= _LINE_WORDS}
    lost = [index for index in sizes if contained(by_line[index], known) < 1 - _LOST]
    least = max(_LOST * sum(sizes.values()), _FEWEST_WORDS)
    return lost[0] if sum(sizes[index] for index in lost) > least else None


class _VectorCheck:
    """Checks vectors batch by batch, and keeps the chunks to embed again."""

    def __init__(self, *, by_recto: bool) -> None:
        self._by_recto = by_recto
        self._mean: NDArray[Any] | None = None
        self._shortest: dict[str, tuple[Chunk, Vector]] = {}
        self._farthest: list[tuple[float, Chunk, Vector]] = []

    def add(self, chunks: Sequence[Chunk], vectors: Mapping[str, Vector], issues: Issues) -> None:
        """Check that the vectors of some chunks are finite and normalised."""
        import numpy as np

        usable: list[Chunk] = []
        for chunk in chunks:
            length = np.linalg.norm(np.asarray(vectors.get(chunk.id, ()), dtype=np.float32))
            if abs(length - 1) <= _LENGTH_OFF:  # false for NaN, too
                usable.append(chunk)
                self._keep_shortest(chunk, vectors[chunk.id])
            else:
                issues.add(IssueKind.BAD_VECTOR, describe(chunk))
        if not usable:
            return
        array = np.asarray([vectors[chunk.id] for chunk in usable], dtype=np.float32)
        if self._mean is None:
            self._mean = array.mean(axis=0)
        near = zip((array @ self._mean).tolist(), usable, strict=True)
        more = ((similarity, chunk, vectors[chunk.id]) for similarity, chunk in near)
        self._farthest = nsmallest(
            _SUSPECTS, [*self._farthest, *more], key=lambda suspect: (suspect[0], suspect[1].id)
        )

    def compare(self, embedder: Embedder, issues: Issues) -> tuple[float | None, int]:
        """Embed the kept chunks again; return the median cosine, and the number of chunks."""
        sampled = {chunk.id: (chunk, vector) for chunk, vector in self._shortest.values()}
        stored = {chunk.id: (chunk, vector) for _, chunk, vector in self._farthest} | sampled
        texts = {id: text for id, (chunk, _) in stored.items() if (text := self._text(chunk, embedder))}
        if not texts:
            return None, 0
        fresh = zip(texts, embedder.embed_documents(list(texts.values())), strict=True)
        cosines = {id: cosine(vector, stored[id][1]) for id, vector in fresh}
        agreement = median([cosines[id] for id in texts if id in sampled] or cosines.values())
        least = _SAME if self._by_recto else _FOREIGN_SAME
        wrong = [id for id in texts if cosines[id] < least]
        if agreement < least:
            evidence = f"a cosine of {agreement:.3f} between stored and fresh vectors of the same texts"
            issues.add(IssueKind.OTHER_MODEL, evidence, len(wrong))
        else:
            for id in wrong:
                issues.add(IssueKind.OTHER_VECTOR, describe(stored[id][0]))
        return agreement, len(texts)

    def _text(self, chunk: Chunk, embedder: Embedder) -> str | None:
        """Return the text to embed; a changed text is reported already, so its vector tells nothing more."""
        if self._by_recto:
            return indexed_text(chunk)
        return chunk.text if embedder.count_tokens(chunk.text) <= embedder.max_tokens else None

    def _keep_shortest(self, chunk: Chunk, vector: Vector) -> None:
        """Keep the shortest chunk of a page: it is the cheapest to embed, and reveals swapped pages, too."""
        shortest = self._shortest.get(chunk.page_url)
        if shortest is None and len(self._shortest) >= _PAGES:
            return
        if shortest is None or (len(chunk.text), chunk.id) < (len(shortest[0].text), shortest[0].id):
            self._shortest[chunk.page_url] = chunk, vector


@dataclass(frozen=True, slots=True)
class Integrity:
    """The result of a check.

    `agreement` is the median cosine of stored and fresh vectors. `markup` counts what the readers of the book
    did not resolve, by kind.
    """

    chunks: int
    checked: int
    embedded: int
    sourced: int
    agreement: float | None
    issues: tuple[Issue, ...]
    markup: Counter[str]

    @property
    def complete(self) -> bool:
        """Whether every chunk was checked."""
        return self.checked == self.chunks


def check_integrity(
    index: Index,
    embedder: Embedder | None = None,
    source: Source | None = None,
    *,
    changed: frozenset[str] = frozenset(),
    everything: bool = False,
) -> Integrity:
    """Read an index once in batches; with an embedder also compare vectors, with a source also compare texts.

    Pages in `changed` were edited since and are not compared with the source. Collections of other pipelines
    get only the checks that apply to every pipeline.
    """
    total, issues, fingerprint = index.count(), Issues(), index.info.fingerprint
    by_recto = fingerprint is not None
    vectors = _VectorCheck(by_recto=by_recto)
    pages: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    kept: list[Chunk] = []
    content = checked = 0
    chunks = islice(index.scroll(), total if everything else MOST)
    while batch := list(islice(chunks, _BATCH)):
        for chunk in batch:
            _check_fields(chunk, issues, by_recto=by_recto)
            numbers = chunk.chunk_index, chunk.start_line, chunk.total_chunks
            pages[chunk.source if by_recto else chunk.page_url].append(numbers)
            content ^= content_digest(chunk)
        if by_recto:
            kept += batch
            if source is None:
                _check_headings(batch, issues)
        vectors.add(batch, index.vectors([chunk.id for chunk in batch]), issues)
        checked += len(batch)
    if complete := checked == total:
        _check_pages(pages, issues, by_recto=by_recto)
        if fingerprint is not None and fingerprint.content_hash != f"{content:064x}":
            issues.add(IssueKind.NOT_AS_PUBLISHED, index.info.collection)
    agreement, embedded = vectors.compare(embedder, issues) if embedder else (None, 0)
    markup = _count_markup(kept, issues)
    sourced = (
        compare_with_source(kept, source, issues, changed, complete=complete) if by_recto and source else 0
    )
    return Integrity(total, checked, embedded, sourced, agreement, issues.listed(), markup)


def _check_fields(chunk: Chunk, issues: Issues, *, by_recto: bool) -> None:
    """Check what every chunk must have; the contract of the test command lists it."""
    where = describe(chunk)
    if not chunk.text.strip():
        issues.add(IssueKind.NO_TEXT, where)
    if not chunk.page_url:
        issues.add(IssueKind.NO_URL, where)
    elif not _is_address(chunk.page_url, strict=by_recto):
        issues.add(IssueKind.BAD_URL, where)
    if not chunk.title.strip():
        issues.add(IssueKind.NO_TITLE, where)
    if not chunk.module.strip() or not any(key.strip() for key in chunk.module_keys):
        issues.add(IssueKind.NO_MODULE, where)
    if not 0 <= chunk.chunk_index < chunk.total_chunks:
        issues.add(IssueKind.BAD_NUMBER, where)
    if by_recto and indexed_text(chunk) is None:
        issues.add(IssueKind.OTHER_TEXT, where)
    if by_recto and chunk.id != chunk_id(chunk.book, chunk.source, chunk.chunk_index):
        issues.add(IssueKind.WRONG_ID, chunk.source)


def _is_address(url: str, *, strict: bool) -> bool:
    """Return whether a text can be a page's address; other pipelines also store paths."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    visible = url.replace(" ", "") if parts.scheme == "local" else url  # the name of a file can have spaces
    if any(character.isspace() or not character.isprintable() for character in visible):
        return False
    return bool(parts.scheme and (parts.netloc or parts.path.strip("/"))) or (not strict and bool(parts.path))


def _check_pages(pages: Mapping[str, list[tuple[int, int, int]]], issues: Issues, *, by_recto: bool) -> None:
    """Check the chunk indexes of each page: they must be 0 to n-1, each once, in the order of their lines."""
    if not by_recto and not any(index for chunks in pages.values() for index, _, _ in chunks):
        return  # the pipeline did not number them
    for name, chunks in pages.items():
        numbered = sorted(chunk for chunk in chunks if chunk[0] >= 0)
        if not numbered:
            continue
        distinct = len({index for index, _, _ in numbered})
        expected = max(numbered[-1][2], distinct) if by_recto else numbered[-1][0] + 1
        if missing := expected - distinct:
            issues.add(IssueKind.MISSING, name, missing)
        if repeated := len(numbered) - distinct:
            issues.add(IssueKind.REPEATED, name, repeated)
        lines = [line for _, line, _ in numbered]
        shuffled = sum(line != other for line, other in zip(lines, sorted(lines), strict=True))
        if by_recto and shuffled:
            issues.add(IssueKind.SHUFFLED, name, shuffled)
