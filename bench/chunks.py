"""Compare chunk sizes: `uv run python -m bench.chunks --corpora DIRECTORY --cache DIRECTORY`.

There is one table for each data set: Chroma's corpora with their token-wise measures and simple splitters to
compare with, two books with our own questions, and the sample book with its suites. Two more variations are
measured at the best size: without the heading path, and with an overlap. The best size has the highest mean
of the main measures (recall within a token budget, MRR of the page) over the questions that are not held out.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import chroma, chunk_quality
from bench.measures import Mean, mean_of
from bench.variations import VARIATIONS, Variation
from bench.vectors import Vectors
from recto.api import sample_source
from recto.book.chunking import ChunkSize
from recto.book.sources.tree import MarkdownTree
from recto.embedders.granite.embedder import MODELS, built_in_embedder
from recto.settings import BUILT_IN_MODEL

ROOT = Path(__file__).parent.parent
QUESTIONS = Path(__file__).parent / "questions"
SUITES = (
    ROOT / "src" / "recto" / "sample" / "development.json",
    ROOT / "tests" / "evaluation" / "heldout.json",
)
SIZES = [128, 160, 200, 256, 320]
BOOKS = {"docusaurus": "docusaurus/website", "physical-ai-curriculum": "physical-ai-curriculum/site_src"}
EXTRACT = 150_000  # characters of each of Chroma's corpora: enough for three quarters of the questions
EVERY = {"docusaurus": 2, "physical-ai-curriculum": 20}  # every n-th of the pages that no question expects


@dataclass(frozen=True, slots=True)
class Trial:
    """One way to chunk the texts, and its measures."""

    size: ChunkSize
    variation: Variation
    chroma: list[chroma.Result]
    books: dict[str, chunk_quality.Measured]

    @property
    def name(self) -> str:
        """The name in a table."""
        return f"{self.size.max_tokens}" + ("" if self.variation == VARIATIONS[0] else f", {self.variation}")

    @property
    def headlines(self) -> list[Mean]:
        """The measures to choose by."""
        return [
            *(result.budget_recall for result in self.chroma[-1:]),
            *(each.chosen.mrr for each in self.books.values()),
        ]

    @property
    def score(self) -> float:
        """The mean of the measures to choose by."""
        return mean_of(self.headlines).value

    def against(self, other: Trial) -> Mean:
        """Return how much higher the score is than another's, paired by question."""
        return mean_of(
            [mine.minus(theirs) for mine, theirs in zip(self.headlines, other.headlines, strict=True)]
        )


@dataclass(frozen=True, slots=True)
class ChunkBench:
    """All data sets and the model."""

    corpora: list[chroma.Corpus]
    books: list[chunk_quality.Book]
    vectors: Vectors

    def run(self, size: ChunkSize, variation: Variation = "default") -> Trial:
        """Measure one way to chunk on all data sets."""
        print(f"{size.max_tokens}, {variation}", file=sys.stderr, flush=True)
        measured = {
            book.name: chunk_quality.measure(book, size, self.vectors, variation) for book in self.books
        }
        return Trial(
            size,
            variation,
            chroma.measure_size(self.corpora, size, self.vectors, variation) if self.corpora else [],
            measured,
        )


def main() -> None:
    """Run the trials and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "sizes",
        nargs="*",
        default=[ChunkSize(size) for size in SIZES],
        type=_size,
        help="maximum number of tokens of a chunk",
    )
    parser.add_argument(
        "--corpora",
        type=Path,
        default=os.environ.get("RECTO_CORPORA"),
        help="directory with books/ and eval/ (RECTO_CORPORA)",
    )
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path(tempfile.gettempdir()) / "recto-bench",
        help="directory that caches the vectors",
    )
    parser.add_argument("--whole", action="store_true", help="use all pages and whole corpora (slow)")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        help="only this data set: chroma, sample, or a book; may be repeated",
    )
    parser.add_argument("--no-baselines", action="store_true", help="skip the simple splitters")
    parser.add_argument("--no-variations", action="store_true", help="skip the variations")
    parser.add_argument("--model", choices=MODELS, default=BUILT_IN_MODEL, help="default %(default)s")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    embedder = built_in_embedder(options.cache, options.threads, model=options.model)
    with Vectors(embedder, options.cache) as vectors:
        bench = _load(options.corpora, options.only, vectors, whole=options.whole)
        trials = [bench.run(size) for size in options.sizes]
        tables(trials, bench)
        if not options.no_baselines and bench.corpora:
            baseline_table(bench)
        if not options.no_variations:
            best = max(trials, key=lambda trial: trial.score)
            print(f"## Variations at {best.name}\n")
            tables([best, *(bench.run(best.size, variation) for variation in VARIATIONS[1:])], bench)


def _size(text: str) -> ChunkSize:
    return ChunkSize(int(text))


def _load(corpora: Path | None, only: Sequence[str], vectors: Vectors, *, whole: bool) -> ChunkBench:
    """Read the chosen data sets; print which of them are missing."""

    def wanted(name: str) -> bool:
        return not only or name in only

    found, books = [], []
    for name, place in BOOKS.items():
        if wanted(name) and corpora and (path := corpora / "books" / place).is_dir():
            every = 1 if whole else EVERY[name]
            questions = chunk_quality.load_questions(QUESTIONS / f"{name}.json")
            books.append(chunk_quality.load_book(MarkdownTree(path, book=name), questions, every))
        elif wanted(name):
            print(f"The book {name} does not exist: skipped.", file=sys.stderr)
    if wanted("sample"):
        books.append(chunk_quality.load_book(sample_source(), chunk_quality.load_suites(*SUITES)))
    if wanted("chroma") and corpora and (path := corpora / "eval" / "chroma_chunking").is_dir():
        found = chroma.load(path, 0 if whole else EXTRACT)
    elif wanted("chroma"):
        print("Chroma's corpora do not exist: skipped.", file=sys.stderr)
    for book in books:
        for section in chunk_quality.unknown_sections(book, vectors):
            print(f"{book.name}: no chunk has the expected section {section}", file=sys.stderr)
    return ChunkBench(found, books, vectors)


def tables(trials: Sequence[Trial], bench: ChunkBench) -> None:
    """Print the trials: a table for each data set, and one for the choice."""
    if bench.corpora:
        print(f"### chroma ({trials[0].chroma[-1].questions} questions)\n")
        chroma_table({trial.name: trial.chroma for trial in trials})
    for book in bench.books:
        measured = trials[0].books[book.name]
        print(
            f"### {book.name} ({len(book.pages)} pages; {measured.chosen.questions} questions, "
            f"{measured.held.questions} held out)\n"
        )
        book_table({trial.name: trial.books[book.name] for trial in trials})
    print("### choice\n")
    names = [
        *(["chroma, recall in budget"] if bench.corpora else []),
        *(f"{book.name}, MRR" for book in bench.books),
    ]
    best = max(trials, key=lambda trial: trial.score)
    rows = [
        [trial.name, *map(str, trial.headlines), f"{trial.score:.3f}", str(trial.against(best))]
        for trial in trials
    ]
    _table(["max tokens", *names, "mean", f"minus {best.name}, paired"], rows)


def baseline_table(bench: ChunkBench) -> None:
    """Measure the simple splitters and print their table."""
    print("### chroma, simple splitters\n")
    splitters = chroma.baselines(bench.vectors)
    chroma_table(
        {name: chroma.measure(bench.corpora, split, bench.vectors, name) for name, split in splitters.items()}
    )


def chroma_table(results: dict[str, list[chroma.Result]]) -> None:
    """Print the measures over all questions, then each corpus's recall within the budget."""
    names = [result.name for result in next(iter(results.values()))[:-1]]
    heads = [
        "chunks",
        "mean tokens",
        *(f"{name}@{chroma.TOP}" for name in ("recall", "precision", "IoU")),
        "precision Ω",
    ]
    heads += [
        f"recall in {chroma.BUDGET} tokens",
        *(f"of it {name}" for name in names),
        "not located",
        "text in chunks",
    ]
    rows = []
    for name, (*parts, whole) in results.items():
        cells: list[object] = [
            name,
            whole.chunks,
            f"{whole.tokens:.0f}",
            whole.recall,
            whole.precision,
            whole.iou,
            whole.omega,
        ]
        cells += [
            whole.budget_recall,
            *(f"{part.budget_recall.value:.3f}" for part in parts),
            f"{whole.lost:.2%}",
            f"{whole.covered:.1%}",
        ]
        rows.append([str(cell) for cell in cells])
    _table(["splitter", *heads], rows)


def book_table(results: dict[str, chunk_quality.Measured]) -> None:
    """Print the measures of the questions to choose by, then of the held-out ones."""
    heads = [
        "page hit@1",
        f"hit@{chroma.TOP}",
        "MRR",
        f"section hit@{chroma.TOP}",
        f"section in {chroma.BUDGET} tokens",
    ]
    rows = []
    for name, measured in results.items():
        cells: list[object] = [name, measured.chunks, f"{measured.tokens:.0f}"]
        for part in (measured.chosen, measured.held):
            cells += [part.first, part.top, part.mrr]
            cells += [part.section, part.section_in_budget] if part.sections else ["–", "–"]
        rows.append([str(cell) for cell in cells])
    _table(["max tokens", "chunks", "mean tokens", *heads, *(f"held out: {head}" for head in heads)], rows)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    for cells in (heads, ["---"] * len(heads), *rows):
        print(f"| {' | '.join(cells)} |")
    print(flush=True)


if __name__ == "__main__":
    main()
