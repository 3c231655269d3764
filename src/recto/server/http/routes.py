"""The routes: document 002, searches and pages under `/v1`, and monitoring."""

from __future__ import annotations

import hashlib
from asyncio import gather, to_thread
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from operator import methodcaller
from typing import Annotated, Any, TypeVar
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.datastructures import QueryParams
from starlette.responses import StreamingResponse

from recto import __version__
from recto._util.text import shortened
from recto.contracts.http import add_contract_routes, validation
from recto.errors import InvalidArgument, PageMissing, RectoError
from recto.evaluation.report import read_report
from recto.search.context import context_to_dict
from recto.search.display import chunk_matches, pick, response_to_dict, words_to_match
from recto.search.pages import SUFFIX, OutlinePage, full_text, llms_txt, skill_md
from recto.search.query import DEFAULT_CONTEXT_TOP_K, check_query, make_request
from recto.search.query_log import Via
from recto.search.retriever import Retriever
from recto.server.http import models
from recto.server.http.answers import (
    EVENTS,
    NO_ANSWERS,
    NOT_FOR_ANSWERS,
    STREAM_HEADERS,
    EventStream,
    searched_text,
)
from recto.server.http.errors import RETRY_SECONDS, StrictRoute
from recto.server.http.monitoring import advice, index_view
from recto.server.http.service import MarkedResponse, SearchService
from recto.server.http.views import add_html
from recto.server.limits import Refused, current_request, respond, set_deadline
from recto.types.index import IndexInfo
from recto.types.request import MAX_QUERY
from recto.types.search import SearchResponse

Result = TypeVar("Result")
Responses = dict[int | str, dict[str, Any]]

_MARKDOWN = "text/markdown"
_CHARGED_ANSWER = 9  # further requests that an answer counts as for the rate limit
_CHARGED_TOKENS = 2_000  # of a context, which count as one more request: 32 000 take as long as 18 searches
_CHARGED_RESULTS = 15  # results that count as one more request: 100 of them take as long as seven searches
_CHARGED_PAGES = 10  # of llms-full.txt, which count as one request for the rate limit
_CACHED = {"cache-control": "private, no-cache", "vary": "Authorization, X-API-Key"}
"""Each browser keeps the response for itself, and asks before it uses it again."""

_DESCRIPTIONS: dict[int | str, str] = {
    400: "The request is invalid; `error` says why.",
    401: "An API key is required, or the key was revoked or has expired.",
    403: "The key is not for this collection, path or page, or a page of another origin sent the request.",
    404: "There is no such collection, module or page.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    429: "Too many requests; Retry-After says when to retry.",
    "4XX": "Another error of the request.",
    500: "An internal error.",
    503: "An engine is unreachable, the collection is empty, or the server is busy; see Retry-After.",
}
_ERRORS: Responses = {
    code: {"model": models.ErrorResponse, "description": text} for code, text in _DESCRIPTIONS.items()
}
_UNAVAILABLE: Responses = {code: _ERRORS[code] for code in (400, 401, 403, 500, 503)}
_REPORTED: dict[str, Any] = {
    "status_code": 204,
    "response_class": Response,
    "responses": {204: {"description": "It is logged if the service keeps a query log."}},
}
_NOT_READY = {"model": dict[str, str], "description": "The server cannot answer searches now."}


def _text_response(description: str, media_type: str = "text/plain") -> Responses:
    return {200: {"content": {media_type: {}}, "description": description}}


Collection = Annotated[
    str | None, Query(description="A collection that the server serves; default: the first.")
]
Address = Annotated[
    str, Path(description="The URL of the page, percent-encoded.", examples=["local://docs/docs/intro"])
]


async def _service(request: Request) -> SearchService:
    service: SearchService = request.app.state.service
    return service


Service = Annotated[SearchService, Depends(_service)]


def contract_router(service: SearchService) -> APIRouter:
    """Return the routes of document 002."""
    router = APIRouter(route_class=StrictRoute, tags=["contract"], responses=_ERRORS)
    add_contract_routes(router, service, respond, lambda response: service.record(response, "retrieve"))
    return router


v1_router = APIRouter(prefix="/v1", route_class=StrictRoute, tags=["v1"], responses=_ERRORS)
"""The routes under `/v1` that search, list and read books."""


@v1_router.post("/search", response_model=models.SearchResponseModel)
async def search(body: models.SearchBody, service: Service) -> Response:
    """Find the chunks that answer a query."""
    return (await _search(service, body))[0]


@v1_router.get(
    "/search",
    response_model=models.SearchResponseModel,
    responses={304: {"description": "The response to the request with this `ETag` is still valid."}},
)
async def get_search(
    given: Annotated[models.SearchQuery, Query()], request: Request, service: Service
) -> Response:
    """Find the chunks that answer a query; browsers can cache the response."""
    _check_repeated(request.query_params, may_repeat="module")
    body = given.body()
    name = service.name(body.collection)
    info = await service.info(name)
    tag = _entity_tag(info, body.model_copy(update={"collection": name}))
    if tag and _has_tag(request.headers.get("if-none-match", ""), tag):
        return Response(status_code=304, headers=_CACHED | {"etag": tag})
    response, searched = await _search(service, body)
    if tag and searched.generation == info.generation and not searched.warnings:
        response.headers.update(_CACHED | {"etag": tag})
    return response


async def _search(service: SearchService, body: models.SearchBody) -> tuple[Response, SearchResponse]:
    def convert(results: list[MarkedResponse]) -> tuple[Response, SearchResponse]:
        data = _to_dict(service, results[0], "search" if body.log else None, html=body.html)
        return respond(data), results[0][0]

    return await _find(service, body, [body.query], convert)


@v1_router.post("/related", response_model=models.RelatedResponseModel)
async def related(body: models.RelatedBody, service: Service) -> Response:
    """Find chunks that are related to a selected text."""

    def convert(results: list[MarkedResponse]) -> Response:
        # Selected text is the book's own; only a question says what a reader looks for.
        is_asked = body.log and body.question is not None and body.question.strip()
        return respond(_to_dict(service, results[0], "related" if is_asked else None, html=body.html))

    options = body.options()

    async def arelated(retriever: Retriever) -> list[SearchResponse]:
        return [await retriever.arelated(body.selection, body.question, **options)]

    current_request().charge(options["top_k"] // _CHARGED_RESULTS)
    return await service.find(
        service.name(body.collection),
        [body.selection],
        options["mode"],
        convert,
        lambda retriever: [retriever.related(body.selection, body.question, **options)],
        arelated,
    )


@v1_router.post("/context", response_model=models.ContextResponseModel)
async def context(body: models.ContextBody, service: Service) -> Response:
    """Return the sections that answer a question, as Markdown for a language model."""
    options = body.options()
    current_request().charge(options["top_k"] // _CHARGED_RESULTS + body.max_tokens // _CHARGED_TOKENS)
    found = await service.context(
        service.name(body.collection),
        make_request(body.query, **options),
        body.max_tokens,
        page=body.page,
        neighbors=body.neighbors,
    )
    service.record(found.response, "search" if body.log else None)
    shown = replace(found.response, warnings=service.redact(found.response.warnings))
    data = response_to_dict(shown, ()) | context_to_dict(found)
    data["message"] = " ".join(filter(None, (found.page_message, data["message"])))
    return respond(pick(data, models.ContextResponseModel.model_fields))


@v1_router.post("/batch", response_model=models.BatchResponseModel)
async def batch(body: models.BatchBody, service: Service) -> Response:
    """Answer several queries at once."""

    def convert(results: list[MarkedResponse]) -> Response:
        via: Via | None = "batch" if body.log else None
        return respond({"responses": [_to_dict(service, result, via) for result in results]})

    _check_batch(body)
    return await _find(service, body, body.queries, convert)


@v1_router.post("/click", **_REPORTED)
async def click(body: models.ClickRequest, service: Service) -> Response:
    """Report that a reader opened a result."""
    return _report(service, body, click=body.url, rank=body.rank)


@v1_router.post("/answer/feedback", **_REPORTED)
async def answer_feedback(body: models.AnswerFeedback, service: Service) -> Response:
    """Report whether an answer was helpful."""
    return _report(service, body, helpful=body.helpful)


def _report(
    service: SearchService, body: models.ClickRequest | models.AnswerFeedback, **report: Any
) -> Response:
    service.report(check_query(body.query), service.name(body.collection), **report)
    return Response(status_code=204)


@v1_router.post(
    "/answer",
    response_class=Response,
    responses={200: {"content": {EVENTS: {}}, "description": "Server-sent events."}},
)
async def answer(body: models.AnswerBody, request: Request, service: Service) -> Response:
    """Answer a question from the sections of a book, with the model of the service's owner."""
    name, query = service.name(body.collection), check_query(body.query)
    if (answers := service.answers) is None:
        raise Refused("answers", NO_ANSWERS)
    if not service.may_ask:
        raise Refused("scope", NOT_FOR_ANSWERS)
    answers.check_rate(current_request().caller)
    current_request().charge(_CHARGED_ANSWER)
    turns = [(check_query(turn.query), turn.answer) for turn in body.turns]
    text, prefer = searched_text(query, turns), body.options()["prefer"]
    search_request = make_request(text, top_k=DEFAULT_CONTEXT_TOP_K, prefer=prefer)
    context = await service.context(name, search_request, service.settings.answer.tokens)
    context = replace(context, response=replace(context.response, query=query))
    service.record(context.response, "answer" if body.log else None)
    await to_thread(answers.spend, context)
    set_deadline(request.scope, service.settings.answer.seconds + RETRY_SECONDS)
    return EventStream(answers.events(context, turns), headers=STREAM_HEADERS)


def _to_dict(
    service: SearchService, result: MarkedResponse, via: Via | None, *, html: bool = False
) -> dict[str, Any]:
    """Count a search, log it if `via` is given, and return its response."""
    response, words = result
    service.record(response, via)
    response = replace(response, warnings=service.redact(response.warnings))
    data = response_to_dict(response, words) | {"query_log": service.has_log, "answers": service.may_ask}
    if html:
        add_html(data["results"])
    return data


@v1_router.get("/collections", response_model=models.CollectionsResponseModel)
async def collections(service: Service) -> Response:
    """List the collections that the server serves."""
    names = service.visible
    infos = await gather(*(_open_info(service, name) for name in names))
    listed = []
    for name, info in zip(names, infos, strict=True):
        book = info.fingerprint if info else None
        title, logo, versions = (book.title, book.logo, book.versions) if book else ("", "", ())
        about = {"title": title or name, "logo": logo or None, "versions": [one for one, _ in versions]}
        listed.append({"name": name, "default": name == names[0], **about})
    return respond({"collections": listed})


@v1_router.get("/modules", response_model=models.ModulesResponseModel)
async def modules(service: Service, collection: Collection = None) -> Response:
    """List the modules of a book."""
    name = service.name(collection)
    outline = await service.outline(name)
    listed = [
        {"name": module, "title": outline.titles.get(module, module), "chunks": chunks, "pages": pages}
        for module, (chunks, pages) in outline.modules().items()
    ]
    return respond({"collection": name, "modules": listed})


@v1_router.get("/pages", response_model=models.PagesResponseModel)
async def pages(
    service: Service,
    collection: Collection = None,
    module: Annotated[str | None, Query(description="Only the pages of this module.")] = None,
) -> Response:
    """List the pages of a book."""
    name = service.name(collection)
    outline = await service.outline(name)
    shown = outline if module is None else outline.of_module(module)
    listed = [pick(asdict(page), models.PageModel.model_fields) for page in shown.pages]
    return respond({"collection": name, "pages": listed})


@v1_router.get(
    "/pages/{address:path}",
    response_model=models.PageResponseModel,
    responses={200: {"content": {_MARKDOWN: {}}, "description": "The chunks, or Markdown."}},
)
async def page(
    request: Request,
    service: Service,
    address: Address,
    collection: Collection = None,
    query: Annotated[str, Query(description="Also return the words that match this query.")] = "",
    html: Annotated[bool, Query(description="Also return the text of each chunk as safe HTML.")] = False,
) -> Response:
    """Return the chunks of a page in reading order, or the page as Markdown."""
    name = service.name(collection)

    def read(retriever: Retriever) -> Response:
        try:
            page = retriever.page(address)
        except PageMissing:  # the suffix is part of the URL's query, or follows a slash
            if not address.endswith(SUFFIX):
                raise
            page = retriever.page(address.removesuffix(SUFFIX))
        is_named = address.endswith(SUFFIX) and not page.url.endswith(SUFFIX)
        if is_named or _MARKDOWN in request.headers.get("accept", ""):
            return _text(f"{page.markdown()}\n", _MARKDOWN)
        asked = query[:MAX_QUERY].strip()
        words = words_to_match(asked, retriever.analyze(asked)) if asked else ()
        chunks = [chunk.to_dict() | {"matches": list(chunk_matches(chunk, words))} for chunk in page.chunks]
        if html:
            add_html(chunks)
        about = {"collection": name, "url": page.url, "title": page.title, "module": page.module}
        return respond(about | {"chunks": chunks})

    response = await service.run(name, read)
    response.headers["vary"] = "Accept"
    return response


llms_router = APIRouter(route_class=StrictRoute, tags=["llms"], responses=_ERRORS)
"""The routes with a whole book as text, for language models."""


@llms_router.get("/llms.txt", response_class=Response, responses=_text_response("Markdown."))
async def llms(service: Service, collection: Collection = None) -> Response:
    """List the pages of a book, with links to their Markdown."""
    name = service.name(collection)
    named = "" if collection is None else f"?{urlencode({'collection': collection})}"

    def link(page: OutlinePage) -> str:
        return f"v1/pages/{quote(page.url, safe='')}{SUFFIX}{named}"

    outline = await service.outline(name)
    return _text(llms_txt(outline.title or name, outline, link), "text/plain")


@llms_router.get("/skill.md", response_class=Response, responses=_text_response("Markdown.", _MARKDOWN))
async def skill(service: Service, collection: Collection = None) -> Response:
    """Return instructions for an agent that reads a book."""
    name = service.name(collection)
    named = "" if collection is None else urlencode({"collection": collection})
    outline = await service.outline(name)
    listed, search = f"llms.txt?{named}".rstrip("?"), f"v1/search?{named}&q=".replace("?&", "?")
    return _text(skill_md(outline.title or name, outline, listed, search), _MARKDOWN)


@llms_router.get("/llms-full.txt", response_class=Response, responses=_text_response("Markdown."))
async def llms_full(service: Service, collection: Collection = None) -> Response:
    """Return all pages of a book as Markdown, in reading order."""
    name = service.name(collection)
    outline = await service.outline(name)
    current_request().charge(len(outline.pages) // _CHARGED_PAGES)

    async def pages() -> AsyncIterator[bytes]:
        for page in outline.pages:
            with suppress(PageMissing):  # a new index was published
                content = await service.run(name, methodcaller("page", page.url))
                yield full_text(content).encode("utf-8", "replace")

    return StreamingResponse(pages(), media_type="text/plain; charset=utf-8")


def _text(text: str, media_type: str) -> Response:
    return Response(text.encode("utf-8", "replace"), media_type=f"{media_type}; charset=utf-8")


def _check_repeated(parameters: QueryParams, may_repeat: str) -> None:
    for name in parameters:
        if name != may_repeat and len(parameters.getlist(name)) > 1:
            raise InvalidArgument(f"{shortened(name)} is given twice", hint="Give every parameter once.")


def _entity_tag(info: IndexInfo, body: models.SearchBody) -> str:
    """Return a tag for the responses to a request, or an empty one if changes of the index go unnoticed.

    It is weak, because the timings of equal responses differ.
    """
    if info.fingerprint is None:  # another pipeline writes the collection
        return ""
    state = (__version__, asdict(replace(info, warnings=())), body.model_dump())
    return f'W/"{hashlib.sha256(repr(state).encode("utf-8", "replace")).hexdigest()[:32]}"'


def _has_tag(header: str, tag: str) -> bool:
    """Return whether an If-None-Match header has a tag; caches may have made it strong or weak."""
    tags = {one.strip().removeprefix("W/") for one in header.split(",")}
    return tag.removeprefix("W/") in tags or "*" in tags


def _check_batch(body: models.BatchBody) -> None:
    if sum(map(len, body.queries)) > models.MAX_BATCH_CHARACTERS:
        raise InvalidArgument(
            f"The queries must have at most {models.MAX_BATCH_CHARACTERS} characters together",
            hint="Send them in several requests.",
        )
    if len(body.queries) * body.options()["top_k"] > models.MAX_BATCH_RESULTS:
        raise InvalidArgument(
            f"The number of queries times top_k must be at most {models.MAX_BATCH_RESULTS}",
            hint="Send the queries in several requests, or reduce top_k.",
        )


async def _find(
    service: SearchService,
    body: models.SearchBody | models.BatchBody,
    queries: Sequence[str],
    convert: Callable[[list[MarkedResponse]], Result],
) -> Result:
    options = body.options()
    current_request().charge(len(queries) * options["top_k"] // _CHARGED_RESULTS)
    return await service.find(
        service.name(body.collection),
        queries,
        options["mode"],
        convert,
        lambda retriever: retriever.search_batch(queries, **options),
        lambda retriever: retriever.asearch_batch(queries, **options),
    )


health_router = APIRouter(route_class=StrictRoute, tags=["health"])
"""The routes for monitoring."""


@health_router.get("/healthz", response_model=dict[str, str], responses={400: _ERRORS[400]})
async def healthz() -> Response:
    """Check that the process is running."""
    return respond({"status": "ok", "version": __version__})


@health_router.get("/readyz", response_model=dict[str, str], responses={400: _ERRORS[400], 503: _NOT_READY})
async def readyz(service: Service) -> Response:
    """Check that the server can answer searches."""
    # Needs no key, so it does not tell the reason: the log and /v1/health do.
    if await service.readiness.is_ready():
        return respond({"status": "ready"})
    return respond({"status": "not ready"}, 503, {"retry-after": str(RETRY_SECONDS)})


@health_router.get(
    "/metrics", response_class=Response, responses=_UNAVAILABLE | _text_response("Metrics as text.")
)
async def prometheus(service: Service) -> Response:
    """Return metrics for Prometheus."""
    indexes = {name: await _open_info(service, name) for name in service.names}
    return Response(service.metrics.render(indexes), media_type=CONTENT_TYPE_LATEST)


@health_router.get("/v1/health", response_model=models.HealthResponseModel, responses=_ERRORS, tags=["v1"])
async def health(service: Service, collection: Collection = None) -> Response:
    """Return the state of a collection."""
    name = service.name(collection)
    validated = await validation(service, name)
    info = await service.stored_info(name) if validated["collection_exists"] else None
    coverage, suite, gaps = [
        await to_thread(read_report, service.settings.home, info, kind) if info else None
        for kind in ("coverage", "suite", "gaps")
    ]
    problems = await service.problems(name) if info else ()
    return respond(
        {
            "validation": validated,
            "index": index_view(info, name, service.redact(info.warnings)) if info else None,
            "problems": [problem._asdict() for problem in problems],
            "coverage": coverage,
            "suite": suite,
            "gaps": gaps,
            "latency": service.metrics.latency(),
            "advice": list(advice(name, info, coverage, suite)),
        }
    )


async def _open_info(service: SearchService, name: str) -> IndexInfo | None:
    try:
        return await service.info(name)
    except RectoError:  # counted elsewhere
        return None
