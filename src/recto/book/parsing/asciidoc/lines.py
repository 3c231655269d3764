"""The lines of an AsciiDoc page: what they begin, and what the lines above a block say about it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from recto.book.parsing.asciidoc.text import attribute_list, number_of

HEADING = re.compile(r"(?P<marks>={1,6}|#{1,6})[ \t]+(?P<title>\S.*)")
UNDERLINE = re.compile(r"={3,}|-{3,}|~{3,}|\^{3,}|\+{3,}")
DELIMITER = re.compile(r"(?:-{4,}|\.{4,}|\+{4,}|={4,}|\*{4,}|_{4,}|/{4,}|--|`{3,}[^`\s]*|[|,:!]={3,})[ \t]*")
VERBATIM = ("----", "....", "++++", "////", "```")
ATTRIBUTES = re.compile(
    r"\[(?:\[(?P<anchor>[^\W\d][\w:.-]*(?:,[^\n]*)?|)\]|(?P<content>[\w.#%,\"'{][^\n]*|))\][ \t]*"
)
MARKER = re.compile(
    r"[ \t]*(?:(?P<bullet>-|\*+|•)|(?P<number>\.+|\d+\.|[A-Za-z]\.|[ivx]+\)|[IVX]+\))"
    r"|(?P<callout><(?:\d+|\.)>))"
    r"[ \t]+(?P<text>\S.*)"
)
TERM = re.compile(r"[ \t]*+(?!//)(?P<term>\S.*?)(?P<mark>:{2,4}|;;)(?:[ \t]++(?P<text>.*)|\Z)")
MACRO = re.compile(r"(?P<name>[a-zA-Z][\w-]*)::(?>(?P<target>\S*)\[)(?P<content>.*)\][ \t]*")
ADMONITION = re.compile(r"(NOTE|TIP|IMPORTANT|WARNING|CAUTION):[ \t]+")
ADMONITIONS = ("NOTE", "TIP", "IMPORTANT", "WARNING", "CAUTION")
CODE_STYLES = ("source", "listing", "literal", "screen")
MATH = ("stem", "latexmath", "asciimath")
BREAKS = ("'''", "---", "***", "- - -", "* * *", "<<<")


@dataclass(slots=True)
class Lines:
    """Lines that are read one by one; `first` is the number of the first one in the page."""

    lines: list[str]
    first: int = 1
    at: int = 0

    @property
    def line(self) -> str | None:
        """The current line; None after the last one."""
        return self.lines[self.at] if self.at < len(self.lines) else None

    def next(self) -> str:
        """Return the current line, and go to the next one."""
        self.at += 1
        return self.lines[self.at - 1]

    def block(self, closing: str) -> Lines:
        """Return the lines up to a closing delimiter, else all, and go behind it."""
        start = self.at
        while self.at < len(self.lines) and self.lines[self.at].rstrip() != closing:
            self.at += 1
        inner = Lines(self.lines[start : self.at], self.first + start)
        self.at += 1
        return inner


@dataclass(slots=True)
class Meta:
    """The lines above a block: its title, its anchors and its attributes, the first of which is its style."""

    title: str = ""
    ids: list[str] = field(default_factory=list)
    values: list[str] = field(default_factory=list)
    named: dict[str, str] = field(default_factory=dict)

    @property
    def style(self) -> str:
        """The first attribute, such as `source`; "" if there is none."""
        return self.values[0] if self.values else ""

    @property
    def options(self) -> list[str]:
        """The options, such as `header`."""
        return re.split(r"[,.]", self.named.get("options", self.named.get("opts", "")))

    @property
    def start(self) -> int:
        """The number of the first item of a list."""
        return number_of(self.named.get("start", "")) or 1

    def add(self, content: str) -> None:
        """Add the content of a line of attributes, such as `source%linenums#id,python`."""
        for key, value in attribute_list(content).items():
            if not key.isdigit():
                self.named[key] = value
            elif key != "0":
                self.values += [""] * (int(key) - len(self.values)) + [value]
            else:
                style, *short = re.split(r"([.#%])", value)
                self.values[:1] = [style or self.style]
                for mark, text in zip(short[::2], short[1::2], strict=True):
                    if mark == "#" and " " not in text:
                        self.ids.append(text)
                    elif mark == "%":
                        self.named["options"] = f"{self.named.get('options', '')},{text}"
        if name := self.named.pop("id", ""):
            self.ids.append(name)


def block_kind(line: str, meta: Meta, macro: re.Match[str] | None) -> str:
    """Return the kind of a block whose titles have a label; "" for the others."""
    if macro:
        return "figure" if macro["name"] == "image" else ""
    if line[1:4] == "===" and line[0] in "|,:!":
        return "table"
    if line.startswith("====") and meta.style not in ADMONITIONS and "collapsible" not in meta.options:
        return "example"
    return "listing" if line[:2] in ("--", "..", "``") or meta.style in CODE_STYLES else ""


def list_key(line: str) -> str:
    """Return what the items of a list have in common with one at this line; "" if it is not an item."""
    if found := MARKER.fullmatch(line):
        if found["bullet"]:
            return found["bullet"]
        mark = found["number"] or "<"
        return (
            mark
            if mark[0] == "."
            else "1"
            if mark[0].isdigit()
            else mark[-1] + ("a" if mark.islower() else "A")
        )
    if "::" in line or ";;" in line:
        found = TERM.match(line)
        return found["mark"] if found else ""
    return ""
