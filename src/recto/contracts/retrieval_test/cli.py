"""`test_retrieval.py`: one query or a whole suite, and JSON on standard output whatever happens."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from enum import IntEnum
from logging.handlers import TimedRotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recto._util.files import replace_text
from recto._util.retry import Notify, redacted
from recto.contracts.retrieval_test.contract import (
    DEFAULT_COLLECTION,
    DEFAULT_TOP_K,
    SCHEMA_VERSION,
    CohereAPIError,
    error_document,
    kind_of,
)
from recto.errors import ErrorKind, InvalidArgument, RectoError
from recto.search.query import CONTRACT_MODES

_TRICKS = re.compile(r"[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def json_text(document: Any) -> str:
    """Return a document as JSON that every parser reads; characters that play tricks on a terminal are escaped."""
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    text = text.encode("utf-8", "replace").decode("utf-8")  # half of a surrogate pair is no character
    return _TRICKS.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n"


def write_stdout(text: str) -> None:
    """Write to standard output as UTF-8, which JSON always is."""
    if sys.stdout is None:  # closed by whoever started us
        return
    sys.stdout.flush()
    binary = getattr(sys.stdout, "buffer", None)
    if binary is None:
        sys.stdout.write(text)
    else:
        binary.write(text.encode("utf-8"))
    sys.stdout.flush()


def abandon_stdout() -> None:
    """Let the rest go nowhere; Python would complain once more while it closes the stream."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def check_target(path: Path, flag: str) -> None:
    """Refuse a file that could not be written, before the work and not after it."""
    try:
        if path.exists() and not path.is_file():
            raise InvalidArgument(f"{flag} {path} is not a file", hint="Name a file.")
        usable = path.resolve().parent.is_dir() and os.access(path.resolve().parent, os.W_OK)
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"{flag} cannot be used: {error}", hint="Name a file.") from None
    if not usable:
        raise InvalidArgument(
            f"{flag} {path} cannot be written: there is no such directory, or it is read-only",
            hint="Name another file.",
        )


def write_file(path: Path, text: str, flag: str) -> None:
    """Replace a file whole; a link stays a link."""
    try:
        replace_text(path.resolve(), text)
    except OSError as error:
        raise InvalidArgument(
            f"{flag} {path} cannot be written: {error.strerror or error}", hint="Name another file."
        ) from None


LOG_FILE = "retrieval_test.log"
KEPT_DAYS = 30

_ROOT = logging.getLogger("recto.contracts.retrieval_test")
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_DATED = re.compile(re.escape(LOG_FILE) + r"\.(\d{4}-\d{2}-\d{2})")


class LineFormatter(logging.Formatter):
    """Writes `[timestamp] [level] [component] message` on one line, whatever is in the message."""

    def __init__(self) -> None:
        super().__init__()
        self.secrets: tuple[str, ...] = ()

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; characters that could forge another one or play with a terminal are escaped."""
        stamp = (
            datetime.fromtimestamp(record.created, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z")
        )
        component = record.name.rpartition(".")[2].upper()
        message = _UNSAFE.sub(
            lambda found: f"\\u{ord(found[0]):04x}", redacted(record.getMessage(), *self.secrets)
        )
        return f"[{stamp}] [{record.levelname}] [{component}] {message}"


@contextmanager
def logging_to(
    directory: Path, notify: Notify, *, verbose: bool, today: date | None = None
) -> Iterator[LineFormatter]:
    """Write the log while a command runs; where no file can be written, say so and go on without it."""
    formatter = LineFormatter()
    handlers: list[logging.Handler] = []
    try:
        file = TimedRotatingFileHandler(
            directory / LOG_FILE, when="midnight", backupCount=KEPT_DAYS, encoding="utf-8", utc=True
        )
        handlers.append(file)
        _prune(directory, today or datetime.now(UTC).date())
    except OSError as error:
        without = "" if handlers else "; going on without a log file"
        notify(
            f"[WARNING] {LOG_FILE} cannot be {'cleared up' if handlers else 'written'} ({error.strerror or error}){without}"
        )
    if verbose:
        handlers.append(logging.StreamHandler(sys.stderr))
    before, propagated = _ROOT.level, _ROOT.propagate
    _ROOT.setLevel(logging.DEBUG if verbose else logging.INFO)
    _ROOT.propagate = False
    for handler in handlers:
        handler.setFormatter(formatter)
        handler.handleError = _silent  # type: ignore[method-assign]
        _ROOT.addHandler(handler)
    try:
        yield formatter
    finally:
        for handler in handlers:
            _ROOT.removeHandler(handler)
            handler.close()
        _ROOT.setLevel(before)
        _ROOT.propagate = propagated


def _silent(record: logging.LogRecord) -> None:
    """Let a full disk take a line of the log, not the answer."""
    del record


def _prune(directory: Path, today: date) -> None:
    """Remove files by their day: on days without a run there is none, so that counting files would keep them for too long."""
    for path in directory.iterdir():
        found = _DATED.fullmatch(path.name)
        with suppress(ValueError):  # a name that is no day is not ours
            if found and date.fromisoformat(found[1]) < today - timedelta(days=KEPT_DAYS):
                path.unlink(missing_ok=True)


_INTERRUPTED = 130


class Exit(IntEnum):
    """The exit codes of the test contract."""

    OK = 0
    ARGUMENT = 1
    API = 2
    NO_RESULTS = 3


@dataclass(slots=True)
class Run:
    """What a command leaves behind: its document, and the file that it goes to, if any."""

    document: dict[str, Any] = field(default_factory=dict)
    output: Path | None = None


def entry(command: click.Command, name: str) -> Callable[[], None]:
    """Make a program of a command."""

    def main() -> None:
        sys.exit(run(command, None, name))

    return main


def notify(message: str) -> None:
    """Say something to a person, away from the JSON."""
    with suppress(OSError, ValueError):  # where that cannot be written, the answer still counts
        click.echo(message, err=True)


def run(command: click.Command, arguments: Sequence[str] | None, name: str) -> int:
    """Run a command, print its JSON and return its exit code; no exception gets past here."""
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115, PTH123 - closed by whoever started us
    if hasattr(sys.stderr, "reconfigure"):
        sys.stderr.reconfigure(errors="backslashreplace")
    state, code = Run(), int(Exit.OK)
    try:
        code = _run(command, arguments, name, state)
        return _leave(state, code) if state.document else code
    except KeyboardInterrupt:  # while the result was being written
        return _INTERRUPTED
    except BrokenPipeError:
        abandon_stdout()  # the reader has seen enough, as `head` does
        return code
    except OSError as error:
        abandon_stdout()
        notify(f"[ERROR] The output cannot be written: {error.strerror or error}")
        return Exit.ARGUMENT


def _run(command: click.Command, arguments: Sequence[str] | None, name: str, state: Run) -> int:
    try:
        code = command.main(args=arguments, prog_name=name, standalone_mode=False, obj=state)
    except RectoError as error:
        document = error_document(str(error), error.hint, kind_of(error), getattr(error, "component", "CLI"))
        return _failed(state, document, Exit.ARGUMENT if error.kind is ErrorKind.ARGUMENT else Exit.API)
    except click.UsageError as error:
        message = error.format_message().rstrip(".")
        return _failed(
            state,
            error_document(f"Invalid argument: {message}", f"Try `{name} --help`.", "argument"),
            Exit.ARGUMENT,
        )
    except (KeyboardInterrupt, click.Abort):
        return _failed(state, error_document("Interrupted", "Run it again.", "interrupted"), _INTERRUPTED)
    except SystemExit:  # click's way of leaving when the reader of its help has gone
        return Exit.OK
    except Exception as error:
        if os.environ.get("RECTO_DEBUG"):
            raise
        hint = "This is a fault of Recto, please report it. RECTO_DEBUG=1 shows where it happened."
        return _failed(
            state,
            error_document(f"Unexpected error: {type(error).__name__}: {error}", hint, "unexpected"),
            Exit.API,
        )
    return code if isinstance(code, int) else Exit.OK


def _failed(state: Run, document: dict[str, Any], code: int) -> int:
    state.document = {"schema_version": SCHEMA_VERSION, **document}
    return code


def _leave(state: Run, code: int) -> int:
    """Write the document where it was asked for; an error goes to both places, so that no old result is taken for this one's."""
    text = json_text(state.document)
    if state.output is None:
        write_stdout(text)
        return code
    try:
        write_file(state.output, text, "--output")
    except RectoError as error:
        write_stdout(
            json_text(
                {"schema_version": SCHEMA_VERSION, **error_document(str(error), error.hint, kind_of(error))}
            )
        )
        return Exit.ARGUMENT
    if "error" in state.document:
        write_stdout(text)
    else:
        write_stdout(
            json_text({"schema_version": SCHEMA_VERSION, "output": str(state.output), "exit_code": int(code)})
        )
    return code


if TYPE_CHECKING:
    from recto.contracts.retrieval_test.service import Backend
    from recto.types import Mode

_CLI = logging.getLogger("recto.contracts.retrieval_test.cli")
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
@click.option("--test-suite", metavar="FILE", type=_FILE, help="Run all queries of a suite instead of one.")
@click.option(
    "--output",
    metavar="FILE",
    type=_FILE,
    help="Write the JSON to a file; standard output then only says so, in JSON.",
)
@click.option(
    "--delay",
    metavar="SECONDS",
    type=click.FloatRange(0, 3600),
    help="Pause between a suite's queries [default: 10 a minute with Cohere, else none].",
)
@click.option(
    "--expected", metavar="FILE", type=_FILE, help="Compare a suite's results with those of an earlier run."
)
@click.option(
    "--update-expected", metavar="FILE", type=_FILE, help="Keep a suite's results for later comparison."
)
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
    with logging_to(Path(), notify, verbose=verbose) as log:
        try:
            if output is not None:
                check_target(output, "--output")
                run.output = output
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
                    run,
                    log,
                    stack,
                    query,
                    Batch(test_suite or Path(), top_k, delay, expected, update_expected, mode),
                )
        except RectoError as error:
            _CLI.error("%s", error)
            raise


def _answer(run: Run, log: Any, stack: ExitStack, query: str | None, batch: Batch) -> Exit:
    from recto.contracts.retrieval_test.contract import checked_query, checked_top_k

    checked_top_k(batch.top_k)
    if query is not None:
        checked_query(query)
    from recto.contracts.retrieval_test.service import Backend

    backend = stack.enter_context(Backend(notify=notify))
    try:
        settings = backend.settings
    except RectoError as error:
        raise CohereAPIError.of(error) from error
    log.secrets = (settings.cohere_api_key, settings.qdrant_api_key)
    if query is None:
        return _batch(run, backend, batch)
    from recto.contracts.retrieval_test.service import ask

    for warning in backend.open().info.warnings:
        notify(f"[WARNING] {warning}")
    answered = ask(backend, query, batch.top_k, mode=batch.mode)
    found = bool(answered.results)
    run.document = (
        answered.response
        if found
        else {**answered.response, "message": f"'{backend.collection(DEFAULT_COLLECTION)}' has no result"}
    )
    return Exit.OK if found else Exit.NO_RESULTS


def _batch(run: Run, backend: Backend, batch: Batch) -> Exit:
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
    if paid:  # a service that does not answer is told once, not for every query
        turn()
        backend.embed("ready")
    model = backend.model
    verdicts = run_cases(
        suite, lambda query, top_k: ask(backend, query, top_k, mode=batch.mode), turn, batch.top_k
    )
    if kept is not None:
        verdicts = compared(verdicts, kept, model)
    run.document = batch_document(suite, backend.collection(DEFAULT_COLLECTION), model, verdicts)
    broken = any(verdict.failed_api for verdict in verdicts)
    if batch.update:
        if broken:
            raise CohereAPIError(
                "Not every query was answered: the expected results are left as they were", hint="Try again."
            )
        write_file(batch.update, json_text(baseline_document(suite, model, verdicts)), "--update-expected")
    if broken:
        return Exit.API
    return Exit.OK if all(verdict.passed for verdict in verdicts) else Exit.NO_RESULTS


main = entry(command, "test_retrieval.py")
