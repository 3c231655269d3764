"""A book that is published on a website: limits of a crawl, and which URLs belong to the book."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote, urljoin, urlsplit, urlunsplit

from recto import __version__

_PORTS = {"http": 80, "https": 443}
_SAFE = "/%:@!$&'()*+,;=~-._"
_LONGEST = 2000
_DOT = re.compile("%2e", re.IGNORECASE)
_BAD_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_INDEX = re.compile(r"(^|/)index(?:\.html?|\.php)?$", re.IGNORECASE)
_PAGE = re.compile(r"\.(?:html?|xhtml)$", re.IGNORECASE)

Resolve = Callable[[str, int], list[str]]
"""Resolves a host and a port to IP addresses; raises OSError."""


@dataclass(frozen=True, slots=True)
class CrawlOptions:
    """Limits of a crawl, in seconds and bytes; `timeout` covers a whole request."""

    max_pages: int = 2000
    max_bytes: int = 4 << 20
    delay: float = 0.5
    max_delay: float = 10.0
    timeout: float = 30.0
    tries: int = 3
    backoff: float = 1.0
    max_wait: float = 60.0
    allow_private: bool = False
    user_agent: str = f"recto/{__version__}"


def normal(url: str, base: str = "") -> str:
    """Return a normalised URL without its fragment; "" if it cannot be fetched."""
    try:
        parts = urlsplit(urljoin(base, url.strip()) if base else url.strip())
        host, port = (parts.hostname or "").rstrip("."), parts.port
        if parts.scheme not in _PORTS or not host or "@" in parts.netloc or "\\" in url:
            return ""
        host = f"[{host}]" if ":" in host else host.encode("idna").decode("ascii")
    except (ValueError, UnicodeError):
        return ""
    netloc = host if port in (None, _PORTS[parts.scheme]) else f"{host}:{port}"
    path = quote(_BAD_PERCENT.sub("%25", _without_dots(_DOT.sub(".", parts.path))), safe=_SAFE)
    query = quote(_BAD_PERCENT.sub("%25", parts.query), safe=_SAFE + "?")
    address = urlunsplit((parts.scheme, netloc, path, query, ""))
    return address if len(address) <= _LONGEST else ""


def _without_dots(path: str) -> str:
    kept: list[str] = []
    segments = path.split("/")[1:]
    for segment in segments:
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    if segments and segments[-1] in (".", ".."):
        kept.append("")
    return "/" + "/".join(kept)


@dataclass(frozen=True, slots=True)
class Scope:
    """The part of a website that is the book: everything below the given URL.

    `published` is the address of the book if the website is only a preview of it.
    """

    scheme: str
    netloc: str
    prefix: str
    published: str = ""

    @staticmethod
    def of(url: str, published: str = "") -> Scope:
        """Return the scope of a URL; a file has the scope of its directory."""
        parts = urlsplit(url)
        folder, _, last = parts.path.rpartition("/")
        is_file = "." in last or not last
        prefix = f"{folder}/" if is_file else f"{parts.path}/"
        return Scope(parts.scheme, parts.netloc, prefix, f"{published.rstrip('/')}/" if published else "")

    @property
    def host(self) -> str:
        """The URL of the website's root."""
        return f"{self.scheme}://{self.netloc}"

    def own(self, url: str) -> str:
        """Return a URL on this host with the scope's scheme; "" if it is on another host."""
        if self.published and url.startswith(self.published):
            url = f"{self.host}{self.prefix}{url.removeprefix(self.published)}"
        parts = urlsplit(url)
        # http and https are the same host, unless a port is given.
        other_scheme = parts.scheme != self.scheme and ":" in self.netloc.rpartition("]")[2]
        if parts.netloc != self.netloc or other_scheme:
            return ""
        return urlunsplit((self.scheme, *parts[1:]))

    def publish(self, url: str) -> str:
        """Return the published URL of a page in the book."""
        below = url[len(self.host + self.prefix) :]
        return self.published + below if self.published else url

    def contains(self, url: str) -> bool:
        """Return whether a page on this host belongs to the book."""
        path = urlsplit(url).path
        return path.startswith(self.prefix) or f"{path}/" == self.prefix

    def path(self, url: str) -> str:
        """Return the path of a page in the book; URLs of the same page share a path, the first is `index`."""
        parts = urlsplit(url)
        path = _INDEX.sub(r"\1", parts.path[len(self.prefix) :]).strip("/")
        path = _PAGE.sub("", path) or "index"
        return f"{path}?{parts.query}" if parts.query else path
