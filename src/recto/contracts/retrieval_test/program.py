"""Run a command of document 003: JSON on standard output whatever happens, exit codes, and the log file."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from enum import IntEnum
from logging.handlers import TimedRotatingFileHandler
from pathlib import Path
from typing import Any

import click

from recto._util.files import replace_text
from recto._util.retry import Notify, redacted
from recto._util.text import encodable, escape_controls
from recto.contracts.retrieval_test.contract import SCHEMA_VERSION, error_document, kind_of
from recto.errors import ErrorKind, InvalidArgument, RectoError

LOG_FILE = "retrieval_test.log"
_KEPT_DAYS = 30
_INTERRUPTED = 130
_LOG = logging.getLogger("recto.contracts.retrieval_test")
_DATED = re.compile(re.escape(LOG_FILE) + r"\.(\d{4}-\d{2}-\d{2})")


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


def json_text(document: Any) -> str:
    """Serialise a document; escape characters that could manipulate a terminal."""
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    return escape_controls(encodable(text), keep="\n") + "\n"


def write_stdout(text: str) -> None:
    """Write to standard output as UTF-8, whatever the terminal's encoding."""
    if sys.stdout is None:  # closed by the parent process
        return
    sys.stdout.flush()
    binary = getattr(sys.stdout, "buffer", None)
    if binary is None:
        sys.stdout.write(text)
    else:
        binary.write(text.encode("utf-8"))
    sys.stdout.flush()


def discard_stdout() -> None:
    """Discard further output, so that Python does not fail again when it closes the stream."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def check_target(path: Path, flag: str) -> None:
    """Raise before the work starts if a file cannot be written."""
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
    """Replace a file atomically; a symbolic link stays a link."""
    try:
        replace_text(path.resolve(), text, private=False)
    except OSError as error:
        raise InvalidArgument(
            f"{flag} {path} cannot be written: {error.strerror or error}", hint="Name another file."
        ) from None


class LineFormatter(logging.Formatter):
    """Formats a record as `[timestamp] [level] [component] message`, always on one line."""

    def __init__(self) -> None:
        super().__init__()
        self.secrets: tuple[str, ...] = ()

    def format(self, record: logging.LogRecord) -> str:
        """Format the line; escape characters that could forge another line or manipulate a terminal."""
        stamp = (
            datetime.fromtimestamp(record.created, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z")
        )
        component = record.name.rpartition(".")[2].upper()
        message = escape_controls(redacted(record.getMessage(), *self.secrets))
        return f"[{stamp}] [{record.levelname}] [{component}] {message}"


@contextmanager
def logging_to(
    directory: Path, notify: Notify, *, verbose: bool, today: date | None = None
) -> Iterator[LineFormatter]:
    """Write the log while a command runs; if the file cannot be written, warn and continue without it."""
    formatter = LineFormatter()
    handlers: list[logging.Handler] = []
    try:
        file = TimedRotatingFileHandler(
            directory / LOG_FILE, when="midnight", backupCount=_KEPT_DAYS, encoding="utf-8", utc=True
        )
        handlers.append(file)
        _prune(directory, today or datetime.now(UTC).date())
    except OSError as error:
        reason = error.strerror or error
        if handlers:
            notify(f"[WARNING] Old files of {LOG_FILE} cannot be deleted ({reason})")
        else:
            notify(f"[WARNING] {LOG_FILE} cannot be written ({reason}); continuing without a log file")
    if verbose:
        handlers.append(logging.StreamHandler(sys.stderr))
    before, propagated = _LOG.level, _LOG.propagate
    _LOG.setLevel(logging.DEBUG if verbose else logging.INFO)
    _LOG.propagate = False
    for handler in handlers:
        handler.setFormatter(formatter)
        handler.handleError = _silent  # type: ignore[method-assign]
        _LOG.addHandler(handler)
    try:
        yield formatter
    finally:
        for handler in handlers:
            _LOG.removeHandler(handler)
            handler.close()
        _LOG.setLevel(before)
        _LOG.propagate = propagated


def _silent(record: logging.LogRecord) -> None:
    """Ignore a line that cannot be written, for example on a full disk: the output matters more."""
    del record


def _prune(directory: Path, today: date) -> None:
    """Delete old files by date: counting them would keep files too long, as not every day has one."""
    for path in directory.iterdir():
        found = _DATED.fullmatch(path.name)
        with suppress(ValueError):  # not a date, so not our file
            if found and date.fromisoformat(found[1]) < today - timedelta(days=_KEPT_DAYS):
                path.unlink(missing_ok=True)


def make_main(command: click.Command, name: str) -> Callable[[], None]:
    """Return the main function of a command."""

    def main() -> None:
        sys.exit(run(command, None, name))

    return main


def notify(message: str) -> None:
    """Print a message to standard error, apart from the JSON."""
    with suppress(OSError, ValueError):  # the JSON matters more
        click.echo(escape_controls(message), err=True)  # noqa: TID251 - this is the one that escapes


def run(command: click.Command, arguments: Sequence[str] | None, name: str) -> int:
    """Run a command, print its JSON, and return its exit code; never raise."""
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115, PTH123 - closed by the parent process
    if hasattr(sys.stderr, "reconfigure"):
        sys.stderr.reconfigure(errors="backslashreplace")
    state, code = CommandState(), int(ExitCode.OK)
    try:
        code = _run(command, arguments, name, state)
        return _leave(state, code) if state.document else code
    except KeyboardInterrupt:  # while the result was being written
        return _INTERRUPTED
    except BrokenPipeError:
        discard_stdout()  # the reader closed the pipe, as `head` does
        return code
    except OSError as error:
        discard_stdout()
        notify(f"[ERROR] The output cannot be written: {error.strerror or error}")
        return ExitCode.ARGUMENT


def _run(command: click.Command, arguments: Sequence[str] | None, name: str, state: CommandState) -> int:
    code: Any = ExitCode.API
    try:
        code = command.main(args=arguments, prog_name=name, standalone_mode=False, obj=state)
        return code if isinstance(code, int) else ExitCode.OK
    except RectoError as error:
        document = error_document(str(error), error.hint, kind_of(error), getattr(error, "component", "CLI"))
        code = ExitCode.ARGUMENT if error.kind is ErrorKind.ARGUMENT else ExitCode.API
    except click.UsageError as error:
        message = f"Invalid argument: {error.format_message().rstrip('.')}"
        document = error_document(message, f"Try `{name} --help`.", "argument")
        code = ExitCode.ARGUMENT
    except (KeyboardInterrupt, click.Abort):
        document = error_document("Interrupted", "Run it again.", "interrupted")
        code = _INTERRUPTED
    except SystemExit:  # from click, if the reader of its help closed the pipe
        return ExitCode.OK
    except BaseException as error:  # a panic of the engine is not an Exception
        if os.environ.get("RECTO_DEBUG"):
            raise
        hint = "This is a bug in Recto. Please report it. RECTO_DEBUG=1 shows the traceback."
        document = error_document(f"Unexpected error: {type(error).__name__}: {error}", hint, "unexpected")
        code = ExitCode.API
    state.document = {"schema_version": SCHEMA_VERSION, **document}
    return int(code)


def _leave(state: CommandState, code: int) -> int:
    """Write the document; an error goes to --output, too, so that no old result is mistaken for this one."""
    shown = state.document
    if state.output is not None:
        try:
            write_file(state.output, json_text(state.document), "--output")
            if "error" not in state.document:
                shown = {
                    "schema_version": SCHEMA_VERSION,
                    "output": str(state.output),
                    "exit_code": int(code),
                }
        except RectoError as error:
            document = error_document(str(error), error.hint, kind_of(error))
            shown, code = {"schema_version": SCHEMA_VERSION, **document}, ExitCode.ARGUMENT
    write_stdout(json_text(shown))
    return code
