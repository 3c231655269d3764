"""A book that is published on a website."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from recto.book.sources.website.cache import PageCache
from recto.book.sources.website.crawl import Crawl
from recto.book.sources.website.fetch import CrawlOptions, Fetcher, Resolve, resolve
from recto.book.sources.website.urls import normal
from recto.errors import InvalidArgument
from recto.protocols import Progress
from recto.types import Failure, Page


class WebsiteSource:
    """Yields the pages below a URL; `progress` is called with the numbers of fetched and known pages."""

    def __init__(
        self,
        url: str,
        cache: Path | None,
        options: CrawlOptions | None = None,
        notify: Callable[[str], None] = lambda _: None,
        *,
        book: str = "",
        resolve: Resolve = resolve,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._url = normal(url)
        if not self._url:
            raise InvalidArgument(
                f"{url[:200]} is not the address of a website",
                hint="Give one that begins with http:// or https://, without a user's name.",
            )
        parts = urlsplit(self._url)
        self._book = book or f"{parts.netloc}{parts.path}".rstrip("/")
        self._options = options or CrawlOptions()
        self._notify = notify
        self._cache, self._clock = cache, clock
        self._resolve, self._sleep = resolve, sleep
        self._failed: list[Failure] = []
        self._notes: list[str] = []
        self.progress: Progress | None = None

    @property
    def book(self) -> str:
        """The book's name: its URL without the scheme."""
        return self._book

    @property
    def location(self) -> str:
        """The URL."""
        return self._url

    @property
    def failed(self) -> list[Failure]:
        """The pages that could not be read."""
        return self._failed

    @property
    def notes(self) -> list[str]:
        """What was skipped, and why."""
        return self._notes

    def pages(self) -> Iterator[Page]:
        """Yield each page as it is fetched."""
        self._failed.clear()
        self._notes.clear()
        cache = PageCache(self._cache, self._clock)
        with Fetcher(self._options, self._resolve, self._sleep) as fetcher:
            crawl = Crawl(self._url, self._options, fetcher, cache, self._notify, self.progress)
            try:
                yield from crawl.run()
            finally:
                self._failed.extend(crawl.failed)
                self._notes.extend(crawl.all_notes())
