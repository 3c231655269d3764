"""What a website says about its pages: robots.txt (RFC 9309) and sitemaps, read within limits."""

from __future__ import annotations

import re
import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from html import unescape
from itertools import islice

from protego import Protego

from recto.book.sources.website import Scope, normal
from recto.book.sources.website.fetch import Admit, Fetcher, FetchFailed, WrongContentType, unpacked
from recto.errors import Unreachable

_AGENT = "recto"
_ROBOTS_TYPES = frozenset({"text/plain", "application/octet-stream", "text/x-robots"})
_LARGEST_ROBOTS = 500 << 10  # RFC 9309 asks for at least this
_LONGEST_WILDCARDS = 64 << 10  # characters of all rules with wildcards; each is compared with every path
_AGENT_LINE = re.compile(r"\s*user[- ]?agent\s*:?\s*(\*|[a-z_-]*)", re.IGNORECASE)
_WILDCARD = re.compile(r"[^#]*[*$]")


class Robots:
    """The rules of a robots.txt for Recto."""

    def __init__(self, text: str = "") -> None:
        """Parse a file; raise FetchFailed if its rules would take too long to obey."""
        lines = text.removeprefix("\ufeff")[:_LARGEST_ROBOTS].splitlines()
        if len(text) > _LARGEST_ROBOTS:
            lines.pop()  # it may be cut off
        kept, wildcards = [], 0
        for line in lines:
            # The parser copies every rule to each agent that it is for, and a file can name thousands.
            if agent := _AGENT_LINE.match(line):
                name = agent[1].lower()
                kept.append(f"User-agent: {name if name in ('*', _AGENT) else 'other'}")
            else:
                kept.append(line)
                wildcards += len(line) if _WILDCARD.match(line) else 0
        if wildcards > _LONGEST_WILDCARDS:
            raise FetchFailed(f"its rules with wildcards are longer than {_LONGEST_WILDCARDS >> 10} KiB")
        self._rules = Protego.parse("\n".join(kept))
        self.delay = self._rules.crawl_delay(_AGENT) or 0.0
        self.sitemaps = tuple(dict.fromkeys(self._rules.sitemaps))

    def allows(self, url: str) -> bool:
        """Return whether a URL may be fetched."""
        return self._rules.can_fetch(url, _AGENT)


def read_robots(fetcher: Fetcher, host: str) -> Robots:
    """Read robots.txt; raise an error if it cannot be fetched."""
    address = f"{host}/robots.txt"
    try:
        result = fetcher.get(address, _ROBOTS_TYPES, _LARGEST_ROBOTS * 2)
        return Robots(result.body.decode("utf-8", "replace"))  # no body, no rules
    except WrongContentType:
        return Robots()
    except FetchFailed as failure:
        private = "not a public address" in str(failure)
        raise Unreachable(
            f"{address} cannot be read: {failure}",
            hint="Add --allow-private if the website is yours. Redirects to other private hosts are refused."
            if private
            else "Check the URL, or try again later.",
        ) from failure


_XML = frozenset({"application/xml", "text/xml", "application/rss+xml", "text/plain"})
_SITEMAP_TYPES = _XML | {"application/gzip", "application/x-gzip", "application/octet-stream"}
_LARGEST_SITEMAP = 16 << 20
_MOST_SITEMAPS = 50
_DEEPEST = 3  # sitemaps in sitemaps
_MOST_ADDRESSES = 50_000
_LOCATION = re.compile(r"<loc>\s*+(?:<!\[CDATA\[)?([^<>\[\]]{1,2000})")
_LINE = re.compile(r"^[ \t]*(https?://\S{1,2000})", re.MULTILINE)
_END = re.compile(r"</(?:urlset|sitemapindex)>|<(?:urlset|sitemapindex)[^<>]{0,2000}/>")


@dataclass(slots=True)
class Sitemap:
    """The URLs of pages and of more sitemaps; `flaw` says why the list may be incomplete."""

    pages: list[str] = field(default_factory=list)
    sitemaps: list[str] = field(default_factory=list)
    flaw: str = ""


def sitemap_pages(
    fetcher: Fetcher, scope: Scope, robots: Robots, admit: Admit, note: Callable[[str], None]
) -> list[str]:
    """Return the URLs in the sitemaps that robots.txt names, else in the book's own, else in the host's."""
    root = f"{scope.host}/"

    def own(urls: list[str] | tuple[str, ...]) -> list[str]:
        return [address for url in urls if (address := scope.own(normal(url, root)))]

    seen: set[str] = set()
    for starts in (own(robots.sitemaps), [f"{scope.host}{scope.prefix}sitemap.xml"], [f"{root}sitemap.xml"]):
        queue = deque((start, 1) for start in dict.fromkeys(starts) if robots.allows(start))
        pages: dict[str, None] = {}
        while queue:
            url, depth = queue.popleft()
            if url in seen:
                continue
            if len(seen) >= _MOST_SITEMAPS or len(pages) >= _MOST_ADDRESSES:
                note(f"Only the first {len(seen)} sitemaps were read.")
                break
            seen.add(url)
            sitemap = _read_sitemap(fetcher, url, admit, note)
            pages |= dict.fromkeys(sitemap.pages[: _MOST_ADDRESSES - len(pages)])
            further = own(sitemap.sitemaps)
            if further and depth >= _DEEPEST:
                note(f"The sitemaps that {url} lists were not read: they are nested too deep.")
            else:
                queue.extend((address, depth + 1) for address in further[:_MOST_SITEMAPS])
        if pages:
            return [address for page in pages if (address := normal(page, root))]
    return []


def _read_sitemap(fetcher: Fetcher, url: str, admit: Admit, note: Callable[[str], None]) -> Sitemap:
    """Read a sitemap; if that fails use its last version, so that its pages stay in the index."""
    try:
        sitemap = parse_sitemap(fetcher.current(url, _SITEMAP_TYPES, _LARGEST_SITEMAP, admit).body)
    except WrongContentType:
        return Sitemap()
    except FetchFailed as failure:
        earlier, _ = fetcher.cache.get(url)
        instead = "; its last version is used." if earlier else "."
        note(f"The sitemap {url} cannot be read: {failure}{instead}")
        return parse_sitemap(earlier.body) if earlier else Sitemap()
    if sitemap.flaw:
        note(f"The sitemap {url} was read only in part: {sitemap.flaw}.")
    return sitemap


def parse_sitemap(data: bytes) -> Sitemap:
    """Parse a sitemap (XML or a list of URLs, plain or gzipped); keep what comes before an error.

    Only the addresses are searched for: entities are not expanded, and nesting has no meaning.
    """
    try:
        text = (unpacked(data, _LARGEST_SITEMAP) if data[:2] == b"\x1f\x8b" else data).decode(
            "utf-8", "replace"
        )
    except OverflowError:
        return Sitemap(flaw=f"decompressed it is larger than {_LARGEST_SITEMAP >> 20} MiB")
    except zlib.error as error:
        return Sitemap(flaw=f"it cannot be decompressed: {error}")
    is_xml = text.lstrip("\ufeff \t\r\n").startswith("<")
    found = _LOCATION.finditer(text) if is_xml else _LINE.finditer(text)
    addresses = [unescape(match[1]).strip() for match in islice(found, _MOST_ADDRESSES + 1)]
    flaw = "it is cut off" if is_xml and not _END.search(text) else ""
    if len(addresses) > _MOST_ADDRESSES:
        flaw = f"only its first {_MOST_ADDRESSES} URLs are read"
        del addresses[_MOST_ADDRESSES:]
    return Sitemap([], addresses, flaw) if "<sitemapindex" in text else Sitemap(addresses, [], flaw)
