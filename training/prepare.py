"""Split the training books into chunks: `uv run python -m training.prepare BOOKS OUT [--eval DIR]`.

BOOKS has one docs root per set of `training/questions/`, under the set's name, at the commit that
`training/books.json` names. Nothing is fetched. The chunks are those that `recto index` makes of a directory
with the built-in model, and OUT/books.json.gz has them with the questions:

    {book: {"text": […], "hp": […], "src": […], "first": […], "last": […], "qs": […], "eval": false}}

`hp` is the heading path as it is embedded (heading path, blank line, text), `src` the page's path in the docs
root, `first` and `last` its lines. A question has its expected pages (`gold`) and two lists of chunk numbers:
`pos` are the chunks that hold the quoted answer, else those of the expected sections, else those of the
expected pages; `sections` are the chunks of all expected sections.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

from recto._util.markdown import heading_key
from recto.book.chunking import DEFAULT_SIZE, chunk_page
from recto.book.parsing import read
from recto.book.sources.tree import open_book
from recto.embedders.local import open_local
from recto.settings import load_settings

HERE = Path(__file__).parent
MAX_CHUNKS = 12_000
MAX_PAGE = 600_000  # characters; a larger page is a generated list
_SEED = 27
_QUOTE = 60  # characters of a quote that must be in a chunk


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk: the heading path that is embedded before its text, all headings, its page and its lines."""

    text: str
    path: str
    headings: tuple[str, ...]
    source: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Question:
    """A question, the places that answer it, and where the answer is: on a line, or by a quote."""

    id: str
    text: str
    type: str
    match: str
    expected: tuple[tuple[str, str], ...]
    line: int | None = None
    quote: str = ""

    @property
    def pages(self) -> list[str]:
        """The expected pages, each once."""
        return list(dict.fromkeys(page for page, _ in self.expected))


@dataclass(frozen=True, slots=True)
class BookJob:
    """A book to split."""

    name: str
    root: Path
    questions: tuple[Question, ...]
    exclude: tuple[str, ...] = ()
    max_chunks: int = MAX_CHUNKS
    evaluation: bool = False


def main(arguments: Sequence[str] | None = None) -> None:
    """Write OUT/books.json.gz."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("books", type=Path, help="directory with one docs root per set")
    parser.add_argument("out", type=Path, help="directory for books.json.gz")
    parser.add_argument("--eval", type=Path, help="directory with questions/NAME.jsonl and books/NAME")
    parser.add_argument("--scifact", type=Path, help="directory of BEIR's SciFact, for OUT/scifact.json.gz")
    parser.add_argument("--only", nargs="*", default=[], help="names of sets; default: all")
    parser.add_argument("--max-chunks", type=int, default=MAX_CHUNKS, help="per book; default %(default)s")
    parser.add_argument("--processes", type=int, default=2, help="default %(default)s")
    options = parser.parse_args(arguments)
    if options.scifact:
        options.out.mkdir(parents=True, exist_ok=True)
        write(options.out / "scifact.json.gz", scifact_book(options.scifact))
    jobs = training_jobs(options.books) + (evaluation_jobs(options.eval) if options.eval else [])
    jobs = [
        replace(job, max_chunks=options.max_chunks)
        for job in jobs
        if not options.only or job.name in options.only
    ]
    began = perf_counter()
    with ProcessPoolExecutor(options.processes) as pool:
        made = {}
        for job, book in zip(jobs, pool.map(split_book, jobs), strict=True):
            made[job.name] = book
            print(report(job, book), flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "books.json.gz"
    write(path, made)
    chunks = sum(len(book["text"]) for book in made.values())
    questions = sum(len(job.questions) for job in jobs)
    print(
        f"{len(made)} books, {questions} questions, {chunks} chunks, {path.stat().st_size / 1e6:.1f} MB, "
        f"{perf_counter() - began:.0f} s"
    )


def write(path: Path, value: object) -> None:
    """Write JSON with gzip; without a time in the header, so that the same input makes the same file."""
    data = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    path.write_bytes(gzip.compress(data, 9, mtime=0))


def scifact_book(folder: Path) -> dict[str, Any]:
    """Return SciFact as a book: an abstract is a page of one chunk, a claim is a question with a `split`."""
    abstracts = read_lines(folder / "corpus.jsonl")
    place = {row["_id"]: number for number, row in enumerate(abstracts)}
    claims = {row["_id"]: row["text"] for row in read_lines(folder / "queries.jsonl")}
    questions = []
    for split in ("train", "test"):
        golds: dict[str, list[str]] = {}
        for line in (folder / "qrels" / f"{split}.tsv").read_text("utf-8").splitlines()[1:]:
            claim, abstract, score = line.split("\t")
            if int(score) > 0:
                golds.setdefault(claim, []).append(abstract)
        for claim, gold in golds.items():
            pos = [place[one] for one in gold]
            row = {"id": claim, "q": claims[claim], "type": "claim", "match": "any", "split": split}
            questions.append({**row, "gold": gold, "pos": pos, "sections": []})
    return {
        "text": [row["text"] for row in abstracts],
        "hp": [row["title"] for row in abstracts],
        "src": [row["_id"] for row in abstracts],
        "qs": questions,
        "eval": False,
    }


def training_jobs(books: Path) -> list[BookJob]:
    """Return the sets of `training/questions/` with their docs roots."""
    known = json.loads((HERE / "books.json").read_text("utf-8"))
    jobs = []
    for path in sorted((HERE / "questions").glob("*.jsonl")):
        if not (books / path.stem).is_dir():
            raise SystemExit(
                f"{path.name} needs the docs root {books / path.stem}, which does not exist: "
                f"put a checkout there ({known[path.stem]})."
            )
        questions = tuple(parse_question(row) for row in read_lines(path))
        exclude = tuple(known[path.stem]["exclude"])
        jobs.append(BookJob(path.stem, books / path.stem, questions, exclude))
    return jobs


def evaluation_jobs(folder: Path) -> list[BookJob]:
    """Return the sets that are only for measuring, as `bench.books` finds them."""
    from bench.question_sets import load_books

    jobs = []
    for book in load_books(folder / "questions", folder / "books", []):
        rows = read_lines(folder / "questions" / f"{book.name}.jsonl")
        questions = tuple(parse_question(row) for row in rows)
        jobs.append(BookJob(book.name, book.docs, questions, evaluation=True))
    return jobs


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read JSON Lines."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


def parse_question(row: Mapping[str, Any]) -> Question:
    """Read a question of our own format, or of one with quotes."""
    places = tuple((place["page"], place["section"]) for place in row["expected"])
    quote = next(iter(row.get("evidence") or ()), "")
    return Question(row["id"], row["question"], row["type"], row["match"], places, row.get("line"), quote)


def split_book(job: BookJob) -> dict[str, Any]:
    """Return the chunks of a book and its questions, ready to be written."""
    embedder = open_local(load_settings(), lambda _: None)
    pages = dict(split_pages(job, embedder.count_tokens, embedder.max_tokens))
    golds = {page for question in job.questions for page in question.pages}
    kept = sample_pages({page: len(chunks) for page, chunks in pages.items()}, golds, job.max_chunks)
    chunks = [chunk for page, found in pages.items() if page in kept for chunk in found]
    return {
        "text": [chunk.text for chunk in chunks],
        "hp": [chunk.path for chunk in chunks],
        "src": [chunk.source for chunk in chunks],
        "first": [chunk.first for chunk in chunks],
        "last": [chunk.last for chunk in chunks],
        "qs": [located(question, chunks) for question in job.questions],
        "eval": job.evaluation,
        "left_out": len(pages) - len(kept),
    }


def split_pages(
    job: BookJob, count_tokens: Callable[[str], int], max_tokens: int
) -> Iterator[tuple[str, list[Passage]]]:
    """Yield the chunks of each page that is not excluded; a page that cannot be read is left out."""
    for page in open_book(job.root, book=job.name).pages():
        if is_excluded(page.path, job.exclude) or len(page.text) > MAX_PAGE:
            continue
        try:
            found = chunk_page(page, read(page), job.name, count_tokens, max_tokens, DEFAULT_SIZE)
        except Exception as error:  # noqa: BLE001 - as `recto index`: one broken page must not stop the run
            print(f"{job.name}: {page.path} cannot be read ({type(error).__name__}: {error})", flush=True)
            continue
        yield (
            page.path,
            [
                Passage(
                    one.chunk.text,
                    one.embedded.removesuffix(f"\n\n{one.chunk.text}"),
                    one.chunk.headings,
                    page.path,
                    one.chunk.start_line,
                    one.chunk.end_line,
                )
                for one in found
            ],
        )


def is_excluded(path: str, exclude: Iterable[str]) -> bool:
    """Return whether a page's path, with a slash before it, contains one of the excluded parts."""
    return any(part in f"/{path}" for part in exclude)


def sample_pages(sizes: Mapping[str, int], golds: Collection[str], max_chunks: int) -> set[str]:
    """Return the pages to keep: pages with answers, then others at random while they fit."""
    if sum(sizes.values()) <= max_chunks:
        return set(sizes)
    kept = {page for page in sizes if page in golds}
    total = sum(sizes[page] for page in kept)
    others = sorted(set(sizes) - kept)
    random.Random(_SEED).shuffle(others)
    for page in others:
        if total + sizes[page] <= max_chunks:
            kept.add(page)
            total += sizes[page]
    return kept


def located(question: Question, chunks: Sequence[Passage]) -> dict[str, Any]:
    """Return a question with the numbers of the chunks that answer it."""
    pages = set(question.pages)
    gold = [number for number, chunk in enumerate(chunks) if chunk.source in pages]
    quoted = [number for number in gold if has_quote(question, chunks[number])]
    wanted = {(page, heading_key(section)) for page, section in question.expected}
    opening = {chunk.source: chunk.headings for chunk in reversed(chunks) if chunk.source in pages}
    sections = [
        number
        for number in gold
        if any(
            (page, key) in wanted
            for page in (chunks[number].source,)
            for key in section_keys(chunks[number], opening[page])
        )
    ]
    return {
        "id": question.id,
        "q": question.text,
        "type": question.type,
        "match": question.match,
        "gold": question.pages,
        "pos": quoted or sections or gold,
        "by": "quote" if quoted else "section" if sections else "page" if gold else "none",
        "sections": sections,
    }


def has_quote(question: Question, chunk: Passage) -> bool:
    """Return whether a chunk holds the answer: its line of the first expected page, or the quote."""
    if question.line is not None:
        return chunk.source == question.expected[0][0] and chunk.first <= question.line <= chunk.last
    quote = plain(question.quote)[:_QUOTE]
    return bool(quote) and quote in plain(chunk.text)


def section_keys(chunk: Passage, opening: tuple[str, ...]) -> set[str]:
    """Return the sections that a chunk is in; the page's beginning is the empty one."""
    found = {heading_key(heading) for heading in chunk.headings}
    return found | {""} if chunk.headings == opening else found


def plain(text: str) -> str:
    """Return only letters and digits, for comparing a quote with text that may have markup."""
    return re.sub(r"[^a-z0-9]+", " ", text.lower()).strip()


def report(job: BookJob, book: Mapping[str, Any]) -> str:
    """Return one line about a book."""
    by = Counter(question["by"] for question in book["qs"] if question["match"] != "none")
    missing = [question["id"] for question in book["qs"] if question["gold"] and not question["pos"]]
    line = f"{job.name}: {len(book['text'])} chunks, {len(job.questions)} questions, answers {dict(by)}"
    line += f", {book['left_out']} pages left out" if book["left_out"] else ""
    return line + (f", no chunks for {' '.join(missing)}" if missing else "")


if __name__ == "__main__":
    main()
