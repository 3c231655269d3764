"""Measure how often the right page is first, and the right section among the first chunks."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.chroma import BUDGET, TOP
from bench.measures import Mean, mean
from bench.variations import EmbeddedChunk, Variation, chunk_pages
from bench.vectors import Vectors
from recto._util.text import page_key
from recto.book.chunking import ChunkSize
from recto.evaluation.suites import load_suite
from recto.protocols import Source
from recto.types.book import Page
from recto.types.search import Chunk


@dataclass(frozen=True, slots=True)
class BookQuestion:
    """A question with the pages that answer it, or their sections (`page#anchor`).

    Held-out questions (`held`) are never used to choose a chunk size.
    """

    text: str
    expect: tuple[str, ...]
    held: bool = False

    @property
    def pages(self) -> frozenset[str]:
        """The pages, without their sections."""
        return frozenset(page_key(target.partition("#")[0]) for target in self.expect)

    @property
    def sections(self) -> frozenset[tuple[str, str]]:
        """The sections, if the question names any."""
        parts = (target.partition("#") for target in self.expect)
        return frozenset((page_key(page), anchor_key(anchor)) for page, _, anchor in parts if anchor)

    @property
    def whole_pages(self) -> frozenset[str]:
        """The pages that are expected as a whole."""
        return frozenset(page_key(target) for target in self.expect if "#" not in target)


@dataclass(frozen=True, slots=True)
class Book:
    """Pages and questions about them."""

    name: str
    pages: tuple[Page, ...]
    questions: tuple[BookQuestion, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """The measures over some questions; `sections` counts the questions that name a section."""

    questions: int
    first: Mean
    top: Mean
    mrr: Mean
    sections: int
    section: Mean
    section_in_budget: Mean


@dataclass(frozen=True, slots=True)
class Measured:
    """The measures of a book: for the questions used to choose, and for the held-out ones."""

    chunks: int
    tokens: float
    chosen: Result
    held: Result


_Score = tuple[int, int | None, bool]


def anchor_key(anchor: str) -> str:
    """Return a form in which anchors of GitHub and of MkDocs are equal."""
    return re.sub(r"[-_]+", "-", anchor).strip("-").lower()


def load_questions(path: Path) -> tuple[BookQuestion, ...]:
    """Read a set of questions."""
    data = json.loads(path.read_text("utf-8"))
    return tuple(
        BookQuestion(entry["question"], tuple(entry["expect"]), entry.get("held", False))
        for entry in data["questions"]
    )


def load_suites(development: Path, heldout: Path) -> tuple[BookQuestion, ...]:
    """Read the sample book's suites as one question set."""
    return tuple(
        BookQuestion(expectation.query, expectation.pages, held)
        for path, held in ((development, False), (heldout, True))
        for expectation in load_suite(path).expectations
        if expectation.pages
    )


def load_book(source: Source, questions: tuple[BookQuestion, ...], every: int = 1) -> Book:
    """Read the pages that questions expect, and every `every`-th other page."""
    expected = frozenset[str]().union(*(question.pages for question in questions))
    pages = [
        page
        for number, page in enumerate(source.pages())
        if number % every == 0 or not expected.isdisjoint(_names(page))
    ]
    missing = expected.difference(*(_names(page) for page in pages))
    if missing:
        raise SystemExit(
            f"{source.book}: the questions expect pages that do not exist: {', '.join(sorted(missing))}"
        )
    return Book(source.book, tuple(pages), questions)


def _names(page: Page) -> set[str]:
    return {page_key(page.path), page_key(page.url)}


def measure(book: Book, size: ChunkSize, vectors: Vectors, variation: Variation = "default") -> Measured:
    """Chunk a book and run all its questions."""
    chunks = chunk_pages(book.pages, book.name, size, vectors, variation)
    what = f"{book.name} {size.max_tokens}, {variation}"
    found = vectors.documents([each.embedded for each in chunks], what)
    asked = vectors.questions([question.text for question in book.questions], f"questions, {book.name}")
    order = (-(asked @ found.T)).argsort(axis=1, kind="stable")
    tokens = [vectors.count(f"{each.repeated}{each.chunk.text}") for each in chunks]
    chosen: list[_Score] = []
    held: list[_Score] = []
    for question, ranking in zip(book.questions, order, strict=True):
        (held if question.held else chosen).append(_score(question, chunks, tokens, ranking.tolist()))
    return Measured(len(chunks), sum(tokens) / len(tokens), _result(chosen), _result(held))


def _score(
    question: BookQuestion, chunks: Sequence[EmbeddedChunk], tokens: Sequence[int], ranking: Sequence[int]
) -> _Score:
    """Return the rank of the page and of the section, and whether the section is within the token budget."""
    nowhere = len(ranking) + 1
    page = next(
        (rank for rank, index in enumerate(ranking, 1) if _is_page(chunks[index].chunk, question)), nowhere
    )
    if not question.sections:
        return page, None, False
    places = (rank for rank, index in enumerate(ranking, 1) if _is_section(chunks[index].chunk, question))
    section = next(places, nowhere)
    return page, section, sum(tokens[index] for index in ranking[:section]) <= BUDGET


def _is_page(chunk: Chunk, question: BookQuestion) -> bool:
    return not question.pages.isdisjoint((page_key(chunk.source), page_key(chunk.page_url)))


def _is_section(chunk: Chunk, question: BookQuestion) -> bool:
    page = page_key(chunk.source)
    here = {anchor_key(anchor) for anchor in (chunk.anchor, *chunk.anchors) if anchor}
    return page in question.whole_pages or any((page, anchor) in question.sections for anchor in here)


def _result(scores: Sequence[_Score]) -> Result:
    pages = [page for page, _, _ in scores]
    sections = [(rank, inside) for _, rank, inside in scores if rank is not None]
    return Result(
        len(scores),
        mean([float(page == 1) for page in pages]),
        mean([float(page <= TOP) for page in pages]),
        mean([1 / page for page in pages]),
        len(sections),
        mean([float(rank <= TOP) for rank, _ in sections]),
        mean([float(inside) for _, inside in sections]),
    )


def unknown_sections(book: Book, vectors: Vectors) -> list[str]:
    """Return the expected sections that no chunk of the book has, to check the questions."""
    chunks = [each.chunk for each in chunk_pages(book.pages, book.name, ChunkSize(), vectors)]
    known = {
        (page_key(chunk.source), anchor_key(anchor))
        for chunk in chunks
        for anchor in (chunk.anchor, *chunk.anchors)
    }
    return sorted(
        f"{page}#{anchor}" for question in book.questions for page, anchor in question.sections - known
    )
