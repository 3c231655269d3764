"""What a website says of itself: its rules for programs, and its sitemaps."""

from __future__ import annotations

from collections.abc import Callable

from recto.book.web import robots, sitemap
from recto.book.web.cache import PageCache
from recto.book.web.fetch import Admit, Fetcher, FetchFailed, OtherContent
from recto.book.web.urls import Scope, normal
from recto.errors import Unreachable

_AGENT = "recto"
_RULES = frozenset({"text/plain", "text/html", "application/octet-stream", "text/x-robots"})


def read_robots(fetcher: Fetcher, host: str) -> robots.Robots:
    """Read a website's rules; one whose rules cannot be asked for is not read at all."""
    address = f"{host}/robots.txt"
    try:
        reply = fetcher.get(address, _RULES, robots.LARGEST * 2)
    except OtherContent:
        return robots.Robots()
    except FetchFailed as failure:
        private = "not a public address" in failure.reason
        raise Unreachable(
            f"{address} cannot be read: {failure.reason}",
            hint="Add --allow-private if the website is your own." if private else "Check the address, or try again later.",
        ) from failure
    if reply.status != 200 or reply.content_type == "text/html":
        return robots.Robots()
    return robots.parse_robots(reply.body.decode("utf-8", "replace"), _AGENT)


def sitemap_pages(
    fetcher: Fetcher, cache: PageCache, scope: Scope, rules: robots.Robots, admit: Admit, note: Callable[[str], None]
) -> list[str]:
    """Return the addresses that sitemaps name: those of robots.txt, else the one at the book's address, else the one of the host."""

    def own(url: str) -> str:
        return scope.own(normal(url, f"{scope.host}/"))

    def read(url: str) -> sitemap.Listed | None:
        earlier, _ = cache.get(url)
        try:
            reply = fetcher.get(url, sitemap.KINDS, sitemap.LARGEST, earlier=earlier, admit=admit)
        except OtherContent:
            return None
        except FetchFailed as failure:
            # What it named must not vanish from the index because it fails today.
            note(f"The sitemap {url} cannot be read: {failure.reason}" + ("; its last version is used." if earlier else "."))
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
