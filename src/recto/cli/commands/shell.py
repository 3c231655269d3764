"""`recto shell`: run a shell session in a terminal, or from a pipe."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from recto.cli import options
from recto.cli.output import echo, echo_text
from recto.cli.runner import EXIT_CODES, Exit, connect, print_error, warn
from recto.errors import RectoError
from recto.search.query import FLAGS, check_search
from recto.settings import load_settings
from recto.types.search import MODES, Mode

if TYPE_CHECKING:
    from prompt_toolkit.history import History

    from recto.cli.shell import ShellReply, ShellSession

_CLOSE_SECONDS = 2.0  # how long to wait for the model at the end, if it is still being loaded
_RESET = "\x1b[0m\x1b[?2004l\x1b[?25h"  # no color, no bracketed paste, a visible cursor


@click.command()
@options.search_options
def shell(
    top_k: int,
    modules: tuple[str, ...],
    url: str | None,
    min_score: float | None,
    mode: Mode,
    collection: str | None,
    verbose: bool,
    as_json: bool,
) -> Exit:
    """Search a book interactively; type `:help` for the commands of the shell.

    Queries can also come from a pipe or a file. The exit code is then 0, or the code that `recto search` has
    for the first line that failed.
    """
    filters = options.make_filters(modules, url)
    check_search(top_k, filters, min_score, FLAGS, mode)
    from recto.cli.render import Style, is_dumb, terminal_style
    from recto.cli.shell import ShellSession, ShellSettings

    interactive = sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
    settings = ShellSettings(filters, top_k, min_score, verbose, as_json, mode)
    with connect(collection) as retriever:
        style = terminal_style if interactive else Style
        session = ShellSession(retriever, settings, style, scripted=not interactive)
        if not interactive:
            return _run_script(session, _standard_input())
        echo_text(session.greeting, color=style().color)
        if is_dumb():
            return _run_lines(session, _plain_reader(session, _standard_input()))
        return _run_terminal(session, load_settings().home / "shell-history")


def _standard_input() -> TextIO:
    source = sys.stdin or io.StringIO()  # closed by the parent process
    if isinstance(source, io.TextIOWrapper):
        source.reconfigure(errors="replace")
    return source


def _run_script(session: ShellSession, lines: Iterable[str]) -> Exit:
    """Run all lines, and return the exit code of the first one that failed."""
    code = Exit.OK
    number = 0
    for number, line in enumerate(lines, 1):
        reply = session.feed(line.removeprefix("\ufeff").rstrip("\r\n"))
        printed = _print(session, reply, f"line {number}: ")
        code = code or printed
        if reply.ends:
            return code
    while not (reply := session.finish()).ends:
        printed = _print(session, reply, f"line {number + 1}: ")
        code = code or printed
    return code


def _run_lines(session: ShellSession, read: Callable[[], str]) -> Exit:
    """Run the lines that a person types, until the input ends or `:quit`."""
    while True:
        try:
            try:
                reply = session.feed(read())
            except EOFError:
                reply = session.finish()
            _print(session, reply)
            if reply.ends:
                return Exit.OK
        except KeyboardInterrupt:  # at any moment, Ctrl-C cancels only the current line
            session.cancel()
            echo("Cancelled. Press Ctrl-D or type :quit to leave.")


def _plain_reader(session: ShellSession, source: TextIO) -> Callable[[], str]:
    """Return a function that reads a line after a plain prompt."""

    def read() -> str:
        echo_text(session.prompt, nl=False)
        line = source.readline()
        if not line:
            raise EOFError
        return line.rstrip("\r\n")

    return read


def _run_terminal(session: ShellSession, history: Path) -> Exit:
    """Run a session with history and completion."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.application import get_app
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.filters import Condition
    from prompt_toolkit.formatted_text import FormattedText
    from prompt_toolkit.history import DummyHistory

    from recto.cli.shell import COMMANDS

    completions = [*(f":{name}" for name in COMMANDS), *(f":mode {mode}" for mode in MODES)]

    def prepare() -> None:
        with suppress(RectoError):  # the first search reports the error
            completions.extend(f":module {name}" for name in session.retriever.open().modules())
            session.retriever.warm_up()

    preparing = threading.Thread(target=prepare, name="recto-shell", daemon=True)
    preparing.start()  # while the first query is being typed
    prompt = PromptSession[str](
        history=_open_history(history),
        completer=WordCompleter(completions, ignore_case=True, sentence=True),
        complete_while_typing=Condition(lambda: get_app().current_buffer.text.startswith(":")),
        enable_suspend=True,
    )
    paste_prompt = PromptSession[str](history=DummyHistory(), enable_suspend=True)

    def read() -> str:
        text = session.prompt
        styled = FormattedText([("bold", text)]) if session.style().color else text
        return (paste_prompt if session.pasting else prompt).prompt(styled)

    with _restored_terminal():
        code = _run_lines(session, read)
    preparing.join(_CLOSE_SECONDS)
    return code


def _open_history(path: Path) -> History:
    """Return the history in a file that only the user can read, or in memory if it cannot be written."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    from recto._util.files import make_private

    try:
        make_private(path.parent)
        os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))
    except OSError:
        return InMemoryHistory()
    return FileHistory(path)


def _print(session: ShellSession, reply: ShellReply, position: str = "") -> Exit:
    """Print a reply, and return its exit code."""
    for warning in reply.warnings:
        warn(warning)
    if reply.text:
        echo_text(f"{reply.text}\n", color=session.style().color)
    if reply.error is None:
        return Exit.OK if reply.found else Exit.NO_RESULTS
    print_error(f"{position}{reply.error}", reply.error.hint)
    return EXIT_CODES[reply.error.kind]


@contextmanager
def _restored_terminal() -> Iterator[None]:
    """Restore the state of the terminal at the end, also after SIGTERM."""
    if sys.platform == "win32":
        yield
        return
    import termios

    def leave(number: int, _frame: object) -> None:
        sys.exit(128 + number)

    state = termios.tcgetattr(sys.stdin)
    handler = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)
        with suppress(termios.error, OSError):  # the terminal was closed
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, state)
            sys.stdout.write(_RESET)
            sys.stdout.flush()
