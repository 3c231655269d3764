"""Run servers: listening sockets, uvicorn with limits for slow and idle connections, and the log."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import sys
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from traceback import walk_tb
from typing import Any, ClassVar

import h11
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol

from recto._util.retry import redacted
from recto._util.text import escape_controls
from recto.errors import ConfigurationError
from recto.server.limits import Refusal

BACKLOG = 64  # also how many connections asyncio accepts in one turn: a flood must not delay others
IDLE_SECONDS = 30
_MAX_FILES = 65_536  # as many as one process needs; the system may allow more
_OTHER_FILES = 128  # the index, the log, connections to engines


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket; raise `ConfigurationError` if the port is taken or the address is unknown."""
    try:
        family, *_, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        is_dual = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        return socket.create_server(address, family=family, backlog=BACKLOG, dualstack_ipv6=is_dual)
    except OSError as error:
        # The message of `create_server` repeats the address; the numbers of `gaierror` are not error numbers.
        has_number = error.errno and not isinstance(error, socket.gaierror)
        reason = os.strerror(error.errno or 0) if has_number else error.strerror or error
        raise ConfigurationError(
            f"Cannot listen on {host} port {port}: {reason}",
            hint="Another program may use this port: choose another --port or --host.",
        ) from error


def base_url(listener: socket.socket) -> str:
    """Return the URL of a listening socket, as a browser on this machine opens it."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not listened on
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def server_config(app: Any, drain: float, proxies: Sequence[str] = (), **more: Any) -> Config:
    """Return uvicorn's configuration, with the same limits for HTTP and MCP.

    `proxies` are the addresses that are trusted to name their clients in `X-Forwarded-For`.
    """
    return Config(
        app,
        http=BoundedProtocol,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        ws="none",
        lifespan="on",
        backlog=BACKLOG,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=max(1, round(drain)),
        **more,
    )


def max_connections() -> int:
    """Return how many connections a process accepts: fewer than it may open files.

    Without a free descriptor, the event loop can neither accept nor refuse a connection.
    """
    if sys.platform == "win32":
        return _MAX_FILES - _OTHER_FILES
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    return max(_OTHER_FILES, files - _OTHER_FILES)


class BoundedProtocol(H11Protocol):
    """uvicorn's HTTP protocol, which also closes connections that send no complete request in time.

    uvicorn waits forever for headers. If there are too many connections, the one that has been idle for the
    longest time is closed.
    """

    limit = 0
    """The maximum number of connections of this process; 0 means as many as it may open files."""
    _open: ClassVar[dict[BoundedProtocol, None]] = {}  # ordered by the time of the last response

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._idle: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer for the first request."""
        super().connection_made(transport)
        self._open[self] = None
        if not BoundedProtocol.limit:
            BoundedProtocol.limit = max_connections()
        if len(self._open) > BoundedProtocol.limit:
            oldest = next((protocol for protocol in self._open if protocol.is_idle), self)
            del self._open[oldest]
            oldest.transport.abort()
        self._start_timer()

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def on_response_complete(self) -> None:
        """Start the timer for the next request."""
        self._start_timer()
        self._open.pop(self, None)
        self._open[self] = None
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._stop_timer()
        self._open.pop(self, None)
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer invalid HTTP with the same JSON body as every other error."""
        response = Refusal(400, msg.rstrip("."), headers=(("Connection", "close"),)).response()
        for event in (
            h11.Response(status_code=400, headers=response.raw_headers, reason=b"Bad Request"),
            h11.Data(data=bytes(response.body)),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _start_timer(self) -> None:
        self._stop_timer()
        self._idle = self.loop.call_later(IDLE_SECONDS, self._close_if_idle)

    def _stop_timer(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _close_if_idle(self) -> None:
        # A connection that is closing waits for a client that does not read.
        if not self.is_idle and not self.transport.is_closing():
            self._start_timer()
        else:
            self.transport.abort()


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
            # The last five functions, the innermost last, without arguments.
            line["at"] = [
                f"{Path(frame.f_code.co_filename).name}:{number} {frame.f_code.co_name}"
                for frame, number in list(walk_tb(record.exc_info[2]))[-5:]
            ]
            if os.environ.get("RECTO_DEBUG"):
                line["trace"] = redacted(self.formatException(record.exc_info), *self._secrets)
        return escape_controls(json.dumps(line, ensure_ascii=False))
