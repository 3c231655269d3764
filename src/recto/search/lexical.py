"""Lexical search: the BM25 vectors of chunks, the vocabulary of an index, the analysis of queries."""

from __future__ import annotations

import math
import struct
import sys
from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from pathlib import Path

from recto.protocols import Index
from recto.search.analyzer import (
    ANALYZER,
    PART_MARK,
    STOP_WORDS,
    query_words,
    stem,
    term_id,
    text_terms,
    word_terms,
)
from recto.settings import LEXICAL_WEIGHT, index_command
from recto.types import Chunk, IndexInfo, SparseVector

_MAGIC = b"RECTOLX1"
_HEADER = struct.Struct("<8sII")  # magic, number of chunks, number of rows
# The parameters of BM25. The average length is fixed, so that a new page does not change other vectors.
_K1, _B, _AVERAGE_LENGTH = 1.2, 0.75, 100
BM25 = {"k1": _K1, "b": _B, "average": _AVERAGE_LENGTH}
_MAX_CORRECTIONS = 3
_PREFIX = 3  # letters; words with the same prefix are neighbours in the vocabulary
_MAX_SCANNED = 5_000  # rows that are compared for one correction
_LETTERS = "abcdefghijklmnopqrstuvwxyz_"
Forms = dict[str, int]
"""The terms that are forms of one word, with the number of chunks that contain each."""

KEYWORD_WEIGHT, SINGLE_WORD_WEIGHT = 0.3, 0.8
"""The least weights of the lexical score in hybrid search for queries of two words and of one word."""
_MAX_KEYWORDS = 2  # a query of so few words is a search for exactly these words
_FORM_WEIGHT, _KEYWORD_FORM_WEIGHT = 0.8, 0.5  # of another form of a query word; the word itself has 1
_PART_WEIGHT = 0.25  # of the parts of an identifier, if the book has the whole identifier
_KNOWN_PARTS = 0.5  # how far a compound counts as known if the book has only its parts
_COMMON_WEIGHT = 0.3  # how far a common English word counts that the book does not have
_MIN_CORRECTED, _MIN_TWO_EDITS = 4, 9  # letters of words that are corrected, by one edit or by two
COMMON_WORDS = Path(__file__).with_name("common-words.bin")
"""The sorted term ids of common English words; made by `scripts/make_common_words.py`."""


def analyzed_text(chunk: Chunk) -> str:
    """Return the text of a chunk that lexical search analyses."""
    return f"{chunk.heading_path}\n\n{chunk.text}"


class LexiconBuilder:
    """Makes the lexical vectors of chunks, and the vocabulary of all of them."""

    def __init__(self) -> None:
        self._chunks = 0
        self._counts: Counter[str] = Counter()

    def vectors(self, chunks: Iterable[Chunk]) -> list[SparseVector]:
        """Return the BM25 weights of the terms of chunks; the engine multiplies them by the IDF."""
        return [self._vector(text_terms(analyzed_text(chunk))) for chunk in chunks]

    def merge(self, other: LexiconBuilder) -> None:
        """Add the vocabulary of other chunks."""
        self._chunks += other._chunks
        self._counts.update(other._counts)

    def _vector(self, terms: Counter[str]) -> SparseVector:
        self._chunks += 1
        self._counts.update(terms.keys())
        length = _K1 * (1 - _B + _B * terms.total() / _AVERAGE_LENGTH)
        weights = {term_id(term): count * (_K1 + 1) / (count + length) for term, count in terms.items()}
        return SparseVector(tuple(weights), tuple(weights.values()))

    def to_bytes(self) -> bytes:
        """Return the vocabulary of all chunks so far: a row per stem, with its forms and their counts."""
        forms: defaultdict[str, list[str]] = defaultdict(list)
        for term in sorted(self._counts):
            forms[stem(term.removeprefix(PART_MARK))].append(f"{term}\t{self._counts[term]}")
        rows = sorted("\t".join((word, *found)).encode() for word, found in forms.items())
        offsets = array("I", [0])
        for row in rows:
            offsets.append(offsets[-1] + len(row))
        return _HEADER.pack(_MAGIC, self._chunks, len(rows)) + offsets.tobytes() + b"".join(rows)


class Lexicon:
    """A vocabulary for reading; it looks words up by bisection, so that opening it is fast."""

    def __init__(self, data: bytes) -> None:
        """Read the result of `LexiconBuilder.to_bytes`; raise `ValueError` if it is something else."""
        if len(data) < _HEADER.size or not data.startswith(_MAGIC):
            raise ValueError("not a vocabulary")
        _, chunks, size = _HEADER.unpack_from(data)
        self.chunks, self._size = int(chunks), int(size)
        start = _HEADER.size + 4 * (self._size + 1)
        self._offsets = array("I")
        self._offsets.frombytes(data[_HEADER.size : start])
        self._rows = data[start:]
        if len(self._offsets) != self._size + 1 or self._offsets[-1] != len(self._rows):
            raise ValueError("the vocabulary is damaged")
        self.forms = lru_cache(maxsize=4096)(self._forms)
        self.analyze_word = lru_cache(maxsize=4096)(partial(_analyze_word, self))
        self.nearest = lru_cache(maxsize=512)(self._nearest)

    def idf(self, count: int) -> float:
        """Return the inverse document frequency of a term in so many chunks, as the engine computes it."""
        return math.log((self.chunks - count + 0.5) / (count + 0.5) + 1)

    def shared_idf(self, forms: Forms) -> float:
        """Return the inverse document frequency of a word that has several forms."""
        return self.idf(min(self.chunks, sum(forms.values())))

    def _forms(self, word: str) -> Forms:
        """Return all forms of a word that the book has."""
        key = stem(word).encode()
        row = self._bisect(key)
        return self._read(row) if row < self._size and self._row(row).startswith(key + b"\t") else {}

    def _nearest(self, word: str, edits: int = 1) -> tuple[str, ...]:
        """Return the words of the book that are nearest to a misspelled one, at most so many edits away."""
        found = {
            other: count
            for other, count in self._similar(word, word[:_PREFIX])
            if _distance(word, other) == 1
        }
        for edit in _edits(word, _PREFIX):
            if count := self._forms(edit).get(edit):
                found[edit] = count
        if not found and edits > 1:
            similar = self._similar(word, word[: _PREFIX - 1], edits)
            found = {other: count for other, count in similar if _distance(word, other) <= edits}
        ranked = sorted(found, key=lambda other: (other[0] != word[0], -found[other], other))
        return tuple(ranked[:_MAX_CORRECTIONS])

    def _similar(self, word: str, prefix: str, edits: int = 1) -> Iterator[tuple[str, int]]:
        """Yield the words with a prefix that are about as long as a word, with their counts."""
        key = prefix.encode()
        first = self._bisect(key)
        for row in range(first, min(self._size, first + _MAX_SCANNED)):
            if not self._row(row).startswith(key):
                break
            for other, count in self._read(row).items():
                if abs(len(other) - len(word)) <= edits and not other.startswith(PART_MARK):
                    yield other, count

    def _read(self, row: int) -> Forms:
        fields = self._row(row).decode().split("\t")
        return dict(zip(fields[1::2], map(int, fields[2::2]), strict=True))

    def _bisect(self, key: bytes) -> int:
        return bisect_left(range(self._size), key, key=self._row)

    def _row(self, row: int) -> bytes:
        return self._rows[self._offsets[row] : self._offsets[row + 1]]


def read_lexicon(index: Index) -> Lexicon | None:
    """Return the vocabulary of an index, or None if this version cannot search the index lexically."""
    fingerprint = index.info.fingerprint
    if fingerprint is None or fingerprint.analyzer != ANALYZER:
        return None
    try:
        return Lexicon(index.lexicon())
    except ValueError:
        return None


def other_analyzer(info: IndexInfo) -> str:
    """Return why an index is searched in dense mode and what to do, or "" if its analysis is this one."""
    made = info.fingerprint
    if made is None or made.analyzer == ANALYZER:
        return ""
    reason = f"with another lexical analysis ({made.analyzer})" if made.analyzer else "without lexical search"
    return (
        f"The index of '{info.collection}' was made {reason}, so it is searched in dense mode. "
        f"For hybrid search, run `{index_command(info.collection, made.source)}`."
    )


@dataclass(frozen=True, slots=True)
class QueryWord:
    """A word of a query, its inverse document frequency in the book, and the terms that match it."""

    word: str
    idf: float
    terms: frozenset[str]


@dataclass(frozen=True, slots=True)
class _AnalyzedWord:
    """What one word adds to a query: its known IDF, its corrections, and its terms with weights and IDFs."""

    word: QueryWord
    known: float
    nearest: tuple[str, ...]
    weights: dict[int, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class LexicalQuery:
    """A query for lexical search.

    `known` is the share of the query's words that the book has, weighted by IDF. `weight` is the weight of
    the lexical score in hybrid search. `text` is the query with its corrections, which hybrid search embeds.
    """

    vector: SparseVector
    words: tuple[QueryWord, ...]
    corrections: tuple[tuple[str, tuple[str, ...]], ...]
    known: float
    weight: float
    text: str


def hybrid_weight(query: str, weight: float) -> float:
    """Return the weight of the lexical score in hybrid search; short queries have a larger one."""
    words = len(query.split())
    least = SINGLE_WORD_WEIGHT if words == 1 else KEYWORD_WEIGHT if words <= _MAX_KEYWORDS else 0.0
    return max(weight, least)


def analyze_query(text: str, lexicon: Lexicon, lexical_weight: float = LEXICAL_WEIGHT) -> LexicalQuery:
    """Expand the words of a query to the forms that the book has, and correct those that it does not have."""
    keywords = len(text.split()) <= _MAX_KEYWORDS
    weights: dict[int, tuple[float, float]] = {}
    analyzed: list[QueryWord] = []
    corrections: list[tuple[str, tuple[str, ...]]] = []
    corrected = text
    known = total = 0.0
    for word in query_words(text):
        found = lexicon.analyze_word(word, keywords)
        total += found.word.idf
        known += found.known
        analyzed.append(found.word)
        if found.nearest:
            corrections.append((word, found.nearest))
            corrected = corrected.replace(word, found.nearest[0])
        for id, weight in found.weights.items():
            weights[id] = max(weights.get(id, weight), weight)
    values, idf = zip(*weights.values(), strict=True) if weights else ((), ())
    return LexicalQuery(
        SparseVector(tuple(weights), values, idf),
        tuple(analyzed),
        tuple(corrections),
        known / total if total else 0.0,
        hybrid_weight(text, lexical_weight),
        corrected,
    )


def _analyze_word(lexicon: Lexicon, word: str, keywords: bool) -> _AnalyzedWord:
    terms = word_terms(word)
    whole = lexicon.forms(terms[0])
    idf = lexicon.shared_idf(whole)
    if not whole and is_common(terms[0]):
        idf *= _COMMON_WEIGHT
    nearest: tuple[str, ...] = ()
    if whole:
        known = idf
        shares = dict.fromkeys(terms[1:], _PART_WEIGHT) | {terms[0]: 1.0}
    elif nearest := _corrections(terms[0], lexicon, keywords):
        known = idf
        shares = dict.fromkeys(nearest, 1.0)
    else:
        shares = dict.fromkeys((term.removeprefix(PART_MARK) for term in terms[1:]), 1.0)
        known = _KNOWN_PARTS * idf * any(map(lexicon.forms, shares))
    weights: dict[str, tuple[float, float]] = {}
    for term, share in shares.items():
        for form, (weight, own) in _form_weights(term.removeprefix(PART_MARK), lexicon, keywords).items():
            weights[form] = max(weights.get(form, (0.0, own)), (share * weight, own))
    return _AnalyzedWord(
        QueryWord(word, idf, frozenset(weights)),
        known,
        nearest,
        {term_id(term): weight for term, weight in weights.items()},
    )


def is_common(word: str) -> bool:
    """Return whether a word or its stem is common English."""
    known = common_words()
    for form in (word, stem(word), f"{stem(word)}e"):
        position = bisect_left(known, id := term_id(form))
        if position < len(known) and known[position] == id:
            return True
    return False


@cache
def common_words() -> array[int]:
    """Return the sorted term ids of common English words."""
    ids = array("I", COMMON_WORDS.read_bytes())
    if sys.byteorder == "big":
        ids.byteswap()
    return ids


def _corrections(word: str, lexicon: Lexicon, keywords: bool) -> tuple[str, ...]:
    """Return corrections of an unknown word; in sentences, not of English words and identifiers."""
    if len(word) < _MIN_CORRECTED or word.isnumeric():
        return ()
    if not keywords and (is_common(word) or not word.isalpha()):
        return ()
    return lexicon.nearest(word, 2 if len(word) >= _MIN_TWO_EDITS else 1)


def _form_weights(term: str, lexicon: Lexicon, keywords: bool) -> dict[str, tuple[float, float]]:
    """Return the weights and IDFs of the forms of a term.

    The product is the IDF of all forms together; a keyword keeps its own IDF.
    """
    forms = lexicon.forms(term)
    shared = lexicon.shared_idf(forms)
    other = _KEYWORD_FORM_WEIGHT if keywords else _FORM_WEIGHT
    weights = {}
    for form, count in forms.items():
        own = lexicon.idf(count)
        if form == term:
            weights[form] = (1.0 if keywords else shared / own, own)
        elif form not in STOP_WORDS:
            weights[form] = (other * shared / own, own)
    return weights


def _edits(word: str, positions: int) -> Iterator[str]:
    """Yield every string that is one edit within the first positions away from a word."""
    for position in range(positions):
        before, after = word[:position], word[position:]
        yield before + after[1:]
        yield before + after[1:2] + after[:1] + after[2:]
        for letter in _LETTERS:
            yield before + letter + after[1:]
            yield before + letter + after


def _distance(one: str, other: str) -> int:
    """Return the edit distance of two words; swapping two adjacent letters counts as one edit."""
    while one and other and one[0] == other[0]:
        one, other = one[1:], other[1:]
    while one and other and one[-1] == other[-1]:
        one, other = one[:-1], other[:-1]
    before: Sequence[int] = ()
    row: Sequence[int] = range(len(other) + 1)
    for place, letter in enumerate(one, 1):
        earlier, before, current = before, row, [place]
        for column, target in enumerate(other, 1):
            cost = min(before[column] + 1, current[-1] + 1, before[column - 1] + (letter != target))
            if column > 1 and place > 1 and letter == other[column - 2] and one[place - 2] == target:
                cost = min(cost, earlier[column - 2] + 1)
            current.append(cost)
        row = current
    return row[-1]
