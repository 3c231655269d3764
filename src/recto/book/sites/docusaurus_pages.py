"""The pages of one instance of the Docusaurus docs plugin, in one version and language."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recto.book.bookfile import BookFile
from recto.book.frontmatter import load_mapping, split_front_matter
from recto.book.naming import local_url, page_modules, title_of
from recto.book.shelf import LeftOut, Written
from recto.book.sites.docusaurus_config import Docs
from recto.book.sites.globs import any_of
from recto.book.sites.routes import encoded, join, slug, with_slash
from recto.types import Page, PageFormat

_CATEGORY_FILES = ("_category_.json", "_category_.yml", "_category_.yaml")
_LARGEST_LABEL = 1 << 16


@dataclass(frozen=True, slots=True)
class Published:
    """Where pages are published: `base` is the path of the site in one language, `route` that of one instance's version in it."""

    url: str
    base: str
    locale: str
    slash: bool | None
    format: str
    route: str = "/"
    version: str = ""


class DocsRules:
    """The rules of one instance of the docs plugin, in one version and language."""

    def __init__(self, docs: Docs, published: Published, book: str, book_file: BookFile, folders: tuple[Path, ...]) -> None:
        self._docs = docs
        self._published = published
        self._book = book
        self._book_file = book_file
        self._folders = folders
        self._labels: dict[str, tuple[str, ...]] = {}
        self._included = any_of(docs.include)
        self._excluded = any_of((*docs.exclude, *book_file.exclude))

    def enters(self, folder: str) -> bool:
        """Whether there may be pages below a directory."""
        return not folder.rpartition("/")[2].startswith(".") and not self._excluded(f"{folder}/ ")

    def wants(self, name: str) -> bool:
        """Whether a file is a page."""
        hidden = name.rpartition("/")[2].startswith(".")
        return not hidden and name.endswith((".md", ".mdx")) and self._included(name) and not self._excluded(name)

    def page(self, written: Written) -> Page | LeftOut:
        """Make the page of a file; drafts are not published, and what is unlisted is not meant to be found."""
        front_matter = split_front_matter(written.text)[0]
        for reason in ("draft", "unlisted"):
            if front_matter.get(reason) is True:
                return LeftOut(reason)
        keys = page_modules(written.path, self._book_file, self._top_labels(written.name))
        return Page(
            path=written.path,
            url=self._url(written.name, front_matter) if self._published.url else local_url(written.path),
            title=title_of(written.name, self._book),
            module=keys[0],
            module_keys=keys,
            text=written.text,
            revision=written.revision,
            format=self._format(written.name, front_matter),
            version=self._published.version,
            locale=self._published.locale,
            lines=written.lines,
        )

    def _url(self, name: str, front_matter: dict[str, Any]) -> str:
        place = self._published
        path = join(place.route, slug(name, front_matter, numbered=self._docs.numbered))
        return place.url + encoded(with_slash(path, place.base, place.slash))

    def _format(self, name: str, front_matter: dict[str, Any]) -> PageFormat:
        own = front_matter.get("mdx")
        chosen = own.get("format") if isinstance(own, dict) else None
        chosen = chosen if chosen in ("md", "mdx", "detect") else self._published.format
        if chosen == "detect":
            return "markdown" if name.endswith(".md") else "mdx"
        return "markdown" if chosen == "md" else "mdx"

    def _top_labels(self, name: str) -> tuple[str, ...]:
        """Return the label that a page's top directory has in the sidebar."""
        top = name.split("/", maxsplit=1)[0] if "/" in name else ""
        if top and top not in self._labels:
            self._labels[top] = tuple(label for label in [self._label(top)] if label)
        return self._labels.get(top, ())

    def _label(self, top: str) -> str:
        for file in (folder / top / name for folder in self._folders for name in _CATEGORY_FILES):
            try:
                if file.is_file() and file.stat().st_size <= _LARGEST_LABEL:
                    text = file.read_text("utf-8")
                    label = (json.loads(text) if file.suffix == ".json" else load_mapping(text)).get("label")
                    return label if isinstance(label, str) else ""
            except (OSError, ValueError, AttributeError, RecursionError):  # a label is a convenience; the page is read without it
                continue
        return ""
