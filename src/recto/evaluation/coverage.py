"""Search for every section of a book by its heading and first sentence, and list those that are not found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from recto._util.text import with_anchor
from recto.evaluation.calibration import first_sentence, heading_question
from recto.evaluation.integrity import similar
from recto.protocols import Index
from recto.search.query import MAX_QUERY
from recto.search.retriever import Retriever
from recto.types import HEADING_SEPARATOR, Chunk, Hit, Mode, Vector

WITHIN = 5
"""A section is reached if it is among this many first hits."""

_BATCH = 32  # sections per batch, each with two queries
_SAME_VECTOR = 0.98
_SAME_TEXT = 0.9
_COPIES = 4  # nearest chunks that are compared with a section's own

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class CoverageSection:
    """A section of the book; `chunk_id` is its first chunk, or the first one below it if it has no text."""

    module: str
    page_url: str
    page_title: str
    anchor: str
    headings: tuple[str, ...]
    chunk_id: str
    chunk_index: int
    by_heading: str
    by_sentence: str
    has_text: bool = True

    @property
    def link(self) -> str:
        """The URL that opens it."""
        return with_anchor(self.page_url, self.anchor)

    def holds(self, chunk: Chunk) -> bool:
        """Return whether a chunk belongs to this section, or to one below it if it has no text."""
        if chunk.page_url != self.page_url:
            return False
        if not self.has_text:
            return chunk.headings[: len(self.headings)] == self.headings
        return chunk.id == self.chunk_id or (chunk.headings == self.headings and chunk.anchor == self.anchor)


@dataclass(frozen=True, slots=True)
class Reached:
    """The ranks of a section by each query (None beyond `WITHIN`), the first results, and its copies."""

    section: CoverageSection
    heading_rank: int | None
    sentence_rank: int | None
    first: tuple[Chunk, ...]
    copies: tuple[str, ...]

    @property
    def unreachable(self) -> bool:
        """Whether neither query returns it."""
        return self.heading_rank is None and self.sentence_rank is None

    @property
    def shadowed_by(self) -> str:
        """The module that always outranks it, or an empty string."""
        modules = {chunk.module_name for chunk in self.first}
        return modules.pop() if len(modules) == 1 and self.section.module not in modules else ""


@dataclass(frozen=True, slots=True)
class PageCoverage:
    """One page of the heat map: its sections, and how many of them each query returns."""

    module: str
    page_url: str
    title: str
    sections: int
    by_heading: int
    by_sentence: int
    reached: int

    @property
    def heat(self) -> float:
        """The share of queries that return their section."""
        return (self.by_heading + self.by_sentence) / (2 * self.sections)


@dataclass(frozen=True, slots=True)
class Coverage:
    """Which sections of a book are found in a mode."""

    collection: str
    sections: tuple[Reached, ...]
    confusion: dict[str, dict[str, int]]
    """For each module, the modules of the first hits."""
    mode: Mode = "hybrid"

    @property
    def unreachable(self) -> list[Reached]:
        """Sections that neither of their queries returns."""
        return [reached for reached in self.sections if reached.unreachable]

    @property
    def duplicates(self) -> list[Reached]:
        """Sections whose text is nearly the same elsewhere."""
        return [reached for reached in self.sections if reached.copies]

    @property
    def shadowed(self) -> list[Reached]:
        """Sections that are always outranked by another module."""
        return [reached for reached in self.sections if reached.shadowed_by]

    @property
    def share(self) -> float:
        """The share of sections that at least one query returns."""
        return 1 - len(self.unreachable) / len(self.sections) if self.sections else 1.0

    def pages(self) -> list[PageCoverage]:
        """Return the heat map, ordered by module and page URL."""
        rows: dict[tuple[str, str], list[Reached]] = {}
        for reached in self.sections:
            rows.setdefault((reached.section.module, reached.section.page_url), []).append(reached)
        return [_row(module, url, found) for (module, url), found in sorted(rows.items())]


def cover(retriever: Retriever, progress: Progress | None = None, mode: Mode = "hybrid") -> Coverage:
    """Search for every section in batches."""
    index = retriever.open()
    sections = sections_of(index.scroll())
    results: list[Reached] = []
    confusion: dict[str, Counter[str]] = {}
    for start in range(0, len(sections), _BATCH):
        batch = sections[start : start + _BATCH]
        for reached in _ask(retriever, index, batch, mode):
            results.append(reached)
            row = confusion.setdefault(reached.section.module, Counter())
            row.update(chunk.module_name for chunk in reached.first)
        if progress:
            progress(len(results), len(sections))
    matrix = {module: dict(sorted(row.items())) for module, row in sorted(confusion.items())}
    return Coverage(index.info.collection, tuple(results), matrix, mode)


def sections_of(chunks: Iterable[Chunk]) -> list[CoverageSection]:
    """Return every section of the book in order, including those without text."""
    found: dict[tuple[str, str, tuple[str, ...]], CoverageSection] = {}
    for chunk in chunks:
        _note(found, (chunk.page_url, chunk.anchor, chunk.headings), chunk, chunk.headings)
        for depth in range(2, len(chunk.headings)):
            _note(
                found,
                (chunk.page_url, "", chunk.headings[:depth]),
                chunk,
                chunk.headings[:depth],
                has_text=False,
            )
    written = {(section.page_url, section.headings) for section in found.values() if section.has_text}
    sections = [
        section
        for section in found.values()
        if section.has_text or (section.page_url, section.headings) not in written
    ]
    return sorted(
        sections,
        key=lambda section: (section.module, section.page_url, section.chunk_index, len(section.headings)),
    )


def _note(
    found: dict[tuple[str, str, tuple[str, ...]], CoverageSection],
    key: tuple[str, str, tuple[str, ...]],
    chunk: Chunk,
    headings: tuple[str, ...],
    *,
    has_text: bool = True,
) -> None:
    """Record the first chunk of a section."""
    known = found.get(key)
    if known is not None and known.chunk_index <= chunk.chunk_index:
        return
    found[key] = CoverageSection(
        module=chunk.module_name,
        page_url=chunk.page_url,
        page_title=chunk.page_title,
        anchor=chunk.anchor if has_text else _own_anchor(chunk, headings[-1]),
        headings=headings,
        chunk_id=chunk.id,
        chunk_index=chunk.chunk_index,
        by_heading=HEADING_SEPARATOR.join(headings)[:MAX_QUERY].strip() or heading_question(chunk),
        by_sentence=first_sentence(chunk.text) if has_text else "",
        has_text=has_text,
    )


def _own_anchor(chunk: Chunk, heading: str) -> str:
    """Return the anchor of a heading without text; the first chunk below it has it among its own."""
    letters = "".join(filter(str.isalnum, heading)).lower()
    others = (anchor for anchor in chunk.anchors if "".join(filter(str.isalnum, anchor)).lower() == letters)
    return next(others, "")


@dataclass(slots=True)
class _Asked:
    """The non-empty queries of a batch, and their hits."""

    texts: list[str] = field(default_factory=list)
    found: list[list[Hit]] = field(default_factory=list)

    def hits(self, text: str) -> list[Hit]:
        return self.found[self.texts.index(text.strip())] if text.strip() else []


def _ask(retriever: Retriever, index: Index, batch: Sequence[CoverageSection], mode: Mode) -> list[Reached]:
    asked = _Asked(
        list(
            dict.fromkeys(
                text for one in batch for text in (one.by_heading.strip(), one.by_sentence.strip()) if text
            )
        )
    )
    asked.found = [list(response.hits) for response in retriever.search_batch(asked.texts, WITHIN, mode=mode)]
    vectors = index.vectors([section.chunk_id for section in batch])
    own: list[Vector] = [vectors[section.chunk_id] for section in batch if section.chunk_id in vectors]
    near = iter(index.query_batch(own, _COPIES + 1, min_score=_SAME_VECTOR) if own else [])
    return [_reached(section, asked, next(near) if section.chunk_id in vectors else []) for section in batch]


def _reached(section: CoverageSection, asked: _Asked, near: Sequence[Hit]) -> Reached:
    by_heading, by_sentence = asked.hits(section.by_heading), asked.hits(section.by_sentence)
    text = next((hit.chunk.text for hit in near if hit.chunk.id == section.chunk_id), None)
    others = (hit.chunk for hit in near if not section.holds(hit.chunk))
    copies = [chunk.link for chunk in others if text is not None and similar(text, chunk.text) >= _SAME_TEXT]
    return Reached(
        section,
        _rank(section, by_heading),
        _rank(section, by_sentence),
        tuple(
            chunk for hits in (by_heading, by_sentence) for chunk in (hit.chunk for hit in islice(hits, 1))
        ),
        tuple(dict.fromkeys(copies)),
    )


def _rank(section: CoverageSection, hits: Sequence[Hit]) -> int | None:
    return next((rank for rank, hit in enumerate(hits, 1) if section.holds(hit.chunk)), None)


def _row(module: str, url: str, found: Sequence[Reached]) -> PageCoverage:
    return PageCoverage(
        module,
        url,
        found[0].section.page_title,
        len(found),
        sum(one.heading_rank is not None for one in found),
        sum(one.sentence_rank is not None for one in found),
        sum(not one.unreachable for one in found),
    )
