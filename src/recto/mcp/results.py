"""What the tools answer: passages that can be cited, pages, modules. Their schemas are published with the tools."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from recto.types import Hit, Outcome, SearchResponse

_DIGITS = 4


class Passage(BaseModel):
    """A passage of the book and where it stands."""

    link: Annotated[str, Field(description="Cite this: the address that opens the section.")]
    title: Annotated[str, Field(description="The page's title.")]
    module: str
    headings: Annotated[list[str], Field(description="The path from the page's title down to the passage.")]
    score: Annotated[float, Field(description="Similarity to what was asked; compare it within one answer only.")]
    above_noise: Annotated[bool | None, Field(description="False: as unrelated texts score in this book. Null: not measured.")]
    text: str


class SearchResult(BaseModel):
    """What was found, best first, or why nothing was."""

    outcome: Annotated[Outcome, Field(description="found, no_match, or filtered_out: the filters leave no passage to search.")]
    message: Annotated[str, Field(description="What to make of the answer, if there is something to say.")]
    collection: str
    noise: Annotated[float | None, Field(description="Scores below this mean nothing in this book; null if it was not measured.")]
    passages: list[Passage]
    warnings: list[str]
    took_ms: Annotated[float, Field(description="How long the search took, in milliseconds.")]


class RelatedResult(SearchResult):
    """What goes with a selected text."""

    searched_for: Annotated[str, Field(description="The part of the selection that was searched for.")]
    left_out: Annotated[int, Field(description="Passages left out because they hold the selection itself.")]


class PageResult(BaseModel):
    """A page of the book, or a section of it."""

    link: Annotated[str, Field(description="Cite this.")]
    title: str
    module: str
    markdown: str
    part: int
    parts: Annotated[int, Field(description="How many parts there are; ask for the next with `part`.")]
    note: str


class Module(BaseModel):
    """A part of the book that a search can be narrowed to."""

    name: str
    title: str
    passages: int


class ModulesResult(BaseModel):
    """What the book consists of."""

    collection: str
    pages: int
    modules: list[Module]


def search_result(response: SearchResponse) -> SearchResult:
    """Put a response into the tool's words."""
    return SearchResult(
        outcome=response.outcome,
        message=_message(response),
        collection=response.collection,
        noise=None if response.noise is None else round(response.noise, _DIGITS),
        passages=[_passage(hit, response.noise) for hit in response.hits],
        warnings=list(response.warnings),
        took_ms=round(response.timings.total_ms, 2),
    )


def related_result(response: SearchResponse) -> RelatedResult:
    """Put the response to a selected text into the tool's words."""
    selection = response.selection
    return RelatedResult(
        **dict(search_result(response)),
        searched_for=selection.text if selection else response.query,
        left_out=selection.left_out if selection else 0,
    )


def _passage(hit: Hit, noise: float | None) -> Passage:
    chunk = hit.chunk
    return Passage(
        link=chunk.link,
        title=chunk.page_title,
        module=chunk.module_name,
        headings=list(chunk.headings),
        score=round(hit.score, _DIGITS),
        above_noise=None if noise is None else hit.score >= noise,
        text=chunk.text,
    )


def _message(response: SearchResponse) -> str:
    if response.hits and response.noise is not None and response.hits[0].score < response.noise:
        return "No passage scores above the noise of this book: most likely it does not say anything about this."
    return response.message
