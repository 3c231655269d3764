"""A book that is published on a website: crawl its pages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from recto.book.sources.options import CrawlOptions, Resolve
from recto.book.sources.website.urls import normal
from recto.errors import InvalidArgument, missing_extra
from recto.protocols import Progress
from recto.types.book import Failure, Page

__all__ = ["CrawlOptions", "WebsiteSource"]


class WebsiteSource:
    """Yields the pages below a URL; `progress` is called with the numbers of fetched and known pages."""

    def __init__(
        self,
        url: str,
        cache: Path | None,
        options: CrawlOptions | None = None,
        notify: Callable[[str], None] = lambda _: None,
        *,
        title: str = "",
        resolve: Resolve | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.location = normal(url)
        if not self.location:
            raise InvalidArgument(
                f"{url[:200]} is not the URL of a website",
                hint="Pass a URL that begins with http:// or https://, without a user name.",
            )
        parts = urlsplit(self.location)
        self.book = f"{parts.netloc}{parts.path}".rstrip("/")
        self._title = self.title = title
        self.failed: list[Failure] = []
        self.notes: list[str] = []
        self.progress: Progress | None = None
        self._cache, self._clock = cache, clock
        self._options, self._notify = options or CrawlOptions(), notify
        self._resolve, self._sleep = resolve, sleep

    def pages(self) -> Iterator[Page]:
        """Yield each page as it is fetched."""
        try:
            from recto.book.sources.website.crawl import Crawl
            from recto.book.sources.website.fetch import Fetcher, PageCache
        except ImportError as error:
            raise missing_extra("Reading a website", "crawl") from error
        self.failed.clear()
        self.notes.clear()
        cache = PageCache(self._cache, self._clock)
        with Fetcher(self.location, self._options, self._resolve, self._sleep) as fetcher:
            crawl = Crawl(self.location, self._options, fetcher, cache, self._notify, self.progress)
            try:
                yield from crawl.run()
            finally:
                self.failed += crawl.failed
                self.notes += crawl.all_notes()
                self.title = self._title or crawl.title()
