"""Parse a Jupyter notebook: its Markdown, its code in fences, and the start of what the code printed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from recto._util.text import encodable
from recto.book.parsing.extended_markdown import MYST, plain_markdown
from recto.book.parsing.markdown import parse
from recto.book.parsing.rendered import by_anchor, fenced
from recto.types.book import Block, Document, Page, Section

_MOST_OUTPUT_LINES, _MOST_OUTPUT = 20, 2_000  # lines and characters of the output of one cell
_MOST_LINES = 100_000
_TERMINAL_CODE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_TEXT_OUTPUTS = ("text/markdown", "text/latex", "text/plain")
_OBJECT = re.compile(r"<[\w.]+(?:[: ][^<>]*)? at 0x[0-9a-f]+>|<Figure size [^<>]*>")
_MYST = re.compile(
    r"^(?:`{3,}|:{3,})\{[A-Za-z]|\{[A-Za-z][\w:-]*\}`|^\([^()\s]+\)=$|\$\$[ \t]{0,9}\([^()\n]{1,200}\)$",
    re.MULTILINE,
)


def read_notebook(page: Page) -> Document:
    """Parse a notebook; a cell in a section without a heading has the anchor `cell-3`."""
    try:
        notebook = json.loads(page.text)
    except RecursionError as error:
        raise ValueError("its values are nested too deeply") from error
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list):
        raise ValueError("it has no cells: a notebook of version 4 is needed (convert it with nbconvert)")
    writer = _Writer(page.text, _language(notebook))
    for number, cell in enumerate(cells, 1):
        if isinstance(cell, dict):
            writer.add(cell, number)
        if len(writer.lines) > _MOST_LINES:
            raise ValueError(f"it has more than {_MOST_LINES} lines (split it into several notebooks)")
    markdown, labels = "\n".join(writer.lines), list[tuple[int, str]]()
    if _MYST.search(markdown):
        markdown, labels = plain_markdown(markdown, MYST)
    document = parse(markdown, title=page.title, anchors=page.anchors, labels=labels)
    sections = document.sections
    if not any(section.anchor for section in sections):
        sections = tuple(part for section in sections for part in by_anchor(section, writer.cells))
    return replace(document, sections=tuple(_in_file(section, writer.sources) for section in sections))


def _language(notebook: dict[str, Any]) -> str:
    """Return the language of the kernel."""
    metadata = notebook.get("metadata")
    for key, name in (("language_info", "name"), ("kernelspec", "language")):
        stated = metadata.get(key) if isinstance(metadata, dict) else None
        language = stated.get(name) if isinstance(stated, dict) else None
        if isinstance(language, str) and re.fullmatch(r"[\w+#.-]{1,30}", language):
            return language.lower()
    return "python"


def _text(value: object) -> str:
    """Return a text, which may be stated as a list of lines."""
    lines = value if isinstance(value, list) else [value]
    text = "".join(line for line in lines if isinstance(line, str))
    return encodable(text.replace("\r\n", "\n").replace("\r", "\n"))


@dataclass(slots=True)
class _Writer:
    """Writes cells as Markdown, and finds the line of the file that holds each line."""

    file: str
    language: str
    lines: list[str] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)
    """The line of the file for each of `lines`."""
    cells: list[tuple[int, str]] = field(default_factory=list)
    """The line where each cell begins, and its anchor."""
    position: int = 0
    line: int = 1
    is_exact: bool = True

    def add(self, cell: dict[str, Any], number: int) -> None:
        """Write one cell."""
        kind, source, removed = cell.get("cell_type"), _text(cell.get("source")).strip("\n"), _removed(cell)
        if "cell" in removed:
            return
        self.cells.append((len(self.lines) + 1, f"cell-{number}"))
        if kind == "markdown":
            self._write(source.split("\n"))
        elif kind == "code" and source.strip() and "input" not in removed:
            language, first = self.language, source.partition("\n")[0]
            if magic := re.fullmatch(r"%%(bash|sh|html|latex|javascript|js|R|sql|writefile)\b.*", first):
                language = magic[1].lower() if magic[1] != "writefile" else ""
            self._write(fenced(source, language), inner=True)
        if kind == "code" and "output" not in removed:
            for text in _outputs(cell.get("outputs")):
                self._write(fenced(text, "text"), known=False)

    def _write(self, lines: list[str], *, inner: bool = False, known: bool = True) -> None:
        for index, line in enumerate(lines):
            if known and not (inner and index == len(lines) - 1):
                self._find(lines[1] if inner and index == 0 else line)  # a fence is where its code is
            self.lines.append(line)
            self.sources.append(self.line)
        self.lines.append("")
        self.sources.append(self.line)

    def _find(self, line: str) -> None:
        """Move to the line of the file that holds a line; stop searching at the first that is not there."""
        if not line.strip() or not self.is_exact:
            return
        for ascii_only in (self.file.isascii(), True):
            start = self.file.find(json.dumps(line, ensure_ascii=ascii_only)[1:-1], self.position)
            if start >= 0:
                self.line += self.file.count("\n", self.position, start)
                self.position = start
                return
        self.is_exact = False


def _removed(cell: dict[str, Any]) -> set[str]:
    """Return the parts of a cell that its tags remove from the page, such as `remove-input`."""
    metadata = cell.get("metadata")
    tags = metadata.get("tags") if isinstance(metadata, dict) else None
    return (
        set(re.findall(r"\bremove[-_](cell|input|output)\b", str(tags))) if isinstance(tags, list) else set()
    )


def _outputs(outputs: object) -> Iterator[str]:
    """Yield the text that a cell printed or returned, shortened; not pictures, widgets and tracebacks."""
    for output in outputs if isinstance(outputs, list) else ():
        if not isinstance(output, dict) or output.get("name") == "stderr":
            continue
        data = output.get("data")
        values = (
            [output.get("text"), *map(data.get, _TEXT_OUTPUTS)]
            if isinstance(data, dict)
            else [output.get("text")]
        )
        text = next(filter(None, map(_text, values)), "")
        text = _OBJECT.sub("", _TERMINAL_CODE.sub("", text[: _MOST_OUTPUT * 2])).strip("\n")
        lines = [line.rstrip() for line in text[:_MOST_OUTPUT].split("\n")]
        if len(lines) > _MOST_OUTPUT_LINES or len(text) > _MOST_OUTPUT:
            lines = [*lines[:_MOST_OUTPUT_LINES], "…"]
        if any(line.strip() for line in lines):
            yield "\n".join(lines)


def _in_file(section: Section, sources: list[int]) -> Section:
    """Return a section with the line numbers of the file instead of the written Markdown."""

    def at(line: int) -> int:
        return sources[min(line, len(sources)) - 1]

    def moved(block: Block) -> Block:
        lines = tuple(map(at, block.lines or range(block.first, block.last + 1)))
        cuts = tuple(tuple(map(at, level)) for level in block.cuts)
        return replace(block, first=at(block.first), last=at(block.last), cuts=cuts, lines=lines)

    blocks = tuple(map(moved, section.blocks))
    anchors = tuple((at(line), name) for line, name in section.anchors)
    return replace(section, line=at(section.line), blocks=blocks, anchors=anchors)
