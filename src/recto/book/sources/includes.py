"""Included files: insert their text where a page includes them, without running anything.

A finder lists the directives of a text: `MkDocsIncludes` knows MkDocs extensions and plugins, and
`DocusaurusIncludes` imports of partials and raw files. `Includes` reads the files, inside the repository
only, and counts those that it cannot read. A directive that does not resolve is removed, or left to the
Markdown reader.
"""

from __future__ import annotations

import os
import re
import stat
import textwrap
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from recto._util.text import plural
from recto.book.parsing.formats import MARKDOWN, MDX
from recto.book.parsing.frontmatter import split_front_matter
from recto.book.parsing.markdown.text import code_fences
from recto.book.sources.options import is_inside

_DEEPEST = 10  # files within files
_LARGEST_FILE = 1 << 20  # bytes
_LARGEST_ADDED = 1 << 20  # characters that included files may add to a page
_CHARGE = 64  # characters that each included file adds to its own, to limit the number of empty ones
_SHOWN = 5  # unresolved files in a note
MARKDOWN_SUFFIXES = (*MARKDOWN.suffixes, *MDX.suffixes)
_PYTHON = dict.fromkeys(("py", "pyi"), "python")
_LANGUAGES = _PYTHON | {"sh": "bash", "yml": "yaml", "rs": "rust", "rb": "ruby", "htm": "html"}

Select = Callable[[str], str | None]
"""Returns the part of a file's text to include; None if the file does not have it."""


@dataclass(frozen=True, slots=True)
class Directive:
    """A directive between `start` and `end` of a text, and the file that replaces it.

    `path` is searched in `bases`, with each of `suffixes`; a directive without a path is only removed. If
    `code` is not None, the text becomes a fence with this info string. `prefix` begins each line; `apart`
    adds blank lines around. `otherwise` replaces a directive that does not resolve; None leaves it.
    `reason` says why it cannot resolve, if that is known beforehand.
    """

    start: int
    end: int
    path: str = ""
    bases: tuple[Path, ...] = ()
    suffixes: tuple[str, ...] = ("",)
    select: Select | None = None
    code: str | None = None
    prefix: str = ""
    apart: bool = False
    nested: bool = True
    counted: bool = True
    otherwise: str | None = None
    reason: str = ""


InCode = Callable[[int], bool]
"""Returns whether a position of a text is in code."""
Finder = Callable[[str, Path], Sequence[Directive]]
"""Returns the directives of a file's text in order, without overlaps."""


class _UnresolvedError(Exception):
    """Why a file is not included."""


class Includes:
    """Expands the pages of one book and records which files were included and which were not."""

    def __init__(self, find: Finder, bounds: Path) -> None:
        """Take the directory that included files must lie in."""
        self._find = find
        self._bounds = bounds
        self.reset()

    def reset(self) -> None:
        """Reset the counts."""
        self._page = ""
        self._left = 0
        self.resolved = 0
        self.pages = 0
        self.unresolved: list[str] = []
        self.files: dict[Path, tuple[int, int]] = {}
        """The included files with their modification time and size."""

    def expand(self, name: str, file: Path, text: str) -> tuple[str, tuple[int, ...]]:
        """Return a page's text with included files, and the page's line of each line if the text changed."""
        self._page, self._left = name, _LARGEST_ADDED
        before, normal = self.resolved, _normal(text)
        expanded, lines = self._expanded(normal, (file.resolve(),))
        self.pages += self.resolved > before
        return (text, ()) if expanded == normal else (expanded, tuple(lines))

    def _expanded(self, text: str, stack: tuple[Path, ...]) -> tuple[str, list[int]]:
        """Replace the directives of a file; `stack` has the file last and those that include it before."""
        pieces, lines, position, number = [], [1], 0, 1
        for directive in self._find(text, stack[-1]):
            new = self._replacement(directive, stack)
            if new is None:
                continue
            before = text[position : directive.start]
            pieces += [before, new]
            lines += range(number + 1, number + 1 + before.count("\n"))
            number += before.count("\n")
            lines += [number] * new.count("\n")
            number += text.count("\n", directive.start, directive.end)
            position = directive.end
            if not new and text[position - 1 : position] == "\n":  # whole lines were removed
                lines[-1] = number
        rest = text[position:]
        lines += range(number + 1, number + 1 + rest.count("\n"))
        return "".join([*pieces, rest]), lines

    def _replacement(self, directive: Directive, stack: tuple[Path, ...]) -> str | None:
        if not directive.path:
            return ""
        try:
            text = self._included(directive, stack)
        except _UnresolvedError as reason:
            if directive.counted:
                self.unresolved.append(f"{self._page}: {directive.path} ({reason})")
            return directive.otherwise
        first, *others = text.split("\n")
        prefix = directive.prefix
        text = "\n".join([first, *(prefix + line if line else prefix.rstrip() for line in others)])
        return f"\n\n{text}\n\n" if directive.apart else prefix + text

    def _included(self, directive: Directive, stack: tuple[Path, ...]) -> str:
        file = self._file(directive)
        if file in stack:
            raise _UnresolvedError("it includes itself")
        if len(stack) > _DEEPEST:
            raise _UnresolvedError(f"more than {_DEEPEST} files deep")
        text: str | None = self._read(file)
        if directive.select is not None:
            text = directive.select(text or "")
        elif file.suffix.lower() in MARKDOWN_SUFFIXES and directive.code is None:
            text = split_front_matter(text or "")[1]
        if text is None:
            raise _UnresolvedError("the file has no such part")
        self._left -= len(text) + _CHARGE
        if self._left < 0:
            limit = f"{_LARGEST_ADDED >> 20} MiB"
            raise _UnresolvedError(f"included files would add more than {limit} to the page")
        self.resolved += 1
        text = (self._expanded(text, (*stack, file))[0] if directive.nested else text).strip("\n")
        return text if directive.code is None else _fenced(text, file, directive.code)

    def _file(self, directive: Directive) -> Path:
        """Return the file of a directive; the error gives the reason for the first candidate."""
        if directive.reason or "://" in directive.path:
            raise _UnresolvedError(directive.reason or "on the web")
        reasons = []
        names = [f"{directive.path}{suffix}" for suffix in directive.suffixes]
        for candidate in (base / name for base in directive.bases for name in names):
            try:
                file = candidate.resolve()
                if not is_inside(file, self._bounds):
                    reasons.append("outside the repository")
                elif stat.S_ISREG(file.stat().st_mode):
                    return file
                else:
                    reasons.append("not a file")
            except (OSError, RuntimeError, ValueError):  # missing, a loop of links, an impossible name
                reasons.append("missing")
        raise _UnresolvedError(reasons[0] if reasons else "missing")

    def _read(self, file: Path) -> str:
        try:
            with file.open("rb") as opened:
                status = os.fstat(opened.fileno())
                data = opened.read(_LARGEST_FILE + 1)
            self.files.setdefault(file, (status.st_mtime_ns, status.st_size))
            if len(data) > _LARGEST_FILE:
                raise _UnresolvedError(f"larger than {_LARGEST_FILE >> 20} MiB")
            if b"\0" in data:
                raise _UnresolvedError("binary")
            return _normal(data.decode("utf-8").removeprefix("\ufeff"))
        except UnicodeDecodeError as error:
            raise _UnresolvedError("not UTF-8") from error
        except OSError as error:
            raise _UnresolvedError(error.strerror or str(error)) from error


def notes(includes: Sequence[Includes]) -> list[str]:
    """Return notes on how many files were included and which were not."""
    resolved, pages = sum(one.resolved for one in includes), sum(one.pages for one in includes)
    unresolved = [line for one in includes for line in one.unresolved]
    lines = [f"{plural(resolved, 'included file')} resolved in {plural(pages, 'page')}."] * bool(resolved)
    if unresolved:
        more = f", and {len(unresolved) - _SHOWN} more" if len(unresolved) > _SHOWN else ""
        listed = ", ".join(unresolved[:_SHOWN]) + more
        lines.append(f"{plural(len(unresolved), 'included file')} could not be resolved: {listed}.")
    return lines


def _normal(text: str) -> str:
    """Normalise line ends."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _fenced(text: str, file: Path, info: str) -> str:
    """Return a fence with a file's text; the suffix gives the language if the info string has none."""
    marks = "`" * (max([2, *(len(run) for run in re.findall(r"`{3,}", text))]) + 1)
    suffix = file.suffix.lower().removeprefix(".")
    language = "" if info[:1].strip() else _LANGUAGES.get(suffix, suffix)
    return f"{marks}{language}{info}\n{text}\n{marks}"


def code_ranges(text: str) -> InCode:
    """Return whether a position of a text is in a code fence; `mdx-code-block` fences are not code."""
    fences = [pair for pair in code_fences(text) if pair[0]["info"] != "mdx-code-block"]
    starts = [opening.start() for opening, _ in fences]
    ends = [closing.end() if closing else len(text) for _, closing in fences]

    def in_code(position: int) -> bool:
        index = bisect_right(starts, position) - 1
        return index >= 0 and position < ends[index]

    return in_code


def in_order(directives: Sequence[Directive]) -> list[Directive]:
    """Sort directives and drop those that overlap an earlier one."""
    kept: list[Directive] = []
    for directive in sorted(directives, key=lambda directive: directive.start):
        if not kept or directive.start >= kept[-1].end:
            kept.append(directive)
    return kept


_BRACES = re.compile(
    r"(?<![\\`])\{![+-]?>?(?P<path>[^\]\[|!{}\n]++)(?:\[ln:(?P<slice>[^\]\n]*+)\])?[ \t]*+(?:\|[^!{}\n]*+)?"
    r"!(?:lines=(?P<lines>[0-9 -]+))?\}"
)
_VARIANTS = re.compile(
    r"^(?P<prefix>[ \t>]*)\{\*[ \t]*(?P<path>[^\s*{}]++)(?P<options>[^\n{}]*)\*\}[ \t]*$", re.MULTILINE
)
_LN = re.compile(r"\bln\[([^\]]*)\]")
_SNIPPET = re.compile(
    r"^(?P<prefix>[ \t>]*)(?P<escape>;*)-+8<-+"
    r"(?:[ \t]+(?:\"(?P<double>[^\"\n]+)\"|'(?P<single>[^'\n]+)'))?[ \t]*$",
    re.MULTILINE,
)
_SECTION = re.compile(
    r"(?P<escape>;?)-{1,40}8<-+[ \t]+\[[ \t]*"
    r"(?P<type>start|end)[ \t]*:[ \t]*(?P<name>[A-Za-z][\w-]*)[ \t]*\]",
    re.IGNORECASE,
)
_LISTED = re.compile(r"^(?P<prefix>[ \t>]*+)(?:;.*\n|(?P<path>[^\s;].*)$)", re.MULTILINE)
_SNIPPET_PART = re.compile(r"(?P<path>.*?)(?P<part>(?::-?\d*){1,2}(?:,-?\d*(?::-?\d*)?)*|:[A-Za-z][\w-]*)?")
_TAG = re.compile(
    r"(?<!`)\{%-?\s*include(?:-markdown)?\s+(?:\"(?P<double>[^\"\n]+)\"|'(?P<single>[^'\n]+)')"
    r"(?P<options>(?:[^%]|%(?!\})){0,500})%\}"
)
_MARKER = r"\b{}=(?:\"((?:\\.|[^\"\\])*)\"|'((?:\\.|[^'\\])*)')"
_PREFIX = re.compile(r"[ \t>]*")
_FAR = 1_000  # characters that are searched for the start and end of a line

BRACES, VARIANTS, SNIPPETS, TAGS = "{!", "{*", "8<-", "{%"


@dataclass(frozen=True, slots=True)
class MkDocsIncludes:
    """Finds the directives of the include extensions and plugins of MkDocs.

    `bases` has the search directories of each syntax that the site turns on; None is the directory of the
    including file. `usual` is searched next. Directives of other syntaxes are resolved if their file
    exists; they count as unresolved only outside code, where they cannot be examples.
    """

    usual: tuple[Path, ...]
    bases: Mapping[str, tuple[Path | None, ...]] = field(default_factory=dict)

    def __call__(self, text: str, file: Path) -> Sequence[Directive]:
        """Return the directives of a text."""
        finders = {BRACES: _braces, VARIANTS: _variants, SNIPPETS: _snippets, TAGS: _tags}
        used = {syntax: find for syntax, find in finders.items() if syntax in text}
        in_code = code_ranges(text) if used else bool
        directives: list[Directive] = []
        for syntax, find in used.items():
            for directive in find(text, in_code, syntax in self.bases):
                near = (file.parent,) if syntax == TAGS and directive.path.startswith(".") else ()
                own = (folder or file.parent for folder in self.bases.get(syntax, ()))
                bases = dict.fromkeys((*near, *own, *self.usual[:2], file.parent, *self.usual[2:]))
                counted = syntax in self.bases or not in_code(directive.start)
                directives.append(replace(directive, bases=tuple(bases), counted=counted))
        return in_order(directives)


def _braces(text: str, _: InCode, __: bool) -> Iterator[Directive]:
    """Find `{!file!}`."""
    for match in _BRACES.finditer(text):
        start, end, prefix = whole_line(text, *match.span())
        ranges = match["slice"] or (match["lines"] or "").replace(" ", ",")
        select = _lines(ranges, "-") if ranges else None
        otherwise = "" if prefix is None else None
        path = match["path"].strip()
        yield Directive(start, end, path, select=select, prefix=prefix or "", otherwise=otherwise)


def _variants(text: str, in_code: InCode, _: bool) -> Iterator[Directive]:
    """Find `{* file ln[1:3] *}`, which makes a fence."""
    for match in _VARIANTS.finditer(text):
        ranges = _LN.search(match["options"])
        select = _lines(ranges[1], ":", gap="\n\n") if ranges and ranges[1].strip() != "0" else None
        code = None if in_code(match.start()) else ""
        prefix = match["prefix"]
        yield Directive(*match.span(), match["path"], select=select, code=code, prefix=prefix, nested=False)


def _snippets(text: str, in_code: InCode, turned_on: bool) -> Iterator[Directive]:
    """Find `--8<-- "file"`, lists of files between two marks, and the marks of sections."""

    def snippet(start: int, end: int, written: str, prefix: str) -> Directive:
        match = _SNIPPET_PART.fullmatch(written.strip())
        path, part = (match["path"], match["part"] or "") if match else (written, "")
        select = _section(part[1:]) if part[1:2].isalpha() else _lines(part[1:], ":", open_end=True)
        return Directive(start, end, path.strip() or written, select=select if part else None, prefix=prefix)

    block = -1  # start of the list of files in the block form
    for mark in _SNIPPET.finditer(text):
        written = mark["double"] or mark["single"]
        if mark["escape"] or (written and block >= 0):
            continue
        if written:
            yield snippet(*mark.span(), written, mark["prefix"])
        elif turned_on or not in_code(mark.start()):
            yield Directive(mark.start(), min(mark.end() + 1, len(text)))
            for line in _LISTED.finditer(text, block, mark.start()) if block >= 0 else ():
                if line["path"]:
                    yield snippet(line.start(), line.end("path"), line["path"], line["prefix"])
                else:
                    yield Directive(*line.span())
            block = -1 if block >= 0 else mark.end()
    for mark in _SECTION.finditer(text):
        if not mark["escape"] and (turned_on or not in_code(mark.start())):
            end = text.find("\n", mark.end(), mark.end() + _FAR) + 1
            yield Directive(line_start(text, mark.start()), end or min(len(text), mark.end() + _FAR))


def _tags(text: str, in_code: InCode, turned_on: bool) -> Iterator[Directive]:
    """Find `{% include "file" %}`."""
    for tag in _TAG.finditer(text):
        start, end, prefix = whole_line(text, *tag.span())
        indented = (prefix or "").startswith((" " * 4, "\t"))
        if not turned_on and (in_code(tag.start()) or indented):
            continue  # code: most likely an example
        path, select = tag["double"] or tag["single"], _between(tag["options"])
        yield Directive(start, end, path, select=select, prefix=prefix or "", otherwise="")


def whole_line(text: str, start: int, end: int) -> tuple[int, int, str | None]:
    """Return the span of a directive, and its indentation if it is alone on its lines, else None."""
    line, close = line_start(text, start), text.find("\n", end, end + _FAR)
    close = min(len(text), end + _FAR) if close < 0 else close
    prefix = text[line:start]
    if _PREFIX.fullmatch(prefix) and not text[end:close].strip():
        return line, close, prefix
    return start, end, None


def line_start(text: str, position: int) -> int:
    """Return the start of the line of a position, or a position far before it."""
    far = max(position - _FAR, 0)
    return max(text.rfind("\n", far, position) + 1, far)


def _lines(ranges: str, mark: str, *, gap: str = "\n", open_end: bool = False) -> Select:
    """Select lines such as `1-3,5`; with `open_end`, a single number selects everything from that line on."""

    def select(text: str) -> str | None:
        lines, parts = text.removesuffix("\n").split("\n"), []
        for span in ranges.split(","):
            first, between, last = span.strip().partition(mark)
            try:
                start = int(first) if first else 1
                end = int(last) if last else len(lines) if between or open_end else start
            except ValueError:
                return None
            start, end = (number + len(lines) + 1 if number < 0 else number for number in (start, end))
            parts.append("\n".join(lines[max(start - 1, 0) : max(end, 0)]))
        return textwrap.dedent(gap.join(parts)) if any(parts) else None

    return select


def _section(name: str) -> Select:
    """Select the lines between the marks of a section."""

    def select(text: str) -> str | None:
        lines, inside = list[str](), False
        for line in text.split("\n"):
            mark = _SECTION.search(line)
            if not mark or mark["escape"]:
                lines += [line] if inside else []
            elif mark["name"] == name and mark["type"] == "end" and inside:
                break
            else:
                inside = inside or (mark["name"] == name and mark["type"] == "start")
        return textwrap.dedent("\n".join(lines)) if inside else None

    return select


def _between(options: str) -> Select | None:
    """Select the text between `start="…"` and `end="…"`; every occurrence if both are given."""
    start, end = (
        re.sub(r"\\(.)", lambda code: {"n": "\n", "t": "\t"}.get(code[1], code[1]), mark[1] or mark[2] or "")
        if (mark := re.search(_MARKER.format(name), options))
        else ""
        for name in ("start", "end")
    )
    if not start and not end:
        return None

    def select(text: str) -> str | None:
        if start not in text or end not in text:
            return None
        parts = text.split(start)[1:] if start and end else [text.partition(start)[2]] if start else [text]
        return "".join(part.partition(end)[0] for part in parts) if end else parts[0]

    return select
