"""What the query commands do, whatever their names and flags: `retrieve.py` and `recto` share it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recto.cli.running import Exit, tell, warn
from recto.settings import QUERY_COLLECTION, check_collection_name, load_settings

if TYPE_CHECKING:
    from recto.retriever import Retriever
    from recto.types import Filters


def connect(collection: str | None, changed: Mapping[str, str] | None = None, *, once: bool = False) -> Retriever:
    """Open the configured collection, indexing the sample book on the very first run; `changed` settings win over the environment's."""
    if collection is not None:
        check_collection_name(collection, "--collection")
    from recto.wiring import open_retriever

    settings = load_settings({**os.environ, **changed} if changed else None)
    return open_retriever(settings, QUERY_COLLECTION, tell, collection=collection, once=once, last=True)


def search(
    query: str,
    top_k: int,
    filters: Filters,
    min_score: float | None,
    collection: str | None,
    *,
    verbose: bool,
    as_json: bool,
    sections: bool = False,
) -> Exit:
    """Answer one question on standard output."""
    from recto.limits import FLAGS, check_query, check_search

    check_query(query)
    check_search(top_k, filters, min_score, FLAGS)
    with connect(collection, once=True) as retriever:
        retriever.warm_up()  # so that the time shown is the question's, on the first run and on every other
        response = retriever.search(query, top_k, filters, min_score)
    from recto.cli import render

    for warning in response.warnings:
        warn(warning)
    shown = (
        render.results_json(response, sections=sections) if as_json else render.results_text(response, verbose=verbose, sections=sections)
    )
    click.echo(shown)
    return Exit.OK if response.hits else Exit.NO_RESULTS


def validate(suite_file: Path | None, collection: str | None, *, verbose: bool, as_json: bool) -> Exit:
    """Run a suite and report on standard output."""
    from recto.evaluation.suite import documented_suite, load_suite

    suite = load_suite(suite_file) if suite_file else documented_suite()
    with connect(collection) as retriever:
        for warning in retriever.open().info.warnings:
            warn(warning)
        retriever.warm_up()  # so that the first question's time is a question's time
        from recto.evaluation import validation

        report = validation.validate(retriever, suite)
        info = retriever.open().info
    from recto import records
    from recto.cli.keeping import keep

    keep(lambda home: records.keep_report(home, info, report))
    from recto.cli import render

    click.echo(render.validation_json(report) if as_json else render.validation_text(report, verbose=verbose))
    return Exit.OK if report.sufficient else Exit.VALIDATION_FAILED
