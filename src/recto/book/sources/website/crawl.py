"""Crawl a website: find its pages by sitemap or by links, and fetch them one by one."""

from __future__ import annotations

import hashlib
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from urllib.parse import unquote, urlsplit

from recto._util.text import ROOT_MODULE, module_keys, plural
from recto.book.parsing.html import Head, read_head
from recto.book.parsing.html.tokens import split_site_name
from recto.book.sources.options import ROOT_TITLE, CrawlOptions, humanised
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
from recto.book.sources.website.urls import Scope, normal
from recto.errors import InvalidArgument, Unreachable
from recto.protocols import Progress
from recto.types.book import Failure, Page

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
_REPORT_EVERY = 100
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


class _SkippedError(Exception):
    """A page that is left out, with the reason."""


def skip_reason(path: str) -> str:
    """Return why a path is skipped, or "" if it is a page to read."""
    path = path.partition("?")[0]
    if _FILE.search(path):
        return _FILES
    return _LISTINGS if _LISTING.match(path) else _BLOG_PAGES if _BLOG.match(path) else ""


@dataclass(slots=True)
class Crawl:
    """One crawl of a website."""

    url: str
    options: CrawlOptions
    fetcher: Fetcher
    cache: PageCache
    notify: Callable[[str], None]
    progress: Progress | None
    failed: list[Failure] = field(default_factory=list)
    _scope: Scope = field(init=False)
    _robots: Robots = field(default_factory=Robots)
    _notes: list[str] = field(default_factory=list)
    _left_out: Counter[str] = field(default_factory=Counter)
    _queue: deque[str] = field(default_factory=deque)
    _known: set[str] = field(default_factory=set)
    _done: set[str] = field(default_factory=set)
    _folders: set[str] = field(default_factory=set)
    _first: dict[str, FetchResult | FetchFailed] = field(default_factory=dict)
    _follow: bool = True
    _silent: int = 0
    _home: Head | None = None
    _site_names: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._scope = Scope.of(self.url)

    def run(self) -> Iterator[Page]:
        """Read robots.txt, find the pages, then yield them one by one."""
        self._robots = read_robots(self.fetcher, self._scope.host)
        self.fetcher.delay = max(self.options.delay, min(self._robots.delay, self.options.max_delay))
        self.cache.begin()
        self._discover(self._fetch_first())
        asked = yielded = 0
        while self._queue and asked < self.options.max_pages:
            asked += 1
            page = self._page(self._queue.popleft())
            if page is not None:
                yielded += 1
                yield page
            if self.progress is not None:
                self.progress(asked, asked + len(self._queue))
            if asked % _REPORT_EVERY == 0:
                self.notify(f"{plural(asked, 'page')} of {self.url} read, {len(self._queue)} left")
        if self._queue:
            limit = f"the limit is {plural(self.options.max_pages, 'page')}"
            self._notes.append(f"At least {len(self._queue)} more pages were not read: {limit}.")
        if not yielded:
            raise self._no_page()
        self.cache.finish()

    def all_notes(self) -> list[str]:
        """Return the notes of the run and the counts of skipped pages."""
        counts = sorted((what, count) for what, count in self._left_out.items() if what != _FILES)
        return [*self._notes, *(f"Left out: {count} {what}." for what, count in counts)]

    def title(self) -> str:
        """Return the name of the website, if its pages state one, else the title of the first page."""
        if self._home is None:
            return ""
        name, count = next(iter(self._site_names.most_common(1)), ("", 0))
        shared = name if count > 1 and 2 * count > len(self._done) else ""
        return self._home.site_name or shared or self._home.title

    def _no_page(self) -> InvalidArgument | Unreachable:
        if self.failed:
            return Unreachable(
                f"No page of {self.url} could be read: {self.failed[0]}", hint="Try again later."
            )
        if self._left_out[_FORBIDDEN]:
            return InvalidArgument(
                f"The robots.txt of {self._scope.host} disallows {self.url}",
                hint="Ask the website's owner, or index the book's source files instead.",
            )
        return InvalidArgument(
            f"There is no page to read at {self.url}",
            hint="; ".join(self.all_notes()[:3]) or "Pass the URL of the book's first page.",
        )

    def _fetch_first(self) -> FetchResult | FetchFailed:
        """Fetch the given URL; its redirects decide which website this is."""
        if not self._robots.allows(self.url):
            return FetchFailed(_FORBIDDEN)
        try:
            result = self._fetch(self.url)
        except RedirectRefused as failure:
            if failure.reason == _FORBIDDEN:
                return failure
            raise InvalidArgument(
                f"{self.url} redirects to {failure.url}, which is another website",
                hint=f"Pass {failure.url} instead.",
            ) from failure
        except NoResponse as failure:
            raise Unreachable(
                f"{self.url} cannot be read: {failure.reason}", hint="Check the URL, or try again later."
            ) from failure
        except FetchFailed as failure:
            return failure
        if result.status == 200:
            self._scope = replace(self._scope, scheme=urlsplit(result.url).scheme)
        return result

    def _fetch(self, url: str) -> FetchResult:
        """Return the current result of a URL, from the cache if it is unchanged or fetched in this run."""
        earlier, fresh = self.cache.get(url)
        if earlier is not None and fresh:
            return earlier
        result = self.fetcher.get(url, HTML, self.options.max_bytes, admit=self._admit, earlier=earlier)
        if result.status == 304 and earlier is not None:
            return earlier
        if result.status == 200:
            self.cache.put(url, result)
        return result

    def _admit(self, target: str) -> str:
        """Return why a redirect is not followed, or ""."""
        if not self._scope.own(target):
            return f"it redirects to {target}"
        return "" if self._robots.allows(target) else _FORBIDDEN

    def _discover(self, first: FetchResult | FetchFailed) -> None:
        """Fill the queue from the sitemaps, or prepare to follow links; the given URL comes first."""
        address = self._scope.own(first.url if isinstance(first, FetchResult) else "") or self.url
        # A book need not have a page at its address.
        if not isinstance(first, FetchResult) or first.status not in _GONE_STATUS:
            self._queue.append(address)
            self._first[address] = first
        self._known.add(self._scope.path(address))
        listed = sitemap_pages(
            self.fetcher, self.cache, self._scope, self._robots, self._admit, self._notes.append
        )
        inside = [own for url in listed if (own := self._scope.own(url)) and self._scope.contains(own)]
        for url in sorted(inside, key=self._scope.path):
            self._add(url)
        if listed and not inside:
            self._notes.append(
                f"The sitemap lists {plural(len(listed), 'URL')}, none below {self.url}; "
                "links were followed instead."
            )
        self._follow = not inside or self._is_partial(first)
        if inside and self._follow:
            self._notes.append("The sitemap does not list all pages; links were followed too.")
        how = f"{plural(len(self._queue), 'page')} from its sitemap" if inside else "following its links"
        self.notify(f"Reading {self.url}: {how}")

    def _is_partial(self, first: FetchResult | FetchFailed) -> bool:
        """Return whether the sitemap lacks most links of the first page, as one that lists only versions."""
        if not isinstance(first, FetchResult) or first.status != 200:
            return False
        paths = {self._scope.path(url) for url in self._links(_head(first), first.url)}
        links = {path for path in paths if not skip_reason(path)}
        return bool(links) and len(links - self._known) > _PARTIAL * len(links)

    def _add(self, url: str) -> None:
        """Queue a page of the book, unless it is known or skipped."""
        path = self._scope.path(url)
        if path in self._known:
            return
        self._known.add(path)
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
            self.failed.append(Failure(path, "it was not requested: the website stopped responding"))
            return None
        try:
            result = self._first.pop(url, None) or self._fetch(url)
            if isinstance(result, FetchFailed):
                raise result
            text = self._text(result, path)
            self._silent = 0
            return self._make_page(result, text)
        except _SkippedError as skipped:
            self._silent = 0
            self._left_out[str(skipped)] += 1
        except WrongContentType:
            self._left_out[_FILES] += 1
        except FetchFailed as failure:
            if failure.reason == _FORBIDDEN or isinstance(failure, RedirectRefused):
                self._left_out[_FORBIDDEN if failure.reason == _FORBIDDEN else _OTHER_HOST] += 1
            else:
                self._fail(url, path, failure)
        return None

    def _fail(self, url: str, path: str, failure: FetchFailed) -> None:
        self._silent = self._silent + 1 if isinstance(failure, NoResponse) else 0
        self.failed.append(Failure(path, failure.reason))
        earlier, _ = self.cache.get(url)
        if earlier is not None and self._follow:  # keep pages that only this one links to
            for link in self._links(_head(earlier), earlier.url):
                self._add(link)

    def _text(self, result: FetchResult, path: str) -> str:
        if result.status in _GONE_STATUS:
            raise _SkippedError(_GONE)
        if result.status != 200:
            raise FetchFailed(f"the server returned {result.status}")
        text, wrong = decode(result)
        if wrong:
            self._notes.append(f"{path}: {plural(wrong, 'character')} could not be decoded.")
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
        self._known.add(path)
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
            url=address,
            title=head.title or humanised(unquote(segments[-1])),
            module=keys[0],
            module_keys=keys,
            text=text,
            revision=hashlib.sha256(result.body).hexdigest(),
            format="html",
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
