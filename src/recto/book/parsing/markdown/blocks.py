"""Block rules for markdown-it: admonitions, tabs, math, MDX, and a faster paragraph rule."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from recto.book.parsing.markdown.text import tag_end

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.ruler import RuleOptionsType
    from markdown_it.rules_block import StateBlock

INTERRUPTS: RuleOptionsType = {"alt": ["paragraph", "reference", "blockquote", "list"]}
_SPENT = "characters searched without a match"
_BUDGET = 1_000_000  # characters that may be searched for closing marks that do not exist


def rest(state: StateBlock, line: int) -> str:
    """Return the text of a line after its indentation."""
    return state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]]


def first_marks(state: StateBlock, line: int, length: int) -> str:
    """Return the first characters of a line's text, without copying a long line."""
    start = state.bMarks[line] + state.tShift[line]
    return state.src[start : min(start + length, state.eMarks[line])]


def leaves(state: StateBlock, line: int) -> bool:
    """Return whether a line is indented less than its container."""
    return state.sCount[line] < state.blkIndent and not state.isEmpty(line)


def push(state: StateBlock, kind: str, start: int, end: int, content: str = "") -> bool:
    """Turn whole lines into one token."""
    token = state.push(kind, "", 0)
    token.map = [start, end]
    token.content = content
    state.line = end
    return True


def may_search(state: StateBlock) -> bool:
    """Return whether a rule may search for a closing mark; many unclosed ones use up the budget."""
    return int(state.env.get(_SPENT, 0)) < _BUDGET


def not_found(state: StateBlock, characters: int) -> bool:
    """Charge a search without a match to the budget; return False, as a rule that does not apply."""
    state.env[_SPENT] = int(state.env.get(_SPENT, 0)) + characters
    return False


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
    """Parse `:::tip Title` to `:::`, `/// tip | Title` to `///`; without an end, to its container's."""
    if (
        state.is_code_block(start)
        or first_marks(state, start, 3) not in (":::", "///")
        or not may_search(state)
    ):
        return False
    text = rest(state, start).rstrip()
    found = _FENCED.fullmatch(text)
    if not found:
        return False
    if silent:
        return True
    marks = found[1]
    if text == marks:  # a closing line without an opening one
        return push(state, "stray", start, start + 1)
    line = start + 1
    while line < end and not leaves(state, line):
        if (
            first_marks(state, line, len(marks)) == marks
            and not state.is_code_block(line)
            and _closes(rest(state, line).rstrip(), marks)
        ):
            _nest(state, start, line, line + 1, 0)
            return True
        line += 1
    not_found(state, state.eMarks[line - 1] - state.bMarks[start])
    _nest(state, start, line, line, 0)
    return True


def _closes(text: str, marks: str) -> bool:
    """Return whether a line closes a container: with at least as many colons, or as many slashes."""
    return text == marks or (marks[0] == ":" and not text.strip(":"))


def indented(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse `!!! note "Title"`, `??? note` and `=== "Tab"` with the indented lines below."""
    if (
        state.is_code_block(start)
        or first_marks(state, start, 3) not in ("!!!", "???", "===")
        or not _INDENTED.match(rest(state, start))
    ):
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
    """Parse the lines between the first and `inner` as nested blocks."""
    outside = state.parentType, state.lineMax, state.blkIndent
    opened = state.push("admonition_open", "div", 1)
    opened.map = [start, end]
    state.parentType, state.lineMax, state.blkIndent = "admonition", inner, state.blkIndent + indent
    state.md.block.tokenize(state, start + 1, inner)
    state.push("admonition_close", "div", -1)
    state.parentType, state.lineMax, state.blkIndent = outside
    state.line = end


def math(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse math on lines of its own, so that nothing in it becomes a heading, a list or a rule."""
    closing = _MATH.get(first_marks(state, start, 2))
    if closing is None or state.is_code_block(start) or not may_search(state):
        return False
    line = start
    while line < end and not leaves(state, line):
        text = rest(state, line).rstrip()
        text = text[2:] if line == start else text
        if text.endswith(closing):
            return silent or push(state, "math", start, line + 1)
        if closing in text:  # text follows
            return False
        line += 1
    return not_found(state, state.eMarks[line - 1] - state.bMarks[start])


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
    """Add the tokens `mdx_code` and `mdx_tag`; remove indented code, which MDX does not have."""
    md.disable("code")
    md.block.ruler.before("html_block", "mdx_esm", _esm)
    md.block.ruler.before("html_block", "mdx_comment", mdx_comment, INTERRUPTS)
    md.block.ruler.before("html_block", "mdx_expression", _expression)
    md.block.ruler.before("html_block", "mdx_tag", mdx_tag, INTERRUPTS)


def unwrapped(source: str) -> str:
    """Blank the fence lines of `mdx-code-block`s, whose content Docusaurus renders."""
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
    """Parse `import` and `export` up to a blank line outside braces, if the braces are closed."""
    if (
        state.parentType != "root"
        or state.src[state.bMarks[start] + state.tShift[start]] not in "ie"
        or not _ESM.match(rest(state, start))
    ):
        return False
    if silent:
        return True
    depth, line, blank = 0, start, 0
    while line < min(end, start + _MAX_CODE_LINES):
        text = rest(state, line)
        if not text.strip():
            blank = blank or line
            if depth <= 0 or not may_search(state):
                break
        depth += _opened(text)
        line += 1
    if depth > 0:
        not_found(state, state.eMarks[line - 1] - state.bMarks[start])
        line = blank or line
    return push(state, "mdx_code", start, line)


def _opened(text: str) -> int:
    """Return how many more brackets a line of code opens than it closes, outside quotes."""
    text = _QUOTED.sub("", text)
    return sum(text.count(mark) for mark in "{[(") - sum(text.count(mark) for mark in "}])")


def mdx_comment(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse a comment in braces on lines of its own."""
    if not state.src.startswith("{/*", state.bMarks[start] + state.tShift[start]) or not may_search(state):
        return False
    for line in range(start, end):
        text = rest(state, line).rstrip()
        if "*/}" in text:
            if not text.endswith("*/}"):
                return False
            return silent or push(state, "mdx_code", start, line + 1)
    return not_found(state, state.eMarks[end - 1] - state.bMarks[start])


def _expression(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse an expression in braces on lines of its own; only the built page has its value."""
    first = first_marks(state, start, 2)
    # These begin a template tag or an attribute list.
    if (
        silent
        or not first.startswith("{")
        or first[1:] in ("{", "%", "!", ":", "#", "")
        or not may_search(state)
    ):
        return False
    depth = 0
    for line in range(start, min(end, start + _MAX_CODE_LINES)):
        text = rest(state, line)
        depth += _opened(text)
        if depth <= 0:
            return text.rstrip().endswith("}") and push(state, "mdx_code", start, line + 1)
    return not_found(state, state.eMarks[min(end, start + _MAX_CODE_LINES) - 1] - state.bMarks[start])


def mdx_tag(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse tags on lines of their own; the text between them is Markdown."""
    position = state.bMarks[start] + state.tShift[start]
    if (
        state.src[position : position + 1] != "<"
        or state.src[position + 1 : position + 2] == "!"
        or not may_search(state)
    ):
        return False
    text = rest(state, start)[:_MAX_TAG]
    lines = _lines_of_tags(text)
    if lines is None:
        more = (rest(state, line)[:_MAX_TAG] for line in range(start + 1, min(end, start + _MAX_TAG_LINES)))
        text = "\n".join((text, *more))[:_MAX_TAG]
        lines = _lines_of_tags(text)
    if not lines:
        return not_found(state, len(text))
    return silent or push(state, "mdx_tag", start, start + lines, "\n".join(text.split("\n")[:lines]).strip())


def _lines_of_tags(text: str) -> int | None:
    """Return how many lines from the first are only tags; None if a tag is not closed."""
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
"""The characters that a block of each rule can begin with; a rule that is not listed may begin with any."""

Rule = Callable[["StateBlock", int, int, bool], bool]


def paragraphs_plugin(md: MarkdownIt) -> None:
    """Replace the rules for paragraphs and underlined headings, which scan the same lines twice, by one."""
    md.disable("lheading")
    interrupting: dict[str, list[Rule]] = {}

    def rules(mark: str) -> list[Rule]:
        if mark not in interrupting:
            every = md.block.ruler.getRules("paragraph")
            interrupting[mark] = [
                rule
                for rule in every
                if rule.__name__ != "table" and mark in _BEGINNINGS.get(rule.__name__, mark)
            ]
        return interrupting[mark]

    def paragraph(state: StateBlock, start: int, _: int, silent: bool) -> bool:  # noqa: ARG001
        """Take lines up to a blank line, another block, or an underline that makes them a heading."""
        outside, state.parentType = state.parentType, "paragraph"
        end = state.lineMax
        line, level = start + 1, 0
        while line < end and not state.isEmpty(line):
            indent = state.sCount[line] - state.blkIndent
            # A far indented line, or one left of a quotation, always continues the paragraph.
            if indent <= 3 and state.sCount[line] >= 0:
                if indent >= 0 and (level := _underlines(state, line)):
                    break
                mark = state.src[state.bMarks[line] + state.tShift[line]]
                if any(rule(state, line, end, True) for rule in rules(mark)) or _begins_table(
                    state, line, end
                ):
                    break
            line += 1
        _push(state, start, line, level)
        state.parentType = outside
        return True

    md.block.ruler.at("paragraph", paragraph)


def _begins_table(state: StateBlock, line: int, end: int) -> bool:
    """Return whether a table begins here, by its second line."""
    if (
        line + 1 >= end
        or state.isEmpty(line + 1)
        or state.src[state.bMarks[line + 1] + state.tShift[line + 1]] not in "|-:"
    ):
        return False
    from markdown_it.rules_block import table

    return table(state, line, end, True)


def _underlines(state: StateBlock, line: int) -> int:
    """Return the heading level of an underline, or 0."""
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
