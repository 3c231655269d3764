"""Plan an index run: which pages are new, changed, gone or kept, and what to embed."""

from __future__ import annotations

import hashlib
import pickle
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import astuple, dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, Self

from recto._util.text import encodable, filter_keys, is_local, nearest, plural
from recto.book.chunking import DEFAULT_SIZE, ChunkSize, PlannedChunk, describe_leftovers, leftovers
from recto.book.parsing import reader_version
from recto.book.questions import question_file, read_question_file
from recto.errors import CollectionMissing, FormatMismatch, IndexDamaged, InvalidArgument
from recto.indexing.journal import Journal
from recto.indexing.reading import PageJob, ReadPage, read_in_order
from recto.protocols import Embedder, Index, Source, Store
from recto.search.lexical import LexiconBuilder
from recto.types.book import Failure, Page, SectionQuestions
from recto.types.index import Calibration
from recto.types.search import Chunk

Calibrate = Callable[[Embedder, Index], Calibration]
"""Measures the noise floor of a published index."""


class PageState(StrEnum):
    """What happens to a page; `KEPT` could not be read, so its old version stays."""

    NEW = "new"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    GONE = "gone"
    KEPT = "kept"


@dataclass(frozen=True, slots=True)
class PagePlan:
    """A page, its number of chunks, and what happens to it; `position` is zero if it was not read now."""

    path: str
    url: str
    module: str
    chunks: int
    state: PageState
    module_title: str = ""
    position: int = 0


class IndexSnapshot:
    """What a plan needs of the current index: its chunks, the vectors of its texts, its pages."""

    def __init__(self, index: Index, *, reusable: bool) -> None:
        self.index = index
        self.reusable = reusable
        self._states: dict[str, int] = {}
        self._texts: dict[bytes, str] = {}
        self.pages: dict[str, PagePlan] = {}
        self.module_keys: dict[str, tuple[str, ...]] = {}
        self._revisions: dict[str, str] = {}
        self._totals: dict[str, int] = {}
        self.books: set[str] = set()
        for chunk in index.scroll():
            self._note(chunk)

    def _note(self, chunk: Chunk) -> None:
        page = self.pages.get(chunk.source)
        count = page.chunks + 1 if page else 1
        self.pages[chunk.source] = PagePlan(
            chunk.source, chunk.page_url, chunk.module, count, PageState.GONE, chunk.module_title
        )
        self.module_keys[chunk.source] = chunk.module_keys
        if self._revisions.setdefault(chunk.source, chunk.revision) != chunk.revision:
            self._revisions[chunk.source] = ""  # a run that changed it in place was interrupted
        self._totals[chunk.source] = chunk.total_chunks
        self.books.add(chunk.book)
        self._states[chunk.id] = hash(chunk)
        if self.reusable:
            self._texts[bytes.fromhex(chunk.content_hash)] = chunk.id

    def __len__(self) -> int:
        """Return the number of chunks."""
        return len(self._states)

    def has(self, chunk: Chunk) -> bool:
        """Return whether the index has this very chunk, with a vector that can be reused."""
        return self.reusable and self._states.get(chunk.id) == hash(chunk)

    def id_of(self, content_hash: str) -> str | None:
        """Return the id of a chunk that has the vector of a text."""
        return self._texts.get(bytes.fromhex(content_hash))

    def is_same(self, path: str, revision: str) -> bool:
        """Return whether the index has all chunks of this revision of a page."""
        page = self.pages.get(path)
        if page is None or not self.reusable:
            return False
        return self._revisions[path] == revision and page.chunks == self._totals[path]


def current_state(
    store: Store, collection: str, embedder: Embedder, *, reuse: bool = True
) -> IndexSnapshot | None:
    """Return the current index of a collection, if Recto made one.

    An index of another version of Recto is an error, unless nothing of it is to be reused.
    """
    replaced = () if reuse else (FormatMismatch,)
    with suppress(CollectionMissing, IndexDamaged, *replaced):
        index = store.open(collection)
        fingerprint = index.info.fingerprint
        if fingerprint is not None and index.info.collection == collection:
            compatible = fingerprint.embedder.is_compatible(embedder.fingerprint)
            return IndexSnapshot(index, reusable=reuse and compatible)
    return None


_MOST_ORDERED = 20_000  # pages; the manifest of an index lists them, and every process reads it
_IN_MEMORY = 4 << 20  # bytes
Emit = Callable[[list[PlannedChunk]], None]
"""Takes the planned chunks in order, usually the chunks of a page."""


def content_digest(chunk: Chunk) -> int:
    """Return a number that stands for the content of a chunk in the content hash of its index."""
    content = " ".join((chunk.id, chunk.content_hash, *chunk.questions))
    return int.from_bytes(hashlib.sha256(content.encode()).digest())


class Spool:
    """The planned chunks in book order, in a temporary file."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - closed by __exit__

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def extend(self, entries: list[PlannedChunk]) -> None:
        """Add chunks."""
        pickle.dump(entries, self._file, pickle.HIGHEST_PROTOCOL)

    def __iter__(self) -> Iterator[PlannedChunk]:
        """Yield all chunks from the beginning."""
        self._file.seek(0)
        with suppress(EOFError):
            while True:
                yield from pickle.load(self._file)  # noqa: S301 - written by `extend`


@dataclass(frozen=True, slots=True)
class Plan:
    """A planned run; `texts` and `tokens` are to be embedded, `reused` chunks have their vectors already.

    `stale_questions` are the pages and headings of section questions that were written for another text.
    """

    pages: tuple[PagePlan, ...]
    chunks: int
    reused: int
    texts: int
    tokens: int
    changes: bool
    content_hash: str
    failed: tuple[Failure, ...]
    notes: tuple[str, ...]
    stale_questions: tuple[tuple[str, str], ...] = ()

    def count(self, state: PageState) -> int:
        """Count the pages of a state."""
        return sum(page.state is state for page in self.pages)

    def states(self) -> dict[str, int]:
        """Count the pages of every state."""
        return {state.value: self.count(state) for state in PageState}

    @property
    def indexed(self) -> tuple[PagePlan, ...]:
        """The pages that are in the new index."""
        return tuple(page for page in self.pages if page.state is not PageState.GONE)

    def order(self) -> tuple[str, ...]:
        """Return the paths of the pages as the source orders them; () if it has no order but the paths'."""
        placed = sorted((page.position, page.path) for page in self.indexed if page.position)
        paths = tuple(path for _, path in placed)
        return () if list(paths) == sorted(paths) or len(paths) > _MOST_ORDERED else paths

    @property
    def is_local(self) -> bool:
        """Whether no page in the new index has a published address."""
        return all(is_local(page.url) for page in self.indexed)

    def module_titles(self) -> tuple[tuple[str, str], ...]:
        """Return the names and titles of modules in reading order, first of the pages that were read."""
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


@dataclass(frozen=True, slots=True)
class IndexJob:
    """What to index and how; without `calibrate`, the noise floor of a new index stays unknown.

    A large book is read by `processes` processes besides this one. Without `new_urls`, a run that would give
    most pages other URLs is an error.
    """

    source: Source
    embedder: Embedder
    size: ChunkSize = DEFAULT_SIZE
    modules: tuple[str, ...] = ()
    rebuild: bool = False
    calibrate: Calibrate | None = None
    processes: int = 0
    new_urls: bool = False


@dataclass
class Planner:
    """Reads a book once, compares it with the current index, and emits the chunks of the new one.

    `lexicon` gets the vocabulary of the pages that are read; `progress` the numbers of pages and chunks.
    """

    job: IndexJob
    previous: IndexSnapshot | None
    journal: Journal
    lexicon: LexiconBuilder
    emit: Emit | None = None
    progress: Callable[[int, int], None] = lambda _pages, _chunks: None
    _content: int = 0
    _kept: set[str] = field(default_factory=set)
    _pages: list[PagePlan] = field(default_factory=list)
    _failed: list[Failure] = field(default_factory=list)
    _notes: list[str] = field(default_factory=list)
    _leftovers: Counter[str] = field(default_factory=Counter)
    _new_texts: set[bytes] = field(default_factory=set)
    _others: dict[str, tuple[str, int]] = field(default_factory=dict)  # module and position of other pages
    _chunks: int = 0
    _unchanged: int = 0
    _reused: int = 0
    _tokens: int = 0
    _stale: list[SectionQuestions] = field(default_factory=list)
    _orphaned: list[SectionQuestions] = field(default_factory=list)
    _questions: dict[str, list[SectionQuestions]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Read what the job says, and the question file of the book."""
        self._source = self.job.source
        self._question_file = question_file(self._source)
        for line in read_question_file(self._question_file) if self._question_file else ():
            self._questions.setdefault(line.page, []).append(line)
        self._modules = frozenset(filter_keys(self.job.modules))

    def plan(self) -> Plan:
        """Read the book and return the plan."""
        job = self.job
        reading = read_in_order(self._jobs(), job.embedder, self._source.book, job.size, job.processes)
        with closing(reading) as pages:
            for page_job, page in pages:
                self._add_page(page_job, page)
                self.progress(len(self._pages), self._chunks)
        if self._modules and not self._pages and not self._failed:
            raise self._no_such_module()
        self._failed[:0] = self._source.failed
        self._keep_and_drop()
        stale = [(line.page, line.heading) for line in self._stale]
        leftover_notes = [f"{describe_leftovers(self._leftovers)}."] if self._leftovers else []
        return Plan(
            pages=tuple(self._pages),
            chunks=self._chunks,
            reused=self._reused,
            texts=len(self._new_texts),
            tokens=self._tokens,
            changes=self.previous is None or not self._unchanged == self._chunks == len(self.previous),
            content_hash=f"{self._content:064x}",
            failed=tuple(self._failed),
            notes=(*self._source.notes, *self._notes, *leftover_notes, *self._question_notes()),
            stale_questions=tuple(sorted({*stale, *self._stale_before()})),
        )

    def _jobs(self) -> Iterator[PageJob]:
        """Yield the pages of the modules to index."""
        for found in self._source.pages():
            page = replace(_encodable(found), questions=tuple(self._questions.pop(found.path, ())))
            if self._modules and self._modules.isdisjoint(page.module_keys):
                self._others[page.path] = (page.module, page.position)
                continue
            revision = self._revision(page)
            unchanged = self.previous is not None and self.previous.is_same(page.path, revision)
            yield PageJob(page, revision, unchanged)

    def _add_page(self, job: PageJob, read: ReadPage | None) -> None:
        page = job.page
        before = self.previous.pages.get(page.path) if self.previous else None
        if read is None:  # it is unchanged
            if before is not None:
                self._kept.add(page.path)
                self._pages.append(replace(before, state=PageState.UNCHANGED, position=page.position))
            return
        if read.failure:
            self._failed.append(Failure(page.path, read.failure))
            return
        self._stale += read.stale
        self._orphaned += read.orphaned
        if read.lexicon:
            self.lexicon.merge(read.lexicon)
        if not read.chunks:
            self._notes.append(f"{page.path} has no text.")
        self._leftovers.update(leftovers("\n\n".join(chunk.chunk.text for chunk in read.chunks)))
        planned = [self._planned(chunk) for chunk in read.chunks]
        self._emit(planned)
        state = PageState.NEW
        if before is not None:
            same = all(chunk.unchanged for chunk in planned) and before.chunks == len(planned)
            state = PageState.UNCHANGED if same else PageState.CHANGED
        self._pages.append(
            PagePlan(page.path, page.url, page.module, len(planned), state, page.module_title, page.position)
        )

    def _revision(self, page: Page) -> str:
        """Return a hash of everything that the chunks of a page depend on."""
        everything = (
            *astuple(replace(page, text="", lines=(), position=0))[:-3],
            self._source.book,
            str(self.job.size),
            self.job.embedder.max_tokens,
            # The last three fields: an index of pages that have none of them stays as it was.
            *page.locales,
            *((line.heading, line.questions, line.hash) for line in page.questions),
            *page.references,
        )
        if version := reader_version(page.format):  # a new version of a plugin may read the page differently
            everything += (version,)
        return hashlib.sha256(repr(everything).encode()).hexdigest()[:32]

    def _planned(self, read: PlannedChunk) -> PlannedChunk:
        """Return a chunk with what has to be done for it."""
        previous, name = self.previous, read.chunk.content_hash
        unchanged = previous is not None and previous.has(read.chunk)
        has_vector = name in self.journal or (previous is not None and previous.id_of(name) is not None)
        tokens, key = 0, bytes.fromhex(name)
        is_new = key not in self._new_texts  # the text of a planned chunk may be in the journal by now
        if unchanged or (is_new and has_vector):
            self._reused += 1
        elif is_new:
            self._new_texts.add(key)
            tokens = read.tokens
        return replace(read, unchanged=unchanged, tokens=tokens)

    def _emit(self, planned: list[PlannedChunk]) -> None:
        """Count chunks and hand them on."""
        for entry in planned:
            self._content ^= content_digest(entry.chunk)  # independent of the order of the chunks
            self._unchanged += entry.unchanged
            self._tokens += entry.tokens
        self._chunks += len(planned)
        if self.emit is not None and planned:
            self.emit(planned)

    def _question_notes(self) -> Iterator[str]:
        """Yield notes about the lines of the question file that were not used, and those that are stale."""
        pageless = [line for lines in self._questions.values() for line in lines]
        unused = [*self._orphaned, *pageless]
        for lines, what in ((unused, "match no section of the book"), (self._stale, "are stale")):
            if lines:
                first = f"line {lines[0].line}: {lines[0].page}, {lines[0].heading!r}"
                count = plural(len(lines), "line")
                yield (
                    f"{count} of {self._question_file} {what} ({first}). "
                    f"`recto questions check {self._source.location}` lists them."
                )

    def _stale_before(self) -> Iterator[tuple[str, str]]:
        """Yield the stale questions of pages that were not read now."""
        fingerprint = self.previous.index.info.fingerprint if self.previous else None
        for page, heading in fingerprint.stale_questions if fingerprint else ():
            if page in self._kept:
                yield page, heading

    def _keep_and_drop(self) -> None:
        """Keep or drop the pages of the current index that were not read now."""
        if self.previous is None:
            return
        read_now = {page.path for page in self._pages}
        for path, page in self.previous.pages.items():
            if path not in read_now:
                state = self._unread(path, self.previous)
                _, position = self._others.get(path, ("", 0))
                self._pages.append(replace(page, state=state, position=position))
                if state is not PageState.GONE:
                    self._kept.add(path)
        for chunk in self.previous.index.scroll() if self._kept else ():
            if chunk.source in self._kept:
                self._reused += 1
                self._emit([PlannedChunk(chunk, unchanged=True)])

    def _unread(self, path: str, previous: IndexSnapshot) -> PageState:
        """Return the state of a page that was not read: it failed, is of another module, or is gone."""
        outside = bool(self._modules) and self._modules.isdisjoint(previous.module_keys[path])
        failed = any(failure.covers(path) for failure in self._failed)
        if not (outside or failed) or previous.books != {self._source.book}:
            return PageState.GONE
        fingerprint = previous.index.info.fingerprint
        if fingerprint is None or not fingerprint.embedder.is_compatible(self.job.embedder.fingerprint):
            self._notes.append(
                f"{path} was embedded by another model, so it leaves the index until it can be read again."
            )
            return PageState.GONE
        return PageState.KEPT if failed else PageState.UNCHANGED

    def _no_such_module(self) -> InvalidArgument:
        modules = sorted({module for module, _ in self._others.values()})
        requested = ", ".join(repr(name) for name in sorted(self._modules))
        near = nearest(min(self._modules), modules)
        return InvalidArgument(
            f"There is no page of module {requested} in {self._source.location}",
            hint=(f"Did you mean '{near}'? " if near else "") + f"Modules: {', '.join(modules) or 'none'}.",
        )


def _encodable(value: Any) -> Any:
    """Return a page or one of its values with texts that can be stored: JSON may state lone surrogates."""
    if isinstance(value, Page):
        values = {each.name: getattr(value, each.name) for each in fields(value)}
        return replace(value, **{name: _encodable(part) for name, part in values.items()})
    if isinstance(value, tuple):
        return tuple(map(_encodable, value))
    return encodable(value) if isinstance(value, str) else value
