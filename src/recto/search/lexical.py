"""Lexical search: the BM25 vectors of chunks, the vocabulary of an index, the analysis of queries."""

from __future__ import annotations

import math
import struct
import sys
from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from recto._util.languages import ENGLISH, UNSPACED_LANGUAGES, detect_language
from recto.protocols import Embedder, Index, embedder_abilities
from recto.search.analyzer import (
    EXACT_MARK,
    SEARCHABLE,
    count_words,
    exact_term,
    has_unspaced,
    is_stop_word,
    is_unspaced,
    query_words,
    stem,
    term_id,
    word_forms,
    word_terms,
)
from recto.types.index import IndexInfo, SparseVector
from recto.types.search import LEXICAL_WEIGHT, Chunk

Value = TypeVar("Value")
_MAGIC = b"RECTOLX2"
_HEADER = struct.Struct("<8sII")  # magic, number of chunks, number of rows
# The parameters of BM25. The average length is fixed, so that a new page does not change other vectors.
_K1, _B, _AVERAGE_LENGTH = 1.2, 0.75, 100
BM25 = {"k1": _K1, "b": _B, "average": _AVERAGE_LENGTH}
_MAX_CORRECTIONS = 3
_PREFIX = 3  # letters; words with the same prefix are neighbours in the vocabulary
_MAX_SCANNED = 5_000  # rows that are compared for one correction
_MIN_OTHER_CORRECTED = 8  # letters of words that are not English, which have no list of common words
_LANGUAGE_MARK = "@"  # the prefix of terms that count the chunks of a language other than English
_MIN_STOP_WORDS = 2  # of another language, in a query of ASCII letters that is in this language
_LANGUAGE_SHARE = 0.1  # of the chunks of a book that its languages have
# The least weight of the lexical score in languages that the embedding model does not know (decision 18).
_OTHER_WEIGHT, _UNSPACED_WEIGHT = 1.5, 3.0
_LETTERS = "abcdefghijklmnopqrstuvwxyz_"

SINGLE_WORD_WEIGHT = 1.0
"""The least weight of the lexical score in hybrid search for a single word, which readers expect to find."""
_KNOWN_PARTS = 0.5  # how far a compound counts as known if the book has only its parts
_COMMON_WEIGHT = 0.3  # how far a common English word counts that the book does not have
_MIN_CORRECTED, _MIN_TWO_EDITS = 4, 9  # letters of words that are corrected, by one edit or by two
CORRECTION_RULES = {
    "letters": _MIN_CORRECTED,
    "other_letters": _MIN_OTHER_CORRECTED,
    "two_edits": _MIN_TWO_EDITS,
    "prefix": _PREFIX,
    "alphabet": _LETTERS,
    "most": _MAX_CORRECTIONS,
}
QUERY_RULES = {"known_parts": _KNOWN_PARTS, "common_weight": _COMMON_WEIGHT}
COMMON_WORDS = Path(__file__).with_name("common-words.bin")
"""The sorted term ids of common English words; made by `scripts/make_common_words.py`."""


def visible_text(chunk: Chunk) -> str:
    """Return what readers see of a chunk: its headings and its text."""
    return f"{chunk.heading_path}\n\n{chunk.text}"


def analyzed_text(chunk: Chunk) -> str:
    """Return the text of a chunk that lexical search analyses: with its section questions."""
    return "\n\n".join((visible_text(chunk), *chunk.questions))


class LexiconBuilder:
    """Makes the lexical vectors of chunks, and the vocabulary of all of them."""

    def __init__(self) -> None:
        self._chunks = 0
        self._terms: Counter[str] = Counter()
        self._words: defaultdict[str, Counter[str]] = defaultdict(Counter)  # as written, by their language

    def vectors(self, chunks: Iterable[Chunk]) -> list[SparseVector]:
        """Return the BM25 weights of the terms of chunks; the engine multiplies them by the IDF."""
        return [
            self._vector(count_words(analyzed_text(chunk), language), language)
            for chunk in chunks
            for language in (chunk.language or ENGLISH,)
        ]

    def merge(self, other: LexiconBuilder) -> None:
        """Add the vocabulary of other chunks."""
        self._chunks += other._chunks
        self._terms.update(other._terms)
        for language, words in other._words.items():
            self._words[language].update(words)

    def _vector(self, words: Counter[str], language: str) -> SparseVector:
        terms, exact = count_terms(words, language)
        self._chunks += 1
        self._terms.update(terms.keys())
        if language != ENGLISH:
            self._terms[_LANGUAGE_MARK + language] += 1
        forms_of = _of_language(word_forms, language)
        self._words[language].update({form for word in words for form in forms_of(word)})
        length = _K1 * (1 - _B + _B * terms.total() / _AVERAGE_LENGTH)
        weights = {
            term_id(term): count * (_K1 + 1) / (count + length)
            for counted in (terms, exact)
            for term, count in counted.items()
        }
        return SparseVector(tuple(weights), tuple(weights.values()))

    def to_bytes(self) -> bytes:
        """Return the vocabulary of all chunks so far: a row per term, with its count and its words."""
        totals: Counter[tuple[str, str]] = Counter()  # words as written, after their terms
        for language, counts in self._words.items():
            for word, count in counts.items():
                totals[stem(word, language), word] += count
        words: defaultdict[str, list[str]] = defaultdict(list)
        for term, word in sorted(totals):
            words[term].append(f"{word}\t{totals[term, word]}")
        rows = sorted(
            "\t".join((term, str(count), *words[term])).encode() for term, count in self._terms.items()
        )
        offsets = array("I", [0])
        for row in rows:
            offsets.append(offsets[-1] + len(row))
        return _HEADER.pack(_MAGIC, self._chunks, len(rows)) + offsets.tobytes() + b"".join(rows)


def count_terms(words: Counter[str], language: str = ENGLISH) -> tuple[Counter[str], Counter[str]]:
    """Count the terms of words, and their exact terms, which do not add to the length of a chunk."""
    terms: Counter[str] = Counter()
    exact: Counter[str] = Counter()
    terms_of, forms_of = _of_language(word_terms, language), _of_language(word_forms, language)
    exact_of = _of_language(exact_term, language)
    for word, count in words.items():
        for term in terms_of(word):
            terms[term] += count
        for form in forms_of(word):
            if term := exact_of(form):
                exact[term] += count
    return terms, exact


def _of_language(analyze: Callable[..., Value], language: str) -> Callable[[str], Value]:
    """Return a function of the analyser for one language; English is its default, and faster without it."""
    return analyze if language == ENGLISH else lambda word: analyze(word, language)


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
        self.languages = self._read_languages()
        self.count = lru_cache(maxsize=4096)(self._count)
        self.analyze_word = lru_cache(maxsize=4096)(partial(_analyze_word, self))
        self.nearest = lru_cache(maxsize=512)(self._nearest)

    def _read_languages(self) -> dict[str, int]:
        """Return the languages that at least a tenth of the chunks have, the most frequent first."""
        key, counts = _LANGUAGE_MARK.encode(), {}
        row = bisect_left(range(self._size), key, key=self._row)
        while row < self._size and self._row(row).startswith(key):
            language, count = self._row(row).decode().split("\t")[:2]
            counts[language.removeprefix(_LANGUAGE_MARK)] = int(count)
            row += 1
        counts[ENGLISH] = self.chunks - sum(counts.values())
        ranked = sorted(counts.items(), key=lambda pair: -pair[1])
        return {language: count for language, count in ranked if count >= _LANGUAGE_SHARE * self.chunks}

    def language_of(self, query: str) -> str:
        """Return the language of the book in which to analyse a query: the one with most of its words."""
        languages = list(self.languages) or [ENGLISH]
        if len(languages) > 1 and not query.isascii():  # an English query has no other letters
            languages = [language for language in languages if language != ENGLISH]
        words = query.split()
        return max(languages, key=lambda language: sum(is_stop_word(word, language) for word in words))

    def foreign_language(self, query: str) -> str:
        """Return the language of a query that is in none of the book's languages, or an empty tag."""
        words, least = query.split(), _MIN_STOP_WORDS if query.isascii() else 1
        others = [language for language in self.languages if language != ENGLISH]
        if len(words) < least or any(is_stop_word(word, one) for word in words for one in others):
            return ""
        language = detect_language(query, least)
        return "" if language in self.languages else language

    def idf(self, term: str) -> float:
        """Return the inverse document frequency of a term, as the engine computes it."""
        count = self.count(term)
        return math.log((self.chunks - count + 0.5) / (count + 0.5) + 1)

    def words(self, term: str) -> dict[str, int]:
        """Return the words of the book that have a term as their stem, with their numbers of chunks."""
        row = self._find(term)
        return {} if row is None else self._read(row)

    def _count(self, term: str) -> int:
        """Count the chunks that have a term."""
        if term.startswith(EXACT_MARK):
            word = term.removeprefix(EXACT_MARK)
            languages = self.languages or (ENGLISH,)
            return max(self.words(stem(word, language)).get(word, 0) for language in languages)
        row = self._find(term)
        return 0 if row is None else int(self._row(row).split(b"\t", 2)[1])

    def _find(self, term: str) -> int | None:
        key = term.encode() + b"\t"
        row = bisect_left(range(self._size), key, key=self._row)
        return row if row < self._size and self._row(row).startswith(key) else None

    def _nearest(self, word: str, language: str = ENGLISH) -> tuple[str, ...]:
        """Return the words of the book that are nearest to a misspelled one, the most frequent first."""
        # Words with the same first letters are neighbours in the vocabulary, so they are compared one by one.
        # Other first letters would be anywhere: for them, each possible edit is looked up.
        similar = self._similar(word, word[:_PREFIX], 1)
        counts = {other: count for other, count in similar if _distance(word, other) == 1}
        for edit in _edits(word, _PREFIX):
            if count := self.words(stem(edit, language)).get(edit):
                counts[edit] = count
        if not counts and len(word) >= _MIN_TWO_EDITS and language == ENGLISH:
            similar = self._similar(word, word[: _PREFIX - 1], 2)
            counts = {other: count for other, count in similar if _distance(word, other) <= 2}
        ranked = sorted(counts, key=lambda other: (other[0] != word[0], -counts[other], other))
        return tuple(ranked[:_MAX_CORRECTIONS])

    def _similar(self, word: str, prefix: str, edits: int) -> Iterator[tuple[str, int]]:
        """Yield the words with a prefix that are about as long as a word, with their counts."""
        key = prefix.encode()
        first = bisect_left(range(self._size), key, key=self._row)
        for row in range(first, min(self._size, first + _MAX_SCANNED)):
            if not self._row(row).startswith(key):
                break
            for other, count in self._read(row).items():
                if abs(len(other) - len(word)) <= edits:
                    yield other, count

    def _read(self, row: int) -> dict[str, int]:
        fields = self._row(row).decode().split("\t")
        return dict(zip(fields[2::2], map(int, fields[3::2]), strict=True))

    def _row(self, row: int) -> bytes:
        return self._rows[self._offsets[row] : self._offsets[row + 1]]


def read_lexicon(index: Index) -> Lexicon | None:
    """Return the vocabulary of an index, or None if this version cannot search the index lexically."""
    fingerprint = index.info.fingerprint
    if fingerprint is None or fingerprint.analyzer not in SEARCHABLE:
        return None
    try:
        return Lexicon(index.lexicon())
    except ValueError:
        return None


def unknown_languages(lexicon: Lexicon, embedder: Embedder) -> str:
    """Return a note about the languages of a book that the model does not know, or "" if it knows all."""
    known = embedder_abilities(embedder).languages
    unknown = [f"'{language}'" for language in lexicon.languages if known and language not in known]
    if not unknown:
        return ""
    return (
        f"{'The book' if len(unknown) == len(lexicon.languages) else 'Part of the book'} is in "
        f"{' and '.join(unknown)}, and {embedder.fingerprint.model} knows only "
        f"{', '.join(known)}: it is searched by its words first. Set RECTO_MODEL to a multilingual model to "
        "search it by meaning, too."
    )


def other_analyzer(info: IndexInfo) -> str:
    """Return why an index is searched in dense mode and what to do, or "" if its analysis is this one."""
    from recto.settings import index_command

    fingerprint = info.fingerprint
    if fingerprint is None or fingerprint.analyzer in SEARCHABLE:
        return ""
    analyzer = fingerprint.analyzer
    reason = f"with another lexical analysis ({analyzer})" if analyzer else "without lexical search"
    command = index_command(info.collection, fingerprint.source, options=fingerprint.options)
    return (
        f"The index of '{info.collection}' was made {reason}, so it is searched in dense mode. "
        f"For hybrid search, run `{command}`."
    )


class QueryWord(NamedTuple):
    """A word of a query, its inverse document frequency in the book, and the terms that match it.

    `nearest` are the words of the book that are searched for instead of a misspelled one.
    """

    word: str
    idf: float
    terms: tuple[str, ...]
    nearest: tuple[str, ...] = ()
    known: float = 1.0
    language: str = ENGLISH


class LexicalQuery(NamedTuple):
    """A query for lexical search.

    The score of a chunk is the share of the largest BM25 score that any text can have. `known` is the share
    of the query's words that the book has, weighted by IDF. `weight` is the weight of the lexical score in
    hybrid search. `language` is the one of the book in which the query is analysed; `foreign` is the language
    of the query if the book does not have it.
    """

    vector: SparseVector
    words: tuple[QueryWord, ...]
    known: float
    weight: float
    language: str = ENGLISH
    foreign: str = ""

    @property
    def is_english(self) -> bool:
        """Whether the query is English and is analysed as English."""
        return self.language == ENGLISH and not self.foreign

    @property
    def corrections(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The words that the book does not have, with those that are searched for instead."""
        return tuple((word.word, word.nearest) for word in self.words if word.nearest)


def is_single_word(query: str, words: Sequence[QueryWord]) -> bool:
    """Return whether a query is one word; a sentence in a script without spaces is not."""
    is_sentence = len(words) > 1 and any(is_unspaced(one.word) for one in words if one.language != ENGLISH)
    return len(query.split()) == 1 and not is_sentence


def unknown_language_weight(language: str, weight: float) -> float:
    """Return the weight of the lexical score in a language that the embedding model does not know."""
    least = _UNSPACED_WEIGHT if language in UNSPACED_LANGUAGES else _OTHER_WEIGHT
    return weight if language == ENGLISH else max(weight, least)


def analyze_query(
    text: str, lexicon: Lexicon, lexical_weight: float = LEXICAL_WEIGHT, language: str = ""
) -> LexicalQuery:
    """Look up the words of a query in the vocabulary of a book, and correct those that it does not have."""
    foreign = "" if language else lexicon.foreign_language(text)
    language = language or lexicon.language_of(text)
    words = tuple(lexicon.analyze_word(word, language) for word in query_words(text, language))
    terms = dict.fromkeys(term for word in words for term in word.terms)
    is_single = is_single_word(text, words)
    if is_single:
        forms = (form for word in words for form in word.nearest or word_forms(word.word, language)[:1])
        exact = (exact_term(form, language) for form in forms)
        terms |= dict.fromkeys(term for term in exact if term and lexicon.count(term))
    idf = {term_id(term): lexicon.idf(term) for term in terms}
    largest = (_K1 + 1) * sum(idf.values())
    if language == ENGLISH and has_unspaced(text):  # its analysis does not cut a sentence without spaces
        is_single = False
    known_idf = sum(word.known * word.idf for word in words)
    return LexicalQuery(
        SparseVector(tuple(idf), (1 / largest,) * len(idf) if idf else (), tuple(idf.values())),
        words,
        known_idf / (sum(word.idf for word in words) or 1.0),
        max(lexical_weight, SINGLE_WORD_WEIGHT) if is_single else lexical_weight,
        language,
        foreign,
    )


def _analyze_word(lexicon: Lexicon, word: str, language: str = ENGLISH) -> QueryWord:
    whole, *parts = word_terms(word, language)
    idf = lexicon.idf(whole)
    if lexicon.count(whole):
        return QueryWord(word, idf, (whole, *parts), language=language)
    if is_english_word(word, language) and is_common(word.lower()):
        return QueryWord(word, idf * _COMMON_WEIGHT, (whole, *parts), known=0.0, language=language)
    if nearest := _corrections(lexicon, word, language):
        terms = dict.fromkeys(term for other in nearest for term in word_terms(other, language))
        return QueryWord(word, idf, tuple(terms), nearest, language=language)
    known = _KNOWN_PARTS if any(map(lexicon.count, parts)) else 0.0
    return QueryWord(word, idf, (whole, *parts), known=known, language=language)


def _corrections(lexicon: Lexicon, word: str, language: str) -> tuple[str, ...]:
    """Return words of the book for a misspelled one; scripts without spaces have no misspelled words."""
    least = _MIN_CORRECTED if language == ENGLISH else _MIN_OTHER_CORRECTED
    if len(word) < least or word.isnumeric() or is_unspaced(word):
        return ()
    return lexicon.nearest(word_forms(word, language)[0], language)


def is_english_word(word: str, language: str) -> bool:
    """Return whether a word of a text is read as English."""
    return language == ENGLISH or (language in UNSPACED_LANGUAGES and word.isascii())


def is_common(word: str) -> bool:
    """Return whether a word or its stem is common English."""
    ids = common_words()
    for form in (word, stem(word), f"{stem(word)}e"):
        position = bisect_left(ids, id := term_id(form))
        if position < len(ids) and ids[position] == id:
            return True
    return False


@cache
def common_words() -> array[int]:
    """Return the sorted term ids of common English words."""
    ids = array("I", COMMON_WORDS.read_bytes())
    if sys.byteorder == "big":
        ids.byteswap()
    return ids


def _edits(word: str, positions: int) -> Iterator[str]:
    """Yield every string that is one edit within the first positions away from a word."""
    for position in range(positions):
        before, after = word[:position], word[position:]
        yield before + after[1:]
        yield before + after[1:2] + after[:1] + after[2:]
        for letter in _LETTERS:
            yield before + letter + after[1:]
            yield before + letter + after


def _distance(word: str, other: str) -> int:
    """Return the edit distance of two words; swapping two adjacent letters counts as one edit."""
    while word and other and word[0] == other[0]:
        word, other = word[1:], other[1:]
    while word and other and word[-1] == other[-1]:
        word, other = word[:-1], other[:-1]
    before: Sequence[int] = ()
    row: Sequence[int] = range(len(other) + 1)
    for line, letter in enumerate(word, 1):
        earlier, before, current = before, row, [line]
        for column, target in enumerate(other, 1):
            cost = min(before[column] + 1, current[-1] + 1, before[column - 1] + (letter != target))
            if column > 1 and line > 1 and letter == other[column - 2] and word[line - 2] == target:
                cost = min(cost, earlier[column - 2] + 1)
            current.append(cost)
        row = current
    return row[-1]
