"""`recto`: the product's command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from recto import __version__
from recto.cli import options
from recto.cli.commands import search as commands
from recto.cli.runner import entry
from recto.errors import InvalidArgument
from recto.types import Mode

_HELP = {"help_option_names": ["-h", "--help"]}


@click.group(context_settings=_HELP, epilog="Settings come from the environment and .env; see the README.")
@click.version_option(__version__, prog_name="recto")
def recto() -> None:
    """Find the right page of a textbook, and prove it."""


@recto.command()
@click.argument("query", default="")
@options.top_k
@options.module
@options.url
@options.min_score
@options.mode
@click.option(
    "--by-page",
    is_flag=True,
    help="Show the best pages with their matching sections, instead of single chunks.",
)
@options.collection
@options.verbose
@options.as_json
def search(
    query: str,
    top_k: int,
    modules: tuple[str, ...],
    url: str | None,
    min_score: float | None,
    mode: Mode,
    by_page: bool,
    collection: str | None,
    verbose: bool,
    as_json: bool,
) -> int:
    """Find the chunks of the book that answer QUERY."""
    filters = options.filters_of(modules, url)
    return commands.search(
        query,
        top_k,
        filters,
        min_score,
        collection,
        mode=mode,
        by_page=by_page,
        verbose=verbose,
        as_json=as_json,
    )


@recto.command(short_help="Ask one question after the other; for trying things out.")
@options.top_k
@options.module
@options.url
@options.min_score
@options.mode
@options.collection
@options.verbose
@options.as_json
def shell(
    top_k: int,
    modules: tuple[str, ...],
    url: str | None,
    min_score: float | None,
    mode: Mode,
    collection: str | None,
    verbose: bool,
    as_json: bool,
) -> int:
    """Ask one question after the other, with filters, selected text and the reasons for an answer; `:help` lists what it knows.

    Questions may also come from a pipe or a file. Then it exits with 0 if every line was answered, else with the exit code that the first
    line that failed would have given `recto search`.
    """
    from recto.cli.commands import shell as tester

    filters = options.filters_of(modules, url)
    return tester.shell(top_k, filters, min_score, collection, mode=mode, verbose=verbose, as_json=as_json)


@recto.command(short_help="Ask questions whose answers are known, and measure.")
@options.suite
@options.collection
@options.top_k
@click.option(
    "--baseline",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Compare with the answers in this file.",
)
@click.option("--update-baseline", is_flag=True, help="Write this run's answers to the baseline file.")
@click.option(
    "--gate",
    "gates",
    multiple=True,
    metavar="EXPR",
    help='The least that a measure has to be: "Hit@5>=0.9". May be repeated.',
)
@click.option("--compare", metavar="COLLECTION", help="Compare with the answers of this collection.")
@click.option(
    "--compare-setting",
    "compare_settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting for that collection alone, as in the environment: RECTO_PROFILE=embedded, RECTO_MODEL=…. May be repeated.",
)
@click.option(
    "--measure",
    "measures",
    multiple=True,
    metavar="NAME",
    help="What to measure, such as nDCG@10. May be repeated.",
)
@click.option(
    "--tag",
    "tags",
    multiple=True,
    metavar="TAG",
    help="Only questions with this tag; give it again for any of several.",
)
@click.option(
    "--noise-floor",
    type=click.FloatRange(-1, 1),
    metavar="SCORE",
    help="Pass 'nothing' questions below this; default: the index's own level.",
)
@click.option(
    "--junit",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write the outcome of every question as JUnit XML.",
)
@options.html
@options.mode
@click.option("--verbose", is_flag=True, help="Show every question with what was found.")
@options.as_json
def validate(
    suite: Path | None, collection: str | None, verbose: bool, as_json: bool, top_k: int, **asked: Any
) -> int:
    """Ask questions whose answers are known, measure the answers, and compare them with earlier ones or another index.

    Without any option: the five questions of the query contract. Exits with 5 if fewer than 80 % pass (or what --gate asks is not met), if
    a measure is significantly worse than in what it is compared with, or if an expected place is not in the index.
    """
    by_default = click.get_current_context().get_parameter_source("mode") is ParameterSource.DEFAULT
    if suite is None and by_default and not any(value for name, value in asked.items() if name != "mode"):
        return commands.validate(None, collection, verbose=verbose, as_json=as_json)
    from recto.cli.commands import validate as validating

    return validating.validate(
        validating.Request(suite, collection, top_k, **asked), verbose=verbose, as_json=as_json
    )


@recto.group()
def suite() -> None:
    """Check a suite of questions, or draft one from an index."""


@suite.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--collection", metavar="NAME", help="Also look up every expected place in this collection.")
@options.as_json
def lint(file: Path, collection: str | None, as_json: bool) -> int:
    """List all that is wrong with the suite in FILE, with its place.

    Exits with 5 if anything is wrong; what is only doubtful is a warning.
    """
    from recto.cli.commands import suite as suites

    return suites.lint(file, collection, as_json=as_json)


@suite.command(short_help="Draft a suite from an index, for a person to go through.")
@options.collection
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where to write it; default: standard output.",
)
@click.option(
    "--count",
    type=click.IntRange(1, 10_000),
    default=50,
    show_default=True,
    metavar="INT",
    help="How many questions at most.",
)
@click.option("--force", is_flag=True, help="Overwrite FILE.")
def new(collection: str | None, out: Path | None, count: int, force: bool) -> int:
    """Draft a suite from an index: definitions, headings and identifiers, turned into questions, for a person to go through."""
    from recto.cli.commands import suite as suites

    return suites.new(collection, out, count, force=force)


@recto.command(short_help="Index a book: a site, a tree of Markdown, or a website.")
@click.argument("location", metavar="[PATH_OR_URL]", required=False)
@options.target
@click.option("--sample", is_flag=True, help="Index the sample book that comes with Recto.")
@options.indexed_modules
@click.option(
    "--dry-run",
    is_flag=True,
    help="Only say what would be done: pages, passages, tokens, calls, cost. Nothing is written.",
)
@click.option(
    "--rebuild",
    is_flag=True,
    help="Embed everything again and write it beside the old index, instead of only what changed.",
)
@options.site
@options.crawl
@click.option("--verbose", is_flag=True, help="List every page with its address and what happened to it.")
@options.as_json
def index(
    location: str | None,
    collection: str | None,
    sample: bool,
    modules: tuple[str, ...],
    dry_run: bool,
    rebuild: bool,
    verbose: bool,
    as_json: bool,
    **settings: Any,
) -> int:
    """Index a book: a Docusaurus or MkDocs site, a tree of Markdown or MDX files, or a website.

    Only what has changed since the last run is embedded; pages that are gone leave the index, pages that cannot be read keep their old
    version. Readers see the old index until the new one is complete.

    Exits with 0 if all went well, 1 if some pages could not be read, 2 for a wrong configuration, 3 if a service or website cannot be
    reached, 4 for anything else that stops it.
    """
    from recto.cli.commands import index as indexing

    request = indexing.Request(
        location,
        options.opening(**settings),
        collection,
        options.names_of(modules),
        sample=sample,
        rebuild=rebuild,
    )
    return indexing.index(request, dry_run=dry_run, verbose=verbose, as_json=as_json)


@recto.command(short_help="Index the book at PATH, again whenever it changes.")
@click.argument("path")
@options.target
@options.indexed_modules
@options.site
@click.option(
    "--interval",
    type=click.FloatRange(0.05, 3600),
    default=0.5,
    show_default=True,
    metavar="SECONDS",
    help="Wait between looks at the files.",
)
def watch(
    path: str, collection: str | None, modules: tuple[str, ...], interval: float, **settings: Any
) -> int:
    """Index the book at PATH, and again whenever it changes, until Ctrl-C.

    Programs that search the collection see each new state without a restart.
    """
    from recto.cli.commands import index as indexing

    return indexing.watch(
        indexing.Request(path, options.opening(**settings), collection, options.names_of(modules)), interval
    )


@recto.command()
@options.as_json
def collections(as_json: bool) -> int:
    """List what is indexed."""
    from recto.cli.commands import collections as listing

    return listing.collections(as_json=as_json)


@recto.command()
@click.argument("collection")
def rollback(collection: str) -> int:
    """Go back to the index before the current one of COLLECTION."""
    from recto.cli.commands import collections as listing

    return listing.rollback(collection)


@recto.command(short_help="Copy an embedded index to the server at QDRANT_URL.")
@options.collection
@click.option("--to", metavar="NAME", help="The collection's name on the server; default: the same.")
@options.as_json
def promote(collection: str | None, to: str | None, as_json: bool) -> int:
    """Copy an embedded index to the Qdrant server at QDRANT_URL, and check that both answer alike."""
    from recto.cli.commands import server

    return server.promote(collection, to, as_json=as_json)


@recto.command(short_help="Compare the answers of embedded index and server.")
@options.suite
@options.collection
@options.top_k
@options.as_json
def parity(suite: Path | None, collection: str | None, top_k: int, as_json: bool) -> int:
    """Ask the embedded index and the server's the same questions and print the differences.

    Exits with 5 if there are any.
    """
    from recto.cli.commands import server

    return server.parity(suite, collection, top_k, as_json=as_json)


@recto.command(short_help="Create payload indexes on a server's COLLECTION.")
@click.argument("collection", required=False)
def prepare(collection: str | None) -> int:
    """Create the payload indexes that filters need on a server's COLLECTION."""
    from recto.cli.commands import server

    return server.prepare(collection)


@recto.command(short_help="Say why QUERY is answered as it is.")
@click.argument("query", default="")
@click.option(
    "--expect",
    metavar="PAGE#ANCHOR",
    help="A place that should come: say at which rank it is, or why it cannot come.",
)
@click.option("--passage", metavar="TEXT", help="A text that should come, quoted from the book.")
@options.top_k
@options.module
@options.url
@options.mode
@options.collection
@options.as_json
def explain(
    query: str,
    expect: str | None,
    passage: str | None,
    top_k: int,
    modules: tuple[str, ...],
    url: str | None,
    mode: Mode,
    collection: str | None,
    as_json: bool,
) -> int:
    """Say why QUERY is answered as it is: scores, matched words, near misses, time; and where an expected place is.

    For an expected place, it shows the rank by meaning (dense) and by words (lexical), and which words of the query it has.

    Exits with 0 if what was expected is among the results, with 1 if not.
    """
    from recto.cli.commands import explain as explaining

    filters = options.filters_of(modules, url)
    return explaining.explain(query, top_k, filters, expect, passage, collection, mode=mode, as_json=as_json)


@recto.command(short_help="List the sections that their own headings do not find.")
@options.collection
@click.option(
    "--fail-under",
    type=float,
    metavar="PERCENT",
    help="Exit with 5 if fewer sections than this can be reached.",
)
@click.option("--verbose", is_flag=True, help="List every section that is told of.")
@options.html
@options.mode
@options.as_json
def coverage(
    collection: str | None,
    fail_under: float | None,
    verbose: bool,
    html: Path | None,
    mode: Mode,
    as_json: bool,
) -> int:
    """Ask for every heading by its own text and first sentence, and list those that are not found."""
    from recto.cli.commands import coverage as covering

    return covering.coverage(collection, fail_under, html, mode, verbose=verbose, as_json=as_json)


@recto.command(short_help="Measure below which score a hit means nothing.")
@options.collection
@options.as_json
def calibrate(collection: str | None, as_json: bool) -> int:
    """Measure where noise ends: below which score a hit means nothing in this book. `recto index` does it by itself."""
    from recto.cli.commands import coverage as covering

    return covering.calibrate(collection, as_json=as_json)


@recto.command(short_help="Examine everything, say what is wrong and what repairs it.")
@options.collection
@click.option(
    "--all", "everything", is_flag=True, help="Check every passage of a large index, not only a part."
)
@options.as_json
def doctor(collection: str | None, everything: bool, as_json: bool) -> int:
    """Examine settings, services, index and text; say what is wrong and which command repairs it.

    Exits with 0 if all is well, 1 if there are warnings, 2 for an error of the configuration, 3 if a service or the disk cannot be
    used, 5 if what is indexed is damaged.
    """
    from recto.cli.commands import doctor as doctoring

    return doctoring.doctor(collection, everything=everything, as_json=as_json)


@recto.command(short_help="Answer searches over HTTP, with a page at /.")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Where to listen; any but loopback wants a key.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    metavar="INT",
    help="The port; 0 is any free one.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    metavar="INT",
    help="Processes that answer.",
)
@click.option(
    "--collection",
    "collections",
    multiple=True,
    metavar="NAME",
    help="Serve this one. May be repeated; the first is the default.",
)
@click.option(
    "--allow-public", is_flag=True, help="Let anyone who can reach the service ask it, without a key."
)
@click.option(
    "--allowed-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="Answer to this host name too. May be repeated.",
)
@click.option(
    "--cors-origin",
    "origins",
    multiple=True,
    metavar="ORIGIN",
    help="Let web pages of this origin ask. May be repeated.",
)
@click.option(
    "--rate",
    type=click.IntRange(0),
    metavar="INT",
    help="Requests a minute for each key, or each address without keys; default no limit.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    metavar="INT",
    help="Requests at once, per worker.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0.1),
    default=15,
    show_default=True,
    metavar="SECONDS",
    help="How long a request may take.",
)
@click.option(
    "--drain",
    type=click.FloatRange(1),
    default=20,
    show_default=True,
    metavar="SECONDS",
    help="How long SIGTERM waits.",
)
def serve(**flags: Any) -> int:
    """Answer searches over HTTP, for programs and for people: POST /retrieve, and a page at /.

    Keys are read from RECTO_API_KEY, several separated by commas.
    """
    from recto.cli.commands import serve as serving

    return serving.serve(**flags)


@recto.command()
@click.option("--http", is_flag=True, help="Serve over HTTP (at /mcp) instead of standard input and output.")
@click.option(
    "--host",
    metavar="ADDRESS",
    help="With --http: where to listen; default 127.0.0.1. Others need RECTO_API_KEY.",
)
@click.option("--port", type=click.IntRange(0, 65535), metavar="INT", help="With --http: default 8001.")
@options.collection
def mcp(http: bool, host: str | None, port: int | None, collection: str | None) -> int:
    """Serve the book to agents, by the Model Context Protocol."""
    if not http and (host is not None or port is not None):
        raise InvalidArgument("--host and --port are for --http", hint="Add --http, or leave them out.")
    from recto.cli.commands import serve as serving

    return serving.mcp(collection, host or "127.0.0.1", 8001 if port is None else port, http=http)


main = entry(recto, "recto")
