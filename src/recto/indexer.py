"""From a book to a published index: chunk, embed, build, verify, publish."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from recto import __version__
from recto.book.chunker import ChunkSize, Passage, chunk_page
from recto.book.reading import read
from recto.errors import InvalidArgument, RectoError
from recto.journal import Journal
from recto.protocols import Build, Embedder, Progress, Source, Store
from recto.types import Failure, Fingerprint, IndexInfo, Page

_BATCH = 96  # passages that are embedded, written to the journal and handed to the store at a time; the most that Cohere takes


@dataclass(frozen=True, slots=True)
class IndexProgress:
    """How far an index run has come; `chunks` is the total, `done` those embedded and written."""

    pages: int
    chunks: int
    done: int


@dataclass(frozen=True, slots=True)
class IndexReport:
    """What an index run did."""

    info: IndexInfo
    pages: int
    modules: dict[str, int]
    failed: tuple[Failure, ...]


def index_book(
    source: Source,
    embedder: Embedder,
    store: Store,
    collection: str,
    *,
    journal: Path,
    size: ChunkSize | None = None,
    rebuild: bool = False,
    progress: Callable[[IndexProgress], None] | None = None,
    wait: Callable[[str], None] | None = None,
) -> IndexReport:
    """Index a whole book under a collection's name.

    Readers see the old index until the new one is complete. What was embedded is kept in the `journal` directory until then, so that a
    run that was interrupted does not embed it again.
    """
    size = size or ChunkSize()
    known = Journal(journal / f"{collection}.vectors", embedder.fingerprint)
    with store.build(collection, embedder.fingerprint, rebuild=rebuild, wait=wait) as build:
        known.load()
        book = _Book(source, embedder, size)
        passages = list(book.passages())
        if not passages:
            failures = "; ".join(map(str, [*source.failed, *book.failed][:3]))
            raise InvalidArgument(f"There is no text in {source.location}", hint=failures or "All pages are empty.")
        _embed_into(build, passages, book.pages, embedder, known, progress)
        info = build.publish(book.fingerprint())
        known.clear()
    return IndexReport(info, book.pages, book.modules, (*source.failed, *book.failed))


class _Book:
    """A book being read: its passages, and what is known of it when all are read."""

    def __init__(self, source: Source, embedder: Embedder, size: ChunkSize) -> None:
        self._source = source
        self._embedder = embedder
        self._size = size
        self._content = hashlib.sha256()
        self.pages = 0
        self.failed: list[Failure] = []
        self.modules: dict[str, int] = {}

    def passages(self) -> Iterator[Passage]:
        """Read the book page by page."""
        for page in self._source.pages():
            try:
                passages = self._page(page)
            except RectoError:
                raise
            except Exception as error:  # noqa: BLE001 - one page that nobody could foresee does not cost the book
                self.failed.append(Failure(page.path, f"it cannot be read ({type(error).__name__}: {error})"))
                continue
            self._content.update(f"{page.path}\n{page.revision}\n".encode())
            self.pages += 1
            self.modules[page.module] = self.modules.get(page.module, 0) + len(passages)
            yield from passages

    def fingerprint(self) -> Fingerprint:
        """Say how the index was made."""
        return Fingerprint(
            embedder=self._embedder.fingerprint,
            chunker=str(self._size),
            book=self._source.book,
            source=self._source.location,
            content_hash=self._content.hexdigest(),
            pages=self.pages,
            recto_version=__version__,
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    def _page(self, page: Page) -> list[Passage]:
        document = read(page)
        embedder = self._embedder
        return chunk_page(page, document, self._source.book, embedder.count_tokens, embedder.max_tokens, self._size)


def _embed_into(
    build: Build,
    passages: list[Passage],
    pages: int,
    embedder: Embedder,
    journal: Journal,
    progress: Callable[[IndexProgress], None] | None,
) -> None:
    """Embed batch by batch what is not known yet; the store writes one batch while the next is embedded."""
    done = 0

    def tell(now: int) -> None:
        if progress:
            progress(IndexProgress(pages, len(passages), now))

    def tell_from(start: int) -> Progress:
        return lambda now, _: tell(start + now)

    tell(0)
    remaining = iter(passages)
    while batch := list(islice(remaining, _BATCH)):
        texts = {passage.chunk.content_hash: passage.embedded for passage in batch}
        vectors = {name: vector for name in texts if (vector := journal.get(name)) is not None}
        new = [name for name in texts if name not in vectors]
        if new:
            embedded = embedder.embed_documents([texts[name] for name in new], tell_from(done + len(batch) - len(new)))
            journal.add(new, embedded)
            vectors.update(zip(new, embedded, strict=True))
        build.add([passage.chunk for passage in batch], [vectors[passage.chunk.content_hash] for passage in batch])
        done += len(batch)
        tell(done)
