"""Document 002: `POST /retrieve` and `GET /validate`, which the HTTP server mounts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Annotated, Any, Literal, Protocol

from fastapi import APIRouter, Response
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from recto._util import clamp
from recto.contracts import HTTP_COLLECTION
from recto.errors import CollectionMissing, ErrorKind, RectoError
from recto.types.index import IndexInfo
from recto.types.request import DEFAULT_TOP_K, MAX_QUERY, SearchRequest
from recto.types.search import Hit, SearchResponse

MAX_LIMIT = 10
_SAMPLE_QUERY = "What is this book about?"
_PREVIEW = 200  # characters
_EXAMPLE: dict[str, Any] = {"query": "What is ROS 2?", "limit": 5, "collection": HTTP_COLLECTION}


def to_whole(value: Any) -> Any:
    """Convert 5.0 to 5: JSON does not distinguish them."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Count = Annotated[int, BeforeValidator(to_whole)]
QueryText = Annotated[
    str,
    Field(
        description=f"The query: 1 to {MAX_QUERY} characters without surrounding white space.",
        examples=["What is ROS 2?"],
        json_schema_extra={"minLength": 1, "pattern": r"\S"},
    ),
]
CollectionName = Annotated[
    str | None, Field(description="A collection that the server serves; default: the first.")
]


class RequestModel(BaseModel):
    """Base of all request bodies: no type conversion, no unknown fields."""

    model_config = ConfigDict(strict=True, extra="forbid")


class ResponseModel(BaseModel):
    """Base of all responses: no unknown fields."""

    model_config = ConfigDict(extra="forbid")


class QueryRequest(RequestModel):
    """The body of `/retrieve`."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})
    query: QueryText
    limit: Annotated[Count, Field(ge=1, le=MAX_LIMIT, description="The maximum number of results.")] = (
        DEFAULT_TOP_K
    )
    collection: CollectionName = None
    mode: Annotated[
        Literal["dense", "hybrid"],
        Field(description="Rank by cosine similarity (dense), or by its weighted sum with BM25 (hybrid)."),
    ] = "dense"


class ContractPayload(ResponseModel):
    """A stored chunk."""

    url: str
    title: str
    content: str
    headings: list[str]
    chunk_index: int
    source_document: str
    metadata: dict[str, Any]


class SearchResult(ResponseModel):
    """A result of `/retrieve`; `content` is a preview, `payload` has the whole text."""

    score: Annotated[float, Field(ge=0, le=1)]
    payload: ContractPayload
    url: str
    title: str
    content: str


class QueryResponse(ResponseModel):
    """The response of `/retrieve`."""

    query: str
    results: list[SearchResult]
    total_results: int
    query_time_ms: float


class ValidationResponse(ResponseModel):
    """The response of `/validate`; `last_updated` is null if it is unknown."""

    collection_exists: Annotated[bool, Field(examples=[True])]
    vector_count: Annotated[int, Field(examples=[1250])]
    sample_search_works: Annotated[bool, Field(examples=[True])]
    last_updated: Annotated[str | None, Field(examples=["2025-12-17T10:30:00Z"])]


class Collections(Protocol):
    """What the routes need of the server: collections by name, and searches in them."""

    def name(self, asked: str | None) -> str:
        """Return the collection of a request; raise `CollectionMissing` if it is not served."""

    async def stored_info(self, name: str) -> IndexInfo:
        """Return the stored index, even if it cannot be searched."""

    async def search(self, name: str, request: SearchRequest) -> SearchResponse:
        """Search one collection."""


def add_contract_routes(
    router: APIRouter,
    collections: Collections,
    respond: Callable[[Mapping[str, Any]], Response],
    on_search: Callable[[SearchResponse], None],
) -> None:
    """Add the document's routes to a router, which decides how requests are parsed and errors are shown."""

    @router.post(
        "/retrieve",
        response_model=QueryResponse,
        summary="Execute a semantic search against the vector database.",
    )
    async def retrieve(body: QueryRequest) -> Response:
        began = perf_counter()
        name = collections.name(body.collection)
        response = await collections.search(name, SearchRequest(body.query, top_k=body.limit, mode=body.mode))
        on_search(response)
        data = {
            "query": response.query,
            "results": [_result(hit) for hit in response.hits],
            "total_results": len(response.hits),
            "query_time_ms": round((perf_counter() - began) * 1e3, 2),
        }
        return respond(data)

    @router.get(
        "/validate", response_model=ValidationResponse, summary="Validate the retrieval pipeline status."
    )
    async def validate(collection: str | None = None) -> Response:
        return respond(await validation(collections, collections.name(collection)))


async def validation(collections: Collections, name: str) -> dict[str, Any]:
    """Check that a collection exists and can be searched; raise if an engine is down."""
    try:
        info = await collections.stored_info(name)
    except CollectionMissing:
        info = None
    return {
        "collection_exists": info is not None,
        "vector_count": info.chunks if info else 0,
        "sample_search_works": info is not None and await _sample_search_works(collections, name),
        "last_updated": info.created_at if info else None,
    }


async def _sample_search_works(collections: Collections, name: str) -> bool:
    try:
        response = await collections.search(name, SearchRequest(_SAMPLE_QUERY, top_k=1, mode="dense"))
    except RectoError as error:
        if error.kind in (ErrorKind.CONNECTION, ErrorKind.BUSY):
            raise
        return False
    return bool(response.hits)


def _result(hit: Hit) -> dict[str, Any]:
    chunk = hit.chunk
    return {
        "score": round(clamp(hit.score), 6),
        "payload": {
            "url": chunk.page_url,
            "title": chunk.title,
            "content": chunk.text,
            "headings": list(chunk.headings),
            "chunk_index": chunk.chunk_index,
            "source_document": chunk.source,
            "metadata": {
                "id": chunk.id,
                "module": chunk.module,
                "anchor": chunk.anchor,
                "link": chunk.url,
                "total_chunks": chunk.total_chunks,
                "start_line": chunk.start_line,
                "end_line": chunk.end_line,
                "version": chunk.version,
                "locale": chunk.locale,
            },
        },
        "url": chunk.page_url,
        "title": chunk.title,
        "content": _preview(chunk.text),
    }


def _preview(text: str) -> str:
    """Return the start of a text in one line, cut between words."""
    line = " ".join(text.split())
    cut = line[:_PREVIEW].rpartition(" ")[0] or line[:_PREVIEW]
    return line if len(line) <= _PREVIEW else f"{cut}..."
