"""API keys and host names, and the middleware that admits requests to the HTTP API and to MCP over HTTP."""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Callable, Collection, Mapping
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

from recto.errors import ConfigurationError
from recto.server.limits import (
    AdmissionLimits,
    CurrentRequest,
    RateLimiter,
    Refusal,
    Refused,
    check_length,
    request_headers,
)

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

VARIABLE = "RECTO_API_KEY"
KEY_NUMBER, REFUSAL_REASON = "recto.key_number", "recto.refusal_reason"
"""What the middleware adds to the scope of a request, for metrics and the log."""

_UNAUTHORIZED = Refusal(
    401,
    "An API key is required",
    "Send the header `Authorization: Bearer KEY`.",
    (("WWW-Authenticate", 'Bearer realm="recto"'),),
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
    "Allow the origin of the page with --cors-origin.",
)
_WRONG_KEYS = 60  # per minute and address


class ApiKeys:
    """Checks keys in constant time."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        self._digests = [_digest(key) for key in keys]

    def __bool__(self) -> bool:
        """Return whether requests need a key."""
        return bool(self._digests)

    def authenticate(self, headers: Mapping[str, str]) -> int:
        """Return the number of the request's key, counted from 1; raise `Refused` if it has no valid key."""
        number = self.find(headers.get("authorization", ""))
        if not number:
            raise Refused("key", _UNAUTHORIZED)
        return number

    def find(self, authorization: str) -> int:
        """Return the number of the key in an Authorization header, or 0; always compare all keys."""
        scheme, _, key = authorization.partition(" ")
        digest = _digest(key.strip()) if scheme.lower() == "bearer" else b""
        return sum(
            number * hmac.compare_digest(digest, known) for number, known in enumerate(self._digests, 1)
        )


class AdmissionMiddleware:
    """Checks the key, the site and the limits of each request; refuses it, or passes it on.

    `hosts` are the Host headers that are allowed; none means all. `is_open` tells which paths need no key,
    `is_limited` to which the rate and concurrency limits apply, `is_any_host` which paths accept every host.
    """

    def __init__(
        self,
        app: ASGIApp,
        keys: ApiKeys,
        limits: AdmissionLimits,
        rate: RateLimiter | None = None,
        hosts: Collection[str] = (),
        origins: Collection[str] = (),
        is_open: Callable[[str], bool] = lambda _: False,
        is_limited: Callable[[str], bool] = lambda _: True,
        is_any_host: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._app = app
        self._keys = keys
        self._limits = limits
        self._rate = rate or RateLimiter(0)
        self._wrong_keys = RateLimiter(
            _WRONG_KEYS, burst=_WRONG_KEYS, message="Too many wrong keys", hint="Check the API key."
        )
        self._hosts = hosts
        self._origins = origins
        self._is_open = is_open
        self._is_limited = is_limited
        self._is_any_host = is_any_host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            await self._admit(scope, receive, send)
        except Refused as refused:
            scope[REFUSAL_REASON] = refused.reason
            await refused.refusal.response()(scope, receive, send)

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers, path = request_headers(scope), scope["path"]
        if not self._is_any_host(path):
            check_host(headers, self._hosts)
        if self._keys and not self._is_open(path):
            try:
                scope[KEY_NUMBER] = self._keys.authenticate(headers)
            except Refused:
                if "authorization" in headers:
                    self._wrong_keys.check(_address(scope))
                raise
        check_length(headers)
        if not self._is_limited(path):
            await self._limits.run(self._app, scope, receive, send)
            return
        self._check_site(headers)
        caller = f"key {scope[KEY_NUMBER]}" if KEY_NUMBER in scope else _address(scope)
        self._rate.check(caller)
        request = CurrentRequest(caller, charge=partial(self._rate.charge, caller))
        await self._limits.admit(self._app, scope, receive, send, request)

    def _check_site(self, headers: Mapping[str, str]) -> None:
        """Refuse requests that a browser sends for a page of another site, unless CORS allows the page.

        The page could not read the response, but the work would still be done.
        """
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        if site is None:  # not a browser, or an old one
            foreign = origin is not None and not self._is_own(origin, headers.get("host", ""))
        else:
            foreign = site == "cross-site"
        if foreign and origin not in self._origins:
            raise Refused("site", _CROSS_SITE)

    def _is_own(self, origin: str, host: str) -> bool:
        """Return whether an origin has the requested host, or another allowed one, such as a local port."""
        scheme, _, place = origin.partition("://")
        if scheme not in ("http", "https"):
            return False
        return place == host or (bool(self._hosts) and _is_allowed(place, self._hosts))


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else "unknown"


def api_keys(values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the configured keys; commas separate several."""
    keys = tuple(dict.fromkeys(key.strip() for key in values.get(VARIABLE, "").split(",") if key.strip()))
    if any(not key.isascii() or not key.isprintable() or " " in key for key in keys):
        raise ConfigurationError(
            f"{VARIABLE} has characters that are not allowed in a header",
            hint="Use letters and digits; separate several keys with commas.",
        )
    return keys


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is reachable from this machine only."""
    name = host.strip("[]").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def local_hosts(host: str) -> list[str]:
    """Return the Host headers that a server on a loopback address accepts, against DNS rebinding."""
    own = f"[{host.strip('[]')}]" if ":" in host else host
    return list(dict.fromkeys(("127.0.0.1", "localhost", "*.localhost", "[::1]", own)))


def check_host(headers: Mapping[str, str], allowed: Collection[str]) -> None:
    """Refuse a Host header that is invalid or not allowed; without allowed names, every host is."""
    if allowed and not _is_allowed(headers.get("host", ""), allowed):
        raise Refused("host", _WRONG_HOST)


def _is_allowed(host: str, allowed: Collection[str]) -> bool:
    """Return whether a host name with an optional port is one of those allowed."""
    found = _HOST_HEADER.fullmatch(host)
    name = found[1].lower() if found else ""
    return any(name == one or (one.startswith("*.") and name.endswith(one[1:])) for one in allowed if name)


def key_required(host: str, alternative: str) -> ConfigurationError:
    """Return the error for a public address without a key."""
    return ConfigurationError(
        f"{host} is reachable from other machines, and {VARIABLE} is not set",
        hint=f"Set {VARIABLE} to a long random text, {alternative}.",
    )


def _digest(key: str) -> bytes:
    return sha256(key.encode("utf-8", "surrogateescape")).digest()
