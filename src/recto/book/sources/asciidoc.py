"""AsciiDoc: what pages include, and books of one file that includes chapters."""

from __future__ import annotations

import re
import textwrap
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from operator import eq, ge, gt, le, lt, ne
from pathlib import Path
from typing import Any

from recto._util.markdown import MOST_LINES
from recto.book.parsing import ASCIIDOC
from recto.book.parsing.asciidoc import TAKEN, read_ids
from recto.book.parsing.asciidoc.lines import HEADING, VERBATIM
from recto.book.parsing.asciidoc.text import (
    ENTRY,
    INTRINSIC,
    LONGEST_TITLE,
    Attributes,
    Inline,
    attribute_list,
    number_of,
)
from recto.book.sources.directory import is_file
from recto.book.sources.includes import Directive, Includes, select_lines
from recto.book.sources.options import is_inside, read_config, read_start, resolved_path
from recto.book.sources.site import Site, html_address

_LARGEST = ASCIIDOC.largest
_MOST_TITLES = 2_000  # references without a text on a page; each is looked up
_INCLUDE = re.compile(r"\\?include::(?P<target>[^\[\]\s][^\[\]]{0,1000})\[(?P<content>[^\n]*)\]")
_CONDITIONAL = re.compile(
    r"\\?(?P<kind>ifdef|ifndef|ifeval|endif)::(?P<names>[^\[\]\s]{0,1000})\[(?P<content>.*)\]"
)
_OFFSET = re.compile(r"\bleveloffset=\"?([+-]?\d{1,3})")
_OPERATORS = {"==": eq, "!=": ne, "<=": le, ">=": ge, "<": lt, ">": gt}
_COMPARISON = re.compile(r"(?P<left>.*?)(?P<operator>==|!=|<=|>=|<|>)(?P<right>.*)")
_TAG = re.compile(r"\b(?P<kind>tag|end)::(?P<name>[^\s\[\]]{1,300}+)\[\]")
_UNTITLED = re.compile(
    r"xref:(?P<target>[^\s\[\]]{1,300}+)\[(?P<text>)\]|<<(?P<id>[\w#/.:{][^<>,\n]{0,300}+)>>"
)
_MASTERS = frozenset({"book", "index", "main", "manuscript", "master"})


class Preprocessor:
    """Finds included files, conditionals and references without a text, as Asciidoctor's first pass does.

    The directives of a file are found one after the other, because an included file may set an attribute
    that the next directive needs.
    """

    _depth = 0
    _fence = ""
    _left = 0
    _state = Attributes({})

    def values_of(self, file: Path) -> Mapping[str, str]:  # noqa: ARG002
        """Return the attributes that the book sets for a page."""
        return {}

    def locate(self, target: str, file: Path) -> tuple[str, tuple[Path, ...]]:
        """Return the path that a file includes, and the directories to search; "" if it is a page."""
        return target, () if target.startswith("/") else (file.parent,)

    def title_of(self, target: str, file: Path) -> str:  # noqa: ARG002
        """Return the title of another page or of an anchor in it; "" if it is not known."""
        return ""

    def find(self, text: str, file: Path) -> Iterator[Directive]:
        """Yield the directives of a page or of a file that it includes."""
        if not self._depth:
            values = self.values_of(file)
            self._state, self._fence, self._left = Attributes({}), "", _MOST_TITLES
            prelude = [f":{name}: {value}" for name, value in values.items()]
            for entry in filter(None, map(ENTRY.fullmatch, prelude)):
                self._state.enter(entry)
            yield Directive(0, 0, new="".join(f"{line}\n" for line in prelude))
        self._depth += 1
        try:
            yield from self._directives(text, file)
        finally:
            self._depth -= 1

    def _directives(self, text: str, file: Path) -> Iterator[Directive]:
        if text.count("\n") > MOST_LINES:  # the reader refuses the page
            return
        skipped, position = 0, 0  # conditionals that are open around a line that is left out
        for whole in text.split("\n"):
            line, start = whole.rstrip(), position
            position = min(start + len(whole) + 1, len(text))
            condition = _CONDITIONAL.fullmatch(line)
            if self._fence.startswith("////"):
                self._fence = "" if line == self._fence else self._fence
            elif line.startswith("\\") and (condition or _INCLUDE.fullmatch(line)):
                yield Directive(start, start + 1)
            elif condition:
                inline = condition["content"] if condition["kind"] != "ifeval" else ""
                if condition["kind"] == "endif":
                    skipped = max(skipped - 1, 0)
                elif skipped or not self._holds(condition):
                    skipped += not inline
                elif found := _INCLUDE.fullmatch(inline):
                    yield self._included(found, start, start + len(whole), file)
                    continue
                elif inline:
                    yield Directive(start, position, new=f"{inline}\n")
                    continue
                yield Directive(start, position)
            elif skipped:
                yield Directive(start, position)
            elif found := _INCLUDE.fullmatch(line):
                yield self._included(found, start, start + len(whole), file)
            elif not self._is_entry_or_code(line):
                yield from self._titles(line, start, file)

    def _is_entry_or_code(self, line: str) -> bool:
        """Keep track of verbatim blocks and attributes; return whether a line is part of one of them."""
        if self._fence:
            self._fence = "" if line == self._fence else self._fence
        elif line.startswith(VERBATIM) and (line[0] == "`" or not line.strip(line[0])):
            self._fence = "```" if line[0] == "`" else line
        elif entry := ENTRY.fullmatch(line):
            self._state.enter(entry)
        else:
            return False
        return True

    def _titles(self, line: str, start: int, file: Path) -> Iterator[Directive]:
        for found in islice(_UNTITLED.finditer(line), self._left):
            self._left -= 1
            target = self._state.resolve(found["target"] or found["id"])
            if title := self.title_of(target, file).replace("]", "\\]"):
                at = start + (found.end() - 2 if found["id"] else found.start("text"))
                yield Directive(at, at, new=f",{title}" if found["id"] else title)

    def _holds(self, found: re.Match[str]) -> bool:
        """Return whether a condition is true."""
        values = self._state.values
        if found["kind"] == "ifeval":
            compared = _COMPARISON.match(found["content"][:1_000])
            return compared is not None and _compare(
                *(self._state.resolve(compared[side]) for side in ("left", "operator", "right"))
            )
        names = found["names"].lower()
        holds = (any if "," in names else all)(name in values for name in re.split("[,+]", names))
        return holds == (found["kind"] == "ifdef")

    def _included(self, found: re.Match[str], start: int, end: int, file: Path) -> Directive:
        target, options = (
            self._state.resolve(found["target"]),
            attribute_list(self._state.resolve(found["content"])),
        )
        path, bases = self.locate(target, file)
        before = self._state.offset
        after = _offset(options.get("leveloffset", ""), before)
        is_page = target.lower().endswith(ASCIIDOC.suffixes)
        select = partial(_selected, options, before, after)
        optional = "optional" in options.get("opts", options.get("options", ""))
        return Directive(
            start, end, path, bases, select=select, nested=is_page, counted=not optional, otherwise=""
        )


def _offset(stated: str, before: int) -> int:
    """Return the number of levels that the headings of an included file are moved down."""
    return before * (stated[:1] in ("", "+", "-")) + number_of(stated)


def _compare(left: str, operator: str, right: str) -> bool:
    """Compare two values, as numbers if both are."""
    values: list[Any] = [text.strip().strip("\"'") for text in (left, right)]
    if all(re.fullmatch(r"-?\d{1,15}(?:\.\d{1,15})?", value) for value in values):
        values = [float(value) for value in values]
    first, second = values
    return bool(_OPERATORS[operator](first, second))


def _selected(options: Mapping[str, str], before: int, after: int, text: str) -> str | None:
    """Return the part of a file to include, with the level of its headings."""
    part: str | None = text
    if ranges := options.get("lines", ""):
        part = select_lines(ranges.replace(";", ","), "..", gap="\n")(text.rstrip("\n"))
    elif tags := options.get("tags", options.get("tag", "")):
        part = _tagged(text, [tag.strip() for tag in re.split("[,;]", tags) if tag.strip()])
    if part is not None and "indent" in options:
        part = textwrap.dedent(part)
    if part is None or before == after:
        return part
    return f":leveloffset: {after}\n\n{part}\n\n:leveloffset: {before}"


def _tagged(text: str, tags: list[str]) -> str | None:
    """Return the lines between tags; `*` is any tag, `**` any line, and `!` excludes."""
    wanted = {tag.removeprefix("!"): not tag.startswith("!") for tag in tags}
    first = tags[0] if tags else ""
    wildcard: bool | None = None
    if "**" in wanted:
        base = wanted.pop("**")
        wildcard = wanted.pop("*", False if not base and False in list(wanted.values())[:1] else None)
    elif "*" in wanted:
        wildcard = wanted.pop("*")
        base = not wildcard if first.endswith("*") else False
    else:
        base = True not in wanted.values()
    lines, selected, seen = list[str](), base, base
    stack: list[tuple[str, bool]] = []
    opened: Counter[str] = Counter()
    for line in text.split("\n"):
        if "::" in line and (found := _TAG.search(line)):
            name = found["name"]
            if found["kind"] == "end":
                if opened[name]:
                    last = ""
                    while last != name:
                        last = stack.pop()[0]
                        opened[last] -= 1
                    selected = stack[-1][1] if stack else base
            elif name in wanted or wildcard is not None:
                excluded = bool(stack) and not selected
                selected = wanted.get(name, bool(wildcard) and not excluded)
                stack.append((name, selected))
                opened[name] += 1
            seen = seen or selected
        elif selected:
            lines.append(line)
    return "\n".join(lines) if seen else None


class AsciiDocBook(Preprocessor, Site):
    """A book whose first file includes the others; Asciidoctor publishes it as one page."""

    generator = "asciidoc"
    config_files = tuple(f"*{suffix}" for suffix in ASCIIDOC.suffixes)
    suffixes = ASCIIDOC.suffixes
    only_listed = True

    @classmethod
    def recognises(cls, config_file: Path) -> bool:
        """Return whether a file includes at least two others, and is the first one of a book."""
        text = read_start(config_file, config_file.parent.resolve())
        pages = [found for found in map(_INCLUDE.fullmatch, text.split("\n")) if found and _is_page(found)]
        is_book = (
            re.search(r"^:doctype:[ \t]*book\b", text, re.MULTILINE) or config_file.stem.lower() in _MASTERS
        )
        return len(pages) > 1 and bool(is_book)

    def configure(self, config_file: Path) -> None:
        """List the chapters, and read the ids of all: they are numbered across the book."""
        self.root = self.directory.resolve()
        self._first, self._listed = config_file.name, False
        self._chapters: dict[str, dict[str, str]] = {self._first: {}}
        self._ids: dict[str, str] = {}
        self._counters: dict[str, str] = {}
        self.title = page_title(config_file, self.bounds, {})
        entries = list(self._entries(self._first, ()))
        self._listed = True
        empty = {name for name, _ in entries if not self._read_ids(name)}
        self.list_pages((name, "", sections) for name, sections in entries if name not in empty)

    def _entries(self, name: str, sections: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield a file and the chapters that it includes; a part has a heading of the top level."""
        yield name, sections
        file = self.root / name
        inner: list[tuple[str, bool]] = []
        source = read_config(file, self.bounds, _LARGEST)
        for directive in self.find(source, file):
            for base in directive.bases if directive.nested else ():
                chapter = resolved_path(base / directive.path)
                if not is_file(chapter) or not is_inside(chapter, self.root):
                    continue
                text, key = read_config(chapter, self.bounds, _LARGEST), self._name(chapter)
                heading = re.search(r"^(={1,6}|#{1,6})[ \t]+\S", text, re.MULTILINE)
                if heading is None:  # attributes, or text that belongs to no chapter
                    deque(self._directives(text, chapter), maxlen=0)
                elif key not in self._chapters:
                    values = self._state.values.items()
                    stated = _OFFSET.search(source[directive.start : directive.end])
                    offset = _offset(stated[1] if stated else "", self._state.offset)
                    self._chapters[key] = dict(values - INTRINSIC.items()) | {"leveloffset": str(offset)}
                    inner.append((key, len(heading[1]) + offset == 1 and not sections))
        for key, is_part in inner:
            part = page_title(self.root / key, self.bounds, {}) if is_part else ""
            yield from self._entries(key, (part,)) if part else [(key, sections)]

    def _name(self, file: Path) -> str:
        return file.relative_to(self.root).as_posix()

    def _read_ids(self, name: str) -> bool:
        """Read the ids of a chapter, which come after those of earlier ones; return whether it has text."""
        file = self.root / name
        source = read_config(file, self.bounds, _LARGEST)
        self._chapters[name] |= self._counters
        text = Includes(self.find, self.bounds).expand(name, file, source)[0]
        ids, self._counters, has_text = read_ids(text)
        taken = [key for key in self._ids if key in ids or re.sub(r"\D?(?<!\d)\d++$", "", key) in ids]
        if taken:
            self._chapters[name][TAKEN] = " ".join(taken)
            ids = read_ids(f":{TAKEN}: {' '.join(taken)}\n{text}")[0]
        self._ids = {**ids, **self._ids}
        return has_text

    def address(self, name: str, head: dict[str, Any]) -> str:  # noqa: ARG002
        """Return the address of the only page, with the chapter as its query."""
        whole = html_address(self._first)
        return whole if name == self._first else f"{whole}?{name.rpartition('.')[0]}"

    def expands(self, name: str) -> bool:
        """Return whether a file is a page of the book."""
        return name.lower().endswith(ASCIIDOC.suffixes)

    def locate(self, target: str, file: Path) -> tuple[str, tuple[Path, ...]]:
        """Return the path of an included file; chapters are pages of their own."""
        path, bases = super().locate(target, file)
        files = (resolved_path(base / path) for base in bases if self._listed)
        is_chapter = any(
            inner.is_relative_to(self.root) and self._name(inner) in self._chapters for inner in files
        )
        return ("", ()) if is_chapter else (path, bases)

    def values_of(self, file: Path) -> Mapping[str, str]:
        """Return the attributes that the files before a chapter set, and the ids that they have."""
        return {"doctype": "book", **self._chapters[self._name(file)]}

    def title_of(self, target: str, file: Path) -> str:  # noqa: ARG002
        """Return the title of a section of another chapter."""
        return self._ids.get(target.rpartition("#")[2], "")


def _is_page(found: re.Match[str]) -> bool:
    return bool(found["target"].lower().endswith(ASCIIDOC.suffixes))


def page_title(file: Path, bounds: Path, values: Mapping[str, str], key: str = "") -> str:
    """Return the title in the header of a file, or the attribute `key` if the header sets it."""
    attributes, title = Attributes(values), ""
    for line in read_start(file, bounds).split("\n"):
        if entry := ENTRY.fullmatch(line.rstrip()):
            attributes.enter(entry)
        elif (heading := HEADING.fullmatch(line.rstrip())) and len(heading["marks"]) == 1 and not title:
            title = heading["title"]
        elif title and not line.strip():
            break
    return (attributes.values.get(key, "") or Inline(attributes).words(title))[:LONGEST_TITLE]
