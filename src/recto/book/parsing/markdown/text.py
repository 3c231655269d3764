"""The lines of a page without tags, comments and other markup that readers do not see."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from recto.book.parsing.markdown.mermaid import diagram_labels, unescaped
from recto.types import Block

if TYPE_CHECKING:
    from markdown_it.token import Token

_TAG = re.compile(r"<(/?)([A-Za-z][\w.:-]*(?<!:))?(?=[\s/>{])")
_SEEN = re.compile(r"\b(?:label|title|alt|summary|caption|header)=(?:\{\s*)?(?:\"([^\"]*)\"|'([^']*)')")
_VALUE = re.compile(r"\bvalue=(?:\{\s*)?(?:\"([^\"]*)\"|'([^']*)')")
_CHOICE = re.compile(r"\{[^{}]*\}")
_PROPERTY = re.compile(r"\b(label|value)\s*:\s*(?:\"([^\"]*)\"|'([^']*)')")
_ID = re.compile(r"\sid=(?:\{\s*)?(?:\"([^\"\s]+)\"|'([^'\s]+)'|([^\s\"'>{}/]+))")
_NAME = re.compile(r"\sname=(?:\"([^\"\s]+)\"|'([^'\s]+)')")
_SPACES = re.compile(r"[ \t]{2,}")
_UNSEEN = ("script", "style", "template", "head")
_LONGEST_TAG = 4_000
_BUDGET = 1_000_000  # characters that may be searched for tag ends that do not exist
_QUOTES = re.compile(r"[\"'`{}>]")


def tag_end(text: str, position: int) -> int | None:
    """Return where a tag ends; quotes and braces in its attributes may hold a `>`."""
    depth, quote = 0, ""
    limit = min(len(text), position + _LONGEST_TAG)
    while found := _QUOTES.search(text, position, limit):
        mark, position = found[0], found.end()
        if quote:
            quote = "" if mark == quote else quote
        elif mark in "\"'`":
            quote = mark
        elif mark == "{":
            depth += 1
        elif mark == "}":
            depth -= 1
        elif depth <= 0:
            return position
    return None


def without(text: str, opening: str, closing: str, *, to_the_end: bool = False) -> str:
    """Drop the text between two marks but keep its line ends; unclosed text stays unless `to_the_end`."""
    kept, position = [], 0
    folded = text.lower()
    while (start := folded.find(opening, position)) >= 0:
        end = folded.find(closing, start)
        if end < 0 and not to_the_end:
            break
        end = len(text) if end < 0 else end + len(closing)
        kept += [text[position:start], "\n" * text.count("\n", start, end)]
        position = end
    return "".join([*kept, text[position:]])


class TagReader:
    """Reads the tags of one page in order and remembers the labels of its tabs."""

    def __init__(self) -> None:
        self._labels: dict[str, str] = {}
        self._budget = _BUDGET

    def _tags(self, text: str) -> Iterator[tuple[re.Match[str], int]]:
        """Yield each tag and where it ends; give up on a page with too many broken tags."""
        position = 0
        for found in _TAG.finditer(text):
            if found.start() < position or self._budget < 0:
                continue
            end = tag_end(text, found.end())
            if end is None:
                self._budget -= _LONGEST_TAG
            else:
                position = end
                yield found, end

    def words(self, text: str, *, components_only: bool = False) -> list[str]:
        """Return the text of each line without tags and comments."""
        text = without(text, "<!--", "-->", to_the_end=True)
        for name in _UNSEEN:
            if f"<{name}" in text.lower():
                text = without(text, f"<{name}", f"</{name}>", to_the_end=True)
        kept, position = [], 0
        for found, end in self._tags(text):
            if components_only and not (found[2] or "X")[0].isupper():
                continue
            tag = text[found.start() : end]
            kept += [
                text[position : found.start()],
                " ",
                self._seen(tag, found[2] or ""),
                " ",
                "\n" * tag.count("\n"),
            ]
            position = end
        lines = unescaped("".join([*kept, text[position:]])).split("\n")
        if "<pre" in text.lower():
            return [line.rstrip() for line in lines]
        return [_SPACES.sub(" ", line).strip() for line in lines]

    def _seen(self, tag: str, name: str) -> str:
        """Return the visible text of a tag's attributes."""
        if name == "Tabs":
            for choice in _CHOICE.findall(tag[1:]):
                pairs = {found[1]: found[2] or found[3] or "" for found in _PROPERTY.finditer(choice)}
                if "value" in pairs:
                    self._labels[pairs["value"]] = pairs.get("label", pairs["value"])
            return ""
        if seen := _SEEN.search(tag):
            return seen[1] or seen[2] or ""
        if name == "TabItem" and (value := _VALUE.search(tag)):
            written = value[1] or value[2] or ""
            return self._labels.get(written, written)
        return ""

    def ids(self, text: str) -> list[tuple[int, str]]:
        """Return the ids of HTML tags (not components) with their line numbers, from zero."""
        found: list[tuple[int, str]] = []
        if "id=" not in text and "name=" not in text:
            return found
        line = counted = 0
        for tag, end in self._tags(text):
            if tag[1] or not tag[2] or not tag[2][0].islower():
                continue
            attributes = text[tag.end() : end]
            stated = _ID.search(attributes) or (_NAME.search(attributes) if tag[2] == "a" else None)
            if stated:
                line, counted = line + text.count("\n", counted, tag.start()), tag.start()
                found.append((line, next(filter(None, stated.groups()))))
        return found


_WORTH_A_LOOK = re.compile(r"[&{]|<!--|8<-")
_CODE = re.compile(r"`+")
_INCLUDE = re.compile(r"[ \t>]*(?:\{!.*!(?:lines=[0-9 -]+)?\}|\{\*[ \t]*[^\s*{}]+\.\w.*\*\}|-+8<-+.*)[ \t]*")
_ESCAPED_SNIPPET = re.compile(r"^([ \t>]*);(?=;*-+8<-)", re.MULTILINE)
_SNIPPET_MARK = re.compile(r"[ \t>]*-+8<-+[ \t]*")
_TEMPLATE = re.compile(r"\{\{[<%][^{}]*[%>]\}\}|\{%[^{}]*%\}")
_TEMPLATE_TEXT = re.compile(r"\b(?:text|title|header|name|label)=\"([^\"]*)\"")
_ATTRIBUTES = re.compile(
    r"[ \t>]*\{:?[ \t]*((?:[#.][\w:.-]+|[\w-]+=(?:\"[^\"]*\"|'[^']*'|[^\s{}\"']+))"
    r"(?:[ \t]+[#.\w][^{}]*)?)\}[ \t]*"
)
_ATTRIBUTE_ID = re.compile(r"(?:^|\s)#([\w:.-]+)")
_ANCHOR = re.compile(r"\[\]\([^)]*\)\{:?[ \t]*#([\w:.-]+)[^{}]*\}")
_LONGEST = 200_000  # characters; a longer paragraph is generated, and too slow to edit


def is_include(line: str) -> bool:
    """Return whether a line is only an include directive."""
    return bool(_INCLUDE.fullmatch(line))


def unescaped_snippets(text: str) -> str:
    """Replace `;--8<--`, an escaped directive, by `--8<--`."""
    return _ESCAPED_SNIPPET.sub(r"\1", text) if "8<-" in text else text


def code_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each inline code span."""
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
    """Return prose as it is stored, with None for a dropped line; return None if nothing changes."""
    text = "\n".join(lines)
    if len(text) > _LONGEST or not _WORTH_A_LOOK.search(text):
        return None
    pieces, position = [], 0
    for start, end in code_spans(text):
        pieces += [_plain(text[position:start], mdx, table), text[start:end]]
        position = end
    edited = "".join([*pieces, _plain(text[position:], mdx, table)]).split("\n")
    kept: list[str | None] = [
        None if _goes(new, old) else new for new, old in zip(edited, lines, strict=True)
    ]
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
    """Yield the ids in attribute lists, each with its line number from zero."""
    for number, line in enumerate(lines):
        if "{" not in line or len(line) > _LONGEST:
            continue
        if (attributes := _ATTRIBUTES.fullmatch(line)) and (found := _ATTRIBUTE_ID.search(attributes[1])):
            yield number, found[1]
        for anchor in _ANCHOR.finditer(line):
            yield number, anchor[1]


def _plain(text: str, mdx: bool, table: bool) -> str:
    """Remove markup from text that is not code; the number of lines stays the same."""
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
    """Return the visible text of a template tag, if it has any."""
    text = _TEMPLATE_TEXT.search(found[0])
    return (text[1] if text else "") + "\n" * found[0].count("\n")


_GONE = frozenset({"mdx_code", "stray"})
_NO_ALT = re.compile(r"(?:!\[\s*\]\([^()\n]*\)(?:\{[^{}]*\})?\s*)+")
_PREFIX = re.compile(r"[ \t>]*")


class PageLines:
    """The lines of a page without markup that readers do not see; line numbers stay those of the source."""

    def __init__(self, source: str, mdx: bool) -> None:
        self.written = source.split("\n")
        self._kept: list[str | None] = list(self.written)
        self._mdx = mdx
        self._tag_reader = TagReader()
        self.ids: list[tuple[int, str]] = []
        """The ids in tags and attribute lists, with their line numbers."""
        self._edits: dict[str, Callable[[Token, int, int], None]] = {
            "html_block": self._tags,
            "mdx_tag": self._tags,
            "fence": self._fence,
            "paragraph_open": self._paragraph,
            "table_open": self._table,
            "heading_open": self._heading,
        }

    def edit(self, token: Token) -> None:
        """Remove what is not text from the lines of a token."""
        if token.map is None:
            return
        first, last = token.map[0], min(token.map[1], len(self.written))
        if token.type in _GONE:
            self._kept[first:last] = [None] * (last - first)
        elif edit := self._edits.get(token.type):
            edit(token, first, last)

    def _put(self, first: int, texts: Sequence[str]) -> None:
        """Replace lines but keep their quote marks; an empty text drops its line."""
        for number, text in enumerate(texts, first):
            if number < len(self.written):
                prefix = _PREFIX.match(self.written[number])
                self._kept[number] = (
                    (prefix[0] if prefix and ">" in prefix[0] else "") + text if text else None
                )

    def _tags(self, token: Token, first: int, last: int) -> None:
        content = token.content
        self.ids += [(first + line + 1, name) for line, name in self._tag_reader.ids(content)]
        words = self._tag_reader.words(content)
        self._put(first, [*words, *[""] * (last - first)][: last - first])

    def _fence(self, token: Token, first: int, last: int) -> None:
        content = token.content.removesuffix("\n").split("\n")
        words = diagram_labels(content) if token.info.strip().startswith("mermaid") else None
        if words is not None:
            self._put(first, ["", *words, *[""] * (last - first)][: last - first])
        elif any(is_include(line) or "8<-" in line for line in content):
            lines = ["" if is_include(line) else line for line in content]
            if any(line.strip() for line in lines):
                self._kept[first + 1 : first + 1 + len(lines)] = [
                    None if is_include(line) else unescaped_snippets(self.written[number])
                    for number, line in enumerate(content, first + 1)
                ]
            else:
                self._kept[first:last] = [None] * (last - first)

    def _paragraph(self, _: Token, first: int, last: int) -> None:
        """Drop paragraphs that show no text: images without alt text, empty tags."""
        lines = self.written[first:last]
        text = "\n".join(lines)
        if "<" in text:
            self.ids += [(first + line + 1, name) for line, name in self._tag_reader.ids(text)]
        if "{" in text:
            self.ids += [(first + line + 1, name) for line, name in stated_ids(lines)]
        opening = text.lstrip()[:2]
        if (opening == "![" and _NO_ALT.fullmatch(text.strip())) or (
            opening[:1] == "<" and not any(self._tag_reader.words(text))
        ):
            self._kept[first:last] = [None] * (last - first)
        elif self._mdx and opening[:1] == "<" and opening[1:].isupper() and text.rstrip().endswith(">"):
            self._put(first, self._tag_reader.words(text, components_only=True))
        elif (edited := stored(lines, mdx=self._mdx)) is not None:
            self._kept[first:last] = edited

    def _heading(self, _: Token, first: int, last: int) -> None:
        text = "\n".join(self.written[first:last])
        if "<" in text:
            self.ids += [(first + line + 1, name) for line, name in self._tag_reader.ids(text)]

    def _table(self, _: Token, first: int, last: int) -> None:
        lines = self.written[first:last]
        self.ids += [(first + line + 1, name) for line, name in self._tag_reader.ids("\n".join(lines))]
        if (edited := stored(lines, mdx=self._mdx, table=True)) is not None:
            self._kept[first:last] = edited

    def block(self, kind: str, first: int, last: int, cuts: tuple[tuple[int, ...], ...] = ()) -> Block | None:
        """Make a block of some lines, without blank lines at its ends; return None if it has no text."""
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
        return Block(
            kind,
            text,
            numbers[0] + 1,
            numbers[-1] + 1,
            cuts,
            () if whole else tuple(number + 1 for number in numbers),
        )
