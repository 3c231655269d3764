"""Read the pages of large books in worker processes: the same chunks, in the same order, whatever happens."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from recto.book.chunking import DEFAULT_SIZE
from recto.book.parsing import formats as page_formats
from recto.book.parsing.formats import Format
from recto.book.sources.tree import MarkdownTree
from recto.embedders.granite.bpe import ascii_words
from recto.embedders.onnx import LocalEmbedder
from recto.errors import ConfigurationError
from recto.indexing import reading
from recto.indexing.journal import Journal
from recto.indexing.planner import Plan, PlannedChunk, Planner
from recto.indexing.reading import PageJob, PageReader, read_in_order
from recto.protocols import Embedder, PortableCounter
from recto.search.lexical import LexiconBuilder
from recto.testing import HashEmbedder
from recto.types import Block, Document, Page, Section
from tests.indexing.word_count import count_words

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
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[reading._Worker]]:
    """The workers that were started; each gets a few pages, and none is left at the end."""
    found: list[reading._Worker] = []

    class Recorded(reading._Worker):
        def __init__(self) -> None:
            super().__init__()
            found.append(self)

    monkeypatch.setattr(reading, "_Worker", Recorded)
    monkeypatch.setattr(reading, "_START_AFTER", 0)
    monkeypatch.setattr(reading, "_BATCH", 2_000)
    yield found
    assert all(worker._process.returncode is not None for worker in found)


def read_all(
    work: list[PageJob], processes: int, embedder: Embedder | None = None
) -> list[tuple[PageJob, reading.ReadPage | None]]:
    return list(read_in_order(work, embedder or PortableEmbedder(), "book", DEFAULT_SIZE, processes))


def plain(found: list[tuple[PageJob, reading.ReadPage | None]]) -> list[object]:
    """Return what can be compared: the chunks, and the vocabulary."""
    lexicon = LexiconBuilder()
    for _, read in found:
        if read and read.lexicon:
            lexicon.merge(read.lexicon)
    return [lexicon.to_bytes(), *((job, read and (read.chunks, read.failure)) for job, read in found)]


@pytest.mark.parametrize("processes", [1, 3])
def test_workers_read_the_same_chunks_in_the_same_order(
    processes: int, started: list[reading._Worker]
) -> None:
    work = jobs(page(100, "noisy words"), page(101, "Grüße <b>aus</b> der Küche"))
    here, there = read_all(work, 0), read_all(work, processes)
    assert not any(job is not wanted for (job, _), wanted in zip(there, work, strict=True))
    assert plain(here) == plain(there)
    assert 1 <= len(started) <= processes


def test_unchanged_pages_keep_their_place() -> None:
    work = [PageJob(job.page, job.revision, unchanged=place % 3 == 1) for place, job in enumerate(jobs())]
    found = read_all(work, 2)
    assert [job for job, _ in found] == work
    assert [read is None for _, read in found] == [job.unchanged for job in work]


def test_pages_of_a_slow_source_do_not_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_BATCH", 64 << 10)
    found: list[int] = []

    def slow() -> Iterator[PageJob]:
        for number in range(200):  # less than the batches that wait for their turn
            one = page(number)
            yield PageJob(one, one.revision, unchanged=False)
            if len(found) > 3:
                return
            time.sleep(0.1)

    for _ in read_in_order(slow(), PortableEmbedder(), "book", DEFAULT_SIZE, 2):
        found.append(len(found))
    assert len(found) < 200, "pages were read before the source ended"


def test_a_small_book_starts_no_process(
    monkeypatch: pytest.MonkeyPatch, started: list[reading._Worker]
) -> None:
    monkeypatch.setattr(reading, "_START_AFTER", 512 << 10)
    assert len(read_all(jobs(), 3)) == PAGES
    assert started == []


@pytest.mark.parametrize("embedder", [HashEmbedder(), Unsendable()])
def test_an_embedder_that_cannot_be_sent(embedder: Embedder, started: list[reading._Worker]) -> None:
    assert plain(read_all(jobs(), 3, embedder)) == plain(read_all(jobs(), 0, embedder))
    assert started == []


def test_a_page_that_kills_its_worker_fails_alone() -> None:
    work = jobs(page(100, "a deadly page"))
    found = {job.page.path: read for job, read in read_all(work, 2) if read}
    failures = {path: read.failure for path, read in found.items() if read.failure}
    assert failures == {"page100.md": "the process that read it ended unexpectedly"}
    assert sum(bool(read.chunks) for read in found.values()) == PAGES


def test_workers_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_MAIN", "raise SystemExit(3)")
    assert plain(read_all(jobs(), 2)) == plain(read_all(jobs(), 0))


def test_an_error_that_concerns_all_pages_keeps_its_type() -> None:
    with pytest.raises(ConfigurationError, match="tokenizer is missing") as caught:
        read_all(jobs(page(100, "a fatal page")), 2)
    assert caught.value.hint == "Install it."


def test_leaving_early_ends_the_workers(started: list[reading._Worker]) -> None:
    found = read_in_order(jobs(), PortableEmbedder(), "book", DEFAULT_SIZE, 2)
    for _ in range(6):
        next(found)
    found.close()
    assert started
    assert all(worker._process.poll() is not None for worker in started)


def test_a_worker_ends_with_its_parent() -> None:
    reader = PageReader("book", DEFAULT_SIZE, 256, partial(count_words, parent=0))
    done = subprocess.run(
        [sys.executable, "-c", reading._MAIN],
        input=pickle.dumps(reader) + pickle.dumps(jobs()[:2]),
        capture_output=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=True,
    )
    assert b"page1.md" in done.stdout


def test_a_format_that_only_this_process_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(odd: Page) -> Document:
        block = Block("paragraph", f"read in {os.getpid()}", 1, 1)
        return Document("Odd", (Section(("Odd",), 1, "", 1, (block,)),))

    monkeypatch.setattr(page_formats, "BUILT_IN", (*page_formats.BUILT_IN, Format("odd", (), read)))
    page_formats.formats.cache_clear()
    try:
        found = read_all(jobs(page(100, "text", "odd")), 2)
    finally:
        page_formats.formats.cache_clear()
    (odd,) = [read for job, read in found if job.page.format == "odd"]
    assert odd is not None
    assert odd.chunks[0].input.chunk.text == f"read in {os.getpid()}"


def test_readers_of_plugins_work_in_workers(tmp_path: Path, install_plugin: Callable[..., None]) -> None:
    install_plugin(
        "demo-reader",
        {"recto.readers": "rst = demo_reader:read"},
        "import os\n"
        "from recto.types import Block, Document, Section\n\n"
        "def read(page):\n"
        "    block = Block('paragraph', f'{page.path} read in {os.getpid()}', 1, 1)\n"
        "    return Document('T', (Section(('T',), 1, '', 1, (block,)),))\n",
    )
    for number in range(6):
        (tmp_path / f"page{number}.rst").write_text("x" * 3_000)
    plan, chunks = planned(tmp_path, processes=1)
    assert (plan.chunks, plan.failed) == (6, ())
    where = [entry.input.chunk.text.rpartition(" ")[2] for entry in chunks]
    assert where[0] == str(os.getpid())
    assert str(os.getpid()) not in where[1:]


def planned(book: Path, processes: int) -> tuple[Plan, list[PlannedChunk]]:
    found: list[PlannedChunk] = []
    embedder = PortableEmbedder()
    journal = Journal(book / "none.vectors", embedder.fingerprint)
    planner = Planner(
        MarkdownTree(book), embedder, DEFAULT_SIZE, None, journal, processes=processes, emit=found.extend
    )
    return planner.plan(), found


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain words, and 3.14 numbers!",
        "don't we'll they've   spaces\n\n\ttabs \r\n ends ",
        '`code_with_names` --flags a/b/c.py {"json": [1, 2]} $x^2$',
        "<s> special </s> tokens",
        "Grüße, naïve café — “quotes” 机器人 🤖",
        "x" * 200,
        "'s 'street ' s  's",
    ],
)
def test_tokens_are_counted_as_the_library_does(embedder: Embedder, text: str) -> None:
    local = getattr(embedder, "real", embedder)
    assert isinstance(local, LocalEmbedder)
    assert isinstance(local, PortableCounter)
    counter = pickle.loads(pickle.dumps(local.token_counter()))
    expected = len(local._tokens([text])[0])
    assert local.count_tokens(text) == counter(text) == expected
    words = ascii_words(text)
    assert words is None or "".join(words) == text
