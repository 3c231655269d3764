"""Blocks that a parser has rendered as Markdown-like text, and the sections that they form."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter

from recto.types.book import Block, Section


@dataclass(slots=True)
class TextBlock:
    """A rendered block; anchors and nested blocks count from its first line; headings have a level and id.

    `source` is its first and last line in the file; (0, 0) if only the lines of the rendered text count.
    """

    kind: str
    lines: list[str]
    children: list[int] = field(default_factory=list)
    anchors: list[tuple[int, str]] = field(default_factory=list)
    level: int = 0
    id: str = ""
    source: tuple[int, int] = (0, 0)

    def at(self, line: int) -> Block:
        """Return the block with its lines counted from `line`."""
        starts = tuple(line + start for start in self.children)
        text, cuts, last = "\n".join(self.lines), (starts,) if starts else (), self.source[1]
        if not last:
            return Block(self.kind, text, line, line + len(self.lines) - 1, cuts)
        numbers = tuple(min(line + index, last) for index in range(len(self.lines)))
        return Block(self.kind, text, line, last, cuts, (*numbers[:-1], last) if len(numbers) > 1 else ())

    def append(self, block: TextBlock) -> None:
        """Append the lines and anchors of another block."""
        self.anchors += [(len(self.lines) + offset, name) for offset, name in block.anchors]
        self.lines += block.lines

    def as_cell(self) -> str:
        """Return the text on one line, for a table cell."""
        if self.kind == "code":
            code = " ".join(" ".join(self.lines[1:-1]).split())
            return code_span(code)
        return " ".join(line.strip() for line in self.lines if line.strip())


def joined(kind: str, blocks: Iterable[TextBlock]) -> TextBlock:
    """Join blocks with blank lines, except before a list."""
    whole = TextBlock(kind, [])
    for block in blocks:
        if block.kind != "list" and kind != "list" and whole.lines:
            whole.lines.append("")
        whole.children.append(len(whole.lines))
        whole.append(block)
    return whole


def indented(block: TextBlock, mark: str, others: str = "") -> TextBlock:
    """Put a mark before the first line of a block, and spaces or other marks before the others."""
    indent = others or " " * len(mark)
    first, rest = block.lines[:1], block.lines[1:]
    block.lines = [mark + line for line in first] + [f"{indent}{line}".rstrip() for line in rest]
    return block


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table; the first row is its header."""
    width = max(map(len, rows))
    first, *rest = (f"| {' | '.join([*row, *[''] * (width - len(row))])} |" for row in rows)
    return [first, f"|{' --- |' * width}", *rest]


def fenced(text: str, language: str = "") -> list[str]:
    """Return the lines of a code fence."""
    marks = ticks(text, 3)
    return [f"{marks}{language}", *text.split("\n"), marks]


def code_span(text: str) -> str:
    """Return a text as inline code."""
    marks, pad = ticks(text, 1), " " * ("`" in (text[:1], text[-1:]))
    return f"{marks}{pad}{text}{pad}{marks}"


def ticks(text: str, shortest: int) -> str:
    """Return a run of backticks that is longer than any in the text."""
    return "`" * max(shortest, *(len(run) + 1 for run in re.findall("`+", text)), 1)


def sections(rendered: list[TextBlock], title: str) -> list[Section]:
    """Group blocks by heading and number their lines, with a blank line after each block."""
    sections: list[Section] = []
    path: list[tuple[int, str]] = []
    opened = Section((title,), 1, "", 1, ())
    blocks: list[Block] = []
    anchors: list[tuple[int, str]] = []
    line = 1
    for block in rendered:
        line = block.source[0] or line
        if block.kind == "heading":
            if blocks:
                sections.append(replace(opened, blocks=tuple(blocks), anchors=tuple(dict.fromkeys(anchors))))
                blocks, anchors = [], []  # a heading without text passes its anchors on
            path = [(upper, text) for upper, text in path if upper < block.level]
            if block.level > 1 or block.lines[0] != title:
                path.append((block.level, block.lines[0]))
            headings = (title, *(text for _, text in path))
            opened = Section(headings, block.level, block.id if path else "", line, ())
        else:
            blocks.append(block.at(line))
        anchors += [(line + offset, name) for offset, name in block.anchors]
        line += len(block.lines) + 1
    if not blocks and sections and anchors:  # after the last text
        opened = sections.pop()
        blocks, anchors = list(opened.blocks), [*opened.anchors, *anchors]
    if blocks:
        sections.append(replace(opened, blocks=tuple(blocks), anchors=tuple(dict.fromkeys(anchors))))
    return sections


def by_anchor(section: Section, anchors: Sequence[tuple[int, str]]) -> Iterator[Section]:
    """Yield a section for each of the anchors that has blocks, so that its anchor opens the right place."""
    by_name: dict[str, list[Block]] = {}
    for block in section.blocks:
        index = bisect_right(anchors, block.first, key=itemgetter(0)) - 1
        by_name.setdefault(anchors[index][1] if index >= 0 else section.anchor, []).append(block)
    for name, blocks in by_name.items():
        own_anchors = ((blocks[0].first, name),) if name else ()
        yield replace(section, anchor=name, blocks=tuple(blocks), anchors=own_anchors)


def list_table(rows: list[str]) -> list[str]:
    """Return the rows of a list table of MyST as a Markdown table with the same number of lines."""
    cells: list[list[str]] = []
    for line in rows:
        row = re.match(r"[ \t]*[*-][ \t]+-(?:[ \t]+|$)(.*)", line)
        cell = re.match(r"[ \t]+-(?:[ \t]+|$)(.*)", line)
        if row:
            cells.append([row[1].strip()])
        elif cell and cells:
            cells[-1].append(cell[1].strip())
        elif line.strip() and cells:
            cells[-1][-1] = f"{cells[-1][-1]} {line.strip()}".strip()
    if not cells:
        return rows
    lines = table([[cell.replace("|", "\\|") for cell in row] for row in cells])
    return [*[""] * (len(rows) - len(lines)), *lines] if len(lines) <= len(rows) else rows
