"""The middleware that admits requests to the HTTP API and to MCP over HTTP: keys, host names, visitors.

Behind trusted proxies, the address of a visitor is in `Forwarded` (RFC 7239) or `X-Forwarded-For`.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from recto.errors import ConfigurationError
from recto.server.keys import PREFIXES, Key, digest, key_file, read_keys
from recto.server.limits import (
    AdmissionLimits,
    CurrentRequest,
    RateLimiter,
    Refusal,
    Refused,
    busy,
    check_length,
)

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

MAX_HEADER = 4096
"""A longer header of a proxy is not read: it would have dozens of proxies."""
_IPV6_PREFIX = 64  # what one subscriber gets: a limit for each address would be none
_NODE = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]{2,45})\]|(?P<v4>[0-9.]{7,15}))(?::(?:[0-9]{1,5}|_[\w.-]+))?"
    r"|(?P<bare>[0-9A-Fa-f:.]{2,45})",
    re.ASCII,
)
# The RFC asks for quotes around a value with a colon, but not all proxies write them.
_QUOTED = r'"(?:[^"\\]|\\.)*"'
_PAIR = rf"""[!#$%&'*+.^_`|~0-9A-Za-z-]+=(?:[^\x00-\x20\x7f",;\\]+|{_QUOTED})"""
_FORWARDED = re.compile(rf"[ \t]*(?:{_PAIR}[ \t]*)?(?:[;,][ \t]*(?:{_PAIR}[ \t]*)?)*", re.DOTALL)

VARIABLE = "RECTO_API_KEY"
KEY_NAME, REFUSAL_REASON = "recto.key_name", "recto.refusal_reason"
"""What the middleware adds to the scope of a request, for metrics and the log."""
_KEY = "recto.key"
_LOG = logging.getLogger("recto.server")

_BEARER = (("WWW-Authenticate", 'Bearer realm="recto"'),)
_UNAUTHORIZED = Refusal(
    401, "An API key is required", "Send the header `Authorization: Bearer KEY`.", _BEARER
)
_ENDED = {
    "revoked": Refusal(401, "This API key was revoked", "Ask the operator for a new key.", _BEARER),
    "expired": Refusal(401, "This API key has expired", "Ask the operator for a new key.", _BEARER),
}
_WRONG_ORIGIN = Refusal(
    403,
    "This API key is not for pages of this origin",
    "Create a key for the origin of the page: recto keys add NAME --origin ORIGIN --collection COLLECTION",
)
_WRONG_SCOPE = Refusal(
    403, "This API key is only for searching and reading a book", "Use an admin key for this path."
)

_HOST_HEADER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")
_WRONG_HOST = Refusal(
    400,
    "This service does not accept that host name",
    "Use the host name that it listens on, or add yours with --allowed-host.",
)
_CROSS_SITE = Refusal(
    403,
    "This service does not answer requests from other sites",
    "Allow the origin of the page with --cors-origin, or create a key for it: "
    "recto keys add NAME --origin ORIGIN --collection COLLECTION",
)
_CORS_ANSWER = {
    "access-control-allow-methods": "GET, HEAD, POST",
    "access-control-allow-headers": "authorization, content-type, x-api-key, x-request-id",
    "access-control-max-age": "600",
}
_FOR_ALL_ORIGINS = (b"access-control-allow-origin", b"*")
_EXPOSED = (b"access-control-expose-headers", b"x-request-id, retry-after")
_VARY = (b"vary", b"Origin")
_WRONG_KEYS = 60  # per minute and address


class ApiKeys:
    """Checks keys: the keys in RECTO_API_KEY, which are for everything, and those that are stored in a home.

    The file of stored keys is read again when it has changed: each request compares its size, time and inode,
    which takes microseconds. If it cannot be read, no stored key is accepted.
    """

    def __init__(self, keys: Iterable[str], home: Path | None = None, *, was_found: bool = False) -> None:
        """Take keys, a home, and whether keys were found in it when the service started."""
        self._digests = [digest(key) for key in keys]
        self._home = home
        self._signature: object = None
        self._stored: dict[str, Key] = {}
        self._origins: frozenset[str] = frozenset()
        self._was_found = was_found
        self._is_readable = True

    def __bool__(self) -> bool:
        """Return whether requests need a key; deleting the file of stored keys must not open the service."""
        self._refresh()
        return bool(self._digests) or self._was_found

    @property
    def origins(self) -> Collection[str]:
        """The origins of all stored keys; pages of a key that has ended can read the error."""
        self._refresh()
        return self._origins

    def authenticate(self, headers: Mapping[str, str]) -> Key:
        """Return the request's key; raise `Refused` if it has no valid key.

        A key of RECTO_API_KEY has its position as name, counted from 1.
        """
        scheme, _, text = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":  # a proxy may need the header for itself
            text = headers.get("x-api-key", "")
        text = text.strip()
        sent = digest(text)  # always compared with all keys
        if number := sum(n * hmac.compare_digest(sent, own) for n, own in enumerate(self._digests, 1)):
            return Key(str(number), "admin")
        if not text.startswith(tuple(PREFIXES.values())):
            raise Refused("key", _UNAUTHORIZED)
        self._refresh()
        if not self._is_readable:
            raise Refused(
                "keys", busy("The service cannot read its keys", "The operator finds the reason in the log.")
            )
        # A lookup by digest needs no constant time: the digest of a wrong key is unrelated to those stored.
        key = self._stored.get(sent)
        if key is None:
            raise Refused("key", _UNAUTHORIZED)
        if key.state != "active":
            raise Refused(key.state, _ENDED[key.state])
        return key

    def _refresh(self) -> None:
        if self._home is None:
            return
        signature: object = None
        try:
            status = key_file(self._home).stat()
            signature = (status.st_mtime_ns, status.st_size, status.st_ino)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            signature = error.errno
        if signature == self._signature:
            return
        self._signature = signature
        self._was_found = self._was_found or signature is not None
        try:
            keys = read_keys(self._home)
            self._is_readable = True
        except ConfigurationError as error:
            _LOG.error("%s %s", error, error.hint)
            keys, self._is_readable = (), False
        self._stored = {key.digest: key for key in keys}
        self._origins = frozenset(origin for key in keys for origin in key.origins)


@dataclass(slots=True)
class AdmissionMiddleware:
    """Checks the key, the site and the limits of each request; refuses it, or passes it on.

    `hosts` are the Host headers that are allowed; none means all. `origins` are allowed for all requests,
    except if the key has its own. `proxies` are trusted to state the addresses of their visitors.
    `is_open` tells which paths need no key, `is_searchable` which a search key may use, `is_limited` to which
    the rate and concurrency limits apply, `is_any_host` which accept every host.
    """

    app: ASGIApp
    keys: ApiKeys
    limits: AdmissionLimits
    rate: RateLimiter = field(default_factory=lambda: RateLimiter(0))
    hosts: Collection[str] = ()
    origins: Collection[str] = ()
    proxies: Sequence[Network] = ()
    is_open: Callable[[str], bool] = lambda _: False
    is_searchable: Callable[[str], bool] = lambda _: False
    is_limited: Callable[[str], bool] = lambda _: True
    is_any_host: Callable[[str], bool] = lambda _: False
    wrong_keys: RateLimiter = field(
        init=False,
        default_factory=lambda: RateLimiter(
            _WRONG_KEYS, burst=_WRONG_KEYS, message="Too many wrong keys", hint="Check the API key."
        ),
    )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        from starlette.datastructures import Headers

        headers = Headers(scope=scope)

        async def send_with_cors(message: Message) -> None:
            given = message.get("headers", ())
            if message["type"] == "http.response.start" and _FOR_ALL_ORIGINS not in given:
                more = self._cors_headers(headers.get("origin", ""), scope.get(_KEY))
                message = {**message, "headers": [*given, *more]}
            await send(message)

        try:
            await self._admit(scope, headers, receive, send_with_cors)
        except Refused as refused:
            scope[REFUSAL_REASON] = refused.reason
            await refused.refusal.response()(scope, receive, send_with_cors)

    async def _admit(self, scope: Scope, headers: Mapping[str, str], receive: Receive, send: Send) -> None:
        path = scope["path"]
        is_host_checked = self.hosts and not self.is_any_host(path)
        if is_host_checked and not _is_allowed(headers.get("host", ""), self.hosts):
            raise Refused("host", _WRONG_HOST)
        if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            await self._answer_preflight(headers)(scope, receive, send)
            return
        visitor = visitor_address(scope, self.proxies)
        key = None
        if self.keys and not self.is_open(path):
            key = self._authenticate(headers, visitor)
            scope[KEY_NAME] = key.name
            self._check_key(key, headers.get("origin"), path)
            scope[_KEY] = key
        check_length(headers)
        if self.is_limited(path) or not self.is_open(path):
            self._check_site(headers, key)
        if not self.is_limited(path):
            await self.limits.run(self.app, scope, receive, send)
            return
        caller = _caller(key, visitor)
        self.rate.check(caller)
        request = CurrentRequest(
            caller, charge=partial(self.rate.charge, caller), collections=key.collections if key else ()
        )
        await self.limits.admit(self.app, scope, receive, send, request)

    def _authenticate(self, headers: Mapping[str, str], visitor: str) -> Key:
        try:
            return self.keys.authenticate(headers)
        except Refused as refused:
            if refused.reason == "key" and ("authorization" in headers or "x-api-key" in headers):
                self.wrong_keys.check(visitor)
            raise

    def _check_key(self, key: Key, origin: str | None, path: str) -> None:
        """Refuse a key that is not for this page or path.

        Without an Origin header, the request is not a cross-origin browser request: it is a GET of the
        service's own origin, or from a program. A program can send any Origin, so requiring the header would
        not restrict anyone, and would break pages that reach the service under their own host name.
        """
        if origin is not None and key.origins and origin not in key.origins:
            raise Refused("origin", _WRONG_ORIGIN)
        if key.scope != "admin" and not self.is_searchable(path):
            raise Refused("scope", _WRONG_SCOPE)

    def _check_site(self, headers: Mapping[str, str], key: Key | None) -> None:
        """Refuse requests that a browser sends for a page of another site, unless CORS allows the page.

        The page could not read the response, but the work would still be done.
        """
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        if site is None:  # not a browser, or an old one
            foreign = origin is not None and not self._is_own(origin, headers.get("host", ""))
        else:
            foreign = site in ("cross-site", "same-site")  # a neighbouring host is someone else's, too
        if foreign and origin not in self._allowed_origins(key):
            raise Refused("site", _CROSS_SITE)

    def _allowed_origins(self, key: Key | None) -> Collection[str]:
        return key.origins if key and key.origins else self.origins

    def _answer_preflight(self, headers: Mapping[str, str]) -> Response:
        """Answer the preflight request of a browser; it has no key."""
        from starlette.responses import Response

        origin = headers.get("origin", "")
        if origin not in self.origins and origin not in self.keys.origins:
            raise Refused("site", _CROSS_SITE)
        return Response(status_code=204, headers=_CORS_ANSWER)

    def _cors_headers(self, origin: str, key: Key | None) -> list[tuple[bytes, bytes]]:
        """Return the headers that let a page read the response.

        Responses without an accepted key have no content of a book. Pages of all known origins can read them,
        so that a page learns that its key was revoked.
        """
        may_read = origin in self._allowed_origins(key) or (key is None and origin in self.keys.origins)
        if not origin or not may_read:
            return [_VARY]
        return [_VARY, (b"access-control-allow-origin", origin.encode("latin-1")), _EXPOSED]

    def _is_own(self, origin: str, host: str) -> bool:
        """Return whether an origin has the requested host, or another allowed one, such as a local port."""
        scheme, _, authority = origin.partition("://")
        if scheme not in ("http", "https"):
            return False
        return authority == host or (bool(self.hosts) and _is_allowed(authority, self.hosts))


def _caller(key: Key | None, visitor: str) -> str:
    """Return who is limited: a visitor, also one of many who share a published key, or the owner of a key."""
    if key is None:
        return visitor
    return f"key {key.name} {visitor}" if key.scope == "search" else f"key {key.name}"


def api_keys(values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the configured keys; commas separate several."""
    keys = tuple(dict.fromkeys(key.strip() for key in values.get(VARIABLE, "").split(",") if key.strip()))
    if any(not key.isascii() or not key.isprintable() or " " in key for key in keys):
        raise ConfigurationError(
            f"{VARIABLE} has characters that are not allowed in a header",
            hint="Use letters and digits; separate several keys with commas.",
        )
    if any(key.startswith(PREFIXES["search"]) for key in keys):
        raise ConfigurationError(
            f"{VARIABLE} contains a search key, which readers know",
            hint="Keys of `recto keys` work without this variable: remove the key from it.",
        )
    return keys


def local_hosts(host: str) -> list[str]:
    """Return the Host headers that a server on a loopback address accepts, against DNS rebinding."""
    own = f"[{host.strip('[]')}]" if ":" in host else host
    return list(dict.fromkeys(("127.0.0.1", "localhost", "*.localhost", "[::1]", own)))


def _is_allowed(host: str, allowed: Collection[str]) -> bool:
    """Return whether a host name with an optional port is one of those allowed."""
    match = _HOST_HEADER.fullmatch(host)
    name = match[1].lower() if match else ""
    return any(name == one or (one.startswith("*.") and name.endswith(one[1:])) for one in allowed if name)


def key_required(host: str, alternative: str) -> ConfigurationError:
    """Return the error for a public address without a key."""
    return ConfigurationError(
        f"{host} is reachable from other machines, and {VARIABLE} is not set",
        hint=f"Set {VARIABLE} to a long random text, {alternative}.",
    )


def check_networks(ranges: Iterable[str]) -> tuple[Network, ...]:
    """Return the ranges of trusted proxies; raise `ConfigurationError` for one that is not valid."""
    networks = []
    for text in ranges:
        try:
            networks.append(ipaddress.ip_network(text))
        except ValueError:
            raise ConfigurationError(
                f"{text[:80]!r} is not a range of addresses",
                hint="Write it as 10.0.0.0/8, 10.1.2.3 or fd00::/8.",
            ) from None
        if not networks[-1].prefixlen:
            raise ConfigurationError(
                f"{text[:80]!r} trusts every client to state its own address",
                hint="Name only the addresses of your own proxies.",
            )
    return tuple(networks)


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
    if isinstance(peer, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((int(peer), _IPV6_PREFIX), strict=False))
    return str(peer)


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
    if not _FORWARDED.fullmatch(text):
        return None
    hops: list[Address | None] = []
    for element in re.findall(rf"(?:[^,\"]|{_QUOTED})+", text, re.DOTALL):
        pairs = [pair.partition("=") for pair in re.findall(_PAIR, element, re.DOTALL)]
        values = {name.lower(): value for name, _, value in pairs}
        if len(values) != len(pairs):
            return None
        if pairs:
            node = values.get("for", "unknown")
            hops.append(parse_address(re.sub(r"\\(.)", r"\1", node[1:-1]) if node[0] == '"' else node))
    return hops


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
