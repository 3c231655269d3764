"""Connect to the hosts of a website: only to public addresses, and only until a deadline."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Collection, Iterable
from typing import Any

import httpcore

from recto.book.sources.website import Resolve
from recto.book.sources.website.addresses import is_public

_READ_AT_ONCE = 64 << 10


class AddressRefused(httpcore.ConnectError):
    """A host name that resolves to an address that is not public."""


class GuardedBackend(httpcore.SyncBackend):
    """Connects only to checked addresses, and only until the deadline of the current request.

    It resolves a host once, checks every address, and connects to the checked ones (no DNS rebinding).
    The hosts and ports in `trusted` may have any address.
    """

    def __init__(
        self,
        resolve: Resolve,
        allows: Callable[[str], bool] = is_public,
        trusted: Collection[tuple[str, int]] = (),
    ) -> None:
        self._resolve = resolve
        self._allows = allows
        self._trusted = trusted
        self._deadline = 0.0

    def begin(self, seconds: float) -> None:
        """Start the time of a new request."""
        self._deadline = time.monotonic() + seconds

    def left(self) -> float:
        """Return the seconds that are left; raise a timeout if there are none."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise httpcore.ReadTimeout("the deadline of the request has passed")
        return left

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ARG002  (the deadline decides)
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        """Connect to the first address of a host that accepts."""
        host = host.strip("[]")
        try:
            addresses = self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(f"the name {host} cannot be resolved") from error
        for address in addresses:
            if (host, port) not in self._trusted and not self._allows(address):
                raise AddressRefused(f"{host} is at {address}, which is not a public address")
        failure: Exception = httpcore.ConnectError(f"{host} has no address")
        for address in addresses:
            try:
                stream = super().connect_tcp(address, port, self.left(), local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
            else:
                return _TimedStream(stream, self.left)
        raise failure


class _TimedStream(httpcore.NetworkStream):
    """Replaces every timeout by the time that is left for the request."""

    def __init__(self, stream: httpcore.NetworkStream, left: Callable[[], float]) -> None:
        self._stream = stream
        self._left = left

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002
        """Read available bytes."""
        return self._stream.read(min(max_bytes, _READ_AT_ONCE), self._left())

    def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002
        """Write all bytes."""
        self._stream.write(buffer, self._left())

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()

    def get_extra_info(self, info: str) -> Any:
        """Return information about the connection."""
        return self._stream.get_extra_info(info)

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ARG002
    ) -> httpcore.NetworkStream:
        """Switch to TLS."""
        return _TimedStream(self._stream.start_tls(ssl_context, server_hostname, self._left()), self._left)
