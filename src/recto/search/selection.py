"""Selected text: what is searched for it, and which of the passages found go with it instead of repeating it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property

from recto.errors import InvalidQuery
from recto.search.query import check_query
from recto.types import Chunk, Hit, Selection

_SENTENCE_END = re.compile(r"[.!?…][\"'”’)\]]*\s+|[。！？]|\n\s*\n")
_WORD_END = re.compile(r"\s+")
_WORD = re.compile(r"\w+")
_CHARACTERS_PER_TOKEN = 8  # more than any tokenizer makes of prose: beyond it nothing has to be counted
_SHINGLE = 4  # words
_RUN = 20  # words in a row that two texts do not share by chance
_TERM = 5  # words; what is shorter is a term that the book uses everywhere, not a place in it


def check_selection(selection: str) -> str:
    """Return the selected text without white space around it, or say why there is none."""
    if not isinstance(selection, str):
        raise InvalidQuery(
            f"Selected text must be text, not {type(selection).__name__}", hint="Pass a string."
        )
    text = (
        selection.encode("utf-8", "replace").decode("utf-8").strip()
    )  # half of a surrogate pair is no character
    if not text:
        raise InvalidQuery(
            "Selected text cannot be empty", hint="Select a sentence or more, or search with a question."
        )
    return text


def question_or_none(question: str | None) -> str | None:
    """Take a blank question about a selected text for none: that is what a form sends."""
    return None if isinstance(question, str) and not question.strip() else question


def build_selection_query(
    selection: str, question: str | None, max_tokens: int, count: Callable[[str], int]
) -> tuple[str, Selection]:
    """Return the text that is searched for, the question first, and what of the selection is in it: the sentences that the model reads."""
    given = check_selection(selection)
    before = f"{check_query(question)}\n\n" if question is not None else ""
    used = _cut(given, lambda text: count(before + text) <= max_tokens, max_tokens * _CHARACTERS_PER_TOKEN)
    return before + used, Selection(used, len(given))


def exclude_and_diversify(hits: Sequence[Hit], selection: str, top_k: int) -> tuple[list[Hit], int]:
    """Choose from hits, best first, those that say more than the selection, and count those left out because they hold it.

    One passage a section and no more than half from one page are taken as long as there are others; the engine's order is kept.
    """
    chosen: list[Hit] = []
    spare: list[Hit] = []
    texts: list[_Text] = []
    selected = _Text(selection)
    left_out = 0
    for hit in hits:
        text = _Text(hit.chunk.text)
        if selected.is_held_by(text):
            left_out += 1
        elif any(text.is_held_by(other) for other in texts):
            continue
        elif _crowded(hit.chunk, chosen, (top_k + 1) // 2):
            spare.append(hit)
        else:
            chosen.append(hit)
            texts.append(text)
            if len(chosen) == top_k:
                break
    chosen += spare[: top_k - len(chosen)]
    return sorted(chosen, key=lambda hit: -hit.score), left_out


def _crowded(chunk: Chunk, chosen: Sequence[Hit], most: int) -> bool:
    same_page = [hit.chunk for hit in chosen if hit.chunk.page_url == chunk.page_url]
    return len(same_page) >= most or any(other.headings == chunk.headings for other in same_page)


class _Text:
    """A text as the runs of words that it is made of."""

    def __init__(self, text: str) -> None:
        self._words = _WORD.findall(text.lower())

    @cached_property
    def _shingles(self) -> set[tuple[str, ...]]:
        return self._runs(_SHINGLE)

    @cached_property
    def _long_runs(self) -> set[tuple[str, ...]]:
        return self._runs(_RUN)

    def _runs(self, length: int) -> set[tuple[str, ...]]:
        return {tuple(self._words[start : start + length]) for start in range(len(self._words) - length + 1)}

    def is_held_by(self, other: _Text) -> bool:
        """Whether both have a long run of words in common, or one is for the larger part in the other."""
        if min(len(self._words), len(other._words)) < _TERM:
            return False
        mine, others = self._shingles, other._shingles
        common = len(mine & others)
        if 2 * common >= min(len(mine), len(others)):
            return True
        return common > _RUN - _SHINGLE and not self._long_runs.isdisjoint(other._long_runs)


def _cut(text: str, fits: Callable[[str], bool], longest: int) -> str:
    """Return as many whole sentences from the beginning as fit, or words, if not even one does."""
    if len(text) <= longest and fits(text):
        return text
    head = text[:longest]
    for ends in (_SENTENCE_END, _WORD_END):
        if cut := _longest(head, [found.end() for found in ends.finditer(head)], fits):
            return cut
    return _longest(head, range(1, len(head) + 1), fits)


def _longest(text: str, ends: Sequence[int], fits: Callable[[str], bool]) -> str:
    """Return the longest beginning of a text that fits and stops at one of the ends, found by halving; each is made when it is tried."""
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
