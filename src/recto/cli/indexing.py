"""The commands that write: index a book, once or again whenever it changes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import click

from recto.cli import index_report, progress
from recto.cli.running import INDEX_EXITS, Exit, ends_with, tell, warn
from recto.errors import InvalidArgument, RectoError
from recto.indexer import IndexReport, Work, index_book, plan_book
from recto.plan import Plan
from recto.previous import PageState
from recto.protocols import Embedder, Metered, Source, Store
from recto.settings import DEFAULT_COLLECTIONS, QUERY_COLLECTION, SAMPLE_COLLECTION, Settings, check_collection_name, load_settings
from recto.wiring import Opening, open_embedder, open_source, open_store, sample_source


@dataclass(frozen=True, slots=True)
class Request:
    """What the flags of `recto index` ask for."""

    location: str | None
    opening: Opening
    collection: str | None = None
    modules: tuple[str, ...] = ()
    sample: bool = False
    rebuild: bool = False


def index(request: Request, *, dry_run: bool, verbose: bool, as_json: bool) -> Exit:
    """Index a book and say what was done, or only what would be."""
    ends_with(INDEX_EXITS)
    if request.sample == (request.location is not None):
        raise InvalidArgument("Give either the PATH or the address of a book, or --sample", hint="Try `recto index ./docs`.")
    desk = _Desk(request)
    source = sample_source() if request.location is None else open_source(request.location, request.opening, desk.cache(dry_run), tell)
    if dry_run:
        return desk.plan(source, verbose=verbose, as_json=as_json)
    began = perf_counter()
    report = desk.run(source)
    seconds = perf_counter() - began
    click.echo(index_report.report_json(report, seconds) if as_json else index_report.report_text(report, seconds, verbose=verbose))
    return Exit.NO_RESULTS if report.plan.failed else Exit.OK


def watch(request: Request, interval: float) -> Exit:
    """Index a book, then again whenever one of its files changes, until interrupted."""
    ends_with(INDEX_EXITS)
    from recto.cli.watching import Tree

    location = request.location or ""
    if "://" in location:
        raise InvalidArgument("A website cannot be watched", hint="Run `recto index` again: it asks only for pages that have changed.")
    tree = Tree(Path(location))
    desk = _Desk(request)
    tell(f"Watching {tree.root}; Ctrl-C ends it.")
    while True:
        state = tree.state()
        began = perf_counter()
        try:
            source = open_source(location, request.opening, None, tell)
            report = desk.run(source)
        except RectoError as error:
            warn(f"{error}. {error.hint}".strip())
        else:
            if report.published:
                click.echo(index_report.report_line(report, perf_counter() - began))
            state = tree.include(getattr(source, "included_files", {})) | state
        tree.wait_for_change(state, interval)


class _Desk:
    """The parts that a run needs, made once: settings, embedder, store and the collection's name."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._settings = load_settings()
        self._collection = _target(self._settings, request.collection, sample=request.sample)
        self._embedder: Embedder = open_embedder(self._settings, tell)
        self._store: Store = open_store(self._settings, tell)

    def cache(self, dry_run: bool) -> Path | None:
        """Where a website's pages may be kept."""
        return None if dry_run else self._settings.home / "websites"

    def plan(self, source: Source, *, verbose: bool, as_json: bool) -> Exit:
        """Print what a run would do."""
        with progress.shown() as watcher:
            plan = plan_book(self._work(source), self._store, self._collection, journal=self._journal, progress=watcher)
        estimate = self._embedder.estimate(plan.texts, plan.tokens) if isinstance(self._embedder, Metered) else None
        self._tell_of(plan)
        if as_json:
            click.echo(index_report.plan_json(plan, self._collection, estimate))
        else:
            click.echo(index_report.plan_text(plan, self._collection, estimate, verbose=verbose))
        return Exit.NO_RESULTS if plan.failed else Exit.OK

    def run(self, source: Source) -> IndexReport:
        """Index a source under the collection's name and the further names it should have."""
        try:
            with progress.shown() as watcher:
                report = index_book(self._work(source), self._store, self._collection, journal=self._journal, progress=watcher)
        except KeyboardInterrupt:
            tell("What was embedded is kept: the same command goes on from there. The old index is untouched.")
            raise
        self._point()
        self._tell_of(report.plan)
        for note in report.notes:
            tell(note)
        return report

    @property
    def _journal(self) -> Path:
        return self._settings.home / "journal"

    def _work(self, source: Source) -> Work:
        return Work(source, self._embedder, modules=self._request.modules, rebuild=self._request.rebuild)

    def _point(self) -> None:
        store, name = self._store, self._collection
        if self._request.sample:
            known = store.aliases()  # names that lead to a book of the user's own stay
            store.point([alias for alias in DEFAULT_COLLECTIONS if known.get(alias, name) == name], name)
        elif self._request.collection is None and self._settings.collection is None:
            # The book without a name of its own is the one that every surface's default name means.
            store.point(DEFAULT_COLLECTIONS, name)

    def _tell_of(self, plan: Plan) -> None:
        for note in index_report.notes(plan):
            tell(note)
        kept = [page.path for page in plan.pages if page.state is PageState.KEPT]
        for failure in plan.failed:
            warn(f"{'Kept the old version of' if any(map(failure.covers, kept)) else 'Left out'} {failure}")


def _target(settings: Settings, collection: str | None, *, sample: bool) -> str:
    if sample:
        if collection is not None:
            raise InvalidArgument("--sample has a collection of its own", hint="Leave out --collection.")
        return SAMPLE_COLLECTION
    if collection is not None:
        check_collection_name(collection, "--collection")
    return collection or settings.collection_or(QUERY_COLLECTION)
