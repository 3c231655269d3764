"""A directory of built HTML: which files are pages, their addresses, and their order."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from recto._util.files import read_limited
from recto.book.parsing import HTML, LARGEST_PAGE, format_of
from recto.book.parsing.html.tokens import read_head, split_site_name
from recto.book.sources.directory import Navigation, SiteRules, any_of
from recto.book.sources.options import BookFile
from recto.types.book import Page

_HTML_SUFFIXES = (".html", ".htm", ".xhtml")
_NOT_PAGES = frozenset({"404", "search", "genindex", "py-modindex", "print", "toc", "modindex"})
_MOST_FILES = 100_000  # that are looked at to find out whether a directory is a built site


def is_built_site(location: Path) -> bool:
    """Return whether a directory has HTML files, and no page in another format."""
    html, files, has_index = (
        False,
        0,
        any((location / f"index{suffix}").is_file() for suffix in _HTML_SUFFIXES),
    )
    for folder, folders, names in os.walk(location) if location.is_dir() else ():
        folders[:] = [name for name in folders if not name.startswith((".", "_")) and name != "node_modules"]
        for name in names:
            files += 1
            if files > _MOST_FILES:
                return False
            format = format_of(name)
            is_download = has_index and format is not None and format.split is not None
            if format is not None and not is_download and not name.lower().startswith("readme"):
                return False
            html = html or (name.lower().endswith(_HTML_SUFFIXES) and Path(folder, name).is_file())
    return html


class BuiltSiteRules(SiteRules):
    """Rules for HTML files: each is a page, in the order in which the first page links them."""

    def __init__(self, book: str, book_file: BookFile, root: Path) -> None:
        super().__init__(book, book_file)
        self._excluded = any_of(book_file.exclude)
        files = (root / f"index{suffix}" for suffix in _HTML_SUFFIXES)
        index = next((file for file in files if file.is_file()), None)
        try:
            text = read_limited(index, LARGEST_PAGE).decode("utf-8", "replace") if index else ""
        except (OSError, ValueError):
            text = ""
        head = read_head(text)
        links = filter(_is_local, head.links)
        self._links = [posixpath.normpath(unquote(urlsplit(link).path)) for link in links]
        self.title = book_file.options.title or head.site_name or split_site_name(head.title)[0]

    def enters(self, folder: str) -> bool:
        """Return whether a directory may hold pages."""
        return not folder.rpartition("/")[2].startswith((".", "_"))

    def wants(self, name: str) -> bool:
        """Return whether a file is a page."""
        folder, _, file = name.lower().rpartition("/")
        stem, suffix = posixpath.splitext(file)
        stem = folder if stem == "index" else stem  # a site of Sphinx with a directory for each page
        is_page = stem not in _NOT_PAGES and not stem.startswith("genindex-")
        return is_page and suffix in _HTML_SUFFIXES and not self._excluded(name)

    def page(self, name: str, page: Page) -> Page | str:
        """Give a page its published address; leave out redirections."""
        if read_head(page.text).refresh:
            return "redirecting"
        site = self.book_file.options.url.rstrip("/")
        path = name.removesuffix("index.html") if name.rpartition("/")[2] == "index.html" else name
        return replace(page, url=f"{site}/{path}" if site else page.url, format=HTML.name)

    def navigation(self, names: Sequence[str]) -> Navigation:
        """Put the pages in the order of the links of the first page."""
        there = set(names)
        first = [name for name in names if "/" not in name and name.startswith("index.")]
        linked = (name for link in self._links for name in (link, f"{link}/index.html", f"{link}.html"))
        return Navigation(list(dict.fromkeys([*first, *(name for name in linked if name in there), *names])))


def _is_local(link: str) -> bool:
    try:
        parts = urlsplit(link)
    except ValueError:
        return False
    return not parts.scheme and not parts.netloc and bool(parts.path) and not parts.path.startswith("/")
