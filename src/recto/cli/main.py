"""`recto`: the product's command."""

from __future__ import annotations

from pathlib import Path

import click

from recto import __version__
from recto.cli import commands, options
from recto.cli.running import entry

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
@options.collection
@options.verbose
@options.as_json
def search(
    query: str,
    top_k: int,
    modules: tuple[str, ...],
    url: str | None,
    min_score: float | None,
    collection: str | None,
    verbose: bool,
    as_json: bool,
) -> int:
    """Find the passages of the book that answer QUERY."""
    return commands.search(
        query, top_k, options.filters_of(modules, url), min_score, collection, verbose=verbose, as_json=as_json, sections=True
    )


@recto.command()
@options.suite
@options.collection
@options.verbose
@options.as_json
def validate(suite: Path | None, collection: str | None, verbose: bool, as_json: bool) -> int:
    """Ask questions whose answers are known, and report how many come from the right place.

    Exits with 5 if fewer than 80 % do.
    """
    return commands.validate(suite, collection, verbose=verbose, as_json=as_json)


@recto.command()
@click.argument("path", type=click.Path(path_type=Path), required=False)
@click.option("--collection", metavar="NAME", help="The name to publish under; default COLLECTION_NAME, else physical-ai-book.")
@click.option("--sample", is_flag=True, help="Index the sample book that comes with Recto.")
@click.option("--rebuild", is_flag=True, help="On a server: write a new collection beside the old one and swap, instead of in place.")
@options.as_json
def index(path: Path | None, collection: str | None, sample: bool, rebuild: bool, as_json: bool) -> int:
    """Index the Markdown or MDX files below PATH.

    Readers see the old index until the new one is complete. Exits with 1 if some pages could not be read.
    """
    from recto.cli import indexing

    return indexing.index(path, collection, sample=sample, rebuild=rebuild, as_json=as_json)


@recto.command()
@options.as_json
def collections(as_json: bool) -> int:
    """List what is indexed."""
    from recto.cli import indexing

    return indexing.collections(as_json=as_json)


@recto.command()
@click.argument("collection")
def rollback(collection: str) -> int:
    """Go back to the index before the current one of COLLECTION."""
    from recto.cli import indexing

    return indexing.rollback(collection)


@recto.command()
@options.collection
@click.option("--to", metavar="NAME", help="The collection's name on the server; default: the same.")
@options.as_json
def promote(collection: str | None, to: str | None, as_json: bool) -> int:
    """Copy an embedded index to the Qdrant server at QDRANT_URL, and check that both answer alike."""
    from recto.cli import server

    return server.promote(collection, to, as_json=as_json)


@recto.command()
@options.suite
@options.collection
@options.top_k
@options.as_json
def parity(suite: Path | None, collection: str | None, top_k: int, as_json: bool) -> int:
    """Ask the embedded index and the server's the same questions and print the differences.

    Exits with 5 if there are any.
    """
    from recto.cli import server

    return server.parity(suite, collection, top_k, as_json=as_json)


@recto.command()
@click.argument("collection", required=False)
def prepare(collection: str | None) -> int:
    """Create the payload indexes that filters need on a server's COLLECTION."""
    from recto.cli import server

    return server.prepare(collection)


main = entry(recto, "recto")
