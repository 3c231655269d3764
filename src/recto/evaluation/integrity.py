"""Check that an index still contains what was published: texts, fields, order and vectors of all chunks."""

from __future__ import annotations

import hashlib
import html
import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from heapq import nsmallest
from itertools import islice
from statistics import median
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from recto._util import cosine
from recto._util.languages import UNSPACED
from recto._util.text import plural
from recto.book.chunking import chunk_id, leftovers
from recto.protocols import Embedder, Index, Source
from recto.types.search import HEADING_SEPARATOR, Chunk, Vector

if TYPE_CHECKING:
    from numpy.typing import NDArray

_EXAMPLES = 5
_WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+")  # chunks end anywhere in text without spaces
_HERE = 0.8  # share of a chunk's words that its lines must contain
_OPEN_TAG = re.compile(r"<[A-Za-z][^<>]*$")
_LONGEST_TAG = 20  # lines
_REPEATED = ("|", "```", "~~~", ":::", "<", "#", "!!!", "???", "===", "participant ", "actor ")
"""Prefixes of lines that the chunker may repeat, such as table headers."""

_PAGES = 32  # pages whose shortest chunk is embedded again
_SUSPECTS = 6  # chunks that are farthest from the others: noise is among them, if there is any
_BATCH = 256  # chunks that are checked together; the first batch gives the mean vector
_LENGTH_OFF = 0.01
_SAME = 0.97  # least cosine of the same text and model, in any precision
_FOREIGN_SAME = 0.5  # the same for foreign chunks, which may be embedded with more text around them
MOST = 10_000
"""Chunks to check in a large index, unless all are requested."""


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


@dataclass(slots=True)
class Issue:
    """A kind of damage, its count, and a few examples."""

    kind: IssueKind
    count: int = 0
    places: list[str] = field(default_factory=list)

    @property
    def message(self) -> str:
        """The damage and its count."""
        counts = {f"{noun}s": plural(self.count, noun) for noun in ("chunk", "vector")}
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


def embedded_text(chunk: Chunk) -> str | None:
    """Return the text that was embedded for a chunk, by its content hash; None if the text has changed.

    The chunker shortens a heading path that is too long: outer headings first, then the last one by halves.
    """
    headings = chunk.headings
    paths = [HEADING_SEPARATOR.join(headings[start:]) for start in range(max(len(headings), 1))]
    while len(paths[-1]) > 1:
        paths.append(paths[-1][: len(paths[-1]) // 2])
    candidates = (f"{path}\n\n{chunk.text}" for path in paths)
    return next(
        (text for text in candidates if hashlib.sha256(text.encode()).hexdigest() == chunk.content_hash), None
    )


def words(text: str) -> Counter[str]:
    """Count the words of a text, with HTML entities decoded."""
    return Counter(_WORD.findall((html.unescape(text) if "&" in text else text).lower()))


def contained(part: Counter[str], whole: Counter[str]) -> float:
    """Return the share of a text's distinct words that another text contains."""
    return len(part.keys() & whole.keys()) / len(part) if part else 1.0


def similar(text: str, other: str) -> float:
    """Return the share of words that two texts have in common (Jaccard index of word counts)."""
    left, right = words(text), words(other)
    either = (left | right).total()
    return (left & right).total() / either if either else 1.0


def compare_with_source(
    chunks: Iterable[Chunk], source: Source, issues: Issues, changed: frozenset[str] = frozenset()
) -> int:
    """Compare chunks with the pages of a book, and return how many were compared.

    Pages in `changed` were edited since the book was indexed: a missing text there is not damage.
    """
    by_page: dict[str, list[Chunk]] = defaultdict(list)
    for chunk in chunks:
        by_page[chunk.source].append(chunk)
    compared = 0
    for page in source.pages():
        lines = page.text.split("\n")
        numbers: Sequence[int] = page.lines or range(1, len(lines) + 1)  # included files have no numbers
        whole = words(page.text)
        repeated = words("\n".join(line for line in lines if line.lstrip().startswith(_REPEATED)))
        for chunk in by_page[page.path]:
            compared += 1
            first, last = bisect_left(numbers, chunk.start_line), bisect_right(numbers, chunk.end_line)
            # The text of a tag is at its first line, wherever its attributes are.
            end = min(last + _LONGEST_TAG, len(lines))
            while last < end and _OPEN_TAG.search("\n".join(lines[first:last])):
                last += 1
            text, at_lines = words(chunk.text), words("\n".join(lines[first:last])) + repeated
            if page.path not in changed and contained(text, at_lines) < _HERE:
                kind = IssueKind.OTHER_LINES if contained(text, whole) >= _HERE else IssueKind.NOT_IN_SOURCE
                issues.add(kind, f"{page.path}, lines {chunk.start_line} to {chunk.end_line}")
    return compared


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
            return embedded_text(chunk)
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
    markup: Counter[str] = Counter()
    content = checked = 0
    chunks = islice(index.scroll(), total if everything else MOST)
    while batch := list(islice(chunks, _BATCH)):
        for chunk in batch:
            _check_fields(chunk, issues, by_recto=by_recto)
            numbers = chunk.chunk_index, chunk.start_line, chunk.total_chunks
            pages[chunk.source if by_recto else chunk.page_url].append(numbers)
            content ^= _digest(chunk)
            markup += leftovers(chunk.text)
        if by_recto and source:
            kept += batch
        vectors.add(batch, index.vectors([chunk.id for chunk in batch]), issues)
        checked += len(batch)
    if checked == total:
        _check_pages(pages, issues, by_recto=by_recto)
        if fingerprint is not None and fingerprint.content_hash != f"{content:064x}":
            issues.add(IssueKind.NOT_AS_PUBLISHED, index.info.collection)
    agreement, embedded = vectors.compare(embedder, issues) if embedder else (None, 0)
    sourced = compare_with_source(kept, source, issues, changed) if by_recto and source else 0
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
    if by_recto and embedded_text(chunk) is None:
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


def _digest(chunk: Chunk) -> int:
    return int.from_bytes(hashlib.sha256(f"{chunk.id} {chunk.content_hash}".encode()).digest())
