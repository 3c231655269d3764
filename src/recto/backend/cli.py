"""`test_retrieval.py`: one query or a whole suite, and JSON on standard output whatever happens."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recto.backend.contract import DEFAULT_COLLECTION, DEFAULT_TOP_K
from recto.backend.errors import CohereAPIError
from recto.backend.logs import logging_to
from recto.backend.output import check_target, json_text, write_file
from recto.backend.running import Exit, Run, entry, tell
from recto.errors import InvalidArgument, RectoError
from recto.limits import CONTRACT_MODES

if TYPE_CHECKING:
    from recto.backend.service import Backend
    from recto.types import Mode

_CLI = logging.getLogger("recto.backend.cli")
_FILE = Path  # not click.Path, which looks at the file and stumbles over a null byte
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
    """What a suite's run is asked to do."""

    suite: Path
    top_k: int
    delay: float | None
    expected: Path | None
    update: Path | None
    mode: Mode = "dense"


@click.command(epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--query", metavar="TEXT", help="The question, 1 to 2000 characters.")
@click.option("--top-k", metavar="N", default=DEFAULT_TOP_K, type=int, show_default=True, help="How many results, 1 to 50.")
@click.option("--mode", type=click.Choice(CONTRACT_MODES), default="dense", show_default=True, help="How to rank the results.")
@click.option("--test-suite", metavar="FILE", type=_FILE, help="Run all queries of a suite instead of one.")
@click.option("--output", metavar="FILE", type=_FILE, help="Write the JSON to a file; standard output then only says so, in JSON.")
@click.option(
    "--delay",
    metavar="SECONDS",
    type=click.FloatRange(0, 3600),
    help="Pause between a suite's queries [default: 10 a minute with Cohere, else none].",
)
@click.option("--expected", metavar="FILE", type=_FILE, help="Compare a suite's results with those of an earlier run.")
@click.option("--update-expected", metavar="FILE", type=_FILE, help="Keep a suite's results for later comparison.")
@click.option("--verbose", is_flag=True, help="Show the debug log on standard error.")
@click.pass_obj
def command(
    run: Run,
    query: str | None,
    top_k: int,
    mode: Mode,
    test_suite: Path | None,
    output: Path | None,
    delay: float | None,
    expected: Path | None,
    update_expected: Path | None,
    verbose: bool,
) -> Exit:
    """Search the book, or run a test suite, and print JSON."""
    with logging_to(Path(), tell, verbose=verbose) as log:
        try:
            if output is not None:
                check_target(output, "--output")
                run.output = output
            if (query is None) == (test_suite is None):
                raise InvalidArgument("Give either --query or --test-suite", hint='Such as --query "What is ROS 2?".')
            if test_suite is None and (delay is not None or expected or update_expected):
                raise InvalidArgument("--delay, --expected and --update-expected go with --test-suite", hint="Add --test-suite FILE.")
            with ExitStack() as stack:
                return _answer(run, log, stack, query, Batch(test_suite or Path(), top_k, delay, expected, update_expected, mode))
        except RectoError as error:
            _CLI.error("%s", error)
            raise


def _answer(run: Run, log: Any, stack: ExitStack, query: str | None, batch: Batch) -> Exit:
    from recto.backend.checks import checked_query, checked_top_k

    checked_top_k(batch.top_k)
    if query is not None:
        checked_query(query)
    from recto.backend.service import Backend

    backend = stack.enter_context(Backend(tell=tell))
    try:
        settings = backend.settings
    except RectoError as error:
        raise CohereAPIError.of(error) from error
    log.secrets = (settings.cohere_api_key, settings.qdrant_api_key)
    if query is None:
        return _batch(run, backend, batch)
    from recto.backend.asking import ask

    for warning in backend.open().info.warnings:
        tell(f"[WARNING] {warning}")
    answered = ask(backend, query, batch.top_k, mode=batch.mode)
    found = bool(answered.results)
    run.document = (
        answered.response if found else {**answered.response, "message": f"'{backend.collection(DEFAULT_COLLECTION)}' has no result"}
    )
    return Exit.OK if found else Exit.NO_RESULTS


def _batch(run: Run, backend: Backend, batch: Batch) -> Exit:
    from recto.backend.asking import ask
    from recto.backend.baseline import baseline_document, compared, load_baseline
    from recto.backend.batch import run_cases, turns
    from recto.backend.cases import load_cases
    from recto.backend.summary import batch_document

    suite = load_cases(batch.suite)
    kept = load_baseline(batch.expected) if batch.expected else None
    if batch.update:
        check_target(batch.update, "--update-expected")
    paid = backend.settings.embedder == "cohere"
    turn = turns(paid=paid, delay=batch.delay, tell=tell)
    for warning in backend.open().info.warnings:
        tell(f"[WARNING] {warning}")
    backend.warm_up()
    if paid:  # a service that does not answer is told once, not for every query
        turn()
        backend.embed("ready")
    model = backend.model
    verdicts = run_cases(suite, lambda query, top_k: ask(backend, query, top_k, mode=batch.mode), turn, batch.top_k)
    if kept is not None:
        verdicts = compared(verdicts, kept, model)
    run.document = batch_document(suite, backend.collection(DEFAULT_COLLECTION), model, verdicts)
    broken = any(verdict.failed_api for verdict in verdicts)
    if batch.update:
        if broken:
            raise CohereAPIError("Not every query was answered: the expected results are left as they were", hint="Try again.")
        write_file(batch.update, json_text(baseline_document(suite, model, verdicts)), "--update-expected")
    if broken:
        return Exit.API
    return Exit.OK if all(verdict.passed for verdict in verdicts) else Exit.NO_RESULTS


main = entry(command, "test_retrieval.py")
