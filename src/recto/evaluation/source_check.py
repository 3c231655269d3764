"""Whether the text of every passage stands in its book, at the lines that the index says.

What is stored is not always what is written, so words are compared, not characters: white space may differ, entities are stored as what
they stand for, tags and imports are dropped, the head of a divided table and the first line of a divided fence are repeated, a diagram's
names are stored as what they stand for, partials with the page that shows them. None of these puts words into a passage that are not on
its page.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from recto.evaluation.issues import Issues, Trouble
from recto.evaluation.similarity import contained, words
from recto.protocols import Source
from recto.types import Chunk, Page

_HERE = 0.8  # share of a passage's words that its lines must have
_REPEATED = ("|", "```", "~~~", ":::", "<", "#", "!!!", "???", "===", "participant ", "actor ")
"""How lines begin that may be stored again with what comes after them."""


@dataclass(slots=True)
class SourceCheck:
    """Takes the passages of an index and compares them with the pages of a book."""

    changed: frozenset[str] = frozenset()
    """Paths of pages that were edited since: a text that is not there any more is no damage."""
    _chunks: dict[str, list[Chunk]] = field(default_factory=dict)

    def add(self, chunk: Chunk) -> None:
        """Take a passage."""
        self._chunks.setdefault(chunk.source, []).append(chunk)

    def compare(self, source: Source, issues: Issues) -> int:
        """Read the book once and return how many passages were compared; what is not on its page is looked for on the others."""
        lost: list[tuple[Chunk, Counter[str]]] = []
        everything: dict[str, Counter[str]] = {}
        compared = 0
        for page in source.pages():
            everything[page.path] = words(page.text)
            text = _Lines(page)
            for chunk in self._chunks.get(page.path, ()):
                compared += 1
                wanted = words(chunk.text)
                if contained(wanted, text.between(chunk.start_line, chunk.end_line)) >= _HERE or page.path in self.changed:
                    continue
                if contained(wanted, everything[page.path]) >= _HERE:
                    issues.add(Trouble.OTHER_LINES, f"{page.path}, lines {chunk.start_line} to {chunk.end_line}")
                else:
                    lost.append((chunk, wanted))
        for chunk, wanted in lost:
            origin = next((path for path, there in everything.items() if path != chunk.source and contained(wanted, there) >= _HERE), "")
            where = f"{chunk.source}, lines {chunk.start_line} to {chunk.end_line}"
            issues.add(Trouble.NOT_IN_SOURCE, f"{where}: it is the text of {origin}" if origin else where)
        return compared


class _Lines:
    """The words of a page by its lines; a page that partials were put into has the lines of its own file."""

    def __init__(self, page: Page) -> None:
        self._lines = page.text.split("\n")
        self._numbers: Sequence[int] = page.lines or range(1, len(self._lines) + 1)
        repeated = (line for line in self._lines if line.lstrip().startswith(_REPEATED))
        self._repeated = words("\n".join(repeated))

    def between(self, first: int, last: int) -> Counter[str]:
        """Count the words from one line to another, and those that may be repeated from elsewhere."""
        lines = self._lines[bisect_left(self._numbers, first) : bisect_right(self._numbers, last)]
        return words("\n".join(lines)) + self._repeated
