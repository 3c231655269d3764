"""The command line: open a collection, print without control characters, and turn errors into exit codes."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from recto._util.text import escape_controls, to_json
from recto.errors import ConfigurationError, ErrorKind, InvalidArgument, RectoError, StorageError

# Settings and values are imported where they are used: without them, `recto --help` takes half the time.
if TYPE_CHECKING:
    from recto.protocols import Embedder, Store
    from recto.search.retriever import Retriever
    from recto.settings import Settings
    from recto.types.search import Filters, SearchResponse

_STYLES = re.compile(r"(\x1b\[(?:[012]|3[36])m)")  # the codes that `render.Style` writes


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

INDEX_EXIT_CODES = EXIT_CODES | dict.fromkeys(
    (ErrorKind.STORAGE, ErrorKind.BUSY, ErrorKind.DAMAGED), Exit.ARGUMENT
)
"""For commands that index a book: 3 is only the network; errors of the disk or of another writer are 4."""

_INTERRUPTED = 130
_MAX_TRUSTED = 1 << 16  # bytes
_exit_codes: ContextVar[Mapping[ErrorKind, Exit]] = ContextVar("exit_codes", default=EXIT_CODES)


def use_exit_codes(codes: Mapping[ErrorKind, Exit]) -> None:
    """Use other exit codes for errors of the running command."""
    _exit_codes.set(codes)


def connect(
    collection: str | None,
    changed: Mapping[str, str] | None = None,
    *,
    default: str | None = None,
    single_query: bool = False,
) -> Retriever:
    """Open a collection: by default COLLECTION_NAME, else `default`, else the only collection.

    `changed` settings override the environment. The first run of all indexes the sample book.
    """
    from recto.api import open_retriever
    from recto.contracts import DEFAULT_COLLECTIONS
    from recto.settings import load_settings

    settings = load_settings({**os.environ, **changed} if changed else None)
    confirm_endpoint(settings)
    return open_retriever(
        settings,
        notify,
        collection=collection or settings.collection or default,
        sample_names=DEFAULT_COLLECTIONS,
        single_query=single_query,
        close_at_exit=True,
    )


def confirm_endpoint(settings: Settings) -> None:
    """Name an embedding service elsewhere that the project's `.env` chose; on a terminal, ask once.

    Anyone can write the `.env` of a cloned repository, and the service receives the book and all queries.
    """
    from recto._util.files import make_private, read_limited, replace_text

    variable, address = settings.project_endpoint
    if not address:
        return
    path = settings.key_home / "trusted-endpoints"
    try:
        trusted = read_limited(path, _MAX_TRUSTED).decode("utf-8", "replace").splitlines()
    except (OSError, ValueError):
        trusted = []
    if address in trusted:
        return
    notify(f"{variable} in {settings.variables.origin(variable)}: texts and queries are sent to {address}")
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
        return
    if not click.confirm("Send them there?", err=True):
        raise ConfigurationError(
            f"Nothing is sent to {address}",
            hint=f"Remove {variable} from {settings.variables.origin(variable)}, or set another one.",
        )
    with suppress(OSError):  # without a writable home, the question is asked again
        make_private(path.parent)
        replace_text(path, "".join(f"{endpoint}\n" for endpoint in [*trusted, address]))


def close_later(*parts: Embedder | Store) -> None:
    """Close embedders and stores at the end of the command."""
    for part in parts:
        click.get_current_context().call_on_close(part.close)


def print_results(response: SearchResponse, text: str, *, color: bool = False) -> Exit:
    """Print the warnings and the results of a search, and return its exit code."""
    for warning in response.warnings:
        warn(warning)
    echo_text(text, color=color)
    return Exit.OK if response.hits else Exit.NO_RESULTS


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int], None] | None]:
    """Show a bar if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, total=total, completed=done)
    notify(f"{title}: done")


def save_report(write: Callable[[Path], None]) -> None:
    """Save a report in RECTO_HOME for the health page; if that fails, only warn."""
    from recto.settings import load_settings

    try:
        write(load_settings().home)
    except StorageError as error:
        warn(f"The report is not saved for the health page: {error}")


def warn(message: str) -> None:
    """Print a warning to standard error."""
    echo(f"[WARNING] {message}", err=True)


def notify(message: str) -> None:
    """Print a message to standard error."""
    echo(message, err=True)


def print_error(message: str, hint: str) -> None:
    """Print an error and its hint to standard error."""
    echo(f"[ERROR] {message}", *([f"        {hint}"] if hint else []), err=True)


def make_main(command: click.Command, name: str) -> Callable[[], None]:
    """Return the main function of a command."""

    def main() -> None:
        sys.exit(run(command, None, name))

    return main


def run(command: click.Command, arguments: Sequence[str] | None, name: str) -> int:  # noqa: PLR0911 - a table
    """Run a command and return its exit code; report every exception."""
    _prepare_output()
    _exit_codes.set(EXIT_CODES)
    try:
        code = command.main(args=arguments, prog_name=name, standalone_mode=False)
        sys.stdout.flush()
    except RectoError as error:
        return _fail(str(error), error.hint, _exit_codes.get()[error.kind])
    except click.exceptions.NoArgsIsHelpError as error:
        echo_text(error.format_message())
        return Exit.OK
    except click.UsageError as error:
        hint = _usage_hint(error, name)
        return _fail(str(InvalidArgument(error.format_message().rstrip("."))), hint, Exit.ARGUMENT)
    except (KeyboardInterrupt, click.Abort) as error:  # click raises Abort from KeyboardInterrupt
        echo("Interrupted.", *getattr(error.__cause__ or error, "__notes__", ()), err=True)
        return _INTERRUPTED
    except BrokenPipeError:
        discard_output()  # the reader closed the pipe, as `head` does
        return Exit.OK
    except OSError as error:
        if error.filename is not None:
            from recto._util.files import disk_advice

            message = f"Storage error: {error.filename}: {error.strerror}"
            hint = f"{disk_advice(error, Path())}."
            return _fail(message, hint, _exit_codes.get()[ErrorKind.STORAGE])
        discard_output()
        message = f"Storage error: The output cannot be written: {error.strerror}"
        return _fail(message, "Check standard output.", Exit.CONNECTION)
    except MemoryError:
        hint = "Close other programs, or give Recto more memory."
        return _fail("Out of memory", hint, _exit_codes.get()[ErrorKind.DAMAGED])
    except BaseException as error:  # a panic of the engine is not an Exception
        if isinstance(error, SystemExit) or os.environ.get("RECTO_DEBUG"):
            raise
        return _fail(
            f"Unexpected error: {type(error).__name__}: {error}",
            "This is a bug in Recto. Please report it. RECTO_DEBUG=1 shows the traceback.",
            _exit_codes.get()[ErrorKind.DAMAGED],
        )
    return code if isinstance(code, int) else Exit.OK


def _usage_hint(error: click.UsageError, name: str) -> str:
    path = name if error.ctx is None else error.ctx.command_path
    hint = f"Try `{path} --help`."
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        arguments = {parameter.name for parameter in error.ctx.command.params}
        if "query" in arguments:
            hint += f' To search for this text: `{path} -- "{error.option_name}"`.'
    return hint


def _prepare_output() -> None:
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115, PTH123 - closed by the parent process
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115, PTH123
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # print `?` for a character that the terminal lacks
    if logging.lastResort is not None:  # it prints the warnings of libraries
        logging.lastResort.setFormatter(LogFormatter())


def discard_output() -> None:
    """Discard further output, so that Python does not fail again when it closes the stream."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def _fail(message: str, hint: str, code: int) -> int:
    with suppress(OSError):  # the exit code is enough if standard error cannot be written
        print_error(message, hint)
    return code


def echo(*lines: str, err: bool = False) -> None:
    """Print lines; control characters in them, line breaks included, are escaped."""
    click.echo("\n".join(map(escape_controls, lines)), err=err)


def echo_text(text: str, *, color: bool = False, nl: bool = True) -> None:
    """Print a text; control characters are escaped, except line breaks and, with `color`, styles."""
    parts = _STYLES.split(text) if color else [text]  # every second part is a style
    safe = "".join(part if number % 2 else printable(part) for number, part in enumerate(parts))
    click.echo(safe, color=color, nl=nl)


def echo_json(data: Any) -> None:
    """Print data as JSON."""
    click.echo(to_json(data))


def emit(data: Any, lines: Iterable[str], *, as_json: bool) -> None:
    """Print data as JSON for programs, or lines for people."""
    if as_json:
        echo_json(data)
    elif texts := list(lines):
        echo(*texts)


class LogFormatter(logging.Formatter):
    """Escapes control characters, and indents further lines, so that no line looks like another record."""

    def __init__(self) -> None:
        super().__init__("[%(levelname)s] %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines of a record."""
        return printable(super().format(record)).replace("\n", "\n        ")


def printable(text: str) -> str:
    """Escape control characters, which could manipulate a terminal; keep line breaks and tabs."""
    return escape_controls(text, keep="\n\t")


def one_line(text: str) -> str:
    """Return printable text on one line."""
    return " ".join(printable(text).split())


def table(titles: Sequence[str], rows: Iterable[Sequence[str]], indent: str = "") -> list[str]:
    """Return the lines of a table; a `>` before a title aligns its column to the right."""
    from io import StringIO

    from rich.console import Console
    from rich.table import Table

    grid = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="")
    for title in titles:
        side: Literal["left", "right"] = "right" if title.startswith(">") else "left"
        grid.add_column(title.removeprefix(">"), justify=side, no_wrap=True)
    for cells in rows:
        grid.add_row(*(printable(cell).expandtabs() for cell in cells))
    # The width never wraps or cuts a line, so a pipe gets what a terminal shows.
    console = Console(file=StringIO(), width=10_000, color_system=None, markup=False, emoji=False)
    with console.capture() as captured:
        console.print(grid)
    return [f"{indent}{line.rstrip()}" for line in captured.get().splitlines()]


def filters_dict(filters: Filters) -> dict[str, Any]:
    """Return the filters that are set, by the names of the parameters of a search."""
    flags: dict[str, Any] = {}
    if filters.modules:
        flags["module"] = filters.modules[0] if len(filters.modules) == 1 else list(filters.modules)
    if filters.page_url is not None:
        flags["url"] = filters.page_url
    if filters.language is not None:
        flags["lang"] = filters.language
    for name, values in (("version", filters.versions), ("locale", filters.locales)):
        if names := ", ".join(filter(None, values)):
            flags[name] = names
    return flags
