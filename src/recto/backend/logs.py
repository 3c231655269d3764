"""The log of the test command: one line for each event, a new file each day, thirty days kept, never a key."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime, timedelta
from logging.handlers import TimedRotatingFileHandler
from pathlib import Path

from recto.remote import Tell, redacted

LOG_FILE = "retrieval_test.log"
KEPT_DAYS = 30

_ROOT = logging.getLogger("recto.backend")
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_DATED = re.compile(re.escape(LOG_FILE) + r"\.(\d{4}-\d{2}-\d{2})")


class LineFormatter(logging.Formatter):
    """Writes `[timestamp] [level] [component] message` on one line, whatever is in the message."""

    def __init__(self) -> None:
        super().__init__()
        self.secrets: tuple[str, ...] = ()

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; characters that could forge another one or play with a terminal are escaped."""
        stamp = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        component = record.name.rpartition(".")[2].upper()
        message = _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", redacted(record.getMessage(), *self.secrets))
        return f"[{stamp}] [{record.levelname}] [{component}] {message}"


@contextmanager
def logging_to(directory: Path, tell: Tell, *, verbose: bool, today: date | None = None) -> Iterator[LineFormatter]:
    """Write the log while a command runs; where no file can be written, say so and go on without it."""
    formatter = LineFormatter()
    handlers: list[logging.Handler] = []
    try:
        file = TimedRotatingFileHandler(directory / LOG_FILE, when="midnight", backupCount=KEPT_DAYS, encoding="utf-8", utc=True)
        handlers.append(file)
        _prune(directory, today or datetime.now(UTC).date())
    except OSError as error:
        without = "" if handlers else "; going on without a log file"
        tell(f"[WARNING] {LOG_FILE} cannot be {'cleared up' if handlers else 'written'} ({error.strerror or error}){without}")
    if verbose:
        handlers.append(logging.StreamHandler(sys.stderr))
    before, propagated = _ROOT.level, _ROOT.propagate
    _ROOT.setLevel(logging.DEBUG if verbose else logging.INFO)
    _ROOT.propagate = False
    for handler in handlers:
        handler.setFormatter(formatter)
        handler.handleError = _silent  # type: ignore[method-assign]
        _ROOT.addHandler(handler)
    try:
        yield formatter
    finally:
        for handler in handlers:
            _ROOT.removeHandler(handler)
            handler.close()
        _ROOT.setLevel(before)
        _ROOT.propagate = propagated


def _silent(record: logging.LogRecord) -> None:
    """Let a full disk take a line of the log, not the answer."""
    del record


def _prune(directory: Path, today: date) -> None:
    """Remove files by their day: on days without a run there is none, so that counting files would keep them for too long."""
    for path in directory.iterdir():
        found = _DATED.fullmatch(path.name)
        with suppress(ValueError):  # a name that is no day is not ours
            if found and date.fromisoformat(found[1]) < today - timedelta(days=KEPT_DAYS):
                path.unlink(missing_ok=True)
