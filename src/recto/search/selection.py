"""Selected text: the query for it, and the hits that add something to it instead of repeating it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from recto._util.markdown import SENTENCE_END
from recto.errors import InvalidQuery
from recto.search.pipeline import SearchedBatch
from recto.search.query import check_query, clean_text
from recto.search.response import build_responses
from recto.types.search import Chunk, Hit, SearchResponse, Selection

_SENTENCE_END = re.compile(rf"{SENTENCE_END}|\n\s*\n")
_WORD_END = re.compile(r"\s+")
_WORD = re.compile(r"\w+")
_CHARACTERS_PER_TOKEN = 8  # more than any tokenizer needs for prose: a longer text is cut before counting
_SHINGLE = 4  # words
_LONG_RUN = 20  # consecutive words that two texts do not share by chance
_MIN_WORDS = 5  # a shorter text is a term that occurs everywhere in the book
OVERLAP_RULES = {"shingle": _SHINGLE, "long_run": _LONG_RUN, "min_words": _MIN_WORDS}


@dataclass(frozen=True, slots=True)
class SelectionQuery:
    """The query for a selected text: a question, if there is one, and as much of the text as fits.

    `given` is the whole selected text, `selection` the part that is searched for.
    """

    text: str
    question: str
    given: str
    selection: Selection


def build_selection_query(
    selection: str, question: str | None, max_tokens: int, count: Callable[[str], int]
) -> SelectionQuery:
    """Combine a question, unless it is blank, with as many sentences of the selected text as fit."""
    selected = clean_text(selection, "Selected text")
    if not selected:
        raise InvalidQuery(
            "Selected text cannot be empty", hint="Select a sentence or more, or search with a question."
        )
    if isinstance(question, str) and not question.strip():
        question = None  # an empty form field sends a blank question
    asked = "" if question is None else check_query(question)
    before = f"{asked}\n\n" if asked else ""
    used = truncate(
        selected, lambda text: count(before + text) <= max_tokens, max_tokens * _CHARACTERS_PER_TOKEN
    )
    return SelectionQuery(before + used, asked, selection, Selection(used, len(selected)))


def build_related_response(query: SelectionQuery, searched: SearchedBatch, top_k: int) -> SearchResponse:
    """Build the response to a selected text: without the chunks that contain it."""
    (result,), selection = searched.results, query.selection
    hits, excluded = exclude_and_diversify(result.hits, query.given, top_k)
    shown = result.query._replace(text=query.question or selection.text)
    (response,) = build_responses(searched._replace(results=[result._replace(query=shown, hits=hits)]))
    if result.hits and not hits:
        response = replace(response, message="Only the selected text itself was found.")
    warnings = response.warnings
    if selection.cut:
        warnings += (
            f"The selected text is too long: only the first {len(selection.text)} of {selection.given} "
            "characters were searched for.",
        )
    return replace(response, warnings=warnings, selection=replace(selection, left_out=excluded))


def exclude_and_diversify(hits: Sequence[Hit], selection: str, top_k: int) -> tuple[list[Hit], int]:
    """Choose the best hits that do not contain the selected text, and count those that do.

    While there are others, take one hit per section and at most half of the hits from one page.
    """
    chosen: list[Hit] = []
    spare: list[Hit] = []
    texts: list[_Shingles] = []
    selected = _Shingles(selection)
    excluded = 0
    for hit in hits:
        text = _Shingles(hit.chunk.text)
        if selected.overlaps(text):
            excluded += 1
        elif any(text.overlaps(other) for other in texts):
            continue
        elif _is_crowded(hit.chunk, chosen, (top_k + 1) // 2):
            spare.append(hit)
        else:
            chosen.append(hit)
            texts.append(text)
            if len(chosen) == top_k:
                break
    chosen += spare[: top_k - len(chosen)]
    return sorted(chosen, key=lambda hit: -hit.score), excluded


def _is_crowded(chunk: Chunk, chosen: Sequence[Hit], most: int) -> bool:
    """Return whether the chunk's section, or enough of its page, was chosen already."""
    same_page = [hit.chunk for hit in chosen if hit.chunk.page_url == chunk.page_url]
    return len(same_page) >= most or any(other.headings == chunk.headings for other in same_page)


class _Shingles:
    """A text as sets of consecutive words."""

    def __init__(self, text: str) -> None:
        self._words = _WORD.findall(text.lower())

    @cached_property
    def _short(self) -> set[tuple[str, ...]]:
        return _runs(self._words, _SHINGLE)

    @cached_property
    def _long(self) -> set[tuple[str, ...]]:
        return _runs(self._words, _LONG_RUN)

    def overlaps(self, other: _Shingles) -> bool:
        """Return whether half of the shorter text is in the other one, or both share a long run of words."""
        if min(len(self._words), len(other._words)) < _MIN_WORDS:
            return False
        common = len(self._short & other._short)
        if 2 * common >= min(len(self._short), len(other._short)):
            return True
        return common > _LONG_RUN - _SHINGLE and not self._long.isdisjoint(other._long)


def word_runs(text: str) -> set[tuple[str, ...]]:
    """Return all runs of consecutive words of a text, to compare it with others."""
    return _runs(_WORD.findall(text.lower()), _SHINGLE)


def _runs(words: Sequence[str], length: int) -> set[tuple[str, ...]]:
    return {tuple(words[start : start + length]) for start in range(len(words) - length + 1)}


def truncate(text: str, fits: Callable[[str], bool], max_length: int) -> str:
    """Return the longest beginning of whole sentences that fits, or of words if no sentence fits."""
    if len(text) <= max_length and fits(text):
        return text
    head = text[:max_length]
    for ends in (_SENTENCE_END, _WORD_END):
        if cut := longest_start(head, [match.end() for match in ends.finditer(head)], fits):
            return cut
    return longest_start(head, range(1, len(head) + 1), fits)


def longest_start(text: str, ends: Sequence[int], fits: Callable[[str], bool]) -> str:
    """Return the longest beginning of a text that fits and stops at one of the ends, by bisection."""
    fitting = ""
    low, high = 0, len(ends)
    while low < high:
        middle = (low + high) // 2
        head = text[: ends[middle]].rstrip()
        if fits(head):
            fitting, low = head, middle + 1
        else:
            high = middle
    return fitting
