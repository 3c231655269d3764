"""`recto index` and `recto watch`: index a book, show the progress, and report it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic, perf_counter, sleep
from typing import TYPE_CHECKING, Any

import click

from recto._util.text import plural
from recto.cli import (
    INDEX_EXIT_CODES,
    Exit,
    close_later,
    confirm_endpoint,
    echo,
    emit,
    notify,
    one_line,
    options,
    table,
    use_exit_codes,
    warn,
)
from recto.errors import InvalidArgument, RectoError, UrlsChange
from recto.settings import SAMPLE_COLLECTION

if TYPE_CHECKING:
    from recto.api import IndexRunner
    from recto.indexing.indexer import IndexProgress, IndexReport, ProgressCallback
    from recto.indexing.planner import Plan
    from recto.protocols import Source
    from recto.types.index import CostEstimate

_EPILOG = """\b
Examples:
  recto index ./docs --collection my-book
  recto index https://example.org/book/ --collection my-book
  recto index ./docs --collection my-book --dry-run
"""
_SITE_SETTINGS = (".json", ".yml", ".yaml", ".toml", ".js", ".ts", ".mjs", ".cjs", ".mts", ".cts")
_SETTLE_SECONDS = 0.3  # without a change; then the author has finished saving
_LOG_SECONDS = 5.0
_LOG_SHARE = 0.02  # a line every tenth of the time so far: a run of an hour prints some 40 lines
_MAX_NOTES = 10


@click.command(epilog=_EPILOG)
@click.argument("location", metavar="[PATH_OR_URL]", required=False)
@click.option("--sample", is_flag=True, help="Index the sample book that comes with Recto.")
@click.option("--dry-run", is_flag=True, help="Show what would be done and what it costs; write nothing.")
@click.option("--rebuild", is_flag=True, help="Embed everything again, not only what changed.")
@options.index_options
@options.crawl_options
@click.option("--verbose", is_flag=True, help="List every page with its URL and state.")
@options.as_json
def index(
    location: str | None,
    sample: bool,
    dry_run: bool,
    rebuild: bool,
    collection: str | None,
    modules: tuple[str, ...],
    new_urls: bool,
    verbose: bool,
    as_json: bool,
    **source_options: Any,
) -> Exit:
    """Index a book: the source of a site (Docusaurus, MkDocs, mdBook and others), files, or a website.

    The URL of a public git repository is cloned.

    Only new and changed text is embedded. Pages that are gone are removed; pages that cannot be read keep
    their old version. Searches use the old index until the new one is complete. Options that are not given
    are the same as in the last run of the book.

    Exits with 1 if some pages, or most files of the book, could not be read, 2 for a configuration error, 3
    if a service or website cannot be reached, and 4 for any other error.
    """
    use_exit_codes(INDEX_EXIT_CODES)
    if sample == (location is not None):
        raise InvalidArgument(
            "Give either the path or URL of a book, or --sample", hint="Try `recto index ./docs`."
        )
    from recto.api import SourceOptions, sample_source
    from recto.protocols import embedder_abilities

    names = options.split_names(modules)
    runner = open_runner(collection, names, sample=sample, rebuild=rebuild, new_urls=new_urls)
    if location is None:
        source = sample_source()
    else:
        source = runner.open(location, SourceOptions(**source_options), notify, cached=not dry_run)
    if dry_run:
        with index_progress() as progress:
            plan = runner.plan(source, progress)
        _print_notes(plan)
        name, estimate = runner.collection(source), embedder_abilities(runner.embedder).estimate
        cost = estimate(plan.texts, plan.tokens) if estimate else None
        data = plan_data(plan, name, cost)
        lines = plan_lines(plan, name, cost, verbose=verbose)
    else:
        began = perf_counter()
        report = run_index(runner, source)
        plan, seconds = report.plan, perf_counter() - began
        data = report_data(report, seconds)
        lines = report_lines(report, seconds, verbose=verbose)
    emit(data, lines, as_json=as_json)
    return Exit.NO_RESULTS if plan.failed else Exit.OK


@click.command()
@click.argument("path")
@options.index_options
@options.number(
    "--interval", click.FloatRange(0.05, 3600), 0.5, "SECONDS", "Time between two checks of the files."
)
def watch(
    path: str,
    collection: str | None,
    modules: tuple[str, ...],
    new_urls: bool,
    interval: float,
    **source_options: Any,
) -> Exit:
    """Index the book at PATH, and again whenever a file changes, until Ctrl-C.

    Running searches and servers use each new index without a restart.
    """
    use_exit_codes(INDEX_EXIT_CODES)
    from recto.api import SourceOptions
    from recto.book.sources import WEBSITE_SCHEMES, scheme_of

    if scheme := scheme_of(path):
        raise InvalidArgument(
            f"A {'website' if scheme in WEBSITE_SCHEMES else 'book that is not on disk'} cannot be watched",
            hint="Run `recto index` again: it reads only pages that changed.",
        )
    files = WatchedFiles(Path(path))
    runner = open_runner(collection, options.split_names(modules), new_urls=new_urls)
    chosen = SourceOptions(**source_options)
    notify(f"Watching {files.root}. Press Ctrl-C to stop.")
    while True:
        state = files.state()
        began = perf_counter()
        try:
            source = runner.open(path, chosen, notify, cached=False)
            chosen = chosen.repeating(source.info.options)
            report = run_index(runner, source)
        except RectoError as error:
            warn(f"{error}. {error.hint}".strip())
        else:
            if report.published:
                echo(report_line(report, perf_counter() - began))
            included = getattr(source, "included_files", {})
            files.included = {str(file): seen for file, seen in included.items()}
            state = files.included | state
        files.wait_for_change(state, interval)


def open_runner(
    collection: str | None,
    modules: tuple[str, ...],
    *,
    sample: bool = False,
    rebuild: bool = False,
    new_urls: bool = False,
) -> IndexRunner:
    """Open the configured embedder and store for indexing; they are closed at the end of the command."""
    from recto.api import IndexRunner, open_embedder, open_store
    from recto.contracts import DEFAULT_COLLECTIONS
    from recto.settings import load_settings

    if sample and collection is not None:
        raise InvalidArgument("--sample has its own collection", hint="Leave out --collection.")
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
    kept = [page.path for page in plan.pages if page.state == "kept"]
    for failure in plan.failed:
        warn(f"{'Kept the old version of' if any(map(failure.covers, kept)) else 'Left out'} {failure}")
    for note in plan.notes[:_MAX_NOTES]:
        notify(note)
    if (more := len(plan.notes) - _MAX_NOTES) > 0:
        notify(f"... and {more} more; --json has them all.")


_FileState = dict[str, tuple[int, int]]


class WatchedFiles:
    """The files of a book, the files that they include, and the site's settings in the parent directory."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise InvalidArgument(
                f"{path} does not exist", hint="Give the directory that contains the pages of the book."
            )
        self.root = path.resolve()
        self.included: _FileState = {}

    def state(self) -> _FileState:
        """Return the modification time and the size of every file."""
        state: _FileState = {}
        for file in self._files():
            with suppress(OSError):  # deleted in the meantime
                status = os.stat(file)
                state[file] = (status.st_mtime_ns, status.st_size)
        return state

    def wait_for_change(self, before: _FileState, interval: float) -> None:
        """Return when the files differ from a state and no longer change."""
        while (now := self.state()) == before:
            sleep(interval)
        while True:
            sleep(_SETTLE_SECONDS)
            if now == (now := self.state()):
                return

    def _files(self) -> Iterator[str]:
        from recto.book.parsing import page_suffixes
        from recto.book.sources.tree import SKIPPED

        watched = (*page_suffixes(), *_SITE_SETTINGS)
        if self.root.is_file():
            yield str(self.root)
        for folder, names, files in os.walk(self.root):
            names[:] = [name for name in names if name not in SKIPPED and not name.startswith(".")]
            for name in files:
                if name.lower().endswith(watched):
                    yield os.path.join(folder, name)  # noqa: PTH118 - faster than Path
        for entry in os.scandir(self.root.parent):
            if entry.name.lower().endswith(_SITE_SETTINGS):
                yield entry.path
        yield from self.included


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
        if plan.is_local and info.collection != SAMPLE_COLLECTION:
            yield "Results have no published addresses. To give them one, run the command again with"
            yield "  --site-url https://ADDRESS-OF-THE-BOOK/"
    else:
        index = f"{pages}, {chunks} in '{info.collection}' ({info.generation})"
        yield f"Nothing has changed: {index}, checked in {seconds:.1f}s"
    if verbose:
        yield from _page_lines(plan)


def report_line(report: IndexReport, seconds: float) -> str:
    """Return one line about a run of `recto watch`."""
    changed = [page.path for page in report.plan.pages if page.state in ("new", "changed", "gone")]
    names = ", ".join(changed[:3]) + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
    embedded = f"{plural(report.plan.texts, 'chunk')} embedded in {seconds:.1f}s"
    return f"{report.info.generation}: {names or 'settings'}; {embedded}"


def _change_lines(plan: Plan) -> list[str]:
    states = ", ".join(f"{count} {state}" for state, count in plan.states().items() if count)
    return [
        f"  Pages: {states}",
        f"  Chunks: {plan.texts} to embed ({plural(plan.tokens, 'token')}), {plan.reused} reused",
    ]


def _module_lines(plan: Plan) -> list[str]:
    counts = plan.modules()
    rows = [
        (name, *map(str, counts[name]), one_line(title) if title != name else "")
        for name, title in plan.module_titles()
    ]
    return table(("Module", ">Pages", ">Chunks", "Title"), rows, "  ")


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
        "states": plan.states(),
        "embedded": {"texts": plan.texts, "tokens": plan.tokens},
        "reused": plan.reused,
        "modules": {name: chunks for name, (_, chunks) in plan.modules().items()},
        "module_titles": dict(plan.module_titles()),
        "failed": [str(failure) for failure in plan.failed],
        "notes": list(plan.notes),
    }


@contextmanager
def index_progress() -> Iterator[ProgressCallback]:
    """Show the progress of an index run: a bar on a terminal, else a line every few seconds."""
    if not sys.stderr.isatty():
        yield _progress_lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    text = TextColumn("{task.description}")
    columns = (SpinnerColumn(), text, BarColumn(bar_width=24), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("Reading the book", total=None)

        def update(now: IndexProgress) -> None:
            bar.update(task, description=_progress_text(now), total=now.expected or None, completed=now.done)

        yield update


def _progress_lines() -> ProgressCallback:
    """Return a callback that prints lines, less and less often; a short run prints none."""
    began = printed_at = monotonic()

    def update(now: IndexProgress) -> None:
        nonlocal printed_at
        elapsed = monotonic() - began
        if monotonic() >= printed_at + _LOG_SECONDS * max(1, _LOG_SHARE * elapsed):
            notify(_progress_text(now) + _time_left(now, elapsed))
            printed_at = monotonic()

    return update


def _time_left(now: IndexProgress, seconds: float) -> str:
    """Return about how long the rest takes, if it can be estimated: embedding takes the time."""
    if not now.expected or not now.done:
        return ""
    left = seconds * (now.expected - now.done) / now.done
    return f", about {plural(round(left / 60), 'minute')} left" if left > 60 else f", about {left:.0f} s left"


def _progress_text(now: IndexProgress) -> str:
    pages, chunks = plural(now.pages, "page"), plural(now.chunks, "chunk")
    if now.plan is not None:
        return f"{pages}, {now.done} of {chunks}"
    return f"Reading: {pages}, {chunks}{f', {now.done} embedded' if now.done else ''}"
