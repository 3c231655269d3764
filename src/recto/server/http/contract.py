"""The contract's routes: `POST /retrieve` and `GET /validate`."""

from __future__ import annotations

from time import perf_counter
from typing import Any

from fastapi import APIRouter, Response

from recto.errors import CollectionEmpty, CollectionMissing, RectoError
from recto.server.http.errors import STATUSES
from recto.server.http.library import Library
from recto.server.http.metrics import Metrics
from recto.server.http.models import QueryRequest, QueryResponse, ValidationResponse
from recto.server.http.routes import ERRORS, StrictRoute
from recto.server.http.views import contract_view, respond, timestamp

_SAMPLE = "What is this book about?"


def contract_router(library: Library, metrics: Metrics) -> APIRouter:
    """Return the contract's routes."""
    router = APIRouter(route_class=StrictRoute, tags=["contract"], responses=ERRORS)

    @router.post(
        "/retrieve",
        response_model=QueryResponse,
        summary="Execute a semantic search against the vector database.",
    )
    async def retrieve(body: QueryRequest) -> Response:
        began = perf_counter()
        response = await library.search(library.name(body.collection), body.query, body.limit, body.mode)
        metrics.searched(response.timings)
        return respond(contract_view(response, (perf_counter() - began) * 1e3))

    @router.get(
        "/validate", response_model=ValidationResponse, summary="Validate the retrieval pipeline status."
    )
    async def validate(collection: str | None = None) -> Response:
        return respond(await validation(library, library.name(collection)))

    return router


async def validation(library: Library, name: str) -> dict[str, Any]:
    """Check that a collection exists and can be searched; raise if an engine is down."""
    try:
        info = await library.stored_info(name)
    except CollectionMissing:
        return {
            "collection_exists": False,
            "vector_count": 0,
            "sample_search_works": False,
            "last_updated": None,
        }
    return {
        "collection_exists": True,
        "vector_count": info.chunks,
        "sample_search_works": await _sample_search_works(library, name),
        "last_updated": timestamp(info),
    }


async def _sample_search_works(library: Library, name: str) -> bool:
    try:
        response = await library.search(name, _SAMPLE, 1, "dense")
    except CollectionEmpty:
        return False
    except RectoError as error:
        if STATUSES[error.kind] == 503:
            raise
        return False
    return bool(response.hits)
