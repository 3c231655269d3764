"""Plugins of MkDocs that change which pages there are, and their addresses."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from posixpath import normpath
from typing import Any

from recto.book.parsing.frontmatter import split_front_matter, stated
from recto.book.parsing.markdown.headings import slugger
from recto.book.sources.docusaurus.javascript import get
from recto.book.sources.includes import Directive
from recto.book.sources.references import page_title
from recto.book.sources.site import text_of, texts_of

_DATE = re.compile(r"(?P<y>\d{4})-(?P<M>\d\d)-(?P<d>\d\d)")
_DATE_PART = re.compile(r"y{1,4}|M{1,2}|d{1,2}")
_FIELD = re.compile(r"\{(\w{1,20})\}")
_SHORTCODE = re.compile(
    r"<!-- md:(?P<kind>version|default|feature|plugin|extension|utility|demo)[ ]++(?:insiders-)?"
    r"(?P<text>(?:(?! -->)[^\n]){1,200}+) -->"
)
_MOST_PATTERNS = 200
_LONGEST = 200  # characters of a part of an address


def excluded(options: dict[str, Any]) -> Callable[[str], bool]:
    """Return a function that tells whether the globs of the plugin `exclude` match a file."""
    globs = [glob[:_LONGEST] for glob in texts_of(options.get("glob"))[:_MOST_PATTERNS]]
    return lambda name: any(fnmatch.fnmatchcase(name, glob) for glob in globs)


def shortcodes(text: str) -> Iterator[Directive]:
    """Yield the badges that the documentation of Material for MkDocs writes as comments, as their text."""
    for badge in _SHORTCODE.finditer(text):
        is_icon = badge["kind"] == "default" and badge["text"] in ("none", "computed")
        yield Directive(*badge.span(), new="" if is_icon else badge["text"])


class Blog:
    """The plugin `blog` of Material for MkDocs: its posts have addresses made of their dates and titles."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._folder = re.sub(r"^\.$", "", normpath(text_of(options, "blog_dir") or "blog"))
        posts = (text_of(options, "post_dir") or "{blog}/posts").replace("{blog}", self._folder)
        self._posts = normpath(posts.lstrip("/")) + "/"
        self._format = (text_of(options, "post_url_format") or "{date}/{slug}")[:_LONGEST]
        self._date = text_of(options, "post_url_date_format") or "yyyy/MM/dd"
        self._has_drafts = options.get("draft") is True
        most = options.get("post_url_max_categories")
        self._most_categories = most if isinstance(most, int) else 1

    def is_draft(self, name: str, head: dict[str, Any]) -> bool:
        """Return whether a file is a post that is not published."""
        return name.startswith(self._posts) and head.get("draft") is True and not self._has_drafts

    def ordered(self, names: Sequence[str], head: Callable[[str], dict[str, Any]]) -> list[str]:
        """Put the posts in the order of their links: the oldest first, and pinned ones last."""

        def rank(name: str) -> tuple[bool, str]:
            return head(name).get("pin") is True, _created(head(name))

        posts = sorted((name for name in reversed(names) if name.startswith(self._posts)), key=rank)
        following = iter(posts)
        return [next(following) if name.startswith(self._posts) else name for name in names]

    def published(self, name: str, text: str) -> str:
        """Return the file whose address a post has; files that are not posts keep their own."""
        head = split_front_matter(text)[0]
        date = _DATE.match(_created(head))
        if date is None or not name.startswith(self._posts):
            return name

        def part(match: re.Match[str]) -> str:
            value = date[match[0][0]]
            return value[-2:] if match[0] == "yy" else str(int(value)).zfill(len(match[0]))

        categories = texts_of(head.get("categories"))[: self._most_categories]
        values = {
            "date": _DATE_PART.sub(part, self._date),
            "slug": str(stated(head, "slug") or _slug(stated(head, "title") or page_title(text))),
            "file": name.rpartition("/")[2].rpartition(".")[0],
            "categories": "/".join(map(_slug, categories)),
        }
        path = _FIELD.sub(lambda field: values.get(field[1], field[0])[:_LONGEST], self._format)
        parts = (part for part in path.split("/") if part not in (".", ".."))
        return normpath(f"{self._folder}/{'/'.join(parts).strip('/')}.md").lstrip("/")


def _created(head: dict[str, Any]) -> str:
    date = head.get("date")
    return str(get(date, "created") if isinstance(date, dict) else date)


def _slug(text: str) -> str:
    return slugger("github-trimmed")(text)


@dataclass(frozen=True, slots=True)
class Translations:
    """The locales of the plugin mkdocs-static-i18n, the default one first.

    A locale has a directory, or its files have its name before their suffix: `index.de.md`.
    """

    names: tuple[str, ...]
    unpublished: tuple[str, ...]
    by_folder: bool
    has_fallback: bool

    def split(self, name: str) -> tuple[str, str]:
        """Return the locale of a file, and its name without the locale."""
        if self.by_folder:
            locale, _, plain = name.partition("/")
        else:
            stem, _, suffix = name.rpartition(".")
            plain, _, locale = stem.rpartition(".")
            plain = f"{plain}.{suffix}"
        is_locale = locale in (*self.names, *self.unpublished)
        return (locale, plain) if is_locale else (self.names[0], name)

    def file(self, plain: str, locale: str) -> str:
        """Return the name of the file of a page in a locale."""
        stem, _, suffix = plain.rpartition(".")
        return f"{locale}/{plain}" if self.by_folder else f"{stem}.{locale}.{suffix}"


def translations(options: dict[str, Any]) -> Translations | None:
    """Return the locales that the options of the plugin state, if there are any."""
    languages = options.get("languages")
    listed = [
        language
        for language in (languages if isinstance(languages, list) else [])
        if text_of(language, "locale")
    ]
    listed = sorted(listed, key=lambda language: language.get("default") is not True)
    unpublished = tuple(language["locale"] for language in listed if language.get("build") is False)
    built = tuple(language["locale"] for language in listed if language["locale"] not in unpublished)
    by_folder, fallback = options.get("docs_structure") == "folder", options.get("fallback_to_default")
    return Translations(built, unpublished, by_folder, fallback is not False) if built else None
