"""Directories of pages: find their files by patterns, read them within limits, and put them in order."""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
import stat
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from pathlib import Path
from typing import ClassVar

from recto._util.files import read_problem
from recto._util.text import ROOT_MODULE, encodable, short_name
from recto.book.parsing import LARGEST_PAGE, MARKDOWN, MDX, format_of, page_suffixes, read, skip_advice
from recto.book.sources.includes import Includes
from recto.book.sources.options import (
    LARGEST_CONFIG,
    ROOT_TITLE,
    BookFile,
    humanised,
    is_inside,
    local_url,
    title_of,
)
from recto.book.sources.volume import read_volume, volume_format, volume_pages
from recto.errors import RectoError
from recto.types.book import Failure, Page

_HTML = (".html", ".htm")  # often parts of the site itself, such as templates
_INDEX_STEMS = ("index", "README", "readme")
_HEAD = 1 << 16  # characters of an index page in which its title is looked for
_LONGEST_PATTERN = 2_000  # characters; the rest is ignored
_MOST_ALTERNATIVES = 1_000  # of a pattern with braces
_DEEPEST_BRACES = 10
_INNER_BRACES = re.compile(r"\{([^{}]*)\}")

Matches = Callable[[str], bool]
MatchesParts = Callable[[Sequence[str]], bool]


def any_of(patterns: Iterable[str]) -> Matches:
    """Return a function that tells whether a relative path matches one of the globs."""
    globs = [_glob(pattern.removeprefix("./")) for pattern in patterns]
    return lambda name: any(matches(parts) for parts in [name.split("/")] for matches in globs)


def ignored(lines: Iterable[str]) -> Matches:
    """Return a function that tells whether the lines of a `.gitignore` ignore a file."""
    rules: list[tuple[bool, bool, MatchesParts]] = []
    for line in map(str.strip, lines):
        if line and not line.startswith("#"):
            pattern = line.removeprefix("!").removeprefix("\\").rstrip("/")
            glob = pattern.lstrip("/") if "/" in pattern else f"**/{pattern}"
            rules.append((line.startswith("!"), line.endswith("/"), _glob(glob, braces=False)))

    def matches(name: str) -> bool:
        parts = name.split("/")
        folders = [parts[:end] for end in range(1, len(parts))]
        for negated, folders_only, fits in reversed(rules):
            if any(map(fits, folders)) or (not folders_only and fits(parts)):
                return not negated
        return False

    return matches


def _glob(pattern: str, *, braces: bool = True) -> MatchesParts:
    """Compile a glob with `**`, `*`, `?`, `[…]` and `{a,b}`; matching takes linear time.

    A site's configuration states the patterns, so they may be hostile. Each part between slashes becomes a
    regular expression of `fnmatch`, which never goes back to an earlier star.
    """
    pattern = pattern[:_LONGEST_PATTERN].replace("[^", "[!")
    expanded = _expand_braces(pattern) if braces else [pattern]
    globs = [_compiled(alternative) for alternative in expanded]
    return lambda parts: any(_parts_match(glob, parts) for glob in globs)


def _compiled(pattern: str) -> list[re.Pattern[str] | None]:
    """Translate the parts of a glob; None is `**`, which stands for at least one part at the end."""
    parts = pattern.split("/")
    parts += ["*"] * (parts[-1] == "**")
    kept = [part for part, before in zip(parts, ["", *parts], strict=False) if part != "**" or before != "**"]
    return [None if part == "**" else re.compile(fnmatch.translate(part)) for part in kept]


def _parts_match(pattern: Sequence[re.Pattern[str] | None], parts: Sequence[str]) -> bool:
    """Follow all places in the pattern that the path can have reached, part by part."""
    places = {0}
    for name in parts:
        reached = set()
        for place in places:
            here = place
            if here < len(pattern) and pattern[here] is None:
                reached.add(here)  # `**` takes the part, or none
                here += 1
            part = pattern[here] if here < len(pattern) else None
            if part is not None and part.match(name):
                reached.add(here + 1)
        places = reached
    return len(pattern) in places


def _expand_braces(pattern: str) -> list[str]:
    """Expand the braces of a glob, innermost first; too many alternatives or levels have no meaning."""
    expanded = [pattern]
    for _ in range(_DEEPEST_BRACES):
        alternatives: dict[str, None] = {}  # a set that keeps their order
        for alternative in expanded:
            # Text and the content of braces in turn: "a{b,c}d" is split into "a", "b,c" and "d".
            parts = _INNER_BRACES.split(alternative)
            choices = [part.split(",") if index % 2 else [part] for index, part in enumerate(parts)]
            if len(alternatives) + prod(map(len, choices)) > _MOST_ALTERNATIVES:
                return [pattern]
            alternatives |= dict.fromkeys(map("".join, product(*choices)))
        if list(alternatives) == expanded:
            return expanded
        expanded = list(alternatives)
    return [pattern]


@dataclass(frozen=True, slots=True)
class Navigation:
    """The reading order of a site.

    `pages` are all pages in the usual order; `sections` has the titles of the sections above each page that
    the navigation lists, outermost first, in its own order.
    """

    pages: Sequence[str]
    sections: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """All pages in reading order: those that the navigation does not list come last.

        It may list a directory, such as `guide/`; its other pages come there.
        """
        there = set(self.pages)
        names: dict[str, None] = {}
        for entry in self.sections:
            if entry in there:
                names[entry] = None
            elif entry.endswith("/"):
                below = (name for name in self.pages if name.startswith(entry))
                names |= dict.fromkeys(name for name in below if name not in self.sections)
        return [*names, *(name for name in self.pages if name not in names)]


class SiteRules(ABC):
    """How a kind of site treats the files in a directory: the base of the rules of each kind."""

    def __init__(self, book: str, book_file: BookFile) -> None:
        self.book = book
        self.book_file = book_file

    @abstractmethod
    def enters(self, folder: str) -> bool:
        """Return whether a directory may hold pages."""

    @abstractmethod
    def wants(self, name: str) -> bool:
        """Return whether a file is a page."""

    def is_unlisted(self, name: str) -> bool:  # noqa: ARG002
        """Return whether a file would be a page if the navigation listed it."""
        return False

    @abstractmethod
    def page(self, name: str, page: Page) -> Page | str:
        """Complete the page of a file, which has a local URL; return why it is left out, such as `draft`."""

    def parts(self, page: Page) -> Iterable[Page]:
        """Return the pages that the page of a file is published as."""
        return (page,)

    def expands(self, name: str) -> bool:
        """Return whether included files are inserted into a page."""
        return format_of(name) in (MARKDOWN, MDX)

    def label(self, folder: str) -> str:  # noqa: ARG002
        """Return the title that a top directory states, or ""."""
        return ""

    def navigation(self, names: Sequence[str]) -> Navigation:
        """Return the reading order of pages, which are given in the order of their names."""
        return Navigation(names)


class Generator(ABC):
    """A generator of sites: how it is recognised, and which options of an index run it knows."""

    generator: ClassVar[str]
    config_files: ClassVar[tuple[str, ...]]
    signature: ClassVar[str] = ""
    """A regular expression for a configuration, if other programs use files of the same name."""
    options: tuple[str, ...] = ()
    """The options besides the usual ones that have an effect."""
    title: str
    logo: str
    notes: Sequence[str]
    versions: Sequence[tuple[str, bool]] = ()
    """The versions that are read, if there are several, each with whether it is current."""
    locales: Sequence[str] = ()
    """The locales that are read, if there are several."""

    @abstractmethod
    def __init__(self, config_file: Path, book_file: BookFile, book: str) -> None:
        """Read the configuration of a site."""

    @classmethod
    def recognises(cls, config_file: Path) -> bool:
        """Return whether a file with the name of a configuration is one."""
        if not cls.signature:
            return True
        try:
            with config_file.open("rb") as file:
                text = file.read(LARGEST_CONFIG).decode("utf-8", "replace")
        except OSError:
            return False
        return re.search(cls.signature, text, re.MULTILINE) is not None

    @abstractmethod
    def directories(self, path: Path) -> list[PageDirectory]:
        """Return the directories of pages: all of the site, or the one that holds `path`, limited to it."""


@dataclass(frozen=True, slots=True)
class PageDirectory:
    """A directory and its rules.

    `below` limits it to a subdirectory or a file. A file in `translated` replaces the file of the same name;
    with `only_translated`, there are no other pages.
    All files must be inside `bounds` after links are resolved. `prefix` is put before all names. `includes`
    inserts included files.
    """

    root: Path
    rules: SiteRules
    bounds: Path
    below: str = ""
    prefix: str = ""
    translated: Path | None = None
    only_translated: bool = False
    includes: Includes | None = None
    refused: list[Failure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unread: Counter[str] = field(default_factory=Counter)
    """The number of documents that no reader reads, by their suffix."""
    unlisted: list[str] = field(default_factory=list)
    """The files that would be pages if the navigation listed them."""

    def names(self) -> list[str]:
        """Return the pages in the order of their names; record those that cannot be read in `refused`."""
        start = self.root / self.below if self.below else self.root
        names = [self.below or start.name] if start.is_file() else self._walk(start)
        pages: list[str] = []
        for name in names:
            if self.rules.is_unlisted(name):
                self.unlisted.append(name)
            if not self.rules.wants(name):
                suffix, format = Path(name).suffix.lower(), format_of(name)
                is_page = format is not None and not (format.common or self.rules.expands(name))
                self.unread[suffix] += is_page or (suffix not in _HTML and bool(skip_advice(suffix)))
            elif self.only_translated and self.file(name) == self.root / name:
                continue
            elif self._is_readable(name):
                pages.append(name)
        return sorted(pages)

    def _walk(self, start: Path) -> Iterator[str]:
        """Yield the files in a directory; links to directories are not followed."""

        def unreadable(error: OSError) -> None:
            folder = self._name(Path(os.fsdecode(error.filename)))
            self.refused.append(Failure(self.prefix + folder, read_problem(error)))

        for folder, names, files in os.walk(start, followlinks=False, onerror=unreadable):
            here = self._name(Path(folder))
            names[:] = [name for name in names if self.rules.enters(here + name)]
            for link in (name for name in names if Path(folder, name).is_symlink()):
                name = _printable(self.prefix + here + link)
                self.notes.append(f"{name}/ is a symbolic link to a directory; such links are not followed.")
            yield from (here + name for name in files)

    def _name(self, folder: Path) -> str:
        """Return the name of a directory with a slash at its end; "" for the root."""
        name = folder.relative_to(self.root).as_posix()
        return "" if name == "." else f"{name}/"

    def _is_readable(self, name: str) -> bool:
        """Return whether a file can be read; if not, record why."""
        if reason := self._reason(self.file(name)):
            self.refused.append(Failure(_printable(self.prefix + name), reason))
        return not reason

    def _reason(self, file: Path) -> str:
        try:
            status = file.stat()
            if not is_inside(file, self.bounds):
                return "it is a symbolic link that leaves the book"
        except OSError as error:
            return read_problem(error)
        if not stat.S_ISREG(status.st_mode):
            return "it is not a regular file"
        format = format_of(file.name)
        largest = format.largest if format else LARGEST_PAGE
        if status.st_size <= largest:
            return ""
        size, limit = status.st_size / (1 << 20), largest >> 20
        return f"it has {size:.1f} MiB, and the limit is {limit} MiB (split it into several pages)"

    def file(self, name: str) -> Path:
        """Return the file of a page: its translation, if there is one."""
        if self.translated is not None and is_file(self.translated / name):
            return self.translated / name
        return self.root / name

    def pages(self, name: str) -> Iterator[Page | str | Failure]:
        """Read a file and make its pages; a file such as an EPUB has many."""
        format = volume_format(name)
        if format is None:
            page = self.read(name)
            yield from self.rules.parts(page) if isinstance(page, Page) else (page,)
            return
        path = f"{self.prefix}{name}"
        keys = self.rules.book_file.module_keys(path)
        whole = self.rules.page(name, Page(path, local_url(path), "", keys[0], keys, "", ""))
        volume = read_volume(self.file(name), format) if isinstance(whole, Page) else whole
        if isinstance(whole, str):
            yield whole
        elif isinstance(volume, str):
            yield Failure(f"{path}/", volume)
        else:
            self.notes.extend(f"{path}: {note}" for note in volume.notes)
            url = "" if whole.url == local_url(path) else f"{whole.url.rstrip('/')}{Path(name).suffix}"
            for page in volume_pages(volume, path, format, url):
                yield replace(page, module=keys[0], module_keys=keys)

    def read(self, name: str) -> Page | str | Failure:
        """Read a file and make its page; a text says why the site leaves it out."""
        path = f"{self.prefix}{name}"
        try:
            path.encode("utf-8")
            text = self.file(name).read_bytes().decode("utf-8")
        except UnicodeEncodeError:
            return Failure(_printable(path), "its name is not UTF-8")
        except OSError as error:
            return Failure(path, read_problem(error))
        except UnicodeDecodeError as error:
            return Failure(path, f"not UTF-8 (byte {error.start})")
        lines: tuple[int, ...] = ()
        if self.includes and self.rules.expands(name):
            text, lines = self.includes.expand(path, self.file(name), text)
        text = encodable(text)  # configurations and code in an included file may state lone surrogates
        keys = self.rules.book_file.module_keys(path)
        title, revision = title_of(name, self.rules.book), hashlib.sha256(text.encode()).hexdigest()
        page = Page(path, local_url(path), title, keys[0], keys, text, revision, lines=lines)
        try:
            return self.rules.page(name, page)
        except Exception as error:  # noqa: BLE001 - whatever a page states, the others are still read
            reason = f"{type(error).__name__}: {str(error)[:200]}"
            return Failure(path, f"its front matter cannot be used ({reason})")

    def index_title(self, folder: str) -> str:
        """Return the title of a directory's index page, or ""."""
        below = f"{folder}/" if folder else ""
        for name in (below + stem + suffix for stem in _INDEX_STEMS for suffix in page_suffixes()):
            if self.rules.wants(name) and is_file(self.file(name)) and not self._reason(self.file(name)):
                page = self.read(name)
                return _title(page) if isinstance(page, Page) else ""
        return ""


def _title(page: Page) -> str:
    """Return the title that a page states; "" if it cannot be read, which is reported when it is indexed."""
    is_whole = page.path.endswith((".ipynb", *_HTML))  # these formats cannot be cut
    try:
        return read(replace(page, title="", text=page.text if is_whole else page.text[:_HEAD])).title
    except RectoError:
        raise
    except Exception:  # noqa: BLE001 - a reader may raise anything
        return ""


def is_file(path: Path) -> bool:
    """Return whether a path is a file that can be accessed."""
    try:
        return path.is_file()
    except OSError:
        return False


def _printable(name: str) -> str:
    """Return a name that can be printed, with undecodable bytes escaped."""
    plain = name.isprintable() and name.isascii()
    return name if plain else name.encode("utf-8", "backslashreplace").decode()


def module_titles(directories: Sequence[tuple[PageDirectory, Navigation]]) -> dict[str, str]:
    """Return the title of each module.

    It is the label of the module's directory, else the navigation section that holds its pages, else the
    title of the directory's index page, else the directory's name.
    """
    sections = _section_titles(directories)
    titles: dict[str, str] = {}
    for directory, navigation in directories:
        book_file, root_title = directory.rules.book_file, ROOT_TITLE
        if book_file.module_root and not any(map(book_file.module_directory, navigation.names)):
            root_title = humanised(directory.rules.book)
        for name in navigation.names:
            module = book_file.module_keys(directory.prefix + name)[0]
            if titles.get(module):
                continue
            top = book_file.module_directory(name)
            is_own = not directory.prefix and module == (short_name(top) if top else ROOT_MODULE)
            label = directory.rules.label(top) if is_own and top else ""
            folder = f"{book_file.edition}{book_file.module_root}{top}".rstrip("/")
            title = label or sections.get(module, "") or (directory.index_title(folder) if is_own else "")
            titles[module] = title or (root_title if is_own and not top else humanised(module))
    return titles


def _section_titles(directories: Sequence[tuple[PageDirectory, Navigation]]) -> dict[str, str]:
    """Return the outermost section that holds most of a module's pages, or all of them if it is nested.

    No two modules share a section. The root module comes last, because its pages belong to many sections.
    """
    totals: Counter[str] = Counter()
    held: defaultdict[str, Counter[tuple[str, ...]]] = defaultdict(Counter)
    for directory, navigation in directories:
        for name, sections in navigation.sections.items():
            module = directory.rules.book_file.module_keys(directory.prefix + name)[0]
            totals[module] += 1
            held[module].update(sections[: depth + 1] for depth in range(len(sections)))
    most = {
        module: [
            path
            for path, count in counts.items()
            if (count == totals[module] if len(path) > 1 else 2 * count > totals[module])
        ]
        for module, counts in held.items()
    }
    owners = Counter(path for module, paths in most.items() for path in paths if module != ROOT_MODULE)
    titles = {}
    for module, paths in most.items():
        candidates = [path for path in paths if owners[path] == (module != ROOT_MODULE)]
        if candidates:
            titles[module] = min(candidates, key=len)[-1]
    return titles
