"""API keys and host names, and the middleware that admits requests to the HTTP API and to MCP over HTTP."""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from recto.errors import ConfigurationError
from recto.server.keys import PREFIXES, Key, StoredKeys, digest
from recto.server.limits import (
    AdmissionLimits,
    CurrentRequest,
    RateLimiter,
    Refusal,
    Refused,
    busy,
    check_length,
    request_headers,
)
from recto.server.proxies import Network, visitor_address

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

VARIABLE = "RECTO_API_KEY"
KEY_NAME, REFUSAL_REASON = "recto.key_name", "recto.refusal_reason"
"""What the middleware adds to the scope of a request, for metrics and the log."""
_KEY = "recto.key"

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
_CORS_METHODS = ("GET", "HEAD", "POST")
_WRONG_METHOD = Refusal(
    405,
    "Web pages of other origins cannot use this method",
    "Use GET or POST.",
    (("Allow", ", ".join(_CORS_METHODS)),),
)
_CORS_ANSWER = {
    "access-control-allow-methods": ", ".join(_CORS_METHODS),
    "access-control-allow-headers": "authorization, content-type, x-api-key, x-request-id",
    "access-control-max-age": "600",
}
_EXPOSED = (b"access-control-expose-headers", b"x-request-id, retry-after")
_VARY = (b"vary", b"Origin")
_WRONG_KEYS = 60  # per minute and address


class ApiKeys:
    """Checks keys: those of RECTO_API_KEY, which are for everything, and stored ones."""

    def __init__(self, keys: tuple[str, ...], stored: StoredKeys | None = None) -> None:
        self._digests = [digest(key) for key in keys]
        self._stored = stored

    def __bool__(self) -> bool:
        """Return whether requests need a key."""
        return bool(self._digests) or bool(self._stored)

    @property
    def origins(self) -> Collection[str]:
        """The origins of all stored keys."""
        return self._stored.origins if self._stored is not None else ()

    def authenticate(self, headers: Mapping[str, str]) -> Key:
        """Return the request's key; raise `Refused` if it has no valid key.

        A key of RECTO_API_KEY has its position as name, counted from 1.
        """
        text = _sent_key(headers)
        if number := self.find(text):
            return Key(str(number), "admin")
        if self._stored is None or not text.startswith(tuple(PREFIXES.values())):
            raise Refused("key", _UNAUTHORIZED)
        key = self._stored.find(text)
        if not self._stored.is_readable:
            raise Refused(
                "keys", busy("The service cannot read its keys", "The operator finds the reason in the log.")
            )
        if key is None:
            raise Refused("key", _UNAUTHORIZED)
        if key.state != "active":
            raise Refused(key.state, _ENDED[key.state])
        return key

    def find(self, text: str) -> int:
        """Return the position of a key in RECTO_API_KEY, or 0; always compare all keys."""
        found = digest(text)
        return sum(
            number * hmac.compare_digest(found, known) for number, known in enumerate(self._digests, 1)
        )


def _sent_key(headers: Mapping[str, str]) -> str:
    """Return the key of a request; a proxy may need the header Authorization for itself."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "").strip()


class AdmissionMiddleware:
    """Checks the key, the site and the limits of each request; refuses it, or passes it on.

    `hosts` are the Host headers that are allowed; none means all. `origins` are allowed for all requests but
    those with a key that has its own. `proxies` are trusted to state the addresses of their visitors.
    `is_open` tells which paths need no key, `is_searchable` which a search key may use, `is_limited` to which
    the rate and concurrency limits apply, `is_any_host` which accept every host.
    """

    def __init__(
        self,
        app: ASGIApp,
        keys: ApiKeys,
        limits: AdmissionLimits,
        rate: RateLimiter | None = None,
        hosts: Collection[str] = (),
        origins: Collection[str] = (),
        proxies: Sequence[Network] = (),
        is_open: Callable[[str], bool] = lambda _: False,
        is_searchable: Callable[[str], bool] = lambda _: False,
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
        self._proxies = proxies
        self._is_open = is_open
        self._is_searchable = is_searchable
        self._is_limited = is_limited
        self._is_any_host = is_any_host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = request_headers(scope)

        async def send_with_cors(message: Message) -> None:
            if message["type"] == "http.response.start" and not _is_for_all_origins(message):
                more = self._cors_headers(headers.get("origin", ""), scope.get(_KEY))
                message = {**message, "headers": [*message.get("headers", ()), *more]}
            await send(message)

        try:
            await self._admit(scope, headers, receive, send_with_cors)
        except Refused as refused:
            scope[REFUSAL_REASON] = refused.reason
            await refused.refusal.response()(scope, receive, send_with_cors)

    async def _admit(self, scope: Scope, headers: Mapping[str, str], receive: Receive, send: Send) -> None:
        path = scope["path"]
        if not self._is_any_host(path):
            check_host(headers, self._hosts)
        if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            await self._answer_preflight(headers)(scope, receive, send)
            return
        visitor = visitor_address(scope, self._proxies)
        key = None
        if self._keys and not self._is_open(path):
            key = self._authenticate(headers, visitor)
            scope[KEY_NAME] = key.name
            self._check_key(key, headers.get("origin"), path)
            scope[_KEY] = key
        check_length(headers)
        if not self._is_limited(path):
            await self._limits.run(self._app, scope, receive, send)
            return
        self._check_site(headers, key)
        caller = _caller(key, visitor)
        self._rate.check(caller)
        request = CurrentRequest(
            caller,
            charge=partial(self._rate.charge, caller),
            collections=key.collections if key else (),
        )
        await self._limits.admit(self._app, scope, receive, send, request)

    def _authenticate(self, headers: Mapping[str, str], visitor: str) -> Key:
        try:
            return self._keys.authenticate(headers)
        except Refused as refused:
            if refused.reason == "key" and ("authorization" in headers or "x-api-key" in headers):
                self._wrong_keys.check(visitor)
            raise

    def _check_key(self, key: Key, origin: str | None, path: str) -> None:
        """Refuse a key that is not for this page or path.

        Without an Origin header, the request is not a cross-origin browser request: it is a GET of the
        service's own origin, or from a program. A program can send any Origin, so requiring the header would
        not restrict anyone, and would break pages that reach the service under their own host name.
        """
        if origin is not None and key.origins and origin not in key.origins:
            raise Refused("origin", _WRONG_ORIGIN)
        if key.scope != "admin" and not self._is_searchable(path):
            raise Refused("scope", _WRONG_SCOPE)

    def _check_site(self, headers: Mapping[str, str], key: Key | None) -> None:
        """Refuse requests that a browser sends for a page of another site, unless CORS allows the page.

        The page could not read the response, but the work would still be done.
        """
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        if site is None:  # not a browser, or an old one
            foreign = origin is not None and not self._is_own(origin, headers.get("host", ""))
        else:
            foreign = site == "cross-site"
        if foreign and origin not in self._allowed_origins(key):
            raise Refused("site", _CROSS_SITE)

    def _allowed_origins(self, key: Key | None) -> Collection[str]:
        return key.origins if key and key.origins else self._origins

    def _answer_preflight(self, headers: Mapping[str, str]) -> Response:
        """Answer the request that a browser sends before that of a page; it has no key."""
        from starlette.responses import Response

        origin = headers.get("origin", "")
        if origin not in self._origins and origin not in self._keys.origins:
            raise Refused("site", _CROSS_SITE)
        if headers["access-control-request-method"] not in _CORS_METHODS:
            raise Refused("method", _WRONG_METHOD)
        more = {}
        if headers.get("access-control-request-private-network") == "true":
            more["access-control-allow-private-network"] = "true"
        return Response(status_code=204, headers=_CORS_ANSWER | more)

    def _cors_headers(self, origin: str, key: Key | None) -> list[tuple[bytes, bytes]]:
        """Return the headers that let a page read the response.

        Responses without an accepted key have no content of a book. Pages of all known origins can read them,
        so that a page learns that its key was revoked.
        """
        known = origin in self._allowed_origins(key) or (key is None and origin in self._keys.origins)
        if not origin or not known:
            return [_VARY]
        return [_VARY, (b"access-control-allow-origin", origin.encode("latin-1")), _EXPOSED]

    def _is_own(self, origin: str, host: str) -> bool:
        """Return whether an origin has the requested host, or another allowed one, such as a local port."""
        scheme, _, place = origin.partition("://")
        if scheme not in ("http", "https"):
            return False
        return place == host or (bool(self._hosts) and _is_allowed(place, self._hosts))


def _is_for_all_origins(message: Message) -> bool:
    return (b"access-control-allow-origin", b"*") in message.get("headers", ())


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
