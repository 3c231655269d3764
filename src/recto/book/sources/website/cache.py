"""The page cache: request only changed pages, and resume an interrupted crawl."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from recto._util.files import make_private, replace_text
from recto.book.sources.website.fetch import FetchResult
from recto.errors import StorageError

_FORMAT = 1
_FRESH = 3600.0  # seconds in which an interrupted run can be resumed
_SUFFIX = ".page.json"
_RUN = "run.json"
_LARGEST = 64 << 20
_KEPT_HEADERS = ("etag", "last-modified", "content-type", "x-robots-tag")


class PageCache:
    """A directory with one file per URL; without a directory it caches nothing."""

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
        self._used.add(_name(url))
        entry = self._read(_name(url))
        try:
            body = zlib.decompressobj().decompress(base64.b64decode(entry["body"], validate=True), _LARGEST)
            if entry["url"] != url or hashlib.sha256(body).hexdigest() != entry["sha256"]:
                return None, False
            kind, headers = str(entry["content_type"]), dict(entry["headers"])
            fresh = self._since <= float(entry["fetched"]) <= self._clock()
            return FetchResult(str(entry["final_url"]), 200, kind, headers, body), fresh
        except (KeyError, TypeError, ValueError, zlib.error):  # missing or damaged
            return None, False

    def put(self, url: str, result: FetchResult) -> None:
        """Cache a result."""
        entry = {
            "url": url,
            "final_url": result.url,
            "content_type": result.content_type,
            "headers": {name: result.headers[name] for name in _KEPT_HEADERS if name in result.headers},
            "fetched": self._clock(),
            "sha256": hashlib.sha256(result.body).hexdigest(),
            "body": base64.b64encode(zlib.compress(result.body)).decode("ascii"),
        }
        self._used.add(_name(url))
        self._write(_name(url), entry)

    def _read(self, name: str) -> dict[str, Any]:
        """Read a file; return an empty mapping if it is missing, damaged or of another format."""
        try:
            value = json.loads((self._directory / name).read_text("utf-8")) if self._directory else {}
        except (OSError, ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) and value.get("format") == _FORMAT else {}

    def _write(self, name: str, value: dict[str, Any]) -> None:
        if self._directory is None:
            return
        try:
            make_private(self._directory)
            replace_text(self._directory / name, json.dumps({"format": _FORMAT, **value}))
        except OSError as error:
            raise StorageError(
                f"Pages cannot be cached in {self._directory}: {error.strerror or error}",
                hint="Free some space, or set RECTO_HOME to a directory that can be written to.",
            ) from error


def _name(url: str) -> str:
    return hashlib.sha256(url.encode()).hexdigest()[:40] + _SUFFIX
