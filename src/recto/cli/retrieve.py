"""`retrieve.py`: document 000's command."""

from __future__ import annotations

from pathlib import Path

import click

from recto.cli import options
from recto.cli.runner import Exit, connect, make_main, print_results
from recto.contracts import QUERY_COLLECTION
from recto.errors import InvalidArgument
from recto.search.query import CONTRACT_MODES, FLAGS, check_query, check_search
from recto.types.search import Mode

_EPILOG = """\b
Examples:
  uv run python retrieve.py "What is ROS 2?"
  uv run python retrieve.py "robot navigation" --top-k 10
  uv run python retrieve.py "URDF" --module ros2 --top-k 3
  uv run python retrieve.py "digital twin" --json
  uv run python retrieve.py --validate

\b
Exit codes: 0 results, 1 no results, 2 configuration, 3 connection or storage,
4 invalid argument, 5 validation below 80 %.
"""


@click.command(epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("query", default="")
@options.top_k
@options.module
@options.url
@options.min_score
@click.option(
    "--mode",
    type=click.Choice(CONTRACT_MODES),
    default="dense",
    show_default=True,
    help="Rank by vector similarity (dense), or by similarity and BM25 (hybrid).",
)
@options.collection
@click.option(
    "--validate", "validating", is_flag=True, help="Run the validation test suite instead of a query."
)
@options.suite
@options.verbose
@options.as_json
def retrieve(
    query: str,
    top_k: int,
    modules: tuple[str, ...],
    url: str | None,
    min_score: float | None,
    mode: Mode,
    collection: str | None,
    validating: bool,
    suite: Path | None,
    verbose: bool,
    as_json: bool,
) -> Exit:
    """Find the chunks of the book that answer QUERY."""
    if validating:
        from recto.cli.commands.validate import validate_contract

        program = ("python", "retrieve.py", "--validate")
        return validate_contract(suite, collection, program, verbose=verbose, as_json=as_json)
    if suite is not None:
        raise InvalidArgument("--suite goes with --validate", hint="Add --validate to run the suite.")
    filters = options.make_filters(modules, url)
    check_query(query)
    check_search(top_k, filters, min_score, FLAGS, mode)
    with connect(collection, default=QUERY_COLLECTION, single_query=True) as retriever:
        retriever.warm_up()  # so that the time shown is only for the query
        response = retriever.search(query, top_k, filters, min_score, mode=mode)
    from recto.cli import contract

    text = contract.results_json(response) if as_json else contract.results_text(response, verbose=verbose)
    return print_results(response, text)


main = make_main(retrieve, "retrieve.py")
