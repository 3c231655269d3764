"""`test_retrieval.py` and `check_qdrant.py`: document 003's commands, which always print JSON."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from enum import IntEnum
from functools import partial
from logging.handlers import TimedRotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recto._util.files import replace_text
from recto._util.retry import redacted
from recto._util.text import escape_controls, to_json
from recto.cli import confirm_endpoint, discard_output
from recto.contracts import TEST_COLLECTION
from recto.contracts.retrieval_test import (
    SCHEMA_VERSION,
    Backend,
    CohereAPIError,
    QdrantAPIError,
    ask,
    checked_query,
    checked_top_k,
    error_document,
    problem_document,
    raising,
)
from recto.errors import ErrorKind, InvalidArgument, RectoError
from recto.plugins import Notify
from recto.search.query import CONTRACT_MODES
from recto.types.request import DEFAULT_TOP_K

if TYPE_CHECKING:
    from recto.types.search import Mode

LOG_FILE = "retrieval_test.log"
_KEPT_DAYS = 30
_INTERRUPTED = 130
_LOG = logging.getLogger("recto.contracts.retrieval_test")
_CONTEXT = {"help_option_names": ["-h", "--help"], "show_default": True}
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


class ExitCode(IntEnum):
    """The exit codes of the test contract."""

    OK = 0
    ARGUMENT = 1
    API = 2
    NO_RESULTS = 3


@dataclass(slots=True)
class CommandState:
    """The output of a command: its JSON document, and the file to write it to, if any."""

    document: dict[str, Any] = field(default_factory=dict)
    output: Path | None = None


_file = partial(click.option, metavar="FILE", type=Path)  # not click.Path, which fails on a NUL byte


@click.command(epilog=_EPILOG, context_settings=_CONTEXT)
@click.option("--query", metavar="TEXT", help="The query, 1 to 2000 characters.")
@click.option("--top-k", metavar="N", default=DEFAULT_TOP_K, help="How many results, 1 to 50.")
@click.option("--mode", type=click.Choice(CONTRACT_MODES), default="dense", help="How to rank the results.")
@_file("--test-suite", help="Run all queries of a suite.")
@_file("--output", help="Write the JSON to a file; standard output then has the path, as JSON.")
@click.option(
    "--delay",
    metavar="SECONDS",
    type=click.FloatRange(0, 3600),
    show_default="10 queries a minute with Cohere, else no pause",
    help="Pause between the queries of a suite.",
)
@_file("--expected", help="Compare the results of a suite with an earlier run.")
@_file("--update-expected", help="Save the results of a suite for --expected.")
@click.option("--verbose", is_flag=True, help="Show the debug log on standard error.")
@click.pass_obj
def command(
    state: CommandState,
    /,
    query: str | None,
    top_k: int,
    mode: Mode,
    test_suite: Path | None,
    output: Path | None,
    verbose: bool,
    **suite_options: Any,
) -> ExitCode:
    """Search the book, or run a test suite, and print JSON."""
    with logging_to(Path(), notify, verbose=verbose) as log:
        if output is not None:
            check_target(output, "--output")
            state.output = output
        if (query is None) == (test_suite is None):
            hint = 'Such as --query "What is ROS 2?".'
            raise InvalidArgument("Give either --query or --test-suite", hint=hint)
        if test_suite is None and any(value is not None for value in suite_options.values()):
            message = "--delay, --expected and --update-expected go with --test-suite"
            raise InvalidArgument(message, hint="Add --test-suite FILE.")
        checked_top_k(top_k)
        if query is not None:
            checked_query(query)
        with Backend(notify=notify) as backend:
            with raising(CohereAPIError):
                log.secrets = backend.settings.secrets
                confirm_endpoint(backend.settings)
            if test_suite is not None:
                return _run_suite(state, backend, test_suite, top_k, mode, **suite_options)
            _print_warnings(backend)
            response = ask(backend, query or "", top_k, mode=mode)
            state.document = response.document
            if response.results:
                return ExitCode.OK
            state.document["message"] = f"'{backend.collection(TEST_COLLECTION)}' has no result"
            return ExitCode.NO_RESULTS


def _run_suite(
    state: CommandState,
    backend: Backend,
    path: Path,
    top_k: int,
    mode: Mode,
    *,
    delay: float | None,
    expected: Path | None,
    update_expected: Path | None,
) -> ExitCode:
    from recto.contracts.retrieval_test import suites

    suite = suites.load_cases(path)
    earlier = suites.load_results(expected) if expected else None
    if update_expected:
        check_target(update_expected, "--update-expected")
    paid = backend.settings.embedder == "cohere"
    wait = suites.wait_between_queries(paid=paid, delay=delay, notify=notify)
    _print_warnings(backend)
    with raising(CohereAPIError):
        backend.embedder.warm_up()
    if paid:  # report a service that is down once, not for every query
        wait()
        backend.embed("ready")
    model = backend.embedder.fingerprint.model
    results = suites.run_cases(suite, lambda query, limit: ask(backend, query, limit, mode=mode), wait, top_k)
    scores = suites.scores_of(suite, model, results)
    if earlier is not None:
        unmet = suites.differences(earlier, scores)
        results = [replace(one, unmet=(*one.unmet, *unmet[one.case.id])) for one in results]
    state.document = {
        "schema_version": SCHEMA_VERSION,
        "suite": suite.name,
        "collection": backend.collection(TEST_COLLECTION),
        "model": model,
        "summary": suites.summary(results),
        "queries": [result.to_dict() for result in results],
    }
    failed = any(result.failed_api for result in results)
    if update_expected and failed:
        message = "Not every query was answered: the expected results are left as they were"
        raise CohereAPIError(message, hint="Try again.")
    if update_expected:
        document = {"schema_version": SCHEMA_VERSION, **scores}
        write_file(update_expected, f"{to_json(document)}\n", "--update-expected")
    if failed:
        return ExitCode.API
    return ExitCode.OK if all(result.passed for result in results) else ExitCode.NO_RESULTS


def _print_warnings(backend: Backend) -> None:
    for warning in backend.retriever().open().info.warnings:
        notify(f"[WARNING] {warning}")


@click.command(epilog=_CHECK_EPILOG, context_settings=_CONTEXT)
@click.option("--collection", metavar="NAME", default=TEST_COLLECTION, help="The collection to check.")
@click.pass_obj
def check_command(state: CommandState, collection: str) -> ExitCode:
    """Check that the collection exists, is not empty, and fits the query model, and print JSON."""
    with Backend(notify=notify) as backend:
        with raising(QdrantAPIError):
            settings = backend.settings
        retriever = backend.retriever(collection)
        index, info = retriever.open(), retriever.open().info
        fingerprint = info.fingerprint
        try:
            modules = index.modules()
        except RectoError as error:
            notify(f"[WARNING] The modules cannot be counted: {error}")
            modules = {}
        state.document = {
            "schema_version": SCHEMA_VERSION,
            "collection": retriever.collection,
            "store": "embedded" if retriever.store.is_local else settings.qdrant_url,
            "points": info.chunks,
            "dim": info.dim or backend.embedder.dim,
            "distance": "cosine",
            "query_model": backend.embedder.fingerprint.model,
            "indexed_with": fingerprint
            and {
                "model": fingerprint.embedder.model,
                "pages": fingerprint.pages,
                "at": fingerprint.created_at,
            },
            "model_verified": fingerprint is not None,
            "modules": modules,
            "warnings": list(info.warnings),
        }
    return ExitCode.OK


def main() -> None:
    """Run `test_retrieval.py`."""
    sys.exit(run(command, None, "test_retrieval.py"))


def check_main() -> None:
    """Run `check_qdrant.py`."""
    sys.exit(run(check_command, None, "check_qdrant.py"))


def run(command: click.Command, arguments: Sequence[str] | None, name: str) -> int:
    """Run a command, print its JSON, and return its exit code; never raise."""
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115, PTH123 - closed by the parent process
    if hasattr(sys.stderr, "reconfigure"):
        sys.stderr.reconfigure(errors="backslashreplace")
    state, code = CommandState(), int(ExitCode.OK)
    try:
        code = _run(command, arguments, name, state)
        return _print(state, code) if state.document else code
    except KeyboardInterrupt:  # while the result was being written
        return _INTERRUPTED
    except BrokenPipeError:  # the reader closed the pipe, as `head` does
        discard_output()
        return code
    except OSError as error:
        discard_output()
        notify(f"[ERROR] The output cannot be written: {error.strerror or error}")
        return ExitCode.ARGUMENT


def _run(command: click.Command, arguments: Sequence[str] | None, name: str, state: CommandState) -> int:
    try:
        code = command.main(args=arguments, prog_name=name, standalone_mode=False, obj=state)
        return code if isinstance(code, int) else ExitCode.OK
    except RectoError as error:
        document = error_document(error)
        code = ExitCode.ARGUMENT if error.kind is ErrorKind.ARGUMENT else ExitCode.API
    except click.UsageError as error:
        message = f"Invalid argument: {error.format_message().rstrip('.')}"
        document = problem_document(message, f"Try `{name} --help`.", "argument")
        code = ExitCode.ARGUMENT
    except (KeyboardInterrupt, click.Abort):
        document = problem_document("Interrupted", "Run it again.", "interrupted")
        code = _INTERRUPTED
    except SystemExit:  # from click, if the reader of its help closed the pipe
        return ExitCode.OK
    except BaseException as error:  # a panic of the engine is not an Exception
        if os.environ.get("RECTO_DEBUG"):
            raise
        hint = "This is a bug in Recto. Please report it. RECTO_DEBUG=1 shows the traceback."
        document = problem_document(f"Unexpected error: {type(error).__name__}: {error}", hint, "unexpected")
        code = ExitCode.API
    state.document = {"schema_version": SCHEMA_VERSION, **document}
    return int(code)


def _print(state: CommandState, code: int) -> int:
    """Write the document; an error goes to --output, too, so that no old result is mistaken for this one."""
    document = state.document
    if state.output is not None:
        try:
            write_file(state.output, f"{to_json(state.document)}\n", "--output")
            if "error" not in state.document:
                document = {"schema_version": SCHEMA_VERSION, "output": str(state.output), "exit_code": code}
        except RectoError as error:
            document = {"schema_version": SCHEMA_VERSION, **error_document(error)}
            code = ExitCode.ARGUMENT
    if sys.stdout is not None:  # it is None if the parent process closed it
        sys.stdout.flush()
        sys.stdout.buffer.write(f"{to_json(document)}\n".encode())  # whatever the terminal's encoding is
        sys.stdout.flush()
    return code


def notify(message: str) -> None:
    """Print a message to standard error, apart from the JSON."""
    with suppress(OSError, ValueError):  # the JSON matters more
        click.echo(escape_controls(message), err=True)  # noqa: TID251 - this is the one that escapes


def check_target(path: Path, flag: str) -> None:
    """Raise before the work starts if a file cannot be written."""
    try:
        problem = "is not a file" if path.exists() and not path.is_file() else ""
        if not path.resolve().parent.is_dir() or not os.access(path.resolve().parent, os.W_OK):
            problem = "cannot be written: there is no such directory, or it is read-only"
    except (OSError, ValueError) as error:
        problem = f"cannot be used: {error}"
    if problem:
        raise InvalidArgument(f"{flag} {path} {problem}", hint="Name another file.")


def write_file(path: Path, text: str, flag: str) -> None:
    """Replace a file atomically; a symbolic link stays a link."""
    try:
        replace_text(path.resolve(), text, private=False)
    except OSError as error:
        message = f"{flag} {path} cannot be written: {error.strerror or error}"
        raise InvalidArgument(message, hint="Name another file.") from None


class LineFormatter(logging.Formatter):
    """Formats a record as `[timestamp] [level] [component] message`, always on one line, without `secrets`.

    The component is the last part of the logger's name.
    """

    secrets: tuple[str, ...] = ()

    def format(self, record: logging.LogRecord) -> str:
        """Format the line; escape characters that could forge another line or manipulate a terminal."""
        stamp = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        component = record.name.rpartition(".")[2].upper()
        message = escape_controls(redacted(record.getMessage(), *self.secrets))
        return f"[{stamp.replace('+00:00', 'Z')}] [{record.levelname}] [{component}] {message}"


@contextmanager
def logging_to(
    directory: Path, notify: Notify, *, verbose: bool, today: date | None = None
) -> Iterator[LineFormatter]:
    """Write the log, errors included, to a file that rotates daily, and with `verbose` to standard error.

    If the file cannot be written, warn and continue without it.
    """
    path = directory / LOG_FILE
    formatter = LineFormatter()
    handlers: list[logging.Handler] = []
    problem = f"{path.name} cannot be written (%s); continuing without a log file"
    try:
        handlers.append(TimedRotatingFileHandler(path, "midnight", encoding="utf-8", utc=True))
        problem = f"Old files of {path.name} cannot be deleted (%s)"
        _prune(path, today or datetime.now(UTC).date())
    except OSError as error:
        notify(f"[WARNING] {problem % (error.strerror or error)}")
    if verbose:
        handlers.append(logging.StreamHandler(sys.stderr))
    level, propagates = _LOG.level, _LOG.propagate
    _LOG.setLevel(logging.DEBUG if verbose else logging.INFO)
    _LOG.propagate = False
    for handler in handlers:
        handler.setFormatter(formatter)
        # A line that cannot be written, for example on a full disk, is lost: the output matters more.
        handler.handleError = lambda record: None  # type: ignore[method-assign]  # noqa: ARG005
        _LOG.addHandler(handler)
    try:
        yield formatter
    except RectoError as error:
        _LOG.getChild("cli").error("%s", error)
        raise
    finally:
        for handler in handlers:
            _LOG.removeHandler(handler)
            handler.close()
        _LOG.setLevel(level)
        _LOG.propagate = propagates


def _prune(path: Path, today: date) -> None:
    """Delete old files by date: counting them would keep files too long, as not every day has one."""
    for old in path.parent.glob(f"{path.name}.*"):
        with suppress(ValueError):  # not a date, so not a file of this log
            if date.fromisoformat(old.suffix[1:]) < today - timedelta(days=_KEPT_DAYS):
                old.unlink(missing_ok=True)
