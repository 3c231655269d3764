"""The page cache: request only changed pages, and resume an interrupted crawl."""

from __future__ import annotations

import base64
import hashlib
import json
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from recto._util.files import replace_text
from recto.book.sources.website.fetch import Reply
from recto.errors import StorageError

_FORMAT = 1
_FRESH = 3600.0  # seconds in which an interrupted run can be resumed
_SUFFIX = ".page.json"
_RUN = "run.json"
_LARGEST = 64 << 20
_KEPT_HEADERS = ("etag", "last-modified", "content-type", "x-robots-tag")


class PageCache:
    """A directory with one file per URL; without a directory it caches nothing."""

    def __init__(self, directory: Path | None, clock: Callable[[], float] = time.time) -> None:
        self._directory = directory
        self._clock = clock
        self._used: set[str] = set()
        self._since = float("inf")

    def begin(self) -> None:
        """Begin a run, or resume one that was interrupted recently."""
        if self._directory is None:
            return
        run = _read(self._directory / _RUN)
        now = self._clock()
        started = run.get("started") if run and not run.get("finished") else None
        self._since = started if isinstance(started, float) and 0 <= now - started < _FRESH else now
        self._write(_RUN, {"format": _FORMAT, "started": self._since, "finished": False})

    def finish(self) -> None:
        """Mark the run as finished and delete pages that it did not use."""
        if self._directory is None:
            return
        for file in self._directory.glob(f"*{_SUFFIX}"):
            if file.name not in self._used:
                file.unlink(missing_ok=True)
        self._write(_RUN, {"format": _FORMAT, "started": self._since, "finished": True})

    def get(self, url: str) -> tuple[Reply | None, bool]:
        """Return the cached reply of a URL, and whether this run fetched it before an interruption."""
        if self._directory is None:
            return None, False
        name = _name(url)
        self._used.add(name)
        entry = _read(self._directory / name)
        if entry is None or entry.get("url") != url:
            return None, False
        try:
            body = zlib.decompressobj().decompress(base64.b64decode(entry["body"], validate=True), _LARGEST)
            reply = Reply(
                str(entry["final_url"]), 200, str(entry["content_type"]), dict(entry["headers"]), body
            )
            if hashlib.sha256(body).hexdigest() != entry["sha256"]:
                return None, False
            return reply, self._since <= float(entry["fetched"]) <= self._clock()
        except (KeyError, TypeError, ValueError, zlib.error):  # damaged
            return None, False

    def put(self, url: str, reply: Reply) -> None:
        """Cache a reply."""
        entry = {
            "format": _FORMAT,
            "url": url,
            "final_url": reply.url,
            "content_type": reply.content_type,
            "headers": {name: reply.headers[name] for name in _KEPT_HEADERS if name in reply.headers},
            "fetched": self._clock(),
            "sha256": hashlib.sha256(reply.body).hexdigest(),
            "body": base64.b64encode(zlib.compress(reply.body)).decode("ascii"),
        }
        self._used.add(_name(url))
        self._write(_name(url), entry)

    def _write(self, name: str, value: dict[str, Any]) -> None:
        if self._directory is None:
            return
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            replace_text(self._directory / name, json.dumps(value))
        except OSError as error:
            raise StorageError(
                f"Pages cannot be cached in {self._directory}: {error.strerror or error}",
                hint="Free some space, or set RECTO_HOME to a directory that can be written to.",
            ) from error


def _name(url: str) -> str:
    return hashlib.sha256(url.encode()).hexdigest()[:40] + _SUFFIX


def _read(file: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and value.get("format") == _FORMAT else None
