"""Write a log file while a command runs."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime, timedelta
from logging.handlers import TimedRotatingFileHandler
from pathlib import Path

from recto._util.retry import Notify, redacted
from recto._util.text import escape_controls

_KEPT_DAYS = 30


class LineFormatter(logging.Formatter):
    """Formats a record as `[timestamp] [level] [component] message`, always on one line, without `secrets`.

    The component is the last part of the logger's name.
    """

    secrets: tuple[str, ...] = ()

    def format(self, record: logging.LogRecord) -> str:
        """Format the line; escape characters that could forge another line or manipulate a terminal."""
        stamp = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        component = record.name.rpartition(".")[2].upper()
        message = escape_controls(redacted(record.getMessage(), *self.secrets))
        return f"[{stamp.replace('+00:00', 'Z')}] [{record.levelname}] [{component}] {message}"


@contextmanager
def log_file(
    logger: logging.Logger, path: Path, notify: Notify, *, verbose: bool, today: date | None = None
) -> Iterator[LineFormatter]:
    """Write a logger's lines to a file that rotates daily, and with `verbose` to standard error as well.

    If the file cannot be written, warn and continue without it.
    """
    formatter = LineFormatter()
    handlers: list[logging.Handler] = []
    problem = f"{path.name} cannot be written (%s); continuing without a log file"
    try:
        handlers.append(TimedRotatingFileHandler(path, "midnight", encoding="utf-8", utc=True))
        problem = f"Old files of {path.name} cannot be deleted (%s)"
        _prune(path, today or datetime.now(UTC).date())
    except OSError as error:
        notify(f"[WARNING] {problem % (error.strerror or error)}")
    if verbose:
        handlers.append(logging.StreamHandler(sys.stderr))
    level, propagates = logger.level, logger.propagate
    logger.setLevel(logging.DEBUG if verbose else logging.INFO)
    logger.propagate = False
    for handler in handlers:
        handler.setFormatter(formatter)
        # A line that cannot be written, for example on a full disk, is lost: the output matters more.
        handler.handleError = lambda record: None  # type: ignore[method-assign]  # noqa: ARG005
        logger.addHandler(handler)
    try:
        yield formatter
    finally:
        for handler in handlers:
            logger.removeHandler(handler)
            handler.close()
        logger.setLevel(level)
        logger.propagate = propagates


def _prune(path: Path, today: date) -> None:
    """Delete old files by date: counting them would keep files too long, as not every day has one."""
    for old in path.parent.glob(f"{path.name}.*"):
        with suppress(ValueError):  # not a date, so not a file of this log
            if date.fromisoformat(old.suffix[1:]) < today - timedelta(days=_KEPT_DAYS):
                old.unlink(missing_ok=True)
