"""Index a book for `recto index` and `recto watch`: run it, show the progress, and report it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import click

from recto._util.text import plural
from recto.api import IndexRunner, open_embedder, open_store
from recto.book.parsing import page_suffixes
from recto.book.sources.tree import SKIPPED
from recto.cli import close_later, confirm_endpoint, notify, one_line, warn
from recto.contracts import DEFAULT_COLLECTIONS
from recto.errors import InvalidArgument, UrlsChange
from recto.indexing.indexer import IndexProgress, IndexReport, ProgressCallback
from recto.indexing.planner import PageState, Plan
from recto.protocols import Metered, Source
from recto.settings import check_collection_name, load_settings
from recto.types.index import CostEstimate

_SITE_SETTINGS = (".json", ".yml", ".yaml", ".toml", ".js", ".ts", ".mjs", ".cjs", ".mts", ".cts")
_SETTLE_SECONDS = 0.3  # without a change; then the author has finished saving
_LOG_SECONDS = 5.0
_MAX_NOTES = 10


def open_runner(
    collection: str | None,
    modules: tuple[str, ...],
    *,
    sample: bool = False,
    rebuild: bool = False,
    new_urls: bool = False,
) -> IndexRunner:
    """Open the configured embedder and store for indexing; they are closed at the end of the command."""
    if sample and collection is not None:
        raise InvalidArgument("--sample has its own collection", hint="Leave out --collection.")
    if collection is not None:
        check_collection_name(collection, "--collection")
    settings = load_settings()
    confirm_endpoint(settings)
    embedder, store = open_embedder(settings, notify), open_store(settings, notify, close_at_exit=True)
    close_later(embedder, store)
    return IndexRunner(
        settings,
        embedder,
        store,
        collection,
        modules=modules,
        sample=sample,
        sample_names=DEFAULT_COLLECTIONS,
        rebuild=rebuild,
        new_urls=new_urls,
    )


def show_plan(runner: IndexRunner, source: Source) -> tuple[Plan, CostEstimate | None]:
    """Plan a run with its progress; return the plan and, if the embedder is metered, what it would cost."""
    with index_progress() as progress:
        plan = runner.plan(source, progress)
    _print_notes(plan)
    embedder = runner.embedder
    return plan, embedder.estimate(plan.texts, plan.tokens) if isinstance(embedder, Metered) else None


def run_index(runner: IndexRunner, source: Source) -> IndexReport:
    """Index a source, and print the progress and the notes; on a terminal, ask before URLs change."""
    try:
        with index_progress() as progress:
            report = runner.run(source, progress)
    except UrlsChange as error:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise
        warn(f"{error.message}.")
        if not click.confirm("Change the URLs?", err=True):
            raise
        with index_progress() as progress:
            report = replace(runner, new_urls=True).run(source, progress)
    _print_notes(report.plan)
    for note in report.notes:
        notify(note)
    return report


def _print_notes(plan: Plan) -> None:
    for note in plan.notes[:_MAX_NOTES]:
        notify(note)
    if (more := len(plan.notes) - _MAX_NOTES) > 0:
        notify(f"... and {more} more; --json has them all.")
    kept = [page.path for page in plan.pages if page.state is PageState.KEPT]
    for failure in plan.failed:
        warn(f"{'Kept the old version of' if any(map(failure.covers, kept)) else 'Left out'} {failure}")


_FileState = dict[str, tuple[int, int]]


class WatchedFiles:
    """The files of a book, the files that they include, and the site's settings in the parent directory."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise InvalidArgument(
                f"{path} does not exist", hint="Give the directory that contains the pages of the book."
            )
        self.root = path.resolve()
        self._included: tuple[str, ...] = ()

    def state(self) -> _FileState:
        """Return the modification time and the size of every file."""
        state: _FileState = {}
        for file in self._files():
            with suppress(OSError):  # deleted in the meantime
                status = os.stat(file)
                state[file] = (status.st_mtime_ns, status.st_size)
        return state

    def include(self, files: Mapping[Path, tuple[int, int]]) -> _FileState:
        """Also watch included files; return the state in which they were read."""
        self._included = tuple(map(str, files))
        return {str(file): seen for file, seen in files.items()}

    def wait_for_change(self, before: _FileState, interval: float) -> None:
        """Return when the files differ from a state and no longer change."""
        while (now := self.state()) == before:
            sleep(interval)
        while True:
            sleep(_SETTLE_SECONDS)
            if now == (now := self.state()):
                return

    def _files(self) -> Iterator[str]:
        if self.root.is_file():
            yield str(self.root)
        else:
            watched = (*page_suffixes(), *_SITE_SETTINGS)
            for folder, names, files in os.walk(self.root):
                names[:] = [name for name in names if name not in SKIPPED and not name.startswith(".")]
                for name in files:
                    if name.lower().endswith(watched):
                        yield os.path.join(folder, name)  # noqa: PTH118 - faster than Path
        for entry in os.scandir(self.root.parent):
            if entry.name.lower().endswith(_SITE_SETTINGS):
                yield entry.path
        yield from self._included


def plan_lines(plan: Plan, collection: str, estimate: CostEstimate | None, *, verbose: bool) -> Iterator[str]:
    """Yield the lines about what a run would do."""
    yield f"Plan for '{collection}' (nothing is written):"
    yield from _change_lines(plan)
    if estimate is None:
        yield "  Embedding: on this machine, at no cost"
    else:
        minutes = round(estimate.minutes)
        duration = "less than a minute" if estimate.minutes < 1 else f"about {plural(minutes, 'minute')}"
        cost = "price unknown" if estimate.dollars is None else f"about ${estimate.dollars:.4f}"
        yield f"  Embedding: {plural(estimate.calls, 'API call')}, {duration} at trial limits, {cost}"
    yield from _module_lines(plan)
    if verbose:
        yield from _page_lines(plan)


def report_lines(report: IndexReport, seconds: float, *, verbose: bool) -> Iterator[str]:
    """Yield the lines about a run."""
    plan, info = report.plan, report.info
    pages, chunks = plural(len(plan.indexed), "page"), plural(info.chunks, "chunk")
    if report.published:
        yield f"Indexed {pages} as {chunks} into '{info.collection}' ({info.generation}) in {seconds:.1f}s"
        yield from _change_lines(plan)
        yield from _module_lines(plan)
    else:
        index = f"{pages}, {chunks} in '{info.collection}' ({info.generation})"
        yield f"Nothing has changed: {index}, checked in {seconds:.1f}s"
    if verbose:
        yield from _page_lines(plan)


def report_line(report: IndexReport, seconds: float) -> str:
    """Return one line about a run of `recto watch`."""
    states = (PageState.NEW, PageState.CHANGED, PageState.GONE)
    changed = [page.path for page in report.plan.pages if page.state in states]
    names = ", ".join(changed[:3]) + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
    embedded = f"{plural(report.plan.texts, 'chunk')} embedded in {seconds:.1f}s"
    return f"{report.info.generation}: {names or 'settings'}; {embedded}"


def _change_lines(plan: Plan) -> list[str]:
    states = ", ".join(f"{plan.count(state)} {state}" for state in PageState if plan.count(state))
    return [
        f"  Pages: {states}",
        f"  Chunks: {plan.texts} to embed ({plural(plan.tokens, 'token')}), {plan.reused} reused",
    ]


def _module_lines(plan: Plan) -> Iterator[str]:
    counts, titles = plan.modules(), plan.module_titles()
    width = max([len("Module"), *(len(name) for name, _ in titles)])
    yield f"  {'Module':<{width}}  Pages  Chunks  Title"
    for name, title in titles:
        pages, chunks = counts[name]
        shown = one_line(title) if title != name else ""
        yield f"  {name:<{width}}  {pages:>5}  {chunks:>6}  {shown}".rstrip()


def _page_lines(plan: Plan) -> list[str]:
    return [f"  {page.state:<9}  {page.chunks:>4}  {page.path}  {page.url}" for page in plan.pages]


def plan_data(plan: Plan, collection: str, estimate: CostEstimate | None) -> dict[str, Any]:
    """Return the JSON about what a run would do."""
    cost = estimate and {
        "api_calls": estimate.calls,
        "trial_minutes": estimate.minutes,
        "dollars": estimate.dollars,
    }
    return {"collection": collection, "dry_run": True, **_counts(plan), "estimate": cost}


def report_data(report: IndexReport, seconds: float) -> dict[str, Any]:
    """Return the JSON about a run."""
    info = report.info
    return {
        "collection": info.collection,
        "generation": info.generation,
        "published": report.published,
        **_counts(report.plan),
        "noise_floor": info.noise_floor,
        "duration_s": round(seconds, 3),
        "fingerprint": info.fingerprint.summary() if info.fingerprint else None,
    }


def _counts(plan: Plan) -> dict[str, Any]:
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


@contextmanager
def index_progress() -> Iterator[ProgressCallback | None]:
    """Show the progress of an index run."""
    if sys.stderr.isatty():
        with _index_bar() as show:
            yield show
    else:
        yield _LogLines()


class _Speed:
    """Measures tokens per second and the remaining time."""

    def __init__(self) -> None:
        self._began = 0.0

    def text(self, now: IndexProgress) -> str:
        if not now.tokens:
            self._began = monotonic()
            return "nothing embedded yet" if now.plan is None or now.plan.tokens else "nothing to embed"
        speed = now.tokens / max(monotonic() - self._began, 1e-3)
        if now.plan is None:
            return f"{speed:,.0f} tokens/s"
        minutes, seconds = divmod(round(max(0, now.plan.tokens - now.tokens) / speed), 60)
        return f"{speed:,.0f} tokens/s, {minutes}:{seconds:02} left"


class _LogLines:
    """Prints a line every few seconds; a short run prints none."""

    def __init__(self) -> None:
        self._next = monotonic() + _LOG_SECONDS
        self._speed = _Speed()

    def __call__(self, now: IndexProgress) -> None:
        """Print the progress if it is time for a line."""
        speed = self._speed.text(now)
        if monotonic() < self._next:
            return
        notify(f"{_progress_text(now)}{f', {speed}' if now.plan or now.tokens else ''}")
        self._next = monotonic() + _LOG_SECONDS


def _progress_text(now: IndexProgress) -> str:
    pages, chunks = plural(now.pages, "page"), plural(now.chunks, "chunk")
    if now.plan is not None:
        return f"{pages}, {now.done} of {chunks}"
    return f"Reading: {pages}, {chunks}{f', {now.done} embedded' if now.done else ''}"


@contextmanager
def _index_bar() -> Iterator[ProgressCallback]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[speed]}"),
    )
    speed = _Speed()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("Reading the book", total=None, speed="")

        def update(now: IndexProgress) -> None:
            text = speed.text(now)
            if now.plan is None:
                bar.update(task, description=_progress_text(now), speed=text if now.tokens else "")
                return
            # Tokens take the time, so the bar counts them if there are any.
            total, completed = (now.plan.tokens, now.tokens) if now.plan.tokens else (now.chunks, now.done)
            bar.update(task, description=_progress_text(now), total=total, completed=completed, speed=text)

        yield update
