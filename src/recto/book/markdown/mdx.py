"""MDX for a CommonMark parser: block rules for what is not text, so that fences and line numbers stay right."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from recto.book.markdown.blockrules import INTERRUPTS, first_marks, in_vain, may_look, push, rest
from recto.book.markdown.markup import tag_end

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock

_ESM = re.compile(
    r"import\s+(?:[\w*{].*\sfrom\s+)?['\"]|import\s+(?:[\w*]+\s*,?\s*)?\{"
    r"|export\s+(?:default|const|let|var|function|async|class|type|interface|enum|\{|\*)"
)
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`(?:[^`\\]|\\.)*`|//.*|/\*.*?\*/")
_TAG = re.compile(r"</?(?:[A-Za-z][\w.:-]*)?(?=[\s/>{])")
_WRAPPER = re.compile(r"[ >]*(?P<fence>`{3,}|~{3,})[ ]*(?P<info>[^`\s]*)")
_CLOSING = re.compile(r"[ >]*(?P<fence>`{3,}|~{3,})[ \t]*")
_MAX_TAG = 4_000
_MAX_TAG_LINES = 60
_MAX_CODE_LINES = 500


def mdx_plugin(md: MarkdownIt) -> None:
    """Add the tokens `mdx_code` and `mdx_tag`; MDX has no indented code, so that rule goes."""
    md.disable("code")
    md.block.ruler.before("html_block", "mdx_esm", _esm)
    md.block.ruler.before("html_block", "mdx_comment", mdx_comment, INTERRUPTS)
    md.block.ruler.before("html_block", "mdx_expression", _expression)
    md.block.ruler.before("html_block", "mdx_tag", mdx_tag, INTERRUPTS)


def unwrapped(source: str) -> str:
    """Blank the two lines around what is fenced as `mdx-code-block`: Docusaurus reads it as if it were not fenced."""
    if "mdx-code-block" not in source:
        return source
    lines = source.split("\n")
    fence, wrapper = "", -1
    for number, line in enumerate(lines):
        if not fence:
            opened = _WRAPPER.match(line)
            if opened:
                fence, wrapper = opened["fence"], number if opened["info"] == "mdx-code-block" else -1
        elif (closed := _CLOSING.fullmatch(line)) and closed["fence"].startswith(fence):
            if wrapper >= 0:
                lines[wrapper] = lines[number] = ""
            fence = ""
    return "\n".join(lines)


def _esm(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """`import` and `export` up to the blank line after which no brace is open; if one never closes, up to the first blank line."""
    if state.parentType != "root" or state.src[state.bMarks[start] + state.tShift[start]] not in "ie" or not _ESM.match(rest(state, start)):
        return False
    if silent:
        return True
    depth, line, blank = 0, start, 0
    while line < min(end, start + _MAX_CODE_LINES):
        text = rest(state, line)
        if not text.strip():
            blank = blank or line
            if depth <= 0 or not may_look(state):
                break
        depth += _opened(text)
        line += 1
    if depth > 0:
        in_vain(state, state.eMarks[line - 1] - state.bMarks[start])
        line = blank or line
    return push(state, "mdx_code", start, line)


def _opened(text: str) -> int:
    """How many braces more a line of code opens than it closes, those within quotes left out."""
    text = _QUOTED.sub("", text)
    return sum(text.count(mark) for mark in "{[(") - sum(text.count(mark) for mark in "}])")


def mdx_comment(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """A comment in braces that stands on lines of its own."""
    if not state.src.startswith("{/*", state.bMarks[start] + state.tShift[start]) or not may_look(state):
        return False
    for line in range(start, end):
        text = rest(state, line).rstrip()
        if "*/}" in text:
            if not text.endswith("*/}"):
                return False
            return silent or push(state, "mdx_code", start, line + 1)
    return in_vain(state, state.eMarks[end - 1] - state.bMarks[start])


def _expression(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """An expression in braces that stands on lines of its own: code, whose value only the built page knows."""
    first = first_marks(state, start, 2)
    # Two braces, or a brace and one of these marks, is a template's or an attribute's, not an expression's.
    if silent or not first.startswith("{") or first[1:] in ("{", "%", "!", ":", "#", "") or not may_look(state):
        return False
    depth = 0
    for line in range(start, min(end, start + _MAX_CODE_LINES)):
        text = rest(state, line)
        depth += _opened(text)
        if depth <= 0:
            return text.rstrip().endswith("}") and push(state, "mdx_code", start, line + 1)
    return in_vain(state, state.eMarks[min(end, start + _MAX_CODE_LINES) - 1] - state.bMarks[start])


def mdx_tag(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Tags, one or several, that stand on lines of their own; what is between them is Markdown."""
    position = state.bMarks[start] + state.tShift[start]
    if state.src[position : position + 1] != "<" or state.src[position + 1 : position + 2] == "!" or not may_look(state):
        return False
    text = rest(state, start)[:_MAX_TAG]
    lines = _lines_of_tags(text)
    if lines is None:
        more = (rest(state, line)[:_MAX_TAG] for line in range(start + 1, min(end, start + _MAX_TAG_LINES)))
        text = "\n".join((text, *more))[:_MAX_TAG]
        lines = _lines_of_tags(text)
    if not lines:
        return in_vain(state, len(text))
    return silent or push(state, "mdx_tag", start, start + lines, "\n".join(text.split("\n")[:lines]).strip())


def _lines_of_tags(text: str) -> int | None:
    """Return how many lines from the first on are nothing but tags, up to the first that ends with one; None if a tag goes on."""
    position = 0
    while found := _TAG.match(text, position):
        closed = tag_end(text, found.end())
        if closed is None:
            return None
        position = closed
        while position < len(text) and text[position] in " \t":
            position += 1
        if position == len(text) or text[position] == "\n":
            return text.count("\n", 0, position) + 1
    return 0
