"""`recto search`."""

from __future__ import annotations

import sys

import click

from recto.cli import options
from recto.cli.runner import Exit, connect, print_results
from recto.search.query import FLAGS, check_query, check_search
from recto.types.search import Mode

_EPILOG = """\b
Examples:
  recto search "What is ROS 2?"
  recto search "URDF" --module ros2 --top-k 3
  recto search "sensors" --by-page --collection my-book
"""


@click.command(epilog=_EPILOG)
@click.argument("query", default="")
@options.search_options
@click.option("--by-page", is_flag=True, help="Group the results by page.")
def search(
    query: str,
    top_k: int,
    modules: tuple[str, ...],
    url: str | None,
    lang: str | None,
    version: str | None,
    min_score: float | None,
    mode: Mode,
    collection: str | None,
    verbose: bool,
    as_json: bool,
    by_page: bool,
) -> Exit:
    """Search a book for the chunks that answer QUERY.

    Exits with 1 if there are no results.
    """
    filters = options.make_filters(modules, url, lang, version)
    check_query(query)
    check_search(top_k, filters, min_score, FLAGS, mode)
    with connect(collection, single_query=True) as retriever:
        retriever.warm_up()  # the time shown is that of the query alone
        response = retriever.search(
            query, top_k, filters, min_score, mode=mode, group_by="page" if by_page else None
        )
        from recto.search.display import response_words

        words = response_words(retriever, response)
    from recto.cli import render
    from recto.cli.output import one_line

    if as_json:
        return print_results(response, render.results_json(response, words))
    style = render.terminal_style() if sys.stdout.isatty() else render.Style()
    text = render.results(response, words, style, verbose=verbose)
    return print_results(response, f'Query: "{one_line(response.query)}"\n{text}', color=style.color)
