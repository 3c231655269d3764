"""Read pages: parse them, split them into chunks, count and analyse these; large books in worker processes.

A worker is a fresh interpreter that reads pickled pages from its standard input and writes the results to its
standard output, so a page that kills it is one failed page, and a script that indexes a book can be imported
twice safely. It ends when its input ends, also if this process is killed.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import IO, Any, Self

from recto.book.chunking import ChunkSize, EmbeddingInput, chunk_page
from recto.book.parsing.formats import formats, read
from recto.errors import RectoError
from recto.protocols import Embedder, PortableCounter
from recto.search.lexical import LexiconBuilder
from recto.types import Page, SparseVector

MAX_PROCESSES = 8
"""Eight processes read 8 700 chunks a second (`bench.gpu --index`), more than a store writes."""
_START_AFTER = 512 << 10  # characters; this process reads them in the time in which a worker starts
_BATCH = 64 << 10  # characters per message to a worker that has others to read first
_AHEAD = 2  # messages per worker that are read before their turn
_MAIN = "from recto.indexing.reading import main; main()"


@dataclass(frozen=True, slots=True)
class ReadChunk:
    """A chunk of a page, the number of tokens to embed, and its lexical vector."""

    input: EmbeddingInput
    tokens: int
    lexical: SparseVector


@dataclass(frozen=True, slots=True)
class ReadPage:
    """The chunks of a page and their vocabulary, or the `failure` to read it."""

    chunks: tuple[ReadChunk, ...] = ()
    lexicon: LexiconBuilder | None = None
    failure: str = ""


@dataclass(frozen=True, slots=True)
class PageJob:
    """A page with its revision; an `unchanged` page is not read."""

    page: Page
    revision: str
    unchanged: bool


@dataclass(frozen=True, slots=True)
class PageReader:
    """Reads single pages of a book."""

    book: str
    size: ChunkSize
    max_tokens: int
    count_tokens: Callable[[str], int]

    def read(self, job: PageJob) -> ReadPage:
        """Read a page; raise only errors that concern all pages."""
        page, count, found = job.page, self.count_tokens, []
        lexicon = LexiconBuilder()
        try:
            for one in chunk_page(page, read(page), self.book, count, self.max_tokens, self.size):
                chunk = replace(one.chunk, revision=job.revision, module_title=page.module_title)
                (lexical,) = lexicon.vectors([chunk])
                found.append(ReadChunk(EmbeddingInput(chunk, one.embedded), count(one.embedded), lexical))
        except RectoError:
            raise
        except Exception as error:  # noqa: BLE001 - one broken page must not stop the run
            return ReadPage(failure=f"it cannot be read ({type(error).__name__}: {error})")
        return ReadPage(tuple(found), lexicon)


def read_in_order(
    jobs: Iterable[PageJob], embedder: Embedder, book: str, size: ChunkSize, processes: int
) -> Generator[tuple[PageJob, ReadPage | None], None, None]:
    """Yield every job with its page, in the order of the jobs.

    This process reads the first pages itself. If there are more, `processes` workers read the rest, provided
    that the embedder's tokens can be counted in them.
    """
    reader, jobs, size_read = (
        PageReader(book, size, embedder.max_tokens, embedder.count_tokens),
        iter(jobs),
        0,
    )
    for job in jobs:
        yield job, None if job.unchanged else reader.read(job)
        size_read += 0 if job.unchanged else len(job.page.text)
        if size_read > _START_AFTER and processes > 0:
            break
    remote = _pickled(reader, embedder) if size_read > _START_AFTER and processes > 0 else b""
    if remote:
        with _WorkerPool(reader, remote, min(processes, MAX_PROCESSES)) as pool:
            yield from pool.read_in_order(jobs)
        return
    for job in jobs:
        yield job, None if job.unchanged else reader.read(job)


def _pickled(reader: PageReader, embedder: Embedder) -> bytes:
    """Return what a worker needs, or nothing if it cannot be sent."""
    if not isinstance(embedder, PortableCounter):
        return b""
    try:
        counter = embedder.token_counter()
        return pickle.dumps(PageReader(reader.book, reader.size, reader.max_tokens, counter))
    except (pickle.PicklingError, AttributeError, TypeError):  # how pickle refuses depends on the object
        return b""


class _WorkerPool:
    """Workers, each with a thread of this process that waits for its results."""

    def __init__(self, reader: PageReader, remote: bytes, processes: int) -> None:
        self._reader = reader
        self._remote = remote
        self._processes = processes
        self._threads = ThreadPoolExecutor(processes, "recto-reading")
        self._idle: SimpleQueue[_Worker] = SimpleQueue()
        self._workers: list[_Worker] = []
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the workers, which also ends the threads that wait for them."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in self._workers:
            worker.stop()
        self._threads.shutdown()
        for worker in self._workers:  # those that were started meanwhile
            worker.stop()

    def read_in_order(self, jobs: Iterable[PageJob]) -> Iterator[tuple[PageJob, ReadPage | None]]:
        """Yield every job with its page as soon as it is read; only a few batches of pages are in memory."""
        waiting: deque[tuple[list[PageJob], Future[list[ReadPage]]]] = deque()
        batch: list[PageJob] = []
        size = 0

        def submit() -> None:
            nonlocal batch, size
            changed = [job for job in batch if not job.unchanged]
            waiting.append((batch, self._threads.submit(self._read, changed)))
            batch, size = [], 0

        for job in jobs:
            batch.append(job)
            size += len(job.page.text)
            while waiting and waiting[0][1].done():
                yield from _results(*waiting.popleft())
            # If nothing is being read, the source is slow: its pages do not wait for each other.
            if size >= _BATCH or not waiting:
                submit()
            if len(waiting) > self._processes * _AHEAD:
                yield from _results(*waiting.popleft())
        submit()
        while waiting:
            yield from _results(*waiting.popleft())

    def _read(self, jobs: list[PageJob]) -> list[ReadPage]:
        """Read pages in an idle worker; if it dies, read each in a new one to find the page that kills it."""
        if not jobs:
            return []
        answer = self._ask(jobs)
        if answer is None:
            answer = [self._read_alone(job) for job in jobs]
        # An error that concerns all pages is raised again here, where it has its type.
        return [found or self._reader.read(job) for job, found in zip(jobs, answer, strict=True)]

    def _read_alone(self, job: PageJob) -> ReadPage | None:
        answer = self._ask([job])
        return (
            ReadPage(failure="the process that read it ended unexpectedly") if answer is None else answer[0]
        )

    def _ask(self, jobs: list[PageJob]) -> list[ReadPage | None] | None:
        """Return a worker's answer, with None for pages that it cannot read; return None if it died."""
        if self._closed:
            raise EOFError("the workers were stopped")
        try:
            worker = self._idle.get_nowait()
        except Empty:
            try:
                worker = _Worker()
            except OSError:  # no more processes are allowed, so this one reads the pages
                return [None] * len(jobs)
            self._workers.append(worker)  # first, so that it can be stopped while it starts
            worker.start(self._remote)
        known = [job for job in jobs if job.page.format in worker.formats]
        try:
            found = iter(worker.ask(known) if known else ())
        except (OSError, EOFError, pickle.UnpicklingError):
            worker.stop()
            return None
        self._idle.put(worker)
        return [next(found) if job.page.format in worker.formats else None for job in jobs]


def _results(
    batch: list[PageJob], future: Future[list[ReadPage]]
) -> Iterator[tuple[PageJob, ReadPage | None]]:
    pages = iter(future.result())
    for job in batch:
        yield job, None if job.unchanged else next(pages)


class _Worker:
    """A process that reads pages of some formats; of none if it cannot be started."""

    def __init__(self) -> None:
        self.formats: frozenset[str] = frozenset()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _MAIN],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,  # Ctrl-C in a terminal is for this process, which then ends its workers
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )

    def start(self, remote: bytes) -> None:
        """Send what the process needs, and ask what it can read."""
        with suppress(OSError, EOFError, pickle.UnpicklingError):
            self.formats = self._exchange(remote)

    def ask(self, jobs: list[PageJob]) -> list[ReadPage | None]:
        """Return the pages that were read, None for one that raised a `RectoError`."""
        found: list[ReadPage | None] = self._exchange(pickle.dumps(jobs))
        return found

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                with suppress(OSError, ValueError):
                    pipe.close()
        self._process.wait()

    def _exchange(self, message: bytes) -> Any:
        pipes = self._process.stdin, self._process.stdout
        if pipes[0] is None or pipes[1] is None:
            raise RuntimeError("the worker has no pipes")
        pipes[0].write(message)
        pipes[0].flush()
        return pickle.load(pipes[1])  # noqa: S301 - from our own process


def main() -> None:
    """Read the pages that the parent process sends, until its pipe ends."""
    requests, answers = sys.stdin.buffer, _only_for_answers()
    try:
        reader: PageReader = pickle.load(requests)  # noqa: S301 - from our own process
    except Exception:  # noqa: BLE001 - such as an embedder of the user's script; the parent reads instead
        os._exit(1)
    _answer(answers, frozenset(format.name for format in formats()))
    try:
        while True:
            jobs: list[PageJob] = pickle.load(requests)  # noqa: S301
            _answer(answers, [_read(reader, job) for job in jobs])
    except (EOFError, BrokenPipeError):
        os._exit(0)  # the parent has ended, so nothing is left to flush


def _only_for_answers() -> IO[bytes]:
    """Return the standard output; what a plugin prints goes to standard error instead."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return answers


def _read(reader: PageReader, job: PageJob) -> ReadPage | None:
    try:
        return reader.read(job)
    except RectoError:
        return None


def _answer(answers: IO[bytes], answer: object) -> None:
    pickle.dump(answer, answers, pickle.HIGHEST_PROTOCOL)
    answers.flush()
