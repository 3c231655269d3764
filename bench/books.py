"""Measure readers' questions about books: `uv run --group bench python -m bench.books`.

Each question set (`NAME.jsonl`) runs on its book (the folder `NAME`), on Recto in each mode and on LangChain,
LlamaIndex and Haystack with their default loaders and splitters, dense and with their documented hybrid
retriever. All systems use the same embedding model. Each framework is installed once, in its own environment;
`--systems recto` runs Recto alone, with any model that the settings name.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import recto
from bench.common import (
    BENCHMARK_PAGE,
    ROOT,
    add_machine_options,
    cell,
    insert,
    local_settings,
    new_parser,
    notify,
    table,
)
from bench.common import names as comma_names
from bench.peers.environments import build
from bench.peers.listing import Listing, System, load
from bench.peers.process import RunnerError, RunnerProcess
from bench.question_sets import (
    CORPORA,
    MEASURES,
    Answer,
    AnswerChunk,
    Book,
    Result,
    lead,
    load_books,
    measure,
)
from recto import Retriever
from recto.book.sources import SourceOptions
from recto.types.search import Mode

COMMAND = "uv run --group bench python -m bench.books"
START = "<!-- readers: made by `python -m bench.books --write-docs`, do not edit -->"
END = "<!-- end of readers -->"
RECTO = "recto-"
MODES: tuple[Mode, ...] = ("dense", "lexical", "hybrid")
PEER_MODES = {"dense": "memory", "hybrid": "hybrid"}
DEPTH = 100  # chunks requested from a system: enough to rank pages well beyond the first five


@dataclass(slots=True)
class Report:
    """The results so far."""

    about: dict[str, Any]
    command: str
    results: dict[str, Result] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def reference(self) -> str:
        """The system that the others are compared with: Recto's default mode, or the last measured mode."""
        measured = [name for name in self.results if name.startswith(RECTO)]
        return f"{RECTO}hybrid" if f"{RECTO}hybrid" in measured else measured[-1] if measured else ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, with the ranks of every query."""
        mine = self.results.get(self.reference)
        systems = {
            name: {
                "mean": result.mean(),
                "books": {book: result.book(book) for book in result.scores},
                "auroc": result.auroc,
                "lead": lead(mine, result).to_dict() if mine and name != self.reference else None,
                "ranks": {
                    book: [asdict(score) for score in scores] for book, scores in result.scores.items()
                },
            }
            for name, result in self.results.items()
        }
        return {
            "about": self.about,
            "command": self.command,
            "reference": self.reference,
            "systems": systems,
            "failed": self.failed,
        }

    def markdown(self) -> str:
        """Return the tables."""
        about = "\n".join(f"- {name}: {value}" for name, value in self.about.items())
        return f"{about}\n\nMade by `{self.command}`. Means over the books:\n\n{self._means()}"

    def _means(self) -> str:
        mine = self.results.get(self.reference)
        rows = []
        for name, result in self.results.items():
            means = result.mean()
            auroc = sum(result.auroc.values()) / len(result.auroc) if result.auroc else None
            gap = lead(mine, result) if mine and name != self.reference else None
            difference = f"{gap.mean:+.3f} ({gap.low:+.3f} to {gap.high:+.3f})" if gap else "–"
            figures = [*(means.get(measure) for measure in MEASURES), auroc]
            title = f"**{name}**" if name == self.reference else name
            rows.append([title, *map(_number, figures), difference])
        for name, why in self.failed.items():
            rows.append([name, f"– ({cell(why)})", *[""] * (len(MEASURES) + 1)])
        compared = (
            f"{self.reference} minus this system: page MRR (95 % interval)" if mine else "compared with Recto"
        )
        return table(["system", *MEASURES, "AUROC", compared], rows)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the chosen systems and print the tables."""
    parser = make_parser(__doc__, "bench.books")
    parser.add_argument(
        "--write-docs", action="store_true", help=f"put the tables into {BENCHMARK_PAGE.relative_to(ROOT)}"
    )
    options, books = parse(parser, arguments)
    listing = load()
    systems = choose(options.systems, known_systems(listing))
    report = Report(_about(books), _command(options))
    with scratch_directory(options) as scratch:
        modes = [mode for mode in MODES if f"{RECTO}{mode}" in systems]
        if modes:
            ask_recto(options, books, modes, report)
        for system in listing.hybrid:
            for mode in PEER_MODES:
                if f"{system.name}-{mode}" in systems:
                    ask_peer(options, books, system, mode, listing, scratch, report)
    tables = report.markdown()
    print(tables)
    if options.json:
        options.json.write_text(json.dumps(report.to_dict(), indent=1) + "\n", "utf-8")
    if options.write_docs:
        BENCHMARK_PAGE.write_text(insert(BENCHMARK_PAGE.read_text("utf-8"), tables, START, END), "utf-8")


def make_parser(description: str | None, module: str) -> argparse.ArgumentParser:
    """Return a parser with the options that choose the questions, the books and the systems."""
    parser = new_parser(description, module)
    corpora = Path(os.environ.get("RECTO_CORPORA") or ROOT.parent / "shared" / "corpora")
    parser.add_argument(
        "--corpora", type=Path, default=corpora, help="directory of the corpora (RECTO_CORPORA)"
    )
    parser.add_argument("--corpus", choices=CORPORA, default="readers", help="one of the corpora")
    parser.add_argument("--questions", type=Path, help="directory of the sets, instead of a corpus")
    parser.add_argument("--books", type=Path, help="directory of the books, instead of a corpus")
    parser.add_argument("--book", type=Path, help="directory of one book that all sets ask about")
    parser.add_argument(
        "--section-questions", type=Path, help="directory with a question file NAME.jsonl for each book"
    )
    parser.add_argument("--sets", type=comma_names, default=[], help="some of the sets, separated by commas")
    parser.add_argument(
        "--systems",
        type=comma_names,
        default=[],
        help="some of the systems, such as recto,haystack-hybrid (default: all)",
    )
    parser.add_argument(
        "--home", type=Path, help="directory that keeps Recto's indexes (default: in --cache)"
    )
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    add_machine_options(parser)
    return parser


def parse(
    parser: argparse.ArgumentParser, arguments: Sequence[str] | None
) -> tuple[argparse.Namespace, list[Book]]:
    """Read the command line, and load the chosen question sets with their books."""
    options = parser.parse_args(arguments)
    corpus = CORPORA[options.corpus]
    options.questions = options.questions or options.corpora / corpus.questions
    options.books = options.book or options.books or options.corpora / corpus.books
    options.home = options.home or options.cache / "home"
    for flag in ("questions", "books"):
        if not (folder := getattr(options, flag)).is_dir():
            parser.error(
                f"There is no directory {folder}. Pass it with --{flag}, or set RECTO_CORPORA to its parent."
            )
    return options, load_books(options.questions, options.books, options.sets, options.book)


@contextmanager
def scratch_directory(options: argparse.Namespace) -> Iterator[Path]:
    """Yield a temporary directory, and make the cache."""
    options.cache.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="recto-bench-") as scratch:
        yield Path(scratch)


def known_systems(listing: Listing) -> list[str]:
    """Return the names of all systems, Recto's modes first."""
    peers = [f"{system.name}-{mode}" for system in listing.hybrid for mode in PEER_MODES]
    return [*(f"{RECTO}{mode}" for mode in MODES), *peers]


def choose(names: Sequence[str], systems: Sequence[str]) -> list[str]:
    """Return the named systems, with or without their mode; all if none is named."""
    if unknown := [name for name in names if not any(_is_named(system, name) for system in systems)]:
        raise SystemExit(f"There is no system {', '.join(unknown)}. Systems: {', '.join(systems)}.")
    return [system for system in systems if not names or any(_is_named(system, name) for name in names)]


def _is_named(system: str, name: str) -> bool:
    return system == name or system.startswith(f"{name}-")


@contextmanager
def open_book(options: argparse.Namespace, book: Book) -> Iterator[Retriever]:
    """Index a book, unless the home has it already, and yield its retriever."""
    settings = local_settings(options.home, options.threads)
    name = "book" if options.book else book.name
    notify(f"recto: indexing {name}")
    chosen = SourceOptions(generator=book.generator, questions=_section_questions(options, book))
    recto.index(book.docs, name, options=chosen, settings=settings)
    with recto.connect(name, settings=settings) as retriever:
        yield retriever


def _section_questions(options: argparse.Namespace, book: Book) -> str:
    """Return the question file of a book, or "" to index it without one."""
    file = options.section_questions and options.section_questions / f"{book.name}.jsonl"
    return str(file) if file and file.is_file() else ""


def ask_recto(
    options: argparse.Namespace, books: Sequence[Book], modes: Sequence[Mode], report: Report
) -> None:
    """Run the questions in each mode."""
    answers: dict[Mode, dict[str, list[Answer]]] = {mode: {} for mode in modes}
    for book in books:
        with open_book(options, book) as retriever:
            for mode in modes:
                notify(f"{RECTO}{mode}: {book.name}, {len(book.questions)} queries")
                answers[mode][book.name] = [answer(retriever, one.query, mode) for one in book.questions]
    report.about["Recto"] = f"recto {recto.__version__}"
    for mode in modes:
        report.results[f"{RECTO}{mode}"] = measure(books, answers[mode])


def answer(retriever: Retriever, query: str, mode: Mode) -> Answer:
    """Search, and return what the measures need of the response."""
    response = retriever.search(query, top_k=DEPTH, mode=mode)
    hits = tuple(AnswerChunk.of(hit.chunk) for hit in response.hits)
    return Answer(hits, response.answerable)


def ask_peer(
    options: argparse.Namespace,
    books: Sequence[Book],
    system: System,
    mode: str,
    listing: Listing,
    scratch: Path,
    report: Report,
) -> None:
    """Run the questions on a framework with its own loader and splitter; a failure goes into the table."""
    name, answers = f"{system.name}-{mode}", {}
    try:
        for book in books:
            notify(f"{name}: {book.name}, {len(book.questions)} queries")
            with open_peer(options, book, system, PEER_MODES[mode], listing, scratch) as runner:
                done = runner.ask("ask", questions=[one.query for one in book.questions], top=DEPTH)
            answers[book.name] = [
                Answer(tuple(AnswerChunk(source) for _, source in hits)) for hits in done["found"]
            ]
    except RunnerError as error:
        report.failed[name] = str(error)
        notify(f"{name} failed: {error}")
        return
    report.results[name] = measure(books, answers)


@contextmanager
def open_peer(
    options: argparse.Namespace, book: Book, system: System, mode: str, listing: Listing, scratch: Path
) -> Iterator[RunnerProcess]:
    """Index a book with a framework, unless another mode has done it, and yield the open runner."""
    environment = build(system, listing, options.cache)
    folder, cache = scratch / f"{system.name}-{book.name}", str(options.cache.resolve())
    with RunnerProcess(replace(system, arguments=(mode,)), environment, scratch) as runner:
        runner.ask("embed", how="cached", folder=cache, home=str(scratch / "home"), threads=options.threads)
        if not folder.exists():
            runner.ask("read", docs=str(book.docs.resolve()), folder=str(folder))
        runner.ask("open", folder=str(folder))
        yield runner


def _about(books: Sequence[Book]) -> dict[str, Any]:
    queries = (
        f"{book.name} ({len(book.questions)}, of which the book answers {book.answered})" for book in books
    )
    return {"date": datetime.now(UTC).date().isoformat(), "queries": ", ".join(queries)}


def _command(options: argparse.Namespace) -> str:
    """Return the command of this run, without the directories of this machine."""
    chosen = [("systems", options.systems), ("sets", options.sets)]
    parts = [f" --{name} {','.join(values)}" for name, values in chosen if values]
    if options.corpus != "readers":
        parts.append(f" --corpus {options.corpus}")
    return COMMAND + "".join(parts)


if __name__ == "__main__":
    main()
