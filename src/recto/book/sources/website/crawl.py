"""Crawl a website: find its pages by sitemap or by links, and fetch them one by one."""

from __future__ import annotations

import hashlib
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from urllib.parse import unquote, urlsplit

from recto._util.text import ROOT_MODULE, module_keys
from recto.book.parsing.html.reader import Head, read_head
from recto.book.sources.website import robots, sitemap
from recto.book.sources.website.cache import PageCache
from recto.book.sources.website.fetch import (
    HTML,
    Admit,
    CrawlOptions,
    Elsewhere,
    Fetcher,
    FetchFailed,
    NotAnswered,
    OtherContent,
    Reply,
    decode,
)
from recto.book.sources.website.robots import Robots
from recto.book.sources.website.urls import Scope, normal
from recto.errors import InvalidArgument, Unreachable
from recto.protocols import Progress
from recto.types import Failure, Page

_FILE = re.compile(
    r"\.(?:png|jpe?g|gif|svg|webp|avif|ico|bmp|pdf|epub|mobi|zip|gz|tgz|bz2|xz|tar|7z|rar|exe|dmg|whl|jar|mp[34]|webm|mov|avi|wav|og[gv]|"
    r"css|m?js|map|json|jsonl|ya?ml|toml|xml|rss|atom|txt|md|mdx|rst|ipynb|py|csv|tsv|woff2?|ttf|otf|eot|wasm|bin|inv|docx?|xlsx?|pptx?)$",
    re.IGNORECASE,
)
_LISTS = re.compile(
    r"(?:(?:docs?|blog|[a-z]{2})/)?(?:tags?|search|_modules|_sources|_static|authors|archive)(?:/|$)"
    r"|(?:.*/)?(?:search|genindex(?:-.*)?|py-modindex|modindex|print|404|toc)$"
)
_BLOG = re.compile(r"(?:[a-z]{2}/)?blog(?:/|$)")

FILES = "files that are not pages"
LISTS = "lists of other pages (tags, search, indexes)"
BLOG = "pages of the blog"


def reason(path: str) -> str:
    """Return why a path is skipped, or "" if it is a page to read."""
    path = path.partition("?")[0]
    if _FILE.search(path):
        return FILES
    if _LISTS.match(path):
        return LISTS
    return BLOG if _BLOG.match(path) else ""


_AGENT = "recto"
_RULES = frozenset({"text/plain", "text/html", "application/octet-stream", "text/x-robots"})


def read_robots(fetcher: Fetcher, host: str) -> robots.Robots:
    """Read robots.txt; raise an error if it cannot be fetched."""
    address = f"{host}/robots.txt"
    try:
        reply = fetcher.get(address, _RULES, robots.LARGEST * 2)
    except OtherContent:
        return robots.Robots()
    except FetchFailed as failure:
        private = "not a public address" in failure.reason
        raise Unreachable(
            f"{address} cannot be read: {failure.reason}",
            hint="Add --allow-private if the website is your own."
            if private
            else "Check the address, or try again later.",
        ) from failure
    if reply.status != 200 or reply.content_type == "text/html":
        return robots.Robots()
    return robots.parse_robots(reply.body.decode("utf-8", "replace"), _AGENT)


def sitemap_pages(
    fetcher: Fetcher,
    cache: PageCache,
    scope: Scope,
    rules: robots.Robots,
    admit: Admit,
    note: Callable[[str], None],
) -> list[str]:
    """Return the URLs in the sitemaps: those of robots.txt, else the book's own, else the host's."""

    def own(url: str) -> str:
        return scope.own(normal(url, f"{scope.host}/"))

    def read(url: str) -> sitemap.Listed | None:
        earlier, _ = cache.get(url)
        try:
            reply = fetcher.get(url, sitemap.KINDS, sitemap.LARGEST, earlier=earlier, admit=admit)
        except OtherContent:
            return None
        except FetchFailed as failure:
            # A failing sitemap must not remove its pages from the index.
            note(
                f"The sitemap {url} cannot be read: {failure.reason}"
                + ("; its last version is used." if earlier else ".")
            )
            return sitemap.parse_sitemap(earlier.body) if earlier else None
        if reply.status == 200:
            cache.put(url, reply)
        body = earlier.body if reply.status == 304 and earlier else reply.body
        return sitemap.parse_sitemap(body) if body else None

    seen: set[str] = set()
    named = [address for address in map(own, rules.sitemaps) if address]
    for starts in (named, [f"{scope.host}{scope.prefix}sitemap.xml"], [f"{scope.host}/sitemap.xml"]):
        allowed = [start for start in dict.fromkeys(starts) if rules.allows(start)]
        pages, flaws = sitemap.collect(allowed, read, own, seen)
        for flaw in flaws:
            note(flaw)
        if pages:
            return [address for address in (normal(page, f"{scope.host}/") for page in pages) if address]
    return []


_GONE_STATUS = (404, 410)
_REPORT_EVERY = 100
_GIVE_UP = 8  # pages in a row without a reply
_PARTIAL = 0.5  # a sitemap that lacks more than this share of the first page's links is incomplete
_OUTER = re.compile(
    r"docs?|documentation|book|latest|stable|current|main|master|en|v?\d+(?:\.\d+)+|v\d+", re.IGNORECASE
)
_FORBIDDEN = "pages that robots.txt does not let programs read"
_NOINDEX = "pages that ask not to be indexed (noindex)"
_GONE = "pages that do not exist any more"
_OTHER_HOST = "pages that redirect to another website or out of the book"
_DUPLICATE = "further addresses of pages that were read"
_WITH_QUERY = "links with a query"


class Crawl:
    """One crawl of a website."""

    def __init__(
        self,
        url: str,
        options: CrawlOptions,
        fetcher: Fetcher,
        cache: PageCache,
        notify: Callable[[str], None],
        progress: Progress | None,
    ) -> None:
        self.failed: list[Failure] = []
        self._url = url
        self._scope = Scope.of(url)
        self._options = options
        self._fetcher = fetcher
        self._cache = cache
        self._notify = notify
        self._progress = progress
        self._notes: list[str] = []
        self._left_out: Counter[str] = Counter()
        self._robots = Robots()
        self._queue: deque[str] = deque()
        self._known: set[str] = set()
        self._done: set[str] = set()
        self._folders: set[str] = set()
        self._answered: dict[str, Reply | FetchFailed] = {}
        self._follow = True
        self._silent = 0

    def run(self) -> Iterator[Page]:
        """Read robots.txt, find the pages, then yield them one by one."""
        self._robots = read_robots(self._fetcher, self._scope.host)
        self._fetcher.delay = max(self._options.delay, min(self._robots.delay, self._options.max_delay))
        self._cache.begin()
        self._discover(self._first())
        asked = yielded = 0
        while self._queue and asked < self._options.max_pages:
            url = self._queue.popleft()
            asked += 1
            page = self._page(url)
            if page is not None:
                yielded += 1
                yield page
            self._report(asked)
        if self._queue:
            limit = f"the limit is {self._options.max_pages} pages"
            self._notes.append(f"At least {len(self._queue)} more pages were not read: {limit}.")
        if not yielded:
            raise self._nothing()
        self._cache.finish()

    def all_notes(self) -> list[str]:
        """Return the notes of the run and the counts of skipped pages."""
        counts = [
            f"Left out: {count} {what}." for what, count in sorted(self._left_out.items()) if what != FILES
        ]
        return [*self._notes, *counts]

    def _report(self, asked: int) -> None:
        if self._progress is not None:
            self._progress(asked, asked + len(self._queue))
        if asked % _REPORT_EVERY == 0:
            self._notify(f"{asked} pages of {self._url} read, {len(self._queue)} known to be left")

    def _nothing(self) -> InvalidArgument | Unreachable:
        if self.failed:
            return Unreachable(
                f"No page of {self._url} could be read: {self.failed[0]}", hint="Try again later."
            )
        if self._left_out[_FORBIDDEN]:
            return InvalidArgument(
                f"The robots.txt of {self._scope.host} does not let programs read {self._url}",
                hint="Ask the website's owner, or index the book's source files instead.",
            )
        return InvalidArgument(
            f"There is no page to read at {self._url}",
            hint="; ".join(self.all_notes()[:3]) or "Give the address of the book's first page.",
        )

    def _first(self) -> Reply | FetchFailed:
        """Fetch the given URL; its redirects decide which website this is."""
        if not self._robots.allows(self._url):
            return FetchFailed(_FORBIDDEN)
        try:
            reply = self._ask(self._url)
        except Elsewhere as failure:
            if failure.reason == _FORBIDDEN:
                return failure
            raise InvalidArgument(
                f"{self._url} leads to {failure.url}, which is another website", hint=f"Give {failure.url}"
            ) from failure
        except NotAnswered as failure:
            raise Unreachable(
                f"{self._url} cannot be read: {failure.reason}", hint="Check the address, or try again later."
            ) from failure
        except FetchFailed as failure:
            return failure
        if reply.status == 200:
            self._scope = replace(self._scope, scheme=urlsplit(reply.url).scheme)
        return reply

    def _ask(self, url: str) -> Reply:
        """Return the current reply of a URL, from the cache if it is unchanged or fetched in this run."""
        earlier, fresh = self._cache.get(url)
        if earlier is not None and fresh:
            return earlier
        reply = self._fetcher.get(url, HTML, self._options.max_bytes, admit=self._admit, earlier=earlier)
        if reply.status == 304 and earlier is not None:
            return earlier
        if reply.status == 200:
            self._cache.put(url, reply)
        return reply

    def _admit(self, target: str) -> str:
        """Return why a redirect is not followed, or ""."""
        if not self._scope.own(target):
            return f"it redirects to {target}"
        return "" if self._robots.allows(target) else _FORBIDDEN

    def _discover(self, first: Reply | FetchFailed) -> None:
        """Fill the queue from the sitemaps, or prepare to follow links; the given URL comes first."""
        address = self._scope.own(first.url if isinstance(first, Reply) else "") or self._url
        if (
            not isinstance(first, Reply) or first.status not in _GONE_STATUS
        ):  # a book need not have a page at its address
            self._queue.append(address)
            self._answered[address] = first
        self._known.add(self._scope.path(address))
        listed = sitemap_pages(
            self._fetcher, self._cache, self._scope, self._robots, self._admit, self._notes.append
        )
        inside = [
            own for own in (self._scope.own(url) for url in listed) if own and self._scope.contains(own)
        ]
        for url in sorted(inside, key=self._scope.path):
            self._add(url)
        if listed and not inside:
            self._notes.append(
                f"The sitemap names {len(listed)} addresses, none of them below {self._url}; "
                "links were followed instead."
            )
        self._follow = not inside or self._is_partial(first)
        if inside and self._follow:
            self._notes.append("The sitemap does not name all pages; links were followed too.")
        self._notify(
            f"Reading {self._url}: "
            + (f"{len(self._queue)} pages by its sitemap" if inside else "following its links")
        )

    def _is_partial(self, first: Reply | FetchFailed) -> bool:
        """Return whether the sitemap lacks most links of the first page, as one that lists only versions."""
        if not isinstance(first, Reply) or first.status != 200:
            return False
        paths = {self._scope.path(url) for url in self._links(_head(first), first.url)}
        links = {path for path in paths if not reason(path)}
        return bool(links) and len(links - self._known) > _PARTIAL * len(links)

    def _add(self, url: str) -> None:
        """Queue a page of the book, unless it is known or skipped."""
        path = self._scope.path(url)
        if path in self._known:
            return
        self._known.add(path)
        why = reason(path) or ("" if self._robots.allows(url) else _FORBIDDEN)
        if why:
            self._left_out[why] += 1
            return
        self._queue.append(url)
        segments = _inner(path)
        if len(segments) > 1:
            self._folders.add(segments[0])

    def _links(self, head: Head, url: str) -> list[str]:
        """Return the pages of the book that a page links to."""
        base = normal(head.base, url) or url
        found = (
            self._scope.own(address)
            for address in (normal(link, base) for link in head.links if link[:1] != "#")
            if address
        )
        return [address for address in found if address and self._scope.contains(address)]

    def _page(self, url: str) -> Page | None:
        """Fetch one page, or count why it is skipped."""
        path = self._scope.path(url)
        if self._silent >= _GIVE_UP:
            self.failed.append(Failure(path, "it was not asked for: the website had stopped answering"))
            return None
        try:
            reply = self._answered.pop(url, None) or self._ask(url)
            if isinstance(reply, FetchFailed):
                raise reply
            text = self._text(reply, path)
        except Elsewhere as failure:
            self._left_out[_FORBIDDEN if failure.reason == _FORBIDDEN else _OTHER_HOST] += 1
        except OtherContent:
            self._left_out[FILES] += 1
        except FetchFailed as failure:
            self._fail(url, path, failure)
        else:
            self._silent = 0
            return self._made(reply, text) if text is not None else None
        return None

    def _fail(self, url: str, path: str, failure: FetchFailed) -> None:
        if failure.reason == _FORBIDDEN:
            self._left_out[_FORBIDDEN] += 1
            return
        self._silent = self._silent + 1 if isinstance(failure, NotAnswered) else 0
        self.failed.append(Failure(path, failure.reason))
        earlier, _ = self._cache.get(url)
        if earlier is not None and self._follow:  # keep pages that only this one links to
            for link in self._links(_head(earlier), earlier.url):
                self._add(link)

    def _text(self, reply: Reply, path: str) -> str | None:
        """Return the text of a reply; None if the page is gone."""
        if reply.status in _GONE_STATUS:
            self._left_out[_GONE] += 1
            return None
        if reply.status != 200:
            raise FetchFailed(f"the server answered {reply.status}", status=reply.status)
        try:
            text, wrong = decode(reply.body, reply.headers.get("content-type", ""))
        except UnicodeError as error:
            raise FetchFailed(str(error)) from error
        if wrong:
            self._notes.append(f"{path}: {wrong} characters could not be decoded.")
        return text

    def _made(self, reply: Reply, text: str) -> Page | None:
        head = read_head(text)
        address = self._scope.own(reply.url)
        if not (address and self._scope.contains(address)):
            self._left_out[_OTHER_HOST] += 1
            return None
        if self._follow and "nofollow" not in head.robots:
            for link in self._links(head, reply.url):
                if urlsplit(link).query:
                    self._left_out[_WITH_QUERY] += 1
                else:
                    self._add(link)
        noindex = head.robots | {
            word.strip() for word in reply.headers.get("x-robots-tag", "").lower().split(",")
        }
        if noindex & {"noindex", "none"}:
            self._left_out[_NOINDEX] += 1
            return None
        if head.listing:
            self._left_out[LISTS] += 1
            return None
        moved = self._scope.own(normal(head.refresh, reply.url)) if head.refresh else ""
        if moved and self._scope.path(moved) != self._scope.path(address):
            if self._scope.contains(moved):
                self._add(moved)
            self._left_out[_DUPLICATE] += 1
            return None
        return self._named(self._canonical(head, address), reply, text, head.title)

    def _canonical(self, head: Head, address: str) -> str:
        """Return the canonical URL of a page, if it is in the book and not just the first page."""
        stated = self._scope.own(normal(head.canonical, address)) if head.canonical else ""
        if not stated or not self._scope.contains(stated) or self._scope.path(stated) == "index":
            return address
        return stated

    def _named(self, address: str, reply: Reply, text: str, title: str) -> Page | None:
        path = self._scope.path(address)
        self._known.add(path)
        if path in self._done:
            self._left_out[_DUPLICATE] += 1
            return None
        self._done.add(path)
        segments = _inner(path)
        keys = (
            module_keys(unquote(segments[0]))
            if len(segments) > 1 or segments[0] in self._folders
            else (ROOT_MODULE,)
        )
        return Page(
            path=path,
            url=address,
            title=title or unquote(segments[-1]).replace("-", " ").replace("_", " ").strip().capitalize(),
            module=keys[0],
            module_keys=keys,
            text=text,
            revision=hashlib.sha256(reply.body).hexdigest(),
            format="html",
        )


def _head(reply: Reply) -> Head:
    try:
        return read_head(decode(reply.body, reply.headers.get("content-type", ""))[0])
    except UnicodeError:
        return Head()


def _inner(path: str) -> list[str]:
    """Return the segments of a path without those of the edition, such as `en/latest`."""
    segments = path.partition("?")[0].split("/")
    while len(segments) > 1 and _OUTER.fullmatch(segments[0]):
        segments = segments[1:]
    return segments
