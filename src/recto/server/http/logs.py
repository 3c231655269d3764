"""JSON logs on standard error, without queries, keys, engine addresses or stack traces."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from types import TracebackType

from recto._util.retry import redacted

LOG = logging.getLogger("recto.server.http")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_FIELDS = "recto_fields"


def set_up(secrets: Sequence[str]) -> None:
    """Send the logs of Recto and uvicorn to standard error as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(secrets))
    for name in ("recto", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
        logger.setLevel(logging.INFO)
    logging.getLogger("uvicorn.access").disabled = True  # our own line has the request id and no query
    threading.excepthook = _thread_failed


def _thread_failed(failed: threading.ExceptHookArgs) -> None:
    """Log an exception that ends a thread."""
    # EOFError: uvicorn's supervisor has ended.
    if failed.exc_value is not None and not isinstance(failed.exc_value, EOFError):
        LOG.error("a thread has ended", exc_info=failed.exc_value)


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON, without the given secrets."""

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        super().__init__()
        self._secrets = [secret for secret in secrets if secret]

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "pid": record.process,
            "message": redacted(record.getMessage(), *self._secrets),
            **getattr(record, _FIELDS, {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = record.exc_info[0].__name__
            line["at"] = _frames(record.exc_info[2])
            if os.environ.get("RECTO_DEBUG"):
                line["trace"] = redacted(self.formatException(record.exc_info), *self._secrets)
        return json.dumps(line, ensure_ascii=False)


def log_request(fields: dict[str, object]) -> None:
    """Log one request."""
    LOG.info("request", extra={_FIELDS: fields})


def request_id(given: str) -> str:
    """Return the request id that the client sent if it is valid, else a new one."""
    return given if _REQUEST_ID.fullmatch(given) else os.urandom(8).hex()


def _frames(trace: TracebackType | None) -> list[str]:
    """Return the last five functions of a traceback, the innermost last, without arguments."""
    frames = []
    while trace is not None:
        code = trace.tb_frame.f_code
        frames.append(f"{os.path.basename(code.co_filename)}:{trace.tb_lineno} {code.co_name}")  # noqa: PTH119 - no path is opened
        trace = trace.tb_next
    return frames[-5:]
