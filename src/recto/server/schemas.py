"""The fields of results and responses that the HTTP API and the MCP tools share."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

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
