"""Index a book: plan, embed what is new, build, publish, calibrate."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path

from recto import __version__
from recto._util.text import encodable, is_local, plural
from recto.book.chunking import PlannedChunk
from recto.errors import EmbeddingError, InvalidArgument, RectoError, UrlsChange
from recto.indexing.journal import Journal, journal_path
from recto.indexing.pipeline import Check, ReadAhead, WriteBehind
from recto.indexing.planner import Emit, IndexJob, IndexSnapshot, Plan, Planner, Spool, current_state
from recto.protocols import Build, Embedder, Store, embedder_abilities
from recto.search.analyzer import ANALYZER
from recto.search.lexical import Lexicon, LexiconBuilder, unknown_languages
from recto.settings import option_flags
from recto.types.index import Calibration, Fingerprint, IndexInfo
from recto.types.search import Vector

__all__ = ["IndexJob", "IndexProgress", "IndexReport", "ProgressCallback", "index_book", "plan_book"]

_READ_AHEAD = 256  # pages that are read before they can be embedded; a few MB of memory
_WRITE_BEHIND = 2  # batches that are embedded before they can be written; more would only use memory
_WRITE_BATCH = 256  # chunks per write if nothing has to be embedded; limits the memory for their vectors
_MAX_TITLE = 200  # characters; a longer one is a mistake, and every search response carries it
_FEW_NEW = 0.1  # up to this share of new chunks, the noise floor is kept: measuring takes seconds


@dataclass(frozen=True, slots=True)
class IndexProgress:
    """The progress of a run: `plan` is None while it reads; `done` counts chunks that have their vectors.

    `expected` is the number of all chunks: while the run reads, estimated from the share of the files that
    are read; 0 if that is unknown, too.
    """

    pages: int
    chunks: int
    plan: Plan | None = None
    done: int = 0
    expected: int = 0


ProgressCallback = Callable[[IndexProgress], None]


@dataclass(frozen=True, slots=True)
class IndexReport:
    """The result of a run; `published` is false if nothing had changed."""

    info: IndexInfo
    plan: Plan
    published: bool
    notes: tuple[str, ...] = ()


def plan_book(
    job: IndexJob, store: Store, collection: str, *, journal: Path, progress: ProgressCallback | None = None
) -> Plan:
    """Return what indexing a book would do; write nothing."""
    previous = current_state(store, collection, job.embedder, reuse=not job.rebuild)
    run = _Run(job, previous, _journal(journal, collection, job.embedder), progress)
    return run.plan(None)


def index_book(
    job: IndexJob,
    store: Store,
    collection: str,
    *,
    journal: Path,
    progress: ProgressCallback | None = None,
    wait: Callable[[str], None] | None = None,
) -> IndexReport:
    """Index a book into a collection; embed only text that is new to it.

    Readers see the old index until the new one is complete. The `journal` directory keeps new vectors until
    then, so that an interrupted run does not embed them again. Unreadable pages keep their old version.
    """
    building = store.build(
        collection, job.embedder.fingerprint, analyzer=ANALYZER, rebuild=job.rebuild, wait=wait
    )
    try:
        with building as build:
            report, before = _publish(job, store, collection, build, journal, progress)
    except EmbeddingError as error:
        if vectors := _journal(journal, collection, job.embedder):
            error.hint = f"{error.hint} {_kept(vectors, store, collection)}".strip()
        raise
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(_kept(_journal(journal, collection, job.embedder), store, collection))
        raise
    try:
        return _calibrated(report, job, store, before) if report.published else report
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(f"The new index is published. {_not_calibrated(collection)}")
        raise


def _publish(
    job: IndexJob,
    store: Store,
    collection: str,
    build: Build,
    directory: Path,
    progress: ProgressCallback | None,
) -> tuple[IndexReport, Calibration | None]:
    """Write and publish the new index; return the report, and the calibration of the old index."""
    journal = _journal(directory, collection, job.embedder)
    previous = current_state(store, collection, job.embedder, reuse=not job.rebuild)
    run = _Run(job, previous, journal, progress)
    reusable = previous is not None and previous.reusable
    # Moved texts must be known before they are overwritten, and an unreadable book must not cost anything.
    if reusable or embedder_abilities(job.embedder).estimate:
        with Spool() as spool:
            plan = run.plan(spool.extend)
            fingerprint = _checked_fingerprint(job, plan)
            if previous is not None:
                info = previous.index.info
                if not plan.changes and not job.rebuild and _is_current(info, fingerprint):
                    journal.clear()
                    return IndexReport(info, plan, published=False), None
                _check_urls(job, plan, previous)
                _carry_over(spool, previous, journal)
            run.write(spool, build)
    else:
        with ReadAhead(run.plan, _READ_AHEAD) as reading:
            run.write(chain.from_iterable(reading), build)
            plan = reading.result
        _check_urls(job, plan, previous)
        fingerprint = _checked_fingerprint(job, plan)
    vocabulary = run.lexicon.to_bytes()
    info = build.publish(fingerprint, vocabulary)
    journal.clear()
    before = previous.index.info.calibration if previous is not None and reusable else None
    note = unknown_languages(Lexicon(vocabulary), job.embedder)
    return IndexReport(info, plan, published=True, notes=(*info.warnings, *filter(None, [note]))), before


def _kept(journal: Journal, store: Store, collection: str) -> str:
    """Return what an interrupted run leaves: the vectors in the journal, and the old index, if any."""
    kept = len(journal)
    text = "Nothing was embedded, so nothing is kept."
    if kept:
        text = f"{plural(kept, 'embedding')} kept: run the same command again to continue."
    if not store.is_local:  # it may have written in place
        return text
    return f"{text} {'The old index is unchanged.' if collection in store.collections() else ''}".rstrip()


def _calibrated(report: IndexReport, job: IndexJob, store: Store, before: Calibration | None) -> IndexReport:
    """Measure the noise floor of the published index, or keep the last one if only a few chunks are new.

    The index is usable without it, so a failure becomes a note.
    """
    few = report.plan.chunks - report.plan.reused <= _FEW_NEW * report.plan.chunks
    kept = before if few else None
    calibrate = job.calibrate if kept is None else lambda *_: kept
    if calibrate is None:
        return report
    try:
        index = store.open(report.info.collection)
        calibration = calibrate(job.embedder, index)
        store.save_calibration(index.info, calibration)
    except RectoError as error:
        note = _not_calibrated(report.info.collection, f" ({error.message})")
        return replace(report, notes=(*report.notes, note))
    return replace(report, info=replace(report.info, calibration=calibration))


def _not_calibrated(collection: str, reason: str = "") -> str:
    return f"The noise floor was not measured{reason}. Run `recto calibrate --collection {collection}`."


def _journal(directory: Path, collection: str, embedder: Embedder) -> Journal:
    journal = Journal(journal_path(directory, collection), embedder.fingerprint)
    journal.load()
    return journal


def _checked_fingerprint(job: IndexJob, plan: Plan) -> Fingerprint:
    """Return the fingerprint of the new index; raise an error if it has no chunks."""
    if not plan.chunks:
        problem = "No page can be read" if plan.failed and not plan.indexed else "There is no text"
        failures = "; ".join(map(str, plan.failed[:3]))
        raise InvalidArgument(f"{problem} in {job.source.location}", hint=failures or "All pages are empty.")
    info = job.source.info
    return Fingerprint(
        embedder=job.embedder.fingerprint,
        chunker=str(job.size),
        book=job.source.book,
        source=job.source.location,
        content_hash=plan.content_hash,
        pages=len(plan.indexed),
        recto_version=__version__,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        analyzer=ANALYZER,
        modules=plan.module_titles(),
        unresolved_includes=info.unresolved_includes,
        title=encodable(" ".join(info.title.split())[:_MAX_TITLE]),
        logo=info.logo,
        options=info.options,
        versions=info.versions,
        locales=info.locales,
        stale_questions=plan.stale_questions,
        order=plan.order(),
    )


def _check_urls(job: IndexJob, plan: Plan, previous: IndexSnapshot | None) -> None:
    """Raise an error if most pages of a book would get other URLs, so that links to them would break."""
    recorded = previous.index.info.fingerprint if previous else None
    if previous is None or recorded is None or job.new_urls:
        return
    before = {path: page.url for path, page in previous.pages.items() if not is_local(page.url)}
    pairs = [(before[page.path], page.url) for page in plan.indexed if page.path in before]
    moved = recorded.source != job.source.location
    if moved and len(pairs) * 2 < len(before):  # other pages: then only published addresses can get lost
        pairs = list(zip(before.values(), (page.url for page in plan.indexed), strict=False))
        pairs = pairs if plan.is_local else []
    others = [(old, new) for old, new in pairs if old != new]
    if len(others) * 2 > len(pairs):
        old, new = others[0]
        flags = " ".join(option_flags(recorded.options))
        origin = f" of {recorded.source}" * moved
        raise UrlsChange(
            f"{len(others)} of {plural(len(pairs), 'page')} would get other URLs: {new} instead of {old}",
            hint=f"The last run{origin} had {f'the options {flags}' if flags else 'no options'}. "
            "To change the URLs, add --new-urls.",
        )


def _is_current(info: IndexInfo, new: Fingerprint) -> bool:
    """Return whether the fingerprint of an up-to-date index is up to date, too."""
    current = info.fingerprint
    if current is None or info.warnings or not current.embedder.is_compatible(new.embedder):
        return False
    same = replace(
        current,
        embedder=new.embedder,
        content_hash=new.content_hash,  # the plan has compared the content
        recto_version=new.recto_version,
        created_at=new.created_at,
    )
    return same == new


def _carry_over(spool: Spool, previous: IndexSnapshot, journal: Journal) -> None:
    """Copy the vectors of moved texts to the journal, before a store that writes in place overwrites them."""
    moved = (
        (name, id)
        for entry in spool
        if not entry.unchanged
        and (name := entry.chunk.content_hash) not in journal
        and (id := previous.id_of(name)) is not None
    )
    while batch := dict(islice(moved, _WRITE_BATCH)):
        vectors = previous.index.vectors(list(batch.values()))
        if usable := {name: vectors[id] for name, id in batch.items() if id in vectors}:
            journal.add(list(usable), list(usable.values()))


_Batch = tuple[Sequence[PlannedChunk], Mapping[str, Vector] | None]
"""Chunks to write: with these vectors, or, without any, as they are in the current index."""


@dataclass(slots=True)
class _Run:
    """One run: it plans the chunks, embeds those that are new, and hands all of them to a build.

    Three threads share it: one plans, the caller's embeds, one writes. Each has its own attributes.
    """

    job: IndexJob
    previous: IndexSnapshot | None
    journal: Journal
    progress: ProgressCallback | None
    lexicon: LexiconBuilder = field(default_factory=LexiconBuilder)
    _reporting: threading.Lock = field(default_factory=threading.Lock)
    _plan: Plan | None = None
    _pages: int = 0
    _chunks: int = 0
    _done: int = 0

    def plan(self, emit: Emit | None, check: Check = lambda: None) -> Plan:
        """Read the book, and emit its chunks in order; `check` is called after every page."""

        def notify(pages: int, chunks: int) -> None:
            check()
            self._pages, self._chunks = pages, chunks
            self._notify()

        planner = Planner(self.job, self.previous, self.journal, self.lexicon, emit, notify)
        self._plan = plan = planner.plan()
        self._pages, self._chunks = len(plan.indexed), plan.chunks
        return plan

    def write(self, planned: Iterable[PlannedChunk], build: Build) -> None:
        """Embed and write all chunks; the store writes one batch while the next is embedded."""
        self._notify()
        with WriteBehind[_Batch](lambda batch: self._write(*batch, build), _WRITE_BEHIND) as writing:
            for entries, step in self._grouped(planned):
                done, vectors = self._done, None
                if step == "embedded":
                    vectors = self.journal.vectors([entry.chunk.content_hash for entry in entries])
                elif step == "new":
                    vectors = self._embed(entries)
                writing.put((entries, vectors))
                self._done = done + len(entries)
                self._notify()

    def _grouped(self, planned: Iterable[PlannedChunk]) -> Iterator[tuple[list[PlannedChunk], str]]:
        """Yield batches of chunks that need the same step."""
        batch_size = embedder_abilities(self.job.embedder).batch_size
        sizes = {"unchanged": _WRITE_BATCH, "embedded": _WRITE_BATCH, "new": batch_size}
        groups: dict[str, list[PlannedChunk]] = {step: [] for step in sizes}
        for entry in planned:
            is_embedded = entry.chunk.content_hash in self.journal
            step = "unchanged" if entry.unchanged else "embedded" if is_embedded else "new"
            groups[step].append(entry)
            if len(groups[step]) >= sizes[step]:
                yield groups[step], step
                groups[step] = []
        yield from ((entries, step) for step, entries in groups.items() if entries)

    def _embed(self, entries: Sequence[PlannedChunk]) -> dict[str, Vector]:
        """Embed the texts of a batch; the journal has their vectors before the store gets them."""
        texts = {entry.chunk.content_hash: entry.embedded for entry in entries}
        written = self._done

        def share(now: int, total: int) -> None:
            self._done = written + len(entries) * now // total
            self._notify()

        vectors = self.job.embedder.embed_documents(list(texts.values()), share)
        self.journal.add(list(texts), vectors)
        return dict(zip(texts, vectors, strict=True))

    def _write(
        self, entries: Sequence[PlannedChunk], vectors: Mapping[str, Vector] | None, build: Build
    ) -> None:
        chunks = [entry.chunk for entry in entries]
        lexical = [entry.lexical or self.lexicon.vectors([entry.chunk])[0] for entry in entries]
        if vectors is not None:
            build.add(chunks, [vectors[chunk.content_hash] for chunk in chunks], lexical)
        elif self.previous is not None:
            build.keep(chunks, self.previous.index, lexical)

    def _notify(self) -> None:
        if self.progress:
            with self._reporting:
                expected = self._chunks if self._plan else self._estimate()
                self.progress(IndexProgress(self._pages, self._chunks, self._plan, self._done, expected))

    def _estimate(self) -> int:
        """Return about how many chunks the book has, or 0 if the number of its files is unknown."""
        source = self.job.source
        if not isinstance(source, Sized) or self.job.modules or not self._pages:
            return 0
        return max(self._chunks, self._chunks * len(source) // self._pages)
