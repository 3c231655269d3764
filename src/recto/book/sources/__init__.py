"""Open the source of a book by its location: a directory, a website, a repository, or what a plugin reads.

Each generator of sites is a class in a module here, listed in `tree.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recto import plugins
from recto.errors import InvalidArgument, missing_extra
from recto.plugins import Notify
from recto.protocols import Source
from recto.settings import SAMPLE_COLLECTION, Settings, load_settings

if TYPE_CHECKING:
    from recto.book.sources.options import SiteOptions
    from recto.book.sources.website.crawl import WebsiteSource

SAMPLE = Path(__file__).parents[2] / "sample" / "docs"
WEBSITE_SCHEMES = ("http", "https")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")  # a single letter is a drive of Windows
_ON_DISK = ("site_url", "generator", "route_base_path", "trailing_slash", "version", "locale")
_CRAWLING = ("max_pages", "delay", "allow_private")


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a book's configuration may not state, and limits for crawling; None selects the default."""

    site_url: str | None = None
    generator: str | None = None
    route_base_path: str | None = None
    trailing_slash: bool | None = None
    version: str | None = None
    locale: str | None = None
    max_pages: int | None = None
    delay: float | None = None
    allow_private: bool = False
    title: str | None = None
    questions: str | None = None
    """The question file, if it is not in the book's root."""

    @property
    def stated(self) -> tuple[tuple[str, Any], ...]:
        """The options that are not the default."""
        defaults = SourceOptions()
        values = [(option.name, getattr(self, option.name)) for option in fields(self)]
        return tuple((name, value) for name, value in values if value != getattr(defaults, name))

    def repeating(self, recorded: Iterable[tuple[str, Any]]) -> SourceOptions:
        """Return these options, with recorded ones for those that are not stated."""
        names = {option.name for option in fields(self)} - {name for name, _ in self.stated}
        return replace(self, **{name: value for name, value in recorded if name in names})


def scheme_of(location: str) -> str:
    """Return the scheme of a location in lower case; "" for a path, also for one with a colon in it."""
    prefix = _SCHEME.match(location)
    if prefix is None:
        return ""
    scheme = prefix[1].lower()
    return "" if scheme not in WEBSITE_SCHEMES and os.path.lexists(location) else scheme


def open_source(
    location: str,
    options: SourceOptions,
    cache: Path | None,
    notify: Notify,
    settings: Settings | None = None,
) -> Source:
    """Return the book at a path, a URL, or a location that a plugin reads, such as `zip:book.zip`.

    The pages of a website are kept in `cache`, if it is given.
    """
    if not location:
        raise InvalidArgument("The location of the book is empty", hint="Give a directory or an address.")
    scheme = scheme_of(location)
    if scheme == "https" and (repository := _open_repository(location, options, notify)):
        return repository
    if scheme in WEBSITE_SCHEMES and "://" in location:
        _refuse(options, _ON_DISK[1:], "books on disk")
        _check_range("--max-pages", options.max_pages, 1, 1_000_000)
        _check_range("--delay", options.delay, 0, 60)
        website = _open_website(location, options, cache, notify)
        website.info = replace(website.info, options=_recorded(options))
        return website
    _refuse(options, _CRAWLING, "websites")
    if scheme and (scheme in plugins.plugin_names(plugins.SOURCES) or "://" in location):
        _refuse(options, _ON_DISK, "books on disk")
        _refuse(options, ("title", "questions"), "books on disk and websites")
        return _open_plugin(scheme, location, notify, settings)
    from recto.book.sources.tree import open_book

    source = open_book(Path(location), _site_options(options))
    source.info = replace(source.info, options=_recorded(options))
    return source


def _site_options(options: SourceOptions) -> SiteOptions:
    from recto.book.sources.options import SiteOptions

    stated = [pair for pair in options.stated if pair[0] not in ("questions", "allow_private")]
    return SiteOptions(**{name.removeprefix("site_"): value for name, value in stated})


def _recorded(options: SourceOptions) -> tuple[tuple[str, Any], ...]:
    """Return the options that are stored with the index."""
    # An empty text is the default of all options, except that an empty route is the root of the site.
    stated = replace(options, questions=options.questions and str(Path(options.questions).resolve())).stated
    return tuple(pair for pair in stated if pair[1] != "" or pair[0] == "route_base_path")


def sample_source() -> Source:
    """Return the sample book."""
    from recto.book.sources.tree import MarkdownTree

    return MarkdownTree(SAMPLE, book=SAMPLE_COLLECTION)


def _open_repository(location: str, options: SourceOptions, notify: Notify) -> Source | None:
    from recto.book.sources.repository import RepositorySource, repository_url

    url = repository_url(location)
    if not url:
        return None
    _refuse(options, ("max_pages", "delay"), "websites")
    allow = options.allow_private
    repository = RepositorySource(url, _site_options(options), notify, allow_private=allow)
    repository.info = replace(repository.info, options=_recorded(options))
    return repository


def _open_website(url: str, options: SourceOptions, cache: Path | None, notify: Notify) -> WebsiteSource:
    from hashlib import sha256

    from recto.book.sources.options import check_url

    try:
        from recto.book.sources.website import CrawlOptions
        from recto.book.sources.website.crawl import WebsiteSource
    except ImportError as error:
        raise missing_extra("Reading a website", "crawl") from error
    stated = {name: value for name in _CRAWLING if (value := getattr(options, name)) is not None}
    folder = cache / sha256(url.encode()).hexdigest()[:16] if cache else None
    published = check_url(options.site_url or "", "--site-url")
    title = options.title or ""
    return WebsiteSource(url, folder, CrawlOptions(**stated), notify, title=title, published=published)


def _refuse(options: SourceOptions, names: Sequence[str], kind: str) -> None:
    """Raise an error for an option that would have no effect on this kind of book."""
    defaults = SourceOptions()
    for name in names:
        if getattr(options, name) != getattr(defaults, name):
            flag = f"--{name.replace('_', '-').replace('version', 'docs-version')}"
            raise InvalidArgument(f"{flag} is for {kind}", hint="Leave it out: it has no effect here.")


def _check_range(flag: str, value: float | None, least: int, most: int) -> None:
    if value is not None and not least <= value <= most:
        raise InvalidArgument(
            f"{flag} must be between {least} and {most}", hint="Leave it out for the default."
        )


def _open_plugin(scheme: str, location: str, notify: Notify, settings: Settings | None) -> Source:
    installed = plugins.plugin_names(plugins.SOURCES)
    if scheme not in installed:
        raise InvalidArgument(
            f"There is no source for {scheme}: locations",
            hint="Give a directory or an address that begins with http:// or https://, or install a plugin "
            f"that adds {scheme!r} to {plugins.SOURCES}. Installed: {', '.join(installed) or 'none'}.",
        )
    return plugins.open_source(scheme, location, settings or load_settings(), notify)
