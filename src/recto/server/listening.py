"""Connections as the server library has them, with a bound on how long one may wait without asking, and errors in our shape."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from contextlib import suppress
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.supervisors import Multiprocess

from recto.errors import ConfigurationError
from recto.server.limits import Refusal

BACKLOG = 1024


class SharedListener(socket.socket):
    """A listening socket whose every other `accept` says that nobody is waiting.

    An event loop takes connections until there are no more; of workers that share a socket, the first to wake would then take all that
    are waiting, and do the work of all. After one, the others have their turn.
    """

    _took = False

    def accept(self) -> tuple[socket.socket, Any]:
        """Take a connection, or let others have theirs."""
        if self._took:
            self._took = False
            raise BlockingIOError
        taken = super().accept()
        self._took = True
        return taken

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to a worker."""
        from multiprocessing.reduction import DupFd

        return _arrived, (DupFd(self.fileno()), self.family, self.type, self.proto)


def _arrived(descriptor: Any, family: int, kind: int, protocol: int) -> SharedListener:
    return SharedListener(family, kind, protocol, fileno=descriptor.detach())


def listen(host: str, port: int) -> SharedListener:
    """Open a listening socket, or say why it cannot be."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = SharedListener(family, kind, protocol)
        try:
            if os.name == "posix":
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(place)
            listener.listen(BACKLOG)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise ConfigurationError(
            f"Cannot listen on {host} port {port}: {error.strerror or error}",
            hint="Another program may listen there; choose another --port.",
        ) from error
    return listener


def address(listener: socket.socket) -> str:
    """Return where a socket listens, as a browser wants it."""
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):  # noqa: S104 - what is shown for all addresses
        host = "127.0.0.1" if host == "0.0.0.0" else "::1"  # noqa: S104
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Supervisor(Multiprocess):
    """Replaces workers that die."""

    def keep_subprocess_alive(self) -> None:
        """Ask every worker how it is.

        The supervisor's own copy of a worker's end of their pipe is closed first: a worker that dies while it is being asked would else be
        waited for as long as one that is only busy.
        """
        for process in self.processes:
            process.child_conn.close()
        super().keep_subprocess_alive()


_ARENAS, _M_ARENA_MAX = 2, -8


def share_arenas() -> None:
    """Let threads share the pools that memory is taken from: in glibc each would keep what it once needed in one of its own.

    To be called before threads are started; MALLOC_ARENA_MAX in the environment wins.
    """
    if sys.platform != "linux" or "MALLOC_ARENA_MAX" in os.environ:
        return
    from ctypes import CDLL

    with suppress(AttributeError):  # a C library that has no such setting
        CDLL(None).mallopt(_M_ARENA_MAX, _ARENAS)


IDLE_SECONDS = 30


class BoundedConnection(H11Protocol):
    """Closes a connection on which no request becomes complete in time: a caller that drips its headers byte by byte keeps nothing open."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._idle: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._wait()

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        self._wait()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP in the words of every other error."""
        body = json.dumps(Refusal(400, msg.rstrip(".")).body()).encode()
        headers = [
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
            ("connection", "close"),
        ]
        for event in (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _wait(self) -> None:
        self._stop_waiting()
        self._idle = self.loop.call_later(IDLE_SECONDS, self._give_up)

    def _stop_waiting(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _give_up(self) -> None:
        """End the connection, unless an answer is on its way; one that is closing by now waits for a caller that does not read."""
        if self._answering and not self.transport.is_closing():
            self._wait()
        else:
            self.transport.abort()
