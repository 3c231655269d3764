"""Read the pages of large books in worker processes: the same chunks, in the same order, whatever happens."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, cast

import psutil
import pytest

from recto.book import parsing
from recto.book.chunking import DEFAULT_SIZE, PlannedChunk
from recto.book.parsing import Format
from recto.book.sources.tree import MarkdownTree
from recto.errors import ConfigurationError
from recto.indexing import reading
from recto.indexing.journal import Journal
from recto.indexing.planner import IndexJob, Plan, Planner
from recto.indexing.reading import PageJob, read_in_order
from recto.protocols import Embedder
from recto.search.lexical import LexiconBuilder
from recto.testing import HashEmbedder
from recto.types.book import Block, Document, Page, Section
from tests.indexing.word_count import count_words, end_at_once

PAGES = 24


class PortableEmbedder(HashEmbedder):
    """Its words can be counted in other processes."""

    def count_tokens(self, text: str) -> int:
        return count_words(text, os.getpid())

    def token_counter(self) -> Callable[[str], int]:
        return partial(count_words, parent=os.getpid())


class Unsendable(HashEmbedder):
    """What counts its words cannot be pickled."""

    def token_counter(self) -> Callable[[str], int]:
        return lambda text: len(text.split())


class OfTheScript(HashEmbedder):
    """What counts its words is in a module that workers cannot import."""

    def token_counter(self) -> Callable[[str], int]:
        return cast("Callable[[str], int]", OnlyHere())


class OnlyHere:
    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return importlib.import_module, ("no_such_module",)


def page(number: int, text: str = "", format: str = "markdown") -> Page:
    body = text or " ".join(f"word{number}x{place}" for place in range(40 * (number % 5 + 1)))
    text = f"# Page {number}\n\n{body}\n\n## Part\n\nThe end of {number}.\n"
    return Page(f"page{number}.md", f"local://{number}", "", "m", ("m",), text, str(number), format)


def jobs(*special: Page) -> list[PageJob]:
    """The first page is read by this process, special ones come in the middle."""
    half = PAGES // 2
    pages = [*map(page, range(half)), *special, *map(page, range(half, PAGES))]
    return [PageJob(one, one.revision, unchanged=False) for one in pages]


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Workers read all but the first page, a few pages at a time, and none is left at the end."""
    monkeypatch.setattr(reading, "_START_AFTER", 0)
    monkeypatch.setattr(reading, "_BATCH", 2_000)
    yield
    assert multiprocessing.active_children() == []


def read_all(
    work: list[PageJob], processes: int, embedder: Embedder | None = None
) -> list[tuple[PageJob, reading.ReadPage | None]]:
    return list(read_in_order(work, embedder or PortableEmbedder(), "book", DEFAULT_SIZE, processes))


def plain(results: list[tuple[PageJob, reading.ReadPage | None]]) -> list[object]:
    """Return what can be compared: the chunks, and the vocabulary."""
    lexicon = LexiconBuilder()
    for _, read in results:
        if read and read.lexicon:
            lexicon.merge(read.lexicon)
    return [lexicon.to_bytes(), *((job, read and (read.chunks, read.failure)) for job, read in results)]


def test_workers_read_the_same_chunks_in_the_same_order(capfd: pytest.CaptureFixture[str]) -> None:
    work = jobs(page(100, "noisy words"), page(101, "Grüße <b>aus</b> der Küche"))
    work = [replace(job, unchanged=place % 5 == 1) for place, job in enumerate(work)]
    here, there = read_all(work, 0), read_all(work, 2)
    assert all(job is expected for (job, _), expected in zip(there, work, strict=True))
    assert plain(here) == plain(there)
    assert [read is None for _, read in there] == [job.unchanged for job in work]
    out, err = capfd.readouterr()
    assert (out, err) == ("", "This is not an answer.\n" * 2), "what a worker prints is not an answer"


def test_pages_of_a_slow_source_do_not_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_BATCH", 64 << 10)
    results: list[int] = []

    def slow() -> Iterator[PageJob]:
        for number in range(200):  # less than the batches that wait for their turn
            one = page(number)
            yield PageJob(one, one.revision, unchanged=False)
            if len(results) > 3:
                return
            time.sleep(0.1)

    for _ in read_in_order(slow(), PortableEmbedder(), "book", DEFAULT_SIZE, 1):
        results.append(len(results))
    assert len(results) < 200, "pages were read before the source ended"


@pytest.mark.parametrize("embedder", [PortableEmbedder(), HashEmbedder(), Unsendable(), OfTheScript()])
def test_without_workers(monkeypatch: pytest.MonkeyPatch, embedder: Embedder) -> None:
    """A small book, embedders whose tokens only this process can count, and a worker that cannot load one."""
    if isinstance(embedder, PortableEmbedder):
        monkeypatch.setattr(reading, "_START_AFTER", 512 << 10)
    if not isinstance(embedder, OfTheScript):
        monkeypatch.setattr(reading, "_WorkerPool", None)
    assert plain(read_all(jobs(), 1, embedder)) == plain(read_all(jobs(), 0, embedder))


def test_a_page_that_kills_its_worker_fails_alone() -> None:
    deadly = [page(100, "a deadly page"), page(101), page(102, "a deadly page")]
    pages = {job.page.path: read for job, read in read_all(jobs(*deadly), 1) if read}
    ended = "the process that read it ended unexpectedly"
    failures = {path: read.failure for path, read in pages.items() if read.failure}
    assert failures == {"page100.md": ended, "page102.md": ended}
    assert sum(bool(read.chunks) for read in pages.values()) == PAGES + 1


def refuse(*_: object) -> NoReturn:
    raise BlockingIOError(11, "Resource temporarily unavailable")


def test_workers_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    here = plain(read_all(jobs(), 0))
    monkeypatch.setattr(reading, "_prepare_worker", end_at_once)
    assert plain(read_all(jobs(), 1)) == here
    monkeypatch.setattr(reading, "_submit", refuse)
    assert plain(read_all(jobs(), 1)) == here


def test_an_error_that_concerns_all_pages_keeps_its_type() -> None:
    with pytest.raises(ConfigurationError, match="tokenizer is missing") as caught:
        read_all(jobs(page(100, "a fatal page")), 1)
    assert caught.value.hint == "Install it."


def test_leaving_early_ends_the_workers() -> None:
    results = read_in_order(jobs(), PortableEmbedder(), "book", DEFAULT_SIZE, 1)
    for _ in range(6):
        next(results)
    assert multiprocessing.active_children()
    results.close()
    assert multiprocessing.active_children() == []


SCRIPT = """
import sys
from recto.book.chunking import DEFAULT_SIZE
from recto.indexing import reading
from recto.testing import HashEmbedder
from recto.types.book import Page
from tests.indexing.word_count import count_words

class PortableEmbedder(HashEmbedder):
    def token_counter(self):
        return count_words

print("the script runs", flush=True)
reading._START_AFTER = 0
pages = [Page(str(n), str(n), "", "m", ("m",), f"# {n}", str(n)) for n in range(30)]
jobs = [reading.PageJob(page, page.revision, unchanged=False) for page in pages]
reader = reading.read_in_order(jobs, PortableEmbedder(), "book", DEFAULT_SIZE, 1)
print(len([next(reader) for _ in range(5)]), flush=True)
sys.stdin.read()
"""


def test_a_script_without_a_guard_runs_once_and_its_workers_end_with_it(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    path = os.pathsep.join(filter(None, (str(Path(__file__).parents[2]), *sys.path)))
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    env = {**os.environ, "PYTHONPATH": path}
    with subprocess.Popen([sys.executable, str(script)], env=env, **pipes) as process:
        assert process.stdout
        assert [process.stdout.readline() for _ in range(2)] == ["the script runs\n", "5\n"]
        workers = psutil.Process(process.pid).children(recursive=True)
        assert workers
        process.kill()
    _, alive = psutil.wait_procs(workers, timeout=30)
    assert alive == []


def test_a_format_that_only_this_process_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(odd: Page) -> Document:
        block = Block("paragraph", f"read in {os.getpid()}", 1, 1)
        return Document("Odd", (Section(("Odd",), 1, "", 1, (block,)),))

    monkeypatch.setattr(parsing, "BUILT_IN_FORMATS", (*parsing.BUILT_IN_FORMATS, Format("odd", (), read)))
    parsing.formats.cache_clear()
    try:
        results = read_all(jobs(page(100, "text", "odd")), 1)
    finally:
        parsing.formats.cache_clear()
    (odd,) = [read for job, read in results if job.page.format == "odd"]
    assert odd is not None
    assert odd.chunks[0].chunk.text == f"read in {os.getpid()}"


def test_readers_of_plugins_work_in_workers(tmp_path: Path, install_plugin: Callable[..., None]) -> None:
    install_plugin(
        "demo-reader",
        {"recto.readers": "rst = demo_reader:read"},
        "import os\n"
        "from recto.types.book import Block, Document, Section\n\n"
        "def read(page):\n"
        "    block = Block('paragraph', f'{page.path} read in {os.getpid()}', 1, 1)\n"
        "    return Document('T', (Section(('T',), 1, '', 1, (block,)),))\n",
    )
    for number in range(6):
        (tmp_path / f"page{number}.rst").write_text("x" * 3_000)
    plan, chunks = planned(tmp_path, processes=1)
    assert (plan.chunks, plan.failed) == (6, ())
    where = [entry.chunk.text.rpartition(" ")[2] for entry in chunks]
    assert where[0] == str(os.getpid())
    assert str(os.getpid()) not in where[1:]


@pytest.mark.parametrize("processes", [0, 1])
def test_a_page_that_never_ends_fails_alone(
    tmp_path: Path, install_plugin: Callable[..., None], monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    monkeypatch.setattr(reading, "PAGE_SECONDS", 0.5)
    install_plugin(
        "endless-reader",
        {"recto.readers": "rst = endless_reader:read"},
        "from recto.types.book import Block, Document, Section\n\n"
        "def read(page):\n"
        "    while 'never ends' in page.text:\n"
        "        try:\n"
        "            page.text.index('x')\n"
        "        except Exception:\n"
        "            pass\n"
        "    if 'library in C' in page.text:\n"
        "        sum(range(10 ** 12))\n"
        "    return Document('T', (Section(('T',), 1, '', 1, (Block('paragraph', 'a', 1, 1),)),))\n",
    )
    texts = ["text", "never ends", "text", *["a library in C", "text"] * processes]
    for number, text in enumerate(texts):
        (tmp_path / f"page{number}.rst").write_text(text)
    plan, _ = planned(tmp_path, processes)
    long = "it takes more than 0.5 s of CPU time to read"
    ended = "the process that read it ended unexpectedly"
    failures = {"page1.rst": long, **({"page3.rst": ended} if processes else {})}
    assert {failure.path: failure.reason for failure in plan.failed} == failures
    assert plan.chunks == len(texts) - len(failures)


def planned(book: Path, processes: int) -> tuple[Plan, list[PlannedChunk]]:
    chunks: list[PlannedChunk] = []
    job = IndexJob(MarkdownTree(book), PortableEmbedder(), processes=processes)
    journal = Journal(book / "none.vectors", job.embedder.fingerprint)
    return Planner(job, None, journal, LexiconBuilder(), chunks.extend).plan(), chunks
