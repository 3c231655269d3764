"""`recto index` and `recto watch`."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Any

import click

from recto.cli import INDEX_EXIT_CODES, Exit, echo, emit, notify, options, use_exit_codes, warn
from recto.errors import InvalidArgument, RectoError

_EPILOG = """\b
Examples:
  recto index ./docs --collection my-book
  recto index https://example.org/book/ --collection my-book
  recto index ./docs --collection my-book --dry-run
"""


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

    Only new and changed text is embedded. Pages that are gone are removed; pages that cannot be read keep
    their old version. Searches use the old index until the new one is complete. Options that are not given
    are the same as in the last run of the book.

    Exits with 1 if some pages could not be read, 2 for a configuration error, 3 if a service or website
    cannot be reached, and 4 for any other error.
    """
    use_exit_codes(INDEX_EXIT_CODES)
    if sample == (location is not None):
        raise InvalidArgument(
            "Give either the path or URL of a book, or --sample", hint="Try `recto index ./docs`."
        )
    from recto.api import SourceOptions, sample_source
    from recto.cli import indexing

    names = options.split_names(modules)
    runner = indexing.open_runner(collection, names, sample=sample, rebuild=rebuild, new_urls=new_urls)
    if location is None:
        source = sample_source()
    else:
        source = runner.open(location, SourceOptions(**source_options), notify, cached=not dry_run)
    if dry_run:
        plan, estimate = indexing.show_plan(runner, source)
        name = runner.collection(source)
        data = indexing.plan_data(plan, name, estimate)
        lines = indexing.plan_lines(plan, name, estimate, verbose=verbose)
    else:
        began = perf_counter()
        report = indexing.run_index(runner, source)
        plan, seconds = report.plan, perf_counter() - began
        data = indexing.report_data(report, seconds)
        lines = indexing.report_lines(report, seconds, verbose=verbose)
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
    from recto.cli import indexing

    if scheme := scheme_of(path):
        raise InvalidArgument(
            f"A {'website' if scheme in WEBSITE_SCHEMES else 'book that is not on disk'} cannot be watched",
            hint="Run `recto index` again: it reads only pages that changed.",
        )
    files = indexing.WatchedFiles(Path(path))
    runner = indexing.open_runner(collection, options.split_names(modules), new_urls=new_urls)
    chosen = SourceOptions(**source_options)
    notify(f"Watching {files.root}. Press Ctrl-C to stop.")
    while True:
        state = files.state()
        began = perf_counter()
        try:
            source = runner.open(path, chosen, notify, cached=False)
            chosen = chosen.repeating(getattr(source, "index_options", ()))
            report = indexing.run_index(runner, source)
        except RectoError as error:
            warn(f"{error}. {error.hint}".strip())
        else:
            if report.published:
                echo(indexing.report_line(report, perf_counter() - began))
            state = files.include(getattr(source, "included_files", {})) | state
        files.wait_for_change(state, interval)
