"""The routes under `/v1`: search, related chunks, batches, and the pages of the book."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from recto.server.http import models
from recto.server.http.errors import BadBody, loads, refusal_of, shortened
from recto.server.http.library import Library, SearchFound
from recto.server.http.metrics import Metrics
from recto.server.http.models import ErrorResponse
from recto.server.http.views import (
    modules_view,
    page_view,
    pages_view,
    related_view,
    respond,
    search_view,
)
from recto.types import Filters

_DESCRIBED = {
    400: "The request is invalid; `error` says why.",
    401: "An API key is required.",
    404: "There is no such collection, module or page.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    429: "Too many requests; Retry-After says when to retry.",
    500: "An internal error.",
    503: "An engine is unreachable, the collection is empty, or the server is busy; see Retry-After.",
}
ERRORS: dict[int | str, dict[str, Any]] = {
    code: {"model": ErrorResponse, "description": text} for code, text in _DESCRIBED.items()
}

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class _StrictRequest(Request):
    """A request with strict JSON parsing."""

    async def json(self) -> Any:
        """Parse the body; raise `BadBody` if it is not valid JSON."""
        return loads(await self.body())


class StrictRoute(APIRoute):
    """A route that parses bodies strictly and reports errors in our format."""

    def get_route_handler(self) -> Handler:
        """Return the handler."""
        handler = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handler(_StrictRequest(request.scope, request.receive))
            except RequestValidationError as error:
                return refusal_of(_validation_error(error.errors())).response()
            except Exception as error:
                # FastAPI wraps exceptions that are raised while it parses a body.
                if isinstance(error.__cause__, BadBody):
                    return refusal_of(error.__cause__).response()
                raise

        return answer


def _validation_error(errors: Sequence[Any]) -> BadBody:
    """Describe the first error in one sentence, without repeating the input."""
    first = errors[0]
    place = [str(part) for part in first["loc"][1:]]
    name = ".".join(shortened(part) for part in place) or "The body"
    kind, context = first["type"], first.get("ctx", {})
    words = {
        "missing": "is required",
        "extra_forbidden": "is not a known field",
        "int_type": "must be a whole number",
        "int_from_float": "must be a whole number",
        "float_type": "must be a number",
        "string_type": "must be text",
        "string_pattern_mismatch": "cannot be empty",
        "list_type": "must be a list",
        "model_attributes_type": "must be a JSON object, sent as application/json",
        "too_short": f"must have at least {context.get('min_length')} entries",
        "too_long": f"must have at most {context.get('max_length')} entries",
        "greater_than_equal": f"must be at least {context.get('ge')}",
        "less_than_equal": f"must be at most {context.get('le')}",
        "finite_number": "must be a finite number",
        "literal_error": f"must be {context.get('expected')}",
    }
    hint = (
        "/openapi.json lists the fields and their values."
        if kind in ("extra_forbidden", "literal_error")
        else ""
    )
    return BadBody(f"{name} {words.get(kind, 'is not valid')}", hint=hint)


Collection = Annotated[
    str | None, Query(description="A collection that the server serves; default: the first.")
]
Address = Annotated[
    str, Path(description="The URL of the page, percent-encoded.", examples=["local://docs/docs/intro"])
]


def v1_router(library: Library, metrics: Metrics) -> APIRouter:
    """Return the routes under `/v1`."""
    router = APIRouter(prefix="/v1", route_class=StrictRoute, tags=["v1"], responses=ERRORS)

    def record(found: SearchFound) -> SearchFound:
        response = found.response
        metrics.searched(response.timings)
        if not response.warnings:
            return found
        return found._replace(response=replace(response, warnings=library.outward(response.warnings)))

    @router.post(
        "/search", response_model=models.SearchResponseModel, summary="Find the chunks that answer a query."
    )
    async def search(body: models.SearchRequest) -> Response:
        (found,) = await _find(library, body, [body.query])
        return respond(search_view(*record(found)))

    @router.post(
        "/related",
        response_model=models.RelatedResponseModel,
        summary="Find chunks that are related to a selected text.",
    )
    async def related(body: models.RelatedRequest) -> Response:
        name = library.name(body.collection)
        found = await library.related(
            name, body.selection, body.question, body.top_k, _filters(body), body.mode
        )
        return respond(related_view(*record(found)))

    @router.post(
        "/batch", response_model=models.BatchResponseModel, summary="Answer several queries at once."
    )
    async def batch(body: models.BatchRequest) -> Response:
        answers = await _find(library, body, body.queries)
        return respond({"responses": [search_view(*record(answer)) for answer in answers]})

    @router.get(
        "/collections",
        response_model=models.CollectionsResponseModel,
        summary="List the collections that the server serves.",
    )
    async def collections() -> Response:
        return respond(
            {"collections": [{"name": name, "default": name == library.default} for name in library.names]}
        )

    @router.get("/modules", response_model=models.ModulesResponseModel, summary="List the modules of a book.")
    async def modules(collection: Collection = None) -> Response:
        name = library.name(collection)
        return respond(modules_view(name, await library.outline(name)))

    @router.get("/pages", response_model=models.PagesResponseModel, summary="List the pages of a book.")
    async def pages(
        collection: Collection = None,
        module: Annotated[str | None, Query(description="Only the pages of this module.")] = None,
    ) -> Response:
        name = library.name(collection)
        outline = await library.outline(name)
        return respond(pages_view(name, outline if module is None else outline.of_module(module)))

    @router.get(
        "/pages/{address:path}",
        response_model=models.PageResponseModel,
        summary="Return the chunks of a page in reading order.",
    )
    async def page(address: Address, collection: Collection = None) -> Response:
        name = library.name(collection)
        return respond(page_view(name, await library.page(name, address)))

    return router


async def _find(
    library: Library, body: models.SearchRequest | models.BatchRequest, queries: Sequence[str]
) -> list[SearchFound]:
    name, filters = library.name(body.collection), _filters(body)
    return await library.find(
        name, queries, body.top_k, filters, body.min_score, mode=body.mode, group_by=body.group_by
    )


def _filters(body: models.SearchParameters) -> Filters:
    return Filters(tuple(body.module or ()), body.url)
