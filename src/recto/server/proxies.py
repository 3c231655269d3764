"""The address of a visitor behind trusted proxies: RFC 7239 `Forwarded` and `X-Forwarded-For`."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from recto.errors import ConfigurationError

if TYPE_CHECKING:
    from starlette.types import Scope

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

MAX_HEADER = 4096
"""A longer header is not read: it would have dozens of proxies."""
_IPV6_PREFIX = 64  # what one subscriber gets: a limit for each address would be none
_NODE = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]{2,45})\]|(?P<v4>[0-9.]{7,15}))(?::(?:[0-9]{1,5}|_[\w.-]+))?"
    r"|(?P<bare>[0-9A-Fa-f:.]{2,45})",
    re.ASCII,
)
# The RFC asks for quotes around a value with a colon, but not all proxies write them.
_PAIR = re.compile(
    r"""[ \t]*([!#$%&'*+.^_`|~0-9A-Za-z-]+)=([^\x00-\x20\x7f",;\\]+|"(?:[^"\\]|\\.)*")[ \t]*""", re.DOTALL
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_BLANK = re.compile(r"[ \t]*")


def check_networks(ranges: Iterable[str]) -> tuple[Network, ...]:
    """Return the ranges of trusted proxies; raise `ConfigurationError` for one that is not valid."""
    return tuple(_network(text) for text in ranges)


def _network(text: str) -> Network:
    try:
        network = ipaddress.ip_network(text)
    except ValueError:
        raise ConfigurationError(
            f"{text[:80]!r} is not a range of addresses", hint="Write it as 10.0.0.0/8, 10.1.2.3 or fd00::/8."
        ) from None
    if not network.prefixlen:
        raise ConfigurationError(
            f"{text[:80]!r} trusts every client to state its own address",
            hint="Name only the addresses of your own proxies.",
        )
    return network


def visitor_address(scope: Scope, proxies: Sequence[Network]) -> str:
    """Return the address that limits count: of the client, or of the visitor behind trusted proxies.

    An IPv6 address is counted with its /64 network.
    """
    client = scope.get("client")
    peer = parse_address(client[0].partition("%")[0]) if client else None
    if peer is None:
        return client[0] if client else "unknown"
    if _is_trusted(peer, proxies):
        peer = _behind(peer, scope["headers"], proxies)
    return _group(peer)


def _behind(peer: Address, headers: Sequence[tuple[bytes, bytes]], proxies: Sequence[Network]) -> Address:
    """Return the visitor's address from the headers of a trusted proxy, or the proxy's own address.

    If both headers are there and differ, the proxy sets only one of them and passes on the other as the
    visitor sent it. Which one is unknown, so neither is used: visitors must not choose their address. For the
    same reason, a malformed header is not the same as none.
    """
    visitors = set()
    for name, parse in ((b"forwarded", parse_forwarded), (b"x-forwarded-for", _parse_list)):
        values = [value for key, value in headers if key == name]
        if values:
            text = b",".join(values).decode("latin-1")
            hops = parse(text) if len(text) <= MAX_HEADER else None
            visitors.add(_nearest(peer, hops or [], proxies))
    return visitors.pop() if len(visitors) == 1 else peer


def _parse_list(text: str) -> list[Address | None]:
    return [parse_address(part.strip(" \t")) for part in text.split(",")]


def _nearest(peer: Address, hops: Sequence[Address | None], proxies: Sequence[Network]) -> Address:
    """Return the last address that is not a trusted proxy: what is left of it, its sender may have invented.

    If a proxy does not know or hides an address, its own counts for all its visitors: RFC 7239 lets it hide
    an address behind a new random name in each request.
    """
    nearest = peer
    for hop in reversed(hops):
        if hop is None:
            break
        nearest = hop
        if not _is_trusted(hop, proxies):
            break
    return nearest


def parse_forwarded(text: str) -> list[Address | None] | None:
    """Return the `for` of each element of a Forwarded header, None for one that is hidden or unknown.

    Return None if the header is malformed.
    """
    hops: list[Address | None] = []
    for element in _elements(text):
        if element is None or len({name for name, _ in element}) != len(element):
            return None
        node = dict(element).get("for", "unknown")
        hops.append(parse_address(node))
    return hops


def _elements(text: str) -> Iterable[list[tuple[str, str]] | None]:
    """Yield the pairs of each element that is not empty, and None at the first syntax error."""
    pairs: list[tuple[str, str]] = []
    position = 0
    while True:
        pair = _PAIR.match(text, position)
        if pair:
            name, value = pair.groups()
            pairs.append((name.lower(), _ESCAPED.sub(r"\1", value[1:-1]) if value[0] == '"' else value))
            position = pair.end()
        elif blank := _BLANK.match(text, position):
            position = blank.end()
        separator = text[position : position + 1]
        if separator in ("", ",") and pairs:
            yield pairs
            pairs = []
        if not separator:
            return
        if separator not in ",;":
            yield None
            return
        position += 1


def parse_address(node: str) -> Address | None:
    """Return the address of a node with an optional port; None if it is hidden, unknown or malformed."""
    match = _NODE.fullmatch(node)
    if not match:
        return None
    try:
        address = ipaddress.ip_address(match["v6"] or match["v4"] or match["bare"])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        return address.ipv4_mapped or address
    return None if match["v6"] else address


def _is_trusted(address: Address, proxies: Sequence[Network]) -> bool:
    return any(address in network for network in proxies)


def _group(address: Address) -> str:
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    return str(ipaddress.ip_network((int(address), _IPV6_PREFIX), strict=False))
