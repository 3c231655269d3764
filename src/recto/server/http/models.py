"""The shapes of requests and answers, for checking the former and describing both in OpenAPI."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from recto.search.query import DEFAULT_TOP_K, MAX_QUERY, MAX_SCORE, MAX_TOP_K
from recto.types import GroupBy, Mode

CONTRACT_MOST = 10
MOST_QUERIES = 32


def _whole(value: Any) -> Any:
    """Take 5.0 for 5, as JSON does."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Count = Annotated[int, BeforeValidator(_whole)]
QueryText = Annotated[
    str,
    Field(
        description=f"The question, in words: 1 to {MAX_QUERY} characters without surrounding white space.",
        examples=["What is ROS 2?"],
        json_schema_extra={"minLength": 1, "pattern": r"\S"},
    ),
]
CollectionName = Annotated[
    str | None, Field(description="One of the served collections; default: the first.")
]
Modules = Annotated[
    list[Annotated[str, Field(pattern=r"\S")]] | None,
    Field(description="Only these modules.", max_length=100),
]
PageAddress = Annotated[str | None, Field(description="Only the page with this address.", pattern=r"\S")]
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
        description="Rank by cosine similarity (dense), by BM25 (lexical), or by the weighted sum of both (hybrid)."
    ),
]
Grouping = Annotated[
    GroupBy | None,
    Field(description='"page": return the best `limit` pages with their chunks, instead of single chunks.'),
]
Limit = Annotated[Count, Field(ge=1, le=MAX_TOP_K, description="How many results at most.")]


class Body(BaseModel):
    """What all request bodies share: nothing is converted, and a field that is not known is refused."""

    model_config = ConfigDict(strict=True, extra="forbid")


class QueryRequest(Body):
    """A search by the contract."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"query": "What is ROS 2?", "limit": 5, "collection": "humanoid_robotics_book"}]
        }
    )
    query: QueryText
    limit: Annotated[Count, Field(ge=1, le=CONTRACT_MOST, description="How many results at most.")] = (
        DEFAULT_TOP_K
    )
    collection: CollectionName = None
    mode: Annotated[
        Literal["dense", "hybrid"],
        Field(description="Rank by cosine similarity (dense), or by the words of the query, too (hybrid)."),
    ] = "dense"


class Narrowed(Body):
    """What every search of version 1 takes."""

    limit: Limit = DEFAULT_TOP_K
    modules: Modules = None
    url: PageAddress = None
    collection: CollectionName = None
    mode: SearchMode = "hybrid"


class SearchRequest(Narrowed):
    """A search."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"query": "What is ROS 2?", "limit": 3, "modules": ["ros2"]}]}
    )
    query: QueryText
    min_score: MinScore = None
    group_by: Grouping = None


class RelatedRequest(Narrowed):
    """A search for what goes with a selected text."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"selection": "A ROS 2 node is a process.", "question": None}]}
    )
    selection: Annotated[
        str, Field(description="The selected text; a long one is cut at a sentence.", pattern=r"\S")
    ]
    question: Annotated[
        str | None, Field(description="What the reader wants to know about it; blank is none.")
    ] = None


class BatchRequest(Narrowed):
    """Several searches at once."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"queries": ["What is ROS 2?", "robot navigation"], "limit": 1}]}
    )
    queries: Annotated[list[QueryText], Field(min_length=1, max_length=MOST_QUERIES)]
    min_score: MinScore = None
    group_by: Grouping = None


class Answer(BaseModel):
    """What all answers share: they have these fields and no other."""

    model_config = ConfigDict(extra="forbid")


class ErrorBody(Answer):
    """What every error looks like."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"error": "Query cannot be empty", "status_code": 400}]}
    )
    error: str
    status_code: int
    hint: str | None = None


class Stored(Answer):
    """A passage as it is stored, by the contract."""

    url: str
    title: str
    content: str
    headings: list[str]
    chunk_index: int
    source_document: str
    metadata: dict[str, Any]


class SearchResult(Answer):
    """One result by the contract; `content` is a preview, `payload` has the whole text."""

    score: Annotated[float, Field(ge=0, le=1)]
    payload: Stored
    url: str
    title: str
    content: str


class QueryResponse(Answer):
    """The answer to a search by the contract."""

    query: str
    results: list[SearchResult]
    total_results: int
    query_time_ms: float


class ValidationResponse(Answer):
    """Whether retrieval works; `last_updated` is null where it is not known."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "collection_exists": True,
                    "vector_count": 1250,
                    "sample_search_works": True,
                    "last_updated": "2025-12-17T10:30:00Z",
                }
            ]
        }
    )
    collection_exists: bool
    vector_count: int
    sample_search_works: bool
    last_updated: str | None


class PlainHit(Answer):
    """A passage of the book, and where it stands."""

    id: str
    text: str
    link: str
    page_url: str
    page_title: str
    module: str
    headings: list[str]
    anchor: str
    anchors: list[str]
    chunk_index: int
    total_chunks: int
    start_line: int
    end_line: int
    source: str
    version: str
    locale: str


class Passage(PlainHit):
    """A result.

    `score` ranks it; `dense` is its cosine similarity and `lexical` its BM25 score, null if the mode does not compute them.
    `above_noise` compares the cosine with the noise floor; it is null if either is unknown. `snippet` is the best part of the text in
    one line, and `matches` are the words of the headings and the text that match the query.
    """

    rank: int
    score: float
    dense: float | None
    lexical: float | None
    above_noise: bool | None
    snippet: str
    matches: list[str]


class PageMatch(Answer):
    """A page of a grouped search: its score is that of its best chunk, `ranks` are its chunks' ranks in `results`."""

    page_url: str
    page_title: str
    score: float
    ranks: list[int]


class Times(Answer):
    """Milliseconds of each step."""

    embed_ms: float
    search_ms: float
    total_ms: float


class SearchAnswer(Answer):
    """The answer to a search, or why there is none.

    `answerable` is the probability that the book covers the query, null if it cannot be estimated; `covered` is false if it is low.
    `corrections` maps words that the book does not have to those that were searched for instead. `groups` is empty unless `group_by`
    was given.
    """

    query: str
    collection: str
    generation: str
    mode: Mode
    outcome: Literal["found", "no_match", "filtered_out"]
    message: str
    warnings: list[str]
    answerable: float | None
    covered: bool
    corrections: dict[str, list[str]]
    noise_floor: float | None
    results: list[Passage]
    groups: list[PageMatch]
    timings: Times


class SelectionAnswer(Answer):
    """What of a selected text was searched for."""

    text: str
    given: int
    cut: bool
    left_out: int


class RelatedAnswer(SearchAnswer):
    """The answer to a search by a selected text."""

    selection: SelectionAnswer


class BatchAnswer(Answer):
    """The answers, in the order of the questions."""

    responses: list[SearchAnswer]


class CollectionEntry(Answer):
    """A collection that is served."""

    name: str
    default: bool


class CollectionsAnswer(Answer):
    """The collections that are served."""

    collections: list[CollectionEntry]


class ModuleEntry(Answer):
    """A module of the book."""

    name: str
    title: str
    passages: int
    pages: int


class ModulesAnswer(Answer):
    """The modules of a book."""

    collection: str
    modules: list[ModuleEntry]


class PageEntry(Answer):
    """A page of the book."""

    url: str
    title: str
    module: str
    passages: int


class PagesAnswer(Answer):
    """The pages of a book."""

    collection: str
    pages: list[PageEntry]


class PageAnswer(Answer):
    """A page's passages, in its order."""

    collection: str
    url: str
    title: str
    module: str
    passages: list[PlainHit]


class Alive(Answer):
    """The process answers."""

    status: Literal["ok"]
    version: str


class Ready(Answer):
    """Searches can be answered."""

    status: Literal["ready"]
    collection: str
    generation: str


class IndexAnswer(Answer):
    """What an index is; null is what another pipeline did not write down, or what was not measured."""

    collection: str
    generation: str
    chunks: int
    created_at: str | None
    model: str | None
    noise_floor: float | None
    auroc: float | None
    recto_version: str | None
    warnings: list[str]


class SectionState(Answer):
    """How a section can be found."""

    title: str
    anchor: str
    state: Literal["reached", "unreachable", "shadowed", "duplicate"]


class PageState(Answer):
    """How the sections of a page can be found."""

    url: str
    title: str
    module: str
    sections: list[SectionState]


class CoverageAnswer(Answer):
    """The last `recto coverage`; `current` tells whether it was of this index."""

    made_at: str
    generation: str
    current: bool
    pages: list[PageState]
    reached: int
    total: int


class FailedQuestion(Answer):
    """A question that was not answered as expected."""

    query: str
    reason: str


class SuiteAnswer(Answer):
    """The last `recto validate`; `current` tells whether it was of this index."""

    made_at: str
    generation: str
    current: bool
    name: str
    passed: int
    total: int
    measures: dict[str, float]
    failed: list[FailedQuestion]


class StepTimes(Answer):
    """Milliseconds."""

    p50: float | None
    p95: float | None


class LatencyAnswer(Answer):
    """The last searches of the worker that answers."""

    requests: int
    p50_ms: float | None
    p95_ms: float | None
    steps: dict[str, StepTimes]
    recent: list[float]


class HealthAnswer(Answer):
    """How a collection is, and what to do about it."""

    validation: ValidationResponse
    index: IndexAnswer | None
    coverage: CoverageAnswer | None
    suite: SuiteAnswer | None
    latency: LatencyAnswer
    advice: list[str]
