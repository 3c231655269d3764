"""Connect to the hosts of a website: only to public addresses, and only until a deadline."""

from __future__ import annotations

import ipaddress
import socket
import ssl
import time
from collections.abc import Callable, Collection, Iterable
from typing import Any

import httpcore

from recto.book.sources.website import Resolve

# The flags of `ipaddress` differ between versions of Python, so every network is listed here, too. The table
# is the special-purpose registries of IANA; an IPv6 address is public only inside 2000::/3.
_NOT_PUBLIC = tuple(
    ipaddress.ip_network(network)
    for network in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # carrier-grade NAT
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link-local, metadata of cloud machines
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
        "::/3",  # unspecified, loopback, IPv4-compatible, discard
        "2001::/23",  # protocol assignments: Teredo, benchmarks, ORCHID
        "2001:db8::/32",  # documentation
        "3fff::/20",  # documentation
        "4000::/2",  # not assigned
        "8000::/1",  # not assigned, unique local, link-local, site-local, multicast
    )
)
_EMBEDDED_IPV4 = tuple(  # the network, and how many bits follow the IPv4 address
    (ipaddress.IPv6Network(network), bits)
    for network, bits in (
        ("::ffff:0:0/96", 0),  # mapped
        ("64:ff9b::/96", 0),  # NAT64
        ("64:ff9b:1::/96", 0),  # local NAT64; the rest of its /48 can hide a second IPv4 address
        ("2002::/16", 80),  # 6to4
    )
)
_READ_AT_ONCE = 64 << 10


def resolve_host(host: str, port: int) -> list[str]:
    """Resolve a host with the system's resolver."""
    entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


def is_public(address: str) -> bool:
    """Return whether an IP address is public; for an IPv4 address in an IPv6 address, whether that is."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    for network, bits in _EMBEDDED_IPV4:
        if parsed in network:
            parsed = ipaddress.IPv4Address(int(parsed) >> bits & 0xFFFFFFFF)
    flagged = not parsed.is_global or parsed.is_multicast or parsed.is_reserved
    return not flagged and not any(parsed in network for network in _NOT_PUBLIC)


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
