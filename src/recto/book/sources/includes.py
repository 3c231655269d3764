"""Included files: insert their text where a page includes them, without running anything.

A finder of each generator lists the directives of a text. `Includes` reads the files, inside the repository
only, and counts those that it cannot read. A directive that does not resolve is removed, or left to the
Markdown reader.
"""

from __future__ import annotations

import os
import re
import stat
import textwrap
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from recto._util.markdown import code_fences
from recto._util.text import plural
from recto.book.parsing import MARKDOWN, MDX
from recto.book.parsing.frontmatter import split_front_matter
from recto.book.parsing.markdown.tags import TagReader
from recto.book.sources.options import is_inside

_DEEPEST = 10  # files within files
_LARGEST_FILE = 1 << 20  # bytes
_LARGEST_ADDED = 1 << 20  # characters that included files may add to a page
_LARGEST_WRITTEN = 4 << 20  # characters of what replaces directives, also in included files
_LARGEST_READ = 8 << 20  # characters of files that are searched for the parts that a page includes
_READ_CHARGE = 1 << 12  # characters that each file adds to its own, to limit the number of missing ones
_CHARGE = 64  # characters that each included file adds to its own, to limit the number of empty ones
_SHOWN = 5  # unresolved files in a note
_FAR = 1_000  # characters that are searched for the start and end of a line
_CONTAINER = re.compile(
    r"^(?P<prefix>[ \t>]*+):{3,}+[ \t]*+(?:(?P<kind>[A-Za-z][\w-]*+)?"
    r"(?:\[(?P<label>(?:[^\[\]\n]++|\[[^\[\]\n]*+\])*+)\])?"
    r"(?:[ \t]++(?P<title>[^\n{]*+))?(?:\{[^\n]*\})?)[ \t:]*+$",
    re.MULTILINE,
)
_SILENT = ("raw", "v-pre", "details", "code-group", "group", "div")  # containers that show no name
_PREFIX = re.compile(r"[ \t>]*")
_NAME = re.compile(r"\w+")
_IMPORTED = re.compile(
    r"^[ \t]*import\b([^'\"\n;]{1,500}?)\bfrom\s+['\"](?:@theme/|@docusaurus/|@astrojs/|astro[:/])",
    re.MULTILINE,
)
COMMENT_START = r"(?://|#|--|%|;|/\*|\{[ \t]*+/\*|<!--)[ \t]*+"
"""Before a comment in code, and what may follow it."""
COMMENT_END = r"[ \t]*+(?:\*/[ \t]*+\}?|-->)"
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
    adds blank lines around. `otherwise` replaces a directive that does not resolve; None leaves it. `new`
    replaces a directive without a path. `computes` names the program or value whose text is not read.
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
    new: str = ""
    computes: str = ""


InCode = Callable[[int], bool]
"""Returns whether a position of a text is in code."""
Finder = Callable[[str, Path], Iterable[Directive]]
"""Returns the directives of a file's text in order, without overlaps."""


class _UnresolvedError(Exception):
    """Why a file is not included."""


class Includes:
    """Expands the pages of one book and records which files were included and which were not."""

    def __init__(self, find: Finder, bounds: Path) -> None:
        """Take the directory that included files must lie in."""
        self._find = find
        self._bounds = bounds
        advice = "which is not in a git repository: run `git init` above it"
        is_repository = (bounds / ".git").exists()
        self._outside = "outside the repository" if is_repository else f"outside {bounds.name}, {advice}"
        self.reset()

    def reset(self) -> None:
        """Reset the counts."""
        self._page = ""
        self._left = self._unread = self._written = 0
        self.resolved = 0
        self.pages = 0
        self.unresolved: list[str] = []
        self.computed: Counter[str] = Counter()
        self.files: dict[Path, tuple[int, int]] = {}
        """The included files with their modification time and size."""

    def expand(self, name: str, file: Path, text: str) -> tuple[str, tuple[int, ...]]:
        """Return a page's text with included files, and the page's line of each line if the text changed."""
        self._page, self._left, self._unread = name, _LARGEST_ADDED, _LARGEST_READ
        self._written = _LARGEST_WRITTEN
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
        if directive.computes:
            self.computed[directive.computes] += 1
        if not directive.path:
            self._written -= len(directive.new)
            return directive.new if self._written >= 0 else None
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
        self._unread -= _READ_CHARGE
        if self._unread < 0:
            raise _UnresolvedError(
                f"the files that the page includes have more than {_LARGEST_READ >> 20} MiB"
            )
        file = self._file(directive)
        if file in stack:
            raise _UnresolvedError("it includes itself")
        if len(stack) > _DEEPEST:
            raise _UnresolvedError(f"more than {_DEEPEST} files deep")
        text: str | None = self._read(file)
        self._unread -= len(text or "")
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
        if "://" in directive.path:
            raise _UnresolvedError("on the web")
        reasons = []
        names = [f"{directive.path}{suffix}" for suffix in directive.suffixes]
        for candidate in (base / name for base in directive.bases for name in names):
            try:
                candidate.lstat()  # resolving the path of a missing file takes much longer
                file = candidate.resolve()
                if not is_inside(file, self._bounds):
                    reasons.append(self._outside)
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


def notes(includes: Sequence[Includes], components: Counter[str]) -> list[str]:
    """Return notes on how many files were included and which were not, and on components without text."""
    resolved = sum(expander.resolved for expander in includes)
    pages = sum(expander.pages for expander in includes)
    unresolved = [line for expander in includes for line in expander.unresolved]
    lines = [f"{plural(resolved, 'included file')} resolved in {plural(pages, 'page')}."] * bool(resolved)
    if unresolved:
        more = f", and {len(unresolved) - _SHOWN} more" if len(unresolved) > _SHOWN else ""
        listed = ", ".join(unresolved[:_SHOWN]) + more
        lines.append(f"{plural(len(unresolved), 'included file')} could not be resolved: {listed}.")
    computed = sum((expander.computed for expander in includes), Counter[str]())
    for said, names, unit in (
        ("Components are not run, so what these show is missing", components, "page"),
        ("Text that the site computes is not read", computed, "place"),
    ):
        listed = ", ".join(f"{name} ({plural(n, unit)})" for name, n in names.most_common(_SHOWN))
        more = f", and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        lines += [f"{said}: {listed}{more}."] if names else []
    return lines


def silent_components(text: str) -> list[str]:
    """Return the components whose text only running code makes; those of the generators show none."""
    silent = list(TagReader().silent(text)) if "/>" in text or "></" in text else []
    if not silent:
        return []
    known = {name for names in _IMPORTED.findall(text) for name in _NAME.findall(names)}
    in_code = code_ranges(text)
    before = {place: text[line_start(text, place) : place] for place, _ in silent}
    shown = (name for place, name in silent if not in_code(place) and before[place].count("`") % 2 == 0)
    return sorted(set(shown) - known)


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


def select_lines(ranges: str, mark: str, *, gap: str = "\n", open_end: bool = False) -> Select:
    """Select lines such as `1-3,5`; with `open_end`, a single number selects everything from that line on."""

    def select(text: str) -> str | None:
        lines, parts, left = text.removesuffix("\n").split("\n"), list[str](), _LARGEST_ADDED
        for span in ranges.split(","):
            first, between, last = span.strip().partition(mark)
            try:
                start = int(first) if first else 1
                end = int(last) if last else len(lines) if between or open_end else start
            except ValueError:
                return None
            start, end = (number + len(lines) + 1 if number < 0 else number for number in (start, end))
            parts.append("\n".join(lines[max(start - 1, 0) : max(end, 0)]))
            left -= len(parts[-1]) + 1
            if left < 0:  # a directive can name the whole file many times
                return None
        return textwrap.dedent(gap.join(parts)) if any(parts) else None

    return select


def select_region(name: str, start: re.Pattern[str], end: re.Pattern[str]) -> Select:
    """Select the lines between the two marks of a region; marks of other regions are left out."""

    def select(text: str) -> str | None:
        lines, inside, seen = list[str](), False, False
        for line in text.split("\n"):
            if mark := end.search(line):
                inside = inside and (mark["name"] or name) != name
            elif mark := start.search(line):
                inside = inside or mark["name"] == name
                seen = seen or inside
            elif inside:
                lines.append(line)
        return textwrap.dedent("\n".join(lines)) if seen else None

    return select


def select_between(start: str, end: str, *, every: bool = False) -> Select | None:
    """Select the text between two marks, one of which may be ""; with `every`, all such texts."""
    if not start and not end:
        return None

    def select(text: str) -> str | None:
        if start not in text or end not in text:
            return None
        after = text.split(start, -1 if every and end else 1)[1:] if start else [text]
        return "".join(part.partition(end)[0] for part in after) if end else after[0]

    return select


def find_containers(text: str) -> list[Directive]:
    """Find the marks of containers, `::: tip Title` and `:::`; the title, else the kind, becomes a line."""
    in_code = code_ranges(text)
    directives = []
    for mark in _CONTAINER.finditer(text):
        if in_code(mark.start()):
            continue
        kind, title = mark["kind"] or "", (mark["label"] or mark["title"] or "").strip()
        label = title or ("" if kind in _SILENT else kind.capitalize())
        new = f"{mark['prefix']}**{label}**\n\n" if label else ""
        directives.append(Directive(mark.start(), min(mark.end() + 1, len(text)), new=new))
    return directives


def in_order(directives: Sequence[Directive]) -> list[Directive]:
    """Sort directives and drop those that overlap an earlier one."""
    kept: list[Directive] = []
    for directive in sorted(directives, key=lambda directive: directive.start):
        if not kept or directive.start >= kept[-1].end:
            kept.append(directive)
    return kept


def whole_line(text: str, start: int, end: int) -> tuple[int, int, str | None]:
    """Return the span of a directive, and its indentation if it is alone on its lines, else None."""
    line, close = line_start(text, start), line_end(text, end)
    prefix = text[line:start]
    if _PREFIX.fullmatch(prefix) and not text[end:close].strip():
        return line, close, prefix
    return start, end, None


def line_start(text: str, position: int) -> int:
    """Return the start of the line of a position, or a position far before it."""
    far = max(position - _FAR, 0)
    return max(text.rfind("\n", far, position) + 1, far)


def line_end(text: str, position: int) -> int:
    """Return the end of the line of a position, or a position far after it."""
    end = text.find("\n", position, position + _FAR)
    return min(len(text), position + _FAR) if end < 0 else end
