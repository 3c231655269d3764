"""What a website says about its pages: robots.txt (RFC 9309) and sitemaps, read within limits."""

from __future__ import annotations

import re
import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from xml.parsers import expat

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
_DEEPEST_ELEMENT = 20
_MOST_ADDRESSES = 50_000
_LONGEST_ADDRESS = 2000


class SitemapRefused(Exception):
    """A sitemap that cannot be read completely."""


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
    """Parse a sitemap (XML or a list of URLs, plain or gzipped); keep what comes before an error."""
    sitemap = Sitemap()
    try:
        data = unpacked(data, _LARGEST_SITEMAP) if data[:2] == b"\x1f\x8b" else data
        if data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
            _parse_xml(data, sitemap)
        else:
            lines = [line.strip() for line in data.decode("utf-8", "replace").splitlines()]
            sitemap.pages = [line for line in lines if line.startswith(("http://", "https://"))]
            del sitemap.pages[_MOST_ADDRESSES:]
    except OverflowError:
        sitemap.flaw = f"decompressed it is larger than {_LARGEST_SITEMAP >> 20} MiB"
    except zlib.error as error:
        sitemap.flaw = f"it cannot be decompressed: {error}"
    except (expat.ExpatError, SitemapRefused) as error:
        sitemap.flaw = str(error)
    return sitemap


def _parse_xml(data: bytes, sitemap: Sitemap) -> None:
    parser = expat.ParserCreate(namespace_separator=" ")
    path: list[str] = []
    text: list[str] = []

    def start(name: str, _: object) -> None:
        path.append(name.rpartition(" ")[2])
        text.clear()
        if len(path) > _DEEPEST_ELEMENT:
            raise SitemapRefused("it is nested too deep")

    def end(_: str) -> None:
        if path[-2:] == ["url", "loc"]:
            sitemap.pages.append("".join(text).strip())
        elif path[-2:] == ["sitemap", "loc"]:
            sitemap.sitemaps.append("".join(text).strip())
        path.pop()
        if len(sitemap.pages) + len(sitemap.sitemaps) >= _MOST_ADDRESSES:
            raise SitemapRefused(f"only its first {_MOST_ADDRESSES} URLs are read")

    def characters(data: str) -> None:
        if path and path[-1] == "loc" and sum(map(len, text)) < _LONGEST_ADDRESS:
            text.append(data)

    def refuse(*_: object) -> None:
        raise SitemapRefused("it declares entities, which are not allowed")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = characters
    parser.EntityDeclHandler = refuse
    parser.Parse(data, True)
