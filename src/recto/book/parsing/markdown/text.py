"""The lines of a page as they are stored: each as written, edited, or gone; and blocks made of them."""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from recto.book.parsing.document import Block

_TAG = re.compile(
    r"<(/?)([A-Za-z][\w.:-]*(?<!:))?(?=[\s/>{])"
)  # no tag ends with a colon: that is an address
_SEEN = re.compile(r"\b(?:label|title|alt|summary|caption|header)=(?:\{\s*)?(?:\"([^\"]*)\"|'([^']*)')")
_VALUE = re.compile(r"\bvalue=(?:\{\s*)?(?:\"([^\"]*)\"|'([^']*)')")
_CHOICE = re.compile(r"\{[^{}]*\}")
_PROPERTY = re.compile(r"\b(label|value)\s*:\s*(?:\"([^\"]*)\"|'([^']*)')")
_ID = re.compile(r"\sid=(?:\{\s*)?(?:\"([^\"\s]+)\"|'([^'\s]+)'|([^\s\"'>{}/]+))")
_NAME = re.compile(r"\sname=(?:\"([^\"\s]+)\"|'([^'\s]+)')")
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_SPACES = re.compile(r"[ \t]{2,}")
_UNSEEN = ("script", "style", "template", "head")
_LONGEST_TAG = 4_000
_BUDGET = 1_000_000  # characters that may be searched in vain for the ends of tags
_QUOTES = re.compile(r"[\"'`{}>]")


def unescaped(text: str) -> str:
    """Write entities as the characters they stand for; one that would break the line, and what only looks like one, stays."""

    def character(entity: re.Match[str]) -> str:
        written = html.unescape(entity[0])
        return written.replace("\xa0", " ") if written.isprintable() or written == "\xa0" else entity[0]

    return _ENTITY.sub(character, text)


def tag_end(text: str, position: int) -> int | None:
    """Return where a tag ends, with quotes and braces in its attributes respected."""
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
    """Drop what stands between two marks but not the ends of lines in it; what is not closed stays, or goes to the end."""
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


class Markup:
    """Reads the markup of one page in order; remembers the labels that a list of tabs gives to its tabs."""

    def __init__(self) -> None:
        self._labels: dict[str, str] = {}
        self._budget = _BUDGET

    def _tags(self, text: str) -> Iterator[tuple[re.Match[str], int]]:
        """Yield each tag and where it ends; on a page of broken tags, stop to look for ends at some point."""
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
        """Return what is left of each line without tags and comments."""
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
        """Return the text of a tag's attributes that a reader sees."""
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
        """Return the ids that HTML tags state, each with the number of line ends before it; a component's `id` may mean anything."""
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


_FLOW = ("graph", "flowchart")
_OUTLINES = ("mindmap", "timeline", "kanban")
_PLANS = ("gantt", "journey")
_SKIPPED = re.compile(
    r"(?:%%|---|style\b|classDef\b|class\s+[\w,]+\s+\w+$|click\b|linkStyle\b|direction\b|end\b|autonumber\b|activate\b|deactivate\b|"
    r"dateFormat\b|axisFormat\b|tickInterval\b|excludes\b|todayMarker\b|hide\b|cssClass\b|\}$|\{$|\[\*\]\s*-->\s*\[\*\]$)"
)
_EDGE_TEXT = re.compile(
    r"\|\"?([^|\"]+)\"?\||(?:--|==|-\.)\s*\"?([^-=.>|\"\s][^=>|\"]*?)\"?\s*(?:-->|---|==>|===|\.->|\.-)"
)
_ARROW = re.compile(r"[<ox]?(?:--+|==+|-\.+-?)[>ox]?|~~~|&")
_NODE = re.compile(
    r"([\w.-]*\w)?\s?(?:@\{[^}]*?label:\s*\"([^\"]*)\"[^}]*\}|\({1,3}\[?\"?([^\"()\[\]]+)\"?\]?\){1,3}|\[{1,2}[(/\\]?\"([^\"]*)\"[)/\\]?\]{1,2}|"
    r"\[{1,2}[(/\\]?([^\[\]\"]+?)[)/\\]?\]{1,2}|\{{1,2}\"?([^{}\"]+)\"?\}{1,2}|(?<=\w)>\"?([^\[\]\"]+)\"?\])(?::::\w+)?"
)  # counted, not open-ended: a line of brackets must not be tried in every way
_DIAGRAMS_NAME = re.compile(r"[A-Za-z_][\w.-]*")
_SEQUENCE = re.compile(r"(\w[\w .]*?)\s*(?:<<)?(?:--?>>?|--?x|--?\))[+-]?\s*(\w[\w .]*?)\s*:\s*(.*)")
_PARTICIPANT = re.compile(r"(?:create\s+)?(?:participant|actor)\s+(\w[\w .]*?)(?:\s+as\s+(.+))?")
_KEYWORD = re.compile(
    r"(?:title|accTitle:?|accDescr:?|section|loop|alt|else|opt|par|and|critical|option|break|rect|box|state|subgraph|namespace|note|Note|x-axis|"
    r"y-axis|quadrant-\d|class)\s+(?:(?:over|left of|right of)\s+[\w, ]+:?\s*)?(.*)"
)
_QUOTED = re.compile(r"\"([^\"]+)\"")
_DIAGRAMS_TAG = re.compile(r"<[^<>]*>")
_SYNTAX = re.compile(r"[<>|o}{*.=~-]{2,}|[{}\[\]()|*;]|\bas\b|:::\w+")
_LONGEST_LINE = 2_000


def diagram_words(lines: Sequence[str]) -> list[str] | None:
    """Return the labels of each line of a diagram, or None where nothing can be read."""
    kind, first = _kind(lines)
    if not kind:
        return None
    read: Callable[[str], str]
    if kind.startswith(_FLOW):
        read = _Flow("\n".join(lines[first + 1 :])).line
    elif kind == "sequenceDiagram":
        read = _Sequence(lines).line
    elif kind in _OUTLINES:
        read = _outline
    elif kind in _PLANS:
        read = _plan
    else:
        read = _any
    words = ["" for _ in lines]
    for number in range(first, len(lines)):
        line = lines[number].strip().rstrip(";")
        if number == first:
            line = line[len(kind) :].strip() if kind == "pie" else ""
        if line and len(line) <= _LONGEST_LINE and not _SKIPPED.match(line):
            words[number] = " ".join(
                unescaped(_DIAGRAMS_TAG.sub(" ", read(line))).replace("\\n", " ").split()
            )
    return words if any(words) else None


def _kind(lines: Sequence[str]) -> tuple[str, int]:
    """Find the line that says what diagram it is, behind comments and settings."""
    settings = False
    for number, line in enumerate(lines):
        text = line.strip()
        if text == "---":
            settings = not settings
        elif text and not settings and not text.startswith("%%"):
            return text.split()[0].rstrip(";:"), number
    return "", 0


class _Flow:
    """Reads a flow chart; a node that no line gives a label is shown by its name."""

    def __init__(self, text: str) -> None:
        self._shown = (
            {found[1] for found in _NODE.finditer(text) if found[1]} if len(text) < 100_000 else set[str]()
        )

    def line(self, text: str) -> str:
        if text.startswith("subgraph"):
            labelled = _NODE.search(text[8:])
            return next(filter(None, labelled.groups()[1:]), "") if labelled else text[8:].strip().strip('"')
        labels: list[tuple[int, str]] = []

        def note(found: re.Match[str]) -> str:
            labels.append(
                (
                    found.start(),
                    next((group for group in found.groups()[found.re is _NODE :] if group), "").strip(),
                )
            )
            return " " * len(found[0])

        rest = _NODE.sub(note, text)
        rest = _EDGE_TEXT.sub(note, rest)
        for name in _DIAGRAMS_NAME.finditer(_ARROW.sub(lambda found: " " * len(found[0]), rest)):
            if name[0] not in self._shown:
                self._shown.add(name[0])
                labels.append((name.start(), name[0]))
        return ", ".join(label for _, label in sorted(labels) if label)


class _Sequence:
    """Reads a sequence of messages; one who takes part is shown by the name that a line gives to it."""

    def __init__(self, lines: Sequence[str]) -> None:
        named = (_PARTICIPANT.fullmatch(line.strip()) for line in lines if len(line) <= _LONGEST_LINE)
        self._names = {found[1]: found[2] for found in named if found and found[2]}

    def line(self, text: str) -> str:
        if participant := _PARTICIPANT.fullmatch(text):
            return participant[2] or participant[1]
        if message := _SEQUENCE.fullmatch(text):
            return f"{self._names.get(message[1], message[1])}, {self._names.get(message[2], message[2])}: {message[3]}"
        keyword = _KEYWORD.fullmatch(text)
        return keyword[1] if keyword else text


def _outline(text: str) -> str:
    """A line of a mind map or a time line is text but for its shape."""
    if shaped := _NODE.fullmatch(text):
        return next(filter(None, shaped.groups()[1:]), text)
    return re.sub(r"^(?:title|section)\s+|::icon\(.*\)", "", text)


def _plan(text: str) -> str:
    """A task is named before its colon; what follows are dates and scores."""
    return re.sub(r"^(?:title|section)\s+", "", text).split(":")[0]


def _any(text: str) -> str:
    """Classes, states, entities, charts and what is yet to come: words stay, signs go."""
    keyword = _KEYWORD.fullmatch(text)
    text = keyword[1] if keyword else text
    return _SYNTAX.sub(" ", _QUOTED.sub(r" \1 ", text)).replace(" : ", ": ")


_WORTH_A_LOOK = re.compile(r"[&{]|<!--|8<-")
_CODE = re.compile(r"`+")
_INCLUDE = re.compile(r"[ \t>]*(?:\{!.*!(?:lines=[0-9 -]+)?\}|\{\*[ \t]*[^\s*{}]+\.\w.*\*\}|-+8<-+.*)[ \t]*")
_ESCAPED_SNIPPET = re.compile(r"^([ \t>]*);(?=;*-+8<-)", re.MULTILINE)
_SNIPPET_MARK = re.compile(r"[ \t>]*-+8<-+[ \t]*")
_TEMPLATE = re.compile(r"\{\{[<%][^{}]*[%>]\}\}|\{%[^{}]*%\}")
_TEMPLATE_TEXT = re.compile(r"\b(?:text|title|header|name|label)=\"([^\"]*)\"")
_ATTRIBUTES = re.compile(
    r"[ \t>]*\{:?[ \t]*((?:[#.][\w:.-]+|[\w-]+=(?:\"[^\"]*\"|'[^']*'|[^\s{}\"']+))(?:[ \t]+[#.\w][^{}]*)?)\}[ \t]*"
)
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


if TYPE_CHECKING:
    from markdown_it.token import Token

_GONE = frozenset({"mdx_code", "stray"})
_NO_ALT = re.compile(r"(?:!\[\s*\]\([^()\n]*\)(?:\{[^{}]*\})?\s*)+")
_PREFIX = re.compile(r"[ \t>]*")


class Lines:
    """A page's lines, from which its tokens take away what is no text; line numbers stay those of the source."""

    def __init__(self, source: str, mdx: bool) -> None:
        self.written = source.split("\n")
        self._kept: list[str | None] = list(self.written)
        self._mdx = mdx
        self._markup = Markup()
        self.ids: list[tuple[int, str]] = []
        """The ids that tags and attribute lists state, by their lines."""
        self._edits: dict[str, Callable[[Token, int, int], None]] = {
            "html_block": self._tags,
            "mdx_tag": self._tags,
            "fence": self._fence,
            "paragraph_open": self._paragraph,
            "table_open": self._table,
            "heading_open": self._heading,
        }

    def edit(self, token: Token) -> None:
        """Take from a token's lines what is no text."""
        if token.map is None:
            return
        first, last = token.map[0], min(token.map[1], len(self.written))
        if token.type in _GONE:
            self._kept[first:last] = [None] * (last - first)
        elif edit := self._edits.get(token.type):
            edit(token, first, last)

    def _put(self, first: int, texts: Sequence[str]) -> None:
        """Write other texts for some lines, behind what marks their quotation; a text that is empty takes its line away."""
        for number, text in enumerate(texts, first):
            if number < len(self.written):
                prefix = _PREFIX.match(self.written[number])
                self._kept[number] = (
                    (prefix[0] if prefix and ">" in prefix[0] else "") + text if text else None
                )

    def _tags(self, token: Token, first: int, last: int) -> None:
        content = token.content
        self.ids += [(first + line + 1, name) for line, name in self._markup.ids(content)]
        words = self._markup.words(content)
        self._put(first, [*words, *[""] * (last - first)][: last - first])

    def _fence(self, token: Token, first: int, last: int) -> None:
        content = token.content.removesuffix("\n").split("\n")
        words = diagram_words(content) if token.info.strip().startswith("mermaid") else None
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
        """Leave out what shows nothing: images without a text, tags around nothing."""
        lines = self.written[first:last]
        text = "\n".join(lines)
        if "<" in text:
            self.ids += [(first + line + 1, name) for line, name in self._markup.ids(text)]
        if "{" in text:
            self.ids += [(first + line + 1, name) for line, name in stated_ids(lines)]
        opening = text.lstrip()[:2]
        if (opening == "![" and _NO_ALT.fullmatch(text.strip())) or (
            opening[:1] == "<" and not any(self._markup.words(text))
        ):
            self._kept[first:last] = [None] * (last - first)
        elif self._mdx and opening[:1] == "<" and opening[1:].isupper() and text.rstrip().endswith(">"):
            self._put(first, self._markup.words(text, components_only=True))
        elif (edited := stored(lines, mdx=self._mdx)) is not None:
            self._kept[first:last] = edited

    def _heading(self, _: Token, first: int, last: int) -> None:
        text = "\n".join(self.written[first:last])
        if "<" in text:
            self.ids += [(first + line + 1, name) for line, name in self._markup.ids(text)]

    def _table(self, _: Token, first: int, last: int) -> None:
        lines = self.written[first:last]
        self.ids += [(first + line + 1, name) for line, name in self._markup.ids("\n".join(lines))]
        if (edited := stored(lines, mdx=self._mdx, table=True)) is not None:
            self._kept[first:last] = edited

    def block(self, kind: str, first: int, last: int, cuts: tuple[tuple[int, ...], ...] = ()) -> Block | None:
        """Make a block of some lines, without blank ones at its ends; None if nothing is left of them."""
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
