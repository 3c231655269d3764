"""What the tools answer: passages that can be cited, pages, modules. Their schemas are published with the tools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, Field

from recto.search import display
from recto.search.lexical import QueryWord
from recto.search.snippets import make_snippet
from recto.types import Hit, Mode, Outcome, SearchResponse

_DIGITS = 4


class Passage(BaseModel):
    """A passage of the book and where it stands."""

    link: Annotated[str, Field(description="Cite this: the address that opens the section.")]
    title: Annotated[str, Field(description="The page's title.")]
    module: str
    headings: Annotated[list[str], Field(description="The path from the page's title down to the passage.")]
    score: Annotated[float, Field(description="What ranks the passages; compare it within one answer only.")]
    dense: Annotated[float | None, Field(description="Cosine similarity to the query, if it was computed.")]
    lexical: Annotated[float | None, Field(description="BM25 score of the query's words, if it was computed.")]
    above_noise: Annotated[bool | None, Field(description="False: as unrelated texts score in this book. Null: not measured.")]
    matches: Annotated[list[str], Field(description="Words of the passage and its headings that match the query.")]
    snippet: Annotated[str, Field(description="The part of the text around the best matches, in one line.")]
    text: str


class SearchResult(BaseModel):
    """What was found, best first, or why nothing was."""

    outcome: Annotated[Outcome, Field(description="found, no_match, or filtered_out: the filters leave no passage to search.")]
    message: Annotated[str, Field(description="What to make of the answer, if there is something to say.")]
    collection: str
    mode: Mode
    answerable: Annotated[float | None, Field(description="Probability that the book covers the query; below 0.5 it most likely does not.")]
    corrections: Annotated[dict[str, list[str]], Field(description="Query words that the book does not have, and what was searched for.")]
    noise: Annotated[float | None, Field(description="A cosine below this means nothing in this book; null if it was not measured.")]
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


def search_result(response: SearchResponse, words: Sequence[QueryWord]) -> SearchResult:
    """Put a response into the tool's words."""
    return SearchResult(
        outcome=response.outcome,
        message=_message(response),
        collection=response.collection,
        mode=response.mode,
        answerable=response.answerable,
        corrections={word: list(meant) for word, meant in response.corrections},
        noise=_rounded(response.noise),
        passages=[_passage(hit, response, words) for hit in response.hits],
        warnings=list(response.warnings),
        took_ms=round(response.timings.total_ms, 2),
    )


def related_result(response: SearchResponse, words: Sequence[QueryWord]) -> RelatedResult:
    """Put the response to a selected text into the tool's words."""
    selection = response.selection
    return RelatedResult(
        **dict(search_result(response, words)),
        searched_for=selection.text if selection else response.query,
        left_out=selection.left_out if selection else 0,
    )


def _passage(hit: Hit, response: SearchResponse, words: Sequence[QueryWord]) -> Passage:
    chunk = hit.chunk
    return Passage(
        link=chunk.link,
        title=chunk.page_title,
        module=chunk.module_name,
        headings=list(chunk.headings),
        score=round(hit.score, _DIGITS),
        dense=_rounded(hit.dense),
        lexical=_rounded(hit.lexical),
        above_noise=display.above_noise(hit, response),
        matches=list(display.chunk_matches(chunk, words)),
        snippet=make_snippet(chunk.text, words).text,
        text=chunk.text,
    )


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, _DIGITS)


def _message(response: SearchResponse) -> str:
    """Say what an agent should know before it reads the passages."""
    said = display.corrections_of(response)
    if response.hits and not display.is_covered(response):
        said.append(f"{display.NOT_COVERED} The passages below are the nearest there are; most likely none of them answers the query.")
    return " ".join((*said, response.message)).strip()
