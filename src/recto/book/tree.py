"""A book on disk: a tree of Markdown or MDX files, Docusaurus or plain."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from recto.errors import InvalidArgument
from recto.modules import ROOT_MODULE, module_keys
from recto.types import Page

_EXTENSIONS = (".md", ".mdx")
_SKIPPED = frozenset({"node_modules", "build", "dist", "target", "__pycache__", "venv"})
_SITE_FILES = tuple(f"docusaurus.config.{extension}" for extension in ("js", "ts", "mjs", "cjs", "mts", "cts"))
_INDEX_PAGES = frozenset({"index", "readme"})
_GENERIC_NAMES = frozenset({"docs", "doc", "book", "content", "src", "site", "website", "pages"})
_ADDRESS = "local://docs/docs"


class MarkdownTree:
    """Yields the pages below a directory, in the order of their paths."""

    def __init__(self, path: Path, book: str = "") -> None:
        """Find the pages' root: the directory itself, or `docs` within a site."""
        if not path.exists():
            raise InvalidArgument(f"{path} does not exist", hint="Give the directory that holds the book's Markdown files.")
        path = path.resolve()
        if path.is_file():
            self._root, self._files = path.parent, [path]
        else:
            site = any((path / name).is_file() for name in _SITE_FILES)
            self._root = path / "docs" if site and (path / "docs").is_dir() else path
            self._files = sorted(_walk(self._root), key=lambda file: file.relative_to(self._root).as_posix())
        self._mdx = any((folder / name).is_file() for folder in (self._root, self._root.parent) for name in _SITE_FILES)
        self._book = book or _book_name(self._root)
        self._failed: list[str] = []
        if not self._files:
            raise InvalidArgument(
                f"There is no .md or .mdx file in {self._root}", hint="Give the directory that holds the book's Markdown files."
            )

    @property
    def book(self) -> str:
        """The book's name: that of its directory."""
        return self._book

    @property
    def location(self) -> str:
        """The directory."""
        return str(self._root)

    @property
    def failed(self) -> list[str]:
        """One sentence for each page that could not be read."""
        return self._failed

    def __len__(self) -> int:
        """How many files there are."""
        return len(self._files)

    def pages(self) -> Iterator[Page]:
        """Yield each page; one that cannot be read is noted and left out."""
        self._failed.clear()
        for file in self._files:
            name = file.relative_to(self._root).as_posix()
            try:
                data = file.read_bytes()
                text = data.decode("utf-8")
            except OSError as error:
                self._failed.append(f"{name}: {error.strerror or error}")
                continue
            except UnicodeDecodeError as error:
                self._failed.append(f"{name}: not UTF-8 (byte {error.start})")
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
            markdown=text,
            revision=revision,
            mdx=self._mdx or extension == "mdx",
        )


def _walk(root: Path) -> Iterator[Path]:
    """Yield the files that are pages: no hidden ones, no partials, nothing that a build made, no links out of the tree."""
    for folder, names, files in os.walk(root, followlinks=False):
        names[:] = [name for name in names if name not in _SKIPPED and not name.startswith((".", "_"))]
        for name in files:
            if name.endswith(_EXTENSIONS) and not name.startswith((".", "_")):
                yield Path(folder, name)


def _book_name(root: Path) -> str:
    """Return the nearest name that says more than `docs`."""
    for folder in (root, *root.parents):
        if folder.name and folder.name.lower() not in _GENERIC_NAMES:
            return folder.name
    return root.name or "book"
