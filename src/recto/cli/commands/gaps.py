"""`recto gaps`: what readers ask and the book does not answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recto._util.text import plural
from recto.cli import options
from recto.cli.output import echo, echo_json, one_line
from recto.cli.runner import Exit, connect, progress_bar, save_report
from recto.errors import InvalidArgument
from recto.settings import load_settings

if TYPE_CHECKING:
    from recto.evaluation.gaps import Asked, Cluster, Gaps
    from recto.search.retriever import Retriever

_MAX_EXAMPLES = 3


@click.command()
@options.collection
@options.log
@options.file_option("--queries", "Read queries from this file instead: one per line, or query, tab, count.")
@options.log_days
@click.option(
    "--count",
    type=click.IntRange(1, 1000),
    default=10,
    show_default=True,
    metavar="INT",
    help="Maximum number of clusters.",
)
@options.html
@options.as_json
def gaps(
    collection: str | None,
    log: Path | None,
    queries: Path | None,
    days: int | None,
    count: int,
    html: Path | None,
    as_json: bool,
) -> Exit:
    """Cluster the queries of readers by meaning, and list those that the book does not answer.

    The queries come from the query log of `recto serve`. They are searched for in the current index.
    """
    if queries is not None and (log is not None or days is not None):
        raise InvalidArgument("--queries replaces the log", hint="Leave out --log and --days.")
    from recto.evaluation import records
    from recto.evaluation.gaps import find_gaps, read_queries

    with connect(collection) as retriever:
        asked = read_queries(queries) if queries else asked_queries(retriever, log, days)
        with progress_bar("Searching for queries") as progress:
            found = find_gaps(retriever, asked, progress)
        info = retriever.open().info
    save_report(lambda home: records.keep_gaps(home, info, found, count))
    if html:
        from recto.evaluation.report import gaps_page

        records.write_file(html, gaps_page(found, info, count=count, when=datetime.now(UTC)))
    if as_json:
        echo_json(_data(found, count))
    else:
        echo(*_lines(found, count))
    return Exit.OK


def asked_queries(retriever: Retriever, log: Path | None, days: int | None) -> Asked:
    """Read the queries about a collection from the given or the configured log."""
    from recto.evaluation.gaps import names_of, read_asked

    place = log or load_settings().query_log.directory
    if place is None:
        raise InvalidArgument(
            "There is no query log: RECTO_QUERY_LOG is not set",
            hint="Run `recto serve --query-log DIRECTORY`, and pass the directory with --log.",
        )
    since = None if days is None else datetime.now(UTC) - timedelta(days=days)
    return read_asked(place, names_of(retriever.store, retriever.collection), since)


def _data(found: Gaps, count: int) -> dict[str, Any]:
    return {
        "collection": found.collection,
        "generation": found.generation,
        "queries": found.total,
        "distinct": found.distinct,
        "clusters": len(found.clusters),
        "without_text": found.without_text,
        "left_out": found.left_out,
        "gaps": [one.to_dict() for one in found.gaps[:count]],
        "unclicked": [one.to_dict() for one in found.unclicked[:count]],
    }


def _lines(found: Gaps, count: int) -> Iterator[str]:
    asked = plural(found.total, "query", "queries")
    clusters = plural(len(found.clusters), "cluster")
    yield f"{asked} about '{found.collection}' ({found.distinct} distinct) in {clusters}"
    if found.without_text:
        logged = plural(found.without_text, "query", "queries")
        yield f"Without text in the log, so not clustered: {logged}"
    if found.left_out:
        yield f"Rare queries that were left out: {found.left_out}"
    yield ""
    listed = found.gaps
    yield f"Not answered by the book: {plural(len(listed), 'cluster') if listed else 'none'}"
    yield from _listing(listed, count)
    if unclicked := found.unclicked:
        yield ""
        yield f"Answered, but no result was opened: {plural(len(unclicked), 'cluster')}"
        yield from _listing(unclicked, count)


def _listing(clusters: Sequence[Cluster], count: int) -> Iterator[str]:
    for number, cluster in enumerate(clusters[:count], 1):
        yield ""
        yield f"{number:3}. {one_line(cluster.label)}"
        yield f"     {', '.join(_signals(cluster))}"
        others = [text for text, _ in cluster.queries if text != cluster.label][:_MAX_EXAMPLES]
        if others:
            yield f"     Also asked: {'; '.join(map(one_line, others))}"
        for label, words in (
            ("Not in the book:", cluster.unknown_words),
            ("Not in the nearest section:", cluster.missing_words),
        ):
            if words:
                yield f"     {label} {', '.join(map(one_line, words))}"
        for section in cluster.nearest:
            yield f"     Near: {one_line(section.title)} ({one_line(section.url)}) {section.similarity:.3f}"
    if len(clusters) > count:
        yield ""
        yield f"{len(clusters) - count} more: see them with --count"


def _signals(cluster: Cluster) -> Iterator[str]:
    yield plural(cluster.count, "query", "queries")
    yield f"{cluster.unanswered:.0%} unanswered"
    if cluster.below_noise:
        yield f"{cluster.below_noise} below this book's noise floor"
    if cluster.no_click is not None:
        yield f"{cluster.no_click} without a click"
