"""What a website says about its pages: robots.txt (RFC 9309) and sitemaps, read within limits."""

from __future__ import annotations

import re
import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import quote, unquote, urlsplit
from xml.parsers import expat

from recto.book.sources.website.cache import PageCache
from recto.book.sources.website.fetch import Admit, Fetcher, FetchFailed, WrongContentType, unpacked
from recto.book.sources.website.urls import Scope, normal
from recto.errors import Unreachable

_AGENT = "recto"
_ROBOTS_TYPES = frozenset({"text/plain", "text/html", "application/octet-stream", "text/x-robots"})
_LARGEST_ROBOTS = 500 << 10
_MOST_RULES = 5000
_TOKEN = re.compile(r"[A-Za-z_-]+")
_DELAY = re.compile(r"\d{1,6}(?:\.\d{1,6})?")


@dataclass(frozen=True, slots=True)
class Robots:
    """The rules for one agent; a rule is the length of its pattern, whether it allows, and the pattern."""

    rules: tuple[tuple[int, bool, re.Pattern[str]], ...] = ()
    delay: float = 0.0
    sitemaps: tuple[str, ...] = ()

    def allows(self, url: str) -> bool:
        """Return whether a URL may be fetched: the longest matching pattern wins, then `allow`."""
        parts = urlsplit(url)
        path = _normalised((parts.path or "/") + (f"?{parts.query}" if parts.query else ""))
        matching = [(length, allowed) for length, allowed, pattern in self.rules if pattern.match(path)]
        return max(matching)[1] if matching else True


def read_robots(fetcher: Fetcher, host: str) -> Robots:
    """Read robots.txt; raise an error if it cannot be fetched."""
    address = f"{host}/robots.txt"
    try:
        result = fetcher.get(address, _ROBOTS_TYPES, _LARGEST_ROBOTS * 2)
    except WrongContentType:
        return Robots()
    except FetchFailed as failure:
        private = "not a public address" in failure.reason
        raise Unreachable(
            f"{address} cannot be read: {failure.reason}",
            hint="Add --allow-private if the website is your own."
            if private
            else "Check the URL, or try again later.",
        ) from failure
    if result.status != 200 or result.content_type == "text/html":
        return Robots()
    return parse_robots(result.body.decode("utf-8", "replace"), _AGENT)


def parse_robots(text: str, agent: str) -> Robots:
    """Return the rules of an agent, else those for all agents."""
    rules: dict[str, list[tuple[int, bool, re.Pattern[str]]]] = {}
    delays: dict[str, float] = {}
    sitemaps: list[str] = []
    named: list[str] = []
    in_rules = False
    for line in text.removeprefix("\ufeff")[:_LARGEST_ROBOTS].splitlines():
        key, found, value = line.partition("#")[0].partition(":")
        key, value = key.strip().lower(), value.strip()
        if not found:
            continue
        if key == "user-agent":
            token = _TOKEN.match(value)
            named = [*([] if in_rules else named), "*" if value == "*" else token[0].lower() if token else ""]
            in_rules = False
            rules.setdefault(named[-1], [])
        elif key in ("allow", "disallow"):
            in_rules = True
            for name in named:
                if value and len(rules[name]) < _MOST_RULES:
                    rules[name].append((len(_normalised(value)), key == "allow", _pattern(value)))
        elif key == "crawl-delay":
            in_rules = True
            delays |= dict.fromkeys(named, float(value) if _DELAY.fullmatch(value) else 0.0)
        elif key == "sitemap":
            sitemaps.append(value)
    name = agent.lower() if agent.lower() in rules else "*"
    return Robots(tuple(rules.get(name, ())), delays.get(name, 0.0), tuple(dict.fromkeys(sitemaps)))


def _normalised(path: str) -> str:
    """Normalise percent-encoding, so that patterns and paths can be compared."""
    return quote(unquote(path, errors="surrogateescape"), safe="/*$?&=:@!,;~+'()%", errors="surrogateescape")


def _pattern(rule: str) -> re.Pattern[str]:
    """Translate a rule: `*` is any text, `$` the end. Atomic groups keep a hostile one from backtracking."""
    rule = _normalised(rule)
    first, *others = map(re.escape, rule.removesuffix("$").split("*"))
    last = f".*{others.pop()}" if rule.endswith("$") and others else ""
    end = r"\Z" if rule.endswith("$") else ""
    return re.compile(first + "".join(f"(?>.*?{part})" for part in others) + last + end, re.DOTALL)


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
    fetcher: Fetcher,
    cache: PageCache,
    scope: Scope,
    robots: Robots,
    admit: Admit,
    note: Callable[[str], None],
) -> list[str]:
    """Return the URLs in the sitemaps: those of robots.txt, else the book's own, else the host's."""
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
            found = _read_sitemap(fetcher, cache, url, admit, note)
            pages |= dict.fromkeys(found.pages[: _MOST_ADDRESSES - len(pages)])
            further = own(found.sitemaps)
            if further and depth >= _DEEPEST:
                note(f"The sitemaps that {url} lists were not read: they are nested too deep.")
            else:
                queue.extend((address, depth + 1) for address in further[:_MOST_SITEMAPS])
        if pages:
            return [address for page in pages if (address := normal(page, root))]
    return []


def _read_sitemap(
    fetcher: Fetcher, cache: PageCache, url: str, admit: Admit, note: Callable[[str], None]
) -> Sitemap:
    """Read a sitemap; if that fails use its last version, so that its pages stay in the index."""
    earlier, _ = cache.get(url)
    try:
        result = fetcher.get(url, _SITEMAP_TYPES, _LARGEST_SITEMAP, earlier=earlier, admit=admit)
    except WrongContentType:
        return Sitemap()
    except FetchFailed as failure:
        instead = "; its last version is used." if earlier else "."
        note(f"The sitemap {url} cannot be read: {failure.reason}{instead}")
        return parse_sitemap(earlier.body) if earlier else Sitemap()
    if result.status == 200:
        cache.put(url, result)
    found = parse_sitemap(earlier.body if result.status == 304 and earlier else result.body)
    if found.flaw:
        note(f"The sitemap {url} was read only in part: {found.flaw}.")
    return found


def parse_sitemap(data: bytes) -> Sitemap:
    """Parse a sitemap (XML or a list of URLs, plain or gzipped); keep what comes before an error."""
    found = Sitemap()
    try:
        data = unpacked(data, _LARGEST_SITEMAP) if data[:2] == b"\x1f\x8b" else data
        if data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
            _parse_xml(data, found)
        else:
            lines = [line.strip() for line in data.decode("utf-8", "replace").splitlines()]
            found.pages = [line for line in lines if line.startswith(("http://", "https://"))]
            del found.pages[_MOST_ADDRESSES:]
    except OverflowError:
        found.flaw = f"decompressed it is larger than {_LARGEST_SITEMAP >> 20} MiB"
    except zlib.error as error:
        found.flaw = f"it cannot be decompressed: {error}"
    except (expat.ExpatError, SitemapRefused) as error:
        found.flaw = str(error)
    return found


def _parse_xml(data: bytes, found: Sitemap) -> None:
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
            found.pages.append("".join(text).strip())
        elif path[-2:] == ["sitemap", "loc"]:
            found.sitemaps.append("".join(text).strip())
        path.pop()
        if len(found.pages) + len(found.sitemaps) >= _MOST_ADDRESSES:
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
