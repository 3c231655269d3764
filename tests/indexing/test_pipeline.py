"""Reading, embedding and writing at the same time: order, bounds, errors of each stage, interruptions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from recto.errors import EmbeddingError, InvalidArgument, StorageError
from recto.indexing.indexer import IndexJob, IndexProgress, IndexReport, index_book
from recto.indexing.journal import Journal, journal_path
from recto.indexing.pipeline import ReadAhead
from recto.protocols import Progress
from recto.stores.edge import EdgeStore
from recto.stores.edge.build import EdgeBuild
from recto.testing import HashEmbedder
from recto.types.book import BookInfo, Failure, Page
from recto.types.index import CostEstimate
from recto.types.search import Chunk, Vector

WAIT = 30.0  # seconds after which a stage that should have run has not
BATCH = 96


class Book:
    """A book of short pages; `before` is called with the number of each page."""

    book, location, info = "book", "somewhere", BookInfo()
    failed: Sequence[Failure] = ()
    notes: Sequence[str] = ()

    def __init__(self, pages: int, before: Callable[[int], None] = lambda _: None) -> None:
        self._pages = pages
        self._before = before

    def pages(self) -> Iterator[Page]:
        for number in range(self._pages):
            self._before(number)
            text = f"# Page {number}\n\nText {number}.\n"
            yield Page(f"{number}.md", f"local://{number}", "", "m", ("m",), text, str(number))


class Embedder(HashEmbedder):
    """Notes its calls; `before` is called with the number of each."""

    def __init__(self, before: Callable[[int], None] = lambda _: None) -> None:
        self.calls: list[int] = []
        self.called = threading.Event()
        self._before = before

    def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> list[Vector]:
        self.called.set()
        self._before(len(self.calls))
        self.calls.append(len(texts))
        return super().embed_documents(texts, progress)


class MeteredEmbedder(Embedder):
    def estimate(self, texts: int, tokens: int) -> CostEstimate:
        return CostEstimate(texts, 0.0, 0.0)


class BatchedEmbedder(Embedder):
    batch_size = 250


def index(tmp_path: Path, book: Book, embedder: Embedder, store: EdgeStore | None = None) -> IndexReport:
    store = store or EdgeStore(tmp_path / "home")
    return index_book(IndexJob(book, embedder), store, "book", journal=tmp_path / "journal")


def kept(tmp_path: Path) -> int:
    journal = Journal(journal_path(tmp_path / "journal", "book"), HashEmbedder.fingerprint)
    journal.load()
    return len(journal)


def fail(error: BaseException, at: int) -> Callable[[int], None]:
    def check(number: int) -> None:
        if number == at:
            raise error

    return check


@pytest.mark.parametrize(
    ("embedder", "calls"), [(Embedder(), [BATCH] * 4 + [16]), (BatchedEmbedder(), [250, 150])]
)
def test_embedding_starts_while_a_book_is_read(tmp_path: Path, embedder: Embedder, calls: list[int]) -> None:
    seen: list[bool] = []

    def before(number: int) -> None:
        if number == 390:
            seen.append(embedder.called.wait(WAIT))

    report = index(tmp_path, Book(400, before), embedder)
    assert seen == [True]
    assert (report.info.chunks, embedder.calls) == (400, calls)


def test_a_book_is_read_before_it_costs_anything(tmp_path: Path) -> None:
    embedder = MeteredEmbedder()
    early: list[bool] = []
    book = Book(300, lambda _: early.append(embedder.called.is_set()))
    assert index(tmp_path, book, embedder).info.chunks == 300
    assert not any(early)


def test_chunks_are_written_while_more_are_embedded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = threading.Event()
    add = EdgeBuild.add

    def noted(self: EdgeBuild, *arguments: list[Chunk]) -> None:
        add(self, *arguments)  # type: ignore[arg-type]
        written.set()

    monkeypatch.setattr(EdgeBuild, "add", noted)
    seen: list[bool] = []

    def before(call: int) -> None:
        if call == 1:
            seen.append(written.wait(WAIT))

    index(tmp_path, Book(300), Embedder(before))
    assert seen == [True]


def test_an_error_while_reading_stops_embedding(tmp_path: Path) -> None:
    error = InvalidArgument("The book ends here", hint="Buy another.")
    failed = threading.Event()

    def before(number: int) -> None:
        if number == 400:
            failed.set()
            raise error

    def wait(call: int) -> None:
        if call == 1:  # then pages are waiting
            assert failed.wait(WAIT)

    embedder = Embedder(wait)
    with pytest.raises(InvalidArgument) as caught:
        index(tmp_path, Book(900, before), embedder)
    assert caught.value is error
    assert kept(tmp_path) == sum(embedder.calls) <= 3 * BATCH


def test_an_interruption_does_not_wait_for_a_slow_source(tmp_path: Path) -> None:
    """The source goes on in its thread; the run ends without it, and shows no progress any more."""
    waiting, released = threading.Event(), threading.Event()
    seen: list[IndexProgress] = []

    def before(number: int) -> None:
        if number == 200:
            waiting.set()
            assert released.wait(WAIT)

    def interrupt(call: int) -> None:
        assert waiting.wait(WAIT)
        raise KeyboardInterrupt

    job = IndexJob(Book(400, before), Embedder(interrupt))
    store = EdgeStore(tmp_path / "home")
    with pytest.raises(KeyboardInterrupt):
        index_book(job, store, "book", journal=tmp_path / "journal", progress=seen.append)
    count = len(seen)
    (reading,) = (thread for thread in threading.enumerate() if thread.name == "recto-read-ahead")
    released.set()
    reading.join(WAIT)
    assert not reading.is_alive(), "it ends after the page that it was reading"
    assert len(seen) == count


@pytest.mark.parametrize("error", [EmbeddingError("The model broke"), KeyboardInterrupt()])
def test_an_error_while_embedding_keeps_what_is_embedded(tmp_path: Path, error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        index(tmp_path, Book(400), Embedder(fail(error, 2)))
    assert caught.value is error
    said = error.hint if isinstance(error, EmbeddingError) else error.__notes__[0]
    assert said.startswith(f"{2 * BATCH} embeddings kept")
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("recto-")] == []
    assert kept(tmp_path) == 2 * BATCH
    embedder = Embedder()
    assert index(tmp_path, Book(400), embedder).info.chunks == 400
    assert sum(embedder.calls) == 400 - 2 * BATCH


def test_an_error_of_writing_keeps_what_is_embedded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = StorageError("The disk is full")
    with monkeypatch.context() as patch:
        patch.setattr(EdgeBuild, "add", Mock(side_effect=error))
        with pytest.raises(StorageError) as caught:
            index(tmp_path, Book(1_000), Embedder())
    assert caught.value is error
    embedded = kept(tmp_path)
    assert BATCH <= embedded < 1_000
    embedder = Embedder()
    assert index(tmp_path, Book(1_000), embedder).info.chunks == 1_000
    assert sum(embedder.calls) == 1_000 - embedded


def test_a_repeated_text_is_embedded_once(tmp_path: Path) -> None:
    class Repeating(Book):
        def pages(self) -> Iterator[Page]:
            for number, page in enumerate(super().pages()):
                yield replace(page, text=f"# Page\n\nText {number % 150}.\n")

    embedder = Embedder()
    report = index(tmp_path, Repeating(300), embedder)
    assert (report.info.chunks, report.plan.texts, sum(embedder.calls)) == (300, 150, 150)


def test_a_producer_waits_for_room() -> None:
    emitted: list[int] = []
    full = threading.Event()

    def produce(emit: Callable[[int], None], _: Callable[[], None]) -> str:
        for number in range(100):
            if number == 3:
                full.set()
            emit(number)
            emitted.append(number)
        return "all"

    with ReadAhead(produce, 3) as reading:
        assert full.wait(WAIT)
        assert emitted == [0, 1, 2]
        assert list(reading) == list(range(100))
        assert reading.result == "all"
