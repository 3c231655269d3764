"""The lines of a page as they are stored: each as written, edited, or gone; and blocks made of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from recto.book.document import Block
from recto.book.markdown.diagrams import diagram_words
from recto.book.markdown.markup import Markup
from recto.book.markdown.prose import is_include, stated_ids, stored, unescaped_snippets

if TYPE_CHECKING:
    from markdown_it.token import Token

_GONE = frozenset({"front_matter", "mdx_code", "stray"})
_NO_ALT = re.compile(r"(?:!\[\s*\]\([^()\n]*\)(?:\{[^{}]*\})?\s*)+")
_PREFIX = re.compile(r"[ \t>]*")


class Lines:
    """A page's lines, from which its tokens take away what is no text; line numbers stay those of the source."""

    def __init__(self, source: str, mdx: bool) -> None:
        self.written = source.split("\n")
        self._kept: list[str | None] = list(self.written)
        self._mdx = mdx
        self._markup = Markup()
        self.ids: list[tuple[int, str]] = []
        """The ids that tags and attribute lists state, by their lines."""
        self._edits: dict[str, Callable[[Token, int, int], None]] = {
            "html_block": self._tags,
            "mdx_tag": self._tags,
            "fence": self._fence,
            "paragraph_open": self._paragraph,
            "table_open": self._table,
            "heading_open": self._heading,
        }

    def edit(self, token: Token) -> None:
        """Take from a token's lines what is no text."""
        if token.map is None:
            return
        first, last = token.map[0], min(token.map[1], len(self.written))
        if token.type in _GONE:
            self._kept[first:last] = [None] * (last - first)
        elif edit := self._edits.get(token.type):
            edit(token, first, last)

    def _put(self, first: int, texts: Sequence[str]) -> None:
        """Write other texts for some lines, behind what marks their quotation; a text that is empty takes its line away."""
        for number, text in enumerate(texts, first):
            if number < len(self.written):
                prefix = _PREFIX.match(self.written[number])
                self._kept[number] = (prefix[0] if prefix and ">" in prefix[0] else "") + text if text else None

    def _tags(self, token: Token, first: int, last: int) -> None:
        content = token.content
        self.ids += [(first + line + 1, name) for line, name in self._markup.ids(content)]
        words = self._markup.words(content)
        self._put(first, [*words, *[""] * (last - first)][: last - first])

    def _fence(self, token: Token, first: int, last: int) -> None:
        content = token.content.removesuffix("\n").split("\n")
        words = diagram_words(content) if token.info.strip().startswith("mermaid") else None
        if words is not None:
            self._put(first, ["", *words, *[""] * (last - first)][: last - first])
        elif any(is_include(line) or "8<-" in line for line in content):
            lines = ["" if is_include(line) else line for line in content]
            if any(line.strip() for line in lines):
                self._kept[first + 1 : first + 1 + len(lines)] = [
                    None if is_include(line) else unescaped_snippets(self.written[number]) for number, line in enumerate(content, first + 1)
                ]
            else:
                self._kept[first:last] = [None] * (last - first)

    def _paragraph(self, _: Token, first: int, last: int) -> None:
        """Leave out what shows nothing: images without a text, tags around nothing."""
        lines = self.written[first:last]
        text = "\n".join(lines)
        if "<" in text:
            self.ids += [(first + line + 1, name) for line, name in self._markup.ids(text)]
        if "{" in text:
            self.ids += [(first + line + 1, name) for line, name in stated_ids(lines)]
        opening = text.lstrip()[:2]
        if (opening == "![" and _NO_ALT.fullmatch(text.strip())) or (opening[:1] == "<" and not any(self._markup.words(text))):
            self._kept[first:last] = [None] * (last - first)
        elif self._mdx and opening[:1] == "<" and opening[1:].isupper() and text.rstrip().endswith(">"):
            self._put(first, self._markup.words(text, components_only=True))
        elif (edited := stored(lines, mdx=self._mdx)) is not None:
            self._kept[first:last] = edited

    def _heading(self, _: Token, first: int, last: int) -> None:
        text = "\n".join(self.written[first:last])
        if "<" in text:
            self.ids += [(first + line + 1, name) for line, name in self._markup.ids(text)]

    def _table(self, _: Token, first: int, last: int) -> None:
        lines = self.written[first:last]
        self.ids += [(first + line + 1, name) for line, name in self._markup.ids("\n".join(lines))]
        if (edited := stored(lines, mdx=self._mdx, table=True)) is not None:
            self._kept[first:last] = edited

    def block(self, kind: str, first: int, last: int, cuts: tuple[tuple[int, ...], ...] = ()) -> Block | None:
        """Make a block of some lines, without blank ones at its ends; None if nothing is left of them."""
        numbers: list[int] = []
        gap = False
        for number in range(first, min(last, len(self._kept))):
            line = self._kept[number]
            if line is None:
                gap = True
                continue
            if not line.strip() and (not numbers or (gap and not (self._kept[numbers[-1]] or "").strip())):
                continue
            numbers.append(number)
            gap = False
        while numbers and not (self._kept[numbers[-1]] or "").strip():
            numbers.pop()
        if not numbers:
            return None
        text = "\n".join(self._kept[number] or "" for number in numbers)
        whole = numbers[-1] - numbers[0] == len(numbers) - 1
        return Block(kind, text, numbers[0] + 1, numbers[-1] + 1, cuts, () if whole else tuple(number + 1 for number in numbers))
