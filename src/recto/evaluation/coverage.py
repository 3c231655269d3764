"""Search for every section of a book by its heading and first sentence; list the sections not returned."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recto._util.text import with_anchor
from recto.evaluation.calibration import heading_question
from recto.evaluation.integrity import similar
from recto.protocols import Index, Progress
from recto.search.markdown import first_sentence
from recto.search.pipeline import nearest_chunks
from recto.search.query import current_edition
from recto.search.retriever import Retriever
from recto.types.request import MAX_QUERY
from recto.types.search import HEADING_SEPARATOR, Chunk, Hit, Mode

WITHIN = 5
"""A section is reached if it is among this many first hits."""

_BATCH = 32  # sections per batch, each with two queries
_SAME_VECTOR = 0.98
_SAME_TEXT = 0.9
_COPIES = 4  # nearest chunks that are compared with a section's own


@dataclass(frozen=True, slots=True)
class CoverageSection:
    """A section of the book; `first` is its first chunk, or the first one below it if it has no text."""

    first: Chunk
    headings: tuple[str, ...]
    has_text: bool = True

    @property
    def anchor(self) -> str:
        """Its anchor; the first chunk below a heading without text has the heading's among its own."""
        if self.has_text:
            return self.first.anchor
        letters = _letters(self.headings[-1])
        return next((anchor for anchor in self.first.anchors if _letters(anchor) == letters), "")

    @property
    def url(self) -> str:
        """The URL that opens it."""
        return with_anchor(self.first.page_url, self.anchor)

    @property
    def queries(self) -> tuple[str, str]:
        """Its headings and its first sentence, which is empty without text."""
        heading = HEADING_SEPARATOR.join(self.headings)[:MAX_QUERY].strip() or heading_question(self.first)
        return heading, first_sentence(self.first.text).strip() if self.has_text else ""

    def holds(self, chunk: Chunk) -> bool:
        """Return whether a chunk belongs to this section, or to one below it if it has no text."""
        first = self.first
        if chunk.page_url != first.page_url:
            return False
        if not self.has_text:
            return chunk.headings[: len(self.headings)] == self.headings
        return chunk.id == first.id or (chunk.headings == self.headings and chunk.anchor == first.anchor)


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text)).lower()


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
        modules = {chunk.module for chunk in self.first}
        return modules.pop() if len(modules) == 1 and self.section.first.module not in modules else ""


@dataclass(frozen=True, slots=True)
class CoverageReport:
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
    def by_heading(self) -> int:
        """How many sections their headings return."""
        return sum(reached.heading_rank is not None for reached in self.sections)

    @property
    def by_sentence(self) -> int:
        """How many sections their first sentences return."""
        return sum(reached.sentence_rank is not None for reached in self.sections)

    @property
    def share(self) -> float:
        """The share of sections that at least one query returns."""
        return 1 - len(self.unreachable) / len(self.sections) if self.sections else 1.0

    def pages(self) -> list[dict[str, Any]]:
        """Return the rows of a heat map by module and page; `heat` is the share of successful queries."""
        rows: dict[tuple[str, str], list[Reached]] = defaultdict(list)
        for reached in self.sections:
            rows[reached.section.first.module, reached.section.first.page_url].append(reached)
        return [_page(module, url, sections) for (module, url), sections in sorted(rows.items())]


def _page(module: str, url: str, sections: Sequence[Reached]) -> dict[str, Any]:
    by_heading = sum(reached.heading_rank is not None for reached in sections)
    by_sentence = sum(reached.sentence_rank is not None for reached in sections)
    return {
        "module": module,
        "page_url": url,
        "title": sections[0].section.first.title,
        "sections": len(sections),
        "by_heading": by_heading,
        "by_sentence": by_sentence,
        "reached": sum(not reached.unreachable for reached in sections),
        "heat": round((by_heading + by_sentence) / (2 * len(sections)), 4),
    }


def cover(retriever: Retriever, progress: Progress | None = None, mode: Mode = "hybrid") -> CoverageReport:
    """Search for every section in batches."""
    index = retriever.open()
    sections = sections_of(index.scroll(current_edition(index)))
    results: list[Reached] = []
    confusion: dict[str, Counter[str]] = defaultdict(Counter)
    for start in range(0, len(sections), _BATCH):
        for reached in _ask(retriever, index, sections[start : start + _BATCH], mode):
            results.append(reached)
            confusion[reached.section.first.module].update(chunk.module for chunk in reached.first)
        if progress:
            progress(len(results), len(sections))
    matrix = {module: dict(sorted(row.items())) for module, row in sorted(confusion.items())}
    return CoverageReport(index.info.collection, tuple(results), matrix, mode)


def sections_of(chunks: Iterable[Chunk]) -> list[CoverageSection]:
    """Return every section of the book in order, including sections without text."""
    sections: dict[tuple[str, str, tuple[str, ...]], CoverageSection] = {}

    def add(chunk: Chunk, headings: tuple[str, ...], *, has_text: bool) -> None:
        key = chunk.page_url, chunk.anchor if has_text else "", headings
        if key not in sections or chunk.chunk_index < sections[key].first.chunk_index:
            sections[key] = CoverageSection(chunk, headings, has_text)

    for chunk in chunks:
        add(chunk, chunk.headings, has_text=True)
        for depth in range(2, len(chunk.headings)):
            add(chunk, chunk.headings[:depth], has_text=False)
    with_text = {
        (section.first.page_url, section.headings) for section in sections.values() if section.has_text
    }
    return sorted(
        (
            section
            for section in sections.values()
            if section.has_text or (section.first.page_url, section.headings) not in with_text
        ),
        key=lambda section: (
            section.first.module,
            section.first.page_url,
            section.first.chunk_index,
            len(section.headings),
        ),
    )


def _ask(retriever: Retriever, index: Index, batch: Sequence[CoverageSection], mode: Mode) -> list[Reached]:
    queries = list(dict.fromkeys(query for section in batch for query in section.queries if query))
    responses = retriever.search_batch(queries, top_k=WITHIN, mode=mode)
    hits = {query: response.hits for query, response in zip(queries, responses, strict=True)}
    vectors = index.vectors([section.first.id for section in batch])
    ids = [section.first.id for section in batch if section.first.id in vectors]
    filters = current_edition(index)
    near = nearest_chunks(index, [vectors[id] for id in ids], _COPIES + 1, filters, _SAME_VECTOR)
    neighbours = dict(zip(ids, near, strict=True))
    return [_reached(section, hits, neighbours.get(section.first.id, ())) for section in batch]


def _reached(section: CoverageSection, hits: Mapping[str, Sequence[Hit]], near: Sequence[Hit]) -> Reached:
    by_heading, by_sentence = (hits.get(query, ()) for query in section.queries)
    others = [hit.chunk for hit in near if not section.holds(hit.chunk)]
    copies = [chunk for chunk in others if similar(section.first.text, chunk.text) >= _SAME_TEXT]
    same = {chunk.id for chunk in copies}  # a reader who finds a copy has found the text
    return Reached(
        section,
        _rank(section, by_heading, same),
        _rank(section, by_sentence, same),
        tuple(ranked[0].chunk for ranked in (by_heading, by_sentence) if ranked),
        tuple(dict.fromkeys(chunk.url for chunk in copies)),
    )


def _rank(section: CoverageSection, hits: Sequence[Hit], same: set[str]) -> int | None:
    chunks = (hit.chunk for hit in hits)
    return next(
        (rank for rank, chunk in enumerate(chunks, 1) if section.holds(chunk) or chunk.id in same), None
    )
