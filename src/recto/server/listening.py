"""Listening sockets, and HTTP connections that close when a client is too slow."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from recto.errors import ConfigurationError
from recto.server.limits import Refusal

BACKLOG = 1024
IDLE_SECONDS = 30


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket; raise `ConfigurationError` if the port is taken or the address is unknown."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        try:
            if os.name == "posix":
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(BACKLOG)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise ConfigurationError(
            f"Cannot listen on {host} port {port}: {error.strerror or error}",
            hint="Another program may use this port: choose another --port or --host.",
        ) from error
    return listener


def base_url(listener: socket.socket) -> str:
    """Return the URL of a listening socket, as a browser on this machine opens it."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not listened on
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class BoundedConnection(H11Protocol):
    """Closes a connection that sends no complete request in time; uvicorn waits forever for headers."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._idle: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer for the first request."""
        super().connection_made(transport)
        self._start_timer()

    def on_response_complete(self) -> None:
        """Start the timer for the next request."""
        self._start_timer()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._stop_timer()
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
        responding = self.cycle is not None and not self.cycle.response_complete
        if responding and not self.transport.is_closing():
            self._start_timer()
        else:
            self.transport.abort()
