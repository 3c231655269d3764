"""The commands that write: index a book, once or again whenever it changes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import click

from recto.api import SourceOptions, open_embedder, open_source, open_store, sample_source
from recto.book.parsing.formats import page_suffixes
from recto.book.sources.location import WEBSITE_SCHEMES, scheme_of
from recto.book.sources.tree import SKIPPED
from recto.cli import progress
from recto.cli.output import in_line
from recto.cli.runner import INDEX_EXITS, Exit, ends_with, notify, warn
from recto.errors import InvalidArgument, RectoError
from recto.indexing.indexer import IndexJob, IndexReport, index_book, plan_book
from recto.indexing.planner import PageState, Plan
from recto.protocols import Embedder, Metered, Source, Store
from recto.settings import (
    DEFAULT_COLLECTIONS,
    QUERY_COLLECTION,
    SAMPLE_COLLECTION,
    Settings,
    check_collection_name,
    load_settings,
)
from recto.types import CostEstimate

_SETTINGS = (".json", ".yml", ".yaml", ".toml", ".js", ".ts", ".mjs", ".cjs", ".mts", ".cts")
_QUIET = 0.3  # seconds without a change after which an author has finished saving

State = dict[str, tuple[int, int]]


class Tree:
    """The files of a book, those that they include, and the settings of its site in the directory above."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise InvalidArgument(
                f"{path} does not exist", hint="Give the directory that holds the pages of the book."
            )
        self.root = path.resolve()
        self._included: tuple[str, ...] = ()

    def state(self) -> State:
        """Return what changes when a file does."""
        found: State = {}
        for file in self._files():
            try:
                status = os.stat(file)
            except OSError:  # it went away meanwhile
                continue
            found[file] = (status.st_mtime_ns, status.st_size)
        return found

    def include(self, files: Mapping[Path, tuple[int, int]]) -> State:
        """Watch the files that pages include, too, wherever they lie; return the state in which they were read."""
        self._included = tuple(map(str, files))
        return {str(file): seen for file, seen in files.items()}

    def wait_for_change(self, before: State, interval: float) -> None:
        """Return when the files differ from a state and have come to rest."""
        while (now := self.state()) == before:
            sleep(interval)
        while True:
            sleep(_QUIET)
            if now == (now := self.state()):
                return

    def _files(self) -> Iterator[str]:
        if self.root.is_file():
            yield str(self.root)
        else:
            watched = (*page_suffixes(), *_SETTINGS)
            for folder, names, files in os.walk(self.root):
                names[:] = [name for name in names if name not in SKIPPED and not name.startswith(".")]
                kept = [name for name in files if name.lower().endswith(watched)]
                yield from (os.path.join(folder, name) for name in kept)  # noqa: PTH118 - many of them
        for entry in os.scandir(self.root.parent):
            if entry.name.lower().endswith(_SETTINGS):
                yield entry.path
        yield from self._included


_SHOWN_NOTES = 10


def plan_text(plan: Plan, collection: str, estimate: CostEstimate | None, *, verbose: bool) -> str:
    """Describe a plan."""
    lines = [f"Plan for '{collection}' (nothing is written):", *_changes(plan)]
    if estimate is None:
        lines.append("  Embedding: on this machine, without calls or cost")
    else:
        cost = "price unknown" if estimate.dollars is None else f"about ${estimate.dollars:.4f}"
        lines.append(
            f"  Embedding: {counted(estimate.calls, 'API call')}, {_minutes(estimate.minutes)} at trial limits, {cost}"
        )
    lines += _modules(plan)
    return "\n".join([*lines, *(_pages(plan) if verbose else ())])


def report_text(report: IndexReport, seconds: float, *, verbose: bool) -> str:
    """Describe a run."""
    plan, info = report.plan, report.info
    if not report.published:
        head = f"Nothing has changed: {counted(len(plan.indexed), 'page')}, {counted(info.chunks, 'chunk')} in '{info.collection}'"
        lines = [f"{head} ({info.generation}), checked in {seconds:.1f}s"]
    else:
        head = f"Indexed {counted(len(plan.indexed), 'page')} as {counted(info.chunks, 'chunk')} into '{info.collection}'"
        lines = [f"{head} ({info.generation}) in {seconds:.1f}s", *_changes(plan), *_modules(plan)]
    return "\n".join([*lines, *(_pages(plan) if verbose else ())])


def report_line(report: IndexReport, seconds: float) -> str:
    """Describe a run in one line, for one that is one of many."""
    changed = [
        page.path
        for page in report.plan.pages
        if page.state in (PageState.NEW, PageState.CHANGED, PageState.GONE)
    ]
    names = ", ".join(changed[:3]) + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
    return f"{report.info.generation}: {names or 'settings'}; {counted(report.plan.texts, 'passage')} embedded in {seconds:.1f}s"


def plan_json(plan: Plan, collection: str, estimate: CostEstimate | None) -> str:
    """Return a plan as JSON."""
    data = {"collection": collection, "dry_run": True, **_plan_data(plan)}
    data["estimate"] = estimate and {
        "api_calls": estimate.calls,
        "trial_minutes": estimate.minutes,
        "dollars": estimate.dollars,
    }
    return json.dumps(data, indent=2)


def report_json(report: IndexReport, seconds: float) -> str:
    """Return a report as JSON."""
    info = report.info
    data = {
        "collection": info.collection,
        "generation": info.generation,
        "published": report.published,
        **_plan_data(report.plan),
        "noise_floor": info.noise_floor,
        "duration_s": round(seconds, 3),
        "fingerprint": info.fingerprint.to_dict() if info.fingerprint else None,
    }
    return json.dumps(data, indent=2)


def notes(plan: Plan) -> list[str]:
    """Return what a person should know besides, cut where it is a lot."""
    rest = len(plan.notes) - _SHOWN_NOTES
    return [*plan.notes[:_SHOWN_NOTES], *([f"… and {rest} more; --json has them all."] if rest > 0 else [])]


def counted(number: int, what: str) -> str:
    """Return a number with its noun."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _plan_data(plan: Plan) -> dict[str, Any]:
    return {
        "pages": len(plan.indexed),
        "chunks": plan.chunks,
        "states": {state.value: plan.count(state) for state in PageState},
        "embedded": {"texts": plan.texts, "tokens": plan.tokens},
        "reused": plan.reused,
        "modules": {name: chunks for name, (_, chunks) in plan.modules().items()},
        "module_titles": dict(plan.module_titles()),
        "failed": [str(failure) for failure in plan.failed],
        "notes": list(plan.notes),
    }


def _changes(plan: Plan) -> list[str]:
    states = ", ".join(f"{plan.count(state)} {state}" for state in PageState if plan.count(state))
    return [
        f"  Pages: {states}",
        f"  Passages: {plan.texts} to embed ({plan.tokens:,} tokens), {plan.reused} reused",
    ]


def _modules(plan: Plan) -> list[str]:
    counts = plan.modules()
    titles = [
        (name, in_line(title if title and title != name else "")) for name, title in plan.module_titles()
    ]
    width = max([len("Module"), *(len(name) for name, _ in titles)])
    rows = (
        f"  {name:<{width}}  {counts[name][0]:>5}  {counts[name][1]:>6}  {title}".rstrip()
        for name, title in titles
    )
    return [f"  {'Module':<{width}}  Pages  Chunks  Title", *rows]


def _pages(plan: Plan) -> list[str]:
    return [f"  {page.state:<9}  {page.chunks:>4}  {page.path}  {page.url}" for page in plan.pages]


def _minutes(minutes: float) -> str:
    return "less than a minute" if minutes < 1 else f"about {counted(round(minutes), 'minute')}"


@dataclass(frozen=True, slots=True)
class Request:
    """What the flags of `recto index` ask for."""

    location: str | None
    opening: SourceOptions
    collection: str | None = None
    modules: tuple[str, ...] = ()
    sample: bool = False
    rebuild: bool = False


def index(request: Request, *, dry_run: bool, verbose: bool, as_json: bool) -> Exit:
    """Index a book and say what was done, or only what would be."""
    ends_with(INDEX_EXITS)
    if request.sample == (request.location is not None):
        raise InvalidArgument(
            "Give either the PATH or the address of a book, or --sample", hint="Try `recto index ./docs`."
        )
    desk = IndexCommand(request)
    source = (
        sample_source()
        if request.location is None
        else open_source(request.location, request.opening, desk.cache(dry_run), notify)
    )
    if dry_run:
        return desk.plan(source, verbose=verbose, as_json=as_json)
    began = perf_counter()
    report = desk.run(source)
    seconds = perf_counter() - began
    click.echo(report_json(report, seconds) if as_json else report_text(report, seconds, verbose=verbose))
    return Exit.NO_RESULTS if report.plan.failed else Exit.OK


def watch(request: Request, interval: float) -> Exit:
    """Index a book, then again whenever one of its files changes, until interrupted."""
    ends_with(INDEX_EXITS)

    location = request.location or ""
    if scheme := scheme_of(location):
        raise InvalidArgument(
            f"A {'website' if scheme in WEBSITE_SCHEMES else 'book that is not on disk'} cannot be watched",
            hint="Run `recto index` again: it asks only for pages that have changed.",
        )
    tree = Tree(Path(location))
    desk = IndexCommand(request)
    notify(f"Watching {tree.root}; Ctrl-C ends it.")
    while True:
        state = tree.state()
        began = perf_counter()
        try:
            source = open_source(location, request.opening, None, notify)
            report = desk.run(source)
        except RectoError as error:
            warn(f"{error}. {error.hint}".strip())
        else:
            if report.published:
                click.echo(report_line(report, perf_counter() - began))
            state = tree.include(getattr(source, "included_files", {})) | state
        tree.wait_for_change(state, interval)


class IndexCommand:
    """The parts that a run needs, made once: settings, embedder, store and the collection's name."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._settings = load_settings()
        self._collection = _target(self._settings, request.collection, sample=request.sample)
        self._embedder: Embedder = open_embedder(self._settings, notify)
        self._store: Store = open_store(self._settings, notify)

    def cache(self, dry_run: bool) -> Path | None:
        """Where a website's pages may be kept."""
        return None if dry_run else self._settings.home / "websites"

    def plan(self, source: Source, *, verbose: bool, as_json: bool) -> Exit:
        """Print what a run would do."""
        with progress.shown() as watcher:
            plan = plan_book(
                self._work(source), self._store, self._collection, journal=self._journal, progress=watcher
            )
        estimate = (
            self._embedder.estimate(plan.texts, plan.tokens) if isinstance(self._embedder, Metered) else None
        )
        self._tell_of(plan)
        if as_json:
            click.echo(plan_json(plan, self._collection, estimate))
        else:
            click.echo(plan_text(plan, self._collection, estimate, verbose=verbose))
        return Exit.NO_RESULTS if plan.failed else Exit.OK

    def run(self, source: Source) -> IndexReport:
        """Index a source under the collection's name and the further names it should have."""
        try:
            with progress.shown() as watcher:
                report = index_book(
                    self._work(source), self._store, self._collection, journal=self._journal, progress=watcher
                )
        except KeyboardInterrupt:
            notify(
                "What was embedded is kept: the same command goes on from there. The old index is untouched."
            )
            raise
        self._point()
        self._tell_of(report.plan)
        for note in report.notes:
            notify(note)
        return report

    @property
    def _journal(self) -> Path:
        return self._settings.home / "journal"

    def _work(self, source: Source) -> IndexJob:
        from recto.evaluation.calibration import calibrate

        request = self._request
        return IndexJob(
            source,
            self._embedder,
            modules=request.modules,
            rebuild=request.rebuild,
            calibrate=calibrate,
        )

    def _point(self) -> None:
        store, name = self._store, self._collection
        if self._request.sample:
            known = store.aliases()  # names that lead to a book of the user's own stay
            store.set_aliases(
                [alias for alias in DEFAULT_COLLECTIONS if known.get(alias, name) == name], name
            )
        elif self._request.collection is None and self._settings.collection is None:
            # The book without a name of its own is the one that every surface's default name means.
            store.set_aliases(DEFAULT_COLLECTIONS, name)

    def _tell_of(self, plan: Plan) -> None:
        for note in notes(plan):
            notify(note)
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
