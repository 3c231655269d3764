"""The arguments and results of the MCP tools, with the descriptions that a model reads."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError

from recto.errors import InvalidArgument
from recto.search.context import MAX_NEIGHBORS, MAX_TOKENS, MIN_TOKENS, OMISSION
from recto.search.query import (
    DEFAULT_CONTEXT_TOKENS,
    DEFAULT_CONTEXT_TOP_K,
    DEFAULT_TOP_K,
    MAX_QUERY,
    MAX_SCORE,
)
from recto.types import Coverage, Filters, GroupBy, Mode, Outcome

MAX_TOP_K = 20


def _split(given: Any) -> Any:
    """Accept one name, or several in one text: agents send both."""
    return [part for part in given.split(",") if part.strip()] if isinstance(given, str) else given


Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
ModuleNames = Annotated[
    list[Name] | None,
    BeforeValidator(_split),
    Field(
        description='Search only these modules, such as ["ros2"]; list_modules has the names. Omit it to '
        "search the whole book."
    ),
]
SearchMode = Annotated[
    Mode,
    Field(
        description="hybrid (default): by meaning and by words. lexical: by words only, for an exact name, "
        'option or error code, such as "rclpy.spin". dense: by meaning only.'
    ),
]
TopK = Annotated[int, Field(ge=1, le=MAX_TOP_K, description="The maximum number of results, such as 5.")]
Query = Annotated[
    str,
    Field(
        description="What to look for, in the language of the book: the user's question, or a few words of "
        f'it, such as "How do nodes exchange messages?". At most {MAX_QUERY} characters.'
    ),
]


class ToolArguments(BaseModel):
    """Arguments of a tool; unknown names are errors, so that no filter is ignored silently."""

    model_config = ConfigDict(extra="forbid")


class SearchArguments(ToolArguments):
    """Arguments of `search_book`."""

    query: Query
    top_k: TopK = DEFAULT_TOP_K
    min_score: Annotated[
        float | None,
        Field(ge=-1, le=MAX_SCORE, description="Drop results with a lower score. Usually omitted."),
    ] = None
    module: ModuleNames = None
    url: Annotated[
        Name | None,
        Field(
            description="Search only the page with this URL: the `url` of a result, or what the user reads."
        ),
    ] = None
    mode: SearchMode = "hybrid"
    group_by: Annotated[
        GroupBy | None,
        Field(description='"page": return the best `top_k` pages, each with its results one after another.'),
    ] = None

    def filters(self) -> Filters:
        """Return the filters of the search."""
        return Filters(tuple(self.module or ()), self.url)


class ContextArguments(ToolArguments):
    """Arguments of `get_context`."""

    query: Query
    max_tokens: Annotated[
        int,
        Field(
            ge=MIN_TOKENS,
            le=MAX_TOKENS,
            description="The maximum size of all texts together, such as 2000 for a short answer or 8000 for "
            "a thorough one. Tokens of the book's embedding model; yours differ by up to a third.",
        ),
    ] = DEFAULT_CONTEXT_TOKENS
    page: Annotated[
        Name | None,
        Field(
            description="The URL of the page that the user is reading. Its sections come first if they are "
            "relevant; otherwise the whole book is used, and `message` says so."
        ),
    ] = None
    neighbors: Annotated[
        int,
        Field(
            ge=0,
            le=MAX_NEIGHBORS,
            description="Also return this many sections before and after each one, if they fit: 1 for steps "
            "that continue under the next heading.",
        ),
    ] = 0
    top_k: TopK = DEFAULT_CONTEXT_TOP_K
    module: ModuleNames = None
    mode: SearchMode = "hybrid"


class RelatedArguments(ToolArguments):
    """Arguments of `related_chunks`."""

    selection: Annotated[
        str, Field(description="The selected text as it is in the book: a sentence, up to a few paragraphs.")
    ]
    question: Annotated[
        str | None,
        Field(description='What the user wants to know about it, such as "Why is this needed?". Optional.'),
    ] = None
    top_k: TopK = DEFAULT_TOP_K
    module: ModuleNames = None
    mode: SearchMode = "hybrid"

    def filters(self) -> Filters:
        """Return the filters of the search."""
        return Filters(tuple(self.module or ()))


class PageArguments(ToolArguments):
    """Arguments of `read_page`."""

    url: Annotated[
        Name,
        Field(
            description="The `url` of a result, or of a page. With an #anchor, only that section with its "
            "subsections."
        ),
    ]
    part: Annotated[
        int, Field(ge=1, description="Which part of a long page, from 1; `parts` says how many there are.")
    ] = 1


class NoArguments(ToolArguments):
    """A tool without arguments."""


def check_arguments(model: type[ToolArguments], given: dict[str, Any] | None) -> Any:
    """Validate the arguments; raise `InvalidArgument` with all errors in one sentence."""
    try:
        return model.model_validate(given or {})
    except ValidationError as error:
        faults = [
            f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}"
            for fault in error.errors(include_url=False)
        ]
        names = ", ".join(model.model_fields) or "none"
        raise InvalidArgument("; ".join(faults), hint=f"The arguments are: {names}.") from error


class McpHit(BaseModel):
    """A chunk of the book with its score."""

    url: Annotated[str, Field(description="Cite this: it opens the section.")]
    title: Annotated[str, Field(description="The page's title.")]
    section: Annotated[str, Field(description="The heading of the section.")]
    module: str
    module_title: str
    headings: Annotated[list[str], Field(description="The path from the page's title down to the section.")]
    score: Annotated[float, Field(description="Ranks the results; compare it within one response only.")]
    dense: Annotated[float | None, Field(description="Cosine similarity to the query, if it was computed.")]
    lexical: Annotated[
        float | None, Field(description="Share of the largest BM25 score, 0 to 1, if it was computed.")
    ]
    above_noise: Annotated[
        bool | None, Field(description="False: as unrelated texts score in this book. Null: not measured.")
    ]
    matches: Annotated[
        list[str], Field(description="Words of the text and its headings that match the query.")
    ]
    snippet: Annotated[str, Field(description="The part of the text around the best matches, in one line.")]
    text: str


class McpResponse(BaseModel):
    """What all searches tell about the query."""

    outcome: Annotated[
        Outcome, Field(description="found, no_match, or filtered_out: the filters exclude every chunk.")
    ]
    message: Annotated[str, Field(description="What to know before you use the results; may be empty.")]
    collection: str
    mode: Mode
    answerable: Annotated[
        float | None,
        Field(description="Estimated probability that the book covers the query."),
    ]
    coverage: Annotated[
        Coverage | None,
        Field(
            description="covered, unclear, or not covered; null if it is unknown. A covered query can still "
            "lack an answer: read the text."
        ),
    ]
    corrections: Annotated[
        dict[str, list[str]],
        Field(description="Query words that the book does not have, and what was searched for."),
    ]


class McpSearchResult(McpResponse):
    """The hits, best first; if there are none, `message` says why."""

    noise_floor: Annotated[
        float | None,
        Field(description="A `score` below this is noise in this book; null if it was not measured."),
    ]
    results: list[McpHit]
    warnings: list[str]
    took_ms: Annotated[float, Field(description="How long the search took, in milliseconds.")]


class McpRelatedResult(McpSearchResult):
    """Hits that are related to a selected text."""

    searched_for: Annotated[str, Field(description="The part of the selection that was searched for.")]
    left_out: Annotated[int, Field(description="Chunks left out because they contain the selection itself.")]


class McpSection(BaseModel):
    """A section of the book that has one or more hits."""

    url: Annotated[str, Field(description="Cite this: it opens the section.")]
    title: Annotated[str, Field(description="The page's title.")]
    headings: Annotated[list[str], Field(description="The path from the page's title down to the section.")]
    module: str
    score: Annotated[float, Field(description="Of its best hit; compare it within one response only.")]
    above_noise: Annotated[
        bool | None, Field(description="False: as unrelated texts score in this book. Null: not measured.")
    ]
    hits: Annotated[int, Field(description="How many chunks of it match the query.")]
    text: Annotated[str, Field(description=f"Markdown; {OMISSION} stands for chunks that did not fit.")]
    tokens: int
    missing: Annotated[
        int, Field(description="Chunks of the section that did not fit; read_page returns all of it.")
    ]
    truncated: Annotated[
        bool, Field(description="True: the text ends after a sentence, because it alone is over max_tokens.")
    ]


class McpContext(McpResponse):
    """Sections of the book, most relevant first; if there are none, `message` says why."""

    page_used: Annotated[
        bool | None, Field(description="Whether sections of `page` come first. Null: `page` was not given.")
    ]
    sections: list[McpSection]
    tokens: Annotated[int, Field(description="The size of all texts together.")]
    max_tokens: int
    left_out: Annotated[
        list[str], Field(description="The URLs of further results that did not fit; read_page returns them.")
    ]
    warnings: list[str]
    took_ms: Annotated[float, Field(description="How long the search took, in milliseconds.")]


class McpPage(BaseModel):
    """A page of the book, or a section of it."""

    url: Annotated[str, Field(description="Cite this.")]
    title: str
    module: str
    markdown: str
    part: int
    parts: Annotated[int, Field(description="How many parts there are; ask for the next with `part`.")]
    note: str


class McpModule(BaseModel):
    """A module of the book; use `name` to filter a search."""

    name: str
    title: str
    chunks: int


class McpModules(BaseModel):
    """The modules of the book."""

    collection: str
    pages: int
    modules: list[McpModule]
