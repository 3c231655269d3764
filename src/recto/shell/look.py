"""How text looks where it is shown: its width, its colours, its wrapped lines, the words of a question marked in it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

_WORD = re.compile(r"\w+(?:[-_.]\w+)*")
_ENDINGS = ("ing", "ies", "ed", "es", "s", "e", "y")
_STEM = 4  # letters that must be left of a word without its ending; shorter ones would match anything
_EVERYWHERE = """
a about all also am an and any are as at be been but by can could did do does for from get had has have he how i if in into is it
its just like me more most my no not of on one only or other our out over should so some such than that the their them then there
these they this those through to too up use used using was we were what when where which while who whom whose why will with would
you your
"""
_COMMON = frozenset(_EVERYWHERE.split())


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

    def marked(self, text: str, terms: Terms) -> str:
        """Return a text in which the words that a question asks for are bold."""
        if not self.colour or terms.pattern is None:
            return text
        return terms.pattern.sub(lambda found: self._styled("1", found.group()), text)

    def _styled(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and text else text


@dataclass(frozen=True, slots=True)
class Terms:
    """The words of a question that can be looked for in a text, in any of their simple forms."""

    words: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None

    def found(self, text: str) -> tuple[str, ...]:
        """Return those of the words that a text has."""
        return tuple(word for word in self.words if re.search(_forms(word), text, re.IGNORECASE))


def terms_of(question: str) -> Terms:
    """Return the words of a question without those that every sentence has."""
    words = {word.lower(): word for word in _WORD.findall(question) if len(word) > 1 and word.lower() not in _COMMON}
    if not words:
        return Terms()
    return Terms(tuple(words.values()), re.compile("|".join(_forms(word) for word in words), re.IGNORECASE))


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


def _forms(word: str) -> str:
    """Return a pattern for a word and what is made of it with a simple ending: node, nodes; simulating, simulate."""
    stem = next((word[: -len(end)] for end in _ENDINGS if word.lower().endswith(end) and len(word) - len(end) >= _STEM), word)
    ending = r"(?:s|es)?" if len(stem) < _STEM else r"(?:e|y|s|es|ies|ed|ing|ings|er|ers|or|ors|ion|ions)?"
    return rf"\b{re.escape(stem)}{ending}\b"
