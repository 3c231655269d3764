"""Print text and JSON without control characters."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import click

from recto._util.text import escape_controls, to_json

if TYPE_CHECKING:
    from recto.types.search import Filters

_STYLES = re.compile(r"(\x1b\[(?:[012]|3[1236])m)")  # the codes that `render.Style` writes


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
        if given := ", ".join(filter(None, values)):
            flags[name] = given
    return flags
