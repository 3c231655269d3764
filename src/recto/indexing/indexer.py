"""Index a book: plan, embed what is new, build, publish, calibrate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from recto import __version__
from recto._util.text import plural
from recto.book.chunking import DEFAULT_SIZE, ChunkSize
from recto.errors import InvalidArgument, RectoError
from recto.indexing.journal import Journal, journal_path
from recto.indexing.planner import IndexSnapshot, Plan, PlannedChunk, Planner, Spool, current_state
from recto.protocols import Build, Embedder, Index, Source, Store, Verifiable
from recto.search.analyzer import ANALYZER
from recto.search.lexical import LexiconBuilder
from recto.settings import DEFAULT_COLLECTIONS, SAMPLE_COLLECTION
from recto.types import Calibration, Fingerprint, IndexInfo, Vector

_BATCH = 96  # texts per embedding call and journal entry; the most that Cohere accepts
_WRITE_BATCH = 256  # chunks per write if nothing has to be embedded
_FEW_NEW = 0.1  # up to this share of new chunks, the noise floor is not measured again


@dataclass(frozen=True, slots=True)
class IndexProgress:
    """The progress of a run: `plan` is None while it reads; `done` counts written chunks."""

    pages: int
    chunks: int
    plan: Plan | None = None
    done: int = 0
    tokens: int = 0


ProgressCallback = Callable[[IndexProgress], None]


@dataclass(frozen=True, slots=True)
class IndexReport:
    """The result of a run; `published` is false if nothing had changed."""

    info: IndexInfo
    plan: Plan
    published: bool
    notes: tuple[str, ...] = ()


Calibrate = Callable[[Embedder, Index], Calibration]
"""Measures the noise floor of a published index."""


@dataclass(frozen=True, slots=True)
class IndexJob:
    """What to index and how; without `calibrate`, the noise floor of a new index stays unknown."""

    source: Source
    embedder: Embedder
    size: ChunkSize = DEFAULT_SIZE
    modules: tuple[str, ...] = ()
    rebuild: bool = False
    calibrate: Calibrate | None = None


def is_first_run(collection: str, store: Store) -> bool:
    """Return whether to index the sample book: a private store is empty, and a default name is asked for."""
    return (
        isinstance(store, Verifiable)  # its files are on this machine
        and collection in DEFAULT_COLLECTIONS
        and not set(store.collections()) - {SAMPLE_COLLECTION}
    )


def plan_book(
    job: IndexJob, store: Store, collection: str, *, journal: Path, progress: ProgressCallback | None = None
) -> Plan:
    """Return what indexing a book would do; write nothing."""
    known = _journal(journal, collection, job.embedder)
    return _planner(
        job, current_state(store, collection, job.embedder, reuse=not job.rebuild), known, None, progress
    ).plan()


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
        with building as build, Spool() as spool:
            report, before = _publish(job, store, collection, build, spool, journal, progress)
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
    spool: Spool,
    journal: Path,
    progress: ProgressCallback | None,
) -> tuple[IndexReport, Calibration | None]:
    """Write and publish the new index; return the report, and the calibration of the old index."""
    embedder = job.embedder
    known = _journal(journal, collection, embedder)
    previous = current_state(store, collection, embedder, reuse=not job.rebuild)
    plan = _planner(job, previous, known, spool, progress).plan()
    if not plan.chunks:
        problem = "No page can be read" if plan.failed and not plan.indexed else "There is no text"
        failures = "; ".join(map(str, plan.failed[:3]))
        raise InvalidArgument(f"{problem} in {job.source.location}", hint=failures or "All pages are empty.")
    fingerprint = _fingerprint(job, plan)
    if (
        previous is not None
        and not plan.changes
        and not job.rebuild
        and _is_current(previous.index.info, fingerprint)
    ):
        known.clear()
        return IndexReport(previous.index.info, plan, published=False), None
    if previous is not None:
        _carry_over(spool, previous, known)
    lexicon = LexiconBuilder()
    _IndexWriter(build, embedder, lexicon, known, previous, plan, progress).write(spool)
    info = build.publish(fingerprint, lexicon.to_bytes())
    known.clear()
    before = previous.index.info.calibration if previous is not None and previous.reusable else None
    return IndexReport(info, plan, published=True, notes=(*info.warnings, *known.notes)), before


def _kept(journal: Journal, store: Store, collection: str) -> str:
    """Return what an interrupted run leaves: the vectors in the journal, and the old index, if any."""
    kept = len(journal)
    text = "Nothing was embedded, so nothing is kept."
    if kept:
        text = f"{plural(kept, 'embedding')} kept: run the same command again to continue."
    if not isinstance(store, Verifiable):  # it may have written in place
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


def _planner(
    job: IndexJob,
    previous: IndexSnapshot | None,
    journal: Journal,
    spool: Spool | None,
    progress: ProgressCallback | None,
) -> Planner:
    def notify(pages: int, chunks: int) -> None:
        if progress:
            progress(IndexProgress(pages, chunks))

    return Planner(
        job.source,
        job.embedder,
        job.size,
        previous,
        journal,
        modules=job.modules,
        spool=spool,
        progress=notify,
    )


def _fingerprint(job: IndexJob, plan: Plan) -> Fingerprint:
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
        unresolved_includes=getattr(job.source, "unresolved_includes", 0),
    )


def _is_current(info: IndexInfo, wanted: Fingerprint) -> bool:
    """Return whether the fingerprint of an up-to-date index is up to date, too."""
    made = info.fingerprint
    return (
        made is not None
        and not info.warnings
        and made.embedder.is_compatible(wanted.embedder)
        and replace(made, embedder=wanted.embedder, content_hash="", recto_version="", created_at="")
        == replace(wanted, content_hash="", recto_version="", created_at="")
    )


def _carry_over(spool: Spool, previous: IndexSnapshot, journal: Journal) -> None:
    """Copy the vectors of moved texts to the journal, before a store that writes in place overwrites them."""
    moved: dict[str, str] = {}

    def flush() -> None:
        found = previous.index.vectors(list(moved.values()))
        usable = {name: found[id] for name, id in moved.items() if id in found}
        if usable:
            journal.add(list(usable), list(usable.values()))
        moved.clear()

    for entry in spool:
        name = entry.input.chunk.content_hash
        if not entry.unchanged and name not in journal and (id := previous.id_of(name)) is not None:
            moved[name] = id
            if len(moved) >= _WRITE_BATCH:
                flush()
    if moved:
        flush()


class _IndexWriter:
    """Writes the planned chunks to a build in batches: unchanged, with known vectors, or to be embedded."""

    def __init__(
        self,
        build: Build,
        embedder: Embedder,
        lexicon: LexiconBuilder,
        journal: Journal,
        previous: IndexSnapshot | None,
        plan: Plan,
        progress: ProgressCallback | None,
    ) -> None:
        self._build = build
        self._embedder = embedder
        self._lexicon = lexicon
        self._journal = journal
        self._previous = previous
        self._plan = plan
        self._progress = progress
        self._done = 0
        self._tokens = 0

    def write(self, spool: Spool) -> None:
        """Write all chunks; the store writes one batch while the next is embedded."""
        self._notify()
        for entries, step in _grouped(spool, self._journal):
            step_of = {"unchanged": self._keep, "known": self._add, "new": self._embed}
            step_of[step](entries)
            self._done += len(entries)
            self._notify()

    def _keep(self, entries: Sequence[PlannedChunk]) -> None:
        if self._previous is None:
            raise RuntimeError("an unchanged chunk needs a previous index")
        chunks = [entry.input.chunk for entry in entries]
        self._build.keep(chunks, self._previous.index, self._lexicon.vectors(chunks))

    def _add(self, entries: Sequence[PlannedChunk]) -> None:
        self._write(entries, self._journal.vectors([entry.input.chunk.content_hash for entry in entries]))

    def _write(self, entries: Sequence[PlannedChunk], vectors: Mapping[str, Vector]) -> None:
        chunks = [entry.input.chunk for entry in entries]
        self._build.add(
            chunks, [vectors[chunk.content_hash] for chunk in chunks], self._lexicon.vectors(chunks)
        )

    def _embed(self, entries: Sequence[PlannedChunk]) -> None:
        texts = {entry.input.chunk.content_hash: entry.input.embedded for entry in entries}
        tokens, done, written = sum(entry.tokens for entry in entries), self._tokens, self._done

        def share(now: int, total: int) -> None:
            self._tokens = done + tokens * now // total
            self._done = written + len(entries) * now // total
            self._notify()

        vectors = self._embedder.embed_documents(list(texts.values()), share)
        self._tokens, self._done = done + tokens, written
        self._journal.add(list(texts), vectors)
        self._write(entries, dict(zip(texts, vectors, strict=True)))

    def _notify(self) -> None:
        if self._progress:
            self._progress(
                IndexProgress(
                    len(self._plan.indexed), self._plan.chunks, self._plan, self._done, self._tokens
                )
            )


def _grouped(spool: Spool, journal: Journal) -> Iterator[tuple[list[PlannedChunk], str]]:
    """Yield batches of chunks that need the same step."""
    sizes = {"unchanged": _WRITE_BATCH, "known": _WRITE_BATCH, "new": _BATCH}
    groups: dict[str, list[PlannedChunk]] = {step: [] for step in sizes}
    for entry in spool:
        known = entry.input.chunk.content_hash in journal
        step = "unchanged" if entry.unchanged else "known" if known else "new"
        groups[step].append(entry)
        if len(groups[step]) >= sizes[step]:
            yield groups[step], step
            groups[step] = []
    for step, entries in groups.items():
        if entries:
            yield entries, step
