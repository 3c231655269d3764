"""Whether an index still holds what was put into it: every passage's text, place, number and vector."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from urllib.parse import urlsplit

from recto.book.chunker import chunk_id
from recto.evaluation.issues import Issue, Issues, Trouble
from recto.evaluation.source_check import SourceCheck
from recto.evaluation.stored import embedded_text, place
from recto.evaluation.vector_check import VectorCheck
from recto.protocols import Embedder, Index, Source
from recto.types import Chunk

MOST = 10_000
"""Passages that are checked of a large index, unless all are asked for."""

_BATCH = 256

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Integrity:
    """What a check found; `agreement` is the middle cosine between stored and fresh vectors of the same texts."""

    chunks: int
    checked: int
    embedded: int
    sourced: int
    agreement: float | None
    issues: tuple[Issue, ...]

    @property
    def complete(self) -> bool:
        """Whether every passage was looked at."""
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
    """Read an index once, batch by batch; with an embedder also compare vectors, with a source also compare texts.

    Pages that were `changed` since in the source are not compared with it. Of a collection that Recto did not make only that is checked
    which every pipeline must keep.
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
        issues.add(Trouble.NO_TEXT, where)
    if not chunk.page_url:
        issues.add(Trouble.NO_URL, where)
    elif not _is_address(chunk.page_url, strict=own):
        issues.add(Trouble.BAD_URL, where)
    if not chunk.page_title.strip():
        issues.add(Trouble.NO_TITLE, where)
    if not chunk.module_name.strip() or not any(key.strip() for key in chunk.module_keys):
        issues.add(Trouble.NO_MODULE, where)
    if chunk.chunk_index < 0 or chunk.total_chunks <= chunk.chunk_index:
        issues.add(Trouble.BAD_NUMBER, where)
    if own and embedded_text(chunk) is None:
        issues.add(Trouble.OTHER_TEXT, where)


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
    """Which numbers the passages of each page have: they must be 0 to n-1, each once, in the order of their lines."""

    def __init__(self, *, own: bool) -> None:
        self._own = own
        self._passages: dict[str, list[tuple[int, int, int]]] = {}

    def add(self, chunk: Chunk) -> None:
        name = chunk.source if self._own else chunk.page_url
        self._passages.setdefault(name, []).append((chunk.chunk_index, chunk.start_line, chunk.total_chunks))
        if self._own and chunk.id != chunk_id(chunk.book, chunk.source, chunk.chunk_index):
            self._passages[name].append((-1, 0, 0))

    def check(self, issues: Issues) -> None:
        if not self._own and all(index == 0 for passages in self._passages.values() for index, _, _ in passages):
            return  # nobody numbered them
        for name, passages in self._passages.items():
            strangers = sum(index < 0 for index, _, _ in passages)
            if strangers:
                issues.add(Trouble.WRONG_ID, name, strangers)
            known = sorted(passage for passage in passages if passage[0] >= 0)
            numbers = [index for index, _, _ in known]
            wanted = max(known[-1][2], len(set(numbers))) if self._own and known else max(numbers, default=-1) + 1
            missing = wanted - len(set(numbers))
            if missing > 0:
                issues.add(Trouble.MISSING, name, missing)
            if len(set(numbers)) < len(numbers):
                issues.add(Trouble.REPEATED, name, len(numbers) - len(set(numbers)))
            lines = [line for _, line, _ in known]
            if self._own and lines != sorted(lines):
                issues.add(Trouble.SHUFFLED, name, sum(one != other for one, other in zip(lines, sorted(lines), strict=True)))


def _check_whole(index: Index, content: int, issues: Issues) -> None:
    """Compare all ids and hashes with what was published."""
    made = index.info.fingerprint
    if made is not None and made.content_hash != f"{content:064x}":
        issues.add(Trouble.NOT_AS_PUBLISHED, index.info.collection)


def _digest(chunk: Chunk) -> int:
    return int.from_bytes(hashlib.sha256(f"{chunk.id} {chunk.content_hash}".encode()).digest())


def _batches(chunks: Iterator[Chunk], most: int) -> Iterator[Sequence[Chunk]]:
    limited = islice(chunks, most)
    while batch := list(islice(limited, _BATCH)):
        yield batch
