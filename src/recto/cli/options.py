"""Options that several commands share; values outside the contract are refused with its words."""

from __future__ import annotations

import re
from pathlib import Path

import click

from recto.errors import InvalidArgument
from recto.limits import DEFAULT_TOP_K, MAX_TOP_K, check_top_k
from recto.types import Filters


def _top_k(_context: click.Context, _parameter: click.Parameter, value: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,9}", value):
        raise InvalidArgument(f"--top-k must be between 1 and {MAX_TOP_K}", hint=f"{value[:40]!r} is not such a number.")
    check_top_k(int(value))
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
    "--module", "modules", multiple=True, metavar="NAME", help="Only this module; give it again, or separate by commas, for any of several."
)
url = click.option("--url", metavar="URL", help="Only the page with this address.")
min_score = click.option("--min-score", type=float, metavar="SCORE", help="Only results with at least this score (a cosine).")
collection = click.option("--collection", metavar="NAME", help="The collection to use instead of COLLECTION_NAME.")
verbose = click.option("--verbose", is_flag=True, help="Show detailed output including chunk text.")
as_json = click.option("--json", "as_json", is_flag=True, help="Output as JSON.")
suite = click.option("--suite", type=click.Path(path_type=Path), metavar="FILE", help="Validate with the questions in this file.")


def filters_of(modules: tuple[str, ...], page_url: str | None) -> Filters:
    """Make the filters that the flags describe."""
    names = tuple(name.strip() for group in modules for name in group.split(",")) if modules else ()
    return Filters(names, page_url)
