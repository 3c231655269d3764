"""The routes for monitoring: `/healthz`, `/readyz`, `/metrics` and `/v1/health`."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from recto import __version__
from recto.errors import RectoError
from recto.evaluation import records
from recto.server.http import models
from recto.server.http.contract import validation
from recto.server.http.errors import unready
from recto.server.http.library import Library
from recto.server.http.metrics import CONTENT_TYPE, Metrics
from recto.server.http.routes import ERRORS, StrictRoute
from recto.server.http.views import respond, timestamp
from recto.types import IndexInfo

_UNAVAILABLE: dict[int | str, dict[str, Any]] = {code: ERRORS[code] for code in (400, 401, 500, 503)}


def health_router(library: Library, metrics: Metrics) -> APIRouter:
    """Return the monitoring routes."""
    router = APIRouter(route_class=StrictRoute, tags=["health"])

    @router.get(
        "/healthz",
        response_model=models.HealthzResponse,
        responses={400: ERRORS[400]},
        summary="Check that the process is running.",
    )
    async def healthz() -> Response:
        return respond({"status": "ok", "version": __version__})

    @router.get(
        "/readyz",
        response_model=models.ReadyzResponse,
        responses=_UNAVAILABLE,
        summary="Check that the server can answer searches.",
    )
    async def readyz() -> Response:
        try:
            info = await library.info(library.default)
        except RectoError as error:
            return unready(error).response()
        return respond({"status": "ready", "collection": library.default, "generation": info.generation})

    @router.get(
        "/metrics",
        response_class=Response,
        responses=_UNAVAILABLE | _TEXT,
        summary="Return metrics for Prometheus.",
    )
    async def prometheus() -> Response:
        found = [info async for info in _open_indexes(library)]
        return Response(metrics.render(lambda: found), media_type=CONTENT_TYPE)

    @router.get(
        "/v1/health",
        response_model=models.HealthResponseModel,
        responses=ERRORS,
        tags=["v1"],
        summary="Return the state of a collection.",
    )
    async def health(
        collection: Annotated[
            str | None, Query(description="A collection that the server serves; default: the first.")
        ] = None,
    ) -> Response:
        name = library.name(collection)
        validated = await validation(library, name)
        info = await library.stored_info(name) if validated["collection_exists"] else None
        coverage = await to_thread(records.read_coverage, library.settings.home, info) if info else None
        suite = await to_thread(records.read_suite, library.settings.home, info) if info else None
        return respond(
            {
                "validation": validated,
                "index": _index(info, name, library.outward(info.warnings)) if info else None,
                "coverage": coverage,
                "suite": suite,
                "latency": metrics.recent.to_dict(),
                "advice": list(_advice(name, info, coverage, suite)),
            }
        )

    return router


_TEXT: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/plain": {}}, "description": "Metrics as text."}
}


async def _open_indexes(library: Library) -> AsyncIterator[IndexInfo]:
    for name in library.names:
        try:
            yield await library.info(name)
        except RectoError:  # has no metrics; the error is counted elsewhere
            continue


def _index(info: IndexInfo, name: str, warnings: tuple[str, ...]) -> dict[str, Any]:
    made, measured = info.fingerprint, info.calibration
    return {
        "collection": name,
        "generation": info.generation,
        "chunks": info.chunks,
        "created_at": timestamp(info),
        "model": made.embedder.model if made else None,
        "noise_floor": measured.noise_floor if measured else None,
        "auroc": measured.auroc if measured else None,
        "recto_version": made.recto_version if made else None,
        "warnings": list(warnings),
    }


def _advice(
    name: str, info: IndexInfo | None, coverage: dict[str, Any] | None, suite: dict[str, Any] | None
) -> Iterator[str]:
    """Return the commands that fix what is missing or outdated."""
    if info is None:
        yield f"There is no index: run `recto index PATH --collection {name}`."
        return
    if info.noise_floor is None:
        yield f"The noise floor was never measured: run `recto calibrate --collection {name}`."
    if coverage is None:
        yield f"The coverage was never measured: run `recto coverage --collection {name}`."
    elif not coverage["current"]:
        yield f"The coverage is from an older index: run `recto coverage --collection {name}`."
    if suite is None:
        yield f"No evaluation suite was run: run `recto validate --collection {name}`."
    elif not suite["current"]:
        yield f"The suite ran on an older index: run `recto validate --collection {name}`."
