"""`test_retrieval.py`: run one query or a suite, and always print JSON."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recto.contracts.retrieval_test.contract import (
    DEFAULT_COLLECTION,
    DEFAULT_TOP_K,
    CohereAPIError,
    checked_query,
    checked_top_k,
)
from recto.contracts.retrieval_test.program import (
    CommandState,
    ExitCode,
    LineFormatter,
    check_target,
    entry,
    json_text,
    logging_to,
    notify,
    write_file,
)
from recto.errors import InvalidArgument, RectoError
from recto.search.query import CONTRACT_MODES

if TYPE_CHECKING:
    from recto.contracts.retrieval_test.service import Backend
    from recto.types import Mode

_CLI = logging.getLogger("recto.contracts.retrieval_test.cli")
_FILE = Path  # not click.Path, which fails on a NUL byte in the path
_EPILOG = """\b
Examples:
  python test_retrieval.py --query "What is ROS 2?"
  python test_retrieval.py --query "Unity integration" --top-k 10
  python test_retrieval.py --test-suite test_queries.json
  python test_retrieval.py --query "DDS explained" --output results.json

\b
Exit codes: 0 success, 1 invalid arguments, 2 API error (Cohere, Qdrant, or the
embedded engine), 3 no results, or a suite's expectation that is not met.
"""


@dataclass(frozen=True, slots=True)
class Batch:
    """The options of a suite's run."""

    suite: Path
    top_k: int
    delay: float | None
    expected: Path | None
    update: Path | None
    mode: Mode = "dense"


@click.command(epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--query", metavar="TEXT", help="The query, 1 to 2000 characters.")
@click.option(
    "--top-k",
    metavar="N",
    default=DEFAULT_TOP_K,
    type=int,
    show_default=True,
    help="How many results, 1 to 50.",
)
@click.option(
    "--mode",
    type=click.Choice(CONTRACT_MODES),
    default="dense",
    show_default=True,
    help="How to rank the results.",
)
@click.option("--test-suite", metavar="FILE", type=_FILE, help="Run all queries of a suite.")
@click.option(
    "--output",
    metavar="FILE",
    type=_FILE,
    help="Write the JSON to a file; standard output then has the path, as JSON.",
)
@click.option(
    "--delay",
    metavar="SECONDS",
    type=click.FloatRange(0, 3600),
    help="Pause between queries of a suite [default: 10 a minute with Cohere, else none].",
)
@click.option(
    "--expected", metavar="FILE", type=_FILE, help="Compare the results of a suite with an earlier run."
)
@click.option(
    "--update-expected", metavar="FILE", type=_FILE, help="Save the results of a suite for --expected."
)
@click.option("--verbose", is_flag=True, help="Show the debug log on standard error.")
@click.pass_obj
def command(
    state: CommandState,
    query: str | None,
    top_k: int,
    mode: Mode,
    test_suite: Path | None,
    output: Path | None,
    delay: float | None,
    expected: Path | None,
    update_expected: Path | None,
    verbose: bool,
) -> ExitCode:
    """Search the book, or run a test suite, and print JSON."""
    with logging_to(Path(), notify, verbose=verbose) as log:
        try:
            if output is not None:
                check_target(output, "--output")
                state.output = output
            if (query is None) == (test_suite is None):
                raise InvalidArgument(
                    "Give either --query or --test-suite", hint='Such as --query "What is ROS 2?".'
                )
            if test_suite is None and (delay is not None or expected or update_expected):
                raise InvalidArgument(
                    "--delay, --expected and --update-expected go with --test-suite",
                    hint="Add --test-suite FILE.",
                )
            with ExitStack() as stack:
                return _answer(
                    state,
                    log,
                    stack,
                    query,
                    Batch(test_suite or Path(), top_k, delay, expected, update_expected, mode),
                )
        except RectoError as error:
            _CLI.error("%s", error)
            raise


def _answer(
    state: CommandState, log: LineFormatter, stack: ExitStack, query: str | None, batch: Batch
) -> ExitCode:
    checked_top_k(batch.top_k)
    if query is not None:
        checked_query(query)
    from recto.contracts.retrieval_test.service import Backend, ask

    backend = stack.enter_context(Backend(notify=notify))
    try:
        settings = backend.settings
    except RectoError as error:
        raise CohereAPIError.of(error) from error
    log.secrets = (settings.cohere_api_key, settings.qdrant_api_key)
    if query is None:
        return _batch(state, backend, batch)
    for warning in backend.open().info.warnings:
        notify(f"[WARNING] {warning}")
    response = ask(backend, query, batch.top_k, mode=batch.mode)
    found = bool(response.results)
    state.document = (
        response.document
        if found
        else {**response.document, "message": f"'{backend.collection(DEFAULT_COLLECTION)}' has no result"}
    )
    return ExitCode.OK if found else ExitCode.NO_RESULTS


def _batch(state: CommandState, backend: Backend, batch: Batch) -> ExitCode:
    from recto.contracts.retrieval_test.runs import (
        baseline_document,
        batch_document,
        compared,
        load_baseline,
        run_cases,
        turns,
    )
    from recto.contracts.retrieval_test.service import ask
    from recto.contracts.retrieval_test.suites import load_cases

    suite = load_cases(batch.suite)
    kept = load_baseline(batch.expected) if batch.expected else None
    if batch.update:
        check_target(batch.update, "--update-expected")
    paid = backend.settings.embedder == "cohere"
    turn = turns(paid=paid, delay=batch.delay, notify=notify)
    for warning in backend.open().info.warnings:
        notify(f"[WARNING] {warning}")
    backend.warm_up()
    if paid:  # report a service that is down once, not for every query
        turn()
        backend.embed("ready")
    model = backend.model
    results = run_cases(
        suite, lambda query, top_k: ask(backend, query, top_k, mode=batch.mode), turn, batch.top_k
    )
    if kept is not None:
        results = compared(results, kept, model)
    state.document = batch_document(suite, backend.collection(DEFAULT_COLLECTION), model, results)
    broken = any(result.failed_api for result in results)
    if batch.update:
        if broken:
            raise CohereAPIError(
                "Not every query was answered: the expected results are left as they were", hint="Try again."
            )
        write_file(batch.update, json_text(baseline_document(suite, model, results)), "--update-expected")
    if broken:
        return ExitCode.API
    return ExitCode.OK if all(result.passed for result in results) else ExitCode.NO_RESULTS


main = entry(command, "test_retrieval.py")
