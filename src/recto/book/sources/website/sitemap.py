"""Parse sitemaps within limits and without external entities."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from xml.parsers import expat

from recto.book.sources.website.fetch import unpacked

LARGEST = 16 << 20
KINDS = frozenset(
    {
        "application/xml",
        "text/xml",
        "text/plain",
        "application/gzip",
        "application/x-gzip",
        "application/octet-stream",
        "application/rss+xml",
    }
)
_MOST_FILES = 50
_DEEPEST = 3
_MOST_ADDRESSES = 50_000
_LONGEST_ADDRESS = 2000


class SitemapRefused(Exception):
    """A sitemap that cannot be read completely."""


@dataclass(slots=True)
class Listed:
    """The URLs of pages and of more sitemaps; `flaw` says why the list may be incomplete."""

    pages: list[str] = field(default_factory=list)
    sitemaps: list[str] = field(default_factory=list)
    flaw: str = ""


def parse_sitemap(data: bytes) -> Listed:
    """Parse a sitemap, plain or gzipped; keep what comes before an error."""
    listed = Listed()
    if data[:2] == b"\x1f\x8b":
        try:
            data = unpacked(data, LARGEST)
        except OverflowError:
            listed.flaw = f"unpacked it is larger than {LARGEST >> 20} MiB"
            return listed
        except zlib.error as error:
            listed.flaw = f"it cannot be unpacked: {error}"
            return listed
    if not data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
        lines = [line.strip() for line in data.decode("utf-8", "replace").splitlines()]
        listed.pages = [line for line in lines if line.startswith(("http://", "https://"))][:_MOST_ADDRESSES]
        return listed
    try:
        _scan(data, listed)
    except (expat.ExpatError, SitemapRefused) as error:
        listed.flaw = str(error)
    return listed


def _scan(data: bytes, listed: Listed) -> None:
    parser = expat.ParserCreate(namespace_separator=" ")
    path: list[str] = []
    text: list[str] = []

    def start(name: str, _: object) -> None:
        path.append(name.rpartition(" ")[2])
        text.clear()
        if len(path) > 20:
            raise SitemapRefused("it is nested too deep")

    def end(_: str) -> None:
        if path[-2:] == ["url", "loc"]:
            listed.pages.append("".join(text).strip())
        elif path[-2:] == ["sitemap", "loc"]:
            listed.sitemaps.append("".join(text).strip())
        path.pop()
        if len(listed.pages) + len(listed.sitemaps) >= _MOST_ADDRESSES:
            raise SitemapRefused(f"only its first {_MOST_ADDRESSES} addresses are read")

    def characters(data: str) -> None:
        if path and path[-1] == "loc" and sum(map(len, text)) < _LONGEST_ADDRESS:
            text.append(data)

    def refuse(*_: object) -> None:
        raise SitemapRefused("it declares entities, which no sitemap needs")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = characters
    parser.EntityDeclHandler = refuse
    parser.Parse(data, True)


def collect(
    starts: Iterable[str], read: Callable[[str], Listed | None], own: Callable[[str], str], seen: set[str]
) -> tuple[list[str], list[str]]:
    """Read sitemaps and those that they list; return the URLs of pages, and notes on errors.

    `read` returns the content of a sitemap, or None; `own` returns the URL of another sitemap, or "" if it
    is on another host; `seen` are the sitemaps that were read before.
    """
    queue = deque((start, 1) for start in starts)
    pages: dict[str, None] = {}
    flaws: list[str] = []
    while queue:
        url, depth = queue.popleft()
        if url in seen:
            continue
        if len(seen) >= _MOST_FILES or len(pages) >= _MOST_ADDRESSES:
            flaws.append(f"There are more sitemaps than the {len(seen)} that were read.")
            break
        seen.add(url)
        listed = read(url)
        if listed is None:
            continue
        if listed.flaw:
            flaws.append(f"The sitemap {url} was not read to its end: {listed.flaw}.")
        pages.update(dict.fromkeys(listed.pages[: _MOST_ADDRESSES - len(pages)]))
        further = [address for address in map(own, listed.sitemaps) if address]
        if further and depth >= _DEEPEST:
            flaws.append(f"The sitemaps that {url} names were not read: they are nested too deep.")
        else:
            queue.extend((address, depth + 1) for address in further[:_MOST_FILES])
    return list(pages), flaws
