"""Middleware of the HTTP API: request ids, security headers, metrics, log, CORS, hosts, keys and limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from recto.server.auth import ApiKeys, is_loopback
from recto.server.http.errors import UNEXPECTED
from recto.server.http.logs import LOG, log_request, request_id
from recto.server.http.metrics import Metrics
from recto.server.http.options import ServeOptions
from recto.server.limits import (
    AdmissionLimits,
    RateLimiter,
    Refusal,
    Refused,
    check_length,
    request_headers,
)

_OPEN_PATHS = ("/healthz", "/", "/favicon.ico")
_STATIC = "/static/"
_MONITORING = ("/healthz", "/readyz", "/metrics")
_METHODS = ("GET", "HEAD", "POST", "OPTIONS", "PUT", "PATCH", "DELETE")

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_HEADERS = tuple(
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
_NO_STORE = (b"cache-control", b"no-store")
_WRONG_HOST = Refusal(
    400,
    "This service does not accept that host name",
    "Use the host name that it listens on, or add yours with --allowed-host.",
)


def with_middleware(app: ASGIApp, options: ServeOptions, metrics: Metrics) -> ASGIApp:
    """Wrap the application in all middleware."""
    checked: ASGIApp = AdmissionMiddleware(app, options)
    if options.origins:
        checked = _Cors(
            checked,
            allow_origins=options.origins,
            allow_methods=("GET", "POST"),
            allow_headers=("authorization", "content-type", "x-request-id"),
            allow_private_network=True,
            expose_headers=("x-request-id", "retry-after"),
        )
    return RequestMiddleware(checked, metrics)


@dataclass(slots=True)
class _Exchange:
    """What the log and the metrics record of one request."""

    id: str
    method: str
    began: float = field(default_factory=perf_counter)
    status: int = 0
    key: int = 0
    refused: str = ""


class RequestMiddleware:
    """The outermost middleware: adds ids and security headers, logs each request, catches every exception."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        exchange = _Exchange(request_id(request_headers(scope).get("x-request-id", "")), scope["method"])
        scope = {
            **scope,
            "method": "GET" if scope["method"] == "HEAD" else scope["method"],  # the body is dropped below
            # Always send whole files: Starlette's error for a wrong range does not have our error body.
            "headers": [pair for pair in scope["headers"] if pair[0] != b"range"],
            "recto.exchange": exchange,
        }
        sender = _Sender(send, exchange)
        self._metrics.running.inc()
        try:
            await self._app(scope, receive, sender)
        except Exception:  # noqa: BLE001 - a client sees only that there was an error, the log shows where
            LOG.exception("unexpected error", extra={"recto_fields": {"id": exchange.id}})
            if not sender.started:
                await UNEXPECTED.response()(scope, receive, sender)
        finally:
            self._metrics.running.dec()
            self._record(scope, exchange)

    def _record(self, scope: Scope, exchange: _Exchange) -> None:
        route = _route_template(scope)
        seconds = perf_counter() - exchange.began
        method = exchange.method if exchange.method in _METHODS else "OTHER"
        self._metrics.requests.labels(method, route, str(exchange.status)).inc()
        self._metrics.seconds.labels(route).observe(seconds)
        fields: dict[str, object] = {
            "id": exchange.id,
            "method": method,
            "route": route,
            "status": exchange.status,
            "ms": round(seconds * 1e3, 2),
        }
        if exchange.key:
            fields["key"] = exchange.key
        if exchange.refused:
            self._metrics.refused.labels(exchange.refused).inc()
            fields["refused"] = exchange.refused
        log_request(fields)


class AdmissionMiddleware:
    """Checks the host, the key and the limits."""

    def __init__(self, app: ASGIApp, options: ServeOptions) -> None:
        self._app = app
        self._options = options
        self._keys = ApiKeys(options.keys)
        self._limits = AdmissionLimits(options.concurrency, options.timeout)
        self._rate = RateLimiter(options.rate)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange: _Exchange = scope["recto.exchange"]
        try:
            await self._admit(scope, receive, send, exchange)
        except Refused as refused:
            exchange.refused = refused.reason
            await refused.refusal.response()(scope, receive, send)

    async def _admit(self, scope: Scope, receive: Receive, send: Send, exchange: _Exchange) -> None:
        headers, path = request_headers(scope), scope["path"]
        if not is_allowed_host(headers.get("host", ""), self._options):
            raise Refused("host", _WRONG_HOST)
        is_open = path in _OPEN_PATHS or path.startswith(_STATIC)
        if self._keys and not is_open:
            exchange.key = self._keys.authenticate(headers)
        check_length(headers)
        if is_open or path in _MONITORING:
            await self._limits.run(self._app, scope, receive, send)
            return
        self._rate.check(_caller(scope, exchange))
        await self._limits.admit(self._app, scope, receive, send)


class _Cors(CORSMiddleware):
    """Starlette's CORS middleware, with our error body."""

    def preflight_response(self, request_headers: Headers) -> Response:
        """Answer a preflight request."""
        response = super().preflight_response(request_headers)
        if response.status_code == 200:
            return response
        return Refusal(400, bytes(response.body).decode(), headers=(("Vary", "Origin"),)).response()


class _Sender:
    """Adds the headers that every response has, and records its status."""

    __slots__ = ("_exchange", "_send", "started")

    def __init__(self, send: Send, exchange: _Exchange) -> None:
        self._send = send
        self._exchange = exchange
        self.started = False

    async def __call__(self, message: Message) -> None:
        """Send one message."""
        if message["type"] == "http.response.start":
            self.started = True
            self._exchange.status = message["status"]
            own = list(message.get("headers", ()))
            extra = [(b"x-request-id", self._exchange.id.encode()), *_HEADERS]
            if all(name.lower() != b"cache-control" for name, _ in own):
                extra.append(_NO_STORE)
            message = {**message, "headers": [*own, *extra]}
        elif message["type"] == "http.response.body" and self._exchange.method == "HEAD":
            message = {**message, "body": b""}
        await self._send(message)


def is_allowed_host(header: str, options: ServeOptions) -> bool:
    """Check the Host header, so that no web page reaches a local service through DNS rebinding."""
    if options.is_public and not options.hosts:
        return True
    host = header.strip().lower()
    name = host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]
    own = options.host.lower().strip("[]")
    return name in options.hosts or (not options.is_public and (is_loopback(name) or name == own))


def _route_template(scope: Scope) -> str:
    """Return the template of a request's path, so that log and metrics hold nothing of what was asked for."""
    path = getattr(scope.get("route"), "path", None)
    return path if isinstance(path, str) else "other"


def _caller(scope: Scope, exchange: _Exchange) -> str:
    """Return whose requests are counted together: by key, or by address if there are no keys."""
    if exchange.key:
        return f"key {exchange.key}"
    client = scope.get("client")
    return client[0] if client else "unknown"
