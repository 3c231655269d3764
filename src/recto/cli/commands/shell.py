"""`recto shell`: choose between the terminal and the plain loop."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, TextIO

from recto.cli.commands.search import connect
from recto.cli.runner import Exit
from recto.search.query import FLAGS, check_search
from recto.settings import load_settings

if TYPE_CHECKING:
    from recto.types import Filters, Mode


def shell(
    top_k: int,
    filters: Filters,
    min_score: float | None,
    collection: str | None,
    *,
    mode: Mode,
    verbose: bool,
    as_json: bool,
) -> Exit:
    """Answer lines from the terminal, or from whatever standard input is."""
    check_search(top_k, filters, min_score, FLAGS, mode)
    from recto.cli.shell.session import Session, View
    from recto.cli.shell.show import Look, is_dumb, terminal_look

    view = View(filters, top_k, min_score, verbose, as_json, mode)
    dumb = is_dumb()
    typed = sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()

    def look() -> Look:
        return terminal_look() if typed else Look()

    with connect(collection) as retriever:
        session = Session(retriever, view, look, scripted=not typed)
        if not typed or dumb:
            from recto.cli.shell import terminal as plain

            source = _input()
            return plain.run_dumb(session, source) if typed else plain.run_script(session, source)
        from recto.cli.shell.terminal import run_terminal

        return run_terminal(session, load_settings().home / "shell-history")


def _input() -> TextIO:
    """Return standard input; bytes that are no text become signs that say so."""
    source = sys.stdin or io.StringIO()  # closed by whoever started us
    if isinstance(source, io.TextIOWrapper):
        source.reconfigure(errors="replace")
    return source
