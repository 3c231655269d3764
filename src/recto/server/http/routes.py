"""The routes: document 002, searches and pages under `/v1`, and monitoring."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response

from recto import __version__
from recto.contracts.http import add_contract_routes, created_at, validation
from recto.errors import InvalidArgument, RectoError
from recto.evaluation import records
from recto.search.lexical import QueryWord
from recto.search.pages import BookPage
from recto.server.http import models
from recto.server.http.errors import RETRY_SECONDS, StrictRoute
from recto.server.http.monitoring import CONTENT_TYPE, Metrics, Readiness
from recto.server.http.service import SearchFound, SearchService
from recto.server.http.views import (
    add_html,
    modules_view,
    page_view,
    pages_view,
    related_view,
    respond,
    search_view,
)
from recto.settings import SAMPLE_COLLECTION
from recto.types import Filters, IndexInfo

_DESCRIPTIONS = {
    400: "The request is invalid; `error` says why.",
    401: "An API key is required, or the key was revoked or has expired.",
    403: "The key is not for this collection, path or page, or a page of another origin sent the request.",
    404: "There is no such collection, module or page.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    429: "Too many requests; Retry-After says when to retry.",
    500: "An internal error.",
    503: "An engine is unreachable, the collection is empty, or the server is busy; see Retry-After.",
}
_ERRORS: dict[int | str, dict[str, Any]] = {
    code: {"model": models.ErrorResponse, "description": text} for code, text in _DESCRIPTIONS.items()
}
_UNAVAILABLE: dict[int | str, dict[str, Any]] = {code: _ERRORS[code] for code in (400, 401, 403, 500, 503)}
_NOT_READY: dict[int | str, dict[str, Any]] = {
    400: _ERRORS[400],
    503: {"model": models.NotReadyResponse, "description": "The server cannot answer searches now."},
}
_METRICS_TEXT: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/plain": {}}, "description": "Metrics as text."}
}

Collection = Annotated[
    str | None, Query(description="A collection that the server serves; default: the first.")
]
Address = Annotated[
    str, Path(description="The URL of the page, percent-encoded.", examples=["local://docs/docs/intro"])
]


def contract_router(service: SearchService, metrics: Metrics) -> APIRouter:
    """Return the routes of document 002."""
    router = APIRouter(route_class=StrictRoute, tags=["contract"], responses=_ERRORS)
    add_contract_routes(router, service, respond, metrics.record_search)
    return router


def v1_router(service: SearchService, metrics: Metrics) -> APIRouter:
    """Return the routes under `/v1`."""
    router = APIRouter(prefix="/v1", route_class=StrictRoute, tags=["v1"], responses=_ERRORS)

    def record(found: SearchFound) -> SearchFound:
        response = found.response
        metrics.record_search(response.timings)
        if not response.warnings:
            return found
        return found._replace(response=replace(response, warnings=service.redact(response.warnings)))

    @router.post(
        "/search", response_model=models.SearchResponseModel, summary="Find the chunks that answer a query."
    )
    async def search(body: models.SearchRequest) -> Response:
        def convert(found: list[SearchFound]) -> Response:
            view = search_view(*record(found[0]))
            if body.html:
                add_html(view["results"])
            return respond(view)

        return await _find(service, body, [body.query], convert)

    @router.post(
        "/related",
        response_model=models.RelatedResponseModel,
        summary="Find chunks that are related to a selected text.",
    )
    async def related(body: models.RelatedRequest) -> Response:
        def convert(found: list[SearchFound]) -> Response:
            view = related_view(*record(found[0]))
            if body.html:
                add_html(view["results"])
            return respond(view)

        name, filters = service.name(body.collection), _filters(body)
        return await service.related(
            name, body.selection, body.question, body.top_k, filters, body.mode, convert
        )

    @router.post(
        "/batch", response_model=models.BatchResponseModel, summary="Answer several queries at once."
    )
    async def batch(body: models.BatchRequest) -> Response:
        def convert(found: list[SearchFound]) -> Response:
            return respond({"responses": [search_view(*record(one)) for one in found]})

        _check_batch(body)
        return await _find(service, body, body.queries, convert)

    @router.get(
        "/collections",
        response_model=models.CollectionsResponseModel,
        summary="List the collections that the server serves.",
    )
    async def collections() -> Response:
        names = service.visible
        return respond({"collections": [{"name": name, "default": name == names[0]} for name in names]})

    @router.get("/modules", response_model=models.ModulesResponseModel, summary="List the modules of a book.")
    async def modules(collection: Collection = None) -> Response:
        name = service.name(collection)
        return respond(modules_view(name, await service.outline(name)))

    @router.get("/pages", response_model=models.PagesResponseModel, summary="List the pages of a book.")
    async def pages(
        collection: Collection = None,
        module: Annotated[str | None, Query(description="Only the pages of this module.")] = None,
    ) -> Response:
        name = service.name(collection)
        outline = await service.outline(name)
        return respond(pages_view(name, outline if module is None else outline.of_module(module)))

    @router.get(
        "/pages/{address:path}",
        response_model=models.PageResponseModel,
        summary="Return the chunks of a page in reading order.",
    )
    async def page(
        address: Address,
        collection: Collection = None,
        query: Annotated[str, Query(description="Also return the words that match this query.")] = "",
        html: Annotated[bool, Query(description="Also return the text of each chunk as safe HTML.")] = False,
    ) -> Response:
        name = service.name(collection)

        def convert(found: tuple[BookPage, tuple[QueryWord, ...]]) -> Response:
            view = page_view(name, *found)
            if html:
                add_html(view["chunks"])
            return respond(view)

        return await service.in_thread(convert, await service.page(name, address, query))

    return router


def _check_batch(body: models.BatchRequest) -> None:
    if sum(map(len, body.queries)) > models.MAX_BATCH_CHARACTERS:
        raise InvalidArgument(
            f"The queries must have at most {models.MAX_BATCH_CHARACTERS} characters together",
            hint="Send them in several requests.",
        )
    if len(body.queries) * body.top_k > models.MAX_BATCH_RESULTS:
        raise InvalidArgument(
            f"The number of queries times top_k must be at most {models.MAX_BATCH_RESULTS}",
            hint="Send the queries in several requests, or reduce top_k.",
        )


async def _find(
    service: SearchService,
    body: models.SearchRequest | models.BatchRequest,
    queries: Sequence[str],
    convert: Callable[[list[SearchFound]], Response],
) -> Response:
    return await service.find(
        service.name(body.collection),
        queries,
        body.top_k,
        _filters(body),
        body.min_score,
        mode=body.mode,
        group_by=body.group_by,
        convert=convert,
    )


def _filters(body: models.SearchParameters) -> Filters:
    return Filters(tuple(body.module or ()), body.url)


def health_router(service: SearchService, metrics: Metrics) -> APIRouter:
    """Return the routes for monitoring: `/healthz`, `/readyz`, `/metrics` and `/v1/health`."""
    router = APIRouter(route_class=StrictRoute, tags=["health"])
    readiness = Readiness(lambda: service.info(service.default))

    @router.get(
        "/healthz",
        response_model=models.HealthzResponse,
        responses={400: _ERRORS[400]},
        summary="Check that the process is running.",
    )
    async def healthz() -> Response:
        return respond({"status": "ok", "version": __version__})

    @router.get(
        "/readyz",
        response_model=models.ReadyzResponse,
        responses=_NOT_READY,
        summary="Check that the server can answer searches.",
    )
    async def readyz() -> Response:
        # Needs no key, so it does not tell the reason: the log and /v1/health do.
        if await readiness.is_ready():
            return respond({"status": "ready"})
        response = respond({"status": "not ready"})
        response.status_code = 503
        response.headers["retry-after"] = str(RETRY_SECONDS)
        return response

    @router.get(
        "/metrics",
        response_class=Response,
        responses=_UNAVAILABLE | _METRICS_TEXT,
        summary="Return metrics for Prometheus.",
    )
    async def prometheus() -> Response:
        indexes = {name: await _open_info(service, name) for name in service.names}
        return Response(metrics.render(indexes), media_type=CONTENT_TYPE)

    @router.get(
        "/v1/health",
        response_model=models.HealthResponseModel,
        responses=_ERRORS,
        tags=["v1"],
        summary="Return the state of a collection.",
    )
    async def health(collection: Collection = None) -> Response:
        name = service.name(collection)
        validated = await validation(service, name)
        info = await service.stored_info(name) if validated["collection_exists"] else None
        coverage = await to_thread(records.read_coverage, service.settings.home, info) if info else None
        suite = await to_thread(records.read_suite, service.settings.home, info) if info else None
        problems = await service.problems(name) if info else ()
        return respond(
            {
                "validation": validated,
                "index": _index_view(info, name, service.redact(info.warnings)) if info else None,
                "problems": [asdict(problem) for problem in problems],
                "coverage": coverage,
                "suite": suite,
                "latency": metrics.recent.to_dict(),
                "advice": list(_advice(name, info, coverage, suite)),
            }
        )

    return router


async def _open_info(service: SearchService, name: str) -> IndexInfo | None:
    try:
        return await service.info(name)
    except RectoError:  # counted elsewhere
        return None


def _index_view(info: IndexInfo, name: str, warnings: tuple[str, ...]) -> dict[str, Any]:
    made, measured = info.fingerprint, info.calibration
    return {
        "collection": name,
        "generation": info.generation,
        "chunks": info.chunks,
        "created_at": created_at(info),
        "model": made.embedder.model if made else None,
        "noise_floor": measured.noise_floor if measured else None,
        "auroc": measured.auroc if measured else None,
        "recto_version": made.recto_version if made else None,
        "warnings": list(warnings),
    }


def _advice(
    name: str, info: IndexInfo | None, coverage: dict[str, Any] | None, suite: dict[str, Any] | None
) -> Iterator[str]:
    """Yield the commands that fix what is missing or outdated."""
    if info is None:
        yield f"There is no index: run `recto index PATH --collection {name}`."
        return
    if info.noise_floor is None:
        yield f"The noise floor was never measured: run `recto calibrate --collection {name}`."
    if coverage is None:
        yield f"The coverage was never measured: run `recto coverage --collection {name}`."
    elif not coverage["current"]:
        yield f"The coverage is from an older index: run `recto coverage --collection {name}`."
    if suite is None and info.collection == SAMPLE_COLLECTION:
        yield f"No evaluation suite was run: run `recto validate --collection {name}`."
    elif suite is None:
        new = f"recto suite new --out questions.json --collection {name}"
        run = f"recto validate --suite questions.json --collection {name}"
        yield f"No evaluation suite was run: draft one with `{new}`, then run `{run}`."
    elif not suite["current"]:
        yield f"The suite ran on an older index: run `{suite['command']}`."
