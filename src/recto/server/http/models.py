"""Request and response models of `/v1`: requests are validated, both are described in OpenAPI.

`SearchResponse.to_dict` and the routes make the responses; tests validate these against the description.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, cast

from pydantic import ConfigDict, Field, create_model

from recto.contracts.http import CollectionName, Count, QueryText, RequestModel, ValidationResponse
from recto.search.context import MAX_NEIGHBORS
from recto.search.query import DEFAULT_CONTEXT_TOKENS, DEFAULT_CONTEXT_TOP_K
from recto.server.http.answers import MAX_TURN_ANSWER, MAX_TURNS
from recto.server.schemas import (
    McpSection,
    Model,
    ResponseFields,
    ResponseModel,
    option_types,
    with_hit_fields,
)
from recto.types.request import MAX_TOKENS, MAX_TOP_K, MIN_TOKENS, Operation, SearchOptions

MAX_QUERIES = 32
MAX_BATCH_CHARACTERS = 16_000
MAX_BATCH_RESULTS = 1_000


def _example(**fields: Any) -> ConfigDict:
    """Return the configuration of a model with an example, for the description of the API."""
    return ConfigDict(json_schema_extra={"examples": [fields]})


WithHtml = Annotated[
    bool, Field(description="Also return the text of each chunk as HTML that is safe to show in a page.")
]
WithLog = Annotated[
    bool,
    Field(
        description="False: leave this query out of the query log, if the service keeps one. "
        "Send it while a reader is still typing, and with a query that is logged already."
    ),
]
Record = dict[str, Any] | None


class SearchParameters(RequestModel):
    """Parameters of every search under `/v1`; `with_options` adds the search options."""

    collection: CollectionName = None
    log: WithLog = True

    def options(self) -> SearchOptions:
        """Return the search options of the request."""
        values = {name: getattr(self, name) for name in SearchOptions.__annotations__ if hasattr(self, name)}
        return cast("SearchOptions", values)


def with_options(operation: Operation, *only: str) -> Callable[[type[Model]], type[Model]]:
    """Return a class decorator that adds the options of an operation to a model, or only some of them."""

    def add_options(model: type[Model]) -> type[Model]:
        types = option_types("http", operation)
        fields: dict[str, Any] = {name: types[name] for name in only or types}
        return create_model(
            model.__name__, __base__=model, __module__=model.__module__, __doc__=model.__doc__, **fields
        )

    return add_options


@with_options("search")
class SearchBody(SearchParameters):
    """The body of `/v1/search`."""

    model_config = _example(query="What is ROS 2?", top_k=3, module=["ros2"])
    query: QueryText
    html: WithHtml = False


class SearchQuery(SearchBody):
    """The query parameters of `GET /v1/search`; their values are text."""

    model_config = ConfigDict(strict=False)
    query: Annotated[QueryText, Field(alias="q")]
    module: Annotated[
        list[Annotated[str, Field(pattern=r"\S")]],
        Field(max_length=100, description="Only this module; repeat it for several modules."),
    ] = Field(default_factory=list)

    def body(self) -> SearchBody:
        """Return the same request as a body; the order of modules does not matter."""
        given = self.model_dump(exclude={"module"})
        given["module"] = sorted(set(self.module)) or None
        return SearchBody(**given)


@with_options("related")
class RelatedBody(SearchParameters):
    """The body of `/v1/related`."""

    model_config = _example(selection="A ROS 2 node is a process.", question=None)
    selection: Annotated[
        str, Field(description="The selected text; a long one is cut at a sentence.", pattern=r"\S")
    ]
    question: Annotated[
        str | None, Field(description="A question about the selected text; blank means none.")
    ] = None
    html: WithHtml = False


@with_options("context")
class ContextBody(SearchParameters):
    """The body of `/v1/context`; without `top_k`, the best 100 chunks are considered."""

    model_config = _example(query="What is ROS 2?", max_tokens=800)
    query: QueryText
    max_tokens: Annotated[
        Count, Field(ge=MIN_TOKENS, le=MAX_TOKENS, description="The maximum size of all texts together.")
    ] = DEFAULT_CONTEXT_TOKENS
    page: Annotated[
        str | None, Field(description="The page that the reader is on; its sections come first if relevant.")
    ] = None
    neighbors: Annotated[
        Count,
        Field(ge=0, le=MAX_NEIGHBORS, description="How many sections around each to add, if they fit."),
    ] = 0

    def options(self) -> SearchOptions:
        """Return the search options; more chunks are considered than a search returns."""
        more: SearchOptions = {} if "top_k" in self.model_fields_set else {"top_k": DEFAULT_CONTEXT_TOP_K}
        return super().options() | more


@with_options("batch")
class BatchBody(SearchParameters):
    """The body of `/v1/batch`."""

    model_config = _example(queries=["What is ROS 2?", "robot navigation"], top_k=1)
    queries: Annotated[
        list[QueryText],
        Field(
            min_length=1,
            max_length=MAX_QUERIES,
            description=f"Together at most {MAX_BATCH_CHARACTERS} characters. The number of queries times "
            f"`top_k` is at most {MAX_BATCH_RESULTS}.",
        ),
    ]


class ClickRequest(RequestModel):
    """The body of `/v1/click`: a reader opened the result with this rank and URL."""

    model_config = _example(query="What is ROS 2?", url="local://docs/intro", rank=1)
    query: QueryText
    url: Annotated[str, Field(description="The `url` of the result.", pattern=r"\S", max_length=2000)]
    rank: Annotated[Count, Field(ge=1, le=2 * MAX_TOP_K, description="The `rank` of the result.")]
    collection: CollectionName = None


class AnswerTurn(RequestModel):
    """An earlier question of a conversation, and its answer."""

    query: QueryText
    answer: Annotated[
        str, Field(max_length=MAX_TURN_ANSWER, description="Only its start is sent to the model.")
    ] = ""


@with_options("search", "prefer")
class AnswerBody(SearchParameters):
    """The body of `/v1/answer`."""

    model_config = _example(query="And on Windows?", turns=[{"query": "How do I install ROS 2?"}])
    query: QueryText
    turns: Annotated[
        list[AnswerTurn],
        Field(
            max_length=MAX_TURNS,
            description="The earlier questions of the conversation, oldest first; the last is searched, too.",
        ),
    ] = Field(default_factory=list)


class AnswerFeedback(RequestModel):
    """The body of `/v1/answer/feedback`: whether a reader found the answer to a question helpful."""

    model_config = _example(query="What is ROS 2?", helpful=True)
    query: QueryText
    helpful: bool
    collection: CollectionName = None


class ErrorResponse(ResponseModel):
    """The body of every error."""

    model_config = _example(error="Query cannot be empty", status_code=400)
    error: str
    status_code: int
    hint: str | None = None


@with_hit_fields("page")
class ChunkModel(ResponseModel):
    """A chunk of the book; `html` is present only if the request asks for it."""


@with_hit_fields("search")
class HitModel(ResponseModel):
    """A chunk of the book with its rank and score."""


class PageGroupModel(ResponseModel):
    """A page of a grouped search; `ranks` are the ranks of its chunks in `results`."""

    page_url: str
    title: str
    score: float
    ranks: list[int]


class TimingsModel(ResponseModel):
    """Milliseconds that each step of a search took."""

    embed_ms: float
    search_ms: float
    total_ms: float


class SearchResponseModel(ResponseFields):
    """The response of `/v1/search`.

    If `results` is empty, `outcome` and `message` say why. `covered` is false if `coverage` is "not covered".
    `groups` is empty unless the request has `group_by`. `query_log` says whether the service keeps a query
    log, `answers` whether this caller may send the question to `/v1/answer`.
    """

    query: str
    generation: str
    covered: bool
    results: list[HitModel]
    groups: list[PageGroupModel]
    timings: TimingsModel
    query_log: bool
    answers: bool


class ContextResponseModel(ResponseFields):
    """The response of `/v1/context`: sections, most relevant page first; without any, `message` says why."""

    query: str
    generation: str
    covered: bool
    page_used: Annotated[bool | None, Field(description="Whether sections of `page` come first.")]
    sections: list[McpSection]
    tokens: int
    max_tokens: int
    left_out: Annotated[list[str], Field(description="The URLs of further results that did not fit.")]
    timings: TimingsModel


class SelectionModel(ResponseModel):
    """The part of a selected text that was searched for."""

    text: str
    given: int
    cut: bool
    left_out: int


class RelatedResponseModel(SearchResponseModel):
    """The response of `/v1/related`."""

    selection: SelectionModel


class BatchResponseModel(ResponseModel):
    """The responses, in the order of the queries."""

    responses: list[SearchResponseModel]


class CollectionModel(ResponseModel):
    """A collection that the server serves."""

    name: str
    default: bool
    title: Annotated[str, Field(description="The book's title; the collection's name if it is unknown.")]
    logo: Annotated[str | None, Field(description="The book's logo as a `data:` URL.")]
    versions: Annotated[list[str], Field(description="The versions of the book, if it has several.")]


class CollectionsResponseModel(ResponseModel):
    """The collections that the server serves."""

    collections: list[CollectionModel]


class ModuleModel(ResponseModel):
    """A module of the book."""

    name: str
    title: str
    chunks: int
    pages: int


class ModulesResponseModel(ResponseModel):
    """The modules of a book."""

    collection: str
    modules: list[ModuleModel]


class PageModel(ResponseModel):
    """A page of the book."""

    url: str
    title: str
    module: str
    chunks: int


class PagesResponseModel(ResponseModel):
    """The pages of a book."""

    collection: str
    pages: list[PageModel]


class PageResponseModel(ResponseModel):
    """The chunks of a page, in reading order."""

    collection: str
    url: str
    title: str
    module: str
    chunks: list[ChunkModel]


class HealthResponseModel(ResponseModel):
    """The state of a collection, and what to do about it.

    `coverage`, `suite` and `gaps` are the last runs of `recto coverage`, `recto validate` and `recto gaps`;
    their `current` is false if they measured an older index. `latency` is about the last searches of the
    worker that handles the request.
    """

    validation: ValidationResponse
    index: Record
    problems: list[dict[str, Any]]
    coverage: Record
    suite: Record
    gaps: Record
    latency: dict[str, Any]
    advice: list[str]
