"""Block rules for markdown-it: admonitions, tabs, math and MDX."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from recto.book.parsing.markdown.tags import LONGEST_TAG, tag_end

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.ruler import RuleOptionsType
    from markdown_it.rules_block import StateBlock

_INTERRUPTS: RuleOptionsType = {"alt": ["paragraph", "reference", "blockquote", "list"]}
_SPENT = "characters searched without a match"
_BUDGET = 1_000_000  # characters that may be searched for closing marks that do not exist
_FENCED = re.compile(r"(:{3,}|/{3,})[ \t]*(?:[A-Za-z][\w-]*(?:[ \t\[{|].*)?|\{.*|\|.*)?")
_INDENTED = re.compile(r"(?:!!!|\?\?\?\+?|===[!+]?)[ \t]+(?=[\"'\w])")
_STEP = 4
_SVG = re.compile(r"<svg(?:[\s>]|$)", re.IGNORECASE)
_MATH = {"$$": "$$", "\\[": "\\]"}
_ESM = re.compile(
    r"import\s++(?:[\w*{].*\sfrom\s++)?['\"]|import\s++(?:[\w*]++\s*+,?\s*+)?\{"
    r"|export\s+(?:default|const|let|var|function|async|class|type|interface|enum|\{|\*)"
)
_CODE_MARK = re.compile(r"\\.|['\"`{}\[\]()]|//|/\*|\*/")
_ENDS = {"'": "'", '"': '"', "`": "`", "/*": "*/"}
_TAG = re.compile(r"</?(?:[A-Za-z][\w.:-]*)?(?=[\s/>{]|$)")
_MAX_TAG_LINES = 500
_MAX_CODE_LINES = 500
_LONGEST_OPENING = 1_000  # characters that tell whether a line is `import` or `export`


def containers_plugin(md: MarkdownIt) -> None:
    """Add the container `admonition` and the token `math`; footnotes are not link references."""
    rules = md.block.ruler
    rules.before("fence", "admonition_fenced", _fenced, _INTERRUPTS)
    rules.before("fence", "admonition_indented", _indented, _INTERRUPTS)
    rules.before("fence", "math", _math, _INTERRUPTS)
    rules.before("html_block", "svg", _svg, _INTERRUPTS)
    rules.at("reference", _reference)


def mdx_plugin(md: MarkdownIt) -> None:
    """Add the tokens `mdx_code` and `mdx_tag`; remove indented code, which MDX does not have."""
    md.disable("code")
    rules = md.block.ruler
    rules.before("html_block", "mdx_esm", _esm)
    rules.before("html_block", "mdx_comment", _comment, _INTERRUPTS)
    rules.before("html_block", "mdx_expression", _expression)
    rules.before("html_block", "mdx_tag", _tag, _INTERRUPTS)


def _rest(state: StateBlock, line: int, length: int | None = None) -> str:
    """Return the text of a line after its indentation, or its first characters."""
    start, end = state.bMarks[line] + state.tShift[line], state.eMarks[line]
    return state.src[start : end if length is None else min(start + length, end)]


def _leaves(state: StateBlock, line: int) -> bool:
    """Return whether a line is indented less than its container."""
    return state.sCount[line] < state.blkIndent and not state.isEmpty(line)


def _push(state: StateBlock, kind: str, start: int, end: int, content: str = "") -> bool:
    """Turn whole lines into one token."""
    token = state.push(kind, "", 0)
    token.map = [start, end]
    token.content = content
    state.line = end
    return True


def _may_search(state: StateBlock) -> bool:
    """Return whether a rule may search for a closing mark; many unclosed ones use up the budget."""
    return int(state.env.get(_SPENT, 0)) < _BUDGET


def _not_found(state: StateBlock, start: int, end: int) -> bool:
    """Charge a search without a match to the budget; return False, as a rule that does not apply."""
    state.env[_SPENT] = int(state.env.get(_SPENT, 0)) + state.eMarks[end - 1] - state.bMarks[start]
    return False


def _fenced(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse `:::tip Title` to `:::`, `/// tip | Title` to `///`; without an end, to its container's."""
    if state.is_code_block(start) or _rest(state, start, 3) not in (":::", "///") or not _may_search(state):
        return False
    text = _rest(state, start).rstrip()
    opening = _FENCED.fullmatch(text)
    if silent or not opening:
        return bool(opening)
    marks = opening[1]
    if text == marks:  # a closing line without an opening one
        return _push(state, "stray", start, start + 1)
    line = start + 1
    while line < end and not _leaves(state, line):
        if _rest(state, line, len(marks)) == marks and not state.is_code_block(line):
            text = _rest(state, line).rstrip()
            if text == marks or (marks[0] == ":" and not text.strip(":")):  # more colons close it too
                return _nest(state, start, line, line + 1, 0)
        line += 1
    _not_found(state, start, line)
    return _nest(state, start, line, line, 0)


def _indented(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse `!!! note "Title"`, `??? note` and `=== "Tab"` with the indented lines below."""
    if state.is_code_block(start) or _rest(state, start, 3) not in ("!!!", "???", "==="):
        return False
    opens = bool(_INDENTED.match(_rest(state, start)))
    if silent or not opens:
        return opens
    line = last = start + 1
    while line < end and (state.isEmpty(line) or state.sCount[line] >= state.blkIndent + _STEP):
        line += 1
        if not state.isEmpty(line - 1):
            last = line
    return _nest(state, start, last, last, _STEP)


def _nest(state: StateBlock, start: int, inner: int, end: int, indent: int) -> bool:
    """Parse the lines between the first and `inner` as nested blocks."""
    outside = state.parentType, state.lineMax, state.blkIndent
    state.push("admonition_open", "div", 1).map = [start, end]
    state.parentType, state.lineMax, state.blkIndent = "admonition", inner, state.blkIndent + indent
    state.md.block.tokenize(state, start + 1, inner)
    state.push("admonition_close", "div", -1)
    state.parentType, state.lineMax, state.blkIndent = outside
    state.line = end
    return True


def _math(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse math on lines of its own, so that nothing in it becomes a heading, a list or a rule."""
    closing = _MATH.get(_rest(state, start, 2))
    if closing is None or state.is_code_block(start) or not _may_search(state):
        return False
    line = start
    while line < end and not _leaves(state, line):
        text = _rest(state, line).rstrip()
        text = text[2:] if line == start else text
        if text.endswith(closing):
            return silent or _push(state, "math", start, line + 1)
        if closing in text:  # text follows
            return False
        line += 1
    return _not_found(state, start, line)


def _svg(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse a drawing up to its closing tag: blank lines do not end it."""
    if state.is_code_block(start) or not _SVG.match(_rest(state, start, 5)) or not _may_search(state):
        return False
    for line in range(start, end):
        if _leaves(state, line):
            break
        text = _rest(state, line).rstrip().lower()
        if "</svg>" in text:
            if not text.endswith(">"):  # text follows
                return False
            content = state.getLines(start, line + 1, state.blkIndent, False)
            return silent or _push(state, "html_block", start, line + 1, content)
    return _not_found(state, start, end)


def _reference(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse link reference definitions, but not footnotes, which look like them and are text."""
    from markdown_it.rules_block import reference

    return _rest(state, start, 2) != "[^" and reference(state, start, end, silent)


def _esm(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse `import` and `export` up to a blank line outside braces, if the braces are closed."""
    if (
        state.level
        or not _rest(state, start, 1).startswith(("i", "e"))
        or not _ESM.match(_rest(state, start, _LONGEST_OPENING))
    ):
        return False
    if silent:
        return True
    depth, line, blank = 0, start, 0
    while line < min(end, start + _MAX_CODE_LINES):
        text = _rest(state, line)
        if not text.strip():
            blank = blank or line
            if depth <= 0 or not _may_search(state):
                break
        depth += _opened(text)
        line += 1
    if depth > 0:
        _not_found(state, start, line)
        line = blank or line
    return _push(state, "mdx_code", start, line)


def _opened(text: str) -> int:
    """Return how many more brackets a line of code opens than it closes, outside quotes."""
    marks = _CODE_MARK.findall(text)
    last = {mark: index for index, mark in enumerate(marks)}
    depth = index = 0
    while index < len(marks) and marks[index] != "//":
        mark = marks[index]
        if mark in _ENDS and last.get(_ENDS[mark], -1) > index:  # one that is never closed is an apostrophe
            index = marks.index(_ENDS[mark], index + 1)
        else:
            depth += (mark in "{[(") - (mark in "}])")
        index += 1
    return depth


def _comment(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse a comment in braces on lines of its own."""
    if _rest(state, start, 3) != "{/*" or not _may_search(state):
        return False
    for line in range(start, end):
        text = _rest(state, line).rstrip()
        if "*/}" in text:
            return text.endswith("*/}") and (silent or _push(state, "mdx_code", start, line + 1))
    return _not_found(state, start, end)


def _expression(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse an expression in braces on lines of its own; only the built page has its value."""
    first = _rest(state, start, 2)
    # The second characters begin a template tag or an attribute list.
    if silent or first[:1] != "{" or first[1:] in ("{", "%", "!", ":", "#", "") or not _may_search(state):
        return False
    depth, end = 0, min(end, start + _MAX_CODE_LINES)
    for line in range(start, end):
        text = _rest(state, line)
        depth += _opened(text)
        if depth <= 0:
            return text.rstrip().endswith("}") and _push(state, "mdx_code", start, line + 1)
    return _not_found(state, start, end)


def _tag(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse tags on lines of their own; the text between them is Markdown."""
    first = _rest(state, start, 2)
    if first[:1] != "<" or first == "<!" or not _may_search(state):
        return False
    text = _rest(state, start, LONGEST_TAG)
    lines = _lines_of_tags(text)
    if lines is None:
        end = min(end, start + _MAX_TAG_LINES)
        more = (_rest(state, line, LONGEST_TAG) for line in range(start + 1, end))
        text = "\n".join((text, *more))[:LONGEST_TAG]
        lines = _lines_of_tags(text)
    if not lines:
        state.env[_SPENT] = int(state.env.get(_SPENT, 0)) + len(text)
        return False
    content = "\n".join(text.split("\n")[:lines]).strip()
    return silent or _push(state, "mdx_tag", start, start + lines, content)


def _lines_of_tags(text: str) -> int | None:
    """Return how many lines from the first are only tags; None if a tag is not closed."""
    position = 0
    while tag := _TAG.match(text, position):
        closed = tag_end(text, tag.end())
        if closed is None:
            return None
        position = closed
        while position < len(text) and text[position] in " \t":
            position += 1
        if position == len(text) or text[position] == "\n":
            return text.count("\n", 0, position) + 1
    return 0
