"""Blocks around blocks that CommonMark does not know: admonitions and tabs of Docusaurus, MkDocs and pymdownx; and displayed math."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from recto.book.markdown.blockrules import INTERRUPTS, first_marks, in_vain, leaves, may_look, push, rest

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock

_FENCED = re.compile(r"(:{3,}|/{3,})[ \t]*(?:[A-Za-z][\w-]*(?:[ \t\[{|].*)?|\{.*|\|.*)?")
_INDENTED = re.compile(r"(?:!!!|\?\?\?\+?|===[!+]?)[ \t]+(?=[\"'\w])")
_STEP = 4
_MATH = {"$$": "$$", "\\[": "\\]"}


def containers_plugin(md: MarkdownIt) -> None:
    """Add the containers `admonition` and the token `math`."""
    md.block.ruler.before("fence", "admonition_fenced", fenced, INTERRUPTS)
    md.block.ruler.before("fence", "admonition_indented", indented, INTERRUPTS)
    md.block.ruler.before("fence", "math", math, INTERRUPTS)


def fenced(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """`:::tip Title` to `:::`, `/// tip | Title` to `///`; one that nothing closes goes to the end of what it is in."""
    if state.is_code_block(start) or first_marks(state, start, 3) not in (":::", "///") or not may_look(state):
        return False
    text = rest(state, start).rstrip()
    found = _FENCED.fullmatch(text)
    if not found:
        return False
    if silent:
        return True
    marks = found[1]
    if text == marks:  # a closing line that closes nothing is no text
        return push(state, "stray", start, start + 1)
    line = start + 1
    while line < end and not leaves(state, line):
        if first_marks(state, line, len(marks)) == marks and not state.is_code_block(line) and _closes(rest(state, line).rstrip(), marks):
            _nest(state, start, line, line + 1, 0)
            return True
        line += 1
    in_vain(state, state.eMarks[line - 1] - state.bMarks[start])
    _nest(state, start, line, line, 0)
    return True


def _closes(text: str, marks: str) -> bool:
    """Colons close what as many or fewer opened, slashes only what as many did."""
    return text == marks or (marks[0] == ":" and not text.strip(":"))


def indented(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """`!!! note "Title"`, `??? note`, `=== "Tab"`, and what is indented below."""
    if state.is_code_block(start) or first_marks(state, start, 3) not in ("!!!", "???", "===") or not _INDENTED.match(rest(state, start)):
        return False
    if silent:
        return True
    line = last = start + 1
    while line < end and (state.isEmpty(line) or state.sCount[line] >= state.blkIndent + _STEP):
        line += 1
        if not state.isEmpty(line - 1):
            last = line
    _nest(state, start, last, last, _STEP)
    return True


def _nest(state: StateBlock, start: int, inner: int, end: int, indent: int) -> None:
    """Read the lines between the first and `inner` as blocks of their own."""
    outside = state.parentType, state.lineMax, state.blkIndent
    opened = state.push("admonition_open", "div", 1)
    opened.map = [start, end]
    state.parentType, state.lineMax, state.blkIndent = "admonition", inner, state.blkIndent + indent
    state.md.block.tokenize(state, start + 1, inner)
    state.push("admonition_close", "div", -1)
    state.parentType, state.lineMax, state.blkIndent = outside
    state.line = end


def math(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Math that stands on lines of its own: nothing in it is a heading, a list or a rule."""
    closing = _MATH.get(first_marks(state, start, 2))
    if closing is None or state.is_code_block(start) or not may_look(state):
        return False
    line = start
    while line < end and not leaves(state, line):
        text = rest(state, line).rstrip()
        text = text[2:] if line == start else text
        if text.endswith(closing):
            return silent or push(state, "math", start, line + 1)
        if closing in text:  # text goes on behind it
            return False
        line += 1
    return in_vain(state, state.eMarks[line - 1] - state.bMarks[start])
