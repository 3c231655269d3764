"""Question sets of readers: find their books, rank pages and sections, and compare systems by query.

A system answers a query with a list of chunks. The best chunk of a page ranks the page, the best chunk of a
section ranks the section. If several places are expected (`match: any`), the first one that is found counts.
With `match: all`, the last one counts for hits; the reciprocal rank always uses the first. Queries that the
book does not answer (`match: none`) have no rank; they only measure how well a system knows that the book has
no answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from recto._util.markdown import heading_key
from recto._util.text import page_key
from recto.evaluation.calibration import auroc
from recto.evaluation.measures import ScoreEstimate
from recto.evaluation.suites import Expectation, load_strict_suite
from recto.types.search import HEADING_SEPARATOR, Chunk

MEASURES = ("page hit@1", "page hit@5", "page MRR", "section hit@1", "section hit@5")
_RESAMPLES = 10_000  # enough for three digits of an interval
_SEED = 20_261_115
_GENERATORS = ("sphinx",)  # whose books are not always recognised


@dataclass(frozen=True, slots=True)
class Corpus:
    """Where question sets and their books are, in the directory of the corpora."""

    questions: str
    books: str


CORPORA = {"readers": Corpus("questions", "books"), "real": Corpus("real", "real/books")}
"""The corpora that `--corpus` chooses from; a further one is a further line."""


@dataclass(frozen=True, slots=True)
class Book:
    """A book's docs root and the queries about it; those in `need_all` need all of their expected pages."""

    name: str
    docs: Path
    questions: tuple[Expectation, ...]
    need_all: frozenset[str] = frozenset()
    generator: str | None = None

    @property
    def answered(self) -> int:
        """The number of queries that the book answers."""
        return sum(not question.nothing for question in self.questions)


@dataclass(frozen=True, slots=True)
class AnswerChunk:
    """A chunk that a system returned: its page's path in the docs root, and its heading path if it has one.

    `opening` is true for the beginning of a page.
    """

    page: str
    headings: tuple[str, ...] | None = None
    opening: bool = False

    @classmethod
    def of(cls, chunk: Chunk) -> AnswerChunk:
        """Return what the measures need of a chunk of Recto."""
        opening = chunk.chunk_index == 0 or len(chunk.headings) <= 1
        return cls(chunk.source, chunk.headings, opening)


@dataclass(frozen=True, slots=True)
class Answer:
    """A system's hits, best first, and its probability that the book answers the query, if it has one."""

    hits: tuple[AnswerChunk, ...]
    answerable: float | None = None


@dataclass(frozen=True, slots=True)
class Scores:
    """The measures of one query, and the ranks that they come from; rank 0 is "not found".

    `all_pages` is the rank of the last expected page if the query needs all of them, else of the first.
    """

    id: str
    page: int
    all_pages: int
    section: int | None

    def measures(self) -> dict[str, float]:
        """Return the value of each measure; a system without sections has page measures only."""
        found = {
            "page hit@1": float(self.all_pages == 1),
            "page hit@5": float(0 < self.all_pages <= 5),
            "page MRR": 1 / self.page if self.page else 0.0,
        }
        if self.section is not None:
            found |= {
                "section hit@1": float(self.section == 1),
                "section hit@5": float(0 < self.section <= 5),
            }
        return found


@dataclass(frozen=True, slots=True)
class Result:
    """A system's scores in each book, and its AUROC of answerability in the books where it has one."""

    scores: dict[str, tuple[Scores, ...]]
    auroc: dict[str, float]

    def book(self, name: str) -> dict[str, float]:
        """Return the means over a book's queries."""
        rows = [scores.measures() for scores in self.scores[name]]
        return {
            measure: fmean(row[measure] for row in rows)
            for measure in MEASURES
            if rows and measure in rows[0]
        }

    def mean(self) -> dict[str, float]:
        """Return the unweighted means over the books."""
        books = [found for name in self.scores if (found := self.book(name))]
        return {
            measure: fmean(found[measure] for found in books)
            for measure in MEASURES
            if books and measure in books[0]
        }


def load_books(questions: Path, books: Path, sets: Sequence[str], shared: Path | None = None) -> list[Book]:
    """Read the question sets of a folder, or the named ones, and find the docs root of each book.

    With `shared`, all sets ask about that book.
    """
    paths = {path.stem: path for path in sorted(questions.glob("*.jsonl"))}
    if not paths:
        raise SystemExit(
            f"There are no question sets (*.jsonl) in {questions}. Give their folder with --questions."
        )
    if unknown := [name for name in sets if name not in paths]:
        raise SystemExit(f"There is no question set {', '.join(unknown)}. Sets: {', '.join(paths)}.")
    return [_load_book(paths[name], shared or books / name) for name in sets or paths]


def _load_book(path: Path, folder: Path) -> Book:
    if not folder.is_dir():
        raise SystemExit(
            f"{path.name} needs the book {folder}, which does not exist. Pass its folder with --books."
        )
    expectations = load_strict_suite(path).expectations
    entries = (json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip())
    need_all = frozenset(entry["id"] for entry in entries if entry.get("match") == "all")
    docs = docs_root(folder, {page for each in expectations for page, _ in places(each)})
    return Book(path.stem, docs, expectations, need_all, _generator(path))


def _generator(path: Path) -> str | None:
    """Return the generator that `books.json` states for the book of a question set, if any."""
    file = path.with_name("books.json")
    facts = json.loads(file.read_text("utf-8")).get(path.stem, {}) if file.is_file() else {}
    return facts.get("generator") if facts.get("generator") in _GENERATORS else None


def docs_root(folder: Path, pages: Iterable[str]) -> Path:
    """Return the folder in a book that the expected pages are relative to."""
    wanted = sorted(set(pages))
    for root in sorted(
        (folder, *(path for path in folder.rglob("*") if path.is_dir())),
        key=lambda path: (len(path.parts), path),
    ):
        if all((root / page).is_file() for page in wanted):
            return root
    raise SystemExit(
        f"No folder in {folder} has all expected pages ({', '.join(wanted[:3])}, …). "
        "Check the version of the book."
    )


def places(expectation: Expectation) -> list[tuple[str, str]]:
    """Return the expected pages, each with its section's heading or an empty text."""
    parts = (page.partition(HEADING_SEPARATOR) for page in expectation.pages)
    return [(page, heading) for page, _, heading in parts]


def score(expectation: Expectation, answer: Answer, *, needs_all: bool = False) -> Scores:
    """Rank the expected pages and sections among those that a system returned."""
    wanted = {(page_key(page), heading_key(heading)) for page, heading in places(expectation)}
    pages = list(dict.fromkeys(page_key(hit.page) for hit in answer.hits))
    ranks = [pages.index(page) + 1 if page in pages else 0 for page in {page for page, _ in wanted}]
    page = min(filter(None, ranks), default=0)
    all_pages = (0 if 0 in ranks else max(ranks, default=0)) if needs_all else page
    section = None
    if all(hit.headings is not None for hit in answer.hits):
        sections: dict[tuple[str, tuple[str, ...]], bool] = {}
        for hit in answer.hits:
            sections.setdefault((page_key(hit.page), hit.headings or ()), _in_section(hit, wanted))
        section = _rank(list(sections.values()))
    return Scores(expectation.key, page, all_pages, section)


def _in_section(hit: AnswerChunk, wanted: set[tuple[str, str]]) -> bool:
    """Return whether a hit is in an expected section, or at the page's beginning if none is named."""
    here = {heading_key(heading) for heading in hit.headings or ()}
    return any(
        page_key(hit.page) == page and (heading in here if heading else hit.opening)
        for page, heading in wanted
    )


def _rank(right: Sequence[bool]) -> int:
    return right.index(True) + 1 if True in right else 0


def measure(books: Sequence[Book], answers: Mapping[str, Sequence[Answer]]) -> Result:
    """Score a system's answers to all queries of each book."""
    scores, values = {}, {}
    for book in books:
        pairs = list(zip(book.questions, answers[book.name], strict=True))
        scores[book.name] = tuple(
            score(question, answer, needs_all=question.id in book.need_all)
            for question, answer in pairs
            if not question.nothing
        )
        stated = [
            (question.nothing, answer.answerable)
            for question, answer in pairs
            if answer.answerable is not None
        ]
        if len(stated) == len(pairs) and len({nothing for nothing, _ in stated}) == 2:
            values[book.name] = auroc(
                [value for nothing, value in stated if not nothing],
                [value for nothing, value in stated if nothing],
            )
    return Result(scores, values)


def lead(mine: Result, theirs: Result, measure: str = "page MRR") -> ScoreEstimate:
    """Return the difference of the means over books, with a paired bootstrap interval, stratified by book."""
    import numpy as np

    generator = np.random.default_rng(_SEED)
    means, resampled = [], np.zeros(_RESAMPLES)
    for book, scores in mine.scores.items():
        pairs = zip(scores, theirs.scores[book], strict=True)
        deltas = np.array([my.measures()[measure] - their.measures()[measure] for my, their in pairs])
        means.append(deltas.mean())
        resampled += deltas[generator.integers(0, len(deltas), (_RESAMPLES, len(deltas)))].mean(axis=1)
    low, high = np.quantile(resampled / len(means), [0.025, 0.975])
    return ScoreEstimate(float(np.mean(means)), float(low), float(high), sum(map(len, mine.scores.values())))
