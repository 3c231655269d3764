"""Open the source of a book by its location: a directory, a website, or a URL scheme of a plugin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from recto.errors import InvalidArgument
from recto.protocols import Source
from recto.settings import SAMPLE_COLLECTION, Settings

SAMPLE = Path(__file__).parents[2] / "sample" / "docs"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Facts about a book that its configuration may not state, and limits for crawling; None selects the default."""

    site_url: str | None = None
    route_base_path: str | None = None
    trailing_slash: bool | None = None
    version: str | None = None
    locale: str | None = None
    max_pages: int | None = None
    delay: float | None = None
    allow_private: bool = False

    def unused(self, *, website: bool) -> str:
        """Return the flag of the first option that has no effect on this kind of book."""
        on_disk = ("site_url", "route_base_path", "trailing_slash", "version", "locale")
        for name in on_disk if website else ("max_pages", "delay", "allow_private"):
            if getattr(self, name) is not (False if name == "allow_private" else None):
                return f"--{name.replace('_', '-').replace('version', 'docs-version')}"
        return ""


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
    if unused := options.unused(website=website):
        raise InvalidArgument(
            f"{unused} is for {'books on disk' if website else 'websites'}",
            hint="Leave it out: it has no effect here.",
        )
    if website:
        return _open_website(location, options, cache, notify)
    if separator and not Path(location).exists():
        return _open_plugin(scheme, location, notify, settings)
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

    return MarkdownTree(SAMPLE, book=SAMPLE_COLLECTION)


def _open_website(
    url: str, options: SourceOptions, cache: Path | None, notify: Callable[[str], None]
) -> Source:
    from hashlib import sha256

    from recto.book.sources.website import CrawlOptions, WebsiteSource

    defaults = CrawlOptions()
    limits = replace(
        defaults,
        max_pages=defaults.max_pages if options.max_pages is None else options.max_pages,
        delay=defaults.delay if options.delay is None else options.delay,
        allow_private=options.allow_private,
    )
    folder = cache / sha256(url.encode()).hexdigest()[:16] if cache else None
    return WebsiteSource(url, folder, limits, notify)


def _open_plugin(
    scheme: str, location: str, notify: Callable[[str], None], settings: Settings | None
) -> Source:
    from recto import plugins
    from recto.settings import load_settings

    source = plugins.open_source(scheme, location, settings or load_settings(), notify)
    if source is None:
        raise InvalidArgument(
            f"No source reads {scheme}:// addresses",
            hint="Give a directory or an address that begins with http:// or https://, or install a plugin.",
        )
    return source
