"""How the contract's commands end: one table of exit codes, and a JSON document for every ending."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

import click

from recto.backend.contract import SCHEMA_VERSION
from recto.backend.errors import error_document, kind_of
from recto.backend.output import abandon_stdout, json_text, write_file, write_stdout
from recto.errors import ErrorKind, RectoError

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


def tell(message: str) -> None:
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
        tell(f"[ERROR] The output cannot be written: {error.strerror or error}")
        return Exit.ARGUMENT


def _run(command: click.Command, arguments: Sequence[str] | None, name: str, state: Run) -> int:
    try:
        code = command.main(args=arguments, prog_name=name, standalone_mode=False, obj=state)
    except RectoError as error:
        document = error_document(str(error), error.hint, kind_of(error), getattr(error, "component", "CLI"))
        return _failed(state, document, Exit.ARGUMENT if error.kind is ErrorKind.ARGUMENT else Exit.API)
    except click.UsageError as error:
        message = error.format_message().rstrip(".")
        return _failed(state, error_document(f"Invalid argument: {message}", f"Try `{name} --help`.", "argument"), Exit.ARGUMENT)
    except (KeyboardInterrupt, click.Abort):
        return _failed(state, error_document("Interrupted", "Run it again.", "interrupted"), _INTERRUPTED)
    except SystemExit:  # click's way of leaving when the reader of its help has gone
        return Exit.OK
    except Exception as error:
        if os.environ.get("RECTO_DEBUG"):
            raise
        hint = "This is a fault of Recto, please report it. RECTO_DEBUG=1 shows where it happened."
        return _failed(state, error_document(f"Unexpected error: {type(error).__name__}: {error}", hint, "unexpected"), Exit.API)
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
        write_stdout(json_text({"schema_version": SCHEMA_VERSION, **error_document(str(error), error.hint, kind_of(error))}))
        return Exit.ARGUMENT
    if "error" in state.document:
        write_stdout(text)
    else:
        write_stdout(json_text({"schema_version": SCHEMA_VERSION, "output": str(state.output), "exit_code": int(code)}))
    return code
