"""What every request passes: an id, the checks, a deadline, the usual headers, and one line in the log."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import perf_counter

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from recto.server.auth import Keys, is_loopback
from recto.server.http.errors import UNEXPECTED
from recto.server.http.logs import LOG, log_request, request_id
from recto.server.http.metrics import Metrics
from recto.server.http.options import ServeOptions
from recto.server.http.views import respond_refusal
from recto.server.limits import (
    BODY_SECONDS,
    AdmissionLimits,
    RateLimiter,
    Refusal,
    Refused,
    busy,
    check_length,
)

OPEN_PATHS = ("/healthz", "/", "/favicon.ico")
STATIC = "/static/"

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = tuple(
    (name.encode(), value.encode())
    for name, value in {
        "content-security-policy": _POLICY,
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "permissions-policy": "camera=(), geolocation=(), microphone=()",
    }.items()
)

_EXPOSED = b"x-request-id, retry-after"
_UNAUTHORISED = Refusal(
    401,
    "This service wants a key",
    "Send the header `Authorization: Bearer KEY`.",
    (("WWW-Authenticate", 'Bearer realm="recto"'),),
)
_WRONG_HOST = Refusal(
    400,
    "This service does not answer to that host name",
    "Ask it by the name it listens on; --allowed-host adds others.",
)


def is_open(path: str) -> bool:
    """Whether a path needs no key."""
    return path in OPEN_PATHS or path.startswith(STATIC)


def unauthorised() -> Refusal:
    """Return the answer to a request without a right key."""
    return _UNAUTHORISED


class Hosts:
    """Refuses names that the service is not known by: on loopback, a web page elsewhere could else reach it by a name of its own."""

    def __init__(self, options: ServeOptions) -> None:
        self._known = frozenset(options.hosts)
        self._loopback = not options.is_public
        self._own = options.host.lower().strip("[]")

    def check(self, headers: Mapping[str, str]) -> Refusal | None:
        """Return why a request is refused, if it is."""
        if not self._loopback and not self._known:
            return None
        name = _hostname(headers.get("host", ""))
        if name in self._known or (self._loopback and (is_loopback(name) or name == self._own)):
            return None
        return _WRONG_HOST


class Origins:
    """Lets web pages of listed origins ask from a browser; of all others a browser hides the answer."""

    def __init__(self, origins: tuple[str, ...]) -> None:
        self._origins = frozenset(origins)

    def headers(self, origin: str) -> list[tuple[bytes, bytes]]:
        """Return what an answer to a page of an origin carries."""
        if not self._origins:
            return []
        found = [(b"vary", b"Origin")]
        if origin.lower() in self._origins:
            found += [
                (b"access-control-allow-origin", origin.encode("latin-1")),
                (b"access-control-expose-headers", _EXPOSED),
            ]
        return found

    def preflight(self, method: str, headers: Mapping[str, str]) -> dict[str, str] | None:
        """Return the answer to a browser that asks whether it may ask, or None if this is no such question."""
        if (
            method != "OPTIONS"
            or "access-control-request-method" not in headers
            or headers.get("origin", "").lower() not in self._origins
        ):
            return None
        return {
            "access-control-allow-methods": "GET, POST",
            "access-control-allow-headers": "authorization, content-type, x-request-id",
            "access-control-max-age": "600",
        }


def _hostname(host: str) -> str:
    """Return the name in a Host header, without the port."""
    host = host.strip().lower()
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]


_LIGHT = ("/healthz", "/readyz", "/metrics")
_NO_STORE = (b"cache-control", b"no-store")


@dataclass(slots=True)
class _Exchange:
    """One request, as far as it is known when its line is written."""

    id: str
    method: str
    began: float = field(default_factory=perf_counter)
    status: int = 0
    holder: int = 0
    refused: str = ""


class ServiceMiddleware:
    """The outermost part of the service; no exception gets past it."""

    def __init__(self, app: ASGIApp, options: ServeOptions, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics
        self._timeout = options.timeout
        self._keys = Keys(options.keys)
        self._hosts = Hosts(options)
        self._bounds = AdmissionLimits(options.concurrency, min(BODY_SECONDS, options.timeout))
        self._rate = RateLimiter(options.rate)
        self._origins = Origins(options.origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        headers = _headers(scope)
        exchange = _Exchange(request_id(headers.get("x-request-id", "")), scope["method"])
        if exchange.method == "HEAD":  # the same answer as to GET; its body is dropped on the way out
            scope = {**scope, "method": "GET"}
        if (
            "range" in headers
        ):  # files are answered whole: a wrong range would be refused in words that are not ours
            scope = {**scope, "headers": [pair for pair in scope["headers"] if pair[0] != b"range"]}
        self._metrics.running.inc()
        try:
            sender = _Sender(send, exchange, self._origins.headers(headers.get("origin", "")))
            await self._answer(scope, receive, sender, headers, exchange)
        finally:
            self._metrics.running.dec()
            self._note(scope, exchange)

    async def _answer(
        self, scope: Scope, receive: Receive, send: _Sender, headers: Mapping[str, str], exchange: _Exchange
    ) -> None:
        if (allowed := self._origins.preflight(exchange.method, headers)) is not None:
            await Response(status_code=204, headers=allowed)(scope, receive, send)
            return
        try:
            self._check(scope, headers, exchange)
            if scope["path"] in _LIGHT or is_open(scope["path"]):
                await self._run(scope, receive, send, exchange)
                return
            whole = receive if scope["method"] == "GET" else await self._bounds.read(receive)
            with self._bounds.answering():
                await self._run(scope, whole, send, exchange)
        except Refused as refused:
            exchange.refused = refused.reason
            await self._instead(refused.refusal, scope, receive, send)

    async def _run(self, scope: Scope, receive: Receive, send: _Sender, exchange: _Exchange) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                await self._app(scope, receive, send)
        except TimeoutError:
            exchange.refused = "timeout"
            await self._instead(
                busy(f"There was no answer within {self._timeout:g} s", seconds=2), scope, receive, send
            )
        except Exception:  # noqa: BLE001 - a fault of ours: the caller learns that much, the log where it happened
            LOG.exception("unexpected error", extra={"recto_fields": {"id": exchange.id}})
            await self._instead(UNEXPECTED, scope, receive, send)

    def _check(self, scope: Scope, headers: Mapping[str, str], exchange: _Exchange) -> None:
        if refusal := self._hosts.check(headers):
            raise Refused("host", refusal)
        path = scope["path"]
        if self._keys and not is_open(path):
            exchange.holder = self._keys.holder(headers.get("authorization", ""))
            if not exchange.holder:
                raise Refused("key", unauthorised())
        check_length(headers.get("content-length", ""))
        if (
            path not in _LIGHT
            and not is_open(path)
            and (refusal := self._rate.check(_caller(scope, exchange)))
        ):
            raise Refused("rate", refusal)

    async def _instead(self, refusal: Refusal, scope: Scope, receive: Receive, send: _Sender) -> None:
        if not send.began:
            await respond_refusal(refusal)(scope, receive, send)

    def _note(self, scope: Scope, exchange: _Exchange) -> None:
        route = route_of(scope)
        seconds = perf_counter() - exchange.began
        self._metrics.requests.labels(_known_method(exchange.method), route, str(exchange.status)).inc()
        self._metrics.seconds.labels(route).observe(seconds)
        if exchange.refused:
            self._metrics.refused.labels(exchange.refused).inc()
        fields: dict[str, object] = {
            "id": exchange.id,
            "method": _known_method(exchange.method),
            "route": route,
            "status": exchange.status,
            "ms": round(seconds * 1e3, 2),
        }
        if exchange.holder:
            fields["key"] = exchange.holder
        if exchange.refused:
            fields["refused"] = exchange.refused
        log_request(fields)


class _Sender:
    """Adds the headers that every answer has, and notes its status."""

    __slots__ = ("_exchange", "_more", "_send", "began")

    def __init__(self, send: Send, exchange: _Exchange, more: list[tuple[bytes, bytes]]) -> None:
        self._send = send
        self._more = more
        self._exchange = exchange
        self.began = False

    async def __call__(self, message: Message) -> None:
        """Send one message."""
        if message["type"] == "http.response.start":
            self.began = True
            self._exchange.status = message["status"]
            own = list(message.get("headers", ()))
            names = {name.lower() for name, _ in own}
            extra = [(b"x-request-id", self._exchange.id.encode()), *HEADERS, *self._more]
            if b"cache-control" not in names:
                extra.append(_NO_STORE)
            message = {**message, "headers": [*own, *extra]}
        elif message["type"] == "http.response.body" and self._exchange.method == "HEAD":
            message = {**message, "body": b""}
        await self._send(message)


def route_of(scope: Scope) -> str:
    """Return the template of a request's address, so that neither log nor figures hold what was asked for."""
    path = getattr(scope.get("route"), "path", None)
    return path if isinstance(path, str) else "other"


def _known_method(method: str) -> str:
    return method if method in ("GET", "HEAD", "POST", "OPTIONS", "PUT", "PATCH", "DELETE") else "OTHER"


def _headers(scope: Scope) -> dict[str, str]:
    """Return the headers that are looked at; of one that is given twice, the first."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.decode("latin-1"), value.decode("latin-1"))
    return found


def _caller(scope: Scope, exchange: _Exchange) -> str:
    """Whose requests are counted together: those with one key, or from one address where there are no keys."""
    if exchange.holder:
        return f"key {exchange.holder}"
    client = scope.get("client")
    return client[0] if client else "unknown"
