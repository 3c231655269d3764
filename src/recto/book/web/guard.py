"""Which addresses of the network may be asked: only those that the whole world can reach."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable

Resolve = Callable[[str, int], list[str]]
"""Turns the name of a host and a port into numbered addresses; raises OSError."""

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_NAT64 = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("64:ff9b:1::/48"))
_COMPATIBLE = ipaddress.IPv6Network("::/96")


def resolve(host: str, port: int) -> list[str]:
    """Ask the system for a host's addresses; how long that may take is for the system to say."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def is_public(address: str) -> bool:
    """Say whether an address is one of the open internet, whatever form it comes in."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return all(_is_open(one) for one in (parsed, *_embedded(parsed)))


def _embedded(address: _Address) -> list[ipaddress.IPv4Address]:
    """Return the older addresses that a newer one leads to."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    found = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _COMPATIBLE or any(address in network for network in _NAT64):
        found.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [one for one in found if one is not None]


def _is_open(address: _Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address) and (address.ipv4_mapped or any(address in network for network in _NAT64)):
        return True  # it is what is embedded in it that counts
    refused = (
        address.is_private,
        address.is_loopback,
        address.is_link_local,
        address.is_multicast,
        address.is_reserved,
        address.is_unspecified,
    )
    return address.is_global and not any(refused)
