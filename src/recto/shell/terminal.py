"""The shell in a terminal: a line with history and completion, and a terminal that is left as it was found."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click
from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import DummyHistory

from recto.cli.render import in_line
from recto.cli.running import Exit
from recto.shell.completion import candidates
from recto.shell.history import OwnHistory
from recto.shell.look import wrapped
from recto.shell.names import Names
from recto.shell.show import INDENT

if TYPE_CHECKING:
    from recto.shell.session import Reply, Session

_AT_REST = "\x1b[0m\x1b[?2004l\x1b[?25h"  # no colour, no bracketed paste, a cursor that is seen


def run_terminal(session: Session, history: Path) -> Exit:
    """Answer what is typed until Ctrl-D or `:quit`."""
    click.echo(session.greeting)
    names = Names(session)
    names.begin()
    with left_as_found():
        asking = PromptSession[str](
            history=OwnHistory(history),
            completer=_Completion(names),
            complete_while_typing=Condition(lambda: get_app().current_buffer.text.startswith(":")),
            enable_suspend=True,
        )
        pasting = PromptSession[str](history=DummyHistory(), enable_suspend=True)
        goes_on = True
        while goes_on:
            try:
                goes_on = _turn(session, pasting if session.pasting else asking)
                names.refresh()
            except KeyboardInterrupt:  # at whatever moment it comes, it costs the line and nothing else
                session.cancel()
                click.echo(f"{_AT_REST if session.look().colour else ''}Cancelled; Ctrl-D or :quit leaves.", color=True)
    names.close()
    return Exit.OK


def _turn(session: Session, prompts: PromptSession[str]) -> bool:
    """Read and answer one line; return whether another one follows."""
    try:
        prompt = session.prompt
        line = prompts.prompt(FormattedText([("bold", prompt)]) if session.look().colour else prompt)
    except EOFError:
        reply = session.finish()
    else:
        reply = session.feed(line)
    _write(session, reply)
    return not reply.ends


def _write(session: Session, reply: Reply) -> None:
    look = session.look()
    for warning in reply.warnings:
        click.echo("\n".join(look.doubtful(line) for line in wrapped(in_line(f"[WARNING] {warning}"), look.width)), color=look.colour)
    if reply.text:
        click.echo(f"{reply.text}\n", color=look.colour)
    if reply.error is not None:
        lines = [look.bad(line) for line in wrapped(in_line(f"[ERROR] {reply.error}"), look.width)]
        click.echo("\n".join([*lines, *wrapped(in_line(reply.error.hint), look.width, INDENT * 2), ""]), color=look.colour)


class _Completion(Completer):
    """Offers the candidates of a line."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield what can stand at the cursor."""
        del complete_event
        for candidate in candidates(document.text_before_cursor, self._names):
            yield Completion(candidate.text, -candidate.replaces, display_meta=candidate.about)


@contextmanager
def left_as_found() -> Iterator[None]:
    """Give the terminal back in the state in which it was, however this ends, a polite kill included."""
    if sys.platform == "win32":
        yield
        return
    import termios

    def leave(number: int, _frame: object) -> None:
        sys.exit(128 + number)

    found = termios.tcgetattr(sys.stdin)
    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        with suppress(termios.error, OSError):  # a terminal that is gone needs nothing any more
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, found)
            sys.stdout.write(_AT_REST)
            sys.stdout.flush()
