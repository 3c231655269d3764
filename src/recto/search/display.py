"""What every entry point shows of a response: hits as plain values, corrections, coverage, matched words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recto.search.lexical import QueryWord
from recto.search.lexicon import analyzed_text
from recto.search.query import MAX_QUERY
from recto.search.response import LINE
from recto.search.snippets import make_snippet, matched_words, words_to_match
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
    """Return a sentence for each query word that the book does not have."""
    return [
        f'"{word}" is not in the book. Searched for {_either(meant)}.' for word, meant in response.corrections
    ]


def response_words(retriever: Retriever, response: SearchResponse) -> tuple[QueryWord, ...]:
    """Return the query words to mark in the hits; a selected text without a question has none."""
    if response.selection is not None and response.query == response.selection.text:
        return ()
    query = response.query[:MAX_QUERY]
    return words_to_match(query, retriever.analyze(query))


def chunk_matches(chunk: Chunk, words: Sequence[QueryWord]) -> tuple[str, ...]:
    """Return the distinct words of a chunk's headings and text that match a query."""
    return matched_words(analyzed_text(chunk), words)


def chunk_to_dict(chunk: Chunk) -> dict[str, Any]:
    """Return a chunk as plain values; `url` opens its section, `page_url` its page."""
    return {
        "id": chunk.id,
        "title": chunk.page_title,
        "section": chunk.headings[-1] if chunk.headings else chunk.page_title,
        "url": chunk.link,
        "module": chunk.module_name,
        "module_title": chunk.module_title or chunk.module_name,
        "text": chunk.text,
        "page_url": chunk.page_url,
        "anchor": chunk.anchor,
        "anchors": list(chunk.anchors),
        "headings": list(chunk.headings),
        "source": chunk.source,
        "start_line": chunk.start_line,
        "end_line": chunk.end_line,
        "chunk_index": chunk.chunk_index,
        "total_chunks": chunk.total_chunks,
        "book": chunk.book,
        "version": chunk.version,
        "locale": chunk.locale,
    }


def hit_to_dict(
    hit: Hit, response: SearchResponse, words: Sequence[QueryWord] = (), digits: int | None = None
) -> dict[str, Any]:
    """Return a hit as plain values, with scores rounded to `digits`; entry points pick their fields."""

    def rounded(number: float | None) -> float | None:
        return number if number is None or digits is None else round(number, digits)

    return chunk_to_dict(hit.chunk) | {
        "score": rounded(hit.score),
        "dense": rounded(hit.dense),
        "lexical": rounded(hit.lexical),
        "above_noise": above_noise(hit, response),
        "snippet": make_snippet(hit.chunk.text, words).text,
        "matches": list(chunk_matches(hit.chunk, words)),
    }


def pick(values: dict[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    """Return some fields of a dictionary, in the given order."""
    return {name: values[name] for name in fields}


def group_ranks(response: SearchResponse) -> list[dict[str, Any]]:
    """Return the pages of a response as plain values, with the ranks of their hits in the flat list."""
    ranks = {id(hit): rank for rank, hit in enumerate(response.hits, 1)}
    return [
        {
            "page_url": group.page_url,
            "title": group.page_title,
            "score": round(group.score, 6),
            "ranks": [ranks[id(hit)] for hit in group.hits],
        }
        for group in response.groups
    ]


def _either(words: Sequence[str]) -> str:
    quoted = [f'"{word}"' for word in words]
    return " or ".join(filter(None, (", ".join(quoted[:-1]), quoted[-1])))
