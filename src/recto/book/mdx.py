"""MDX for a CommonMark parser: block rules for what is not text, so that fences and line numbers stay right."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.ruler import RuleOptionsType
    from markdown_it.rules_block import StateBlock

_ESM = re.compile(r"import\s+(?:[\w*{].*\sfrom\s+)?['\"]|import\s*\{|export\s+(?:default|const|let|var|function|async|class|\{|\*)")
_TAG = re.compile(r"</?(?:[A-Za-z][\w.:-]*)?(?=[\s/>{])")
_MAX_TAG = 4_000
_MAX_TAG_LINES = 60
_UNCLOSED = "mdx_unclosed_comment"
_INTERRUPTS: RuleOptionsType = {"alt": ["paragraph", "reference", "blockquote", "list"]}


def mdx_plugin(md: MarkdownIt) -> None:
    """Add the tokens `mdx_esm`, `mdx_comment` and `mdx_tag`; MDX has no indented code, so that rule goes."""
    md.disable("code")
    md.block.ruler.before("html_block", "mdx_esm", _esm)
    md.block.ruler.before("html_block", "mdx_comment", _comment, _INTERRUPTS)
    md.block.ruler.before("html_block", "mdx_tag", _tag, _INTERRUPTS)


def _esm(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """`import` and `export` up to the blank line after which no brace is open."""
    if state.parentType != "root" or not _ESM.match(_rest(state, start)):
        return False
    if silent:
        return True
    depth, line = 0, start
    while line < end:
        text = _rest(state, line)
        if not text.strip() and depth <= 0:
            break
        depth += sum(text.count(mark) for mark in "{[(") - sum(text.count(mark) for mark in "}])")
        line += 1
    return _push(state, "mdx_esm", start, line, "")


def _comment(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """A comment in braces that stands on lines of its own."""
    if not _rest(state, start).startswith("{/*") or start >= state.env.get(_UNCLOSED, end):
        return False
    for line in range(start, end):
        text = _rest(state, line).rstrip()
        if "*/}" in text:
            if not text.endswith("*/}"):
                return False
            return silent or _push(state, "mdx_comment", start, line + 1, "")
    state.env[_UNCLOSED] = start  # nothing below closes a comment, so nobody needs to look again
    return False


def _tag(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Tags, one or several, that stand on lines of their own; what is between them is Markdown."""
    first = _rest(state, start)
    if not first.startswith("<") or first.startswith("<!"):
        return False
    text = ""
    for line in range(start, min(end, start + _MAX_TAG_LINES)):
        text += _rest(state, line).rstrip() + "\n"
        if len(text) > _MAX_TAG:
            return False
        closed = _only_tags(text.strip())
        if closed is False:
            return False
        if closed:
            return silent or _push(state, "mdx_tag", start, line + 1, text.strip())
    return False


def _only_tags(text: str) -> bool | None:
    """Tell whether a text is nothing but tags; None if its last tag goes on."""
    position = 0
    while position < len(text):
        if not (found := _TAG.match(text, position)):
            return False
        closed = _tag_end(text, found.end())
        if closed is None:
            return None
        position = closed
        while position < len(text) and text[position].isspace():
            position += 1
    return True


def _tag_end(text: str, position: int) -> int | None:
    """Return where a tag ends, with quotes and braces in its attributes respected."""
    depth, quote = 0, ""
    for index in range(position, len(text)):
        mark = text[index]
        if quote:
            quote = "" if mark == quote else quote
        elif mark in "\"'`":
            quote = mark
        elif mark == "{":
            depth += 1
        elif mark == "}":
            depth -= 1
        elif mark == ">" and depth <= 0:
            return index + 1
    return None


def _rest(state: StateBlock, line: int) -> str:
    """A line's text behind its indentation."""
    return state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]]


def _push(state: StateBlock, kind: str, start: int, end: int, content: str) -> bool:
    token = state.push(kind, "", 0)
    token.map = [start, end]
    token.content = content
    state.line = end
    return True
