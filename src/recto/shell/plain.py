"""The shell without a terminal's help: lines from a pipe or a file, or typed where the terminal is dumb."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TextIO

import click

from recto.cli.render import in_line
from recto.cli.running import EXIT_CODES, Exit, warn

if TYPE_CHECKING:
    from recto.shell.session import Reply, Session


def run_script(session: Session, lines: Iterable[str]) -> Exit:
    """Answer lines until they end; what fails is told and the rest goes on. Return the first failure's exit code."""
    code = Exit.OK
    number = 0
    for number, line in enumerate(lines, 1):
        reply = session.feed(line.removeprefix("\ufeff").rstrip("\r\n"))
        code = _write(reply, f"line {number}: ", code)
        if reply.ends:
            return code
    while not (reply := session.finish()).ends:
        code = _write(reply, f"line {number + 1}: ", code)
    return code


def run_dumb(session: Session, source: TextIO) -> Exit:
    """Ask for lines with a bare prompt, until the input ends."""
    click.echo(session.greeting)
    while True:
        try:
            click.echo(session.prompt, nl=False)
            line = source.readline()
            reply = session.feed(line.rstrip("\r\n")) if line else session.finish()
            _write(reply, "", Exit.OK)
            if reply.ends:
                return Exit.OK
        except KeyboardInterrupt:
            session.cancel()
            click.echo("\nCancelled; :quit leaves.")


def _write(reply: Reply, place: str, code: Exit) -> Exit:
    """Write a reply and return the exit code so far: the first that is not 0 stays."""
    for warning in reply.warnings:
        warn(in_line(warning))
    if reply.text:
        click.echo(f"{reply.text}\n")
    if reply.error is None:
        return code or (Exit.OK if reply.found else Exit.NO_RESULTS)
    click.echo(f"[ERROR] {place}{in_line(str(reply.error))}", err=True)
    if reply.error.hint:
        click.echo(f"        {in_line(reply.error.hint)}", err=True)
    return code or EXIT_CODES[reply.error.kind]
