"""From a book to a published index: plan, embed what is new, build, verify, publish."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from recto import __version__
from recto.book.chunking import DEFAULT_SIZE, ChunkSize
from recto.errors import InvalidArgument, RectoError
from recto.indexing.journal import Journal
from recto.indexing.planner import IndexSnapshot, Plan, PlannedChunk, Planner, Spool, current_state
from recto.protocols import Build, Embedder, Index, Source, Store
from recto.search.analyzer import ANALYZER
from recto.search.lexicon import LexiconBuilder
from recto.types import Calibration, Fingerprint, IndexInfo, Vector

_BATCH = 96  # texts that are embedded and written to the journal at a time; the most that Cohere takes
_WRITTEN = 256  # chunks that are handed to the store at a time where nothing has to be embedded
_FEW_NEW = 0.1  # share of new passages up to which the level of noise is taken to be what it was


@dataclass(frozen=True, slots=True)
class IndexProgress:
    """How far a run has come: while it reads, `plan` is None; then `done` chunks are written and `tokens` embedded."""

    pages: int
    chunks: int
    plan: Plan | None = None
    done: int = 0
    tokens: int = 0


Watcher = Callable[[IndexProgress], None]


@dataclass(frozen=True, slots=True)
class IndexReport:
    """What an index run did; `published` is false where nothing had changed, `notes` are of what came after the publishing."""

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


def plan_book(
    work: IndexJob, store: Store, collection: str, *, journal: Path, progress: Watcher | None = None
) -> Plan:
    """Say what indexing a book would do; nothing is written."""
    known = _journal(journal, collection, work.embedder)
    return _planner(
        work, current_state(store, collection, work.embedder, reuse=not work.rebuild), known, None, progress
    ).plan()


def index_book(
    work: IndexJob,
    store: Store,
    collection: str,
    *,
    journal: Path,
    progress: Watcher | None = None,
    wait: Callable[[str], None] | None = None,
) -> IndexReport:
    """Bring a collection to the state of a book; only text that is new to it is embedded.

    Readers see the old index until the new one is complete. What was embedded is kept in the `journal` directory until then, so that a
    run that was interrupted does not embed it again. Pages that cannot be read keep their old version.
    """
    embedder = work.embedder
    building = store.build(
        collection, embedder.fingerprint, analyzer=ANALYZER, rebuild=work.rebuild, wait=wait
    )
    with building as build, Spool() as spool:
        known = _journal(journal, collection, embedder)
        previous = current_state(store, collection, embedder, reuse=not work.rebuild)
        plan = _planner(work, previous, known, spool, progress).plan()
        if not plan.chunks:
            failures = "; ".join(map(str, plan.failed[:3]))
            raise InvalidArgument(
                f"There is no text in {work.source.location}", hint=failures or "All pages are empty."
            )
        fingerprint = _fingerprint(work, plan)
        if (
            previous is not None
            and not plan.changes
            and not work.rebuild
            and _is_current(previous.index.info, fingerprint)
        ):
            known.clear()
            return IndexReport(previous.index.info, plan, published=False)
        if previous is not None:
            _carry_over(spool, previous, known)
        lexicon = LexiconBuilder()
        _Writer(build, embedder, lexicon, known, previous, plan, progress).write(spool)
        info = build.publish(fingerprint, lexicon.to_bytes())
        known.clear()
    before = previous.index.info.calibration if previous is not None and previous.reusable else None
    return _calibrated(IndexReport(info, plan, published=True, notes=info.warnings), work, store, before)


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
        later = f"`recto calibrate --collection {report.info.collection}` does it later."
        note = f"The level of noise was not measured ({error.message}); {later}"
        return replace(report, notes=(*report.notes, note))
    return replace(report, info=replace(report.info, calibration=calibration))


def _journal(directory: Path, collection: str, embedder: Embedder) -> Journal:
    journal = Journal(directory / f"{collection}.vectors", embedder.fingerprint)
    journal.load()
    return journal


def _planner(
    work: IndexJob,
    previous: IndexSnapshot | None,
    journal: Journal,
    spool: Spool | None,
    progress: Watcher | None,
) -> Planner:
    def notify(pages: int, chunks: int) -> None:
        if progress:
            progress(IndexProgress(pages, chunks))

    return Planner(
        work.source,
        work.embedder,
        work.size,
        previous,
        journal,
        modules=work.modules,
        spool=spool,
        progress=notify,
    )


def _fingerprint(work: IndexJob, plan: Plan) -> Fingerprint:
    return Fingerprint(
        embedder=work.embedder.fingerprint,
        chunker=str(work.size),
        book=work.source.book,
        source=work.source.location,
        content_hash=plan.content_hash,
        pages=len(plan.indexed),
        recto_version=__version__,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        analyzer=ANALYZER,
        modules=plan.module_titles(),
        unresolved_includes=getattr(work.source, "unresolved_includes", 0),
    )


def _is_current(info: IndexInfo, wanted: Fingerprint) -> bool:
    """Whether an index whose chunks are right also says the right things of itself."""
    made = info.fingerprint
    return (
        made is not None
        and not info.warnings
        and made.embedder.is_compatible(wanted.embedder)
        and replace(made, embedder=wanted.embedder, content_hash="", recto_version="", created_at="")
        == replace(wanted, content_hash="", recto_version="", created_at="")
    )


def _carry_over(spool: Spool, previous: IndexSnapshot, journal: Journal) -> None:
    """Write the vectors of texts that only moved to the journal: a store that is changed in place may soon overwrite them."""
    moved: dict[str, str] = {}

    def flush() -> None:
        found = previous.index.vectors(list(moved.values()))
        usable = {name: found[id] for name, id in moved.items() if id in found}
        if usable:
            journal.add(list(usable), list(usable.values()))
        moved.clear()

    for entry in spool:
        name = entry.passage.chunk.content_hash
        if not entry.unchanged and name not in journal and (id := previous.id_of(name)) is not None:
            moved[name] = id
            if len(moved) >= _WRITTEN:
                flush()
    if moved:
        flush()


class _Writer:
    """Feeds a build from the spool: what stays, what is known, and what must be embedded first, each in good-sized batches."""

    def __init__(
        self,
        build: Build,
        embedder: Embedder,
        lexicon: LexiconBuilder,
        journal: Journal,
        previous: IndexSnapshot | None,
        plan: Plan,
        progress: Watcher | None,
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
        """Write all; the store writes one batch while the next is embedded."""
        self._notify()
        for entries, step in _grouped(spool, self._journal):
            step_of = {"stays": self._keep, "known": self._add, "new": self._embed}
            step_of[step](entries)
            self._done += len(entries)
            self._notify()

    def _keep(self, entries: Sequence[PlannedChunk]) -> None:
        if self._previous is None:
            raise RuntimeError("nothing stays where nothing was")
        chunks = [entry.passage.chunk for entry in entries]
        self._build.keep(chunks, self._previous.index, self._lexicon.vectors(chunks))

    def _add(self, entries: Sequence[PlannedChunk]) -> None:
        self._write(entries, self._journal.vectors([entry.passage.chunk.content_hash for entry in entries]))

    def _write(self, entries: Sequence[PlannedChunk], vectors: Mapping[str, Vector]) -> None:
        chunks = [entry.passage.chunk for entry in entries]
        self._build.add(
            chunks, [vectors[chunk.content_hash] for chunk in chunks], self._lexicon.vectors(chunks)
        )

    def _embed(self, entries: Sequence[PlannedChunk]) -> None:
        texts = {entry.passage.chunk.content_hash: entry.passage.embedded for entry in entries}
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
    """Gather entries by what must be done for them."""
    sizes = {"stays": _WRITTEN, "known": _WRITTEN, "new": _BATCH}
    groups: dict[str, list[PlannedChunk]] = {step: [] for step in sizes}
    for entry in spool:
        step = (
            "stays" if entry.unchanged else "known" if entry.passage.chunk.content_hash in journal else "new"
        )
        groups[step].append(entry)
        if len(groups[step]) >= sizes[step]:
            yield groups[step], step
            groups[step] = []
    for step, entries in groups.items():
        if entries:
            yield entries, step
