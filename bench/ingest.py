"""Measure indexing: the share of each stage, a run against the bare embedder, a second run, and memory.

`python -m bench.ingest` indexes a generated book (`--pages`), or the book at PATH. The bare embedder embeds
the same chunks, or a sample of them (`--bare`), half of them before the run and half after it. Compare CPU
time if other programs are running. Memory is measured with vectors made from hashes: the model's own memory
is the same for every book.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event, Thread
from time import perf_counter, process_time

from recto.api import SourceOptions, open_embedder, open_source, open_store, sample_source
from recto.book.chunking import DEFAULT_SIZE, PlannedChunk, chunk_page
from recto.book.parsing import read
from recto.book.sources.tree import MarkdownTree
from recto.embedders.onnx import LocalEmbedder
from recto.evaluation.calibration import calibrate
from recto.indexing.indexer import IndexJob, index_book
from recto.indexing.journal import Journal
from recto.protocols import Embedder, Progress, Source
from recto.search.lexical import LexiconBuilder
from recto.settings import Settings
from recto.stores import check_vectors, to_payload
from recto.stores.edge.build import send
from recto.types.search import Vector
from tests.shared_embedder import Counting

WORDS_PER_PAGE = 1_000
_BATCH = 96
_SAMPLE_SECONDS = 0.1


class Hashed(Counting):
    """An embedder with real tokens and vectors made from hashes: as large as real ones, at little cost."""

    def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> list[Vector]:
        """Make a vector of each text."""
        if progress:
            progress(len(texts), len(texts))
        return [_vector(text, self.dim) for text in texts]

    def token_counter(self) -> Callable[[str], int]:
        """Return what counts tokens in other processes."""
        if not isinstance(self.real, LocalEmbedder):
            raise TypeError("the embedder has to be a local one")
        return self.real.token_counter()


def _vector(text: str, dim: int) -> Vector:
    """Return a vector whose numbers are 8-bit: HNSW takes as long as for any random vector."""
    digest = hashlib.shake_128(text.encode()).digest(dim)
    return [byte - 127.5 for byte in digest]


@dataclass
class Stages:
    """CPU seconds by stage, each measured alone in one thread."""

    seconds: dict[str, float] = field(default_factory=dict)
    _began: float = 0.0

    def start(self) -> None:
        """Begin a stage."""
        self._began = process_time()

    def end(self, name: str) -> None:
        """End a stage, and begin the next."""
        now = process_time()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._began
        self._began = process_time()


class _Nowhere:
    def write(self, data: bytes) -> int:
        return len(data)

    def flush(self) -> None:
        pass


def stages(source: Source, embedder: Embedder, home: Path) -> tuple[Stages, int, list[PlannedChunk]]:
    """Run every stage but the model and the engine alone; return the times, the pages and the chunks."""
    found, pages, inputs = Stages(), 0, list[PlannedChunk]()
    counting = 0.0

    def count(text: str) -> int:
        nonlocal counting
        began = process_time()
        tokens = embedder.count_tokens(text)
        counting += process_time() - began
        return tokens

    embedder.count_tokens("ä")  # loads the tokenizer
    found.start()
    for page in source.pages():
        found.end("read files")
        document = read(page)
        found.end("parse")
        inputs += chunk_page(page, document, source.book, count, embedder.max_tokens, DEFAULT_SIZE)
        found.end("split into chunks")
        pages += 1
    found.seconds["split into chunks"] -= counting
    found.seconds["count tokens"] = counting
    lexicon, journal = LexiconBuilder(), Journal(home / "stages.vectors", embedder.fingerprint)
    for start in range(0, len(inputs), _BATCH):
        batch = [one.chunk for one in inputs[start : start + _BATCH]]
        vectors = [_vector(chunk.content_hash, embedder.dim) for chunk in batch]
        found.start()
        for one in inputs[start : start + _BATCH]:
            embedder.count_tokens(one.embedded)
        found.end("count tokens")
        lexical = lexicon.vectors(batch)
        found.end("lexical vectors")
        journal.add([chunk.content_hash for chunk in batch], vectors)
        found.end("journal")
        check_vectors(batch, vectors, embedder.dim)
        send(_Nowhere(), [(chunk.id, to_payload(chunk)) for chunk in batch], vectors, lexical)  # type: ignore[arg-type]
        found.end("send to the engine")
    found.start()
    lexicon.to_bytes()
    found.end("vocabulary")
    journal.clear()
    return found, pages, inputs


@dataclass(frozen=True, slots=True)
class Cost:
    """The wall-clock time and the CPU time of something, and the CPU time of its child processes."""

    wall: float
    cpu: float
    children: float

    @property
    def total(self) -> float:
        """All CPU time."""
        return self.cpu + self.children


def cost(work: Callable[[], object]) -> Cost:
    """Measure a function."""
    began, before = perf_counter(), os.times()
    work()
    after = os.times()
    return Cost(
        perf_counter() - began,
        after.user + after.system - before.user - before.system,
        after.children_user + after.children_system - before.children_user - before.children_system,
    )


def bare(embedder: Embedder, texts: Sequence[str], most: int) -> Iterator[tuple[Cost, int]]:
    """Embed batches from all parts of the book, in two halves; yield what each half took, and its texts."""
    batches = [texts[start : start + _BATCH] for start in range(0, len(texts), _BATCH)]
    chosen = batches[:: max(1, len(batches) * _BATCH // most)]
    for half in (chosen[::2], chosen[1::2]):
        yield cost(partial(_embed, embedder, half)), sum(map(len, half))


def _embed(embedder: Embedder, batches: Sequence[Sequence[str]]) -> None:
    for batch in batches:
        embedder.embed_documents(batch)


def generated(root: Path, pages: int) -> Path:
    """Write a book of the sample book's vocabulary."""
    vocabulary = sorted(
        {word for page in sample_source().pages() for word in re.findall(r"[A-Za-z]{3,}", page.text)}
    )
    numbers = random.Random(1)
    for number in range(pages):
        sections = [f"# Page {number}"]
        for part in range(8):
            body = " ".join(numbers.choices(vocabulary, k=WORDS_PER_PAGE // 8))
            sections.append(f"## Part {part} of {number}\n\n{body}.")
        page = root / f"module-{number % 7}-part{number % 7}" / f"page{number}.md"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text("\n\n".join(sections), "utf-8")
    return root


def peak(pages: int) -> str:
    """Index a generated book in a fresh process; return the row about its memory."""
    with tempfile.TemporaryDirectory() as scratch:
        generated(Path(scratch, "book"), pages)
        worker = subprocess.Popen(
            [sys.executable, "-m", "bench.ingest", "--peak", scratch], stdout=subprocess.PIPE, text=True
        )
        memory = _PeakMemory(worker.pid)
        output, _ = worker.communicate()
        memory.stop()
        if worker.returncode:
            raise SystemExit(worker.returncode)
        chunks, *lines = output.split()
    peaks = (memory.peaks.get(kind, (0.0, 0.0)) for kind in ("own", "reader", "engine"))
    columns = " | ".join(f"{private:.0f} ({rss:.0f})" for private, rss in peaks)
    return f"| {pages} pages, {chunks} chunks | {columns} | {' '.join(lines)} |"


class _PeakMemory:
    """The peak of private memory and of RSS, in MB, of a process and of each kind of its children."""

    def __init__(self, pid: int) -> None:
        self.peaks: dict[str, tuple[float, float]] = {}
        self._pid = pid
        self._ended = Event()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(_SAMPLE_SECONDS):
            children = Path(f"/proc/{self._pid}/task/{self._pid}/children")
            threads = Path(f"/proc/{self._pid}/task")
            try:
                pids = [pid for task in threads.iterdir() for pid in (task / "children").read_text().split()]
            except OSError:
                pids = children.read_text().split() if children.exists() else []
            self._note("own", self._pid)
            for pid in pids:
                try:
                    command = Path(f"/proc/{pid}/cmdline").read_bytes()
                except OSError:
                    continue
                self._note("engine" if b"edge.build" in command else "reader", int(pid))

    def _note(self, kind: str, pid: int) -> None:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").split("\n")
        except OSError:
            return
        values = {line.split()[0]: int(line.split()[1]) / 1e3 for line in lines[1:] if line}
        before = self.peaks.get(kind, (0.0, 0.0))
        self.peaks[kind] = max(before[0], values["Anonymous:"]), max(before[1], values["Rss:"])


def peak_here(scratch: Path) -> None:
    """Index a generated book in this process, and print the chunks and the CPU time of both processes."""
    settings = Settings("local", "edge", scratch / "home", threads=2)
    embedder = Hashed(open_embedder(settings, print))
    job = IndexJob(MarkdownTree(scratch / "book"), embedder, processes=1)
    store, found = open_store(settings, print), []
    spent = cost(lambda: found.append(index_book(job, store, "peak", journal=scratch / "journal")))
    chunks = found[0].info.chunks
    own, children = (seconds / chunks * 1e6 for seconds in (spent.cpu, spent.children))
    print(f"{chunks} {own:.0f} µs and {children:.0f} µs in the children")


def compare(source: Source, settings: Settings, most: int) -> None:
    """Print the stages, and the run against the bare embedder."""
    home = settings.home
    embedder, store = open_embedder(settings, print), open_store(settings, print)
    embedder.warm_up()
    measured, pages, inputs = stages(source, embedder, home)
    count, texts = len(inputs), [one.embedded for one in inputs]
    del inputs
    halves = bare(embedder, texts, most)
    embedder.embed_documents(texts[:_BATCH])
    first = next(halves)
    job = IndexJob(source, embedder, calibrate=calibrate, processes=settings.threads - 1)
    whole = cost(lambda: index_book(job, store, "bench", journal=home / "journal"))
    both = (first, next(halves))
    embedded = sum(number for _, number in both)
    wall, cpu = (
        sum(getattr(half, kind) for half, _ in both) / embedded * count for kind in ("wall", "total")
    )
    print(f"| stage: {pages} pages, {count} chunks | CPU s | µs a chunk | share of the bare embedder |")
    print("|---|---|---|---|")
    rows = {**measured.seconds, "bare embedder": cpu}
    rows |= {"complete run": whole.total, "of which child processes": whole.children}
    for name, seconds in rows.items():
        print(f"| {name} | {seconds:.1f} | {seconds / count * 1e6:.0f} | {seconds / cpu:.4f} |")
    print("\n| bare embedder / complete run | ratio | bare, s | complete, s | chunks/s |")
    print("|---|---|---|---|---|")
    print(f"| CPU time | {cpu / whole.total:.3f} | {cpu:.1f} | {whole.total:.1f} | |")
    speed = f"{count / whole.wall:.0f}"
    print(f"| wall-clock time | {wall / whole.wall:.3f} | {wall:.1f} | {whole.wall:.1f} | {speed} |")
    again = cost(lambda: index_book(job, store, "bench", journal=home / "journal"))
    print(
        f"\nSecond run, nothing changed: {again.wall:.2f} s, {again.wall / pages * 100:.2f} s per 100 pages"
    )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", nargs="?", help="a book, instead of a generated one")
    parser.add_argument("--pages", type=int, default=100, help="pages of the generated book")
    parser.add_argument(
        "--bare", type=int, default=2_000, help="chunks that the bare embedder embeds at most"
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", choices=("speed", "memory"))
    parser.add_argument("--peak", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        peak_here(options.peak)
        return
    if options.only != "memory":
        with tempfile.TemporaryDirectory() as scratch:
            home = Path(scratch)
            settings = Settings("local", "edge", home / "home", threads=options.threads)
            if options.path:
                source = open_source(options.path, SourceOptions(), None, print)
            else:
                source = MarkdownTree(generated(home / "book", options.pages))
            compare(source, settings, options.bare)
    if options.only != "speed":
        print("\n| private memory (RSS), MB | this process | reader | engine | CPU time a chunk |")
        print("|---|---|---|---|---|", flush=True)
        for pages in (max(1, options.pages // 10), options.pages):
            print(peak(pages), flush=True)


if __name__ == "__main__":
    main()
