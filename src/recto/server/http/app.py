"""Build the HTTP application: routes, web page, error handlers and middleware."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from recto import __version__
from recto.errors import ErrorKind, RectoError
from recto.server.http.contract import contract_router
from recto.server.http.errors import UNEXPECTED, framework_refusal, refusal_of
from recto.server.http.health import health_router
from recto.server.http.library import Library
from recto.server.http.metrics import Metrics
from recto.server.http.middleware import with_middleware
from recto.server.http.options import ServeOptions
from recto.server.http.routes import v1_router
from recto.settings import Settings

WEB = Path(__file__).parent.parent / "web"
_LOG = logging.getLogger("recto.server.http")
_START_SECONDS = 5.0
_ENGINES = (
    ErrorKind.CONNECTION,
    ErrorKind.CONFIGURATION,
    ErrorKind.STORAGE,
    ErrorKind.DAMAGED,
    ErrorKind.BUSY,
)


def make_app(
    settings: Settings,
    options: ServeOptions,
    notify: Callable[[str], None] = _LOG.info,
    *,
    close_at_exit: bool = False,
) -> ASGIApp:
    """Return the ASGI application; it opens its engines when the server starts."""
    metrics = Metrics()
    library = Library(settings, options, notify, metrics.batches.observe, close_at_exit=close_at_exit)
    app = FastAPI(
        title="Recto",
        version=__version__,
        summary="Find the right page of a textbook.",
        lifespan=lambda _: _running(library),
        docs_url=None,  # the page loads scripts from a CDN
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
    app.include_router(contract_router(library, metrics))
    app.include_router(v1_router(library, metrics))
    app.include_router(health_router(library, metrics))
    _add_page(app)
    _add_errors(app, metrics)
    app.openapi = lambda: _described(app, secured=bool(options.keys))  # type: ignore[method-assign]
    return with_middleware(app, options, metrics)


@asynccontextmanager
async def _running(library: Library) -> AsyncIterator[None]:
    """Open the engines before the first request; do not wait long for remote ones."""
    starting = asyncio.create_task(asyncio.to_thread(library.start))
    await asyncio.wait([starting], timeout=None if library.embedded else _START_SECONDS)
    starting.add_done_callback(_log_start_error)
    try:
        yield
    finally:
        await library.close()


def _log_start_error(starting: asyncio.Task[None]) -> None:
    error = None if starting.cancelled() else starting.exception()
    if isinstance(error, RectoError):
        _LOG.warning("not ready: %s %s", error, error.hint)
    elif error is not None:
        _LOG.error("not ready", exc_info=error)


def _add_page(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        index = WEB / "index.html"
        if not index.is_file():
            raise HTTPException(404)
        return FileResponse(index, headers={"cache-control": "no-cache"})

    if WEB.is_dir():
        app.mount("/static", _Static(directory=WEB), name="static")


class _Static(StaticFiles):
    """Static files of the web page; browsers revalidate them on each use."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        """Return a file."""
        response = super().file_response(*args, **kwargs)
        response.headers["cache-control"] = "no-cache"
        return response


def _add_errors(app: FastAPI, metrics: Metrics) -> None:
    async def known(_request: Request, error: Exception) -> Response:
        if not isinstance(error, RectoError):
            raise error
        if error.kind in _ENGINES:
            metrics.errors.labels(error.kind.value).inc()
            _LOG.warning("%s %s", error, error.hint)
        return refusal_of(error).response()

    async def framework(_request: Request, error: Exception) -> Response:
        if not isinstance(error, HTTPException):
            raise error
        return framework_refusal(error.status_code, error.detail, error.headers).response()

    async def unexpected(_request: Request, _error: Exception) -> Response:
        return UNEXPECTED.response()

    app.add_exception_handler(RectoError, known)
    app.add_exception_handler(HTTPException, framework)
    app.add_exception_handler(Exception, unexpected)


def _described(app: FastAPI, *, secured: bool) -> dict[str, Any]:
    """Return the OpenAPI description, without FastAPI's 422 and with the key if one is required."""
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        for operations in schema["paths"].values():
            for operation in operations.values():
                operation["responses"].pop("422", None)
        for name in ("HTTPValidationError", "ValidationError"):
            schema["components"]["schemas"].pop(name, None)
        if secured:
            schema["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            schema["security"] = [{"key": []}]
            schema["paths"]["/healthz"]["get"]["security"] = []
        app.openapi_schema = schema
    return app.openapi_schema
