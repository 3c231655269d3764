"""Middleware of the HTTP API and of MCP over HTTP: errors, host names, keys, origins of web pages."""

from __future__ import annotations

from collections.abc import Callable, Collection

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from recto.server.auth import ApiKeys
from recto.server.keys import Key
from recto.server.limits import KEY, REFUSAL_REASON, RateLimiter, Refusal, Refused, client_address

_WRONG_KEYS = 60  # per minute and address: enough for people, too few to guess a key
_WRONG_ORIGIN = Refusal(
    403,
    "This API key is not for pages of this origin",
    "Create a key for the origin of the page: recto keys add NAME --origin ORIGIN --collection COLLECTION",
)
_WRONG_SCOPE = Refusal(
    403, "This API key is only for searching and reading a book", "Use an admin key for this path."
)
_CROSS_SITE = Refusal(
    403,
    "This service does not answer requests from other sites",
    "Allow the origin of the page with --cors-origin, or create a key for it: "
    "recto keys add NAME --origin ORIGIN --collection COLLECTION",
)
_WRONG_HOST = Refusal(
    400,
    "This service does not accept that host name",
    "Use the host name that it listens on, or add yours with --allowed-host.",
)
_PLAIN_TEXT = (b"content-type", b"text/plain; charset=utf-8")


class RefusalMiddleware:
    """Turns `Refused` into an error response, and the reason into a field of the scope."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        try:
            await self.app(scope, receive, send)
        except Refused as refused:
            scope[REFUSAL_REASON] = refused.reason
            await refused.refusal.response()(scope, receive, send)


class HostMiddleware(TrustedHostMiddleware):
    """Starlette's check of the Host header, with our error body.

    `is_any_host` says which paths accept every host name.
    """

    def __init__(
        self, app: ASGIApp, hosts: Collection[str], is_any_host: Callable[[str], bool] = lambda _: False
    ) -> None:
        super().__init__(app, list(hosts) or ["*"], www_redirect=False)
        self._is_any_host = is_any_host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request; raise `Refused` if its host name is not allowed."""
        if scope["type"] == "http" and self._is_any_host(scope["path"]):
            await self.app(scope, receive, send)
            return

        async def replace_error(message: Message) -> None:
            # Starlette's error is the only response with status 400 that is plain text.
            if message.get("status") == 400 and _PLAIN_TEXT in message.get("headers", ()):
                raise Refused("host", _WRONG_HOST)
            await send(message)

        await super().__call__(scope, receive, replace_error)


class KeyMiddleware:
    """Refuses requests without a valid key, and requests of web pages that may not use the service.

    It adds the accepted key to the scope. `origins` are the origins of `--cors-origin`. `is_open` says which
    paths need no key, `is_searchable` which paths a search key may use.
    """

    def __init__(
        self,
        app: ASGIApp,
        keys: ApiKeys,
        origins: Collection[str] = (),
        is_open: Callable[[str], bool] = lambda _: False,
        is_searchable: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self.app = app
        self._keys = keys
        self._origins = origins
        self._is_open = is_open
        self._is_searchable = is_searchable
        self._wrong_keys = RateLimiter(
            _WRONG_KEYS, burst=_WRONG_KEYS, message="Too many wrong keys", hint="Check the API key."
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request; raise `Refused` if it is not allowed."""
        if scope["type"] == "http" and not self._is_open(scope["path"]):
            headers = Headers(scope=scope)
            key = None
            if self._keys:
                scope[KEY] = key = self._authenticate(headers, client_address(scope))
                if key.scope == "search" and not self._is_searchable(scope["path"]):
                    raise Refused("scope", _WRONG_SCOPE)
            self._check_page(headers, key)
        await self.app(scope, receive, send)

    def _authenticate(self, headers: Headers, address: str) -> Key:
        try:
            return self._keys.authenticate(headers)
        except Refused as refused:
            if refused.reason == "key" and ("authorization" in headers or "x-api-key" in headers):
                self._wrong_keys.check(address)
            raise

    def _check_page(self, headers: Headers, key: Key | None) -> None:
        """Refuse requests of web pages of other origins, unless the key or `--cors-origin` allows the origin.

        Browsers keep the response from such a page, but the work would be done. Programs send no Origin; they
        could send any, so requiring one would not restrict them.
        """
        origin = headers.get("origin")
        if key and key.origins:
            if origin is not None and origin not in key.origins:
                raise Refused("origin", _WRONG_ORIGIN)
            allowed: Collection[str] = key.origins
        else:
            allowed = self._origins
        if _is_foreign(headers) and origin not in allowed:
            raise Refused("site", _CROSS_SITE)


def _is_foreign(headers: Headers) -> bool:
    """Return whether a browser sends a request for a page of another origin."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None:
        return site in ("cross-site", "same-site")  # another host of the same site is someone else's
    # Browsers leave out Sec-Fetch-Site without HTTPS, except on this machine.
    return origin is not None and origin.partition("://")[2] != headers.get("host")


class KeyOriginsMiddleware(CORSMiddleware):
    """Starlette's CORS middleware, which also allows the origins of stored keys."""

    def __init__(self, app: ASGIApp, origins: Collection[str], keys: ApiKeys) -> None:
        super().__init__(
            app,
            origins,
            allow_methods=("GET", "HEAD", "POST"),
            allow_headers=("Authorization", "X-API-Key", "X-Request-ID"),
            expose_headers=("X-Request-ID", "Retry-After"),
        )
        self._keys = keys

    def is_allowed_origin(self, origin: str) -> bool:
        """Return whether pages of an origin may read responses; `KeyMiddleware` checks each key's origins."""
        return super().is_allowed_origin(origin) or origin in self._keys.origins

    def preflight_response(self, request_headers: Headers) -> Response:
        """Answer a preflight request, with our error body if it is refused."""
        response = super().preflight_response(request_headers)
        if response.status_code < 400:
            return response
        return Refusal(403, bytes(response.body).decode(), _CROSS_SITE.hint).response()
