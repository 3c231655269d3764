"""Models of responses: the fields that the HTTP API and the MCP tools share, and the results of the tools."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from recto.search.context import OMISSION
from recto.types.search import Coverage, Mode

AboveNoise = Annotated[
    bool | None, Field(description="False: as unrelated texts score in this book. Null: not measured.")
]
Headings = Annotated[list[str], Field(description="The path from the page's title down to the section.")]
PageTitle = Annotated[str, Field(description="The page's title.")]
SectionUrl = Annotated[str, Field(description="Cite this: it opens the section.")]


class ResponseModel(BaseModel):
    """Base of all responses: no unknown fields."""

    model_config = ConfigDict(extra="forbid")


class ChunkFields(ResponseModel):
    """A chunk of the book."""

    url: SectionUrl
    title: PageTitle
    section: Annotated[str, Field(description="The heading of the section.")]
    module: str
    module_title: str
    headings: Headings
    matches: Annotated[
        list[str], Field(description="Words of the text and its headings that match the query.")
    ]
    text: str


class ScoredFields(ChunkFields):
    """A chunk of the book with its score."""

    score: Annotated[float, Field(description="Ranks the results; compare it within one response only.")]
    dense: Annotated[float | None, Field(description="Cosine similarity to the query, if it was computed.")]
    lexical: Annotated[
        float | None, Field(description="Share of the largest BM25 score, 0 to 1, if it was computed.")
    ]
    above_noise: AboveNoise


class HitFields(ScoredFields):
    """A chunk of the book with its score and the text around it."""

    snippet: Annotated[str, Field(description="The part of the text around the best matches, in one line.")]
    section_text: Annotated[
        str | None,
        Field(description="The section around the chunk as Markdown. Null: the request did not ask for it."),
    ]


class ResponseFields(ResponseModel):
    """What all searches tell about the query."""

    outcome: Annotated[
        Literal["found", "no_match", "filtered_out"],
        Field(description="found, no_match, or filtered_out: the filters exclude every chunk."),
    ]
    message: Annotated[str, Field(description="What to know before you use the results; may be empty.")]
    collection: str
    mode: Mode
    answerable: Annotated[
        float | None, Field(description="Estimated probability that the book covers the query.")
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
    noise_floor: Annotated[
        float | None,
        Field(description="A `score` below this is noise in this book; null if it was not measured."),
    ]
    warnings: list[str]


Notice = Annotated[str, Field(description="How to treat what is quoted from the book.")]


class McpHit(ScoredFields):
    """A section of the book, or a chunk, with the score of its best chunk."""


class McpSearchResult(ResponseFields):
    """The results, best first; if there are none, `message` says why."""

    notice: Notice
    results: list[McpHit]
    took_ms: Annotated[float, Field(description="How long the search took, in milliseconds.")]


class McpRelatedResult(McpSearchResult):
    """Hits that are related to a selected text."""

    searched_for: Annotated[str, Field(description="The part of the selection that was searched for.")]
    left_out: Annotated[int, Field(description="Chunks left out because they contain the selection itself.")]


class McpSection(ResponseModel):
    """A section of the book that has one or more hits."""

    url: SectionUrl
    title: PageTitle
    headings: Headings
    module: str
    score: Annotated[float, Field(description="Of its best hit; compare it within one response only.")]
    above_noise: AboveNoise
    hits: Annotated[int, Field(description="How many chunks of it match the query.")]
    text: Annotated[str, Field(description=f"Markdown; {OMISSION} stands for chunks that did not fit.")]
    tokens: int
    missing: Annotated[
        int, Field(description="Chunks of the section that did not fit; read_page returns all of it.")
    ]
    truncated: Annotated[
        bool, Field(description="True: the text ends after a sentence, because it alone is over max_tokens.")
    ]


class McpContext(ResponseFields):
    """Sections of the book, most relevant first; if there are none, `message` says why."""

    notice: Notice
    page_used: Annotated[
        bool | None, Field(description="Whether sections of `page` come first. Null: `page` was not given.")
    ]
    sections: list[McpSection]
    tokens: Annotated[int, Field(description="The size of all texts together.")]
    max_tokens: int
    left_out: Annotated[
        list[str], Field(description="The URLs of further results that did not fit; read_page returns them.")
    ]
    took_ms: Annotated[float, Field(description="How long the search took, in milliseconds.")]


class McpPage(ResponseModel):
    """A page of the book, or a section of it."""

    notice: Notice
    url: Annotated[str, Field(description="Cite this.")]
    title: str
    module: str
    markdown: str
    part: int
    parts: Annotated[int, Field(description="How many parts there are; ask for the next with `part`.")]
    note: str


class McpModule(ResponseModel):
    """A module of the book."""

    name: str
    title: str
    chunks: int


class McpModules(ResponseModel):
    """The modules of the book; use a `name` to filter a search."""

    notice: Notice
    collection: str
    pages: int
    modules: list[McpModule]
