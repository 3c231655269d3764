"""Find the words of a chunk that match a query, and cut a snippet around the best of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from recto.search.analyzer import PART_MARK, STOP_WORDS, query_words, stem, tokens, word_terms
from recto.search.lexical import LexicalQuery, QueryWord

SNIPPET = 200
"""The length of a snippet, in characters."""
ELLIPSIS = "…"
_REPEATED = 0.1  # what a second match of the same word counts for, against the first
_BEFORE = 0.35  # the share of the free room that is left before the first match
_MARKUP = re.compile(r"\|+|:?-{2,}:?|#{1,6}|(?:```|~~~|:::).*")
"""A word of Markdown that says nothing to a reader of a snippet: a table's bars and rules, a heading's signs, a fence."""

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Match:
    """A word of a text that matches a word of the query, which is given by its place in the query."""

    start: int
    end: int
    word: int


@dataclass(frozen=True, slots=True)
class Snippet:
    """A part of a text on one line, and the spans of it that match the query."""

    text: str
    spans: tuple[Span, ...] = ()


def words_to_match(query: str, lexical: LexicalQuery | None) -> tuple[QueryWord, ...]:
    """Return the words of a query that are looked for in a text; without a vocabulary, all words count the same."""
    if lexical is not None:
        return lexical.words
    return tuple(QueryWord(word, 1.0, frozenset(word_terms(word))) for word in query_words(query))


def find_matches(text: str, words: Sequence[QueryWord]) -> list[Match]:
    """Return the words of a text that match a query, in order: those with a matching term, or with the same stem."""
    if not words:
        return []
    exact = {term: place for place, word in reversed(list(enumerate(words))) for term in word.terms}
    stems = {stem(term.removeprefix(PART_MARK)): place for term, place in exact.items()}
    matches = []
    for token in tokens(text):
        place = next((exact[term] for term in token.terms if term in exact), None)
        if place is None and token.terms[0] not in STOP_WORDS:
            place = next((stems[found] for found in _stems(token.terms) if found in stems), None)
        if place is not None:
            matches.append(Match(token.start, token.end, place))
    return matches


def matched_words(text: str, words: Sequence[QueryWord]) -> tuple[str, ...]:
    """Return the distinct words of a text that match a query, as they are written there."""
    found: dict[str, str] = {}
    for match in find_matches(text, words):
        word = text[match.start : match.end]
        found.setdefault(word.lower(), word)
    return tuple(found.values())


def found_words(text: str, words: Sequence[QueryWord]) -> tuple[str, ...]:
    """Return those words of a query that a text has, as they were asked."""
    places = {match.word for match in find_matches(text, words)}
    return tuple(word.word for place, word in enumerate(words) if place in places)


def make_snippet(text: str, words: Sequence[QueryWord], length: int = SNIPPET) -> Snippet:
    """Return the part of a text with the most and rarest matches, cut between words; without a match, its beginning."""
    flat = " ".join(part for part in text.split() if not _MARKUP.fullmatch(part))
    matches = find_matches(flat, words)
    begin, end = _window(flat, _cluster(matches, words, length), length)
    before, after = ELLIPSIS if begin else "", ELLIPSIS if end < len(flat) else ""
    shift = len(before) - begin
    spans = [
        (match.start + shift, match.end + shift)
        for match in matches
        if begin <= match.start and match.end <= end
    ]
    return Snippet(f"{before}{flat[begin:end]}{after}", tuple(spans))


def _cluster(matches: Sequence[Match], words: Sequence[QueryWord], length: int) -> Span:
    """Return the span of the neighbouring matches that count most together and fit into a snippet."""
    best, span = 0.0, (0, 0)
    for first, match in enumerate(matches):
        seen: set[int] = set()
        value, end = 0.0, match.end
        for other in matches[first:]:
            if other is not match and other.end - match.start > length:
                break
            rarity = words[other.word].rarity
            value += _REPEATED * rarity if other.word in seen else rarity
            seen.add(other.word)
            end = other.end
            if value > best:
                best, span = value, (match.start, end)
    return span


def _window(text: str, cluster: Span, length: int) -> Span:
    """Widen a cluster to the length of a snippet, with more room behind it than before it, and cut between words.

    Only a word that is far too long for a snippet is cut itself.
    """
    begin, end = text.rfind(" ", 0, cluster[0]) + 1, text.find(" ", cluster[1])
    end = len(text) if end < 0 else end
    if end - begin > 2 * length:
        begin, end = cluster
    start = max(0, min(begin - int(max(0, length - (end - begin)) * _BEFORE), len(text) - length))
    stop = max(end, min(len(text), start + length))
    if start and text[start - 1] != " ":
        start = text.find(" ", start, begin) + 1 or begin
    if stop < len(text) and text[stop] != " ":
        stop = max(text.rfind(" ", end, stop), end) or stop
    return start, stop


@lru_cache(maxsize=16_384)
def _stems(terms: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(stem(term.removeprefix(PART_MARK)) for term in terms))
