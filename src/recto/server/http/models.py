"""Request and response models of `/v1`: requests are validated, both are described in OpenAPI.

`SearchResponse.to_dict` and the routes make the responses; tests validate these against the description.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema

from recto.contracts.http import CollectionName, Count, QueryText, RequestModel, ValidationResponse
from recto.search.context import MAX_TOKENS, MIN_TOKENS
from recto.search.query import DEFAULT_TOP_K, MAX_SCORE, MAX_TOP_K
from recto.server.schemas import ChunkFields, HitFields, ResponseFields, ResponseModel
from recto.types.search import GroupBy, Mode

MAX_QUERIES = 32
MAX_BATCH_CHARACTERS = 16_000
MAX_BATCH_RESULTS = 1_000


def _as_list(value: Any) -> Any:
    """Accept one name instead of a list."""
    return [value] if isinstance(value, str) else value


def _example(**fields: Any) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [fields]})


_NAME_SCHEMA = {"type": "string", "pattern": r"\S"}
ModuleNames = Annotated[
    Annotated[list[Annotated[str, Field(pattern=r"\S")]], Field(max_length=100)] | None,
    BeforeValidator(_as_list),
    WithJsonSchema(
        {
            "anyOf": [
                _NAME_SCHEMA,
                {"type": "array", "items": _NAME_SCHEMA, "maxItems": 100},
                {"type": "null"},
            ],
            "description": "Only this module, or any of these modules.",
        }
    ),
]
PageUrl = Annotated[str | None, Field(description="Only the page with this URL.", pattern=r"\S")]
LanguageTag = Annotated[
    str | None, Field(description="Only pages in this language, such as de.", pattern=r"\S", max_length=35)
]
VersionName = Annotated[
    str | None,
    Field(
        description="This version of the book, or `all`; default: the current one.",
        pattern=r"\S",
        max_length=100,
    ),
]
Preferred = Annotated[
    str | None,
    Field(
        description="Versions and languages of the page that the reader is on, separated by commas, such as "
        "2.0,de: they are searched if the book has them, and there is no `version` or `lang`.",
        pattern=r"\S",
        max_length=200,
    ),
]
MinScore = Annotated[
    float | None,
    Field(
        ge=-1,
        le=MAX_SCORE,
        description="Only results with at least this score; in the dense mode it is a cosine, at most 1.",
    ),
]
SearchMode = Annotated[
    Mode,
    Field(
        description="Rank by cosine similarity (dense), by BM25 (lexical), or by their weighted sum (hybrid)."
    ),
]
Grouping = Annotated[
    GroupBy | None,
    Field(description='"page": return the best `top_k` pages with their chunks instead of single chunks.'),
]
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
SectionTokens = Annotated[
    Count | None,
    Field(
        ge=MIN_TOKENS,
        le=MAX_TOKENS,
        description="Also return `section_text`: the section around each chunk, of at most this many tokens.",
    ),
]
Record = dict[str, Any] | None
TopK = Annotated[Count, Field(ge=1, le=MAX_TOP_K, description="The maximum number of results.")]


class SearchParameters(RequestModel):
    """Parameters of every search under `/v1`."""

    top_k: TopK = DEFAULT_TOP_K
    module: ModuleNames = None
    url: PageUrl = None
    lang: LanguageTag = None
    version: VersionName = None
    prefer: Preferred = None
    collection: CollectionName = None
    mode: SearchMode = "hybrid"
    log: WithLog = True


class SearchRequest(SearchParameters):
    """The body of `/v1/search`."""

    model_config = _example(query="What is ROS 2?", top_k=3, module=["ros2"])
    query: QueryText
    min_score: MinScore = None
    group_by: Grouping = None
    html: WithHtml = False
    section_tokens: SectionTokens = None


class SearchQuery(SearchRequest):
    """The query parameters of `GET /v1/search`; their values are text."""

    model_config = ConfigDict(strict=False)
    query: Annotated[QueryText, Field(alias="q")]
    module: Annotated[
        list[Annotated[str, Field(pattern=r"\S")]],
        Field(max_length=100, description="Only this module; repeat it for several modules."),
    ] = Field(default_factory=list)

    def request(self) -> SearchRequest:
        """Return the same request as a body; the order of modules does not matter."""
        given = self.model_dump(exclude={"module"})
        return SearchRequest(module=sorted(set(self.module)) or None, **given)


class RelatedRequest(SearchParameters):
    """The body of `/v1/related`."""

    model_config = _example(selection="A ROS 2 node is a process.", question=None)
    selection: Annotated[
        str, Field(description="The selected text; a long one is cut at a sentence.", pattern=r"\S")
    ]
    question: Annotated[
        str | None, Field(description="A question about the selected text; blank means none.")
    ] = None
    html: WithHtml = False


class BatchRequest(SearchParameters):
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
    min_score: MinScore = None
    group_by: Grouping = None


class ClickRequest(RequestModel):
    """The body of `/v1/click`: a reader opened the result with this rank and URL."""

    model_config = _example(query="What is ROS 2?", url="local://docs/intro", rank=1)
    query: QueryText
    url: Annotated[str, Field(description="The `url` of the result.", pattern=r"\S", max_length=2000)]
    rank: Annotated[Count, Field(ge=1, le=2 * MAX_TOP_K, description="The `rank` of the result.")]
    collection: CollectionName = None


class AnswerRequest(RequestModel):
    """The body of `/v1/answer`."""

    model_config = _example(query="What is ROS 2?")
    query: QueryText
    prefer: Preferred = None
    collection: CollectionName = None
    log: WithLog = True


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


class ChunkModel(ChunkFields):
    """A chunk of the book; `html` is present only if the request asks for it."""

    id: str
    page_url: str
    anchor: str
    anchors: list[str]
    source: str
    start_line: int
    end_line: int
    chunk_index: int
    total_chunks: int
    version: str
    locale: str
    language: str
    html: Annotated[str, Field(description="`text` as HTML, without scripts, styles and images.")] = ""


class HitModel(ChunkModel, HitFields):
    """A chunk of the book with its rank and score."""

    rank: int


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
