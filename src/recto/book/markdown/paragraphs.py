"""Paragraphs and underlined headings in one pass: each line is asked once whether something else begins there."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock

_UNDERLINE = re.compile(r"(?:=+|-+)[ \t]*")
_BEGINNINGS = {
    "heading": "#",
    "blockquote": ">",
    "hr": "*-_",
    "list_block": "*-+0123456789",
    "html_block": "<",
    "fence": "`~",
    "fenced": ":/",
    "indented": "!?=",
    "math": "$\\",
    "mdx_comment": "{",
    "mdx_tag": "<",
}
"""The marks that a rule's first line begins with, so that the others need not be asked; a rule that is not here may begin with any."""

Rule = Callable[["StateBlock", int, int, bool], bool]


def paragraphs_plugin(md: MarkdownIt) -> None:
    """Replace the two rules that CommonMark's parser has for them, which go over the same lines one after the other."""
    md.disable("lheading")
    interrupting: dict[str, list[Rule]] = {}

    def rules(mark: str) -> list[Rule]:
        if mark not in interrupting:
            every = md.block.ruler.getRules("paragraph")
            interrupting[mark] = [rule for rule in every if rule.__name__ != "table" and mark in _BEGINNINGS.get(rule.__name__, mark)]
        return interrupting[mark]

    def paragraph(state: StateBlock, start: int, _: int, silent: bool) -> bool:  # noqa: ARG001
        """Take lines up to a blank one, one where another block begins, or one that makes a heading of those above it."""
        outside, state.parentType = state.parentType, "paragraph"
        end = state.lineMax
        line, level = start + 1, 0
        while line < end and not state.isEmpty(line):
            indent = state.sCount[line] - state.blkIndent
            # What is indented far, or stands left of a quotation, is the paragraph's own in any case.
            if indent <= 3 and state.sCount[line] >= 0:
                if indent >= 0 and (level := _underlines(state, line)):
                    break
                mark = state.src[state.bMarks[line] + state.tShift[line]]
                if any(rule(state, line, end, True) for rule in rules(mark)) or _begins_table(state, line, end):
                    break
            line += 1
        _push(state, start, line, level)
        state.parentType = outside
        return True

    md.block.ruler.at("paragraph", paragraph)


def _begins_table(state: StateBlock, line: int, end: int) -> bool:
    """A table shows by its second line."""
    if line + 1 >= end or state.isEmpty(line + 1) or state.src[state.bMarks[line + 1] + state.tShift[line + 1]] not in "|-:":
        return False
    from markdown_it.rules_block import table

    return table(state, line, end, True)


def _underlines(state: StateBlock, line: int) -> int:
    """Return the level of the heading that a line of dashes or equal signs makes."""
    start = state.bMarks[line] + state.tShift[line]
    if state.src[start] not in "=-" or not _UNDERLINE.fullmatch(state.src, start, state.eMarks[line]):
        return 0
    return 1 if state.src[start] == "=" else 2


def _push(state: StateBlock, start: int, line: int, level: int) -> None:
    name, tag = ("heading", f"h{level}") if level else ("paragraph", "p")
    content = state.getLines(start, line, state.blkIndent, False).strip()
    state.line = line + 1 if level else line
    state.push(f"{name}_open", tag, 1).map = [start, state.line]
    inline = state.push("inline", "", 0)
    inline.content, inline.map, inline.children = content, [start, state.line], []
    state.push(f"{name}_close", tag, -1)
