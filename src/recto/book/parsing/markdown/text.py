"""The lines of a page without tags, comments and other markup that readers do not see; labels of diagrams."""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from recto.book.parsing.markdown.headings import SHORTCODE
from recto.types.book import Block

if TYPE_CHECKING:
    from markdown_it.token import Token

LONGEST_TAG = 4_000
_BUDGET = 1_000_000  # characters that may be searched for tag ends that do not exist
_LONGEST = 200_000  # characters; a longer paragraph is generated, and too slow to edit
_FENCE = re.compile(r"^[ \t>]*+(?P<marks>`{3,}+|~{3,}+)[ \t]*+(?P<info>[^`\s]*+)[^`\n]*+$", re.MULTILINE)
_QUOTES = re.compile(r"[\"'`{}>]")
_TAG = re.compile(r"<(/?)([A-Za-z][\w.:-]*(?<!:))?(?=[\s/>{])")
_SEEN = re.compile(r"\b(?:label|title|alt|summary|caption|header)=(?:\{\s*)?(?:\"([^\"]*)\"|'([^']*)')")
_STRING = re.compile(r"(?:(?<![\w-])([\w-]+)\s*[=:]\s*\{?\s*)?(?:\"([^\"]*)\"|'([^']*)'|`([^`]*)`)")
_TECHNICAL = re.compile(r"\w*[cC]lass\w*|code|d|href|id|key|path|src|style|to|url")
_WORD = re.compile(r"[^\W\d_]{2}")
_DATA = re.compile(r"\s*export\s+const\s+\w+\s*=\s*[\[{]")
_INLINE_TAG = re.compile(r"</?[a-z][^<>\n]*>")
_EAST_ASIAN = re.compile(r"[\u3040-\u9fff\uac00-\ud7a3]{4}")
_VALUE = re.compile(r"\bvalue=(?:\{\s*)?(?:\"([^\"]*)\"|'([^']*)')")
_CHOICE = re.compile(r"\{[^{}]*\}")
_PROPERTY = re.compile(r"\b(label|value)\s*:\s*(?:\"([^\"]*)\"|'([^']*)')")
_ID = re.compile(r"\sid=(?:\{\s*)?(?:\"([^\"\s]+)\"|'([^'\s]+)'|([^\s\"'>{}/]+))")
_NAME = re.compile(r"\sname=(?:\"([^\"\s]+)\"|'([^'\s]+)')")
_SPACES = re.compile(r"[ \t]{2,}")
_HIDDEN_ELEMENTS = ("script", "style", "template", "head")
_HAS_MARKUP = re.compile(r"[&{]|<!--|8<-")
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
_NO_ALT = re.compile(r"(?:!\[\s*\]\([^()\n]*\)(?:\{[^{}]*\})?\s*)+")
_PREFIX = re.compile(r"[ \t>]*")
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")


def code_fences(text: str) -> Iterator[tuple[re.Match[str], re.Match[str] | None]]:
    """Yield the opening and the closing line of each fence; an unclosed one has no closing line."""
    opened: re.Match[str] | None = None
    for line in _FENCE.finditer(text):
        if opened is None:
            opened = line
        elif line["marks"].startswith(opened["marks"]) and not line[0].strip(" \t>`~"):
            yield opened, line
            opened = None
    if opened is not None:
        yield opened, None


def tag_end(text: str, position: int) -> int | None:
    """Return where a tag ends; quotes and braces in its attributes may hold a `>`."""
    depth, quote = 0, ""
    limit = min(len(text), position + LONGEST_TAG)
    while match := _QUOTES.search(text, position, limit):
        mark, position = match[0], match.end()
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


def _without(text: str, opening: str, closing: str, *, to_the_end: bool = False) -> str:
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


def _code_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each inline code span."""
    starts: dict[int, list[int]] = defaultdict(list)
    for run in _CODE.finditer(text):
        starts[len(run[0])].append(run.start())
    position = 0
    for run in _CODE.finditer(text):
        same = starts[len(run[0])]
        after = bisect_right(same, run.start())
        if run.start() >= position and after < len(same):
            position = same[after] + len(run[0])
            yield run.start(), position


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
        text = _without(SHORTCODE.sub(r"`\1`", text), "<!--", "-->")
    if mdx and "{/*" in text:
        text = _without(text, "{/*", "*/}")
    text = _unescaped_snippets(text)
    if "{{" in text or "{%" in text:
        text = _TEMPLATE.sub(_template_text, text)
    return _unescaped(text.replace("&#124;", "\\|").replace("&vert;", "\\|") if table else text)


def _template_text(tag: re.Match[str]) -> str:
    """Return the visible text of a template tag, if it has any."""
    text = _TEMPLATE_TEXT.search(tag[0])
    return (text[1] if text else "") + "\n" * tag[0].count("\n")


def _sentences(code: str, known: str = "") -> str:
    """Return the sentences in the strings of JSX or data, except one that is `known`, on their lines."""
    shown: list[str] = []
    position = 0
    for string in _STRING.finditer(code):
        start, end = string.start(string.lastindex or 0), string.end() - 1
        if code[start - 2] == "(" or _TECHNICAL.fullmatch(string[1] or ""):  # an argument of a function
            continue
        text = _INLINE_TAG.sub("", code[start:end])
        if text != known and _is_sentence(text):
            shown += ["\n" * code.count("\n", position, start) or " ", text]
            position = end
    return "".join([*shown, "\n" * code.count("\n", position)])


def _is_sentence(text: str) -> bool:
    """Return whether a string is text for readers, not code, a name or an address."""
    if text.startswith(("http://", "https://")) or any(mark in text for mark in ("=>", "{", "}", "</")):
        return False
    return sum(bool(_WORD.search(word)) for word in text.split()) > 2 or bool(_EAST_ASIAN.search(text))


class _TagReader:
    """Reads the tags of one page in order and remembers the labels of its tabs."""

    def __init__(self) -> None:
        self._labels: dict[str, str] = {}
        self._budget = _BUDGET

    def _tags(self, text: str) -> Iterator[tuple[re.Match[str], int]]:
        """Yield each tag and where it ends; give up on a page with too many broken tags."""
        position = 0
        for tag in _TAG.finditer(text):
            if tag.start() < position or self._budget < 0:
                continue
            end = tag_end(text, tag.end())
            if end is None:
                self._budget -= LONGEST_TAG
            else:
                position = end
                yield tag, end

    def words(self, text: str, *, components_only: bool = False) -> list[str]:
        """Return the text of each line without tags and comments."""
        text = _without(SHORTCODE.sub(r"`\1`", text), "<!--", "-->", to_the_end=True)
        for name in _HIDDEN_ELEMENTS:
            if f"<{name}" in text.lower():
                text = _without(text, f"<{name}", f"</{name}>", to_the_end=True)
        kept, position = [], 0
        for match, end in self._tags(text):
            if components_only and not (match[2] or "X")[0].isupper():
                continue
            tag = text[match.start() : end]
            kept += [text[position : match.start()], self._shown(tag, match[2] or "")]
            position = end
        lines = _unescaped("".join([*kept, text[position:]])).split("\n")
        if "<pre" in text.lower():
            return [line.rstrip() for line in lines]
        return [_SPACES.sub(" ", line).strip() for line in lines]

    def _shown(self, tag: str, name: str) -> str:
        """Return the visible text of a tag with as many lines: its label, and sentences of a component."""
        label = self._label(tag, name)
        component = name[:1].isupper() and name != "Tabs"
        return f" {label} " + (_sentences(tag, label) if component else "\n" * tag.count("\n"))

    def _label(self, tag: str, name: str) -> str:
        """Return the visible label of a tag."""
        if name == "Tabs":
            for choice in _CHOICE.findall(tag[1:]):
                pairs = {match[1]: match[2] or match[3] or "" for match in _PROPERTY.finditer(choice)}
                if "value" in pairs:
                    self._labels[pairs["value"]] = pairs.get("label", pairs["value"])
            return ""
        if seen := _SEEN.search(tag):
            return seen[1] or seen[2] or ""
        if name == "TabItem" and (value := _VALUE.search(tag)):
            written = value[1] or value[2] or ""
            return self._labels.get(written, written)
        return ""

    def ids(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield the ids of HTML tags (not components) with their line numbers, from zero."""
        if "id=" not in text and "name=" not in text:
            return
        line = counted = 0
        for tag, end in self._tags(text):
            if tag[1] or not tag[2] or not tag[2][0].islower():
                continue
            attributes = text[tag.end() : end]
            stated = _ID.search(attributes) or (_NAME.search(attributes) if tag[2] == "a" else None)
            if stated:
                line, counted = line + text.count("\n", counted, tag.start()), tag.start()
                yield line, next(filter(None, stated.groups()))


class PageLines:
    """The lines of a page without markup that readers do not see; they keep their numbers in the source."""

    def __init__(self, source: str, mdx: bool) -> None:
        self.written = source.split("\n")
        self._kept: list[str | None] = list(self.written)
        self._mdx = mdx
        self._tag_reader = _TagReader()
        self.ids: list[tuple[int, str]] = []
        """The ids in tags and attribute lists, with their line numbers."""

    def edit(self, token: Token) -> None:
        """Remove what is not text from the lines of a token."""
        if token.map is None:
            return
        first, last = token.map[0], min(token.map[1], len(self.written))
        if token.type in ("mdx_code", "stray"):
            code = "\n".join(self.written[first:last])
            self._put(first, last, _sentences(code).split("\n") if _DATA.match(code) else ())
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
        self.ids += [(first + line + 1, name) for line, name in self._tag_reader.ids(text)]

    def _put(self, first: int, last: int, texts: Sequence[str]) -> None:
        """Replace lines but keep their quote marks; a line without a text is dropped."""
        texts = [*texts, *[""] * (last - first)]
        for number in range(first, last):
            prefix = _PREFIX.match(self.written[number])
            quote = prefix[0] if prefix and ">" in prefix[0] else ""
            self._kept[number] = quote + texts[number - first] if texts[number - first] else None

    def _edit_fence(self, token: Token, first: int, last: int) -> None:
        content = token.content.removesuffix("\n").split("\n")
        words = _diagram_labels(content) if token.info.strip().startswith("mermaid") else None
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
        elif (edited := _prose(lines, mdx=self._mdx)) is not None:
            self._kept[first:last] = edited

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


# Mermaid diagrams.
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
    r"([\w.-]*\w)?\s?(?:@\{[^}]*?label:\s*\"([^\"]*)\"[^}]*\}|\({1,3}\[?\"?([^\"()\[\]]+)\"?\]?\){1,3}|"
    r"\[{1,2}[(/\\]?\"([^\"]*)\"[)/\\]?\]{1,2}|"
    r"\[{1,2}[(/\\]?([^\[\]\"]+?)[)/\\]?\]{1,2}|\{{1,2}\"?([^{}\"]+)\"?\}{1,2}|(?<=\w)>\"?([^\[\]\"]+)\"?\])(?::::\w+)?"
)  # bounded repeats, so that a line of brackets does not backtrack for ever
_NODE_NAME = re.compile(r"[A-Za-z_][\w.-]*")
_SEQUENCE = re.compile(r"(\w[\w .]*?)\s*(?:<<)?(?:--?>>?|--?x|--?\))[+-]?\s*(\w[\w .]*?)\s*:\s*(.*)")
_PARTICIPANT = re.compile(r"(?:create\s+)?(?:participant|actor)\s+(\w[\w .]*?)(?:\s+as\s+(.+))?")
_KEYWORD = re.compile(
    r"(?:title|accTitle:?|accDescr:?|section|loop|alt|else|opt|par|and|critical|option|break|rect|box|state|subgraph|namespace|note|Note|x-axis|"
    r"y-axis|quadrant-\d|class)\s+(?:(?:over|left of|right of)\s+[\w, ]+:?\s*)?(.*)"
)
_QUOTED = re.compile(r"\"([^\"]+)\"")
_DIAGRAM_TAG = re.compile(r"<[^<>]*>")
_SYNTAX = re.compile(r"[<>|o}{*.=~-]{2,}|[{}\[\]()|*;]|\bas\b|:::\w+")
_LONGEST_DIAGRAM_LINE = 2_000


def _diagram_labels(lines: Sequence[str]) -> list[str] | None:
    """Return the labels of each line of a diagram; None if no line has any."""
    kind, first = _kind(lines)
    if not kind:
        return None
    read: Callable[[str], str]
    if kind.startswith(_FLOW):
        read = _flow_reader("\n".join(lines[first + 1 :]))
    elif kind == "sequenceDiagram":
        read = _sequence_reader(lines)
    else:
        read = _outline if kind in _OUTLINES else _plan if kind in _PLANS else _any
    words = ["" for _ in lines]
    for number in range(first, len(lines)):
        line = lines[number].strip().rstrip(";")
        if number == first:
            line = line[len(kind) :].strip() if kind == "pie" else ""
        if line and len(line) <= _LONGEST_DIAGRAM_LINE and not _SKIPPED.match(line):
            words[number] = " ".join(
                _unescaped(_DIAGRAM_TAG.sub(" ", read(line))).replace("\\n", " ").split()
            )
    return words if any(words) else None


def _kind(lines: Sequence[str]) -> tuple[str, int]:
    """Return the type of a diagram and the line that states it, after comments and front matter."""
    settings = False
    for number, line in enumerate(lines):
        text = line.strip()
        if text == "---":
            settings = not settings
        elif text and not settings and not text.startswith("%%"):
            return text.split()[0].rstrip(";:"), number
    return "", 0


def _flow_reader(text: str) -> Callable[[str], str]:
    """Return a reader of a flow chart's lines; a node without a label is shown by its name."""
    shown = {match[1] for match in _NODE.finditer(text) if match[1]} if len(text) < 100_000 else set[str]()

    def read(line: str) -> str:
        if line.startswith("subgraph"):
            labelled = _NODE.search(line[8:])
            return next(filter(None, labelled.groups()[1:]), "") if labelled else line[8:].strip().strip('"')
        labels: list[tuple[int, str]] = []

        def note(match: re.Match[str]) -> str:
            label = next((group for group in match.groups()[match.re is _NODE :] if group), "")
            labels.append((match.start(), label.strip()))
            return " " * len(match[0])

        rest = _EDGE_TEXT.sub(note, _NODE.sub(note, line))
        for name in _NODE_NAME.finditer(_ARROW.sub(lambda match: " " * len(match[0]), rest)):
            if name[0] not in shown:
                shown.add(name[0])
                labels.append((name.start(), name[0]))
        return ", ".join(label for _, label in sorted(labels) if label)

    return read


def _sequence_reader(lines: Sequence[str]) -> Callable[[str], str]:
    """Return a reader of a sequence diagram's lines; a participant is shown by its alias."""
    named = (_PARTICIPANT.fullmatch(line.strip()) for line in lines if len(line) <= _LONGEST_DIAGRAM_LINE)
    names = {match[1]: match[2] for match in named if match and match[2]}

    def read(line: str) -> str:
        if participant := _PARTICIPANT.fullmatch(line):
            return participant[2] or participant[1]
        if message := _SEQUENCE.fullmatch(line):
            sender, receiver = (names.get(name, name) for name in (message[1], message[2]))
            return f"{sender}, {receiver}: {message[3]}"
        keyword = _KEYWORD.fullmatch(line)
        return keyword[1] if keyword else line

    return read


def _outline(text: str) -> str:
    """Return the text of a line of a mind map or a timeline."""
    if shaped := _NODE.fullmatch(text):
        return next(filter(None, shaped.groups()[1:]), text)
    return re.sub(r"^(?:title|section)\s+|::icon\(.*\)", "", text)


def _plan(text: str) -> str:
    """Return the name of a task, without its dates and scores."""
    return re.sub(r"^(?:title|section)\s+", "", text).split(":")[0]


def _any(text: str) -> str:
    """Return the words of a line of any other diagram."""
    keyword = _KEYWORD.fullmatch(text)
    text = keyword[1] if keyword else text
    return _SYNTAX.sub(" ", _QUOTED.sub(r" \1 ", text)).replace(" : ", ": ")


def _unescaped(text: str) -> str:
    """Replace HTML entities by their characters, except those that would break the line."""

    def character(entity: re.Match[str]) -> str:
        written = html.unescape(entity[0])
        return written.replace("\xa0", " ") if written.isprintable() or written == "\xa0" else entity[0]

    return _ENTITY.sub(character, text) if "&" in text else text
