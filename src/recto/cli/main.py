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
    return commands.search(query, top_k, options.filters_of(modules, url), min_score, collection, verbose=verbose, as_json=as_json)


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
@options.as_json
def index(path: Path | None, collection: str | None, sample: bool, as_json: bool) -> int:
    """Index the Markdown or MDX files below PATH.

    Readers see the old index until the new one is complete. Exits with 1 if some pages could not be read.
    """
    from recto.cli import indexing

    return indexing.index(path, collection, sample=sample, as_json=as_json)


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


main = entry(recto, "recto")
