"""Turn a query into the lexical vector that is searched for, with what the book's vocabulary says of its words."""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from recto.search.analyzer import PART_MARK, STOP_WORDS, query_words, stem, term_id, word_terms
from recto.search.lexicon import Lexicon
from recto.types import SparseVector

_KEYWORDS = 2  # a query of so few words is a search for these very words
_OTHER_FORM, _OTHER_FORM_OF_KEYWORD = (
    0.8,
    0.5,
)  # what another form of a word counts for, against the word as asked
_SHORTEST, _SHORTEST_FOR_TWO_EDITS = 4, 9  # letters of a word that is corrected
_HALF_KNOWN = 0.5  # what a compound of known parts counts for among the known words
_PART = 0.25  # what the parts of an identifier count for where the book has the whole
WEIGHT, KEYWORD_WEIGHT, SINGLE_WORD_WEIGHT = 0.1, 0.3, 0.8
"""The weight of the lexical score beside a cosine similarity: of a sentence, of one or two words, of one word alone (decision 11)."""

COMMON_WORDS = Path(__file__).with_name("common-words.bin")
"""The term ids of common English words; made by `scripts/make_common_words.py`."""
_COMMON = 0.3  # what a common English word that the book does not have counts for among the unknown words

Corrections = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class QueryWord:
    """A word of a query: how rare it is in the book (its inverse document frequency), and the terms of a chunk that match it."""

    word: str
    rarity: float
    terms: frozenset[str]


@dataclass(frozen=True, slots=True)
class LexicalQuery:
    """A query for lexical search: its vector, the words that count, and how much of it the book's vocabulary knows.

    `known` is the share of the words that the book has, rare words counting more. `weight` is what the lexical score counts for beside
    the cosine similarity. `text` is the query with its corrections, which hybrid search embeds.
    """

    vector: SparseVector
    words: tuple[QueryWord, ...]
    corrections: Corrections
    known: float
    weight: float
    text: str


def analyze_query(text: str, lexicon: Lexicon) -> LexicalQuery:
    """Expand the words of a query to the forms that the book has; correct those that it does not have."""
    words = query_words(text)
    typed = len(text.split())
    keywords = typed <= _KEYWORDS
    weights: dict[str, float] = {}
    analyzed: list[QueryWord] = []
    corrections: list[tuple[str, tuple[str, ...]]] = []
    known = total = 0.0
    for word in words:
        terms = word_terms(word)
        whole = lexicon.forms(terms[0])
        rarity = lexicon.idf(min(lexicon.chunks, sum(whole.values())))
        if not whole and is_common(terms[0]):
            rarity *= _COMMON
        total += rarity
        if whole:
            known += rarity
            shares = dict.fromkeys(terms[1:], _PART) | {terms[0]: 1.0}
        elif nearest := _corrections(terms[0], lexicon, keywords):
            corrections.append((word, nearest))
            known += rarity
            shares = dict.fromkeys(nearest, 1.0)
        else:
            shares = dict.fromkeys((term.removeprefix(PART_MARK) for term in terms[1:]), 1.0)
            known += _HALF_KNOWN * rarity * any(map(lexicon.forms, shares))
        matching: set[str] = set()
        for term, share in shares.items():
            for form, weight in _form_weights(term.removeprefix(PART_MARK), lexicon, keywords).items():
                weights[form] = max(weights.get(form, 0.0), share * weight)
                matching.add(form)
        analyzed.append(QueryWord(word, rarity, frozenset(matching)))
    vector = {term_id(term): weight for term, weight in weights.items()}
    return LexicalQuery(
        SparseVector(tuple(vector), tuple(vector.values())),
        tuple(analyzed),
        tuple(corrections),
        known / total if total else 0.0,
        SINGLE_WORD_WEIGHT if typed == 1 else KEYWORD_WEIGHT if keywords else WEIGHT,
        _corrected(text, corrections),
    )


def _corrected(text: str, corrections: Iterable[tuple[str, tuple[str, ...]]]) -> str:
    """Return the text with the nearest word of the book in place of each word that was corrected."""
    for word, nearest in corrections:
        text = text.replace(word, nearest[0])
    return text


def is_common(word: str) -> bool:
    """Whether a word, or what is left of it without its ending, is common English."""
    known = _common_words()
    for form in (word, stem(word), f"{stem(word)}e"):
        place = bisect_left(known, id := term_id(form))
        if place < len(known) and known[place] == id:
            return True
    return False


@cache
def _common_words() -> array[int]:
    found = array("I", COMMON_WORDS.read_bytes())
    if sys.byteorder == "big":
        found.byteswap()
    return found


def _corrections(word: str, lexicon: Lexicon, keywords: bool) -> tuple[str, ...]:
    """Return the words that an unknown one may have been meant for; in a sentence, an English word or a number is meant as it is."""
    if (
        len(word) < _SHORTEST
        or word.isnumeric()
        or (not keywords and (is_common(word) or not word.isalpha()))
    ):
        return ()
    return lexicon.nearest(word, 2 if len(word) >= _SHORTEST_FOR_TWO_EDITS else 1)


def _form_weights(term: str, lexicon: Lexicon, keywords: bool) -> dict[str, float]:
    """Weigh the forms of a term so that each counts as rare as all of them together; a keyword counts as rare as it is itself."""
    forms = lexicon.forms(term)
    shared = lexicon.idf(min(lexicon.chunks, sum(forms.values())))
    other = _OTHER_FORM_OF_KEYWORD if keywords else _OTHER_FORM
    weights = {}
    for form, count in forms.items():
        if form == term:
            weights[form] = 1.0 if keywords else shared / lexicon.idf(count)
        elif form not in STOP_WORDS:
            weights[form] = other * shared / lexicon.idf(count)
    return weights
