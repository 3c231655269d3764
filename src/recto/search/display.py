"""What all entry points show of a response besides its values: snippets, matched words, corrections."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from recto._util.languages import is_between_characters
from recto.search.analyzer import is_stop_word, is_unspaced, query_words, word_spans, word_terms
from recto.search.lexical import LexicalQuery, QueryWord, visible_text
from recto.search.markdown import plain_text
from recto.types.request import MAX_QUERY
from recto.types.search import Chunk, Hit, SearchResponse

if TYPE_CHECKING:
    from recto.search.retriever import Retriever

NOT_COVERED = "The book does not seem to cover this."
UNCLEAR = "It is unclear whether the book covers this."
WEAK_SHOWN = 3
"""How many hits are shown if the book does not seem to cover the query."""
SNIPPET = 200
"""The length of a snippet, in characters."""
ELLIPSIS = "…"
_REPEATED_WEIGHT = 0.1  # of a second match of the same word; the first has 1
_SHARE_BEFORE = 0.35  # of the free space of a snippet, before the first match
SNIPPET_RULES = {"length": SNIPPET, "repeated": _REPEATED_WEIGHT, "before": _SHARE_BEFORE}

Span = tuple[int, int]


class Match(NamedTuple):
    """A part of a text that matches a query word; `word` is the word's position in the query."""

    start: int
    end: int
    word: int


class Snippet(NamedTuple):
    """A part of a text on one line, and the spans of it that match the query."""

    text: str
    spans: tuple[Span, ...] = ()


def is_weak(hit: Hit, response: SearchResponse) -> bool:
    """Return whether a hit probably does not answer the query."""
    return not response.covered or response.above_noise(hit) is False


def corrections_of(response: SearchResponse) -> list[str]:
    """Return a sentence for each query word that the book does not have."""
    return [
        f'"{word}" is not in the book. Searched for {_either(meant)}.' for word, meant in response.corrections
    ]


def _either(words: Sequence[str]) -> str:
    quoted = [f'"{word}"' for word in words]
    return " or ".join(filter(None, (", ".join(quoted[:-1]), quoted[-1])))


def response_to_dict(
    response: SearchResponse, words: Sequence[QueryWord] = (), digits: int = 6
) -> dict[str, Any]:
    """Return `response.to_dict()`; each result also has its snippet, and its words that match the query."""
    data = response.to_dict(digits)
    for result, hit in zip(data["results"], response.hits, strict=True):
        result["snippet"] = make_snippet(hit.chunk.text, words).text
        result["matches"] = list(chunk_matches(hit.chunk, words))
    return data


def pick(values: Mapping[str, Any], fields: Iterable[str]) -> dict[str, Any]:
    """Return some fields of a dictionary, in the given order."""
    return {name: values[name] for name in fields}


def response_words(retriever: Retriever, response: SearchResponse) -> tuple[QueryWord, ...]:
    """Return the query words to mark in the hits; none for a selected text without a question."""
    if response.selection is not None and response.query == response.selection.text:
        return ()
    query = response.query[:MAX_QUERY]
    return words_to_match(query, retriever.analyze(query))


def words_to_match(query: str, lexical: LexicalQuery | None) -> tuple[QueryWord, ...]:
    """Return the words of a query to look for in a text; without a vocabulary, all have the same weight."""
    if lexical is not None:
        return lexical.words
    return tuple(QueryWord(word, 1.0, word_terms(word)) for word in query_words(query))


def find_matches(text: str, words: Sequence[QueryWord]) -> list[Match]:
    """Return the words of a text that share a term with a query word, in order."""
    if not words:
        return []
    language, numbers = words[0].language, _matching_words(tuple(words))
    spans = word_spans(text, language)
    return [
        Match(start, end, number) for start, end in spans if (number := numbers[text[start:end]]) is not None
    ]


class _MatchingWords(dict[str, int | None]):
    """For each word of a text, the position of the query word that it matches, or None."""

    def __init__(self, words: Sequence[QueryWord]) -> None:
        self._language = words[0].language
        self._positions = {
            term: number for number, word in reversed(list(enumerate(words))) for term in word.terms
        }

    def __missing__(self, word: str) -> int | None:
        terms = word_terms(word, self._language)
        matching = [self._positions[term] for term in terms if term in self._positions]
        # A single character of a pair is no match to show, nor is a part of a stop word.
        is_match = matching and (terms[0] in self._positions or not _needs_whole(word, self._language))
        self[word] = matching[0] if is_match else None
        return self[word]


_matching_words = lru_cache(maxsize=8)(_MatchingWords)  # a query is compared with the words of many hits


def _needs_whole(word: str, language: str) -> bool:
    return is_stop_word(word, language) or is_unspaced(word)


def _merged(text: str, matches: Iterable[Match]) -> list[Span]:
    """Join matches that overlap: pairs of characters of the same word, with the marks of the letters."""
    spans: list[Span] = []
    for match in matches:
        start, end = _whole_characters(text, match.start, match.end)
        if spans and start < spans[-1][1]:
            spans[-1] = spans[-1][0], end
        else:
            spans.append((start, end))
    return spans


def _whole_characters(text: str, start: int, end: int) -> Span:
    """Extend a span so that it separates no mark from its letter."""
    while not is_between_characters(text, start):
        start -= 1
    while not is_between_characters(text, end):
        end += 1
    return start, end


def matched_words(text: str, words: Sequence[QueryWord]) -> tuple[str, ...]:
    """Return the distinct words of a text that match a query, as the text spells them."""
    spellings: dict[str, str] = {}
    for start, end in _merged(text, find_matches(text, words)):
        word = text[start:end]
        spellings.setdefault(word.lower(), word)
    return tuple(spellings.values())


def matched_query_words(text: str, words: Sequence[QueryWord]) -> tuple[str, ...]:
    """Return the words of a query that a text contains, as the query spells them."""
    positions = {match.word for match in find_matches(text, words)}
    return tuple(word.word for position, word in enumerate(words) if position in positions)


def chunk_matches(chunk: Chunk, words: Sequence[QueryWord]) -> tuple[str, ...]:
    """Return the distinct words of a chunk's headings and text that match a query."""
    return matched_words(visible_text(chunk), words)


def make_snippet(text: str, words: Sequence[QueryWord], length: int = SNIPPET) -> Snippet:
    """Return the part of a text with the most and rarest matches, or its beginning if nothing matches."""
    flat = " ".join(plain_text(text).split())
    matches = find_matches(flat, words)
    start, end = _window(flat, _best_cluster(matches, words, length), length)
    before, after = ELLIPSIS if start else "", ELLIPSIS if end < len(flat) else ""
    shift = len(before) - start
    spans = [
        (first + shift, last + shift)
        for first, last in _merged(
            flat, (match for match in matches if start <= match.start and match.end <= end)
        )
    ]
    return Snippet(f"{before}{flat[start:end]}{after}", tuple(spans))


def _best_cluster(matches: Sequence[Match], words: Sequence[QueryWord], length: int) -> Span:
    """Return the span of the neighbouring matches that fit into a snippet and have the largest weight."""
    best, span = 0.0, (0, 0)
    for first, match in enumerate(matches):
        seen: set[int] = set()
        weight = 0.0
        for other in matches[first:]:
            if other is not match and other.end - match.start > length:
                break
            idf = words[other.word].idf
            weight += _REPEATED_WEIGHT * idf if other.word in seen else idf
            seen.add(other.word)
            if weight > best:
                best, span = weight, (match.start, other.end)
    return span


def _window(text: str, cluster: Span, length: int) -> Span:
    """Extend a cluster to the length of a snippet, and cut between words.

    Only a word that is much longer than a snippet is cut itself.
    """
    begin, end = text.rfind(" ", 0, cluster[0]) + 1, text.find(" ", cluster[1])
    end = len(text) if end < 0 else end
    if end - begin > 2 * length:
        begin, end = cluster
    start = max(0, min(begin - int(max(0, length - (end - begin)) * _SHARE_BEFORE), len(text) - length))
    stop = max(end, min(len(text), start + length))
    if start and text[start - 1] != " ":
        start = text.find(" ", start, begin) + 1 or (start if is_unspaced(text[start]) else begin)
    if stop < len(text) and text[stop] != " ":
        space = text.rfind(" ", end, stop)
        stop = space if space > 0 else stop if is_unspaced(text[stop]) else end or stop
    return _whole_characters(text, start, stop)
