"""Parse AsciiDoc; included files and conditionals are resolved by the source of the book.

Markup that Asciidoctor does not know stays text, as it does there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from recto._util.markdown import MOST_LINES
from recto.book.parsing.asciidoc.lines import (
    ADMONITION,
    ADMONITIONS,
    ATTRIBUTES,
    BREAKS,
    CODE_STYLES,
    DELIMITER,
    HEADING,
    MACRO,
    MARKER,
    MATH,
    TERM,
    UNDERLINE,
    Lines,
    Meta,
    block_kind,
    list_key,
)
from recto.book.parsing.asciidoc.tables import table_rows
from recto.book.parsing.asciidoc.text import (
    ENTRY,
    Attributes,
    Inline,
    References,
    title_id,
    without_tags,
)
from recto.book.parsing.rendered import TextBlock, fenced, indented, joined, sections, table
from recto.types.book import Document, Page

_DEEPEST = 40  # blocks in blocks; deeper ones are text
TAKEN = "recto-ids"
"""The attribute with the ids that the pages before this one have, if all are published as one page."""
_MARKS = str.maketrans(dict.fromkeys("\0\x02\x03\x04\x05\x0e\x0f\x10", "\ufffd"))


def read_asciidoc(page: Page) -> Document:
    """Parse a page; its title is that of the document, else its first heading."""
    return _Reader().document(_lines_of(page.text), page.title)


def read_ids(text: str) -> tuple[dict[str, str], dict[str, str], bool]:
    """Return the ids of a page with the texts that refer to them, its counters, and whether it has text."""
    reader = _Reader()
    document = reader.document(_lines_of(text), "")
    titles = reader.references.titles
    ids = {name: title for name, title in titles.items() if " " not in name and title}
    values = reader.attributes.values.items()
    counters = {name: value for name, value in values if name.endswith("-number") and value.isdigit()}
    return ids, counters, bool(document.sections)


def _lines_of(text: str) -> list[str]:
    """Return the lines of a text without trailing spaces; raise ValueError if there are too many."""
    text = text.removeprefix("\ufeff").translate(_MARKS).replace("\r\n", "\n").replace("\r", "\n")
    lines = [line.rstrip() for line in text.expandtabs(4).split("\n")]
    if len(lines) > MOST_LINES:
        raise ValueError(f"it has more than {MOST_LINES} lines (split it into several pages)")
    return lines


class _Reader:
    """Reads one page."""

    def __init__(self) -> None:
        self.attributes = Attributes({})
        self.inline = Inline(self.attributes)
        self.references = References(self.attributes)
        self._depth = 0

    def document(self, lines: list[str], title: str) -> Document:
        """Return the sections of a page."""
        cursor = Lines(lines)
        blocks = self._blocks(cursor, top=True)
        first = next((block for block in blocks if block.kind == "heading"), None)
        if first is not None:
            shift = first.level - 1
            for block in blocks:
                block.level = max(block.level - shift, 1 + (block is not first))
            title = first.lines[0]
        for block in blocks:
            block.lines = [line for text in block.lines for line in self.references.linked(text).split("\n")]
        found = sections(blocks, title)
        if first is not None and first.id:
            found = [replace(part, anchor=part.anchor or first.id) for part in found]
        return Document(title, tuple(found))

    def _blocks(self, cursor: Lines, *, top: bool = False) -> list[TextBlock]:
        """Return all blocks from here on; sections and the header are only at the `top`."""
        blocks: list[TextBlock] = []
        if self._depth >= _DEEPEST:
            lines = [line for line in cursor.lines[cursor.at :] if line]
            return [TextBlock("paragraph", lines)] if lines else []
        self._depth += 1
        while (meta := self._meta(cursor)) is not None:
            start = cursor.at
            new = self._heading(cursor, meta, blocks) if top else []
            new = new or self._block(cursor, meta)
            last = start + 1
            for number in range(start, min(cursor.at, len(cursor.lines))):
                last = number + 1 if cursor.lines[number] else last
            for block in new:
                block.source = (cursor.first + start, cursor.first + last - 1)
            self._name(meta, new)
            blocks += new
        self._depth -= 1
        return blocks

    def _take_anchors(self) -> list[str]:
        found, self.inline.anchors = self.inline.anchors, []
        return found

    def _meta(self, cursor: Lines) -> Meta | None:
        """Read blank lines, comments, attributes and the lines above a block; None at the end."""
        meta = Meta()
        while (line := cursor.line) is not None:
            if not line:
                cursor.at += 1
            elif line.startswith("////") and not line.strip("/"):
                cursor.at += 1
                cursor.block(line)
            elif line.startswith("//") and not line.startswith("///"):
                cursor.at += 1
            elif line[0] == ":" and (entry := ENTRY.fullmatch(line)):
                self._enter(cursor, entry)
            elif line[0] == "[" and (found := ATTRIBUTES.fullmatch(line)):
                cursor.at += 1
                if found["anchor"]:
                    name, _, label = found["anchor"].partition(",")
                    meta.ids.append(name)
                    self.references.add(name, label.strip())
                else:
                    meta.add(self.attributes.resolve(found["content"] or ""))
            elif re.match(r"\.[^\s.]", line):
                meta.title = cursor.next()[1:]
            else:
                return meta
        return None

    def _enter(self, cursor: Lines, entry: re.Match[str]) -> None:
        """Set an attribute; a backslash continues its value on the next line."""
        cursor.at += 1
        parts = [entry["value"] or ""]
        while parts[-1].endswith(" \\") and cursor.line:
            parts[-1] = parts[-1][:-2].removesuffix(" +")
            parts.append(cursor.next().strip())
        whole = (
            ENTRY.fullmatch(f"{entry[0][: entry.end('off') + 1]} {' '.join(parts)}")
            if len(parts) > 1
            else entry
        )
        self.attributes.enter(whole or entry)
        if entry["name"] == TAKEN:
            self.references.titles |= dict.fromkeys(parts[0].split(), "")

    def _heading(self, cursor: Lines, meta: Meta, before: Sequence[TextBlock]) -> list[TextBlock]:
        """Read a heading; the first one of a page is followed by its authors."""
        line = cursor.line or ""
        below = cursor.lines[cursor.at + 1] if cursor.at + 1 < len(cursor.lines) else ""
        if found := HEADING.fullmatch(line):
            level, title = len(found["marks"]), found["title"]
            title = re.sub(rf" {re.escape(found['marks'])}$", "", title)
        elif UNDERLINE.fullmatch(below) and abs(len(line) - len(below)) < 2 and re.search(r"\w", line):
            level, title = "=-~^+".index(below[0]) + 1, line
            if line[0] == "." or DELIMITER.fullmatch(line):
                return []
            cursor.at += 1
        else:
            return []
        cursor.at += 1
        level += self.attributes.offset
        is_document = level == 1 and not before and not self.attributes.offset
        if is_document:
            others = 0  # the authors and the revision, whatever they look like; attributes
            while cursor.line and others < 2:
                if entry := ENTRY.fullmatch(cursor.line):
                    self._enter(cursor, entry)
                else:
                    others += not cursor.next().startswith("//")
        return [self._titled(title, level, meta, is_document=is_document)]

    def _titled(self, title: str, level: int, meta: Meta, *, is_document: bool) -> TextBlock:
        """Return the block of a heading with its id."""
        text = self.inline.words(title)
        inner = self._take_anchors()
        if is_document or "sectids" not in self.attributes.values:
            name = next(iter((*meta.ids, *inner)), "")
        else:
            name = next(iter((*meta.ids[-1:], *inner)), "") or self.references.unique(
                title_id(text, self.attributes.values)
            )
        if meta.style == "appendix" and (label := self.references.label("appendix")):
            text = f"{label}: {text}"
        for other in dict.fromkeys(filter(None, (*meta.ids, *inner, name))):
            self.references.add(other, meta.named.get("reftext", text))
        block = TextBlock("heading", [text or name], level=max(1, min(level, 6)), id=name)
        block.anchors = [(0, other) for other in dict.fromkeys((name, *inner)) if other]
        return replace(block, id="", anchors=[]) if is_document else block  # a template writes it

    def _block(self, cursor: Lines, meta: Meta) -> list[TextBlock]:
        """Read one block with its title."""
        line = cursor.line or ""
        macro = MACRO.fullmatch(line)
        if meta.style in ("discrete", "float") and (found := HEADING.fullmatch(line)):
            cursor.at += 1
            block = self._titled(found["title"], len(found["marks"]), meta, is_document=False)
            return [replace(block, kind="paragraph", lines=[f"**{block.lines[0]}**"])]
        title = self._title(meta, block_kind(line, meta, macro))
        if DELIMITER.fullmatch(line):
            return [*title, *self._delimited(cursor, meta)]
        if line in BREAKS:
            cursor.at += 1
            return []
        if macro:
            cursor.at += 1
            return [*title, *self._macro(macro, bool(title))]
        if (key := list_key(line)) and (meta.style not in CODE_STYLES):
            return [*title, self._list(cursor, key, (), meta.start)]
        return [*title, *self._paragraph(cursor, meta)]

    def _title(self, meta: Meta, kind: str) -> list[TextBlock]:
        """Return the title of a block with its label."""
        if not meta.title:
            return []
        label = (
            meta.named["caption"] if "caption" in meta.named else self.references.label(kind) if kind else ""
        )
        label = f"{label}. " if label and "caption" not in meta.named else label
        return [TextBlock("paragraph", [f"**{label}{self.inline.words(meta.title)}**"])]

    def _macro(self, macro: re.Match[str], titled: bool) -> list[TextBlock]:
        name, content = macro["name"], macro["content"]
        if name in ("video", "audio", "toc"):
            return []
        if name == "image":
            meta = Meta()
            meta.add(self.attributes.resolve(content))
            text = "" if titled else meta.named.get("alt", meta.style)
        else:
            text = self.inline.text(macro[0])
        return [TextBlock("paragraph", [text])] if text.strip() else []

    def _delimited(self, cursor: Lines, meta: Meta) -> list[TextBlock]:
        """Read a block between two delimiters."""
        opening = cursor.next()
        marks = opening[: len(opening) - len(opening.lstrip("`"))]
        inner, mark = cursor.block(marks or opening), opening[0]
        if meta.style == "comment":
            return []
        if opening[1:4] == "===" and mark in "|,:!":
            return self._table(inner, meta, mark)
        if mark == "+":
            return self._passed(inner, meta)
        if mark in "-.`" and (opening != "--" or meta.style in CODE_STYLES):
            return self._code(inner.lines, meta, opening.lstrip("`") if marks else "")
        if meta.style == "verse":
            blocks = [TextBlock("paragraph", self.inline.text("\n".join(inner.lines)).split("\n"))]
        else:
            blocks = self._blocks(inner)
        if meta.style in ADMONITIONS:
            blocks.insert(0, TextBlock("paragraph", [f"**{meta.style.capitalize()}**"]))
        if mark == "_" or meta.style in ("quote", "verse"):
            blocks = self._quoted(blocks, meta)
        return [joined("group", blocks)] if blocks and (meta.style in ADMONITIONS or mark == "*") else blocks

    def _passed(self, inner: Lines, meta: Meta) -> list[TextBlock]:
        """Read HTML or a formula."""
        if meta.style in MATH:
            return [TextBlock("math", ["$$", *inner.lines, "$$"])]
        text = without_tags("\n".join(inner.lines)).strip()
        return [TextBlock("paragraph", text.split("\n"))] if text else []

    def _quoted(self, blocks: list[TextBlock], meta: Meta) -> list[TextBlock]:
        named = (meta.named.get("attribution", ""), meta.named.get("citetitle", ""))
        source = [self.inline.text(text) for text in (*meta.values[1:3], *named) if text]
        if source:
            blocks.append(TextBlock("paragraph", [f"— {', '.join(source)}"]))
        return [indented(joined("group", blocks), "> ", "> ")] if blocks else []

    def _code(self, lines: Sequence[str], meta: Meta, language: str = "") -> list[TextBlock]:
        text = "\n".join(lines).strip("\n")
        subs = meta.named.get("subs", "")
        if re.search(r"(?<!-)\b(?:attributes|normal|[aqm])\b", subs):
            text = self.attributes.resolve(text)
        if re.search(r"\+?(?:quotes|macros|normal)\b", subs):
            text = self.inline.text(text).replace("**", "")
        count = iter(range(1, len(lines) * 80))
        text = re.sub(r"<\.>", lambda _: f"<{next(count, 0)}>", text)
        if meta.style != "source" and not language:
            named = ""
        else:
            named = language or (meta.values[1] if len(meta.values) > 1 else "")
            named = named or meta.named.get("language", self.attributes.values.get("source-language", ""))
        return [TextBlock("code", fenced(text, named.split(",")[0]))] if text.strip() else []

    def _table(self, inner: Lines, meta: Meta, mark: str) -> list[TextBlock]:
        """Read a table; a cell with the style `a` has blocks."""
        mark = {"csv": ",", "dsv": ":", "tsv": "\t"}.get(meta.named.get("format", ""), mark)
        separator = meta.named.get("separator", mark)
        lines = [line for line in inner.lines if not line.startswith("//") or line.startswith("///")]
        rows = []
        for cells in table_rows(lines, meta.named.get("cols", ""), separator):
            row = []
            for text, style in cells:
                if style == "a":
                    content = " ".join(
                        block.as_cell() for block in self._blocks(Lines(text.split("\n"), inner.first))
                    )
                else:
                    content = " ".join(self.inline.text(text).split())
                row.append(self.references.linked(content).replace("|", "\\|"))
            rows.append(row)
        return [TextBlock("table", table(rows))] if rows else []

    def _list(self, cursor: Lines, key: str, above: tuple[str, ...], number: int = 1) -> TextBlock:
        """Read a list; `above` has the marks of the lists around it."""
        items = []
        self._depth += 1
        while (line := cursor.line) is not None and list_key(line) == key:
            marked = MARKER.fullmatch(line)
            if marked:
                cursor.at += 1
                mark = "- " if marked["bullet"] else f"{number}. "
                text = re.sub(r"^\[[ x*]\] ", "", marked["text"])
                items.append(indented(self._item(cursor, text, (*above, key)), mark))
            else:
                items.append(self._described(cursor, key, (*above, key)))
            number += 1
            self._to_item(cursor, key)
        self._depth -= 1
        return joined("list", items)

    def _to_item(self, cursor: Lines, key: str) -> None:
        """Go over blank lines and comments to the next item of a list, if there is one."""
        at = cursor.at
        while at < len(cursor.lines) and (not cursor.lines[at] or re.match(r"//(?!/)", cursor.lines[at])):
            at += 1
        if at < len(cursor.lines) and list_key(cursor.lines[at]) == key:
            cursor.at = at

    def _described(self, cursor: Lines, key: str, keys: tuple[str, ...]) -> TextBlock:
        """Read the terms of a description list and their description."""
        terms, text = [], ""
        while not text and list_key(cursor.line or "") == key:
            found = TERM.match(cursor.next())
            terms.append(self.inline.text(found["term"] if found else ""))
            text = (found and found["text"]) or ""
            self._to_item(cursor, key) if not text else None
        item = TextBlock("item", [", ".join(terms)])
        item.anchors = [(0, name) for name in self._take_anchors()]
        at = cursor.at
        while not text and at < len(cursor.lines) and not cursor.lines[at]:
            at += 1
        line = cursor.lines[at] if at < len(cursor.lines) else ""
        if not text and line and not self._ends_text(line) and not HEADING.fullmatch(line):
            cursor.at, text = at + 1, line.strip()
        body = self._item(cursor, text, keys)
        if any(body.lines):  # code that follows a colon would not be read as code
            item.append(body if body.lines[0].startswith("```") else indented(body, ": "))
        return item

    def _item(self, cursor: Lines, text: str, keys: tuple[str, ...]) -> TextBlock:
        """Read the text of an item, and the blocks and lists that belong to it."""
        lines = [text] if text else []
        while text and (line := cursor.line) and not self._ends_text(line):
            cursor.at += 1
            if not line.startswith("//"):
                lines.append(line.strip())
        admonition = ADMONITION.match(lines[0]) if lines else None
        blocks = [TextBlock("paragraph", self.inline.text("\n".join(lines)).split("\n"))] if lines else []
        if admonition:
            blocks[0].lines[0] = f"**{admonition[1].capitalize()}** {blocks[0].lines[0][admonition.end() :]}"
        names = [(0, name) for name in self._take_anchors()]
        while self._depth < _DEEPEST and (more := self._attached(cursor, keys)):
            blocks += more
        item = joined("item", blocks)
        item.anchors = [*names, *item.anchors]
        return item

    @staticmethod
    def _ends_text(line: str) -> bool:
        return bool(line == "+" or list_key(line) or DELIMITER.fullmatch(line) or ATTRIBUTES.fullmatch(line))

    def _attached(self, cursor: Lines, keys: tuple[str, ...]) -> list[TextBlock]:
        """Read a block that belongs to an item: after a `+`, a list in the list, or indented text."""
        at = cursor.at
        while at < len(cursor.lines) and (not cursor.lines[at] or re.match(r"//(?!/)", cursor.lines[at])):
            at += 1
        line, blank = cursor.lines[at] if at < len(cursor.lines) else "", at - cursor.at
        if line == "+":
            if blank and len(keys) > 1:  # each blank line stands for a list that ends here
                cursor.at += 1
                return []
            cursor.at = at + 1
            return self._inner(cursor, keys) or [TextBlock("group", [])]
        before = at
        while at < len(cursor.lines) and ATTRIBUTES.fullmatch(cursor.lines[at]):
            at += 1
        new = list_key(cursor.lines[at]) if at < len(cursor.lines) else ""
        if new and new not in keys:
            cursor.at = before
            return self._inner(cursor, keys)
        if line.startswith(" ") and blank and not new:
            cursor.at = before
            return self._paragraph(cursor, Meta())
        return []

    def _inner(self, cursor: Lines, keys: tuple[str, ...]) -> list[TextBlock]:
        """Read one block of an item."""
        meta = self._meta(cursor)
        if meta is None or cursor.line == "+":
            return []
        key = list_key(cursor.line or "")
        blocks = self._block(cursor, meta) if not key else [self._list(cursor, key, keys, meta.start)]
        self._name(meta, blocks)
        return [joined("group", blocks)] if len(blocks) > 1 else blocks

    def _name(self, meta: Meta, blocks: list[TextBlock]) -> None:
        """Put the anchors of a block at its first line; the last id above a block is its own."""
        ids = meta.ids[-1:] if blocks and blocks[0].kind != "heading" else []  # a heading has its id
        names = dict.fromkeys(filter(None, (*ids, *self._take_anchors())))
        for name in names:
            self.references.add(name, self.inline.words(meta.title) or f"[{name}]")
        if blocks:
            others = [anchor for anchor in blocks[0].anchors if anchor[1] not in names]
            blocks[0].anchors = [*((0, name) for name in names), *others]

    def _paragraph(self, cursor: Lines, meta: Meta) -> list[TextBlock]:
        """Read lines up to a blank one; their first words or their style say what they are."""
        lines = [cursor.next()]
        while (line := cursor.line) and not DELIMITER.fullmatch(line) and not ATTRIBUTES.fullmatch(line):
            lines.append(cursor.next())
            if line == "+" and len(lines) > 1:  # a continuation: the block belongs to a list
                lines.pop()
                cursor.at -= 1
                break
        style = meta.style
        if style in CODE_STYLES or (
            lines[0].startswith(" ") and style not in (*ADMONITIONS, "normal", "quote")
        ):
            start = min((len(line) - len(line.lstrip()) for line in lines if line), default=0)
            return self._code([line[start:] for line in lines], meta)
        if style in MATH:
            return [TextBlock("math", ["$$", *lines, "$$"])]
        if style == "comment":
            return []
        lines = [line.strip() for line in lines if not line.startswith("//")]
        if found := ADMONITION.match(lines[0] if lines else ""):
            style, lines[0] = found[1], lines[0][found.end() :]
        quoted = bool(lines) and all(line.startswith(">") for line in lines)
        text = "\n".join(line.removeprefix(">").strip() if quoted else line for line in lines)
        blocks = [TextBlock("paragraph", self.inline.text(text).split("\n"))] if text.strip() else []
        if style in ADMONITIONS:
            return [joined("group", [TextBlock("paragraph", [f"**{style.capitalize()}**"]), *blocks])]
        return self._quoted(blocks, meta) if quoted or style in ("quote", "verse") else blocks
