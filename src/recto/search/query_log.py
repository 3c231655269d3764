"""The query log: what was searched for and which results were opened, in local JSON Lines files.

Every process writes files of its own, so that processes neither wait for each other nor mix their lines, and
a killed one can leave nothing worse than an incomplete last line. A line has no address, key or id of a
visitor.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from recto._util.files import make_private, read_limited
from recto.errors import InvalidArgument, StorageError
from recto.settings import QueryLogOptions, Settings
from recto.types.search import SearchResponse

QUERY_LOG_FORMAT = "recto-queries-1"
Via = Literal["search", "related", "batch", "retrieve", "answer"]
"""The route that a query came through."""

_LOG = logging.getLogger("recto.query_log")
_NAME = re.compile(r"queries-(\d{4}-\d\d-\d\d)-[0-9a-f]{8}\.jsonl")
_TEXTS = ("time", "query", "collection", "click", "via")
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_BINARY", 0)
_KEY_BYTES = 32
_MAX_HITS = 5
_MAX_WAITING = 2000  # entries, many times what a process can search in the time between two writes
_WRITE_SECONDS = 0.5
_CHECK_SECONDS = 3600  # how often an idle process looks for files that are too old
_CLOSE_SECONDS = 5.0
_MAX_FILE = 8_000_000  # bytes
_FILES = 8  # at least so many files have room in the log, so that deleting the oldest one loses little
_MAX_TEXT = 2000  # characters of a text that a visitor sends
_MAX_MODULES = 20
_MAX_NAME = 200  # characters of a module
_MAX_LINE = 131_072  # bytes; an entry has less


class QueryLog:
    """Appends entries to the log in a thread; a full queue or disk drops entries, and never delays a search.

    `on_drop` is called with the number of dropped entries.
    """

    def __init__(
        self, options: QueryLogOptions, key: bytes = b"", on_drop: Callable[[int], None] = lambda _: None
    ) -> None:
        if options.directory is None:
            raise ValueError("the query log is off")
        self._options = options
        self._directory = options.directory
        self._key = key
        self._on_drop = on_drop
        self._waiting: deque[tuple[float, dict[str, Any]]] = deque()
        self._wake, self._stop = threading.Event(), threading.Event()
        self._file: int | None = None
        self._size = 0
        self._max_file = min(_MAX_FILE, options.megabytes * 1_000_000 // _FILES)
        self._day = ""
        self._has_failed = False
        self._thread = threading.Thread(target=self._run, daemon=True, name="recto-query-log")
        self._thread.start()

    def add(self, response: SearchResponse, via: Via) -> None:
        """Add a query with its first hits."""
        best = response.hits[0] if response.hits else None
        entry: dict[str, Any] = {
            "query": response.query,
            "collection": response.collection,
            "generation": response.generation,
            "via": via,
            "mode": response.mode,
            "hits": [
                {"url": hit.chunk.url, "score": round(hit.score, 4)} for hit in response.hits[:_MAX_HITS]
            ],
            "answerable": response.answerable,
            "coverage": response.coverage,
            "covered": response.covered,
            "above_noise": response.above_noise(best) if best else None,
            "ms": round(response.timings.total_ms, 2),
        }
        if response.filters:
            filters = response.filters
            entry["filters"] = {"module": list(filters.modules[:_MAX_MODULES]), "url": filters.page_url}
            if filters.language is not None:
                entry["filters"]["lang"] = filters.language
        self._put(entry)

    def add_report(self, query: str, collection: str, **report: Any) -> None:
        """Add what a reader did: opened a result (`click` and `rank`), or rated an answer (`helpful`)."""
        self._put({"query": query, "collection": collection, **report})

    def _put(self, entry: dict[str, Any]) -> None:
        if len(self._waiting) >= _MAX_WAITING:
            self._on_drop(1)
            return
        self._waiting.append((time.time(), entry))
        self._wake.set()

    def close(self) -> None:
        """Write what is waiting, and stop."""
        self._stop.set()
        self._wake.set()
        self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        """Write at most twice a second, and only if there is something to write."""
        checked = ""
        stopping = False
        while not stopping:
            if (today := _day(time.time())) != checked:
                remove_old_files(self._options)
                checked = today
            if self._wake.wait(_CHECK_SECONDS):
                stopping = self._stop.wait(_WRITE_SECONDS)
                self._wake.clear()  # before the entries are taken: one that is added now wakes again
                self._write([self._waiting.popleft() for _ in range(len(self._waiting))])
        self._leave_file()

    def _write(self, entries: list[tuple[float, dict[str, Any]]]) -> None:
        if not entries:
            return
        try:
            self._append([_line({"time": _time(at), **self._with_text(entry)}) for at, entry in entries])
            self._has_failed = False
        except OSError as error:
            self._leave_file()  # its last line may be incomplete
            self._on_drop(len(entries))
            if not self._has_failed:
                _LOG.warning("the query log cannot be written: %s", error.strerror)
            self._has_failed = True

    def _with_text(self, entry: dict[str, Any]) -> dict[str, Any]:
        """Return an entry with as much of the texts as is kept that a visitor sent."""
        kept = dict(entry)
        query = kept.pop("query")
        if "click" in kept:
            kept["click"] = self._text(kept["click"])
        if filters := kept.get("filters"):
            modules = [self._text(name[:_MAX_NAME]) for name in filters["module"]]
            texts = {name: value and self._text(value) for name, value in filters.items() if name != "module"}
            kept["filters"] = {"module": modules} | texts
        if self._options.text == "keep":
            return {"query": query, **kept}
        return {"query_hash": self._text(normalize(query)), **kept} if self._options.text == "hash" else kept

    def _text(self, text: str) -> str:
        """Return a text, its hash, or nothing, as the options say."""
        if self._options.text == "keep":
            return text[:_MAX_TEXT]
        if self._options.text == "drop":
            return ""
        return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8, key=self._key).hexdigest()

    def _append(self, lines: list[bytes]) -> None:
        """Write lines to the current file, and begin another one when it is full."""
        today = _day(time.time())
        # What is written to a file that someone has deleted would be lost.
        if self._file is not None and (today != self._day or os.fstat(self._file).st_nlink == 0):
            self._leave_file()
        for line in lines:
            if self._file is not None and self._size + len(line) > self._max_file:
                self._leave_file()
            if self._file is None:
                remove_old_files(self._options, reserve=self._max_file)
                make_private(self._directory)
                name = f"queries-{today}-{os.urandom(4).hex()}.jsonl"
                self._file = os.open(self._directory / name, _APPEND, 0o600)
                self._day, self._size = today, 0
                self._write_line(self._file, _line({"format": QUERY_LOG_FORMAT}))
            self._write_line(self._file, line)

    def _write_line(self, file: int, line: bytes) -> None:
        self._size += len(line)
        while line:
            line = line[os.write(file, line) :]

    def _leave_file(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def open_query_log(settings: Settings, on_drop: Callable[[int], None] = lambda _: None) -> QueryLog | None:
    """Return the configured log, or None if the log is off; raise an error if it cannot be written."""
    if not prepare_query_log(settings):
        return None
    key = _read_key(settings.key_home) if settings.query_log.text == "hash" else b""
    return QueryLog(settings.query_log, key, on_drop)


def prepare_query_log(settings: Settings) -> bool:
    """Create the directory of the log, and its key; return whether there is a log."""
    directory = settings.query_log.directory
    if directory is None:
        return False
    try:
        make_private(directory)
        if not os.access(directory, os.W_OK | os.X_OK):
            raise PermissionError(13, "Permission denied", str(directory))
        if settings.query_log.text == "hash":
            _read_key(settings.key_home)
    except OSError as error:
        raise StorageError(
            f"The query log cannot be written: {error.filename or directory}: {error.strerror}",
            hint="Set RECTO_QUERY_LOG to a directory that you can write, or unset it.",
        ) from error
    return True


def _read_key(home: Path) -> bytes:
    """Return the key of hashed queries, which is not next to the log; the first process creates it."""
    path = home / "query-log.key"
    make_private(home)
    draft = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    if not path.exists():
        with os.fdopen(os.open(draft, _APPEND, 0o600), "wb") as file:
            file.write(os.urandom(_KEY_BYTES))
        with suppress(FileExistsError):  # another process was faster
            os.link(draft, path)
        draft.unlink()
    return read_limited(path, _KEY_BYTES)


def remove_old_files(options: QueryLogOptions, today: date | None = None, reserve: int = 0) -> None:
    """Delete the files that are too old, and the oldest ones while there is no room for `reserve` bytes."""
    if options.directory is None:
        return
    oldest = (today or datetime.now(UTC).date()) - timedelta(days=options.days)
    room = options.megabytes * 1_000_000 - reserve
    files = []
    for day, path in log_files(options.directory):
        with suppress(OSError):  # another process has deleted it
            status = path.stat()
            files.append((day, status.st_mtime_ns, status.st_size, path))
    for day, _, size, path in sorted(files, reverse=True):
        room -= size
        if day < oldest.isoformat() or room < 0:
            with suppress(OSError):  # it cannot be deleted
                path.unlink()


def log_files(directory: Path) -> list[tuple[str, Path]]:
    """Return the files of a log with their days; nothing if there is no such directory."""
    try:
        paths = list(directory.iterdir())
    except FileNotFoundError:
        return []
    return [(match[1], path) for path in paths if (match := _NAME.fullmatch(path.name))]


def read_query_log(
    path: Path, since: datetime | None = None, on_skip: Callable[[], None] = lambda: None
) -> Iterator[dict[str, Any]]:
    """Yield the entries of a log, the oldest day first; `path` is its directory or one of its files.

    `on_skip` is called for each line that is not an entry.
    """
    earliest = _time(since.timestamp()) if since else ""
    if path.is_file():
        files = [path]
    else:
        files = [file for day, file in sorted(log_files(path)) if day >= earliest[:10]]
    if not files and not path.is_dir():
        raise InvalidArgument(
            f"There is no query log at {path}",
            hint="Start the service with `recto serve --query-log DIRECTORY`, or set RECTO_QUERY_LOG.",
        )
    for file in files:
        for line in _read_lines(file):
            entry = _read_entry(line)
            if entry is None:
                on_skip()
            elif entry.get("time", "") >= (earliest or "0"):  # the first line of a file has no time
                yield entry


def _read_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file; of a line that is too long, only the beginning, which cannot be read."""
    try:
        file = path.open("rb")
    except FileNotFoundError:  # it has become too old
        return
    with file:
        while line := file.readline(_MAX_LINE):
            yield line
            while len(line) == _MAX_LINE and not line.endswith(b"\n"):
                line = file.readline(_MAX_LINE)


def _read_entry(line: bytes) -> dict[str, Any] | None:
    """Return an entry; None for a line that no service has written, or only a part of."""
    try:
        entry = json.loads(line)
        texts = [entry[name] for name in _TEXTS if name in entry]
        "".join(texts).encode()
    except (ValueError, TypeError, RecursionError):
        return None
    return entry if isinstance(entry, dict) and ("time" in entry or "format" in entry) else None


def normalize(query: str) -> str:
    """Return a query in the form in which equal queries are counted."""
    return " ".join(query.casefold().split()).rstrip("?!. ")


def _line(entry: Mapping[str, Any]) -> bytes:
    text = json.dumps(entry, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace") + b"\n"


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _day(seconds: float) -> str:
    return _time(seconds)[:10]
