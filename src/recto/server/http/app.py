"""Build the HTTP application: routes, web page, error handlers and middleware."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from recto import __version__
from recto.errors import RectoError
from recto.plugins import Notify
from recto.server.auth import ApiKeys
from recto.server.http import ServeOptions
from recto.server.http.errors import ENGINE_MESSAGES, UNEXPECTED, framework_refusal, refusal_of
from recto.server.http.monitoring import LOG, Metrics, log_not_ready
from recto.server.http.routes import contract_router, health_router, llms_router, v1_router
from recto.server.http.service import SearchService
from recto.server.limits import KEY, REFUSAL_REASON, LimitsMiddleware, RateLimiter
from recto.server.listening import FIELDS
from recto.server.middleware import HostMiddleware, KeyMiddleware, KeyOriginsMiddleware, RefusalMiddleware
from recto.settings import Settings

WEB = Path(__file__).parent.parent / "web"
_START_SECONDS = 5.0
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_PROBES = ("/healthz", "/readyz")
_PUBLIC_FILES = ("/widget.js", "/client.js", "/client.d.ts")
_STATIC = "/static/"
_OPEN_PATHS = (*_PROBES, *_PUBLIC_FILES, "/", "/docs", "/favicon.ico")
_MONITORING = (*_PROBES, "/metrics")
_SEARCHABLE = (
    "/v1/search", "/v1/related", "/v1/context", "/v1/click", "/v1/answer", "/v1/answer/feedback",
    "/v1/collections", "/v1/modules", "/v1/pages", "/llms.txt", "/llms-full.txt", "/skill.md",
)  # fmt: skip
"""What a search key may use: what the page of a reader needs, and nothing else."""
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
        "cache-control": "no-store",
    }.items()
)
"""What every response has, unless it has a header of that name."""
_PUBLIC_HEADERS = {"access-control-allow-origin": "*", "cross-origin-resource-policy": "cross-origin"}


def make_app(
    settings: Settings, options: ServeOptions, notify: Notify = LOG.info, *, close_at_exit: bool = False
) -> FastAPI:
    """Return the application; it opens its engines when the server starts."""
    metrics = Metrics()
    keys = ApiKeys(options.keys, settings.key_home, was_found=options.has_stored_keys)
    service = SearchService(settings, options, notify, metrics, close_at_exit=close_at_exit)
    app = FastAPI(
        title="Recto",
        version=__version__,
        summary="Find the right page of a textbook.",
        lifespan=lambda _: _running(service),
        middleware=middleware(options, metrics, keys),
        docs_url=None,  # FastAPI's page loads scripts from a CDN; ours is docs.html
        redoc_url=None,
        redirect_slashes=False,
        telemetry={
            "tracing": False,
            "metrics": False,
            "logs": False,
            "operation_spans": False,
            "auto_configure": False,
        },
    )
    app.state.service = service
    for router in (contract_router(service), v1_router, llms_router, health_router):
        app.include_router(router)
    _add_files(app)
    _add_error_handlers(app, metrics)
    app.openapi = lambda: _described(app, secured=bool(keys))  # type: ignore[method-assign]
    return app


@asynccontextmanager
async def _running(service: SearchService) -> AsyncIterator[None]:
    """Open the engines before the first request; do not wait long for remote ones."""
    starting = asyncio.create_task(asyncio.to_thread(service.start))
    await asyncio.wait([starting], timeout=None if service.embedded else _START_SECONDS)
    starting.add_done_callback(log_not_ready)
    try:
        yield
    finally:
        await service.close()


def _add_files(app: FastAPI) -> None:
    """Add the web UI, the page about the API, and the files that pages of other sites load."""
    files = _Files(directory=WEB)
    pages = {"/": "index.html", "/docs": "docs.html"}

    async def file(request: Request) -> Response:
        path = request.scope["path"]
        return await files.get_response(pages.get(path, path.removeprefix("/")), request.scope)

    for path in (*pages, *_PUBLIC_FILES):
        app.get(path, include_in_schema=False)(file)
    app.mount("/static", files, name="static")


class _Files(StaticFiles):
    """Files for browsers, which revalidate them on each use."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return a file, or a 304 if the browser has it."""
        response = await super().get_response(path, scope)
        response.headers["cache-control"] = "no-cache"
        if path.endswith(".ts"):
            response.headers["content-type"] = "application/typescript; charset=utf-8"
        address = scope["path"]
        if address in (*_PUBLIC_FILES, "/static/client.js") or address.startswith("/static/widget/"):
            response.headers.update(_PUBLIC_HEADERS)  # for pages of all sites
        return response


def _add_error_handlers(app: FastAPI, metrics: Metrics) -> None:
    @app.exception_handler(RectoError)
    async def recto_error(_request: Request, error: RectoError) -> Response:
        if error.kind in ENGINE_MESSAGES:
            metrics.errors.labels(error.kind.value).inc()
            LOG.warning("%s %s", error, error.hint)
        return refusal_of(error).response()

    @app.exception_handler(HTTPException)
    async def framework_error(_request: Request, error: HTTPException) -> Response:
        return framework_refusal(error).response()


def _described(app: FastAPI, *, secured: bool) -> dict[str, Any]:
    """Return the OpenAPI description, with the key if one is required."""
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        for operation in (operation for item in schema["paths"].values() for operation in item.values()):
            if operation.get("description") == operation["summary"]:
                del operation["description"]
        if secured:
            schema["components"]["securitySchemes"] = {
                "key": {"type": "http", "scheme": "bearer"},
                "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            }
            schema["security"] = [{"key": []}, {"header": []}]
            for path in _PROBES:
                schema["paths"][path]["get"]["security"] = []
        app.openapi_schema = schema
    return app.openapi_schema


def middleware(options: ServeOptions, metrics: Metrics, keys: ApiKeys) -> list[Middleware]:
    """Return the middleware, the outermost first."""
    return [
        Middleware(RequestMiddleware, metrics),
        Middleware(KeyOriginsMiddleware, options.origins, keys),
        Middleware(RefusalMiddleware),
        # Load balancers and the kubelet send the address of the machine as Host, and probes tell nothing
        # about the book. On loopback, probes use a local name, and web pages must not find the service.
        Middleware(
            HostMiddleware, options.accepted_hosts, lambda path: options.is_public and path in _PROBES
        ),
        Middleware(KeyMiddleware, keys, options.origins, _is_open, _is_searchable),
        Middleware(
            LimitsMiddleware,
            RateLimiter(options.rate),
            options.concurrency,
            options.timeout,
            lambda path: not _is_open(path) and path not in _MONITORING,
        ),
    ]


def _is_open(path: str) -> bool:
    """Return whether a path needs no key."""
    return path in _OPEN_PATHS or path.startswith(_STATIC)


def _is_searchable(path: str) -> bool:
    """Return whether a search key may use a path."""
    return path in _SEARCHABLE or path.startswith("/v1/pages/")


@dataclass
class RequestMiddleware:
    """The outermost middleware: adds ids and security headers, logs each request, catches every exception."""

    app: ASGIApp
    metrics: Metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        sent_id, method, status = Headers(scope=scope).get("x-request-id", ""), scope["method"], 0
        request_id = sent_id if _REQUEST_ID.fullmatch(sent_id) else os.urandom(8).hex()
        inner = {
            **scope,
            "method": "GET" if method == "HEAD" else method,  # the body is dropped below
            # Always send whole files: Starlette's error for a wrong range does not have our error body.
            "headers": [pair for pair in scope["headers"] if pair[0] != b"range"],
        }

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = Headers(raw=list(message.get("headers", ())))
                more = (pair for pair in _HEADERS if pair[0].decode() not in headers)
                request_header = (b"x-request-id", request_id.encode())
                message = {**message, "headers": [*headers.raw, request_header, *more]}
            elif message["type"] == "http.response.body" and method == "HEAD":
                message = {**message, "body": b""}
            await send(message)

        began = perf_counter()
        self.metrics.running.inc()
        try:
            await self.app(inner, receive, send_with_headers)
        except Exception:  # noqa: BLE001 - a client sees only that there was an error, the log shows where
            LOG.exception("unexpected error", extra={FIELDS: {"id": request_id}})
            if not status:
                await UNEXPECTED.response()(inner, receive, send_with_headers)
        finally:
            self.metrics.running.dec()
            self._record(inner, request_id, method, status, perf_counter() - began)

    def _record(self, scope: Scope, request_id: str, method: str, status: int, seconds: float) -> None:
        # The path's template, so that log and metrics hold nothing of what was asked for.
        route = getattr(scope.get("route"), "path", None) or "other"
        method = method if method in _METHODS else "OTHER"
        self.metrics.requests.labels(method, route, str(status)).inc()
        self.metrics.seconds.labels(route).observe(seconds)
        fields: dict[str, object] = {"id": request_id, "method": method, "route": route, "status": status}
        fields["ms"] = round(seconds * 1e3, 2)
        if key := scope.get(KEY):
            fields["key"] = int(key.name) if key.name.isdecimal() else key.name  # a position in RECTO_API_KEY
        if reason := scope.get(REFUSAL_REASON):
            self.metrics.refused.labels(reason).inc()
            fields["refused"] = reason
        LOG.info("request", extra={FIELDS: fields})
