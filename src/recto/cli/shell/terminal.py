"""The shell in a terminal: a line with history and completion, and a terminal that is left as it was found."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TextIO

import click
from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import DummyHistory, History

from recto.cli.output import in_line
from recto.cli.runner import EXIT_CODES, Exit, warn
from recto.cli.shell.actions import COMMANDS, find_command
from recto.cli.shell.show import INDENT, wrapped
from recto.errors import InvalidArgument, RectoError
from recto.types import MODES

_LINES = 2000


class OwnHistory(History):
    """One line of the file for each line that was typed."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def load_history_strings(self) -> Iterable[str]:
        """Yield the lines, newest first."""
        try:
            text = self._path.read_text("utf-8", "replace")
        except OSError:
            return
        yield from reversed(text.split("\n")[:-1][-_LINES:])

    def store_string(self, string: str) -> None:
        """Add a line; several that were pasted become one."""
        with suppress(OSError):  # a home that cannot be written to costs the history, not the session
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(descriptor, "a", encoding="utf-8", errors="replace") as file:
                file.write(" ".join(string.split()) + "\n")


if TYPE_CHECKING:
    from recto.cli.shell.session import Session
    from recto.protocols import Index

_PATIENCE = 2.0  # seconds that leaving waits for work that is under way


class Names:
    """Modules, pages and collections as they were when they were last looked up, in the background."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._index: Index | None = None
        self._thread: threading.Thread | None = None
        self.modules: tuple[str, ...] = ()
        self.pages: tuple[str, ...] = ()
        self.collections: tuple[str, ...] = ()

    def begin(self) -> None:
        """Load the model and look the names up while the first question is being typed."""
        self._start(load=True)

    def refresh(self) -> None:
        """Look the names up again if another index is there, unless that is under way."""
        if self._thread is None or not self._thread.is_alive():
            self._start(load=False)

    def close(self) -> None:
        """Let work that is under way end, for a moment."""
        if self._thread is not None:
            self._thread.join(_PATIENCE)

    def _start(self, *, load: bool) -> None:
        self._thread = threading.Thread(target=self._work, args=(load,), name="recto-shell", daemon=True)
        self._thread.start()

    def _work(self, load: bool) -> None:
        with suppress(
            RectoError
        ):  # whoever asks a question is told of it then; here the names of before stay
            self._look_up()
            if load:
                self._session.warm_up()

    def _look_up(self) -> None:
        retriever = self._session.retriever
        index = retriever.open()
        if index is self._index:
            return
        self.modules = tuple(index.modules())
        self.pages = tuple(index.pages())
        self.collections = tuple(sorted({*retriever.store.collections(), *retriever.store.aliases()}))
        self._index = index


_MOST = 50


class Known(Protocol):
    """The names that are known."""

    modules: tuple[str, ...]
    pages: tuple[str, ...]
    collections: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A text that can stand where the last `replaces` characters are, and what it is."""

    text: str
    replaces: int
    about: str = ""


def candidates(line: str, known: Known) -> Iterator[Candidate]:
    """Yield what can be completed at the end of a line: commands, and the names that belong behind one."""
    if not line.startswith(":") or line.startswith("::"):
        return
    typed, space, argument = line[1:].partition(" ")
    if not space:
        yield from (
            Candidate(f":{one.name}", len(line), one.summary)
            for one in COMMANDS
            if one.name.startswith(typed.lower())
        )
        return
    try:
        command = find_command(typed)
    except InvalidArgument:  # it is being typed; Enter will tell
        return
    word = re.split(r"[,\s]", argument)[-1]
    if command.completes == "module":
        chosen = set(re.split(r"[,\s]+", argument[: len(argument) - len(word)]))
        yield from _beginning(word, [name for name in (*known.modules, "off") if name not in chosen])
    elif word != argument:
        return  # the others take one name
    elif command.completes == "page":
        yield from _containing(word, known.pages)
    elif command.completes == "collection":
        yield from _beginning(word, known.collections)
    elif command.completes == "switch":
        yield from _beginning(word, ("on", "off"))
    elif command.completes == "mode":
        yield from _beginning(word, MODES)
    elif command.completes == "command":
        yield from _beginning(word, [one.name for one in COMMANDS])


def _beginning(word: str, names: Iterable[str]) -> Iterator[Candidate]:
    yield from (Candidate(name, len(word)) for name in names if name.lower().startswith(word.lower()))


def _containing(word: str, names: Iterable[str]) -> Iterator[Candidate]:
    """Yield addresses that have a word anywhere: their beginnings are all the same."""
    found = [name for name in names if word.lower() in name.lower()]
    yield from (Candidate(name, len(word)) for name in found[:_MOST])


if TYPE_CHECKING:
    from recto.cli.shell.session import Reply, Session


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


if TYPE_CHECKING:
    from recto.cli.shell.session import Reply, Session

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
                click.echo(
                    f"{_AT_REST if session.look().colour else ''}Cancelled; Ctrl-D or :quit leaves.",
                    color=True,
                )
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
    _terminal_write(session, reply)
    return not reply.ends


def _terminal_write(session: Session, reply: Reply) -> None:
    look = session.look()
    for warning in reply.warnings:
        click.echo(
            "\n".join(look.doubtful(line) for line in wrapped(in_line(f"[WARNING] {warning}"), look.width)),
            color=look.colour,
        )
    if reply.text:
        click.echo(f"{reply.text}\n", color=look.colour)
    if reply.error is not None:
        lines = [look.bad(line) for line in wrapped(in_line(f"[ERROR] {reply.error}"), look.width)]
        click.echo(
            "\n".join([*lines, *wrapped(in_line(reply.error.hint), look.width, INDENT * 2), ""]),
            color=look.colour,
        )


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
