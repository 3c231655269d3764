"""A directory of pages: find and read its files, within size and link limits."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from recto.book.parsing.formats import is_markdown, page_suffixes, read
from recto.book.sources.includes import Includes
from recto.book.sources.navigation import Navigation
from recto.errors import RectoError
from recto.types import Failure, Page

_INDEX_STEMS = ("index", "README", "readme")
_LARGEST_PAGE = 4 << 20  # bytes; far more than any hand-written page has


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file's text; `name` is relative to its directory, `path` to the book; `lines` is as in `Page`."""

    name: str
    path: str
    text: str
    revision: str
    lines: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Skipped:
    """Why a file is not part of the book, such as `draft`."""

    reason: str


class Rules(Protocol):
    """How a kind of site treats the files in a directory."""

    def enters(self, folder: str) -> bool:
        """Return whether a directory may hold pages."""

    def wants(self, name: str) -> bool:
        """Return whether a file is a page."""

    def page(self, written: SourceFile) -> Page | Skipped:
        """Make the page of a file."""

    def module(self, path: str) -> str:
        """Return the module of a page by its path in the book."""

    def navigation(self, names: Sequence[str]) -> Navigation:
        """Return the reading order of pages, which are given in the order of their names."""


@dataclass(frozen=True, slots=True)
class PageDirectory:
    """A directory and its rules.

    `below` limits it to a subdirectory or a file. Files in `translated` replace those of the same name.
    Symbolic links may not leave `bounds`. `prefix` is put before all names. `includes` inserts included
    files.
    """

    root: Path
    rules: Rules
    below: str = ""
    prefix: str = ""
    translated: Path | None = None
    bounds: Path | None = None
    includes: Includes | None = None
    refused: list[Failure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def names(self) -> list[str]:
        """Return the pages in the order of their names; record those that cannot be read in `refused`."""
        start = self.root / self.below if self.below else self.root
        if start.is_file():
            return [
                name
                for name in [self.below or start.name]
                if self.rules.wants(name) and self._acceptable(name)
            ]
        return sorted(self._walk(start))

    def index_title(self, folder: str) -> str:
        """Return the title of a directory's index page, or ""."""
        for name in (_joined(folder, stem + suffix) for stem in _INDEX_STEMS for suffix in page_suffixes()):
            if self.rules.wants(name) and is_file(self.file(name)) and not self._reason(self.file(name)):
                page = self.read(name)
                return _title(page) if isinstance(page, Page) else ""
        return ""

    def _walk(self, start: Path) -> Iterator[str]:
        def unreadable(error: OSError) -> None:
            folder = self._name(Path(os.fsdecode(error.filename)))
            self.refused.append(
                Failure(f"{self.prefix}{folder}/" if folder else self.prefix, error.strerror or str(error))
            )

        for folder, names, files in os.walk(start, followlinks=False, onerror=unreadable):
            here = self._name(Path(folder))
            names[:] = [name for name in names if self.rules.enters(_joined(here, name))]
            linked = [_joined(here, name) for name in names if Path(folder, name).is_symlink()]
            self.notes.extend(
                f"{_shown(self.prefix + name)}/ is a link to a directory, and those are not followed."
                for name in linked
            )
            for file in files:
                name = _joined(here, file)
                if self.rules.wants(name) and self._acceptable(name):
                    yield name

    def _name(self, file: Path) -> str:
        name = file.relative_to(self.root).as_posix()
        return "" if name == "." else name

    def _acceptable(self, name: str) -> bool:
        """Return whether a file can be read; if not, record why."""
        if reason := self._reason(self.file(name)):
            self.refused.append(Failure(_shown(self.prefix + name), reason))
        return not reason

    def _reason(self, file: Path) -> str:
        try:
            status = file.stat()
            bounds = self.bounds or self.root
            if file.is_symlink() and not file.resolve().is_relative_to(bounds):
                return "it is a link out of the book"
        except OSError as error:
            return error.strerror or str(error)
        if not stat.S_ISREG(status.st_mode):
            return "it is not a regular file"
        if status.st_size > _LARGEST_PAGE:
            return f"it is larger than {_LARGEST_PAGE >> 20} MiB"
        return ""

    def file(self, name: str) -> Path:
        """Return the file of a page: its translation, if there is one."""
        if self.translated is not None and is_file(self.translated / name):
            return self.translated / name
        return self.root / name

    def read(self, name: str) -> Page | Skipped | Failure:
        """Read a file and make its page."""
        path = f"{self.prefix}{name}"
        try:
            path.encode("utf-8")
            data = self.file(name).read_bytes()
            text = data.decode("utf-8")
        except UnicodeEncodeError:
            return Failure(_shown(path), "its name is not UTF-8")
        except OSError as error:
            return Failure(path, error.strerror or str(error))
        except UnicodeDecodeError as error:
            return Failure(path, f"not UTF-8 (byte {error.start})")
        lines: tuple[int, ...] = ()
        if self.includes and is_markdown(name):
            text, lines = self.includes.expand(path, self.file(name), text)
        return self.rules.page(SourceFile(name, path, text, hashlib.sha256(text.encode()).hexdigest(), lines))


def _title(page: Page) -> str:
    """Return the title that a page states; "" if it cannot be read, which is reported when it is indexed."""
    try:
        return read(replace(page, title="")).title
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


def bounds_of(site: Path, root: Path) -> Path | None:
    """Return the directory that links must stay in; None if `root` is outside the site's project."""
    if root.is_relative_to(site):
        return site
    project = next((folder for folder in site.parents if (folder / ".git").exists()), site.parent)
    return root if root.is_relative_to(project) else None


def _joined(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _shown(name: str) -> str:
    """Return a name that can be printed, with undecodable bytes escaped."""
    return (
        name if name.isprintable() and name.isascii() else name.encode("utf-8", "backslashreplace").decode()
    )
