"""Questions about books with every system's default loader and splitter, and the same files and model."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import chroma
from bench.chunk_quality import BookQuestion, load_book, load_questions, load_suites
from bench.chunks import BOOKS, EVERY, EXTRACT, QUESTIONS, SUITES
from bench.peers.listing import SELF, System
from bench.peers.process import RunnerError, RunnerProcess
from bench.peers.running import Bench
from bench.peers.workloads.quality import add, add_failure
from recto._util.text import page_key
from recto.api import sample_source
from recto.book.chunking import DEFAULT_SIZE
from recto.book.sources.tree import MarkdownTree

MEASURES = ("Hit@1", "Hit@5", "MRR")
TOKEN_MEASURES = ("recall", "precision", "IoU")
_DEEP = 50


@dataclass(frozen=True, slots=True)
class BookFiles:
    """A book's files and the held-out questions about it.

    The other questions were used to choose Recto's chunk size, so they would favour it.
    """

    name: str
    docs: Path
    questions: tuple[BookQuestion, ...]


def work_of(book: str, measure: str) -> str:
    """Return the name of a book's measure."""
    return f"{book}, page {measure}"


def token_work(measure: str) -> str:
    """Return the name of a measure of Chroma's corpora."""
    return f"chroma_chunking {measure}@{chroma.TOP}"


def books(bench: Bench, *, sample_alone: bool = False) -> Iterator[BookFiles]:
    """Yield the books one after the other; missing ones are skipped."""
    yield BookFiles(
        "sample", _files(bench, "sample", Path(sample_source().location)), held(load_suites(*SUITES))
    )
    for name, place in () if sample_alone else BOOKS.items():
        root = bench.corpora / "books" / place if bench.corpora else None
        if root is None or not root.is_dir():
            bench.notify(f"The book {name} does not exist: skipped.")
            continue
        questions = load_questions(QUESTIONS / f"{name}.json")
        chosen = load_book(MarkdownTree(root, book=name), questions, 1 if bench.whole else EVERY[name])
        yield BookFiles(
            name, _files(bench, name, root, {page.path for page in chosen.pages}), held(questions)
        )


def run(bench: Bench, book: BookFiles) -> None:
    """Measure a book; systems that differ only in their store read it once."""
    scores: dict[str, dict[str, list[float]]] = {measure: {} for measure in MEASURES}
    pieces = {}
    for system in _readers(bench.whole_systems):
        bench.notify(f"{system.title}: {book.name}, its own pipeline")
        try:
            pieces[system.name], places = _asked(bench, system, book)
        except RunnerError as error:
            for measure in MEASURES:
                add_failure(bench, work_of(book.name, measure), system.name, str(error))
            continue
        scores["Hit@1"][system.name] = [float(rank == 1) for rank in places]
        scores["Hit@5"][system.name] = [float(0 < rank <= 5) for rank in places]
        scores["MRR"][system.name] = [1 / rank if rank else 0.0 for rank in places]
    for measure in MEASURES:
        add(bench, work_of(book.name, measure), scores[measure], {"chunks": pieces})


def run_chroma(bench: Bench, folder: Path) -> None:
    """Measure the splitters on Chroma's corpora, with exact search for all."""
    corpora = chroma.load(folder, 0 if bench.whole else EXTRACT)
    found: dict[str, chroma.Result] = {}
    found[SELF] = chroma.measure_size(corpora, DEFAULT_SIZE, bench.vectors)[-1]
    for system in _readers(bench.whole_systems):
        if system.name == SELF:
            continue
        bench.notify(f"{system.title}: Chroma's corpora, its own splitter")
        try:
            with bench.start(system) as runner:
                found[system.name] = chroma.measure(
                    corpora, _splitter(bench, runner), bench.vectors, system.name
                )[-1]
        except RunnerError as error:
            for measure in TOKEN_MEASURES:
                add_failure(bench, token_work(measure), system.name, str(error))
    for measure in TOKEN_MEASURES:
        values = {name: getattr(result, measure.lower()).values for name, result in found.items()}
        about = {
            "tokens": {name: result.tokens for name, result in found.items()},
            "lost": {name: result.lost for name, result in found.items()},
        }
        add(bench, token_work(measure), values, about)


def _splitter(bench: Bench, runner: RunnerProcess) -> chroma.Splitter:
    """Return a system's default splitter; each chunk has its range in the text."""

    def split(corpus: chroma.Corpus) -> tuple[list[chroma.Span], int]:
        file = bench.scratch / f"{corpus.name}.md"
        file.write_text(corpus.text, "utf-8")
        spans, lost, before = [], 0, 0
        for text in runner.ask("split", file=str(file))["texts"]:
            if not text.strip():
                continue
            around = max(0, before - 2 * len(text)), min(len(corpus.text), before + 6 * len(text))
            place = chroma.locate(corpus.text, text, around, before) or chroma.locate(
                corpus.text, text, (0, len(corpus.text)), before
            )
            lost += place is None
            start, end = place or (before, before)
            before = start + 1 if place else before  # the next chunk may overlap this one
            spans.append(chroma.Span((start, end), bench.vectors.shortened(text), bench.vectors.count(text)))
        return spans, lost

    return split


def _files(bench: Bench, name: str, root: Path, only: set[str] | None = None) -> Path:
    """Copy the files of a book to where all systems read them."""
    docs = bench.scratch / "books" / name
    top = root / "docs" if (root / "docs").is_dir() else root
    for path in sorted(top.rglob("*")):
        here = path.relative_to(top).as_posix()
        if path.suffix in {".md", ".mdx"} and (only is None or here in only):
            (docs / here).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, docs / here)
    return docs


def _readers(systems: tuple[System, ...]) -> list[System]:
    """Keep one of the systems that differ only in their store, and drop the limits."""
    first: dict[str, System] = {}
    for system in systems:
        if system.kind != "limit":
            first.setdefault(system.runner, system)
    return list(first.values())


def held(questions: Sequence[BookQuestion]) -> tuple[BookQuestion, ...]:
    """Return the held-out questions."""
    return tuple(question for question in questions if question.held)


def ranks(questions: Sequence[BookQuestion], found: Sequence[Sequence[str]]) -> list[int]:
    """Return the rank of the first result from an expected page for each question, or 0."""
    hits = (
        next((rank for rank, file in enumerate(files, 1) if page_key(file) in question.pages), 0)
        for question, files in zip(questions, found, strict=True)
    )
    return list(hits)


def _asked(bench: Bench, system: System, book: BookFiles) -> tuple[int, list[int]]:
    """Let a system index a book and run its questions; return the number of chunks, and the ranks."""
    folder = bench.scratch / "indexes" / f"{system.name}-{book.name}"
    folder.parent.mkdir(exist_ok=True)
    with bench.start(system) as runner:
        bench.embed(runner, "cached", bench.cache)
        pieces = runner.ask("read", docs=str(book.docs), folder=str(folder))["pieces"]
    with bench.start(system) as runner:
        bench.embed(runner, "cached", bench.cache)
        runner.ask("open", folder=str(folder))
        found = runner.ask("ask", questions=[question.text for question in book.questions], top=_DEEP)[
            "found"
        ]
    return pieces, ranks(book.questions, [[source for _, source in hits] for hits in found])
