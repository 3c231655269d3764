"""Crawl a website: find its pages by sitemap or by links, and fetch them; needs the extra `crawl`."""

from __future__ import annotations

import hashlib
import re
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from recto._util.languages import language_tag
from recto._util.text import ROOT_MODULE, module_keys, plural
from recto.book.parsing.html.tokens import Head, read_head, split_site_name
from recto.book.sources.options import ROOT_TITLE, humanised
from recto.book.sources.website import CrawlOptions, Resolve, Scope, normal
from recto.book.sources.website.addresses import resolve_host
from recto.book.sources.website.discovery import Robots, read_robots, sitemap_pages
from recto.book.sources.website.fetch import (
    HTML,
    Fetcher,
    FetchFailed,
    FetchResult,
    NoResponse,
    PageCache,
    RedirectRefused,
    WrongContentType,
    decode,
)
from recto.errors import InvalidArgument, Unreachable
from recto.plugins import Notify
from recto.protocols import Progress
from recto.types.book import BookInfo, Failure, Page

_FILE = re.compile(
    r"\.(?:png|jpe?g|gif|svg|webp|avif|ico|bmp|pdf|epub|mobi|zip|gz|tgz|bz2|xz|tar|7z|rar|exe|dmg|whl|jar|"
    r"mp[34]|webm|mov|avi|wav|og[gv]|css|m?js|map|json|jsonl|ya?ml|toml|xml|rss|atom|txt|md|mdx|rst|ipynb|"
    r"py|csv|tsv|woff2?|ttf|otf|eot|wasm|bin|inv|docx?|xlsx?|pptx?)$",
    re.IGNORECASE,
)
_LISTING = re.compile(
    r"(?:(?:docs?|blog|[a-z]{2})/)?(?:tags?|search|_modules|_sources|_static|authors|archive)(?:/|$)"
    r"|(?:.*/)?(?:search|genindex(?:-.*)?|py-modindex|modindex|print|404|toc)$"
)
_BLOG = re.compile(r"(?:[a-z]{2}/)?blog(?:/|$)")
_EDITION = re.compile(
    r"docs?|documentation|book|latest|stable|current|main|master|en|v?\d+(?:\.\d+)+|v\d+", re.IGNORECASE
)
_GONE_STATUS = (404, 410)
_GIVE_UP = 8  # pages in a row without a response
_PARTIAL = 0.5  # a sitemap that lacks more than this share of the first page's links is incomplete

# Why pages are left out.
_FILES = "files that are not pages"
_LISTINGS = "lists of other pages (tags, search, indexes)"
_BLOG_PAGES = "pages of the blog"
_FORBIDDEN = "pages that robots.txt disallows"
_NOINDEX = "pages that ask not to be indexed (noindex)"
_GONE = "pages that no longer exist"
_OTHER_HOST = "pages that redirect to another website or out of the book"
_DUPLICATE = "duplicate URLs of pages"
_WITH_QUERY = "links with a query"


class _SkippedError(FetchFailed):
    """A page that is left out, with the reason."""


def skip_reason(path: str) -> str:
    """Return why a path is skipped, or "" if it is a page to read."""
    path = path.partition("?")[0]
    if _FILE.search(path):
        return _FILES
    return _LISTINGS if _LISTING.match(path) else _BLOG_PAGES if _BLOG.match(path) else ""


class WebsiteSource:
    """Yields the pages below a URL; `progress` is called with the numbers of fetched and known pages."""

    def __init__(
        self,
        url: str,
        cache: Path | None,
        options: CrawlOptions | None = None,
        notify: Notify = lambda _: None,
        *,
        title: str = "",
        published: str = "",
        resolve: Resolve = resolve_host,
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
        self.options, self.notify = options or CrawlOptions(), notify
        self._title, self.published = title, published
        self.info = BookInfo(title)
        self.failed: list[Failure] = []
        self.notes: list[str] = []
        self.progress: Progress | None = None
        self._cache, self._clock = cache, clock
        self._resolve, self._sleep = resolve, sleep

    def pages(self) -> Iterator[Page]:
        """Yield each page as it is fetched."""
        self.failed.clear()
        self.notes.clear()
        cache = PageCache(self._cache, self._clock)
        with Fetcher(self.location, self.options, cache, self._resolve, self._sleep) as fetcher:
            crawl = _Crawl(self, fetcher)
            try:
                yield from crawl.run()
            finally:
                self.notes += crawl.skipped()
                self.info = replace(self.info, title=self._title or crawl.title())


class _Crawl:
    """One crawl of a website."""

    def __init__(self, source: WebsiteSource, fetcher: Fetcher) -> None:
        self._source = source
        self._url, self._options = source.location, source.options
        self._fetcher = fetcher
        self._scope = Scope.of(source.location, source.published)
        self._robots = Robots()
        self._left_out: Counter[str] = Counter()
        self._queue: deque[str] = deque()
        self._seen: set[str] = set()
        self._done: set[str] = set()
        self._folders: set[str] = set()
        self._first: dict[str, FetchResult | FetchFailed] = {}
        self._follow = True
        self._silent = 0
        self._home: Head | None = None
        self._site_names: Counter[str] = Counter()

    def run(self) -> Iterator[Page]:
        """Read robots.txt, find the pages, then yield them one by one."""
        self._robots = read_robots(self._fetcher, self._scope.host)
        self._fetcher.delay = max(self._options.delay, min(self._robots.delay, self._options.max_delay))
        self._fetcher.cache.begin()
        self._discover(self._fetch_first())
        requested = yielded = 0
        while self._queue and requested < self._options.max_pages:
            requested += 1
            page = self._page(self._queue.popleft())
            if page is not None:
                yielded += 1
                yield page
            if self._source.progress is not None:
                self._source.progress(requested, requested + len(self._queue))
        if self._queue:
            limit = f"the limit is {plural(self._options.max_pages, 'page')}"
            self._source.notes.append(f"At least {len(self._queue)} more pages were not read: {limit}.")
        if not yielded:
            raise self._no_page()
        self._fetcher.cache.finish()

    def skipped(self) -> list[str]:
        """Return the counts of skipped pages."""
        counts = sorted((what, count) for what, count in self._left_out.items() if what != _FILES)
        return [f"Left out: {count} {what}." for what, count in counts]

    def title(self) -> str:
        """Return the name of the website, if its pages state one, else the title of the first page."""
        if self._home is None:
            return ""
        name, count = next(iter(self._site_names.most_common(1)), ("", 0))
        shared = name if count > 1 and 2 * count > len(self._done) else ""
        return self._home.site_name or shared or self._home.title

    def _no_page(self) -> InvalidArgument | Unreachable:
        if self._source.failed:
            return Unreachable(
                f"No page of {self._url} could be read: {self._source.failed[0]}", hint="Try again later."
            )
        if self._left_out[_FORBIDDEN]:
            return InvalidArgument(
                f"The robots.txt of {self._scope.host} disallows {self._url}",
                hint="Ask the website's owner, or index the book's source files instead.",
            )
        notes = "; ".join([*self._source.notes, *self.skipped()][:3])
        return InvalidArgument(
            f"There is no page to read at {self._url}", hint=notes or "Pass the URL of the book's first page."
        )

    def _fetch_first(self) -> FetchResult | FetchFailed:
        """Fetch the given URL; its redirects decide which website this is."""
        if not self._robots.allows(self._url):
            return _SkippedError(_FORBIDDEN)
        try:
            result = self._fetch(self._url)
        except RedirectRefused as failure:
            if str(failure) == _FORBIDDEN:
                return failure
            raise InvalidArgument(
                f"{self._url} redirects to {failure.url}, which is another website",
                hint=f"Pass {failure.url} instead.",
            ) from failure
        except NoResponse as failure:
            raise Unreachable(
                f"{self._url} cannot be read: {failure}", hint="Check the URL, or try again later."
            ) from failure
        except FetchFailed as failure:
            return failure
        if result.status == 200:
            self._scope = replace(self._scope, scheme=urlsplit(result.url).scheme)
        return result

    def _fetch(self, url: str) -> FetchResult:
        return self._fetcher.current(url, HTML, self._options.max_bytes, self._admit)

    def _admit(self, target: str) -> str:
        """Return why a redirect is not followed, or ""."""
        if not self._scope.own(target):
            return f"it redirects to {target}"
        return "" if self._robots.allows(target) else _FORBIDDEN

    def _discover(self, first: FetchResult | FetchFailed) -> None:
        """Fill the queue from the sitemaps, or prepare to follow links; the given URL comes first."""
        address = self._scope.own(first.url if isinstance(first, FetchResult) else "") or self._url
        # A book need not have a page at its address.
        if not isinstance(first, FetchResult) or first.status not in _GONE_STATUS:
            self._queue.append(address)
            self._first[address] = first
        self._seen.add(self._scope.path(address))
        note = self._source.notes.append
        listed = sitemap_pages(self._fetcher, self._scope, self._robots, self._admit, note)
        inside = [
            address for url in listed if (address := self._scope.own(url)) and self._scope.contains(address)
        ]
        for url in sorted(inside, key=self._scope.path):
            self._add(url)
        if listed and not inside:
            self._source.notes.append(
                f"The sitemap lists {plural(len(listed), 'URL')}, none below {self._url}; "
                "links were followed instead."
            )
        self._follow = not inside or self._is_partial(first)
        if inside and self._follow:
            self._source.notes.append("The sitemap does not list all pages; links were followed too.")
        how = f"{plural(len(self._queue), 'page')} from its sitemap" if inside else "following its links"
        self._source.notify(f"Reading {self._url}: {how}")

    def _is_partial(self, first: FetchResult | FetchFailed) -> bool:
        """Return whether the sitemap lacks most links of the first page, as one that lists only versions."""
        if not isinstance(first, FetchResult) or first.status != 200:
            return False
        paths = {self._scope.path(url) for url in self._links(_head(first), first.url)}
        links = {path for path in paths if not skip_reason(path)}
        return bool(links) and len(links - self._seen) > _PARTIAL * len(links)

    def _add(self, url: str) -> None:
        """Queue a page of the book, unless it is known or skipped."""
        path = self._scope.path(url)
        if path in self._seen:
            return
        self._seen.add(path)
        if why := skip_reason(path) or ("" if self._robots.allows(url) else _FORBIDDEN):
            self._left_out[why] += 1
            return
        self._queue.append(url)
        segments = _inner(path)
        if len(segments) > 1:
            self._folders.add(segments[0])

    def _links(self, head: Head, url: str) -> list[str]:
        """Return the pages of the book that a page links to."""
        base = normal(head.base, url) or url
        addresses = (self._scope.own(normal(link, base)) for link in head.links if link[:1] != "#")
        return [address for address in addresses if address and self._scope.contains(address)]

    def _page(self, url: str) -> Page | None:
        """Fetch one page, or count why it is skipped."""
        path = self._scope.path(url)
        if self._silent >= _GIVE_UP:
            self._source.failed.append(Failure(path, "it was not requested: the website stopped responding"))
            return None
        try:
            result = self._first.pop(url, None) or self._fetch(url)
            if isinstance(result, FetchFailed):
                raise result
            self._silent = 0
            return self._make_page(result, self._text(result, path))
        except (_SkippedError, RedirectRefused, WrongContentType) as skipped:
            reasons = {RedirectRefused: _OTHER_HOST, WrongContentType: _FILES}
            forbidden = str(skipped) == _FORBIDDEN
            self._left_out[_FORBIDDEN if forbidden else reasons.get(type(skipped), str(skipped))] += 1
        except FetchFailed as failure:
            self._silent = self._silent + 1 if isinstance(failure, NoResponse) else 0
            self._source.failed.append(Failure(path, str(failure)))
            earlier, _ = self._fetcher.cache.get(url)
            if earlier is not None and self._follow:  # keep pages that only this one links to
                for link in self._links(_head(earlier), earlier.url):
                    self._add(link)
        return None

    def _text(self, result: FetchResult, path: str) -> str:
        if result.status in _GONE_STATUS:
            raise _SkippedError(_GONE)
        if result.status != 200:
            raise FetchFailed(f"the server returned {result.status}")
        text, wrong = decode(result)
        if wrong:
            self._source.notes.append(f"{path}: {plural(wrong, 'character')} could not be decoded.")
        return text

    def _make_page(self, result: FetchResult, text: str) -> Page:
        head = read_head(text)
        address = self._scope.own(result.url)
        if not (address and self._scope.contains(address)):
            raise _SkippedError(_OTHER_HOST)
        for link in self._links(head, result.url) if self._follow and "nofollow" not in head.robots else ():
            if urlsplit(link).query:
                self._left_out[_WITH_QUERY] += 1
            else:
                self._add(link)
        header = {word.strip() for word in result.headers.get("x-robots-tag", "").lower().split(",")}
        if (head.robots | header) & {"noindex", "none"}:
            raise _SkippedError(_NOINDEX)
        if head.listing:
            raise _SkippedError(_LISTINGS)
        moved = self._scope.own(normal(head.refresh, result.url)) if head.refresh else ""
        if moved and self._scope.path(moved) != self._scope.path(address):
            if self._scope.contains(moved):
                self._add(moved)
            raise _SkippedError(_DUPLICATE)
        # The canonical URL counts if it is in the book and not just the first page.
        canonical = self._scope.own(normal(head.canonical, address)) if head.canonical else ""
        if canonical and self._scope.contains(canonical) and self._scope.path(canonical) != "index":
            address = canonical
        path = self._scope.path(address)
        self._seen.add(path)
        if path in self._done:
            raise _SkippedError(_DUPLICATE)
        self._done.add(path)
        self._home = self._home or head
        if name := split_site_name(head.title)[1]:
            self._site_names[name] += 1
        segments = _inner(path)
        in_module = len(segments) > 1 or segments[0] in self._folders
        keys = module_keys(unquote(segments[0])) if in_module else (ROOT_MODULE,)
        return Page(
            path=path,
            url=self._scope.publish(address),
            title=head.title or humanised(unquote(segments[-1])),
            module=keys[0],
            module_keys=keys,
            text=text,
            revision=hashlib.sha256(result.body).hexdigest(),
            format="html",
            locale=language_tag(head.lang),
            module_title=humanised(keys[0]) if in_module else ROOT_TITLE,
        )


def _head(result: FetchResult) -> Head:
    try:
        return read_head(decode(result)[0])
    except FetchFailed:
        return Head()


def _inner(path: str) -> list[str]:
    """Return the segments of a path without the edition, such as `en/latest`."""
    segments = path.partition("?")[0].split("/")
    while len(segments) > 1 and _EDITION.fullmatch(segments[0]):
        segments = segments[1:]
    return segments
