"""`recto shell`: search a book interactively, or with queries from a pipe."""

from __future__ import annotations

import asyncio
import io
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from recto._util.files import make_private
from recto._util.text import plural
from recto.cli import EXIT_CODES, Exit, connect, echo, one_line, options, print_error, print_results
from recto.cli.commands.search import explanation_lines
from recto.cli.render import Style, is_dumb, results, results_json, terminal_style, wrap_markdown
from recto.errors import InvalidArgument, RectoError
from recto.evaluation.explain import explain
from recto.search.display import response_words
from recto.search.query import ARGUMENTS, make_options
from recto.search.retriever import Retriever
from recto.settings import load_settings
from recto.types.request import MAX_TOP_K, SearchRequest
from recto.types.search import MODES, Hit

COMMANDS = {
    "module": ("[NAMES | off]", "search only these modules; without names: list the modules"),
    "top": ("N", f"number of results, 1 to {MAX_TOP_K}"),
    "mode": (" | ".join(MODES), "rank by vector similarity (dense), by BM25 (lexical), or by both (hybrid)"),
    "select": ("N [QUESTION] | TEXT", "find chunks that are related to result N or to a text"),
    "page": ("N", "show the section of result N"),
    "explain": ("", "explain the ranking of the last query"),
    "help": ("", "list the commands"),
    "quit": ("", "leave; Ctrl-D does the same"),
}
"""The usage and the help of each command."""
_NAMES = ARGUMENTS._replace(top_k=":top")


@click.command()
@options.search_options("group_by")
@options.collection
@options.verbose
@options.as_json
def shell(request: SearchRequest, collection: str | None, verbose: bool, as_json: bool) -> Exit:
    """Search a book interactively; type `:help` for the commands of the shell.

    Queries can also come from a pipe or a file. The exit code is then 0, or the code that `recto search` has
    for the first line that failed.
    """
    has_terminal = sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
    with connect(collection) as retriever:
        session = ShellSession(retriever, request, verbose, as_json, not has_terminal)
        if has_terminal:
            return _run_terminal(session, load_settings().home / "shell-history")
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(errors="replace")
        return _run_script(session, sys.stdin or ())  # the parent process may have closed it


def _run_script(session: ShellSession, lines: Iterable[str]) -> Exit:
    """Run all lines, and return the exit code of the first one that failed."""
    code = Exit.OK
    with suppress(EOFError):
        for number, line in enumerate(lines, 1):
            line_code = session.run(line.removeprefix("\ufeff"), f"line {number}: ")
            code = code or line_code
    return code


def _run_terminal(session: ShellSession, history: Path) -> Exit:
    """Run the lines that a person types, with history and completion, until Ctrl-D or `:quit`."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.history import FileHistory

    chunks = plural(session.retriever.open().info.chunks, "chunk")
    echo(f"{session.retriever.collection}: {chunks}. Type a query, or :help for the commands.")
    make_private(history.parent)
    history.touch(mode=0o600)
    read: Callable[[str], str] = input
    if not is_dumb():  # even a prompt without colors writes escape sequences
        completer = WordCompleter([f":{name}" for name in COMMANDS], sentence=True)
        prompt = PromptSession[str](history=FileHistory(history), completer=completer)
        read = partial(prompt.prompt, pre_run=lambda: _end_on_sigterm(prompt.app))
    while True:
        try:
            session.run(read(session.prompt))
        except KeyboardInterrupt:
            echo("Cancelled. Press Ctrl-D or type :quit to leave.")
        except EOFError:
            return Exit.OK


def _end_on_sigterm(prompt: Any) -> None:
    """Let the event loop handle SIGTERM: an exception in a signal handler could leave the terminal raw."""

    def end() -> None:
        if not prompt.is_done:
            prompt.exit(exception=SystemExit(128 + signal.SIGTERM))

    with suppress(NotImplementedError):  # Windows
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end)


@dataclass(slots=True)
class ShellSession:
    """Runs lines: queries, and commands that change how the next query is searched and shown."""

    retriever: Retriever
    request: SearchRequest
    """The last query, and how the next one is searched."""
    verbose: bool
    as_json: bool
    is_scripted: bool
    """Print the queries, and no colors."""
    hits: tuple[Hit, ...] = ()

    @property
    def prompt(self) -> str:
        """The prompt for the next line."""
        modules = one_line(",".join(self.request.filters.modules))
        return f"recto ({modules})> " if modules else "recto> "

    @property
    def style(self) -> Style:
        """The width and the colors of the output."""
        return Style() if self.is_scripted else terminal_style()

    def run(self, line: str, position: str = "") -> Exit:
        """Run a line and return its exit code; errors begin with the position. `:quit` raises EOFError."""
        text = line.strip()
        try:
            if text.startswith(":") and not text.startswith("::"):
                name, _, argument = text[1:].partition(" ")
                return self._run_command(name, argument.strip())
            return self._search(text.removeprefix(":")) if text else Exit.OK
        except RectoError as error:
            print_error(f"{position}{error}", error.hint)
            return EXIT_CODES[error.kind]

    def _run_command(self, name: str, argument: Any) -> Exit:
        match name:
            case "module" if argument:
                modules = () if argument == "off" else options.split_names((argument,))
                self.request = replace(self.request, filters=replace(self.request.filters, modules=modules))
            case "module":
                listed = self.retriever.modules()
                echo(*(f"{module.name}: {plural(module.chunks, 'chunk')}" for module in listed))
            case "top":
                top_k = int(argument[:4]) if argument.isdecimal() else 0
                self.request = make_options(_NAMES, self.request, top_k=top_k)
            case "mode":
                self.request = make_options(_NAMES, self.request, mode=argument)
            case "select":
                number, _, question = argument.partition(" ")
                if number.isdecimal():
                    return self._search(question.strip(), self._hit(number).chunk.text)
                return self._search("", argument)
            case "page":
                url = self._hit(argument).chunk.url
                text = self.retriever.page(url).markdown(url.partition("#")[2])
                echo(url, "", *wrap_markdown(text, self.style.width), "")
            case "explain":
                echo(*explanation_lines(explain(self.retriever, self.request)))
            case "help":
                echo(*(f":{command} {usage}: {text}" for command, (usage, text) in COMMANDS.items()))
            case "quit":
                raise EOFError
            case _:
                hint = ":help lists the commands. A query that begins with a colon needs two."
                raise InvalidArgument(f"There is no command ':{name}'", hint=hint)
        return Exit.OK

    def _search(self, query: str, selection: str = "") -> Exit:
        """Search, print the results, and remember them."""
        retriever, request = self.retriever, replace(self.request, query=query or self.request.query)
        retriever.warm_up()  # so that the time shown is only for the search
        if selection:
            response = retriever.related(selection, query or None, **request.options)
        else:
            response = retriever.search(replace(request, query=query))
        self.hits, self.request = response.hits, request
        words = response_words(retriever, response)
        if self.as_json:
            text = results_json(response, words)
        else:
            header = f'Query: "{one_line(query)}"\n' if self.is_scripted and query else ""
            text = header + results(response, words, self.style, verbose=self.verbose)
        return print_results(response, f"{text}\n", color=self.style.color)

    def _hit(self, number: str) -> Hit:
        """Return the result with a number."""
        position = int(number[:4]) if number.isdecimal() else 0
        if 0 < position <= len(self.hits):
            return self.hits[position - 1]
        hint = f"Give a number from 1 to {len(self.hits)}." if self.hits else "Type a query first."
        raise InvalidArgument(f"There is no result {number[:20]!r}", hint=hint)
