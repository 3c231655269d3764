"""`recto shell`: run a shell session in a terminal, or from a pipe."""

from __future__ import annotations

import io
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from recto._util.text import filter_keys, nearest, plural, with_anchor
from recto.cli import (
    EXIT_CODES,
    Exit,
    connect,
    echo,
    echo_text,
    one_line,
    options,
    print_error,
    printable,
    warn,
)
from recto.cli.render import Style, results, results_json, wrap_markdown, wrap_message
from recto.errors import InvalidArgument, RectoError
from recto.search.query import ARGUMENTS, DEFAULT_TOP_K, FLAGS, MAX_TOP_K, check_search
from recto.settings import load_settings
from recto.types.search import MODES, NO_FILTERS, Filters, Hit, Mode

if TYPE_CHECKING:
    from prompt_toolkit.history import History

    from recto.protocols import Index
    from recto.search.retriever import Retriever

_CLOSE_SECONDS = 2.0  # how long to wait for the model at the end, if it is still being loaded
_RESET = "\x1b[0m\x1b[?2004l\x1b[?25h"  # no color, no bracketed paste, a visible cursor


@click.command()
@options.search_options
def shell(
    top_k: int,
    modules: tuple[str, ...],
    url: str | None,
    lang: str | None,
    version: str | None,
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
    filters = options.make_filters(modules, url, lang, version)
    check_search(top_k, filters, min_score, FLAGS, mode)
    from recto.cli.render import Style, is_dumb, terminal_style

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


COMMANDS = {
    "module": ("[NAMES | off]", "search only these modules; without names: list the modules"),
    "top": ("N", f"number of results, 1 to {MAX_TOP_K}"),
    "mode": (" | ".join(MODES), "rank by vector similarity (dense), by BM25 (lexical), or by both (hybrid)"),
    "verbose": ("[on | off]", "show complete chunks instead of snippets"),
    "select": ("[N] [QUESTION]", "find chunks that are related to a selected text"),
    "page": ("N | URL#ANCHOR", "show the section of result N, or a page or section by its URL"),
    "help": ("", "list the commands"),
    "quit": ("", "leave; Ctrl-D does the same"),
}
"""The usage and the help of each command, which `ShellSession.run_NAME` runs."""

_OFF = "off"
_END_OF_TEXT = ("", ".")


@dataclass(frozen=True, slots=True)
class ShellSettings:
    """How to search, and how to show the results."""

    filters: Filters = NO_FILTERS
    top_k: int = DEFAULT_TOP_K
    min_score: float | None = None
    verbose: bool = False
    as_json: bool = False
    mode: Mode = "hybrid"


@dataclass(frozen=True, slots=True)
class ShellReply:
    """The reply to a line; `found` is false for a search without results, `ends` ends the session."""

    text: str = ""
    warnings: tuple[str, ...] = ()
    error: RectoError | None = None
    found: bool = True
    ends: bool = False


class ShellSession:
    """Runs the lines of a shell session, one after the other."""

    def __init__(
        self,
        retriever: Retriever,
        settings: ShellSettings | None = None,
        style: Callable[[], Style] = Style,
        *,
        scripted: bool = False,
    ) -> None:
        self.retriever = retriever
        self.settings = settings or ShellSettings()
        self.style = style
        self._scripted = scripted
        self._hits: tuple[Hit, ...] = ()
        self._pasted: list[str] | None = None  # lines of a selected text that is not complete
        self._selected = ""  # a selected text that waits for a question
        self._shown_warnings: set[str] = set()

    @property
    def greeting(self) -> str:
        """The first message to a person."""
        chunks = plural(self.retriever.open().info.chunks, "chunk")
        return self._styled(
            f"{self.retriever.collection}: {chunks}. Type a query, or :help for the commands."
        )

    @property
    def pasting(self) -> bool:
        """Whether the next line is part of a selected text."""
        return self._pasted is not None

    @property
    def prompt(self) -> str:
        """The prompt for the next line."""
        if self.pasting:
            return "text> "
        if self._selected:
            return "question> "
        modules = one_line(",".join(self.settings.filters.modules))
        return f"recto ({modules})> " if modules else "recto> "

    def feed(self, line: str) -> ShellReply:
        """Run a line; the reply contains its error, if any."""
        try:
            return self._run(line.strip()) if self._pasted is None else self._paste(self._pasted, line)
        except RectoError as error:
            return ShellReply(error=error)

    def finish(self) -> ShellReply:
        """Handle the end of the input: it ends a selected text first, then the session."""
        if self.pasting or self._selected:
            return self.feed("")
        return ShellReply(ends=True)

    def cancel(self) -> None:
        """Drop the selected text."""
        self._pasted, self._selected = None, ""

    def _run(self, text: str) -> ShellReply:
        if text.startswith(":") and not text.startswith("::"):
            return self._run_command(*text[1:].partition(" ")[::2])
        question = text.removeprefix(":")
        return self._search(question, self._selected) if question or self._selected else ShellReply()

    def _run_command(self, name: str, argument: str) -> ShellReply:
        if name.lower() not in COMMANDS:
            near = nearest(name.lower(), list(COMMANDS))
            hint = f"Did you mean :{near}?" if near else ":help lists the commands."
            raise InvalidArgument(
                f"There is no command ':{name}'", hint=f"{hint} A query that begins with a colon needs two."
            )
        run: Callable[[str], ShellReply] = getattr(self, f"run_{name.lower()}")
        return run(argument.strip())

    def _search(self, question: str, selection: str = "") -> ShellReply:
        """Search with the current settings, and remember the results."""
        from recto.search.display import response_words

        self.cancel()
        now, retriever = self.settings, self.retriever
        retriever.warm_up()  # so that the time shown is only for the search
        rest = (now.top_k, now.filters, now.min_score)
        if selection:
            response = retriever.related(selection, question or None, *rest, mode=now.mode)
        else:
            response = retriever.search(question, *rest, mode=now.mode)
        self._hits = response.hits
        warnings = tuple(warning for warning in response.warnings if warning not in self._shown_warnings)
        self._shown_warnings.update(warnings)
        words = response_words(retriever, response)
        if now.as_json:
            text = results_json(response, words)
        else:
            text = results(response, words, self.style(), verbose=now.verbose)
            if self._scripted and question:
                text = f'Query: "{one_line(question)}"\n{text}'
        return ShellReply(text, warnings, found=bool(response.hits))

    def _paste(self, lines: list[str], line: str) -> ShellReply:
        """Add a line to the selected text, or end it."""
        if line.strip() not in _END_OF_TEXT:
            lines.append(line)
            return ShellReply()
        self._pasted = None
        if not lines:
            hint = "Type the text after :select, or the number of a result."
            raise InvalidArgument("Nothing is selected", hint=hint)
        return self._selected_text("\n".join(lines))

    def _selected_text(self, text: str) -> ShellReply:
        """Keep a selected text for the next line, which is a question about it or empty."""
        self._selected = text
        return self._message(
            f"Selected {plural(len(text.strip()), 'character')}. "
            "Ask a question about the text, or press Enter for related chunks."
        )

    def _hit(self, number: str) -> Hit:
        """Return the result with a number."""
        hits = self._hits
        if not hits:
            raise InvalidArgument("There are no results to choose from", hint="Type a query first.")
        if not re.fullmatch(r"[0-9]{1,3}", number) or not 1 <= int(number) <= len(hits):
            raise InvalidArgument(
                f"There is no result {number[:20]!r}", hint=f"Give a number from 1 to {len(hits)}."
            )
        return hits[int(number) - 1]

    def _message(self, text: str) -> ShellReply:
        """Return a message for people; scripts get none."""
        return ShellReply() if self._scripted else ShellReply(self._styled(text))

    def _styled(self, text: str) -> str:
        style = self.style()
        return "\n".join(style.dim(line) for line in wrap_message(text, style.width))

    def run_module(self, names: str) -> ShellReply:
        """Filter by modules, or list them."""
        if not names:
            return ShellReply(self._module_list())
        modules = () if names == _OFF else _existing_modules(self.retriever.open(), names)
        filters = replace(self.settings.filters, modules=modules)
        self.settings = replace(self.settings, filters=filters)
        return self._message(f"Searching only {', '.join(modules)}." if modules else "Searching all modules.")

    def _module_list(self) -> str:
        """List the modules, and mark the ones that are searched."""
        chosen, style = self.settings.filters.modules, self.style()
        keys, lines = filter_keys(chosen), []
        for module in self.retriever.modules():
            title = "" if module.title == module.name else f", {module.title}"
            row = one_line(f"{module.name}: {plural(module.chunks, 'chunk')}{title}")
            lines.append(style.bold(f"* {row}") if module.name in keys else f"  {row}")
        only = f"only {', '.join(chosen)}" if chosen else "all of them; `:module NAMES` selects some"
        return "\n".join([*lines, *wrap_message(f"Searching {only}.", style.width)])

    def run_top(self, number: str) -> ShellReply:
        """Set the number of results."""
        if not re.fullmatch(r"[0-9]{1,3}", number) or not 1 <= int(number) <= MAX_TOP_K:
            raise InvalidArgument(
                f":top must be between 1 and {MAX_TOP_K}", hint=f"{number[:40]!r} is not a valid number."
            )
        self.settings = replace(self.settings, top_k=int(number))
        return self._message(f"Showing {plural(int(number), 'result')}.")

    def run_mode(self, name: str) -> ShellReply:
        """Set the mode of the search."""
        mode = next((mode for mode in MODES if mode == name.lower()), None)
        if mode is None:
            raise InvalidArgument(
                f":mode must be one of {', '.join(MODES)}", hint=f"{name[:40]!r} is not a mode."
            )
        now = self.settings
        check_search(now.top_k, now.filters, now.min_score, ARGUMENTS._replace(min_score="--min-score"), mode)
        self.settings = replace(now, mode=mode)
        return self._message(f"Searching in {mode} mode.")

    def run_verbose(self, switch: str) -> ShellReply:
        """Show complete chunks, or snippets."""
        if switch not in ("", "on", _OFF):
            raise InvalidArgument(
                f":verbose takes on or off, not {switch[:40]!r}", hint="`:verbose` alone toggles it."
            )
        verbose = switch == "on" if switch else not self.settings.verbose
        self.settings = replace(self.settings, verbose=verbose)
        return self._message("Showing complete chunks." if verbose else "Showing snippets.")

    def run_select(self, argument: str) -> ShellReply:
        """Select the chunk of a result, or the text of the next lines."""
        if not argument:
            self._pasted = []
            return self._message("Paste or type the text; an empty line ends it.")
        number, _, question = argument.partition(" ")
        text = self._hit(number).chunk.text
        return self._search(question.strip(), text) if question.strip() else self._selected_text(text)

    def run_page(self, argument: str) -> ShellReply:
        """Show the section of a result, or a page or section by its URL."""
        if not argument:
            raise InvalidArgument(":page needs the number of a result or a URL", hint="Such as `:page 1`.")
        url = self._hit(argument).chunk.url if argument.isdecimal() else argument
        page, style, anchor = self.retriever.page(url), self.style(), url.partition("#")[2]
        text = page.markdown(anchor)
        body = [printable(text)] if self._scripted else wrap_markdown(text, style.width)
        link = one_line(with_anchor(page.url, anchor))
        return ShellReply("\n".join([style.cyan(link), "", *body]))

    def run_help(self, _argument: str) -> ShellReply:
        """List the commands."""
        usages = {f":{name} {usage}".rstrip(): summary for name, (usage, summary) in COMMANDS.items()}
        lines = [f"  {usage}\n      {summary}" for usage, summary in usages.items()]
        keys = "Tab completes, the arrow keys show earlier lines, Ctrl-C cancels, Ctrl-D leaves."
        return ShellReply("\n".join(["Type a query, or a command:", *lines, keys]))

    def run_quit(self, _argument: str) -> ShellReply:
        """End the session."""
        return ShellReply(ends=True)


def _existing_modules(index: Index, names: str) -> tuple[str, ...]:
    """Return module names, separated by commas or spaces; raise if the book does not have one of them."""

    def exists(name: str) -> bool:
        return bool(index.count(Filters(modules=(name,))))

    # A name can contain spaces, so they separate names only if the whole is not a name.
    parts = names.split(",") if "," in names else [names] if exists(names) else names.split()
    modules = tuple(dict.fromkeys(name.strip() for name in parts if name.strip()))
    for name in modules:
        if not exists(name):
            all_modules = index.modules()
            near = nearest(name, all_modules)
            raise InvalidArgument(
                f"There is no module {name!r}",
                hint=(f"Did you mean '{near}'? " if near else "") + f"Modules: {', '.join(all_modules)}.",
            )
    return modules
