"""The commands `test_retrieval.py` and `check_qdrant.py`, which always print JSON."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recto.contracts.retrieval_test.contract import (
    DEFAULT_COLLECTION,
    DEFAULT_TOP_K,
    SCHEMA_VERSION,
    CohereAPIError,
    QdrantAPIError,
    checked_query,
    checked_top_k,
)
from recto.contracts.retrieval_test.program import (
    CommandState,
    ExitCode,
    check_target,
    json_text,
    logging_to,
    make_main,
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
_HELP = {"help_option_names": ["-h", "--help"]}
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
_CHECK_EPILOG = """\b
Exit codes: 0 the collection can be searched, 1 invalid arguments, 2 it cannot;
the JSON says why: missing, empty, another model, no connection.
"""


@dataclass(frozen=True, slots=True)
class Batch:
    """The options of a suite's run."""

    suite: Path
    top_k: int
    mode: Mode
    delay: float | None
    expected: Path | None
    update: Path | None


@click.command(epilog=_EPILOG, context_settings=_HELP)
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
    show_default="10 queries a minute with Cohere, else no pause",
    help="Pause between the queries of a suite.",
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
            checked_top_k(top_k)
            if query is not None:
                checked_query(query)
            from recto.contracts.retrieval_test.service import Backend

            with Backend(notify=notify) as backend:
                log.secrets = _secrets(backend)
                if test_suite is None:
                    return _search(state, backend, query or "", top_k, mode)
                batch = Batch(test_suite, top_k, mode, delay, expected, update_expected)
                return _run_suite(state, backend, batch)
        except RectoError as error:
            _CLI.error("%s", error)
            raise


def _secrets(backend: Backend) -> tuple[str, ...]:
    try:
        settings = backend.settings
    except RectoError as error:
        raise CohereAPIError.of(error) from error
    return settings.cohere_api_key, settings.qdrant_api_key


def _search(state: CommandState, backend: Backend, query: str, top_k: int, mode: Mode) -> ExitCode:
    from recto.contracts.retrieval_test.service import ask

    _print_warnings(backend)
    response = ask(backend, query, top_k, mode=mode)
    state.document = response.document
    if response.results:
        return ExitCode.OK
    collection = backend.collection(DEFAULT_COLLECTION)
    state.document = {**response.document, "message": f"'{collection}' has no result"}
    return ExitCode.NO_RESULTS


def _run_suite(state: CommandState, backend: Backend, batch: Batch) -> ExitCode:
    from recto.contracts.retrieval_test.service import ask
    from recto.contracts.retrieval_test.suites import (
        baseline_document,
        batch_document,
        compared,
        load_baseline,
        load_cases,
        run_cases,
        wait_between_queries,
    )

    suite = load_cases(batch.suite)
    kept = load_baseline(batch.expected) if batch.expected else None
    if batch.update:
        check_target(batch.update, "--update-expected")
    paid = backend.settings.embedder == "cohere"
    wait = wait_between_queries(paid=paid, delay=batch.delay, notify=notify)
    _print_warnings(backend)
    backend.warm_up()
    if paid:  # report a service that is down once, not for every query
        wait()
        backend.embed("ready")
    model = backend.model
    results = run_cases(
        suite, lambda query, top_k: ask(backend, query, top_k, mode=batch.mode), wait, batch.top_k
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


def _print_warnings(backend: Backend) -> None:
    for warning in backend.open().info.warnings:
        notify(f"[WARNING] {warning}")


@click.command(epilog=_CHECK_EPILOG, context_settings=_HELP)
@click.option(
    "--collection",
    metavar="NAME",
    default=DEFAULT_COLLECTION,
    show_default=True,
    help="The collection to check.",
)
@click.pass_obj
def check_command(state: CommandState, collection: str) -> ExitCode:
    """Check that the collection exists, is not empty, and fits the query model, and print JSON."""
    from recto.contracts.retrieval_test.service import Backend

    with Backend(notify=notify) as backend:
        try:
            settings = backend.settings
        except RectoError as error:
            raise QdrantAPIError.of(error) from error
        index = backend.open(collection)
        info = index.info
        indexed_with: dict[str, Any] | None = None
        if made := info.fingerprint:
            indexed_with = {"model": made.embedder.model, "pages": made.pages, "at": made.created_at}
        try:
            modules = index.modules()
        except RectoError as error:
            notify(f"[WARNING] The modules cannot be counted: {error}")
            modules = {}
        is_local = backend.store is None or backend.store.is_local
        state.document = {
            "schema_version": SCHEMA_VERSION,
            "collection": backend.collection(collection),
            "store": "embedded" if is_local else settings.qdrant_url,
            "points": info.chunks,
            "dim": info.dim or backend.dim,
            "distance": "cosine",
            "query_model": backend.model,
            "indexed_with": indexed_with,
            "model_verified": indexed_with is not None,
            "modules": modules,
            "warnings": list(info.warnings),
        }
    return ExitCode.OK


main = make_main(command, "test_retrieval.py")
check_main = make_main(check_command, "check_qdrant.py")
