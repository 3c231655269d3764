"""Measure indexing: reading and chunking alone, a whole run, runs without changes, and memory.

`python -m bench.ingest [PATH]` indexes the sample book, or the book at PATH. The memory for a large book is
measured with generated text, the real tokenizer and vectors made from hashes: the model's own memory is the
same for every book.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import perf_counter

from recto.api import SourceOptions, open_embedder, open_source, open_store, sample_source
from recto.book.chunking import DEFAULT_SIZE, chunk_page
from recto.book.parsing.formats import read
from recto.book.sources.tree import MarkdownTree
from recto.indexing.indexer import IndexJob, index_book
from recto.protocols import Embedder, Progress, Source
from recto.settings import Settings
from recto.types import Vector
from tests.counting import Counting

WORDS = 1_800_000
WORDS_PER_PAGE = 1_000


class Hashed(Counting):
    """An embedder with real tokens and vectors made from hashes: as large as real ones, at no cost."""

    def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> list[Vector]:
        """Make a vector of each text."""
        if progress:
            progress(len(texts), len(texts))
        return [_vector(text, self.dim) for text in texts]


def _vector(text: str, dim: int) -> Vector:
    numbers = random.Random(hashlib.sha256(text.encode()).digest())
    return [numbers.uniform(-1, 1) for _ in range(dim)]


def reading(source: Source, embedder: Embedder, rounds: int) -> tuple[int, int, list[str], float]:
    """Read and chunk a book; return pages, bytes, the texts to embed, and the median seconds."""
    times, texts, pages, size = [], list[str](), 0, 0
    for _ in range(rounds):
        began = perf_counter()
        texts, pages, size = [], 0, 0
        for page in source.pages():
            inputs = chunk_page(
                page, read(page), source.book, embedder.count_tokens, embedder.max_tokens, DEFAULT_SIZE
            )
            texts += [one.embedded for one in inputs]
            pages += 1
            size += len(page.text.encode())
        times.append(perf_counter() - began)
    return pages, size, texts, median(times)


def generated(root: Path, words: int) -> Path:
    """Write a book with a number of words of the sample book's vocabulary."""
    vocabulary = sorted(
        {word for page in sample_source().pages() for word in re.findall(r"[A-Za-z]{3,}", page.text)}
    )
    numbers = random.Random(1)
    for number in range(words // WORDS_PER_PAGE):
        sections = [f"# Page {number}"]
        for part in range(8):
            body = " ".join(numbers.choices(vocabulary, k=WORDS_PER_PAGE // 8))
            sections.append(f"## Part {part} of {number}\n\n{body}.")
        page = root / f"module-{number % 7}-part{number % 7}" / f"page{number}.md"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text("\n\n".join(sections), "utf-8")
    return root


def peak(words: int) -> tuple[float, float, int]:
    """Index a generated book in a fresh process; return its peak MB, the engine's peak MB, and the chunks."""
    with tempfile.TemporaryDirectory() as scratch:
        generated(Path(scratch, "book"), words)
        done = subprocess.run(
            [sys.executable, "-m", "bench.ingest", "--peak", scratch],
            capture_output=True,
            text=True,
            check=True,
            env=dict(os.environ),
        )
        own, engine, chunks = done.stdout.split()
        return float(own), float(engine), int(chunks)


def peak_here(scratch: Path) -> None:
    """Index a generated book in this process and print what `peak` returns."""
    settings = Settings("local", "edge", scratch / "home", threads=1)
    work = IndexJob(MarkdownTree(scratch / "book"), Hashed(open_embedder(settings, print)))
    report = index_book(work, open_store(settings, print), "peak", journal=scratch / "journal")
    own, engine = (
        resource.getrusage(who).ru_maxrss / 1024 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    print(f"{own:.1f} {engine:.1f} {report.info.chunks}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("path", nargs="?")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--words", type=int, default=WORDS)
    parser.add_argument("--peak", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        peak_here(options.peak)
        return
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        settings = Settings("local", "edge", home, threads=os.cpu_count() or 1)
        embedder, store = open_embedder(settings, print), open_store(settings, print)
        embedder.warm_up()
        source = open_source(options.path, SourceOptions(), None, print) if options.path else sample_source()
        pages, size, texts, seconds = reading(source, embedder, options.rounds)
        print(
            f"| read and chunk | {pages} pages, {len(texts)} chunks: {pages / seconds:.0f} pages/s, "
            f"{size / 1e6 / seconds:.2f} MB/s |"
        )
        wholes, bares = [], []
        for _ in range(options.rounds):
            began = perf_counter()
            index_book(IndexJob(source, embedder, rebuild=True), store, "bench", journal=home / "journal")
            wholes.append(perf_counter() - began)
            began = perf_counter()
            for start in range(0, len(texts), 96):
                embedder.embed_documents(texts[start : start + 96])
            bares.append(perf_counter() - began)
        ratio = median(whole / bare for whole, bare in zip(wholes, bares, strict=True))
        print(
            f"| complete run / bare embedder | {ratio:.3f} ({median(wholes):.1f} s / {median(bares):.1f} s) |"
        )
        began = perf_counter()
        report = index_book(IndexJob(source, embedder), store, "bench", journal=home / "journal")
        again = perf_counter() - began
        print(
            f"| second run, nothing changed | {again:.2f} s, {again / pages * 100:.2f} s per 100 pages, "
            f"{report.plan.texts} embedded |"
        )
    for words in (options.words // 10, options.words):
        own, engine, chunks = peak(words)
        print(
            f"| peak memory, {words} words, {chunks} chunks | {own:.0f} MB, "
            f"and {engine:.0f} MB in the engine's process |",
            flush=True,
        )


if __name__ == "__main__":
    main()
