"""What an index run will do: which pages are new, changed, gone or kept, and what must be embedded for them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass, replace

from recto.book.chunker import ChunkSize, Passage, chunk_page
from recto.book.reading import read
from recto.errors import InvalidArgument, RectoError
from recto.journal import Journal
from recto.modules import filter_keys, nearest
from recto.previous import PagePlan, PageState, Previous
from recto.protocols import Embedder, Source
from recto.spool import Entry, Spool
from recto.types import Chunk, Failure, Page


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole run before it is done; `texts` and `tokens` are to be embedded, `reused` chunks have their vectors already."""

    pages: tuple[PagePlan, ...]
    chunks: int
    reused: int
    texts: int
    tokens: int
    changes: bool
    content_hash: str
    failed: tuple[Failure, ...]
    notes: tuple[str, ...]

    def count(self, state: PageState) -> int:
        """Count the pages of a state."""
        return sum(page.state is state for page in self.pages)

    @property
    def indexed(self) -> tuple[PagePlan, ...]:
        """The pages that are in the new index."""
        return tuple(page for page in self.pages if page.state is not PageState.GONE)

    def module_titles(self) -> tuple[tuple[str, str], ...]:
        """Return the names and titles of the modules in reading order; those of pages that were not read now come last."""
        read_first = sorted(self.indexed, key=lambda page: page.position or len(self.pages) + 1)
        titles: dict[str, str] = {}
        for page in read_first:
            titles[page.module] = titles.get(page.module) or page.module_title
        return tuple(titles.items())

    def modules(self) -> dict[str, tuple[int, int]]:
        """Count pages and chunks of each module."""
        counts: dict[str, tuple[int, int]] = {}
        for page in self.indexed:
            pages, chunks = counts.get(page.module, (0, 0))
            counts[page.module] = (pages + 1, chunks + page.chunks)
        return counts


class Planner:
    """Reads a book once, compares it with the current index, and sets its passages aside."""

    def __init__(
        self,
        source: Source,
        embedder: Embedder,
        size: ChunkSize,
        previous: Previous | None,
        journal: Journal,
        *,
        modules: Sequence[str] = (),
        spool: Spool | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self._source = source
        self._embedder = embedder
        self._size = size
        self._previous = previous
        self._journal = journal
        self._modules = frozenset(filter_keys(modules))
        self._spool = spool
        self._progress = progress
        self._content = 0
        self._kept: set[str] = set()
        self._pages: list[PagePlan] = []
        self._failed: list[Failure] = []
        self._notes: list[str] = []
        self._wanted: set[bytes] = set()
        self._other_modules: set[str] = set()
        self._other_positions: dict[str, int] = {}
        self._chunks = self._stays = self._reused = self._tokens = 0

    def plan(self) -> Plan:
        """Read everything."""
        for page in self._source.pages():
            if self._modules and self._modules.isdisjoint(page.module_keys):
                self._other_modules.add(page.module)
                self._other_positions[page.path] = page.position
                continue
            self._read(page)
            if self._progress:
                self._progress(len(self._pages), self._chunks)
        if self._modules and not self._pages and not self._failed:
            raise self._no_such_module()
        self._failed[:0] = self._source.failed
        self._keep_and_drop()
        return Plan(
            pages=tuple(self._pages),
            chunks=self._chunks,
            reused=self._reused,
            texts=len(self._wanted),
            tokens=self._tokens,
            changes=self._previous is None or not self._stays == self._chunks == len(self._previous),
            content_hash=f"{self._content:064x}",
            failed=tuple(self._failed),
            notes=(*self._source.notes, *self._notes),
        )

    def _read(self, page: Page) -> None:
        revision = self._revision(page)
        before = self._previous.pages.get(page.path) if self._previous else None
        if before is not None and self._previous is not None and self._previous.is_same(page.path, revision):
            self._kept.add(page.path)
            self._pages.append(replace(before, state=PageState.UNCHANGED, position=page.position))
            return
        embedder = self._embedder
        try:
            passages = chunk_page(page, read(page), self._source.book, embedder.count_tokens, embedder.max_tokens, self._size)
        except RectoError:
            raise
        except Exception as error:  # noqa: BLE001 - one page that nobody could foresee does not cost the book
            self._failed.append(Failure(page.path, f"it cannot be read ({type(error).__name__}: {error})"))
            return
        if not passages:
            self._notes.append(f"{page.path} has no text.")
        chunks = (replace(passage.chunk, revision=revision, module_title=page.module_title) for passage in passages)
        stays = [self._add(Passage(chunk, passage.embedded)) for chunk, passage in zip(chunks, passages, strict=True)]
        state = PageState.NEW
        if before is not None:
            state = PageState.UNCHANGED if all(stays) and before.chunks == len(stays) else PageState.CHANGED
        self._pages.append(PagePlan(page.path, page.url, page.module, len(passages), state, page.module_title, page.position))

    def _revision(self, page: Page) -> str:
        """Stand for everything that a page's chunks depend on; its place among the other pages is not part of it."""
        everything = (*astuple(replace(page, text="", lines=(), position=0)), self._source.book, str(self._size), self._embedder.max_tokens)
        return hashlib.sha256(repr(everything).encode()).hexdigest()[:32]

    def _add(self, passage: Passage) -> bool:
        chunk = passage.chunk
        stays = self._previous is not None and self._previous.has(chunk)
        tokens = 0
        if stays or self._is_known(chunk.content_hash):
            self._reused += 1
        elif (key := bytes.fromhex(chunk.content_hash)) not in self._wanted:
            self._wanted.add(key)
            tokens = self._embedder.count_tokens(passage.embedded)
            self._tokens += tokens
        self._set_aside(Entry(passage, stays, tokens))
        return stays

    def _is_known(self, content_hash: str) -> bool:
        return content_hash in self._journal or (self._previous is not None and self._previous.id_of(content_hash) is not None)

    def _set_aside(self, entry: Entry) -> None:
        chunk = entry.passage.chunk
        digest = hashlib.sha256(f"{chunk.id} {chunk.content_hash}".encode()).digest()
        self._content ^= int.from_bytes(digest)  # the order in which chunks come does not count
        self._chunks += 1
        self._stays += entry.stays
        if self._spool is not None:
            self._spool.append(entry)

    def _keep_and_drop(self) -> None:
        """Decide on the pages of the current index that were not read now: some stay as they are, the others go."""
        if self._previous is None:
            return
        read_now = {page.path for page in self._pages}
        for path, page in self._previous.pages.items():
            if path not in read_now:
                state = self._unread(path, self._previous)
                self._pages.append(replace(page, state=state, position=self._other_positions.get(path, 0)))
                if state is not PageState.GONE:
                    self._kept.add(path)
        if self._kept:
            self._keep(chunk for chunk in self._previous.index.scroll() if chunk.source in self._kept)

    def _unread(self, path: str, previous: Previous) -> PageState:
        """Say what becomes of a page that was not read: it may have failed, be of a module that was not asked for, or be gone."""
        outside = bool(self._modules) and self._modules.isdisjoint(previous.module_keys(path))
        failed = any(failure.covers(path) for failure in self._failed)
        if not (outside or failed) or previous.books != {self._source.book}:
            return PageState.GONE
        made = previous.index.info.fingerprint
        if made is None or not made.embedder.is_compatible(self._embedder.fingerprint):
            self._notes.append(f"{path} was embedded by another model before, so it leaves the index until it can be read again.")
            return PageState.GONE
        return PageState.KEPT if failed else PageState.UNCHANGED

    def _keep(self, chunks: Iterable[Chunk]) -> None:
        for chunk in chunks:
            self._reused += 1
            self._set_aside(Entry(Passage(chunk, ""), stays=True))

    def _no_such_module(self) -> InvalidArgument:
        known = sorted(self._other_modules)
        wanted = ", ".join(repr(name) for name in sorted(self._modules))
        near = nearest(min(self._modules), known)
        return InvalidArgument(
            f"There is no page of module {wanted} in {self._source.location}",
            hint=(f"Did you mean '{near}'? " if near else "") + f"Modules: {', '.join(known) or 'none'}.",
        )
