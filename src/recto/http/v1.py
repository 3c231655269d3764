"""Version 1: searches with filters, selected text, several questions at once, and the book itself, page by page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from recto.http import models
from recto.http.library import Found, Library
from recto.http.metrics import Metrics
from recto.http.routes import ERRORS, StrictRoute
from recto.http.views import modules_view, page_view, pages_view, related_view, respond, search_view
from recto.types import Filters

Collection = Annotated[str | None, Query(description="One of the served collections; default: the first.")]
Address = Annotated[str, Path(description="The page's address, percent-encoded.", examples=["local://docs/docs/intro"])]


def v1_router(library: Library, metrics: Metrics) -> APIRouter:
    """Make the addresses under `/v1`."""
    router = APIRouter(prefix="/v1", route_class=StrictRoute, tags=["v1"], responses=ERRORS)

    def noted(found: Found) -> Found:
        response = found.response
        metrics.searched(response.timings)
        if not response.warnings:
            return found
        return found._replace(response=replace(response, warnings=library.outward(response.warnings)))

    @router.post("/search", response_model=models.SearchAnswer, summary="Find the chunks that answer a query.")
    async def search(body: models.SearchRequest) -> Response:
        (found,) = await _find(library, body, [body.query])
        return respond(search_view(*noted(found)))

    @router.post("/related", response_model=models.RelatedAnswer, summary="Find what goes with a selected text.")
    async def related(body: models.RelatedRequest) -> Response:
        name = library.name(body.collection)
        found = await library.related(name, body.selection, body.question, body.limit, _filters(body), body.mode)
        return respond(related_view(*noted(found)))

    @router.post("/batch", response_model=models.BatchAnswer, summary="Answer several queries at once.")
    async def batch(body: models.BatchRequest) -> Response:
        answers = await _find(library, body, body.queries)
        return respond({"responses": [search_view(*noted(answer)) for answer in answers]})

    @router.get("/collections", response_model=models.CollectionsAnswer, summary="List the collections that are served.")
    async def collections() -> Response:
        return respond({"collections": [{"name": name, "default": name == library.default} for name in library.names]})

    @router.get("/modules", response_model=models.ModulesAnswer, summary="List the modules of a book.")
    async def modules(collection: Collection = None) -> Response:
        name = library.name(collection)
        return respond(modules_view(name, await library.outline(name)))

    @router.get("/pages", response_model=models.PagesAnswer, summary="List the pages of a book.")
    async def pages(
        collection: Collection = None, module: Annotated[str | None, Query(description="Only this module's.")] = None
    ) -> Response:
        name = library.name(collection)
        outline = await library.outline(name)
        return respond(pages_view(name, outline if module is None else outline.of_module(module)))

    @router.get("/pages/{address:path}", response_model=models.PageAnswer, summary="Read a page's passages in order.")
    async def page(address: Address, collection: Collection = None) -> Response:
        name = library.name(collection)
        return respond(page_view(name, await library.page(name, address)))

    return router


async def _find(library: Library, body: models.SearchRequest | models.BatchRequest, queries: Sequence[str]) -> list[Found]:
    name, filters = library.name(body.collection), _filters(body)
    return await library.find(name, queries, body.limit, filters, body.min_score, mode=body.mode, group_by=body.group_by)


def _filters(body: models.Narrowed) -> Filters:
    return Filters(tuple(body.modules or ()), body.url)
