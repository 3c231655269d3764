"""Fetch one URL at a time, politely and within limits, and cache the pages; needs the extra `crawl`.

Proxies of the environment are not used: behind one, the address of a host cannot be checked.
"""

from __future__ import annotations

import base64
import codecs
import hashlib
import json
import re
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import httpcore

from recto._util.files import make_private, replace_text
from recto._util.retry import retry, retry_after
from recto.book.sources.website import CrawlOptions, Resolve, normal
from recto.book.sources.website.addresses import is_public
from recto.book.sources.website.network import AddressRefused, GuardedBackend
from recto.errors import StorageError

HTML = frozenset({"text/html", "application/xhtml+xml"})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MOST_REDIRECTS = 5
_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
_GZIP = 16 + zlib.MAX_WBITS
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS

Admit = Callable[[str], str]
"""Returns why a redirect is not followed, or ""."""


@dataclass(frozen=True, slots=True)
class FetchResult:
    """A response; it has a body only if the status is 200."""

    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes


class FetchFailed(Exception):
    """A URL that could not be fetched, and why."""


class NoResponse(FetchFailed):
    """A transient failure: no response, or one that asks to retry after `wait` seconds."""

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.wait = wait


class RedirectRefused(FetchFailed):
    """A redirect that is not followed; `url` is its target."""

    def __init__(self, reason: str, url: str) -> None:
        super().__init__(reason)
        self.url = url


class WrongContentType(FetchFailed):
    """A response of another content type."""


class Fetcher:
    """Fetches URLs, one request at a time, with a pause between two; `url` is the book's."""

    def __init__(
        self,
        url: str,
        options: CrawlOptions,
        cache: PageCache,
        resolve: Resolve,
        sleep: Callable[[float], None],
    ) -> None:
        self.delay = options.delay
        self.cache = cache
        self._options = options
        self._sleep = sleep
        self._last: float | None = None
        # The user allowed this website to be private, not the hosts that it redirects to.
        trusted = _hosts_and_ports(url) if options.allow_private else ()
        self._backend = GuardedBackend(resolve, is_public, trusted)
        context = httpcore.default_ssl_context()
        context.load_default_certs()  # the system's certificates, beside the usual authorities
        self._pool = httpcore.ConnectionPool(
            ssl_context=context, max_connections=2, keepalive_expiry=10.0, network_backend=self._backend
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.close()

    def current(self, url: str, kinds: frozenset[str], limit: int, admit: Admit) -> FetchResult:
        """Return the current result of a URL, from the cache if it is unchanged or fetched in this run."""
        earlier, fresh = self.cache.get(url)
        if earlier is not None and fresh:
            return earlier
        result = self.get(url, kinds, limit, admit, earlier)
        if result.status == 304 and earlier is not None:
            return earlier
        if result.status == 200:
            self.cache.put(url, result)
        return result

    def get(
        self,
        url: str,
        kinds: frozenset[str],
        limit: int,
        admit: Admit | None = None,
        earlier: FetchResult | None = None,
    ) -> FetchResult:
        """Fetch a URL, with retries; the status is 304 if it has not changed since `earlier`."""

        def wait_for(failures: int, error: Exception) -> float | None:
            if not isinstance(error, NoResponse) or failures == self._options.tries:
                return None
            wait = self._options.backoff * 2 ** (failures - 1) if error.wait is None else error.wait
            return wait if wait <= self._options.max_wait else None

        return retry(lambda: self._follow(url, kinds, limit, admit, earlier), wait_for, self._sleep)

    def _follow(
        self, url: str, kinds: frozenset[str], limit: int, admit: Admit | None, earlier: FetchResult | None
    ) -> FetchResult:
        for _ in range(_MOST_REDIRECTS + 1):
            result = self._ask(url, kinds, limit, earlier if earlier and earlier.url == url else None)
            if result.status not in _REDIRECTS:
                return result
            location = result.headers.get("location", "")
            target = normal(location, url)
            if not target:
                raise FetchFailed(f"it redirects to a URL that is not followed: {location[:200]}")
            if admit is not None and (reason := admit(target)):
                raise RedirectRefused(reason, target)
            url = target
        raise FetchFailed("too many redirects")

    def _ask(self, url: str, kinds: frozenset[str], limit: int, earlier: FetchResult | None) -> FetchResult:
        if self._last is not None and (left := self._last + self.delay - time.monotonic()) > 0:
            self._sleep(left)
        headers: dict[str | bytes, str | bytes] = {
            "User-Agent": self._options.user_agent,
            "Accept": ", ".join(sorted(kinds)) + ", */*;q=0.1",
            "Accept-Encoding": "gzip",
        }
        for condition, name in (("If-None-Match", "etag"), ("If-Modified-Since", "last-modified")):
            if earlier is not None and (value := earlier.headers.get(name)):
                headers[condition] = value
        self._backend.begin(self._options.timeout)
        try:
            with self._pool.stream("GET", url, headers=headers) as response:
                return _read(url, response, kinds, limit)
        except AddressRefused as error:
            raise FetchFailed(str(error)) from error
        except httpcore.TimeoutException as error:
            raise NoResponse(f"no complete response within {self._options.timeout:g} seconds") from error
        except (httpcore.NetworkError, httpcore.ProtocolError) as error:
            raise NoResponse(f"the connection failed: {error}"[:300]) from error
        finally:
            self._last = time.monotonic()


def _hosts_and_ports(url: str) -> list[tuple[str, int]]:
    """Return the host of a URL with its port, or with both usual ports."""
    parts = urlsplit(url)
    return [(parts.hostname or "", port) for port in ((parts.port,) if parts.port else (80, 443))]


def _read(url: str, response: httpcore.Response, kinds: frozenset[str], limit: int) -> FetchResult:
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if response.status in _TRANSIENT:
        raise NoResponse(f"the server returned {response.status}", retry_after(headers))
    if response.status != 200:
        return FetchResult(url, response.status, headers, b"")
    if kind and kind not in kinds:
        raise WrongContentType(f"it is {kind[:100]}")
    encoding = headers.get("content-encoding", "").strip().lower()
    return FetchResult(url, 200, headers, _body(response, encoding, limit))


def _body(response: httpcore.Response, encoding: str, limit: int) -> bytes:
    """Read a body of at most `limit` bytes, as sent and as decompressed."""
    too_large = FetchFailed(f"it is larger than {limit / (1 << 20):g} MiB")
    if encoding not in ("", "identity", "gzip", "x-gzip"):
        raise FetchFailed(f"it is compressed as {encoding[:40]}, which was not requested")
    received = bytearray()
    for part in response.iter_stream():
        received += part
        if len(received) > limit:
            raise too_large
    if encoding in ("", "identity"):
        return bytes(received)
    try:
        return unpacked(bytes(received), limit)
    except OverflowError:
        raise too_large from None
    except zlib.error as error:
        raise FetchFailed(f"it cannot be decompressed: {error}") from error


def unpacked(data: bytes, limit: int, window: int = _GZIP) -> bytes:
    """Decompress at most `limit` bytes; raise OverflowError for more, zlib.error for damaged data."""
    whole = bytearray()
    while data:
        stream = zlib.decompressobj(window)
        whole += stream.decompress(data, limit - len(whole) + 1)
        if len(whole) > limit:
            raise OverflowError
        if not stream.eof:
            raise zlib.error("the data is truncated")
        data = stream.unused_data if stream.unused_data[:2] == b"\x1f\x8b" else b""
    return bytes(whole)


_CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
_META_CHARSET = re.compile(rb"<meta[^>]{0,500}?charset\s*+=\s*+(?:[\"']\s*+)?([\w.:-]{1,40})", re.IGNORECASE)
_META_WITHIN = 4096  # bytes; the standard asks for 1024
_WEB_CHARSETS = re.compile(
    r"utf-8|utf-16(?:-[lb]e)?|iso8859-\d+|cp125\d|cp874|cp932|cp949|koi8-[ru]|"
    r"gb2312|gbk|gb18030|big5|euc_jp|euc_kr|shift_jis"
)
_WRONG_ONE_IN = 100  # with more than one wrong character in so many, it is not text


def decode(result: FetchResult) -> tuple[str, int]:
    """Return the text and the number of undecodable characters; raise FetchFailed if it is not text."""
    body = result.body.removeprefix(codecs.BOM_UTF8)
    header = _CHARSET.search(result.headers.get("content-type", ""))
    meta = _META_CHARSET.search(body[:_META_WITHIN])
    stated = (_charset(header[1]) if header else "") or (_charset(meta[1].decode("ascii")) if meta else "")
    charset = "utf-8" if body != result.body else stated or "utf-8"
    try:
        return body.decode(charset), 0
    except UnicodeDecodeError:
        text = body.decode(charset, "replace")
    wrong = text.count("\ufffd")
    if wrong * _WRONG_ONE_IN > len(text):
        raise FetchFailed(f"it is not valid {charset}")
    return text, wrong


def _charset(name: str) -> str:
    """Return the Python name of an encoding that is used on the web, or ""."""
    try:
        codec = codecs.lookup(name).name
    except LookupError:
        return ""
    # On the web, Latin-1 and ASCII mean Windows-1252.
    return "cp1252" if codec in ("iso8859-1", "ascii") else codec if _WEB_CHARSETS.fullmatch(codec) else ""


_CACHE_FORMAT = 1
_FRESH = 3600.0  # seconds in which an interrupted run can be resumed
_SUFFIX = ".page.json"
_RUN = "run.json"
_LARGEST_CACHED = 64 << 20
_KEPT_HEADERS = ("etag", "last-modified", "content-type", "x-robots-tag")


class PageCache:
    """A directory with one file per URL; without a directory it caches nothing.

    It lets a crawl request only changed pages, and resume after an interruption.
    """

    def __init__(self, directory: Path | None, clock: Callable[[], float]) -> None:
        self._directory = directory
        self._clock = clock
        self._used: set[str] = set()
        self._since = float("inf")

    def begin(self) -> None:
        """Begin a run, or resume one that was interrupted recently."""
        run, now = self._read(_RUN), self._clock()
        started = None if run.get("finished") else run.get("started")
        self._since = started if isinstance(started, float) and 0 <= now - started < _FRESH else now
        self._write(_RUN, {"started": self._since, "finished": False})

    def finish(self) -> None:
        """Mark the run as finished and delete pages that it did not use."""
        for file in self._directory.glob(f"*{_SUFFIX}") if self._directory else ():
            if file.name not in self._used:
                file.unlink(missing_ok=True)
        self._write(_RUN, {"started": self._since, "finished": True})

    def get(self, url: str) -> tuple[FetchResult | None, bool]:
        """Return the cached result of a URL, and whether this run fetched it before an interruption."""
        self._used.add(_file_name(url))
        entry = self._read(_file_name(url))
        try:
            packed = base64.b64decode(entry["body"], validate=True)
            body = unpacked(packed, _LARGEST_CACHED, _GZIP_OR_ZLIB)
            fresh = self._since <= float(entry["fetched"]) <= self._clock()
            return FetchResult(str(entry["final_url"]), 200, dict(entry["headers"]), body), fresh
        except (KeyError, TypeError, ValueError, OverflowError, zlib.error):  # missing or damaged
            return None, False

    def put(self, url: str, result: FetchResult) -> None:
        """Cache a result."""
        entry = {
            "final_url": result.url,
            "headers": {name: result.headers[name] for name in _KEPT_HEADERS if name in result.headers},
            "fetched": self._clock(),
            "body": base64.b64encode(zlib.compress(result.body)).decode("ascii"),
        }
        self._used.add(_file_name(url))
        self._write(_file_name(url), entry)

    def _read(self, name: str) -> dict[str, Any]:
        """Read a file; return an empty mapping if it is missing, damaged or of another format."""
        try:
            value = json.loads((self._directory / name).read_text("utf-8")) if self._directory else {}
        except (OSError, ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) and value.get("format") == _CACHE_FORMAT else {}

    def _write(self, name: str, value: dict[str, Any]) -> None:
        if self._directory is None:
            return
        try:
            make_private(self._directory)
            replace_text(self._directory / name, json.dumps({"format": _CACHE_FORMAT, **value}))
        except OSError as error:
            raise StorageError(
                f"Pages cannot be cached in {self._directory}: {error.strerror or error}",
                hint="Free some space, or set RECTO_HOME to a directory that can be written to.",
            ) from error


def _file_name(url: str) -> str:
    return hashlib.sha256(url.encode()).hexdigest()[:40] + _SUFFIX
