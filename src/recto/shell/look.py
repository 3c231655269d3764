"""How text looks where it is shown: its width, its colours, its wrapped lines, the words of a question marked in it."""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from recto.search.lexical import QueryWord
from recto.search.snippets import find_matches

_WIDEST = 100  # columns; longer lines are hard to read
_NARROWEST = 40


@dataclass(frozen=True, slots=True)
class Look:
    """The columns there are, and whether there is colour."""

    width: int = 80
    colour: bool = False

    def strong(self, text: str) -> str:
        """Return a text in bold."""
        return self._styled("1", text)

    def faint(self, text: str) -> str:
        """Return a text that stays in the background."""
        return self._styled("2", text)

    def good(self, text: str) -> str:
        """Return a text in the colour of what is well."""
        return self._styled("32", text)

    def doubtful(self, text: str) -> str:
        """Return a text in the colour of what is to be doubted."""
        return self._styled("33", text)

    def bad(self, text: str) -> str:
        """Return a text in the colour of what went wrong."""
        return self._styled("31", text)

    def address(self, text: str) -> str:
        """Return a text in the colour of addresses."""
        return self._styled("36", text)

    def marked(self, text: str, words: Sequence[QueryWord]) -> str:
        """Return a text in which the words that match a query are bold."""
        if not self.colour:
            return text
        end, parts = 0, []
        for match in find_matches(text, words):
            parts += [text[end : match.start], self._styled("1", text[match.start : match.end])]
            end = match.end
        return "".join((*parts, text[end:]))

    def _styled(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and text else text


def is_dumb() -> bool:
    """Tell whether the terminal can show nothing but text."""
    return sys.platform != "win32" and os.environ.get("TERM", "") in ("", "dumb", "unknown")


def terminal_look() -> Look:
    """Return the width of the terminal, within what is readable, and whether it shows colours."""
    columns = shutil.get_terminal_size((Look().width, 24)).columns
    return Look(max(_NARROWEST, min(columns, _WIDEST)), not is_dumb() and not os.environ.get("NO_COLOR"))


def cells(text: str) -> int:
    """Count the columns that a text takes in a terminal."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(sign) else 2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in text)


def cut(text: str, width: int) -> str:
    """Return as much of a text as fits on a line."""
    return text if cells(text) <= width else f"{_head(text, width - 3)}..."


def wrapped(text: str, width: int, indent: str = "") -> Iterator[str]:
    """Yield the lines of a text, broken between words where that can be done."""
    room = max(width - cells(indent), 10)
    line = ""
    for word in text.split():
        rest = word
        if line and cells(line) + 1 + cells(rest) <= room:
            line += f" {rest}"
            continue
        if line:
            yield indent + line
        while cells(rest) > room:
            head = _head(rest, room)
            yield indent + head
            rest = rest[len(head) :]
        line = rest
    if line:
        yield indent + line


def _head(text: str, width: int) -> str:
    taken = used = 0
    for sign in text:
        used += cells(sign)
        if used > width:
            break
        taken += 1
    return text[: max(taken, 1)]
