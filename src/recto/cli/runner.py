"""Keep a command's report where the service's health view finds it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from enum import IntEnum
from pathlib import Path

import click

from recto.errors import ErrorKind, InvalidArgument, RectoError, StorageError
from recto.settings import load_settings


class Exit(IntEnum):
    """The exit codes of the query contract."""

    OK = 0
    NO_RESULTS = 1
    CONFIGURATION = 2
    CONNECTION = 3
    ARGUMENT = 4
    VALIDATION_FAILED = 5


EXIT_CODES = {
    ErrorKind.ARGUMENT: Exit.ARGUMENT,
    ErrorKind.CONFIGURATION: Exit.CONFIGURATION,
    ErrorKind.MISSING: Exit.CONFIGURATION,
    ErrorKind.EMPTY: Exit.CONFIGURATION,
    ErrorKind.CONNECTION: Exit.CONNECTION,
    ErrorKind.STORAGE: Exit.CONNECTION,
    ErrorKind.BUSY: Exit.CONNECTION,
    ErrorKind.DAMAGED: Exit.CONNECTION,
}

INDEX_EXITS = EXIT_CODES | dict.fromkeys(
    (ErrorKind.STORAGE, ErrorKind.BUSY, ErrorKind.DAMAGED), Exit.ARGUMENT
)
"""Where a book is indexed, 3 is the network alone: what a disk or another writer refuses is fatal, 4."""

_INTERRUPTED = 130
_exits: ContextVar[Mapping[ErrorKind, Exit]] = ContextVar("exits", default=EXIT_CODES)


def ends_with(exits: Mapping[ErrorKind, Exit]) -> None:
    """Let the running command end with the exit codes of its own contract."""
    _exits.set(exits)


def run(command: click.Command, arguments: Sequence[str] | None, name: str) -> int:  # noqa: PLR0911 - a table of endings
    """Run a command and return its exit code; no exception gets past here."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115, PTH123 - closed by whoever started us
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115, PTH123
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(
                errors="replace"
            )  # a terminal that lacks a character shows another, not an error
    _exits.set(EXIT_CODES)
    try:
        code = command.main(args=arguments, prog_name=name, standalone_mode=False)
        sys.stdout.flush()
    except RectoError as error:
        return _fail(str(error), error.hint, _exits.get()[error.kind])
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return Exit.OK
    except click.UsageError as error:
        hint = f"Try `{name} --help`." if error.ctx is None else f"Try `{error.ctx.command_path} --help`."
        return _fail(str(InvalidArgument(error.format_message().rstrip("."))), hint, Exit.ARGUMENT)
    except (KeyboardInterrupt, click.Abort):
        click.echo("Interrupted.", err=True)
        return _INTERRUPTED
    except BrokenPipeError:
        _abandon_output()  # the reader has seen enough, as `head` does
        return Exit.OK
    except OSError as error:
        if error.filename is not None:
            message = f"Storage error: {error.filename}: {error.strerror}"
            return _fail(
                message, "Check its permissions and the space there.", _exits.get()[ErrorKind.STORAGE]
            )
        _abandon_output()
        return _fail(
            f"Storage error: The output cannot be written: {error.strerror}",
            "Check where it goes.",
            Exit.CONNECTION,
        )
    except Exception as error:
        if os.environ.get("RECTO_DEBUG"):
            raise
        return _fail(
            f"Unexpected error: {type(error).__name__}: {error}",
            "This is a fault of Recto, please report it. RECTO_DEBUG=1 shows where it happened.",
            _exits.get()[ErrorKind.DAMAGED],
        )
    return code if isinstance(code, int) else Exit.OK


def warn(message: str) -> None:
    """Say something that does not stop the work."""
    click.echo(f"[WARNING] {message}", err=True)


def notify(message: str) -> None:
    """Say what is going on."""
    click.echo(message, err=True)


def entry(command: click.Command, name: str) -> Callable[[], None]:
    """Make a program of a command."""

    def main() -> None:
        sys.exit(run(command, None, name))

    return main


def _fail(message: str, hint: str, code: int) -> int:
    with suppress(OSError):  # where even that cannot be written, the code still tells
        click.echo(f"[ERROR] {message}", err=True)
        if hint:
            click.echo(f"        {hint}", err=True)
    return code


def _abandon_output() -> None:
    """Let the rest go nowhere; Python would complain once more while it closes the stream."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def keep(write: Callable[[Path], None]) -> None:
    """Write into RECTO_HOME; where that cannot be, the report itself is still worth showing."""
    try:
        write(load_settings().home)
    except StorageError as error:
        warn(f"The report is not kept for the health view: {error}")
