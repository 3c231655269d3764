"""The lines of a page as they are stored: without tags, comments and other markup that readers do not see.

`PageLines` has the lines as written. The parser calls `edit` for each block of the page, which replaces or
drops lines but never moves them. Then `block` makes a block of the lines that are left, with the numbers that
they have in the source.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from recto.book.parsing.markdown.diagrams import diagram_labels
from recto.book.parsing.markdown.headings import SHORTCODE
from recto.book.parsing.markdown.tags import TagReader, sentences, unescaped, without
from recto.types.book import Block

if TYPE_CHECKING:
    from markdown_it.token import Token

_LONGEST = 200_000  # characters; a longer paragraph is generated, and too slow to edit
_DATA = re.compile(r"\s*export\s+const\s+\w+\s*=\s*[\[{]")
_HAS_MARKUP = re.compile(r"[&{]|<!--|8<-")
_CODE = re.compile(r"`+")
_INCLUDE = re.compile(
    r"[ \t>]*+(?:\{!.*!(?:lines=[0-9 -]++)?\}|\{\*[ \t]*+(?>[^\s*{}]+\.\w).*\*\}|-++8<-++.*+)[ \t]*+"
)
_ESCAPED_SNIPPET = re.compile(r"^([ \t>]*);(?=;*-+8<-)", re.MULTILINE)
_SNIPPET_MARK = re.compile(r"[ \t>]*-+8<-+[ \t]*")
_TEMPLATE = re.compile(r"\{\{[<%][^{}]*[%>]\}\}|\{%[^{}]*%\}")
_TEMPLATE_TEXT = re.compile(r"\b(?:text|title|header|name|label)=\"([^\"]*)\"")
_ATTRIBUTES = re.compile(
    r"[ \t>]*\{:?[ \t]*((?:[#.][\w:.-]+|[\w-]+=(?:\"[^\"]*\"|'[^']*'|[^\s{}\"']+))"
    r"(?:[ \t]+[#.\w][^{}]*)?)\}[ \t]*"
)
_ATTRIBUTE_ID = re.compile(r"(?:^|\s)#([\w:.-]+)")
_ANCHOR = re.compile(r"\[\]\([^)]{0,1000}+\)\{:?[ \t]*+#([\w:.-]++)[^{}]*+\}")
_NO_ALT = re.compile(r"(?:!\[\s*\]\([^()\n]*\)(?:\{[^{}]*\})?\s*)+")
_COMPONENT_LINE = re.compile(r"[ \t>]*</?[A-Z][\w.]*(?:\s[^<>`]*)?>[ \t]*")
_COLOR = re.compile(r"\x1b\[[\d;]*+m")
_PREFIX = re.compile(r"[ \t>]*")


def _code_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each inline code span."""
    runs, ends, following = [run.span() for run in _CODE.finditer(text)], list[int](), dict[int, int]()
    for start, end in reversed(runs):
        ends.append(following.get(end - start, 0))  # of the next run with as many marks
        following[end - start] = end
    position = 0
    for (start, _), end in zip(runs, reversed(ends), strict=True):
        if start >= position and end:
            position = end
            yield start, end


def _is_include(line: str) -> bool:
    """Return whether a line is only an include directive."""
    return bool(_INCLUDE.fullmatch(line))


def _unescaped_snippets(text: str) -> str:
    """Replace `;--8<--`, an escaped directive, by `--8<--`."""
    return _ESCAPED_SNIPPET.sub(r"\1", text) if "8<-" in text else text


def _prose(lines: Sequence[str], *, mdx: bool, table: bool = False) -> list[str | None] | None:
    """Return prose as it is stored, with None for a dropped line; return None if nothing changes."""
    text = "\n".join(lines)
    if len(text) > _LONGEST or not _HAS_MARKUP.search(text):
        return None
    pieces, position = [], 0
    for start, end in _code_spans(text):
        pieces += [_without_markup(text[position:start], mdx, table), text[start:end]]
        position = end
    edited = "".join([*pieces, _without_markup(text[position:], mdx, table)]).split("\n")
    kept: list[str | None] = []
    inside = False  # a list of snippets between two marks
    for new, old in zip(edited, lines, strict=True):
        mark = bool(_SNIPPET_MARK.fullmatch(old))
        emptied = new != old and not new.strip(" \t>")
        goes = inside or _is_include(old) or _ATTRIBUTES.fullmatch(old) or emptied
        kept.append(None if goes else new)
        inside ^= mark
    return kept


def _without_markup(text: str, mdx: bool, table: bool) -> str:
    """Remove markup from text that is not code; the number of lines stays the same."""
    if "<!--" in text:
        text = without(SHORTCODE.sub(r"`\1`", text), "<!--", "-->")
    if mdx and "{/*" in text:
        text = without(text, "{/*", "*/}")
    text = _unescaped_snippets(text)
    if "{{" in text or "{%" in text:
        text = _TEMPLATE.sub(_template_text, text)
    return unescaped(text.replace("&#124;", "\\|").replace("&vert;", "\\|") if table else text)


def _template_text(tag: re.Match[str]) -> str:
    """Return the visible text of a template tag, if it has any."""
    text = _TEMPLATE_TEXT.search(tag[0])
    return (text[1] if text else "") + "\n" * tag[0].count("\n")


class PageLines:
    """The lines of a page without markup that readers do not see; they keep their numbers in the source."""

    def __init__(self, source: str, mdx: bool) -> None:
        self.written = source.split("\n")
        self._kept: list[str | None] = list(self.written)
        self._mdx = mdx
        self._tag_reader = TagReader()
        self.ids: list[tuple[int, str]] = []
        """The ids in tags and attribute lists, with their line numbers."""

    def edit(self, token: Token) -> None:
        """Remove what is not text from the lines of a token."""
        if token.map is None:
            return
        first, last = token.map[0], min(token.map[1], len(self.written))
        if token.type in ("mdx_code", "stray"):
            code = "\n".join(self.written[first:last])
            self._put(first, last, sentences(code).split("\n") if _DATA.match(code) else ())
        elif token.type in ("html_block", "mdx_tag"):
            self._note_ids(token.content, first)
            self._put(first, last, self._tag_reader.words(token.content))
        elif token.type == "fence":
            self._edit_fence(token, first, last)
        elif token.type == "paragraph_open":
            self._edit_paragraph(first, last)
        elif token.type in ("table_open", "heading_open"):
            self._note_ids("\n".join(self.written[first:last]), first)
            table = token.type == "table_open"
            if table and (edited := _prose(self.written[first:last], mdx=self._mdx, table=True)) is not None:
                self._kept[first:last] = edited

    def _note_ids(self, text: str, first: int) -> None:
        """Note the ids of tags, but not of those in code."""
        pieces, position = list[str](), 0
        for start, end in _code_spans(text) if "`" in text else ():
            pieces += [text[position:start], " " + "\n" * text.count("\n", start, end)]
            position = end
        ids = self._tag_reader.ids("".join([*pieces, text[position:]]))
        self.ids += [(first + line + 1, name) for line, name in ids]

    def _put(self, first: int, last: int, texts: Sequence[str]) -> None:
        """Replace lines but keep their quote marks; a line without a text is dropped."""
        texts = [*texts, *[""] * (last - first)]
        for number in range(first, last):
            prefix = _PREFIX.match(self.written[number])
            quote = prefix[0] if prefix and ">" in prefix[0] else ""
            self._kept[number] = quote + texts[number - first] if texts[number - first] else None

    def _edit_fence(self, token: Token, first: int, last: int) -> None:
        content = token.content.removesuffix("\n").split("\n")
        words = diagram_labels(content) if token.info.strip().startswith("mermaid") else None
        if words is not None:
            self._put(first, last, ["", *words])
        elif all(_is_include(line) or not line.strip() for line in content) and any(
            map(_is_include, content)
        ):
            self._kept[first:last] = [None] * (last - first)
        elif any(_is_include(line) or "8<-" in line for line in content):
            self._kept[first + 1 : first + 1 + len(content)] = [
                None if _is_include(line) else _unescaped_snippets(self.written[number])
                for number, line in enumerate(content, first + 1)
            ]
        elif "\x1b[" in token.content:
            self._kept[first:last] = [_COLOR.sub("", line) for line in self.written[first:last]]

    def _edit_paragraph(self, first: int, last: int) -> None:
        """Drop paragraphs that show no text: images without alt text, empty tags."""
        lines = self.written[first:last]
        text = "\n".join(lines)
        if "<" in text:
            self._note_ids(text, first)
        for number, line in enumerate(lines, first + 1):  # ids in attribute lists
            if "{" not in line or len(line) > _LONGEST:
                continue
            attributes = _ATTRIBUTES.fullmatch(line)
            if attributes and (stated := _ATTRIBUTE_ID.search(attributes[1])):
                self.ids.append((number, stated[1]))
            self.ids += [(number, anchor[1]) for anchor in _ANCHOR.finditer(line)]
        opening = text.lstrip()[:2]
        if (opening == "![" and _NO_ALT.fullmatch(text.strip())) or (
            opening[:1] == "<" and not any(self._tag_reader.words(text))
        ):
            self._kept[first:last] = [None] * (last - first)
        elif self._mdx and opening[:1] == "<" and opening[1:].isupper() and text.rstrip().endswith(">"):
            self._put(first, last, self._tag_reader.words(text, components_only=True))
        else:
            if (edited := _prose(lines, mdx=self._mdx)) is not None:
                self._kept[first:last] = edited
            for number, line in enumerate(lines, first) if self._mdx and "<" in text else ():
                if _COMPONENT_LINE.fullmatch(line):
                    self._put(number, number + 1, self._tag_reader.words(line, components_only=True))

    def block(self, kind: str, first: int, last: int, cuts: tuple[tuple[int, ...], ...] = ()) -> Block | None:
        """Make a block of some lines, without blank lines at its ends; return None if it has no text."""
        kept: list[tuple[int, str]] = []
        gap = False
        for number in range(first, min(last, len(self._kept))):
            line = self._kept[number]
            if line is None:
                gap = True
            elif line.strip() or (kept and not (gap and not kept[-1][1].strip())):
                kept.append((number + 1, line))
                gap = False
        while kept and not kept[-1][1].strip():
            kept.pop()
        if not kept:
            return None
        text, numbers = "\n".join(line for _, line in kept), tuple(number for number, _ in kept)
        whole = numbers[-1] - numbers[0] == len(numbers) - 1
        return Block(kind, text, numbers[0], numbers[-1], cuts, () if whole else numbers)
