"""The listening socket that workers share: each takes one connection at a time, so that none takes them all."""

from __future__ import annotations

import os
import socket
from typing import Any

from recto.errors import ConfigurationError

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
        family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
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
