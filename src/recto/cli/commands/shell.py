"""`recto shell`: run a shell session in a terminal, a plain terminal, or from a pipe."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, TextIO

import click

from recto.cli import options
from recto.cli.output import echo, echo_text
from recto.cli.runner import EXIT_CODES, Exit, connect, print_error, warn
from recto.search.query import FLAGS, check_search
from recto.settings import load_settings
from recto.types import Mode

if TYPE_CHECKING:
    from recto.cli.shell.session import ShellReply, ShellSession


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

    Queries can also come from a pipe or a file. The exit code is then that of the first line that failed, as
    of `recto search`, or 0.
    """
    filters = options.make_filters(modules, url)
    check_search(top_k, filters, min_score, FLAGS, mode)
    from recto.cli.render import Style, is_dumb, terminal_style
    from recto.cli.shell.session import ShellSession, ShellSettings

    interactive = sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
    settings = ShellSettings(filters, top_k, min_score, verbose, as_json, mode)
    with connect(collection) as retriever:
        style = terminal_style if interactive else Style
        session = ShellSession(retriever, settings, style, scripted=not interactive)
        if not interactive:
            return _run_script(session, _standard_input())
        if is_dumb():
            return _run_plain(session, _standard_input())
        from recto.cli.shell.terminal import run_terminal

        return run_terminal(session, load_settings().home / "shell-history")


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
        printed = _print(reply, f"line {number}: ")
        code = code or printed
        if reply.ends:
            return code
    while not (reply := session.finish()).ends:
        printed = _print(reply, f"line {number + 1}: ")
        code = code or printed
    return code


def _run_plain(session: ShellSession, source: TextIO) -> Exit:
    """Read lines after a plain prompt, until the input ends."""
    echo_text(session.greeting)
    while True:
        try:
            echo_text(session.prompt, nl=False)
            line = source.readline()
            reply = session.feed(line.rstrip("\r\n")) if line else session.finish()
            _print(reply, "")
            if reply.ends:
                return Exit.OK
        except KeyboardInterrupt:
            session.cancel()
            echo("", "Cancelled. Type :quit to leave.")


def _print(reply: ShellReply, position: str) -> Exit:
    """Print a reply, and return its exit code."""
    for warning in reply.warnings:
        warn(warning)
    if reply.text:
        echo_text(f"{reply.text}\n")
    if reply.error is None:
        return Exit.OK if reply.found else Exit.NO_RESULTS
    print_error(f"{position}{reply.error}", reply.error.hint)
    return EXIT_CODES[reply.error.kind]
