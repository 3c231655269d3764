"""`recto judge`."""

from __future__ import annotations

from pathlib import Path

import click

from recto._util.text import plural
from recto.cli import options
from recto.cli.runner import Exit, connect_all, notify
from recto.errors import missing_extra


@click.command()
@click.argument("suite", type=click.Path(path_type=Path))
@options.collection
@options.indexes("Also pool the results of this collection, opened with these settings.")
@options.modes("Pool only the results of these modes: dense, lexical, hybrid.")
@click.option(
    "--depth",
    type=click.IntRange(1, 100),
    default=10,
    show_default=True,
    metavar="INT",
    help="Pool so many results of each configuration.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default=True,
    metavar="INT",
    help="Port to listen on; 0 chooses a free one.",
)
def judge(
    suite: Path,
    collection: str | None,
    indexes: tuple[str, ...],
    modes: tuple[str, ...],
    depth: int,
    port: int,
) -> Exit:
    """Grade the results for the questions in SUITE, on a page in your browser.

    The results of all modes and collections are pooled, and the page does not say which of them found what.
    Grades are written into SUITE.
    """
    from recto.evaluation.pooling import PooledSearch, load_judged_suite, pool

    try:
        from recto.server.judge import Judging, serve_judging
    except ModuleNotFoundError as error:
        raise missing_extra("`recto judge`", "serve") from error
    chosen, others = options.parse_modes(modes), [options.parse_index(index) for index in indexes]
    questions = load_judged_suite(suite)
    with connect_all(collection, others) as retrievers:
        configurations = [PooledSearch(one, mode) for one in retrievers for mode in chosen]
        notify(f"Searching for {plural(len(questions.expectations), 'question')}.")
        serve_judging(Judging(suite, pool(questions, configurations, depth)), port, notify)
    return Exit.OK
