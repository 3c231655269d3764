"""Measure readers' questions about books: `uv run --group bench python -m bench.books`.

Each question set (`NAME.jsonl`) runs on its book (the folder `NAME`), on Recto in each mode and on LangChain,
LlamaIndex and Haystack with their default loaders and splitters, dense and with their documented hybrid
retriever. All systems use the same embedding model. Each framework is installed once, in its own environment;
`--systems recto` runs Recto alone.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import rare_words
from bench.peers import table
from bench.peers.environments import ROOT, build
from bench.peers.listing import Listing, System, load
from bench.peers.process import RunnerError, RunnerProcess
from bench.peers.runners.embedding import cached
from bench.peers.runners.recto import Counted
from bench.question_sets import MEASURES, Answer, AnswerChunk, Book, Result, lead, load_books, measure
from recto import Retriever, __version__
from recto.book.sources.tree import open_book
from recto.evaluation.calibration import calibrate
from recto.indexing.indexer import IndexJob, IndexProgress, index_book
from recto.stores.edge import EdgeStore
from recto.types.search import Mode

COMMAND = "uv run --group bench python -m bench.books"
PAGE = ROOT / "docs" / "explanation" / "benchmark.md"
START, END = (
    "<!-- readers: made by `python -m bench.books --write-docs`, do not edit -->",
    "<!-- end of readers -->",
)
RECTO = "recto-"
MODES: tuple[Mode, ...] = ("dense", "lexical", "hybrid")
PEER_MODES = {"dense": "memory", "hybrid": "hybrid"}
_DEEP = 100  # chunks requested from a system


@dataclass(slots=True)
class Report:
    """The results so far."""

    about: dict[str, Any]
    command: str
    results: dict[str, Result] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    rare: dict[str, dict[str, rare_words.Found]] = field(default_factory=dict)

    @property
    def reference(self) -> str:
        """The system that the others are compared with: Recto's default mode, or the last measured mode."""
        asked = [name for name in self.results if name.startswith(RECTO)]
        return f"{RECTO}hybrid" if f"{RECTO}hybrid" in asked else asked[-1] if asked else ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, with the ranks of every query."""
        mine = self.results.get(self.reference)
        systems = {
            name: {
                "mean": result.mean(),
                "books": {book: result.book(book) for book in result.scores},
                "types": {type: result.mean(type) for type in result.types},
                "auroc": result.auroc,
                "lead": lead(mine, result).to_dict() if mine and name != self.reference else None,
                "ranks": {
                    book: [asdict(scores) for scores in found] for book, found in result.scores.items()
                },
            }
            for name, result in self.results.items()
        }
        rare = {
            name: {book: asdict(found) for book, found in books.items()} for name, books in self.rare.items()
        }
        whole = {
            "about": self.about,
            "command": self.command,
            "reference": self.reference,
            "systems": systems,
        }
        return {**whole, "failed": self.failed, "rare": rare}

    def markdown(self) -> str:
        """Return the tables."""
        parts = ["\n".join(f"- {name}: {value}" for name, value in self.about.items())]
        parts.append(f"Made by `{self.command}`. Means over the books:")
        parts.append(self._means())
        parts.append("Page hit@1 / hit@5 / MRR of each book:")
        parts.append(self._books())
        parts.append("Page MRR of each type of query, mean over the books:")
        parts.append(self._types())
        if any(result.auroc for result in self.results.values()):
            parts.append(
                "Answerability of each book: AUROC / answered queries called not covered / "
                "others called covered:"
            )
            parts.append(self._answerability())
        if self.rare:
            parts.append(
                f"Rare words as queries: a chunk with the word is among the first {rare_words.TOP} hits "
                "(as written / with a typo):"
            )
            parts.append(self._rare())
        return "\n\n".join(part.strip() for part in parts) + "\n"

    def _means(self) -> str:
        mine = self.results.get(self.reference)
        rows = []
        for name, result in self.results.items():
            found = result.mean()
            auroc = sum(result.auroc.values()) / len(result.auroc) if result.auroc else None
            gap = lead(mine, result) if mine and name != self.reference else None
            shown = f"{gap.mean:+.3f} ({gap.low:+.3f} to {gap.high:+.3f})" if gap else "–"
            rows.append(
                [self._title(name), *(_number(found.get(each)) for each in MEASURES), _number(auroc), shown]
            )
        rows += [
            [name, f"– ({table.shown(why)})", *[""] * (len(MEASURES) + 1)]
            for name, why in self.failed.items()
        ]
        compared = (
            f"{self.reference} minus this system: page MRR (95 % interval)" if mine else "compared with Recto"
        )
        return table.table(["system", *MEASURES, "AUROC", compared], rows)

    def _books(self) -> str:
        books = list(next(iter(self.results.values())).scores) if self.results else []
        rows = [
            [
                self._title(name),
                *("/".join(map(_number, list(result.book(book).values())[:3])) for book in books),
            ]
            for name, result in self.results.items()
        ]
        return table.table(["system", *books], rows)

    def _types(self) -> str:
        types = next(iter(self.results.values())).types if self.results else []
        rows = [
            [self._title(name), *(_number(result.mean(type).get("page MRR")) for type in types)]
            for name, result in self.results.items()
        ]
        return table.table(["system", *types], rows)

    def _answerability(self) -> str:
        measured = {name: result for name, result in self.results.items() if result.auroc}
        books = list(next(iter(measured.values())).auroc)
        rows = [
            [
                self._title(name),
                *(
                    "/".join(map(_number, (result.auroc[book], result.rejected[book], result.accepted[book])))
                    for book in books
                ),
            ]
            for name, result in measured.items()
        ]
        return table.table(["system", *books], rows)

    def _rare(self) -> str:
        books = list(next(iter(self.rare.values())))
        rows = [
            [
                self._title(name),
                *(f"{_number(found[book].exact)} / {_number(found[book].typo)}" for book in books),
            ]
            for name, found in self.rare.items()
        ]
        return table.table(["system", *books], rows)

    def _title(self, name: str) -> str:
        return f"**{name}**" if name == self.reference else name


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the chosen systems and print the tables."""
    options = parse(arguments)
    listing = load()
    systems = choose(options.systems, known_systems(listing))
    books = load_books(options.questions, options.books, options.sets)
    report = Report(_about(books), _command(options))
    options.cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="recto-books-") as scratch:
        ask_recto(
            options, books, [mode for mode in MODES if f"{RECTO}{mode}" in systems], Path(scratch), report
        )
        for system in listing.hybrid:
            modes = [mode for mode in PEER_MODES if f"{system.name}-{mode}" in systems]
            if modes:
                ask_peer(options, books, system, modes, listing, Path(scratch), report)
    tables = report.markdown()
    print(tables)
    if options.json:
        options.json.write_text(json.dumps(report.to_dict(), indent=1) + "\n", "utf-8")
    if options.write_docs:
        PAGE.write_text(table.into(PAGE.read_text("utf-8"), tables, START, END), "utf-8")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    home = Path(os.environ.get("RECTO_HOME", "~/.recto")).expanduser()
    corpora = Path(os.environ.get("RECTO_CORPORA") or ROOT.parent / "shared" / "corpora")
    parser = argparse.ArgumentParser(
        prog="python -m bench.books",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--questions",
        type=Path,
        default=corpora / "questions",
        help="folder of the sets (RECTO_CORPORA/questions)",
    )
    parser.add_argument(
        "--books", type=Path, default=corpora / "books", help="folder of the books (RECTO_CORPORA/books)"
    )
    parser.add_argument("--sets", type=_names, default=[], help="some of the sets, separated by commas")
    parser.add_argument(
        "--systems",
        type=_names,
        default=[],
        help="some of the systems, such as recto,haystack-hybrid (default: all)",
    )
    parser.add_argument(
        "--rare",
        type=int,
        nargs="?",
        const=500,
        default=0,
        metavar="N",
        help="ask Recto for N rare words of each book",
    )
    parser.add_argument(
        "--home", type=Path, help="folder that keeps Recto's indexes (default: a temporary one)"
    )
    parser.add_argument(
        "--cache", type=Path, default=home / "bench", help="folder that keeps environments and vectors"
    )
    parser.add_argument(
        "--threads",
        type=int,
        default=os.cpu_count() or 1,
        help="threads of the embedding model (default %(default)s)",
    )
    parser.add_argument("--json", type=Path, help="write all figures and ranks to this file")
    parser.add_argument(
        "--write-docs", action="store_true", help=f"put the tables into {PAGE.relative_to(ROOT)}"
    )
    options = parser.parse_args(arguments)
    for flag, folder in (("--questions", options.questions), ("--books", options.books)):
        if not folder.is_dir():
            parser.error(
                f"There is no folder {folder}. Pass it with {flag}, or set RECTO_CORPORA to its parent."
            )
    return options


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


def ask_recto(
    options: argparse.Namespace, books: Sequence[Book], modes: Sequence[Mode], scratch: Path, report: Report
) -> None:
    """Index the books in this process, run the questions in each mode, and search for rare words."""
    if not modes:
        return
    home: Path = options.home or scratch / "home"
    answers: dict[str, dict[str, list[Answer]]] = {mode: {} for mode in modes}
    embedder: Any = Counted(cached(options.cache, home, options.threads))
    with closing(EdgeStore(home)) as store:
        for book in books:
            retriever = open_indexed(book, embedder, store, home)
            draws = rare_words.draw(
                [chunk.text for chunk in retriever.open().scroll()], options.rare, book.name
            )
            for mode in modes:
                _notify(f"{RECTO}{mode}: {book.name}, {len(book.questions)} queries, {len(draws)} rare words")
                search = _Search(retriever, mode)
                answers[mode][book.name] = [search.answer(question.query) for question in book.questions]
                if draws:
                    report.rare.setdefault(f"{RECTO}{mode}", {})[book.name] = rare_words.ask(
                        draws, search.texts
                    )
    report.about["Recto"] = f"recto {__version__}"
    for mode in modes:
        report.results[f"{RECTO}{mode}"] = measure(books, answers[mode])


def open_indexed(book: Book, embedder: Any, store: EdgeStore, home: Path) -> Retriever:
    """Index a book, unless the home has it already, and return a retriever of it."""
    work = IndexJob(open_book(book.docs, book=book.name), embedder)
    index_book(work, store, book.name, journal=home / "journal", progress=_Progress(f"recto: {book.name}"))
    index = store.open(book.name)
    store.save_calibration(index.info, calibrate(embedder, index))
    return Retriever(embedder, store, book.name)


class _Search:
    """A search in one mode."""

    def __init__(self, retriever: Retriever, mode: Mode) -> None:
        self._retriever = retriever
        self._mode = mode

    def answer(self, query: str) -> Answer:
        response = self._retriever.search(query, top_k=_DEEP, mode=self._mode)
        hits = (
            AnswerChunk(
                hit.chunk.source,
                hit.chunk.headings,
                opening=hit.chunk.chunk_index == 0 or len(hit.chunk.headings) <= 1,
            )
            for hit in response.hits
        )
        return Answer(tuple(hits), response.answerable, response.coverage)

    def texts(self, query: str) -> list[str]:
        response = self._retriever.search(query, top_k=rare_words.TOP, mode=self._mode)
        return [hit.chunk.text for hit in response.hits]


def ask_peer(
    options: argparse.Namespace,
    books: Sequence[Book],
    system: System,
    modes: Sequence[str],
    listing: Listing,
    scratch: Path,
    report: Report,
) -> None:
    """Run the questions on a framework with its own loader and splitter; a failure goes into the table."""
    environment = build(system, listing, options.cache)
    report.about[system.title] = ", ".join(
        f"{name} {environment.versions.get(name, '?')}" for name in system.versions
    )
    for mode in modes:
        name, answers = f"{system.name}-{mode}", {}
        try:
            for book in books:
                _notify(f"{name}: {book.name}, {len(book.questions)} queries")
                with RunnerProcess(
                    replace(system, arguments=(PEER_MODES[mode],)), environment, scratch
                ) as runner:
                    answers[book.name] = _peer_answers(
                        runner, book, scratch / f"{system.name}-{book.name}", options
                    )
        except RunnerError as error:
            report.failed[name] = str(error)
            _notify(f"{name} failed: {error}")
        else:
            report.results[name] = measure(books, answers)


def _peer_answers(
    runner: RunnerProcess, book: Book, folder: Path, options: argparse.Namespace
) -> list[Answer]:
    """Index a book, unless another mode has done it, and run all its questions."""
    home = folder.parent / "home"
    runner.ask(
        "embed", how="cached", folder=str(options.cache.resolve()), home=str(home), threads=options.threads
    )
    if not folder.exists():
        runner.ask("read", docs=str(book.docs.resolve()), folder=str(folder))
    runner.ask("open", folder=str(folder))
    found = runner.ask("ask", questions=[question.query for question in book.questions], top=_DEEP)["found"]
    return [Answer(tuple(AnswerChunk(source) for _, source in hits)) for hits in found]


class _Progress:
    """Prints a line at every quarter of an index run."""

    def __init__(self, what: str) -> None:
        self._what, self._told = what, -1

    def __call__(self, now: IndexProgress) -> None:
        quarter = 4 * now.done // max(1, now.chunks) if now.plan else -1
        if quarter > self._told:
            self._told = quarter
            _notify(f"{self._what}: {now.done} of {now.chunks} chunks indexed")


def _about(books: Sequence[Book]) -> dict[str, Any]:
    counts = ((book, sum(each.nothing for each in book.questions)) for book in books)
    queries = (
        f"{book.name} ({len(book.questions)}, of which the book answers {len(book.questions) - none})"
        for book, none in counts
    )
    return {"date": datetime.now(UTC).date().isoformat(), "queries": ", ".join(queries)}


def _command(options: argparse.Namespace) -> str:
    """Return the command of this run, without the folders of this machine."""
    parts = [
        f" --{name} {','.join(chosen)}"
        for name, chosen in (("systems", options.systems), ("sets", options.sets))
        if chosen
    ]
    return COMMAND + "".join(parts) + (f" --rare {options.rare}" if options.rare else "")


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _notify(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
