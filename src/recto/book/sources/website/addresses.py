"""Resolve hosts, and tell public addresses from those of this machine and of private networks."""

from __future__ import annotations

import ipaddress
import socket

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
