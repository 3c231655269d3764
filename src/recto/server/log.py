"""The log of the servers: JSON lines on standard error, without queries, keys, addresses or stack traces."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from recto._util.retry import redacted
from recto._util.text import escape_controls

FIELDS = "recto_fields"
"""The attribute of a log record that holds further fields of its line."""
_LOG = logging.getLogger("recto.server")


def configure_logging(secrets: Sequence[str]) -> None:
    """Send the logs of Recto and of the libraries of its servers to standard error as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(secrets))
    for name in ("recto", "uvicorn", "asyncio", "mcp"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
        logger.setLevel(logging.INFO if name in ("recto", "uvicorn") else logging.WARNING)
    logging.getLogger("uvicorn.access").disabled = True  # our own line has the request id and no query
    threading.excepthook = _log_thread_error


def _log_thread_error(failed: threading.ExceptHookArgs) -> None:
    """Log an exception that ends a thread."""
    # EOFError: uvicorn's supervisor has ended.
    if failed.exc_value is not None and not isinstance(failed.exc_value, EOFError):
        _LOG.error("a thread has ended", exc_info=failed.exc_value)


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON, without the given secrets."""

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        super().__init__()
        self._secrets = [secret for secret in secrets if secret]

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "pid": record.process,
            "message": redacted(record.getMessage(), *self._secrets),
            **getattr(record, FIELDS, {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = record.exc_info[0].__name__
            line["at"] = _frames(record.exc_info[2])
            if os.environ.get("RECTO_DEBUG"):
                line["trace"] = redacted(self.formatException(record.exc_info), *self._secrets)
        return escape_controls(json.dumps(line, ensure_ascii=False))


def _frames(trace: TracebackType | None) -> list[str]:
    """Return the last five functions of a traceback, the innermost last, without arguments."""
    frames = []
    while trace is not None:
        code = trace.tb_frame.f_code
        frames.append(f"{Path(code.co_filename).name}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    return frames[-5:]
