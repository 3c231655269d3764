"""The pages of one instance of the Docusaurus docs plugin, in one version and language."""

from __future__ import annotations

import json
import math
import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from recto.book.parsing.formats import MARKDOWN, MDX, format_of
from recto.book.parsing.frontmatter import load_mapping, split_front_matter, stated
from recto.book.sources.directory import Skipped, SourceFile
from recto.book.sources.docusaurus.config import Docs, SidebarItem
from recto.book.sources.globs import any_of
from recto.book.sources.navigation import Navigation, by_navigation
from recto.book.sources.options import BookFile, local_url, page_modules, title_of
from recto.types import Page

_DATE_OR_VERSION = re.compile(r"[0-9]+[-_.][0-9]+")
_NUMBERED = re.compile(r"[0-9]+\s*[-_.]+\s*([^-_.\s].*)", re.DOTALL)
_NOT_ENCODED = ";/?:@&=+$,#-_.!~*'()"  # as encodeURI


def without_number(name: str) -> str:
    """Drop a number prefix from a name; dates and versions stay."""
    if _DATE_OR_VERSION.match(name):
        return name
    found = _NUMBERED.fullmatch(name)
    return found[1] if found else name


def number_of(name: str) -> float | None:
    """Return the number prefix of a name, or None."""
    return None if without_number(name) == name else float(re.split(r"\D", name, maxsplit=1)[0])


def slug(name: str, front_matter: dict[str, Any], *, numbered: bool = True) -> str:
    """Return the path of a page relative to its docs, with a leading slash."""
    own = stated(front_matter, "slug")
    if own and own.startswith("/"):
        return own
    numbered = numbered and front_matter.get("parse_number_prefixes") is not False
    directory, file = posixpath.split(name)
    stem = file.rpartition(".")[0]
    parts = [without_number(part) if numbered else part for part in directory.split("/")] if directory else []
    folder = "/".join(["", *parts, ""])
    if not own and stem.lower() in ("index", "readme", directory.rpartition("/")[2].lower() or "."):
        return folder
    return _resolved(
        own or stated(front_matter, "id") or (without_number(stem) if numbered else stem), folder
    )


def _resolved(path: str, folder: str) -> str:
    """Resolve a relative path as a browser does; it never leaves the root."""
    parts: list[str] = []
    pieces = [*folder.strip("/").split("/"), *path.split("/")]
    for piece in pieces:
        if piece == "..":
            parts[-1:] = []
        elif piece not in (".", ""):
            parts.append(piece)
    slash = "/" if parts and pieces[-1] in (".", "..", "") else ""
    return f"/{'/'.join(parts)}{slash}"


def join(*parts: str) -> str:
    """Join parts of a URL path with single slashes."""
    return re.sub(r"/+", "/", "/".join(("", *(part for part in parts if part))))


def with_slash(path: str, base: str, trailing: bool | None) -> str:
    """Apply the site's rule for trailing slashes; the root keeps its own."""
    if trailing is None or path in ("/", base):
        return path
    return path if trailing and path.endswith("/") else f"{path}/" if trailing else path.removesuffix("/")


def encoded(path: str) -> str:
    """Return a URL path, percent-encoded as a browser does."""
    return quote(path, safe=_NOT_ENCODED)


_CATEGORY_FILES = ("_category_.json", "_category_.yml", "_category_.yaml")
_LARGEST_LABEL = 1 << 16
_HEAD = 1 << 14  # bytes of a page that are searched for front matter


@dataclass(frozen=True, slots=True)
class Published:
    """Where pages are published: `base` is the URL path of the language, `route` that of the version."""

    url: str
    base: str
    locale: str
    slash: bool | None
    format: str
    route: str = "/"
    version: str = ""


class DocsRules:
    """The rules of one instance of the docs plugin, in one version and language."""

    def __init__(
        self,
        docs: Docs,
        published: Published,
        book: str,
        book_file: BookFile,
        folders: tuple[Path, ...],
        sidebar: Sequence[SidebarItem] = (),
    ) -> None:
        self._docs = docs
        self._published = published
        self._book = book
        self._book_file = book_file
        self._folders = folders
        self._sidebar = sidebar
        self._categories: dict[str, dict[str, Any]] = {}
        self._included = any_of(docs.include)
        self._excluded = any_of((*docs.exclude, *book_file.exclude))

    def enters(self, folder: str) -> bool:
        """Return whether a directory may hold pages."""
        return not folder.rpartition("/")[2].startswith(".") and not self._excluded(f"{folder}/ ")

    def wants(self, name: str) -> bool:
        """Return whether a file is a page."""
        hidden = name.rpartition("/")[2].startswith(".")
        return (
            not hidden and format_of(name) is not None and self._included(name) and not self._excluded(name)
        )

    def page(self, file: SourceFile) -> Page | Skipped:
        """Make the page of a file; skip drafts and unlisted pages."""
        front_matter = split_front_matter(file.text)[0]
        for reason in ("draft", "unlisted"):
            if front_matter.get(reason) is True:
                return Skipped(reason)
        keys = page_modules(file.path, self._book_file, self._top_labels(file.name))
        return Page(
            path=file.path,
            url=self._url(file.name, front_matter) if self._published.url else local_url(file.path),
            title=title_of(file.name, self._book),
            module=keys[0],
            module_keys=keys,
            text=file.text,
            revision=file.revision,
            format=self._format(file.name, front_matter),
            version=self._published.version,
            locale=self._published.locale,
            lines=file.lines,
        )

    def _url(self, name: str, front_matter: dict[str, Any]) -> str:
        place = self._published
        path = join(place.route, slug(name, front_matter, numbered=self._docs.numbered))
        return place.url + encoded(with_slash(path, place.base, place.slash))

    def _format(self, name: str, front_matter: dict[str, Any]) -> str:
        by_suffix = format_of(name) or MDX
        if by_suffix not in (MARKDOWN, MDX):
            return by_suffix.name
        own = front_matter.get("mdx")
        chosen = own.get("format") if isinstance(own, dict) else None
        chosen = chosen if chosen in ("md", "mdx", "detect") else self._published.format
        return (by_suffix if chosen == "detect" else MARKDOWN if chosen == "md" else MDX).name

    def _top_labels(self, name: str) -> tuple[str, ...]:
        """Return the sidebar label of a page's top directory."""
        label = self._label(name.split("/", maxsplit=1)[0]) if "/" in name else ""
        return (label,) if label else ()

    def _label(self, folder: str) -> str:
        label = self._category(folder).get("label")
        return label if isinstance(label, str) else ""

    def _category(self, folder: str) -> dict[str, Any]:
        """Return the content of a directory's category file."""
        if folder not in self._categories:
            self._categories[folder] = self._read_category(folder)
        return self._categories[folder]

    def _read_category(self, name: str) -> dict[str, Any]:
        for file in (folder / name / file for folder in self._folders for file in _CATEGORY_FILES):
            try:
                if file.is_file() and file.stat().st_size <= _LARGEST_LABEL:
                    text = file.read_text("utf-8")
                    values = json.loads(text) if file.suffix == ".json" else load_mapping(text)
                    return values if isinstance(values, dict) else {}
            except (OSError, ValueError, RecursionError):  # the label is optional
                continue
        return {}

    def module(self, path: str) -> str:
        """Return the module of a page by its path in the book."""
        return page_modules(path, self._book_file)[0]

    def navigation(self, names: Sequence[str]) -> Navigation:
        """Order pages as the sidebar does: as listed, or by positions, number prefixes and names."""
        heads = {name: self._head(name) for name in names}
        ordered = sorted(names, key=lambda name: self._place(name, heads[name]))
        ids = {name.rpartition(".")[0]: name for name in ordered} | {
            self._id(name, heads[name]): name for name in ordered
        }
        listed: dict[str, tuple[str, ...]] = {}
        for item in self._sidebar:
            if not item.directory:
                listed.setdefault(ids.get(item.target, item.target), item.sections)
                continue
            below = f"{item.target}/" if item.target else ""
            for name in ordered:
                if name.startswith(below):
                    listed.setdefault(name, item.sections)
        labels = {
            top: self._label(top)
            for top in dict.fromkeys(name.split("/")[0] for name in names if "/" in name)
        }
        return Navigation(by_navigation(ordered, listed), listed, labels)

    def _head(self, name: str) -> dict[str, Any]:
        """Return the front matter of a page if it may state a position or an id."""
        for folder in self._folders:
            try:
                with (folder / name).open("rb") as file:
                    head = file.read(_HEAD).decode("utf-8", "replace")
            except OSError:
                continue
            return split_front_matter(head)[0] if "sidebar_position" in head or "id:" in head else {}
        return {}

    def _id(self, name: str, head: dict[str, Any]) -> str:
        *folders, file = name.rpartition(".")[0].split("/")
        parts = (
            [without_number(part) for part in (*folders, file)] if self._docs.numbered else [*folders, file]
        )
        return "/".join([*parts[:-1], stated(head, "id") or parts[-1]])

    def _place(self, name: str, head: dict[str, Any]) -> list[tuple[float, str]]:
        """Return the sort key of a page: position and name of each directory above it and of itself."""
        *folders, file = name.split("/")
        stem = file.rpartition(".")[0]
        places = [
            (_position(self._category("/".join(folders[: depth + 1])).get("position"), folder), folder)
            for depth, folder in enumerate(folders)
        ]
        index = bool(folders) and stem.lower() in ("index", "readme", folders[-1].lower())
        return [*places, (-math.inf, "") if index else (_position(head.get("sidebar_position"), stem), stem)]


def _position(stated_position: object, name: str) -> float:
    if isinstance(stated_position, int | float) and not isinstance(stated_position, bool):
        return float(stated_position)
    number = number_of(name)
    return math.inf if number is None else number
