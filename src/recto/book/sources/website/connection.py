"""Connections with an address check and a deadline per request; needs the extra `crawl`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import httpcore

from recto.book.sources.website.fetch import Resolve, is_public

if TYPE_CHECKING:
    import ssl

_READ_AT_ONCE = 64 << 10


class AddressRefused(httpcore.ConnectError):
    """A host name that resolves to an address that is not public."""


class Deadline:
    """The deadline of the current request."""

    def __init__(self) -> None:
        self._end = 0.0

    def begin(self, seconds: float) -> None:
        """Start the time of a new request."""
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Return the seconds that are left; raise a timeout if there are none."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise httpcore.ReadTimeout("the time for the request is over")
        return left


class GuardedBackend(httpcore.NetworkBackend):
    """Resolves a host once, checks every address, and connects to the checked ones (no DNS rebinding)."""

    def __init__(
        self, resolve: Resolve, deadline: Deadline, allows: Callable[[str], bool] = is_public
    ) -> None:
        self._resolve = resolve
        self._deadline = deadline
        self._allows = allows
        self._plain = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ARG002  (the deadline decides)
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        """Connect to the first address of a host that accepts."""
        try:
            addresses = self._resolve(host.strip("[]"), port)
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(f"the name {host} cannot be resolved") from error
        for address in addresses:
            if not self._allows(address):
                raise AddressRefused(f"{host} is at {address}, which is not a public address")
        failure: httpcore.NetworkError | httpcore.TimeoutException = httpcore.ConnectError(
            f"{host} has no address"
        )
        for address in addresses:
            try:
                stream = self._plain.connect_tcp(
                    address, port, self._deadline.left(), local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
            else:
                return _TimedStream(stream, self._deadline)
        raise failure


class _TimedStream(httpcore.NetworkStream):
    """Replaces every timeout by the time that is left for the request."""

    def __init__(self, stream: httpcore.NetworkStream, deadline: Deadline) -> None:
        self._stream = stream
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002
        """Read available bytes."""
        return self._stream.read(min(max_bytes, _READ_AT_ONCE), self._deadline.left())

    def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002
        """Write all bytes."""
        self._stream.write(buffer, self._deadline.left())

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ARG002
    ) -> httpcore.NetworkStream:
        """Switch to TLS."""
        return _TimedStream(
            self._stream.start_tls(ssl_context, server_hostname, self._deadline.left()), self._deadline
        )

    def get_extra_info(self, info: str) -> Any:
        """Return information about the connection."""
        return self._stream.get_extra_info(info)


def open_pool(resolve: Resolve, deadline: Deadline, *, allow_private: bool) -> httpcore.ConnectionPool:
    """Return a connection pool that trusts the usual authorities and the system's certificates."""
    context = httpcore.default_ssl_context()
    context.load_default_certs()
    backend = GuardedBackend(resolve, deadline, (lambda _: True) if allow_private else is_public)
    return httpcore.ConnectionPool(
        ssl_context=context, max_connections=2, keepalive_expiry=10.0, network_backend=backend
    )
