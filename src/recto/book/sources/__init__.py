"""Open the source of a book by its location: a directory, a website, or a URL scheme of a plugin."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path

from recto.errors import InvalidArgument
from recto.protocols import Source
from recto.settings import SAMPLE_COLLECTION, Settings

_SAMPLE = Path(__file__).parents[2] / "sample" / "docs"
_CRAWL_OPTIONS = ("max_pages", "delay", "allow_private")


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a book's configuration may not state, and limits of a crawl; None selects the default."""

    site_url: str | None = None
    route_base_path: str | None = None
    trailing_slash: bool | None = None
    version: str | None = None
    locale: str | None = None
    max_pages: int | None = None
    delay: float | None = None
    allow_private: bool = False


def open_source(
    location: str,
    options: SourceOptions,
    cache: Path | None,
    notify: Callable[[str], None],
    settings: Settings | None = None,
) -> Source:
    """Return the book at a path or URL. A website's pages are kept in `cache`, if it is given."""
    scheme, separator, _ = location.partition("://")
    website = bool(separator) and scheme.lower() in ("http", "https")
    for option in fields(options):
        given = getattr(options, option.name) != option.default
        if given and (option.name in _CRAWL_OPTIONS) != website:
            flag = option.name.replace("_", "-").replace("version", "docs-version")
            raise InvalidArgument(
                f"--{flag} is for {'books on disk' if website else 'websites'}",
                hint="Leave it out: it has no effect here.",
            )
    if website:
        from recto.book.sources.website import CrawlOptions, WebsiteSource

        limits = {name: getattr(options, name) for name in _CRAWL_OPTIONS}
        crawl = CrawlOptions(**{name: value for name, value in limits.items() if value is not None})
        folder = cache / hashlib.sha256(location.encode()).hexdigest()[:16] if cache else None
        return WebsiteSource(location, folder, crawl, notify)
    if separator and not Path(location).exists():
        from recto import plugins
        from recto.settings import load_settings

        source = plugins.open_source(scheme, location, settings or load_settings(), notify)
        if source is None:
            raise InvalidArgument(
                f"No source can open {scheme}:// locations",
                hint="Pass a directory or an http:// or https:// URL, or install a plugin.",
            )
        return source
    from recto.book.sources.options import SiteOptions
    from recto.book.sources.tree import open_book

    site = SiteOptions(
        options.site_url or "",
        options.route_base_path,
        options.trailing_slash,
        options.version or "",
        options.locale or "",
    )
    return open_book(Path(location), site)


def sample_source() -> Source:
    """Return the sample book."""
    from recto.book.sources.tree import MarkdownTree

    return MarkdownTree(_SAMPLE, book=SAMPLE_COLLECTION)
