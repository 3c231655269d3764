"""Read pages: parse them, split them into chunks, count and analyse these; large books in worker processes.

A page that kills its worker, or that takes too long, is one failed page. Workers do not import the user's
script, so that a script which indexes a book can do without `if __name__ == "__main__"`. They end with this
process, even if it is killed.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Self

from recto._util.cpu_limit import PAGE_SECONDS, CpuLimitExceeded, cpu_limit, kill_after
from recto.book.chunking import ChunkSize, PlannedChunk, chunk_page
from recto.book.parsing import formats, read
from recto.book.questions import place_questions
from recto.errors import RectoError
from recto.protocols import Embedder, embedder_abilities
from recto.search.lexical import LexiconBuilder
from recto.types.book import Page, SectionQuestions

MAX_PROCESSES = 8
"""Eight processes read 8 700 chunks a second (measured once), more than a store writes."""
_START_AFTER = 512 << 10  # characters; this process reads them in the time in which a worker starts
_BATCH = 64 << 10  # characters per message to a worker that has others to read first
_AHEAD = 2  # messages per worker that are read before their turn


@dataclass(frozen=True, slots=True)
class ReadPage:
    """The chunks of a page and their vocabulary, or the `failure` to read it.

    `stale` and `orphaned` are the lines of the question file that do not fit the page (`PlacedQuestions`).
    """

    chunks: tuple[PlannedChunk, ...] = ()
    lexicon: LexiconBuilder | None = None
    failure: str = ""
    stale: tuple[SectionQuestions, ...] = ()
    orphaned: tuple[SectionQuestions, ...] = ()


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
    model_languages: tuple[str, ...] = ()
    seconds: float = PAGE_SECONDS

    def read(self, job: PageJob) -> ReadPage:
        """Read a page; raise only errors that concern all pages."""
        try:
            with cpu_limit(self.seconds):
                return self._read(job)
        except CpuLimitExceeded:
            return ReadPage(failure=f"it takes more than {self.seconds:g} s of CPU time to read")

    def _read(self, job: PageJob) -> ReadPage:
        page, count, chunks = job.page, self.count_tokens, []
        lexicon = LexiconBuilder()
        try:
            placed = place_questions(page, read(page))
            for planned in chunk_page(
                page, placed.document, self.book, count, self.max_tokens, self.size, self.model_languages
            ):
                chunk = replace(planned.chunk, revision=job.revision, module_title=page.module_title)
                (lexical,) = lexicon.vectors([chunk])
                chunks.append(PlannedChunk(chunk, planned.embedded, count(planned.embedded), lexical))
        except RectoError:
            raise
        except Exception as error:  # noqa: BLE001 - one broken page must not stop the run
            return ReadPage(failure=f"it cannot be read ({type(error).__name__}: {error})")
        return ReadPage(tuple(chunks), lexicon, stale=placed.stale, orphaned=placed.orphaned)


def read_in_order(
    jobs: Iterable[PageJob], embedder: Embedder, book: str, size: ChunkSize, processes: int
) -> Generator[tuple[PageJob, ReadPage | None], None, None]:
    """Yield every job with its page, in the order of the jobs.

    This process reads the first pages itself. If there are more, `processes` workers read the rest, provided
    that the embedder's tokens can be counted in them.
    """
    languages = embedder_abilities(embedder).languages
    reader = PageReader(book, size, embedder.max_tokens, embedder.count_tokens, languages, PAGE_SECONDS)
    jobs = iter(jobs)
    characters = 0
    for job in jobs:
        yield job, None if job.unchanged else reader.read(job)
        characters += 0 if job.unchanged else len(job.page.text)
        if characters > _START_AFTER and processes > 0:
            break
    else:
        return
    if remote := _pickled(reader, embedder):
        with _WorkerPool(reader, remote, min(processes, MAX_PROCESSES)) as pool:
            yield from pool.read_in_order(jobs)
        return
    for job in jobs:
        yield job, None if job.unchanged else reader.read(job)


def _pickled(reader: PageReader, embedder: Embedder) -> bytes:
    """Return what a worker needs, or nothing if it cannot be sent or a worker cannot be started."""
    token_counter = embedder_abilities(embedder).token_counter
    if token_counter is None or multiprocessing.current_process().daemon:
        return b""
    try:
        return pickle.dumps(replace(reader, count_tokens=token_counter()))
    except (pickle.PicklingError, AttributeError, TypeError):  # how pickle refuses depends on the object
        return b""


class _WorkerPool:
    """Reads pages in worker processes, a few batches ahead."""

    def __init__(self, reader: PageReader, remote: bytes, processes: int) -> None:
        self._reader = reader
        self._remote = remote
        self._processes = processes
        self._executor = self._start(processes)
        self._single = self._start(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the workers, also one that is reading a page."""
        for executor in (self._executor, self._single):
            _kill(executor)

    def _start(self, processes: int) -> ProcessPoolExecutor:
        """Return an executor, which starts its processes when they are needed."""
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(processes, context, _prepare_worker, (self._remote,))

    def read_in_order(self, jobs: Iterable[PageJob]) -> Iterator[tuple[PageJob, ReadPage | None]]:
        """Yield every job with its page as soon as it is read; only a few batches of pages are in memory."""
        waiting: deque[tuple[list[PageJob], Future[_Answers] | None]] = deque()
        batch: list[PageJob] = []
        size = 0
        for job in jobs:
            batch.append(job)
            size += len(job.page.text)
            while waiting and (waiting[0][1] is None or waiting[0][1].done()):
                yield from self._results(*waiting.popleft())
            # If nothing is being read, the source is slow: its pages do not wait for each other.
            if size >= _BATCH or not waiting:
                waiting.append((batch, self._submit(batch)))
                batch, size = [], 0
            if len(waiting) > self._processes * _AHEAD:
                yield from self._results(*waiting.popleft())
        waiting.append((batch, self._submit(batch)))
        while waiting:
            yield from self._results(*waiting.popleft())

    def _submit(self, batch: list[PageJob]) -> Future[_Answers] | None:
        """Hand the changed pages of a batch to the workers; return None if no process can be started."""
        if not self._processes:
            return None
        changed = [job for job in batch if not job.unchanged]
        try:
            with suppress(BrokenProcessPool):
                return _submit(self._executor, changed)
            _kill(self._executor)
            self._executor = self._start(self._processes)
            return _submit(self._executor, changed)
        except OSError:  # no more processes are allowed
            return None

    def _results(
        self, batch: list[PageJob], future: Future[_Answers] | None
    ) -> Iterator[tuple[PageJob, ReadPage | None]]:
        """Yield the pages of a batch; this process reads what the workers cannot read."""
        changed = [job for job in batch if not job.unchanged]
        answers: Iterable[ReadPage | None]
        try:
            answers = future.result() if future else [None] * len(changed)
        except BrokenProcessPool:  # a page of this batch, or of another one, killed its worker
            answers = map(self._read_alone, changed)
        pages = iter(answers)
        for job in batch:
            yield job, None if job.unchanged else next(pages) or self._reader.read(job)

    def _read_alone(self, job: PageJob) -> ReadPage | None:
        """Read a page in a process that reads nothing else, to find out whether it kills its worker."""
        if not self._processes:
            return None
        try:
            _submit(self._single, []).result()
        except BrokenProcessPool:  # not because of a page: from now on, this process reads all pages
            self._processes = 0
            return None
        try:
            return _submit(self._single, [job]).result()[0]
        except BrokenProcessPool:
            _kill(self._single)
            self._single = self._start(1)
            return ReadPage(failure="the process that read it ended unexpectedly")


def _submit(executor: ProcessPoolExecutor, batch: list[PageJob]) -> Future[_Answers]:
    """Read pages in a worker, which may have to be started for it."""
    # A new process imports the module `__main__` and so would run the user's script again. It cannot be told
    # not to, so the script is replaced by an empty module while a process starts.
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        return executor.submit(_read_batch, batch)
    finally:
        sys.modules["__main__"] = main


def _kill(executor: ProcessPoolExecutor) -> None:
    """End the processes of an executor; Python 3.14 has a method for it."""
    for process in list(executor._processes.values()):  # noqa: SLF001
        process.kill()
    executor.shutdown(cancel_futures=True)


_Answers = list[ReadPage | None]
"""The pages of a batch; None for one that a worker cannot read."""

_worker_readers: list[PageReader] = []
"""The reader of this process, if it is a worker."""


def _prepare_worker(remote: bytes) -> None:
    """Prepare a new process: it ends with its parent, and what plugins print goes to standard error."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends its workers
    os.dup2(2, 1)
    # A counter of the user's script cannot be loaded here; the parent then reads all pages itself.
    with suppress(Exception):
        _worker_readers.append(pickle.loads(remote))  # noqa: S301 - from the parent


def _end_with_parent() -> None:
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)


def _read_batch(jobs: list[PageJob]) -> _Answers:
    """Read pages in a worker; leave to the parent what fails for all pages, and formats that only it has."""
    readable = {format.name for format in formats()}
    answers: _Answers = []
    for job in jobs:
        answer = None
        if _worker_readers and job.page.format in readable:
            kill_after(2 * _worker_readers[0].seconds)  # a library in C cannot be interrupted
            with suppress(RectoError):
                answer = _worker_readers[0].read(job)
        answers.append(answer)
    return answers
