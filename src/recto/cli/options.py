"""Options that several commands share; values outside the contract are refused with its words."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from recto.errors import InvalidArgument
from recto.search.query import CONTRACT_MODES, DEFAULT_TOP_K, FLAGS, MAX_TOP_K, check_top_k
from recto.types import MODES, Filters

if TYPE_CHECKING:
    from recto.api import SourceOptions

Command = TypeVar("Command", bound=Callable[..., Any])


def _top_k(_context: click.Context, _parameter: click.Parameter, value: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,9}", value):
        raise InvalidArgument(
            f"--top-k must be between 1 and {MAX_TOP_K}", hint=f"{value[:40]!r} is not such a number."
        )
    check_top_k(int(value), name=FLAGS.top_k)
    return int(value)


top_k = click.option(
    "--top-k",
    callback=_top_k,
    metavar="INT",
    default=str(DEFAULT_TOP_K),
    show_default=True,
    help=f"Number of results to return (1-{MAX_TOP_K}).",
)
module = click.option(
    "--module",
    "modules",
    multiple=True,
    metavar="NAME",
    help="Only this module; give it again, or separate by commas, for any of several.",
)
url = click.option("--url", metavar="URL", help="Only the page with this address.")
min_score = click.option(
    "--min-score", type=float, metavar="SCORE", help="Only results with at least this score."
)
mode = click.option(
    "--mode",
    type=click.Choice(MODES),
    default="hybrid",
    show_default=True,
    help="Rank by similarity (dense), by words (lexical), or by both.",
)
contract_mode = click.option(
    "--mode",
    type=click.Choice(CONTRACT_MODES),
    default="dense",
    show_default=True,
    help="Rank by similarity (dense), or by words, too (hybrid).",
)
collection = click.option(
    "--collection", metavar="NAME", help="The collection to use instead of COLLECTION_NAME."
)
verbose = click.option("--verbose", is_flag=True, help="Show detailed output including chunk text.")
as_json = click.option("--json", "as_json", is_flag=True, help="Output as JSON.")
suite = click.option(
    "--suite",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Validate with the questions in this file.",
)
html = click.option(
    "--html",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write a report for a browser, in one file.",
)


target = click.option(
    "--collection",
    metavar="NAME",
    help="The name to publish under; default COLLECTION_NAME, else physical-ai-book.",
)
indexed_modules = click.option(
    "--module",
    "modules",
    multiple=True,
    metavar="NAME",
    help="Index only this module again; the others stay as they are. May be repeated.",
)


def site(command: Command) -> Command:
    """Add what a site's configuration may not tell."""
    group = (
        click.option(
            "--site-url",
            metavar="URL",
            help="Where the book is published, with its base path: https://example.org/book/.",
        ),
        click.option(
            "--route-base-path",
            metavar="PATH",
            help="Docusaurus: the part of the address before every page, as in its config.",
        ),
        click.option(
            "--trailing-slash/--no-trailing-slash",
            default=None,
            help="Docusaurus: whether addresses end with a slash.",
        ),
        click.option(
            "--docs-version",
            metavar="NAME",
            help="Docusaurus: the version to index; default the one that readers get.",
        ),
        click.option(
            "--locale", metavar="NAME", help="Docusaurus: the language to index; default the site's own."
        ),
    )
    return _with(command, group)


def crawl(command: Command) -> Command:
    """Add how a website is read."""
    group = (
        click.option(
            "--max-pages",
            type=click.IntRange(1, 1_000_000),
            metavar="INT",
            help="Website: how many pages at most; default 2000.",
        ),
        click.option(
            "--delay",
            type=click.FloatRange(0, 60),
            metavar="SECONDS",
            help="Website: wait between two requests; default 0.5.",
        ),
        click.option(
            "--allow-private",
            is_flag=True,
            help="Website: also read addresses of this machine and of private networks.",
        ),
    )
    return _with(command, group)


def opening(
    site_url: str | None,
    route_base_path: str | None,
    trailing_slash: bool | None,
    docs_version: str | None,
    locale: str | None,
    max_pages: int | None = None,
    delay: float | None = None,
    allow_private: bool = False,
) -> SourceOptions:
    """Gather the flags that say how a book is opened."""
    from recto.api import SourceOptions

    return SourceOptions(
        site_url, route_base_path, trailing_slash, docs_version, locale, max_pages, delay, allow_private
    )


def names_of(modules: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of modules, given one by one or separated by commas."""
    return tuple(name.strip() for group in modules for name in group.split(",")) if modules else ()


def filters_of(modules: tuple[str, ...], page_url: str | None) -> Filters:
    """Make the filters that the flags describe."""
    return Filters(names_of(modules), page_url)


def _with(command: Command, group: tuple[Callable[[Command], Command], ...]) -> Command:
    for option in reversed(group):
        command = option(command)
    return command
