"""Check that an index still contains what was published: texts, fields, order and vectors of all chunks."""

from __future__ import annotations

import hashlib
import html
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from heapq import nsmallest
from itertools import islice
from statistics import median
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from recto.book.chunking import chunk_id
from recto.evaluation.calibration import cosine
from recto.protocols import Embedder, Index, Source
from recto.types import HEADING_SEPARATOR, Chunk, Page, Vector

if TYPE_CHECKING:
    from numpy.typing import NDArray

_EXAMPLES = 5
_WORD = re.compile(r"\w+")
_HERE = 0.8  # share of a chunk's words that its lines must contain
_REPEATED = ("|", "```", "~~~", ":::", "<", "#", "!!!", "???", "===", "participant ", "actor ")
"""Prefixes of lines that the chunker may repeat, such as table headers."""

_PAGES = 32  # pages whose shortest chunk is embedded again
_SUSPECTS = 6  # chunks that are farthest from the others: noise is among them, if there is any
_KEPT = 4000  # vectors from which the mean is computed
_LENGTH_OFF = 0.01
_SAME = 0.97  # least cosine of the same text and model, in any precision
_FOREIGN_SAME = 0.5  # the same for foreign chunks, which may be embedded with more text around them
_OUTLIER = 6.0  # median absolute deviations below the median
MOST = 10_000
"""Chunks to check in a large index, unless all are requested."""

_BATCH = 256
Progress = Callable[[int, int], None]


class IssueKind(StrEnum):
    """A kind of damage."""

    NO_TEXT = "no_text"
    NO_URL = "no_url"
    BAD_URL = "bad_url"
    NO_TITLE = "no_title"
    NO_MODULE = "no_module"
    BAD_NUMBER = "bad_number"
    MISSING = "missing_passages"
    REPEATED = "repeated_passages"
    SHUFFLED = "shuffled_passages"
    WRONG_ID = "wrong_id"
    OTHER_TEXT = "text_is_not_what_was_embedded"
    NOT_AS_PUBLISHED = "not_as_published"
    BAD_VECTOR = "unusable_vector"
    OTHER_VECTOR = "vector_of_another_text"
    OTHER_MODEL = "vectors_of_another_model"
    NOT_IN_SOURCE = "text_not_in_source"
    OTHER_LINES = "text_at_other_lines"


@dataclass(frozen=True, slots=True)
class Issue:
    """A kind of damage, its count, and a few examples."""

    kind: IssueKind
    count: int
    places: tuple[str, ...]


@dataclass(slots=True)
class Issues:
    """Counts issues while an index is read; keeps a few examples of each."""

    _counts: dict[IssueKind, int] = field(default_factory=dict)
    _places: dict[IssueKind, dict[str, None]] = field(default_factory=dict)

    def add(self, kind: IssueKind, place: str, count: int = 1) -> None:
        """Count an issue."""
        self._counts[kind] = self._counts.get(kind, 0) + count
        places = self._places.setdefault(kind, {})
        if len(places) < _EXAMPLES:
            places[place] = None

    def listed(self) -> tuple[Issue, ...]:
        """Return the issues in the order of their kinds."""
        return tuple(
            Issue(kind, self._counts[kind], tuple(self._places[kind]))
            for kind in IssueKind
            if kind in self._counts
        )


def place(chunk: Chunk) -> str:
    """Describe a chunk for people."""
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


def similar(one: str, other: str) -> float:
    """Return the share of words that two texts have in common (Jaccard index of word counts)."""
    left, right = words(one), words(other)
    either = (left | right).total()
    return (left & right).total() / either if either else 1.0


@dataclass(slots=True)
class SourceCheck:
    """Compares the chunks of an index with the pages of a book."""

    changed: frozenset[str] = frozenset()
    """Paths of pages that were edited since: a missing text there is no damage."""
    _chunks: dict[str, list[Chunk]] = field(default_factory=dict)

    def add(self, chunk: Chunk) -> None:
        """Add a chunk."""
        self._chunks.setdefault(chunk.source, []).append(chunk)

    def compare(self, source: Source, issues: Issues) -> int:
        """Read the book once and return the number of compared chunks; find the pages of misplaced ones."""
        lost: list[tuple[Chunk, Counter[str]]] = []
        everything: dict[str, Counter[str]] = {}
        compared = 0
        for page in source.pages():
            everything[page.path] = words(page.text)
            text = _Lines(page)
            for chunk in self._chunks.get(page.path, ()):
                compared += 1
                wanted = words(chunk.text)
                if (
                    contained(wanted, text.between(chunk.start_line, chunk.end_line)) >= _HERE
                    or page.path in self.changed
                ):
                    continue
                if contained(wanted, everything[page.path]) >= _HERE:
                    issues.add(
                        IssueKind.OTHER_LINES, f"{page.path}, lines {chunk.start_line} to {chunk.end_line}"
                    )
                else:
                    lost.append((chunk, wanted))
        for chunk, wanted in lost:
            origin = next(
                (
                    path
                    for path, there in everything.items()
                    if path != chunk.source and contained(wanted, there) >= _HERE
                ),
                "",
            )
            where = f"{chunk.source}, lines {chunk.start_line} to {chunk.end_line}"
            issues.add(IssueKind.NOT_IN_SOURCE, f"{where}: it is the text of {origin}" if origin else where)
        return compared


class _Lines:
    """The words of a page by line; line numbers are those of its own file, without included files."""

    def __init__(self, page: Page) -> None:
        self._lines = page.text.split("\n")
        self._numbers: Sequence[int] = page.lines or range(1, len(self._lines) + 1)
        repeated = (line for line in self._lines if line.lstrip().startswith(_REPEATED))
        self._repeated = words("\n".join(repeated))

    def between(self, first: int, last: int) -> Counter[str]:
        """Count the words of a range of lines, and of lines that the chunker may repeat."""
        lines = self._lines[bisect_left(self._numbers, first) : bisect_right(self._numbers, last)]
        return words("\n".join(lines)) + self._repeated


class VectorCheck:
    """Checks vectors batch by batch, and keeps the chunks to embed again."""

    def __init__(self, *, own: bool) -> None:
        self._own = own
        self._shortest: dict[str, tuple[int, Chunk]] = {}
        self._stored: dict[str, Vector] = {}
        self._middle: NDArray[Any] | None = None
        self._waiting: list[tuple[Sequence[Chunk], NDArray[Any]]] = []
        self._held = 0
        self._near: dict[str, float] = {}
        self._suspects: list[tuple[float, str, Chunk, Vector]] = []

    def add(self, chunks: Sequence[Chunk], vectors: Mapping[str, Vector], issues: Issues) -> None:
        """Check that the vectors of some chunks are finite and normalised."""
        import numpy as np

        usable: list[Chunk] = []
        for chunk in chunks:
            vector = np.asarray(vectors.get(chunk.id, ()), dtype=np.float32)
            length = float(np.linalg.norm(vector)) if vector.size else 0.0
            if not np.isfinite(length) or abs(length - 1) > _LENGTH_OFF:
                issues.add(IssueKind.BAD_VECTOR, place(chunk))
            else:
                usable.append(chunk)
                self._keep_shortest(chunk, vectors[chunk.id])
        if not usable:
            return
        array = np.asarray([vectors[chunk.id] for chunk in usable], dtype=np.float32)
        self._waiting.append((usable, array))
        self._held += len(usable)
        if self._middle is not None or self._held >= _KEPT:
            self._settle()

    def compare(self, embedder: Embedder, issues: Issues) -> tuple[float | None, int]:
        """Embed the kept chunks again; return the median cosine, and the number of chunks."""
        self._settle()
        suspects = {chunk.id: (chunk, vector) for _, _, chunk, vector in self._suspects}
        sampled = {chunk.id: (chunk, self._stored[chunk.page_url]) for _, chunk in self._shortest.values()}
        # A changed text is reported already; its vector tells nothing more.
        texts = {
            id: embedded_text(chunk) if self._own else chunk.text
            for id, (chunk, _) in (suspects | sampled).items()
        }
        if not self._own:
            texts = {
                id: text if embedder.count_tokens(text or "") <= embedder.max_tokens else None
                for id, text in texts.items()
            }
        known = {id: text for id, text in texts.items() if text}
        if not known:
            return None, 0
        fresh = dict(zip(known, embedder.embed_documents(list(known.values())), strict=True))
        cosines = {id: cosine(fresh[id], (suspects | sampled)[id][1]) for id in known}
        agreement = (
            median(cosines[id] for id in known if id in sampled)
            if set(known) & set(sampled)
            else median(cosines.values())
        )
        wrong = [id for id in known if cosines[id] < (_SAME if self._own else _FOREIGN_SAME)]
        if agreement < (_SAME if self._own else _FOREIGN_SAME):
            issues.add(
                IssueKind.OTHER_MODEL,
                f"a cosine of {agreement:.3f} between stored and fresh vectors of the same texts",
                len(wrong),
            )
        else:
            for id in wrong:
                issues.add(IssueKind.OTHER_VECTOR, place((suspects | sampled)[id][0]))
            more = sum(id not in known for id in self._outliers())
            if more and any(id in suspects for id in wrong):
                issues.add(IssueKind.OTHER_VECTOR, "others that are as far from all chunks", more)
        return agreement, len(known)

    def _keep_shortest(self, chunk: Chunk, vector: Vector) -> None:
        """Keep the shortest chunk of a page: it is the cheapest to embed, and reveals swapped pages, too."""
        known = self._shortest.get(chunk.page_url)
        if known is None and len(self._shortest) >= _PAGES:
            return
        if known is None or (len(chunk.text), chunk.id) < (known[0], known[1].id):
            self._shortest[chunk.page_url] = (len(chunk.text), chunk)
            self._stored[chunk.page_url] = vector

    def _settle(self) -> None:
        """Compare the waiting vectors with the mean, and keep the farthest."""
        import numpy as np

        if not self._waiting:
            return
        if self._middle is None:
            total = np.sum([array.sum(axis=0) for _, array in self._waiting], axis=0)
            self._middle = total / (np.linalg.norm(total) or 1.0)
        for chunks, array in self._waiting:
            near = (array @ self._middle).tolist()
            self._near.update(zip((chunk.id for chunk in chunks), near, strict=True))
            found = zip(near, (chunk.id for chunk in chunks), chunks, array.tolist(), strict=True)
            self._suspects = nsmallest(_SUSPECTS, [*self._suspects, *found], key=lambda suspect: suspect[:2])
        self._waiting = []

    def _outliers(self) -> list[str]:
        """Return the ids of vectors that are unusually far from the mean."""
        middle = median(self._near.values())
        usual = median(abs(near - middle) for near in self._near.values())
        return [id for id, near in self._near.items() if near < middle - _OUTLIER * usual]


@dataclass(frozen=True, slots=True)
class Integrity:
    """The result of a check; `agreement` is the median cosine of stored and fresh vectors."""

    chunks: int
    checked: int
    embedded: int
    sourced: int
    agreement: float | None
    issues: tuple[Issue, ...]

    @property
    def complete(self) -> bool:
        """Whether every chunk was checked."""
        return self.checked == self.chunks


def examine(
    index: Index,
    embedder: Embedder | None = None,
    source: Source | None = None,
    *,
    changed: frozenset[str] = frozenset(),
    everything: bool = False,
    progress: Progress | None = None,
) -> Integrity:
    """Read an index once in batches; with an embedder also compare vectors, with a source also compare texts.

    Pages in `changed` were edited since and are not compared with the source. Collections of other pipelines
    get only the checks that apply to every pipeline.
    """
    total = index.count()
    issues = Issues()
    own = index.info.fingerprint is not None
    pages = _Pages(own=own)
    vectors = VectorCheck(own=own)
    texts = SourceCheck(changed) if own and source else None
    content = checked = 0
    for batch in _batches(index.scroll(), total if everything else MOST):
        for chunk in batch:
            _check_fields(chunk, issues, own=own)
            pages.add(chunk)
            if own:
                content ^= _digest(chunk)
            if texts is not None:
                texts.add(chunk)
        vectors.add(batch, index.vectors([chunk.id for chunk in batch]), issues)
        checked += len(batch)
        if progress:
            progress(checked, total)
    if checked == total:
        pages.check(issues)
        _check_whole(index, content, issues)
    agreement, embedded = vectors.compare(embedder, issues) if embedder else (None, 0)
    sourced = texts.compare(source, issues) if texts is not None and source else 0
    return Integrity(total, checked, embedded, sourced, agreement, issues.listed())


def _check_fields(chunk: Chunk, issues: Issues, *, own: bool) -> None:
    """Check what every passage must have; the contract of the test command lists it."""
    where = place(chunk)
    if not chunk.text.strip():
        issues.add(IssueKind.NO_TEXT, where)
    if not chunk.page_url:
        issues.add(IssueKind.NO_URL, where)
    elif not _is_address(chunk.page_url, strict=own):
        issues.add(IssueKind.BAD_URL, where)
    if not chunk.page_title.strip():
        issues.add(IssueKind.NO_TITLE, where)
    if not chunk.module_name.strip() or not any(key.strip() for key in chunk.module_keys):
        issues.add(IssueKind.NO_MODULE, where)
    if chunk.chunk_index < 0 or chunk.total_chunks <= chunk.chunk_index:
        issues.add(IssueKind.BAD_NUMBER, where)
    if own and embedded_text(chunk) is None:
        issues.add(IssueKind.OTHER_TEXT, where)


def _is_address(url: str, *, strict: bool) -> bool:
    """Whether a text can be a page's address; other pipelines also store paths."""
    if any(character.isspace() or not character.isprintable() for character in url):
        return False
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return bool(parts.scheme and (parts.netloc or parts.path.strip("/"))) or (not strict and bool(parts.path))


class _Pages:
    """The chunk indexes of each page: they must be 0 to n-1, each once, in the order of their lines."""

    def __init__(self, *, own: bool) -> None:
        self._own = own
        self._passages: dict[str, list[tuple[int, int, int]]] = {}

    def add(self, chunk: Chunk) -> None:
        name = chunk.source if self._own else chunk.page_url
        self._passages.setdefault(name, []).append((chunk.chunk_index, chunk.start_line, chunk.total_chunks))
        if self._own and chunk.id != chunk_id(chunk.book, chunk.source, chunk.chunk_index):
            self._passages[name].append((-1, 0, 0))

    def check(self, issues: Issues) -> None:
        if not self._own and all(
            index == 0 for passages in self._passages.values() for index, _, _ in passages
        ):
            return  # nobody numbered them
        for name, passages in self._passages.items():
            strangers = sum(index < 0 for index, _, _ in passages)
            if strangers:
                issues.add(IssueKind.WRONG_ID, name, strangers)
            known = sorted(passage for passage in passages if passage[0] >= 0)
            numbers = [index for index, _, _ in known]
            wanted = (
                max(known[-1][2], len(set(numbers))) if self._own and known else max(numbers, default=-1) + 1
            )
            missing = wanted - len(set(numbers))
            if missing > 0:
                issues.add(IssueKind.MISSING, name, missing)
            if len(set(numbers)) < len(numbers):
                issues.add(IssueKind.REPEATED, name, len(numbers) - len(set(numbers)))
            lines = [line for _, line, _ in known]
            if self._own and lines != sorted(lines):
                issues.add(
                    IssueKind.SHUFFLED,
                    name,
                    sum(one != other for one, other in zip(lines, sorted(lines), strict=True)),
                )


def _check_whole(index: Index, content: int, issues: Issues) -> None:
    """Compare all ids and hashes with the published content hash."""
    made = index.info.fingerprint
    if made is not None and made.content_hash != f"{content:064x}":
        issues.add(IssueKind.NOT_AS_PUBLISHED, index.info.collection)


def _digest(chunk: Chunk) -> int:
    return int.from_bytes(hashlib.sha256(f"{chunk.id} {chunk.content_hash}".encode()).digest())


def _batches(chunks: Iterator[Chunk], most: int) -> Iterator[Sequence[Chunk]]:
    limited = islice(chunks, most)
    while batch := list(islice(limited, _BATCH)):
        yield batch
