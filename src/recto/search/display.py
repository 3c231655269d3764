"""What every entry point says about a response: corrections, weak hits, queries that the book does not cover."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recto.search.lexical import QueryWord
from recto.search.lexicon import analyzed_text
from recto.search.query import MAX_QUERY
from recto.search.response import LINE
from recto.search.snippets import matched_words, words_to_match
from recto.types import Chunk, Hit, SearchResponse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recto.search.retriever import Retriever

NOT_COVERED = "The book does not seem to cover this."
WEAK_SHOWN = 3
"""How many hits a reader is shown of a query that the book does not seem to cover."""


def is_covered(response: SearchResponse) -> bool:
    """Tell whether the book seems to cover a query; if that was not estimated, it does."""
    return response.answerable is None or response.answerable >= LINE


def above_noise(hit: Hit, response: SearchResponse) -> bool | None:
    """Tell whether a hit's cosine similarity is above the noise floor; None if either is unknown."""
    cosine = hit.score if hit.dense is None and response.mode == "dense" else hit.dense
    return None if response.noise_floor is None or cosine is None else cosine >= response.noise_floor


def is_weak(hit: Hit, response: SearchResponse) -> bool:
    """Tell whether a hit most likely does not answer the query."""
    return not is_covered(response) or above_noise(hit, response) is False


def corrections_of(response: SearchResponse) -> list[str]:
    """Say which words the book does not have, and what was searched for instead."""
    return [
        f'"{word}" is not in the book. Searched for {_either(meant)}.' for word, meant in response.corrections
    ]


def response_words(retriever: Retriever, response: SearchResponse) -> tuple[QueryWord, ...]:
    """Return the query words to mark in the hits of a response; a selected text without a question has none."""
    if response.selection is not None and response.query == response.selection.text:
        return ()
    query = response.query[:MAX_QUERY]
    return words_to_match(query, retriever.analyze(query))


def chunk_matches(chunk: Chunk, words: Sequence[QueryWord]) -> tuple[str, ...]:
    """Return the distinct words of a chunk's headings and text that match a query."""
    return matched_words(analyzed_text(chunk), words)


def group_ranks(response: SearchResponse) -> list[dict[str, Any]]:
    """Return the pages of a response as plain values, with the ranks of their hits in the flat list."""
    ranks = {id(hit): rank for rank, hit in enumerate(response.hits, 1)}
    return [
        {
            "page_url": group.page_url,
            "page_title": group.page_title,
            "score": round(group.score, 6),
            "ranks": [ranks[id(hit)] for hit in group.hits],
        }
        for group in response.groups
    ]


def _either(words: Sequence[str]) -> str:
    quoted = [f'"{word}"' for word in words]
    return " or ".join(filter(None, (", ".join(quoted[:-1]), quoted[-1])))
