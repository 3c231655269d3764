"""Parse a web page into sections of blocks of Markdown-like text; line numbers count its lines."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import dropwhile, islice
from typing import TYPE_CHECKING

from recto.book.parsing.html.tokens import (
    is_dropped,
    main_content,
    read_head,
    simplify,
    split_site_name,
    words,
)
from recto.book.parsing.rendered import TextBlock, code_span, fenced, indented, joined, sections, table
from recto.errors import missing_extra
from recto.types.book import Document

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser, LexborNode

_LANGUAGE = re.compile(r"(?:^|\s)(?:language|lang|highlight|highlight-source)-([\w+#.-]+)")
_NO_LANGUAGE = frozenset({"default", "none", "notranslate", "plaintext"})
_AROUND_CODE = 7  # elements around code that may state its language; line numbers put a table around it
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_BLOCKS = words(
    "p div section article main header address fieldset figure figcaption summary hr ul ol li dl dt dd table "
    "tbody thead tfoot tr td th caption pre blockquote details aside hgroup center x-tabs"
)
_GROUP = re.compile(
    r"(?:^|\s)(?:theme-admonition|admonition|custom-block|markdown-alert|starlight-aside|nextra-callout|"
    r"callout)(?:\s|$)"
)
_PARENTS = {"li": ("ul", "ol"), "dt": ("dl",), "dd": ("dl",), "tr": ("table",), "td": ("tr",), "th": ("tr",)}
_SPACE = re.compile(r"[ \t\r\n\f]+")
_SPACE_RUN = re.compile(r"[ \t]+")
_INVISIBLE = str.maketrans("\u00a0", " ", "\u200b\u200c\u2060\ufeff\u00ad")
_LONGEST_PERMALINK = 100  # characters, most of them invisible
_PERMALINKS = frozenset({"#", "¶", "§", "🔗", ""})
_MACHINE_ID = re.compile(r"__|:r|katex|mathjax|mjx|cb\d|id\d+$|fnref|tab(?:s|panel|bed)?-", re.IGNORECASE)
_DEEPEST = 24
_MOST_COLUMNS = 100
_MOST_IDS = 50  # that wait for the next block
_START_TAG = re.compile(r"<[A-Za-z]")
_MOST_TAGS = 45_000  # start tags; the largest pages of API references have 30 000
_ORDINAL = re.compile(r"\d{1,9}")
_TAB_LEVELS = 2  # from a panel or a tab list up to the element that holds both

Attributes = Mapping[str, str | None]


def parse_html(html: str, *, title: str = "", url: str = "") -> Document:
    """Parse a page; its title is the top heading, else `og:title`, else `<title>`, else `title`."""
    try:
        from selectolax.lexbor import LexborHTMLParser
    except ImportError as error:
        raise missing_extra("Reading a website", "crawl") from error
    if len(_START_TAG.findall(html)) > _MOST_TAGS:
        raise ValueError(f"it has more than {_MOST_TAGS} tags (split it into several pages)")
    tree = LexborHTMLParser(simplify(html))
    content = main_content(tree)
    rendered = _Renderer(content).render() if content is not None else []
    head = read_head(html)
    stated = next((block.lines[0] for block in rendered if block.level == 1), "") or _outer_heading(tree)
    stated = stated or split_site_name(head.og_title)[0] or split_site_name(head.title)[0] or title or url
    return Document(stated, tuple(sections(rendered, stated)))


def _outer_heading(tree: LexborHTMLParser) -> str:
    """Return the top heading, which some websites put above the content."""
    heading = tree.css_first("main h1") or tree.css_first("article h1")
    return " ".join(heading.text().replace("\u200b", "").split()) if heading is not None else ""


def _code_text(node: LexborNode) -> str:
    """Return the text of code with its line breaks and without line numbers."""
    parts: list[str] = []
    stack = [(child, False) for child in reversed(list(node.iter(include_text=True)))]
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
            stack.extend((inner, False) for inner in reversed(list(child.iter(include_text=True))))
    return "".join(parts)


def _code_language(node: LexborNode) -> str:
    """Return the language of code, from the class of an element in it or around it."""
    for element in (node.css_first("x-code"), node, *_around(node, _AROUND_CODE)):
        language = _LANGUAGE.search(element.attributes.get("class") or "") if element is not None else None
        if language and language[1] not in _NO_LANGUAGE:
            return language[1]
    return "mermaid" if "mermaid" in _classes(node.attributes) else ""


def _around(node: LexborNode, levels: int) -> Iterator[LexborNode]:
    """Yield the elements around an element, innermost first."""
    around = node.parent
    while around is not None and levels:
        yield around
        around, levels = around.parent, levels - 1


def _classes(attributes: Attributes) -> list[str]:
    return (attributes.get("class") or "").split()


@dataclass(slots=True)
class _Frame:
    """An element that is open: its finished blocks, and the text that is not yet a block."""

    kind: str
    blocks: list[TextBlock] = field(default_factory=list)
    inline: list[str] = field(default_factory=list)
    cells: list[str] = field(default_factory=list)
    anchors: list[tuple[int, str]] = field(default_factory=list)
    number: int = 1
    level: int = 0
    id: str = ""


class _Renderer:
    def __init__(self, content: LexborNode) -> None:
        self._content = content
        self._frames = [_Frame("root")]
        self._pending: dict[str, None] = {}
        self._labels: dict[int, deque[str]] = {}  # of tab lists, until their panels come

    def render(self) -> list[TextBlock]:
        """Return the headings and blocks of the content in order."""
        stack: list[tuple[LexborNode, str]] = [(self._content, "")]
        while stack:
            node, leaving = stack.pop()
            if leaving:
                if leaving != "inline":
                    self._flush()
                if leaving == "frame":
                    self._close(self._frames.pop())
                continue
            following = node.next
            if following is not None and node.mem_id != self._content.mem_id:
                stack.append((following, ""))
            tag = node.tag or ""
            if tag == "-text":
                self._top.inline.append(_SPACE.sub(" ", (node.text() or "").translate(_INVISIBLE)))
            elif not tag.startswith("-") and (action := self._enter(node, tag)):
                child = node.first_child
                stack.append((node, action))
                if child is not None:
                    stack.append((child, ""))
        self._flush()
        blocks = self._frames[0].blocks
        if self._pending and blocks:
            blocks[-1].anchors += [(len(blocks[-1].lines) - 1, name) for name in self._pending]
        return blocks

    @property
    def _top(self) -> _Frame:
        return self._frames[-1]

    def _enter(self, node: LexborNode, tag: str) -> str:
        """Begin an element; return how to end it, or "" to skip its content."""
        attributes = node.attributes
        if self._note_tabs(node, tag, attributes) or is_dropped(tag, attributes):
            return ""
        if tag == "x-link" and self._is_permalink(node, attributes):
            return ""
        if tag in ("math", "x-tex", "br", "x-code"):
            self._top.inline.append(self._inline(node, tag, attributes))
            return ""
        if tag in _BLOCKS or tag in _HEADINGS:
            self._flush()
        self._note_id(node, tag, attributes)
        if tag == "pre":
            self._code(node)
            return ""
        if label := self._tab_label(node, attributes):
            self._add(TextBlock("paragraph", [label]))
        kind = "heading" if tag in _HEADINGS else self._container(tag, attributes)
        if not kind or (len(self._frames) >= _DEEPEST and kind != "heading"):
            return "block" if kind or tag in _BLOCKS else "inline"
        level = _HEADINGS.get(tag) or max(1, min(_number(attributes, "colspan"), _MOST_COLUMNS))
        frame = _Frame(kind, level=level, number=_number(attributes, "start") if kind == "ol" else 1)
        frame.id = (attributes.get("id") or "") if kind == "heading" else ""
        self._frames.append(frame)
        return "frame"

    def _note_tabs(self, node: LexborNode, tag: str, attributes: Attributes) -> bool:
        """Remember the labels of a tab list; return whether the element is one."""
        names = _classes(attributes)
        plain = "tabs" in names and tag == "div" and all(child.tag == "label" for child in node.iter())
        if attributes.get("role") != "tablist" and "tabbed-labels" not in names and not plain:
            return False
        labels = [" ".join(label.text().split()) for label in node.css("[role=tab], label")]
        for around in _around(node, _TAB_LEVELS) if labels else ():
            self._labels.setdefault(around.mem_id, deque()).extend(labels)
        return True

    def _tab_label(self, node: LexborNode, attributes: Attributes) -> str:
        """Return the label of a tab panel, or "" for any other element."""
        is_panel = attributes.get("role") == "tabpanel" or "tabbed-block" in _classes(attributes)
        in_group = node.parent is not None and "blocks" in _classes(node.parent.attributes)
        around = _around(node, _TAB_LEVELS) if is_panel or in_group else ()
        labels = next((waiting for near in around if (waiting := self._labels.get(near.mem_id))), None)
        return labels.popleft() if labels else ""

    def _is_permalink(self, node: LexborNode, attributes: Attributes) -> bool:
        if self._top.kind != "heading" or attributes.get("id") or attributes.get("name"):
            return False
        text = node.text()  # of nested links, it is as long as the page
        return len(text) < _LONGEST_PERMALINK and text.translate(_INVISIBLE).strip() in _PERMALINKS

    def _inline(self, node: LexborNode, tag: str, attributes: Attributes) -> str:
        """Return the text of a line break, inline code or math."""
        if tag == "br":
            return "\n"
        if tag == "x-code":
            text = " ".join(node.text().translate(_INVISIBLE).split())
            if not text or self._top.kind == "heading":
                return text
            return code_span(text)
        source = node.css_first('annotation[encoding*="tex"]') if tag == "math" else None
        tex = " ".join((source or node).text().split())
        sign = "$$" if attributes.get("display") == "block" else "$"
        return f"{sign}{tex}{sign}" if tex and (source or tag == "x-tex") else tex

    def _container(self, tag: str, attributes: Attributes) -> str:
        """Return the kind of block that an element makes of its content, or ""."""
        names = attributes.get("class") or ""
        if tag in ("ul", "ol", "dl", "blockquote"):
            return tag
        if tag in _PARENTS:
            return ("td" if tag == "th" else tag) if self._top.kind in _PARENTS[tag] else ""
        if tag == "table":
            code = "highlighttable" in names or "rouge-table" in names
            return "" if code or attributes.get("role") == "presentation" else "table"
        return "group" if tag in ("details", "aside") or _GROUP.search(names) else ""

    def _flush(self) -> None:
        """Make a paragraph of the collected inline text; a heading keeps its own."""
        frame = self._top
        if frame.kind == "heading" or not frame.inline:
            return
        lines = [line.strip() for line in _SPACE_RUN.sub(" ", "".join(frame.inline)).split("\n")]
        frame.inline = []
        if lines := [line for line in lines if line]:
            self._add(TextBlock("paragraph", lines))

    def _add(self, block: TextBlock) -> None:
        if self._pending:
            block.anchors = [(0, name) for name in self._pending] + block.anchors
            self._pending = {}
        self._top.blocks.append(block)

    def _close(self, frame: _Frame) -> None:
        """End an element that collects blocks."""
        match frame.kind:
            case "heading":
                self._heading(frame)
            case "td":
                self._cell(frame)
            case "tr":
                self._row(frame)
            case "table":
                self._table(frame)
            case "li" | "dd" | "dt":
                self._item(frame)
            case _ if frame.blocks:
                block = joined("list" if frame.kind in ("ul", "ol", "dl") else "group", frame.blocks)
                self._top.blocks.append(indented(block, "> ", "> ") if frame.kind == "blockquote" else block)

    def _heading(self, frame: _Frame) -> None:
        text = " ".join("".join(frame.inline).split())
        extra, self._pending = list(self._pending), {}
        if not text:
            self._pending = dict.fromkeys(filter(None, [*extra, frame.id]))
            return
        anchor = frame.id or (extra[-1] if extra else "")
        anchors = [(0, name) for name in dict.fromkeys((*extra, anchor)) if name]
        if len(self._frames) == 1:
            block = TextBlock("heading", [text], anchors=anchors, level=frame.level, id=anchor)
        else:
            block = TextBlock("paragraph", [f"{'#' * frame.level} {text}"], anchors=anchors)
        self._top.blocks += [block, *frame.blocks]

    def _item(self, frame: _Frame) -> None:
        if not frame.blocks:
            return
        around = self._top
        mark = {"dt": "", "dd": ": "}.get(frame.kind, f"{around.number}. " if around.kind == "ol" else "- ")
        around.number += 1
        block = indented(joined("item", frame.blocks), mark)
        if frame.kind == "dd" and around.blocks:
            around.blocks[-1].append(block)
        else:
            around.blocks.append(block)

    def _cell(self, frame: _Frame) -> None:
        row, block = self._top, _cell_block(frame.blocks)
        if len(row.cells) < _MOST_COLUMNS:
            row.cells += [*block.lines, *[""] * (frame.level - 1)]
            row.anchors += block.anchors
        else:
            row.blocks.append(block)

    def _row(self, frame: _Frame) -> None:
        """Make a row of cells; text outside of cells goes into one more."""
        if frame.blocks:
            block = _cell_block(frame.blocks)
            frame.cells += block.lines
            frame.anchors += block.anchors
        if any(frame.cells):
            cells = [cell.replace("|", "\\|") for cell in frame.cells]
            self._top.blocks.append(TextBlock("row", cells, anchors=frame.anchors))

    def _table(self, frame: _Frame) -> None:
        rows = [block for block in frame.blocks if block.kind == "row"]
        self._top.blocks += [block for block in frame.blocks if block.kind != "row"]  # a caption, stray text
        if not rows:
            return
        if any(above.kind == "td" for above in self._frames):
            lines = [" ".join(cell.replace("\\|", "|") for cell in row.lines if cell) for row in rows]
            self._add(TextBlock("paragraph", lines))
            return
        anchors = [
            (number + (number > 0), name) for number, row in enumerate(rows) for _, name in row.anchors
        ]
        self._add(TextBlock("table", table([row.lines for row in rows]), anchors=anchors))

    def _code(self, node: LexborNode) -> None:
        code = "\n".join(line.rstrip() for line in _code_text(node).split("\n")).strip("\n")
        if code:
            self._add(TextBlock("code", fenced(code, _code_language(node))))

    def _note_id(self, node: LexborNode, tag: str, attributes: Attributes) -> None:
        name = attributes.get("id") or (attributes.get("name") if tag == "x-link" else "") or ""
        if not name or tag in _HEADINGS or name in self._pending or node.mem_id == self._content.mem_id:
            return
        if not _MACHINE_ID.match(name) or (tag in ("section", "div") and _begins_with_heading(node)):
            self._pending[name] = None
            if len(self._pending) > _MOST_IDS:
                del self._pending[next(iter(self._pending))]


def _number(attributes: Attributes, name: str) -> int:
    value = attributes.get(name) or "1"
    return int(value) if _ORDINAL.fullmatch(value) else 1


def _cell_block(blocks: list[TextBlock]) -> TextBlock:
    """Return blocks as one line for a table cell."""
    anchors = [anchor for block in blocks for anchor in block.anchors]
    return TextBlock("paragraph", [" ".join(block.as_cell() for block in blocks)], anchors=anchors)


def _begins_with_heading(node: LexborNode) -> bool:
    first = dropwhile(lambda child: child.tag in ("span", "x-link", "div"), islice(node.iter(), 5))
    return any(child.tag in _HEADINGS for child in islice(first, 1))
