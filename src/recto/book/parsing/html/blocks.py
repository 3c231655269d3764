"""Render HTML as lines of Markdown-like text: headings, paragraphs, lists, tables, code and groups."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from recto.book.parsing.html.tokens import is_dropped, words

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

_LANGUAGE = re.compile(r"(?:^|\s)(?:language|lang|highlight|highlight-source)-([\w+#.-]+)")
_NO_LANGUAGE = frozenset({"default", "none", "notranslate", "plaintext"})


def exact_text(node: LexborNode) -> str:
    """Return the text of code with its line breaks and without line numbers."""
    parts: list[str] = []
    stack: list[tuple[LexborNode, bool]] = [
        (child, False) for child in reversed(list(node.iter(include_text=True)))
    ]
    while stack:
        child, left = stack.pop()
        tag = child.tag or ""
        if left:
            if parts and not parts[-1].endswith("\n"):
                parts.append("\n")
        elif tag == "-text":
            parts.append((child.text() or "").replace("\r\n", "\n").replace("\u200b", ""))
        elif tag == "br":
            parts.append("\n")
        elif not tag.startswith("-") and not is_dropped(tag, child.attributes):
            if tag in ("div", "li", "p"):
                stack.append((child, True))
            stack.extend((grandchild, False) for grandchild in reversed(list(child.iter(include_text=True))))
    return "".join(parts)


def language(node: LexborNode) -> str:
    """Return the language of code, from the class of an element in it or around it."""
    inner = node.css_first("x-code")
    places = [inner, node]
    for _ in range(7):  # line numbers put a table around the code
        places.append(places[-1].parent if places[-1] is not None else None)
    for place in places:
        found = _LANGUAGE.search(place.attributes.get("class") or "") if place is not None else None
        if found and found[1] not in _NO_LANGUAGE:
            return found[1]
    return "mermaid" if "mermaid" in (node.attributes.get("class") or "").split() else ""


def fence(text: str, shortest: int) -> str:
    """Return a run of backticks that is longer than any in the text."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    return "`" * max(shortest, longest + 1)


@dataclass(slots=True)
class TextBlock:
    """A rendered block; children and anchors count from its first line; headings have a level and an id."""

    kind: str
    lines: list[str]
    children: list[tuple[str, int, int]] = field(default_factory=list)
    anchors: list[tuple[int, str]] = field(default_factory=list)
    level: int = 0
    id: str = ""


def as_cell(block: TextBlock) -> str:
    """Return a block on one line, for a table cell."""
    if block.kind == "code":
        code = " ".join(" ".join(block.lines[1:-1]).split())
        return f"{fence(code, 1)}{code}{fence(code, 1)}"
    return " ".join(line.strip() for line in block.lines if line.strip())


def anchors_of(blocks: Iterable[TextBlock]) -> list[tuple[int, str]]:
    """Return the anchors of several blocks."""
    return [anchor for block in blocks for anchor in block.anchors]


def append(target: TextBlock, block: TextBlock, blank: bool = False) -> None:
    """Append the lines of a block to another."""
    if blank and target.lines:
        target.lines.append("")
    start = len(target.lines)
    target.lines += block.lines
    target.anchors += [(start + place, name) for place, name in block.anchors]


def join_blocks(kind: str, blocks: Iterable[TextBlock]) -> TextBlock:
    """Join blocks with blank lines, except before a list."""
    whole = TextBlock(kind, [])
    for block in blocks:
        blank = block.kind != "list" and kind != "list"
        start = len(whole.lines) + (blank and bool(whole.lines))
        append(whole, block, blank)
        whole.children.append(("list_item" if block.kind == "item" else block.kind, start, len(block.lines)))
    return whole


_LEVELS = 2  # from a panel or a tab list up to the element that holds both


class Tabs:
    """Remembers the labels of tab lists until their panels come."""

    def __init__(self) -> None:
        self._labels: dict[int, deque[str]] = {}

    def note(self, node: LexborNode, tag: str, attributes: Mapping[str, str | None]) -> bool:
        """Remember the labels of a tab list; return whether the element is one."""
        names = (attributes.get("class") or "").split()
        plain = "tabs" in names and tag == "div" and all(child.tag == "label" for child in node.iter())
        if attributes.get("role") != "tablist" and "tabbed-labels" not in names and not plain:
            return False
        labels = [" ".join(label.text().split()) for label in node.css("[role=tab], label")]
        around = node.parent
        for _ in range(_LEVELS):
            if around is not None and labels:
                self._labels.setdefault(around.mem_id, deque()).extend(labels)
                around = around.parent
        return True

    def label(self, node: LexborNode, attributes: Mapping[str, str | None]) -> str:
        """Return the label of a tab panel, or "" for any other element."""
        if not self._labels:
            return ""
        around = node.parent
        blocks = around is not None and "blocks" in (around.attributes.get("class") or "").split()
        if (
            not blocks
            and attributes.get("role") != "tabpanel"
            and "tabbed-block" not in (attributes.get("class") or "").split()
        ):
            return ""
        for _ in range(_LEVELS):
            if around is None:
                break
            if labels := self._labels.get(around.mem_id):
                return labels.popleft()
            around = around.parent
        return ""


_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_BLOCKS = words(
    "p div section article main header address fieldset figure figcaption summary hr ul ol li dl dt dd table "
    "tbody thead tfoot tr td th caption pre blockquote details aside hgroup center x-tabs"
)
_GROUP = re.compile(
    r"(?:^|\s)(?:theme-admonition|admonition|custom-block|markdown-alert|starlight-aside|nextra-callout|callout)(?:\s|$)"
)
_SPACE = re.compile(r"[ \t\r\n\f]+")
_INVISIBLE = str.maketrans(
    {"\u200b": None, "\u200c": None, "\u2060": None, "\ufeff": None, "\u00ad": None, "\u00a0": " "}
)
_SPACE_RUN = re.compile(r"[ \t]+")
_PERMALINKS = frozenset({"#", "¶", "§", "🔗", ""})
_MACHINE_ID = re.compile(r"__|:r|katex|mathjax|mjx|cb\d|id\d+$|fnref|tab(?:s|panel|bed)?-", re.IGNORECASE)
_DEEPEST = 24
_MOST_COLUMNS = 100
_MOST_IDS = 50  # that wait for the next block
_ORDINAL = re.compile(r"\d{1,9}")


@dataclass(slots=True)
class _Frame:
    kind: str
    blocks: list[TextBlock] = field(default_factory=list)
    inline: list[str] = field(default_factory=list)
    cells: list[str] = field(default_factory=list)
    anchors: list[tuple[int, str]] = field(default_factory=list)
    number: int = 0
    level: int = 0
    id: str = ""


def render(content: LexborNode) -> list[TextBlock]:
    """Return the headings and blocks of an element in order."""
    return _Renderer().write(content)


class _Renderer:
    def __init__(self) -> None:
        self._frames = [_Frame("root")]
        self._pending: dict[str, None] = {}
        self._tabs = Tabs()
        self._whole = 0

    def write(self, content: LexborNode) -> list[TextBlock]:
        self._whole = content.mem_id
        stack: list[tuple[LexborNode, str]] = [(content, "")]
        while stack:
            node, leaving = stack.pop()
            if leaving:
                self._leave(leaving)
                continue
            following = node.next
            if following is not None and node.mem_id != self._whole:
                stack.append((following, ""))
            tag = node.tag or ""
            if tag == "-text":
                self._text(node.text() or "")
            elif not tag.startswith("-") and (action := self._enter(node, tag)):
                child = node.first_child
                stack.append((node, action))
                if child is not None:
                    stack.append((child, ""))
        self._flush()
        root = self._frames[0]
        if self._pending and root.blocks:
            last = root.blocks[-1]
            last.anchors += [(len(last.lines) - 1, name) for name in self._pending]
        return root.blocks

    @property
    def _top(self) -> _Frame:
        return self._frames[-1]

    def _text(self, text: str) -> None:
        self._top.inline.append(_SPACE.sub(" ", text.translate(_INVISIBLE)))

    def _enter(self, node: LexborNode, tag: str) -> str:
        """Begin an element; return how to end it, or "" to skip its content."""
        attributes = node.attributes
        if (
            self._tabs.note(node, tag, attributes)
            or is_dropped(tag, attributes)
            or (tag == "x-link" and self._is_permalink(node, attributes))
        ):
            return ""
        names = attributes.get("class") or ""
        if tag in ("math", "x-tex", "br", "x-code"):
            return self._enter_inline(node, tag, attributes)
        if tag in _BLOCKS or tag in _HEADINGS:
            self._flush()
        self._note_id(node, tag, attributes)
        if tag == "pre":
            self._code(node)
            return ""
        if label := self._tabs.label(node, attributes):
            self._add(TextBlock("paragraph", [label]))
        if tag in _HEADINGS:
            return self._begin("heading", level=_HEADINGS[tag], id=attributes.get("id") or "")
        kind = self._container(tag, names, attributes)
        if kind:
            number = (
                int(attributes.get("start") or "1")
                if kind == "ol" and _ORDINAL.fullmatch(attributes.get("start") or "1")
                else 1
            )
            return self._begin(kind, number=number, level=_span(attributes))
        return "block" if tag in _BLOCKS else "inline"

    def _is_permalink(self, node: LexborNode, attributes: dict[str, str | None]) -> bool:
        named = attributes.get("id") or attributes.get("name")
        return (
            self._top.kind == "heading"
            and not named
            and node.text().translate(_INVISIBLE).strip() in _PERMALINKS
        )

    def _begin(self, kind: str, *, number: int = 1, level: int = 0, id: str = "") -> str:
        if len(self._frames) >= _DEEPEST and kind != "heading":
            return "block"
        self._frames.append(_Frame(kind, number=number, level=level, id=id))
        return "frame"

    def _container(self, tag: str, names: str, attributes: dict[str, str | None]) -> str:
        """Return the kind of block that an element makes of its content, or ""."""
        within = self._top.kind
        if tag in ("ul", "ol", "dl", "blockquote"):
            return tag
        if tag in ("li", "dt", "dd"):
            return {"li": ("ul", "ol"), "dt": ("dl",), "dd": ("dl",)}[tag].count(within) * tag
        if tag == "table":
            code = (
                "highlighttable" in names
                or "rouge-table" in names
                or attributes.get("role") == "presentation"
            )
            return "" if code else "table"
        if tag == "tr":
            return "tr" if within == "table" else ""
        if tag in ("td", "th"):
            return "td" if within == "tr" else ""
        return "group" if tag in ("details", "aside") or _GROUP.search(names) else ""

    def _leave(self, action: str) -> None:
        if action == "frame":
            self._flush()
            self._close(self._frames.pop())
        elif action == "block":
            self._flush()

    def _flush(self) -> None:
        """Make a paragraph of the collected inline text; a heading keeps its own."""
        frame = self._top
        if frame.kind == "heading" or not frame.inline:
            return
        lines = [
            " ".join(line.split(" ")).strip()
            for line in _SPACE_RUN.sub(" ", "".join(frame.inline)).split("\n")
        ]
        frame.inline = []
        lines = [line for line in lines if line]
        if lines:
            self._add(TextBlock("paragraph", lines))

    def _add(self, block: TextBlock) -> None:
        if self._pending:
            block.anchors = [(0, name) for name in self._pending] + block.anchors
            self._pending = {}
        self._top.blocks.append(block)

    def _close(self, frame: _Frame) -> None:
        if frame.kind == "heading":
            self._heading(frame)
        elif frame.kind in ("li", "dd", "dt"):
            self._item(frame)
        elif frame.kind == "td":
            self._cell(frame)
        elif frame.kind == "tr":
            self._row(frame)
        elif frame.kind == "table":
            self._table(frame)
        elif frame.blocks:
            self._top.blocks.append(_joined(frame))

    def _heading(self, frame: _Frame) -> None:
        text = " ".join("".join(frame.inline).split())
        extra, self._pending = list(self._pending), {}
        if not text:
            self._pending = dict.fromkeys([*extra, *([frame.id] if frame.id else [])])
            return
        own = frame.id or (extra[-1] if extra else "")
        anchors = [(0, name) for name in dict.fromkeys((*extra, own)) if name]
        if len(self._frames) == 1:
            self._frames[0].blocks.append(
                TextBlock("heading", [text], anchors=anchors, level=frame.level, id=own)
            )
        else:
            self._top.blocks.append(TextBlock("paragraph", [f"{'#' * frame.level} {text}"], anchors=anchors))
        self._top.blocks += frame.blocks

    def _item(self, frame: _Frame) -> None:
        if not frame.blocks:
            return
        around = self._top
        mark = {"dt": "", "dd": ": "}.get(frame.kind, f"{around.number}. " if around.kind == "ol" else "- ")
        around.number += 1
        block = join_blocks("item", frame.blocks)
        indent = " " * len(mark)
        block.lines = [
            f"{mark}{line}" if place == 0 else f"{indent}{line}" if line else ""
            for place, line in enumerate(block.lines)
        ]
        if frame.kind == "dd" and around.blocks:
            append(around.blocks[-1], block)
        else:
            around.blocks.append(block)

    def _cell(self, frame: _Frame) -> None:
        row = self._top
        text = " ".join(as_cell(block) for block in frame.blocks)
        anchors = anchors_of(frame.blocks)
        if len(row.cells) < _MOST_COLUMNS:
            row.cells += [text, *[""] * (frame.level - 1)]
            row.anchors += anchors
        else:
            row.blocks.append(TextBlock("paragraph", [text], anchors=anchors))

    def _row(self, frame: _Frame) -> None:
        """Make a row of cells; text outside of cells goes into one more."""
        if frame.blocks:
            frame.cells.append(" ".join(as_cell(block) for block in frame.blocks))
            frame.anchors += anchors_of(frame.blocks)
        if any(frame.cells):
            self._top.blocks.append(
                TextBlock("row", [cell.replace("|", "\\|") for cell in frame.cells], anchors=frame.anchors)
            )

    def _table(self, frame: _Frame) -> None:
        rows = [block for block in frame.blocks if block.kind == "row"]
        for block in frame.blocks:
            if block.kind != "row":
                self._top.blocks.append(block)  # a caption, or misplaced text
        if not rows:
            return
        if any(above.kind == "td" for above in self._frames):
            self._add(
                TextBlock(
                    "paragraph",
                    [" ".join(cell.replace("\\|", "|") for cell in row.lines if cell) for row in rows],
                )
            )
            return
        width = max(len(row.lines) for row in rows)
        lines = [f"| {' | '.join(row.lines + [''] * (width - len(row.lines)))} |" for row in rows]
        anchors = [(place + (place > 0), name) for place, row in enumerate(rows) for _, name in row.anchors]
        self._add(TextBlock("table", [lines[0], f"|{' --- |' * width}", *lines[1:]], anchors=anchors))

    def _enter_inline(self, node: LexborNode, tag: str, attributes: dict[str, str | None]) -> str:
        if tag == "br":
            self._top.inline.append("\n")
        elif tag == "x-code":
            text = " ".join(node.text().translate(_INVISIBLE).split())
            ticks = fence(text, 1)
            pad = " " if text.startswith("`") or text.endswith("`") else ""
            self._top.inline.append(
                f"{ticks}{pad}{text}{pad}{ticks}" if text and self._top.kind != "heading" else text
            )
        else:
            source = node.css_first('annotation[encoding*="tex"]') if tag == "math" else None
            tex = " ".join((source or node).text().split())
            sign = "$$" if attributes.get("display") == "block" else "$"
            self._top.inline.append(f"{sign}{tex}{sign}" if tex and (source or tag == "x-tex") else tex)
        return ""

    def _code(self, node: LexborNode) -> None:
        text = exact_text(node)
        lines = [line.rstrip() for line in text.split("\n")]
        while lines and not lines[-1]:
            lines.pop()
        while lines and not lines[0]:
            lines.pop(0)
        if lines:
            marks = fence(text, 3)
            self._add(TextBlock("code", [marks + language(node), *lines, marks]))

    def _note_id(self, node: LexborNode, tag: str, attributes: dict[str, str | None]) -> None:
        name = attributes.get("id") or (attributes.get("name") if tag == "x-link" else "") or ""
        if not name or tag in _HEADINGS or name in self._pending or node.mem_id == self._whole:
            return
        if not _MACHINE_ID.match(name) or (tag in ("section", "div") and _begins_with_heading(node)):
            self._pending[name] = None
            if len(self._pending) > _MOST_IDS:
                del self._pending[next(iter(self._pending))]


def _span(attributes: dict[str, str | None]) -> int:
    value = attributes.get("colspan") or "1"
    return max(1, min(int(value), _MOST_COLUMNS)) if _ORDINAL.fullmatch(value) else 1


def _begins_with_heading(node: LexborNode) -> bool:
    for place, child in enumerate(node.iter()):
        if child.tag in _HEADINGS:
            return True
        if place > 3 or child.tag not in ("span", "x-link", "div"):
            return False
    return False


def _joined(frame: _Frame) -> TextBlock:
    """Join the blocks of a container."""
    if frame.kind in ("ul", "ol", "dl"):
        return join_blocks("list", frame.blocks)
    whole = join_blocks("group", frame.blocks)
    if frame.kind == "blockquote":
        whole.lines = [f"> {line}".rstrip() for line in whole.lines]
    return whole
