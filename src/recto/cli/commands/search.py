"""What the query commands do: `retrieve.py` in the contract's formats, `recto search` in the product's."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recto.cli.runner import Exit, notify, warn
from recto.settings import QUERY_COLLECTION, check_collection_name, load_settings

if TYPE_CHECKING:
    from recto.search.retriever import Retriever
    from recto.types import Filters, Mode, SearchResponse


def connect(
    collection: str | None, changed: Mapping[str, str] | None = None, *, single_query: bool = False
) -> Retriever:
    """Open the configured collection, indexing the sample book on the very first run; `changed` settings win over the environment's."""
    if collection is not None:
        check_collection_name(collection, "--collection")
    from recto.api import open_retriever

    settings = load_settings({**os.environ, **changed} if changed else None)
    return open_retriever(
        settings,
        QUERY_COLLECTION,
        notify,
        collection=collection,
        single_query=single_query,
        close_at_exit=True,
    )


def retrieve(
    query: str,
    top_k: int,
    filters: Filters,
    min_score: float | None,
    collection: str | None,
    *,
    mode: Mode,
    verbose: bool,
    as_json: bool,
) -> Exit:
    """Answer one query in the contract's formats."""
    _check(query, top_k, filters, min_score, mode)
    with connect(collection, single_query=True) as retriever:
        retriever.warm_up()  # so that the time shown is the query's, on the first run and on every other
        response = retriever.search(query, top_k, filters, min_score, mode=mode)
    from recto.cli import output as render

    return _answer(
        response, render.results_json(response) if as_json else render.results_text(response, verbose=verbose)
    )


def search(
    query: str,
    top_k: int,
    filters: Filters,
    min_score: float | None,
    collection: str | None,
    *,
    mode: Mode,
    by_page: bool,
    verbose: bool,
    as_json: bool,
) -> Exit:
    """Answer one query for a person, or as JSON."""
    _check(query, top_k, filters, min_score, mode)
    with connect(collection, single_query=True) as retriever:
        retriever.warm_up()
        response = retriever.search(
            query, top_k, filters, min_score, mode=mode, group_by="page" if by_page else None
        )
        from recto.search.display import response_words

        words = response_words(retriever, response)
    from recto.cli.output import shown
    from recto.cli.shell import show
    from recto.cli.shell.show import Look, terminal_look

    if as_json:
        return _answer(response, show.results_json(response, words))
    look = terminal_look() if sys.stdout.isatty() else Look()
    return _answer(
        response, f'Query: "{shown(response.query)}"\n{show.results(response, words, look, verbose=verbose)}'
    )


def _check(query: str, top_k: int, filters: Filters, min_score: float | None, mode: Mode) -> None:
    from recto.search.query import FLAGS, check_query, check_search

    check_query(query)
    check_search(top_k, filters, min_score, FLAGS, mode)


def _answer(response: SearchResponse, text: str) -> Exit:
    for warning in response.warnings:
        warn(warning)
    click.echo(text)
    return Exit.OK if response.hits else Exit.NO_RESULTS


def validate(suite_file: Path | None, collection: str | None, *, verbose: bool, as_json: bool) -> Exit:
    """Run a suite and report on standard output."""
    from recto.evaluation.suites import documented_suite, load_suite

    suite = load_suite(suite_file) if suite_file else documented_suite()
    with connect(collection) as retriever:
        for warning in retriever.open().info.warnings:
            warn(warning)
        retriever.warm_up()  # so that the first question's time is a question's time
        from recto.evaluation.runs import validate as run_validation

        run = run_validation(retriever, suite)
        info = retriever.open().info
    from recto.cli.runner import keep
    from recto.evaluation import records

    keep(lambda home: records.keep_run(home, info, run))
    from recto.cli import output as render

    click.echo(render.validation_json(run) if as_json else render.validation_text(run, verbose=verbose))
    return Exit.OK if run.sufficient else Exit.VALIDATION_FAILED
