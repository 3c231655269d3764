"""Fetch one URL at a time, politely and within limits.

Proxies of the environment are not used: behind one, the address of a host cannot be checked.
"""

from __future__ import annotations

import codecs
import ipaddress
import re
import socket
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import TYPE_CHECKING, Self

from recto import __version__
from recto.book.sources.website.urls import normal
from recto.errors import missing_extra

if TYPE_CHECKING:
    import httpcore


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


Resolve = Callable[[str, int], list[str]]
"""Resolves a host and a port to IP addresses; raises OSError."""

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_NAT64 = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("64:ff9b:1::/48"))
_COMPATIBLE = ipaddress.IPv6Network("::/96")


def resolve(host: str, port: int) -> list[str]:
    """Resolve a host with the system's resolver."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def is_public(address: str) -> bool:
    """Return whether an IP address is public, in whatever form it is written."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return all(_is_open(one) for one in (parsed, *_embedded(parsed)))


def _embedded(address: _Address) -> list[ipaddress.IPv4Address]:
    """Return the IPv4 addresses that an IPv6 address embeds."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    found = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _COMPATIBLE or any(address in network for network in _NAT64):
        found.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [one for one in found if one is not None]


def _is_open(address: _Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address) and (
        address.ipv4_mapped or any(address in network for network in _NAT64)
    ):
        return True  # the embedded address decides
    refused = (
        address.is_private,
        address.is_loopback,
        address.is_link_local,
        address.is_multicast,
        address.is_reserved,
        address.is_unspecified,
    )
    return address.is_global and not any(refused)


_HEADER = re.compile(r"charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
_META = re.compile(rb"<meta[^>]{0,500}?charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.IGNORECASE)
_LOOKED_AT = 4096  # bytes; the standard asks for 1024
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_WEB = re.compile(
    r"utf-8|utf-16(?:-[lb]e)?|iso8859-\d+|cp125\d|cp874|cp932|cp949|koi8-[ru]|gb2312|gbk|gb18030|big5|euc_jp|euc_kr|shift_jis"
)
_ONE_IN = 100  # with more than one wrong character in so many, it is not text


def decode(body: bytes, content_type: str) -> tuple[str, int]:
    """Return the text and the number of undecodable characters; raise UnicodeError if it is not text."""
    for mark, name in _MARKS:
        if body.startswith(mark):
            return _decoded(body[len(mark) :], name)
    stated = _HEADER.search(content_type)
    written = _META.search(body[:_LOOKED_AT])
    for name in (stated[1] if stated else "", written[1].decode("ascii") if written else ""):
        if known := _known(name):
            return _decoded(body, known)
    return _decoded(body, "utf-8")


def _known(name: str) -> str:
    """Return the Python name of an encoding that is used on the web, or ""."""
    try:
        known = codecs.lookup(name).name if name else ""
    except LookupError:
        return ""
    # On the web, Latin-1 and ASCII mean Windows-1252.
    return "cp1252" if known in ("iso8859-1", "ascii") else known if _WEB.fullmatch(known) else ""


def _decoded(body: bytes, name: str) -> tuple[str, int]:
    try:
        return body.decode(name), 0
    except UnicodeDecodeError:
        text = body.decode(name, "replace")
    wrong = text.count("\ufffd")
    if wrong * _ONE_IN > len(text):
        raise UnicodeError(f"it is not written in {name}")
    return text, wrong


HTML = frozenset({"text/html", "application/xhtml+xml"})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MOST_REDIRECTS = 5
_LATER = frozenset({408, 425, 429, 500, 502, 503, 504})
_GZIP = 16 + zlib.MAX_WBITS
_ANY = 32 + zlib.MAX_WBITS  # gzip or zlib, as the data says

Admit = Callable[[str], str]
"""Returns why a redirect is not followed, or ""."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A response; it has a body only if the status is 200."""

    url: str
    status: int
    content_type: str
    headers: Mapping[str, str]
    body: bytes


class FetchFailed(Exception):
    """A URL that could not be fetched; `status` is that of the response, if there was one."""

    def __init__(self, reason: str, *, status: int = 0, url: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status
        self.url = url


class NotAnswered(FetchFailed):
    """A transient failure: no response, or one that asks to retry after `wait` seconds."""

    def __init__(self, reason: str, *, status: int = 0, wait: float | None = None) -> None:
        super().__init__(reason, status=status)
        self.wait = wait


class Elsewhere(FetchFailed):
    """A redirect that is not followed; `url` is its target."""


class OtherContent(FetchFailed):
    """A response of another content type."""


class Fetcher:
    """Fetches URLs, one request at a time, with a pause between two."""

    def __init__(
        self, options: CrawlOptions, resolve: Resolve = resolve, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        try:
            from recto.book.sources.website.connection import Deadline, open_pool
        except ImportError as error:
            raise missing_extra("Reading a website", "crawl") from error
        self.delay = options.delay
        self.requests = 0
        self._options = options
        self._sleep = sleep
        self._deadline = Deadline()
        self._pool = open_pool(resolve, self._deadline, allow_private=options.allow_private)
        self._last: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.close()

    def get(
        self,
        url: str,
        kinds: frozenset[str],
        limit: int,
        *,
        admit: Admit | None = None,
        earlier: Reply | None = None,
    ) -> Reply:
        """Fetch a URL, with retries; the status is 304 if it has not changed since `earlier`."""
        for attempt in range(1, self._options.tries + 1):
            try:
                return self._follow(url, kinds, limit, admit, earlier)
            except NotAnswered as failure:
                wait = self._options.backoff * 2 ** (attempt - 1) if failure.wait is None else failure.wait
                if attempt == self._options.tries or wait > self._options.max_wait:
                    raise
                self._sleep(wait)
        raise AssertionError("there is at least one try")

    def _follow(
        self, url: str, kinds: frozenset[str], limit: int, admit: Admit | None, earlier: Reply | None
    ) -> Reply:
        for _ in range(_MOST_REDIRECTS + 1):
            reply = self._ask(url, kinds, limit, earlier if earlier and earlier.url == url else None)
            if reply.status not in _REDIRECTS:
                return reply
            target = normal(reply.headers.get("location", ""), url)
            if not target:
                location = reply.headers.get("location", "")[:200]
                raise FetchFailed(f"it redirects to an address that is not followed: {location}")
            if admit is not None and (reason := admit(target)):
                raise Elsewhere(reason, url=target)
            url = target
        raise FetchFailed("it redirects without end")

    def _ask(self, url: str, kinds: frozenset[str], limit: int, earlier: Reply | None) -> Reply:
        import httpcore

        from recto.book.sources.website.connection import AddressRefused

        self._pause()
        self.requests += 1
        self._deadline.begin(self._options.timeout)
        try:
            with self._pool.stream("GET", url, headers=self._headers(kinds, earlier)) as response:
                return self._read(url, response, kinds, limit)
        except AddressRefused as error:
            raise FetchFailed(str(error)) from error
        except httpcore.TimeoutException as error:
            raise NotAnswered(f"no whole answer within {self._options.timeout:g} seconds") from error
        except (httpcore.NetworkError, httpcore.ProtocolError) as error:
            raise NotAnswered(f"the connection failed: {error}"[:300]) from error
        finally:
            self._last = time.monotonic()

    def _pause(self) -> None:
        if self._last is not None and (left := self._last + self.delay - time.monotonic()) > 0:
            self._sleep(left)

    def _headers(self, kinds: frozenset[str], earlier: Reply | None) -> dict[str | bytes, str | bytes]:
        headers: dict[str | bytes, str | bytes] = {
            "User-Agent": self._options.user_agent,
            "Accept": ", ".join(sorted(kinds)) + ", */*;q=0.1",
            "Accept-Encoding": "gzip, deflate",
        }
        if earlier is not None:
            conditions = {
                "If-None-Match": earlier.headers.get("etag"),
                "If-Modified-Since": earlier.headers.get("last-modified"),
            }
            headers |= {name: value for name, value in conditions.items() if value}
        return headers

    def _read(self, url: str, response: httpcore.Response, kinds: frozenset[str], limit: int) -> Reply:
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers
        }
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        status = response.status
        if status in _LATER:
            raise NotAnswered(
                f"the server answered {status}",
                status=status,
                wait=_retry_after(headers.get("retry-after", "")),
            )
        if status != 200:
            return Reply(url, status, kind, headers, b"")
        if kind and kind not in kinds:
            raise OtherContent(f"it is {kind[:100]}", status=status)
        return Reply(url, status, kind, headers, _body(response, headers.get("content-encoding", ""), limit))


def _body(response: httpcore.Response, encoding: str, limit: int) -> bytes:
    """Read a body of at most `limit` bytes, as sent and as decompressed."""
    too_large = FetchFailed(f"it is larger than {limit / (1 << 20):g} MiB")
    encoding = encoding.strip().lower()
    if encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
        raise FetchFailed(f"it is packed as {encoding[:40]}, which was not asked for")
    received = bytearray()
    for part in response.iter_stream():
        received += part
        if len(received) > limit:
            raise too_large
    if encoding in ("", "identity"):
        return bytes(received)
    try:
        return unpacked(bytes(received), limit, _GZIP if encoding.endswith("gzip") else _ANY)
    except OverflowError:
        raise too_large from None
    except zlib.error as error:
        if encoding == "deflate":  # some servers omit the zlib header
            try:
                return unpacked(bytes(received), limit, -zlib.MAX_WBITS)
            except (zlib.error, OverflowError):
                pass
        raise FetchFailed(f"it cannot be unpacked: {error}") from error


def unpacked(data: bytes, limit: int, window: int = _GZIP) -> bytes:
    """Decompress at most `limit` bytes; raise OverflowError for more, zlib.error for damaged data."""
    whole = bytearray()
    while data:
        stream = zlib.decompressobj(window)
        whole += stream.decompress(data, limit - len(whole) + 1)
        if len(whole) > limit:
            raise OverflowError
        if not stream.eof:
            raise zlib.error("it ends early")
        data = stream.unused_data if stream.unused_data[:2] == b"\x1f\x8b" else b""
    return bytes(whole)


def _retry_after(value: str) -> float | None:
    """Return the seconds of a Retry-After header, or None."""
    value = value.strip()
    if value.isascii() and value.isdigit():
        return float(value[:9])
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())
