"""The shell in a terminal, with history, completion and a terminal that is restored at the end."""

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
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import DummyHistory, History

from recto._util.files import make_private
from recto.cli.output import echo, echo_text, one_line
from recto.cli.render import INDENT, wrap, wrap_message
from recto.cli.runner import Exit
from recto.cli.shell.actions import COMMANDS, find_command
from recto.errors import InvalidArgument, RectoError
from recto.types import MODES

if TYPE_CHECKING:
    from recto.cli.shell.session import ShellReply, ShellSession
    from recto.protocols import Index

_MAX_HISTORY = 2000
_MAX_PAGES = 50
_CLOSE_SECONDS = 2.0  # how long to wait for background work at the end
_RESET = "\x1b[0m\x1b[?2004l\x1b[?25h"  # no color, no bracketed paste, a visible cursor


class LineHistory(History):
    """A history file with one line for each entry."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def load_history_strings(self) -> Iterable[str]:
        """Yield the entries, newest first."""
        try:
            text = self._path.read_text("utf-8", "replace")
        except OSError:
            return
        yield from reversed(text.split("\n")[:-1][-_MAX_HISTORY:])

    def store_string(self, string: str) -> None:
        """Append an entry; several pasted lines become one."""
        with suppress(OSError):  # without a writable home there is no history
            make_private(self._path.parent)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(descriptor, "a", encoding="utf-8", errors="replace") as file:
                file.write(" ".join(string.split()) + "\n")


@dataclass(frozen=True, slots=True)
class KnownNames:
    """The names that can be completed."""

    modules: tuple[str, ...] = ()
    pages: tuple[str, ...] = ()
    collections: tuple[str, ...] = ()


class NameLoader:
    """Loads the names that can be completed in a background thread; until then the old ones are used."""

    def __init__(self, session: ShellSession) -> None:
        self.known = KnownNames()
        self._session = session
        self._index: Index | None = None
        self._thread: threading.Thread | None = None

    def start(self, *, warm_up: bool = False) -> None:
        """Load the names if the index has changed, and the model if `warm_up` is set."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(
                target=self._load, args=(warm_up,), name="recto-shell", daemon=True
            )
            self._thread.start()

    def close(self) -> None:
        """Wait a moment for the background thread."""
        if self._thread is not None:
            self._thread.join(_CLOSE_SECONDS)

    def _load(self, warm_up: bool) -> None:
        with suppress(RectoError):  # the next search reports the error
            retriever = self._session.retriever
            index = retriever.open()
            if index is not self._index:
                names = sorted({*retriever.store.collections(), *retriever.store.aliases()})
                self.known = KnownNames(tuple(index.modules()), tuple(index.pages()), tuple(names))
                self._index = index
            if warm_up:
                self._session.warm_up()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A completion that replaces the last `replaces` characters of the line."""

    text: str
    replaces: int
    about: str = ""


def candidates(line: str, known: KnownNames) -> Iterator[Candidate]:
    """Yield the completions at the end of a line: commands, and names after a command."""
    if not line.startswith(":") or line.startswith("::"):
        return
    typed, space, argument = line[1:].partition(" ")
    if not space:
        for one in COMMANDS:
            if one.name.startswith(typed.lower()):
                yield Candidate(f":{one.name}", len(line), one.summary)
        return
    try:
        kind = find_command(typed).completes
    except InvalidArgument:
        return
    word = re.split(r"[,\s]", argument)[-1]
    names: Iterable[str] = ()
    if kind == "module":
        chosen = set(re.split(r"[,\s]+", argument[: len(argument) - len(word)]))
        names = [name for name in (*known.modules, "off") if name not in chosen]
    elif word != argument:
        return  # the other commands take one name
    elif kind == "page":  # all URLs begin the same, so any part of them matches
        found = [name for name in known.pages if word.lower() in name.lower()]
        yield from (Candidate(name, len(word)) for name in found[:_MAX_PAGES])
    elif kind:
        names = {
            "collection": known.collections,
            "switch": ("on", "off"),
            "mode": MODES,
            "command": [one.name for one in COMMANDS],
        }[kind]
    yield from (Candidate(name, len(word)) for name in names if name.lower().startswith(word.lower()))


class _Completer(Completer):
    def __init__(self, names: NameLoader) -> None:
        self._names = names

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        del complete_event
        for candidate in candidates(document.text_before_cursor, self._names.known):
            yield Completion(candidate.text, -candidate.replaces, display_meta=candidate.about)


def run_terminal(session: ShellSession, history: Path) -> Exit:
    """Run the lines that a person types, until Ctrl-D or `:quit`."""
    echo_text(session.greeting, color=session.style().color)
    names = NameLoader(session)
    names.start(warm_up=True)  # while the first query is being typed
    with restored_terminal():
        prompt = PromptSession[str](
            history=LineHistory(history),
            completer=_Completer(names),
            complete_while_typing=Condition(lambda: get_app().current_buffer.text.startswith(":")),
            enable_suspend=True,
        )
        paste_prompt = PromptSession[str](history=DummyHistory(), enable_suspend=True)
        running = True
        while running:
            try:
                running = _run_line(session, paste_prompt if session.pasting else prompt)
                names.start()
            except KeyboardInterrupt:  # at any moment, Ctrl-C cancels only the current line
                session.cancel()
                if session.style().color:
                    sys.stdout.write(_RESET)
                echo("Cancelled. Press Ctrl-D or type :quit to leave.")
    names.close()
    return Exit.OK


def _run_line(session: ShellSession, prompt: PromptSession[str]) -> bool:
    """Read and run one line; return whether the session goes on."""
    try:
        text = session.prompt
        line = prompt.prompt(FormattedText([("bold", text)]) if session.style().color else text)
    except EOFError:
        reply = session.finish()
    else:
        reply = session.feed(line)
    _print(session, reply)
    return not reply.ends


def _print(session: ShellSession, reply: ShellReply) -> None:
    style = session.style()
    lines = []
    for warning in reply.warnings:
        lines += [style.yellow(line) for line in wrap_message(f"[WARNING] {warning}", style.width)]
    if reply.text:
        lines += [reply.text, ""]
    if reply.error is not None:
        lines += [style.red(line) for line in wrap_message(f"[ERROR] {reply.error}", style.width)]
        lines += [*wrap(one_line(reply.error.hint), style.width, INDENT * 2), ""]
    if lines:
        echo_text("\n".join(lines), color=style.color)


@contextmanager
def restored_terminal() -> Iterator[None]:
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
