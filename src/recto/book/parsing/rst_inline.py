"""Read the inline markup of reStructuredText in linear time; docutils alone takes quadratic time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from docutils import nodes, utils
from docutils.parsers.rst import states

from recto.book.parsing.directives import role_text

_PART_OF_PARAGRAPH = re.compile(r"(?s).{1,16000}(?:\n|\Z)|.+?(?:\n|\Z)")
"""What is read at a time: docutils copies the rest of a paragraph at each mark."""
_MARKUP = re.compile(r"[*`|_\\]")
_END_MARKS = ("emphasis", "strong", "interpreted_or_phrase_ref", "literal", "target", "substitution_ref")


def make_inliner(words_of: Mapping[str, str]) -> Any:
    """Return an inline parser that turns any role into its words."""

    def interpreted(_: str, text: str, role: str, __: int) -> Any:
        whole = utils.unescape(text, restore_backslashes=role == "math")
        name = role.lower()
        if name:
            words = "" if name == "raw" else role_text(name, whole, words_of)
        else:
            words = words_of.get(f" {' '.join(whole.split())}", whole)
        return [nodes.Text(words)], []

    inliner = states.Inliner()
    parse_text, customize = inliner.parse, inliner.init_customizations

    def init_customizations(settings: Any) -> None:
        customize(settings)
        inliner.implicit_dispatch = []  # addresses are text, and the pattern for them is quadratic
        for name in _END_MARKS:
            setattr(inliner.patterns, name, _EndMark(getattr(inliner.patterns, name)))

    def parse(text: str, lineno: int, memo: Any, parent: Any) -> Any:
        if not _MARKUP.search(text):
            return [nodes.Text(text)] if text else [], []
        found, messages = list[Any](), list[Any]()
        for part in re.findall(_PART_OF_PARAGRAPH, text):
            for name in _END_MARKS:
                getattr(inliner.patterns, name).is_missing = False
            inline, more = parse_text(part, lineno, memo, parent)
            found, messages, lineno = [*found, *inline], [*messages, *more], lineno + part.count("\n")
        return found, messages

    # A subclass does not work: docutils reads the attributes of its class.
    inliner.interpreted, inliner.parse = interpreted, parse
    inliner.init_customizations = init_customizations
    return inliner


class _EndMark:
    """A pattern of docutils for the end of inline markup.

    docutils searches it after each start, in all of the paragraph. If it is missing once, it is missing for
    the later starts, too.
    """

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern
        self.is_missing = False

    def search(self, text: str) -> re.Match[str] | None:
        """Return the first end, if there is one."""
        found = None if self.is_missing else self._pattern.search(text)
        self.is_missing = found is None
        return found
