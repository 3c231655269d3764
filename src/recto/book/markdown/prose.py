"""Lines of prose as they are stored: as written, but for what is no text: comments, includes, templates, attributes, entities.

Entities are written out (`&lt;50ms` becomes `<50ms`), in what is stored as in what is embedded: they are how a character is typed, not
what the author says, and a reader who is shown a passage, or a model that answers from it, should see the character. In code they stay,
because there they are shown as typed.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence

from recto.book.markdown.markup import unescaped, without

_WORTH_A_LOOK = re.compile(r"[&{]|<!--|8<-")
_CODE = re.compile(r"`+")
_INCLUDE = re.compile(r"[ \t>]*(?:\{!.*!(?:lines=[0-9 -]+)?\}|\{\*[ \t]*[^\s*{}]+\.\w.*\*\}|-+8<-+.*)[ \t]*")
_ESCAPED_SNIPPET = re.compile(r"^([ \t>]*);(?=;*-+8<-)", re.MULTILINE)
_SNIPPET_MARK = re.compile(r"[ \t>]*-+8<-+[ \t]*")
_TEMPLATE = re.compile(r"\{\{[<%][^{}]*[%>]\}\}|\{%[^{}]*%\}")
_TEMPLATE_TEXT = re.compile(r"\b(?:text|title|header|name|label)=\"([^\"]*)\"")
_ATTRIBUTES = re.compile(r"[ \t>]*\{:?[ \t]*((?:[#.][\w:.-]+|[\w-]+=(?:\"[^\"]*\"|'[^']*'|[^\s{}\"']+))(?:[ \t]+[#.\w][^{}]*)?)\}[ \t]*")
_ATTRIBUTE_ID = re.compile(r"(?:^|\s)#([\w:.-]+)")
_ANCHOR = re.compile(r"\[\]\([^)]*\)\{:?[ \t]*#([\w:.-]+)[^{}]*\}")
_LONGEST = 200_000  # characters; a longer paragraph was made by a machine and is left as it is


def is_include(line: str) -> bool:
    """Whether a line only stands for the text of another file."""
    return bool(_INCLUDE.fullmatch(line))


def unescaped_snippets(text: str) -> str:
    """Write `--8<--` for `;--8<--`: a directive that a page shows and does not mean."""
    return _ESCAPED_SNIPPET.sub(r"\1", text) if "8<-" in text else text


def code_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield where inline code begins and ends: a run of backticks to the next of the same length."""
    starts: dict[int, list[int]] = defaultdict(list)
    for run in _CODE.finditer(text):
        starts[len(run[0])].append(run.start())
    position = 0
    for run in _CODE.finditer(text):
        if run.start() < position:
            continue
        same = starts[len(run[0])]
        after = bisect_right(same, run.start())
        if after < len(same):
            position = same[after] + len(run[0])
            yield run.start(), position


def stored(lines: Sequence[str], *, mdx: bool, table: bool = False) -> list[str | None] | None:
    """Return lines of prose as they are stored, None for one that goes; or None if all stay as written."""
    text = "\n".join(lines)
    if len(text) > _LONGEST or not _WORTH_A_LOOK.search(text):
        return None
    pieces, position = [], 0
    for start, end in code_spans(text):
        pieces += [_plain(text[position:start], mdx, table), text[start:end]]
        position = end
    edited = "".join([*pieces, _plain(text[position:], mdx, table)]).split("\n")
    kept: list[str | None] = [None if _goes(new, old) else new for new, old in zip(edited, lines, strict=True)]
    inside = False
    for number, line in enumerate(lines):  # a list of snippets between two marks
        if _SNIPPET_MARK.fullmatch(line):
            inside = not inside
        elif inside:
            kept[number] = None
    return kept


def _goes(new: str, old: str) -> bool:
    return is_include(old) or bool(_ATTRIBUTES.fullmatch(old)) or (new != old and not new.strip(" \t>"))


def stated_ids(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield the ids that attribute lists state, each with the number of its line."""
    for number, line in enumerate(lines):
        if "{" not in line or len(line) > _LONGEST:
            continue
        if (attributes := _ATTRIBUTES.fullmatch(line)) and (found := _ATTRIBUTE_ID.search(attributes[1])):
            yield number, found[1]
        for anchor in _ANCHOR.finditer(line):
            yield number, anchor[1]


def _plain(text: str, mdx: bool, table: bool) -> str:
    """Edit what is not code; the number of lines stays."""
    if "<!--" in text:
        text = without(text, "<!--", "-->")
    if mdx and "{/*" in text:
        text = without(text, "{/*", "*/}")
    text = unescaped_snippets(text)
    if "{{" in text or "{%" in text:
        text = _TEMPLATE.sub(_template, text)
    if "&" in text:
        text = unescaped(text.replace("&#124;", "\\|").replace("&vert;", "\\|") if table else text)
    return text


def _template(found: re.Match[str]) -> str:
    """A template's visible text, if it states one."""
    text = _TEMPLATE_TEXT.search(found[0])
    return (text[1] if text else "") + "\n" * found[0].count("\n")
