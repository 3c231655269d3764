"""A book on disk: a tree of Markdown or MDX files, Docusaurus or plain."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from recto.errors import InvalidArgument
from recto.modules import ROOT_MODULE, module_keys
from recto.types import Failure, Page

_EXTENSIONS = (".md", ".mdx")
_SKIPPED = frozenset({"node_modules", "build", "dist", "target", "__pycache__", "venv"})
_SITE_FILES = tuple(f"docusaurus.config.{extension}" for extension in ("js", "ts", "mjs", "cjs", "mts", "cts"))
_INDEX_PAGES = frozenset({"index", "readme"})
_GENERIC_NAMES = frozenset({"docs", "doc", "book", "content", "src", "site", "website", "pages"})
_ADDRESS = "local://docs/docs"
_LARGEST_PAGE = 4 << 20  # bytes; no page that is written by people comes near it
_WANTED = "Give the directory that holds the book's Markdown files."


class MarkdownTree:
    """Yields the pages below a directory, in the order of their paths."""

    def __init__(self, path: Path, book: str = "") -> None:
        """Find the pages' root: the directory itself, or `docs` within a site."""
        self._refused: list[Failure] = []
        self._failed: list[Failure] = []
        try:
            self._find(path)
        except OSError as error:
            raise InvalidArgument(f"{str(path)[:200]} cannot be read: {error.strerror or error}", hint=_WANTED) from error
        self._mdx = any((folder / name).is_file() for folder in (self._root, self._root.parent) for name in _SITE_FILES)
        self._book = book or _book_name(self._root)
        if not self._files:
            raise InvalidArgument(f"There is no .md or .mdx file in {self._root}", hint="; ".join(map(str, self._refused[:3])) or _WANTED)

    def _find(self, path: Path) -> None:
        """Find the files that are pages, and note those that look like it and are not."""
        if not path.exists():
            raise InvalidArgument(f"{path} does not exist", hint=_WANTED)
        self._location = path = path.resolve()
        if path.is_dir():
            site = any((path / name).is_file() for name in _SITE_FILES)
            self._location = self._root = path / "docs" if site and (path / "docs").is_dir() else path
            self._files = sorted(self._walk(), key=lambda file: file.relative_to(self._root).as_posix())
        else:
            self._root = path.parent
            self._files = [path] if path.suffix.lower() in _EXTENSIONS and not self._reason(path) else []

    def _walk(self) -> Iterator[Path]:
        """Yield the pages: no hidden files, no partials, nothing that a build made."""

        def unreadable(error: OSError) -> None:
            folder = Path(os.fsdecode(error.filename)).relative_to(self._root).as_posix()
            self._refused.append(Failure("" if folder == "." else f"{folder}/", error.strerror or str(error)))

        for folder, names, files in os.walk(self._root, followlinks=False, onerror=unreadable):
            names[:] = [name for name in names if name not in _SKIPPED and not name.startswith((".", "_"))]
            for name in sorted(files):
                file = Path(folder, name)
                if file.suffix.lower() not in _EXTENSIONS or name.startswith((".", "_")):
                    continue
                if reason := self._reason(file):
                    self._refused.append(Failure(_shown(file.relative_to(self._root).as_posix()), reason))
                else:
                    yield file

    def _reason(self, file: Path) -> str:
        """Say why a file is not read, if it is not."""
        try:
            status = file.stat()
        except OSError as error:
            return error.strerror or str(error)
        if not stat.S_ISREG(status.st_mode):
            return "it is not a regular file"
        if status.st_size > _LARGEST_PAGE:
            return f"it is larger than {_LARGEST_PAGE >> 20} MiB"
        if file.is_symlink() and not file.resolve().is_relative_to(self._root):
            return "it is a link out of the book"
        return ""

    @property
    def book(self) -> str:
        """The book's name: that of its directory."""
        return self._book

    @property
    def location(self) -> str:
        """The directory, or the one file."""
        return str(self._location)

    @property
    def failed(self) -> list[Failure]:
        """The pages that could not be read."""
        return self._failed

    @property
    def notes(self) -> list[str]:
        """Nothing to tell of a plain tree."""
        return []

    def __len__(self) -> int:
        """How many files there are."""
        return len(self._files)

    def pages(self) -> Iterator[Page]:
        """Yield each page; one that cannot be read is noted and left out."""
        self._failed[:] = self._refused
        for file in self._files:
            name = file.relative_to(self._root).as_posix()
            try:
                name.encode("utf-8")
                data = file.read_bytes()
                text = data.decode("utf-8")
            except UnicodeEncodeError:
                self._failed.append(Failure(_shown(name), "its name is not UTF-8"))
                continue
            except OSError as error:
                self._failed.append(Failure(name, error.strerror or str(error)))
                continue
            except UnicodeDecodeError as error:
                self._failed.append(Failure(name, f"not UTF-8 (byte {error.start})"))
                continue
            yield self._page(name, text, hashlib.sha256(data).hexdigest())

    def _page(self, name: str, text: str, revision: str) -> Page:
        path, _, extension = name.rpartition(".")
        parts = path.split("/")
        keys = module_keys(parts[0]) if len(parts) > 1 else (ROOT_MODULE,)
        title = parts[-1]
        if title.lower() in _INDEX_PAGES:
            title = parts[-2] if len(parts) > 1 else self._book
            parts = parts[:-1]
        return Page(
            path=name,
            url="/".join((_ADDRESS, *parts)),
            title=title.replace("-", " ").replace("_", " ").strip().capitalize(),
            module=keys[0],
            module_keys=keys,
            text=text,
            revision=revision,
            format="mdx" if self._mdx or extension.lower() == "mdx" else "markdown",
        )


def _shown(name: str) -> str:
    """A name that can be printed: bytes that are no text are escaped."""
    return name if name.isprintable() and name.isascii() else name.encode("utf-8", "backslashreplace").decode()


def _book_name(root: Path) -> str:
    """Return the nearest name that says more than `docs`."""
    for folder in (root, *root.parents):
        if folder.name and folder.name.lower() not in _GENERIC_NAMES:
            return folder.name
    return root.name or "book"
