"""Included files: insert their text where a page includes them, without running anything.

A finder lists the directives of a text: `MkDocsIncludes` those of MkDocs extensions and plugins, and
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from recto.book.parsing.formats import MARKDOWN, MDX
from recto.book.parsing.frontmatter import split_front_matter
from recto.book.parsing.markdown.text import code_fences, tag_end

_DEEPEST = 10  # files within files
_LARGEST_FILE = 1 << 20  # bytes
_LARGEST_ADDED = 1 << 20  # characters that included files may add to a page
_CHARGE = 64  # characters that each included file adds to its own, to limit the number of empty ones
_SHOWN = 5  # unresolved files in a note
_MARKDOWN = (*MARKDOWN.suffixes, *MDX.suffixes)
_LANGUAGES = {
    "py": "python",
    "pyi": "python",
    "sh": "bash",
    "yml": "yaml",
    "rs": "rust",
    "rb": "ruby",
    "htm": "html",
}

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


class Finder(Protocol):
    """Lists the directives of a kind of site."""

    def __call__(self, text: str, file: Path) -> Sequence[Directive]:
        """Return the directives of a file's text in order, without overlaps."""


class _UnresolvedError(Exception):
    """Why a file is not included."""


@dataclass(slots=True)
class _Expansion:
    """The state of expanding one page: its name, and how many characters may still be added."""

    name: str
    left: int = _LARGEST_ADDED


class Includes:
    """Expands the pages of one book and records which files were included and which were not."""

    def __init__(self, find: Finder, *bounds: Path) -> None:
        """Take the directories that included files must lie in."""
        self._find = find
        self._bounds = tuple(folder.resolve() for folder in bounds)
        self.reset()

    def reset(self) -> None:
        """Reset the counts."""
        self.resolved = 0
        self.pages = 0
        self.unresolved: list[str] = []
        self.files: dict[Path, tuple[int, int]] = {}
        """The included files with their modification time and size."""

    def expand(self, name: str, file: Path, text: str) -> tuple[str, tuple[int, ...]]:
        """Return a page's text with included files, and the page's line of each line if the text changed."""
        before, normal = self.resolved, _normal(text)
        expanded, lines = self._expanded(normal, _Expansion(name), (file.resolve(),))
        self.pages += self.resolved > before
        return (text, ()) if expanded == normal else (expanded, tuple(lines))

    def _expanded(self, text: str, expansion: _Expansion, stack: tuple[Path, ...]) -> tuple[str, list[int]]:
        """Replace the directives of a file; `stack` has the file last and those that include it before."""
        pieces, lines, position, number = [], [1], 0, 1
        for directive in self._find(text, stack[-1]):
            new = self._replacement(directive, expansion, stack)
            if new is None:
                continue
            before = text[position : directive.start]
            pieces += [before, new]
            for _ in range(before.count("\n")):
                number += 1
                lines.append(number)
            lines += [number] * new.count("\n")
            number += text.count("\n", directive.start, directive.end)
            position = directive.end
            if not new and text[position - 1 : position] == "\n":  # whole lines were removed
                lines[-1] = number
        rest = text[position:]
        lines += range(number + 1, number + 1 + rest.count("\n"))
        return "".join([*pieces, rest]), lines

    def _replacement(
        self, directive: Directive, expansion: _Expansion, stack: tuple[Path, ...]
    ) -> str | None:
        if not directive.path:
            return ""
        try:
            text = self._included(directive, expansion, stack)
        except _UnresolvedError as reason:
            if directive.counted:
                self.unresolved.append(f"{expansion.name}: {directive.path} ({reason})")
            return directive.otherwise
        lines = text.split("\n")
        prefix = directive.prefix
        text = "\n".join([lines[0], *((prefix + line) if line else prefix.rstrip() for line in lines[1:])])
        return f"\n\n{text}\n\n" if directive.apart else prefix + text

    def _included(self, directive: Directive, expansion: _Expansion, stack: tuple[Path, ...]) -> str:
        if directive.reason:
            raise _UnresolvedError(directive.reason)
        file = self._file(directive)
        if file in stack:
            raise _UnresolvedError("it includes itself")
        if len(stack) > _DEEPEST:
            raise _UnresolvedError(f"more than {_DEEPEST} files deep")
        text = self._read(file)
        if directive.select is not None:
            part = directive.select(text)
            if part is None:
                raise _UnresolvedError("the part is not in the file")
            text = part
        elif file.suffix.lower() in _MARKDOWN and directive.code is None:
            text = split_front_matter(text)[1]
        expansion.left -= len(text) + _CHARGE
        if expansion.left < 0:
            raise _UnresolvedError(
                f"included files would add more than {_LARGEST_ADDED >> 20} MiB to the page"
            )
        self.resolved += 1
        text = (self._expanded(text, expansion, (*stack, file))[0] if directive.nested else text).strip("\n")
        return text if directive.code is None else _fenced(text, file, directive.code)

    def _file(self, directive: Directive) -> Path:
        """Return the file of a directive; the error gives the reason for the first candidate."""
        if "://" in directive.path:
            raise _UnresolvedError("on the web")
        reasons = []
        for place in (
            base / f"{directive.path}{suffix}" for base in directive.bases for suffix in directive.suffixes
        ):
            try:
                file = place.resolve()
                inside = [folder for folder in self._bounds if file.is_relative_to(folder)]
                if not inside or ".git" in file.relative_to(inside[0]).parts:
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


def notes(found: Sequence[Includes]) -> list[str]:
    """Return notes on how many files were included and which were not."""
    resolved, pages = sum(one.resolved for one in found), sum(one.pages for one in found)
    unresolved = [line for one in found for line in one.unresolved]
    lines = []
    if resolved:
        lines.append(f"{_counted(resolved, 'included file')} resolved in {_counted(pages, 'page')}.")
    if unresolved:
        more = f", and {len(unresolved) - _SHOWN} more" if len(unresolved) > _SHOWN else ""
        listed = ", ".join(unresolved[:_SHOWN]) + more
        lines.append(f"{_counted(len(unresolved), 'included file')} could not be resolved: {listed}.")
    return lines


def repository_of(site: Path) -> Path:
    """Return the nearest directory at or above a site that has `.git`, else the site's own."""
    site = site.resolve()
    return next((folder for folder in (site, *site.parents) if (folder / ".git").exists()), site)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _normal(text: str) -> str:
    """Normalise line ends."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _fenced(text: str, file: Path, info: str) -> str:
    """Return a fence with a file's text; the suffix gives the language if the info string has none."""
    marks = "`" * (max([2, *(len(run) for run in re.findall(r"`{3,}", text))]) + 1)
    suffix = file.suffix.lower().removeprefix(".")
    language = "" if info[:1].strip() else _LANGUAGES.get(suffix, suffix)
    return f"{marks}{language}{info}\n{text}\n{marks}"


class _Fences:
    """The code fences of a text; `mdx-code-block` fences are not code."""

    def __init__(self, text: str) -> None:
        fences = [pair for pair in code_fences(text) if pair[0]["info"] != "mdx-code-block"]
        self._starts = [opening.start() for opening, _ in fences]
        self._ends = [closing.end() if closing else len(text) for _, closing in fences]

    def hold(self, position: int) -> bool:
        """Return whether a position is in a fence."""
        index = bisect_right(self._starts, position) - 1
        return index >= 0 and position < self._ends[index]


def _in_order(found: Sequence[Directive]) -> list[Directive]:
    """Sort directives and drop those that overlap an earlier one."""
    kept: list[Directive] = []
    for directive in sorted(found, key=lambda directive: directive.start):
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
_SNIPPET_PART = re.compile(r"(?P<path>.*?)(?P<part>(?::-?\d*){1,2}(?:,-?\d*(?::-?\d*)?)*|:[A-Za-z][\w-]*)?")
_TAG = re.compile(
    r"(?<!`)\{%-?\s*include(?:-markdown)?\s+(?:\"(?P<double>[^\"\n]+)\"|'(?P<single>[^'\n]+)')(?P<options>(?:[^%]|%(?!\})){0,500})%\}"
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
        finders = {BRACES: self._braces, VARIANTS: self._variants, SNIPPETS: self._snippets, TAGS: self._tags}
        wanted = [find for mark, find in finders.items() if mark in text]
        if not wanted:
            return ()
        fences = _Fences(text)
        return _in_order([directive for find in wanted for directive in find(text, file, fences)])

    def _bases(self, syntax: str, file: Path, *first: Path) -> tuple[Path, ...]:
        own = (folder or file.parent for folder in self.bases.get(syntax, ()))
        return tuple(dict.fromkeys((*first, *own, *self.usual[:2], file.parent, *self.usual[2:])))

    def _counted(self, syntax: str, start: int, fences: _Fences) -> bool:
        return syntax in self.bases or not fences.hold(start)

    def _braces(self, text: str, file: Path, fences: _Fences) -> Iterator[Directive]:
        bases = self._bases(BRACES, file)
        for found in _BRACES.finditer(text):
            start, end, prefix = _whole_line(text, *found.span())
            alone = prefix is not None
            ranges = found["slice"] or (found["lines"] or "").replace(" ", ",")
            yield Directive(
                start,
                end,
                found["path"].strip(),
                bases,
                select=_lines(ranges, "-") if ranges else None,
                prefix=prefix or "",
                counted=self._counted(BRACES, start, fences),
                otherwise=None if alone else "",
            )

    def _variants(self, text: str, file: Path, fences: _Fences) -> Iterator[Directive]:
        bases = self._bases(VARIANTS, file)
        for found in _VARIANTS.finditer(text):
            ranges = _LN.search(found["options"])
            yield Directive(
                *found.span(),
                found["path"],
                bases,
                select=_lines(ranges[1], ":", gap="\n\n") if ranges and ranges[1].strip() != "0" else None,
                code=None if fences.hold(found.start()) else "",
                prefix=found["prefix"],
                nested=False,
                counted=self._counted(VARIANTS, found.start(), fences),
            )

    def _snippets(self, text: str, file: Path, fences: _Fences) -> Iterator[Directive]:
        bases = self._bases(SNIPPETS, file)

        def snippet(start: int, end: int, written: str, prefix: str) -> Directive:
            found = _SNIPPET_PART.fullmatch(written.strip())
            path, part = (found["path"], found["part"] or "") if found else (written, "")
            select = (
                None
                if not part
                else _section(part[1:])
                if part[1:2].isalpha()
                else _lines(part[1:], ":", open_end=True)
            )
            counted = self._counted(SNIPPETS, start, fences)
            return Directive(
                start, end, path.strip() or written, bases, select=select, prefix=prefix, counted=counted
            )

        block = -1  # start of the list of files in the block form
        for found in _SNIPPET.finditer(text):
            written = found["double"] or found["single"]
            if found["escape"] or (written and block >= 0):
                continue
            if written:
                yield snippet(*found.span(), written, found["prefix"])
            elif self._counted(SNIPPETS, found.start(), fences):
                yield Directive(found.start(), min(found.end() + 1, len(text)))
                if block >= 0:
                    for line in re.finditer(
                        r"^([ \t>]*)(?!;)(\S.*)$", text[block : found.start()], re.MULTILINE
                    ):
                        yield snippet(block + line.start(), block + line.end(), line[2], line[1])
                    for line in re.finditer(r"^[ \t>]*;.*\n", text[block : found.start()], re.MULTILINE):
                        yield Directive(block + line.start(), block + line.end())
                block = -1 if block >= 0 else found.end()
        for mark in _SECTION.finditer(text):
            if not mark["escape"] and self._counted(SNIPPETS, mark.start(), fences):
                end = text.find("\n", mark.end(), mark.end() + _FAR) + 1
                yield Directive(_line_start(text, mark.start()), end or min(len(text), mark.end() + _FAR))

    def _tags(self, text: str, file: Path, fences: _Fences) -> Iterator[Directive]:
        for found in _TAG.finditer(text):
            path = found["double"] or found["single"]
            start, end, prefix = _whole_line(text, *found.span())
            if TAGS not in self.bases and (
                fences.hold(found.start()) or (prefix or "").startswith((" " * 4, "\t"))
            ):
                continue  # code: most likely an example
            yield Directive(
                start,
                end,
                path,
                self._bases(TAGS, file, *([file.parent] if path.startswith(".") else [])),
                select=_between(found["options"]),
                prefix=prefix or "",
                otherwise="",
            )


def _whole_line(text: str, start: int, end: int) -> tuple[int, int, str | None]:
    """Return the span of a directive, and its indentation if it is alone on its lines, else None."""
    line, close = _line_start(text, start), text.find("\n", end, end + _FAR)
    close = min(len(text), end + _FAR) if close < 0 else close
    prefix = text[line:start]
    if _PREFIX.fullmatch(prefix) and not text[end:close].strip():
        return line, close, prefix
    return start, end, None


def _line_start(text: str, position: int) -> int:
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
    def select(text: str) -> str | None:
        lines, inside = list[str](), False
        for line in text.split("\n"):
            mark = _SECTION.search(line)
            if mark and not mark["escape"]:
                if mark["name"] == name and mark["type"] == "end" and inside:
                    return textwrap.dedent("\n".join(lines))
                inside = inside or (mark["name"] == name and mark["type"] == "start")
            elif inside:
                lines.append(line)
        return textwrap.dedent("\n".join(lines)) if inside else None

    return select


def _between(options: str) -> Select | None:
    """Select the text between `start="…"` and `end="…"`; every occurrence if both are given."""
    marks = [re.search(_MARKER.format(name), options) for name in ("start", "end")]
    start, end = ("" if mark is None else (mark[1] or mark[2] or "") for mark in marks)
    start, end = (
        re.sub(r"\\(.)", lambda code: {"n": "\n", "t": "\t"}.get(code[1], code[1]), mark)
        for mark in (start, end)
    )
    if not start and not end:
        return None

    def select(text: str) -> str | None:
        if start not in text or end not in text:
            return None
        parts = text.split(start)[1:] if start and end else [text.partition(start)[2]] if start else [text]
        return "".join(part.partition(end)[0] for part in parts) if end else parts[0]

    return select


_IMPORT = re.compile(
    r"^[ \t]*import\s+(?P<name>\w+)\s+from\s+(?P<quote>['\"])(?P<path>[^'\"\n]+)(?P=quote);?[ \t]*$",
    re.MULTILINE,
)
_RAW = re.compile(r"(?:!!raw-loader!(?P<loaded>[^?]+)(?:\?.*)?|(?P<queried>[^?!]+)\?raw)")
_JSX = re.compile(r"<(?P<name>[A-Z][\w.]*|pre|code)(?=[\s/>])")
_EXPRESSION = re.compile(
    r"\s*\{\s*(?:require\(\s*['\"](?P<path>[^'\"\n]+)['\"]\s*\)|(?P<name>\w+)(?=[\s.}]))"
)
_ALONE = re.compile(r"^(?P<prefix>[ \t>]*)\{\s*(?P<name>\w+)\s*(?:\.[^\n{}]*)?\}[ \t]*$", re.MULTILINE)
_ATTRIBUTE = re.compile(r"\b(language|className|title)=(?:\{\s*)?[\"']([^\"'\n]*)[\"']")
_LONGEST_EXPRESSION = 4_000
_MOST_IMPORTS = 200
_SCRIPTS = ("", ".js", ".jsx", ".ts", ".tsx", ".mjs", ".json")


@dataclass(frozen=True, slots=True)
class DocusaurusIncludes:
    """Finds `<X />` for partials (`import X from './_x.mdx'`) and `{X}` for raw-loader imports."""

    site: Path

    def __call__(self, text: str, file: Path) -> Sequence[Directive]:
        """Return the directives of a text."""
        if "import" not in text and "raw-loader" not in text:
            return ()
        fences = _Fences(text)
        imports = [found for found in _IMPORT.finditer(text) if not fences.hold(found.start())][
            :_MOST_IMPORTS
        ]
        partials = {
            one["name"]: one["path"]
            for one in imports
            if one["path"].endswith(_MARKDOWN) and "!" not in one["path"]
        }
        raw = {one["name"]: path for one in imports if (path := _raw_path(one["path"]))}
        if not partials and not raw and "raw-loader" not in text:
            return ()
        found = [*self._tags(text, file, fences, partials, raw), *self._expressions(text, file, fences, raw)]
        seen = {name for name, _ in found}
        lost = [name for name in raw if name not in seen and len(re.findall(rf"\b{name}\b", text)) > 1]
        unclear = [
            Directive(len(text), len(text), raw[name], reason="shown in a way that is not understood")
            for name in lost
        ]
        return [*_in_order([directive for _, directive in found]), *unclear]

    def _place(self, path: str, file: Path) -> tuple[str, tuple[Path, ...]]:
        return (
            (path.removeprefix("@site/"), (self.site,))
            if path.startswith("@site/")
            else (path, (file.parent,))
        )

    def _tags(
        self, text: str, file: Path, fences: _Fences, partials: Mapping[str, str], raw: Mapping[str, str]
    ) -> Iterator[tuple[str, Directive]]:
        for found in _JSX.finditer(text):
            if found["name"] not in partials and not raw and "raw-loader" not in text:
                continue
            before = text[_line_start(text, found.start()) : found.start()]
            if fences.hold(found.start()) or before.count("`") % 2 or before.lstrip().startswith("|"):
                continue
            end = tag_end(text, found.end())
            if end is None:
                continue
            if found["name"] in partials:
                if text[end - 2] == "/":
                    start, end, prefix = _whole_line(text, found.start(), end)
                    path, bases = self._place(partials[found["name"]], file)
                    apart = prefix is None
                    yield found["name"], Directive(start, end, path, bases, prefix=prefix or "", apart=apart)
                continue
            shown = _EXPRESSION.match(text, end, end + _LONGEST_EXPRESSION)
            path = (_raw_path(shown["path"] or "") or raw.get(shown["name"] or "", "")) if shown else ""
            close = (
                text.find(f"</{found['name']}>", shown.end(), shown.end() + _LONGEST_EXPRESSION)
                if shown and path
                else -1
            )
            if shown and close >= 0:
                start, stop, prefix = _whole_line(text, found.start(), close + len(found["name"]) + 3)
                yield (
                    shown["name"] or "",
                    self._raw(start, stop, path, file, _info(text[found.end() : end]), prefix),
                )

    def _expressions(
        self, text: str, file: Path, fences: _Fences, raw: Mapping[str, str]
    ) -> Iterator[tuple[str, Directive]]:
        for found in _ALONE.finditer(text) if raw else ():
            if found["name"] in raw and not fences.hold(found.start()):
                yield found["name"], self._raw(*found.span(), raw[found["name"]], file, "", found["prefix"])

    def _raw(self, start: int, end: int, path: str, file: Path, info: str, prefix: str | None) -> Directive:
        path, bases = self._place(path, file)
        return Directive(
            start,
            end,
            path,
            bases,
            suffixes=_SCRIPTS,
            code=info,
            prefix=prefix or "",
            apart=prefix is None,
            nested=False,
            otherwise="",
        )


def _raw_path(path: str) -> str:
    found = _RAW.fullmatch(path)
    return (found["loaded"] or found["queried"]) if found else ""


def _info(attributes: str) -> str:
    """Return the info string of a fence, from the language and title attributes of a code block."""
    found = dict(_ATTRIBUTE.findall(attributes))
    named = re.search(r"language-([\w+-]+)", found.get("className", ""))
    language = found.get("language") or (named[1] if named else "")
    return f'{language} title="{found["title"]}"' if found.get("title") else language
