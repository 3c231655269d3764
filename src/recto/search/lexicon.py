"""The vocabulary of an index: in how many chunks each word occurs, its other forms, and the nearest word to an unknown one."""

from __future__ import annotations

import math
import struct
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from recto.protocols import Index
from recto.search.analyzer import ANALYZER, PART_MARK, stem, term_id, tokens
from recto.types import Chunk, SparseVector

_MAGIC = b"RECTOLX1"
_HEADER = struct.Struct("<8sII")  # magic, chunks, entries
_K1, _B, _AVERAGE_LENGTH = (
    1.2,
    0.75,
    100,
)  # BM25; the average is fixed, so that a new page does not change the vectors of others
_MAX_CORRECTIONS = 3
_PREFIX = 3  # letters; an edit behind them leaves the word among those with the same prefix
_MAX_SCANNED = 5_000  # words that are compared for one correction
_LETTERS = "abcdefghijklmnopqrstuvwxyz_"
Forms = dict[str, int]
"""The terms that are forms of one word, with the number of chunks that have each."""


class LexiconBuilder:
    """Analyses the chunks of a new index: returns their lexical vectors and counts their terms."""

    def __init__(self) -> None:
        self._chunks = 0
        self._counts: Counter[str] = Counter()

    def vectors(self, chunks: Iterable[Chunk]) -> list[SparseVector]:
        """Return the lexical vectors of chunks: BM25's weight of each term, without the inverse document frequency."""
        return [self._vector(chunk) for chunk in chunks]

    def _vector(self, chunk: Chunk) -> SparseVector:
        terms = Counter(term for token in tokens(analyzed_text(chunk)) for term in token.terms)
        self._chunks += 1
        self._counts.update(terms.keys())
        length = _K1 * (1 - _B + _B * terms.total() / _AVERAGE_LENGTH)
        weights = {term_id(term): count * (_K1 + 1) / (count + length) for term, count in terms.items()}
        return SparseVector(tuple(weights), tuple(weights.values()))

    def to_bytes(self) -> bytes:
        """Return the vocabulary of all chunks so far: one line for each word, with its forms and their counts."""
        forms: defaultdict[str, list[str]] = defaultdict(list)
        for term in sorted(self._counts):
            forms[stem(term.removeprefix(PART_MARK))].append(f"{term}\t{self._counts[term]}")
        lines = sorted("\t".join((word, *found)).encode() for word, found in forms.items())
        offsets = array("I", [0])
        for line in lines:
            offsets.append(offsets[-1] + len(line))
        return _HEADER.pack(_MAGIC, self._chunks, len(lines)) + offsets.tobytes() + b"".join(lines)


class Lexicon:
    """A vocabulary open for reading; words are found by bisection, so nothing has to be unpacked first."""

    def __init__(self, data: bytes) -> None:
        """Read what `LexiconBuilder.to_bytes` wrote; raises `ValueError` if it is something else."""
        if len(data) < _HEADER.size or not data.startswith(_MAGIC):
            raise ValueError("not a vocabulary")
        _, chunks, size = _HEADER.unpack_from(data)
        self.chunks, self._size = int(chunks), int(size)
        begin = _HEADER.size + 4 * (self._size + 1)
        self._offsets = array("I")
        self._offsets.frombytes(data[_HEADER.size : begin])
        self._lines = data[begin:]
        if len(self._offsets) != self._size + 1 or self._offsets[-1] != len(self._lines):
            raise ValueError("the vocabulary is damaged")
        self.forms = lru_cache(maxsize=4096)(self._forms)
        self.nearest = lru_cache(maxsize=512)(self._nearest)

    def __len__(self) -> int:
        """How many words there are."""
        return self._size

    def idf(self, count: int) -> float:
        """Return the inverse document frequency that the engine gives a term that so many chunks have."""
        return math.log((self.chunks - count + 0.5) / (count + 0.5) + 1)

    def _forms(self, word: str) -> Forms:
        """Return all forms of a word that the book has; none if it does not have the word."""
        key = stem(word).encode()
        place = self._bisect(key)
        return self._read(place) if place < self._size and self._line(place).startswith(key + b"\t") else {}

    def _nearest(self, word: str, edits: int = 1) -> tuple[str, ...]:
        """Return the words of the book that are nearest to one that it does not have, at most so many edits away."""
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
        return tuple(
            sorted(found, key=lambda other: (other[0] != word[0], -found[other], other))[:_MAX_CORRECTIONS]
        )

    def _similar(self, word: str, prefix: str, edits: int = 1) -> Iterator[tuple[str, int]]:
        """Yield the words with a prefix that are about as long as another, with their counts."""
        first, key = self._bisect(prefix.encode()), prefix.encode()
        for place in range(first, min(self._size, first + _MAX_SCANNED)):
            if not self._line(place).startswith(key):
                break
            for other, count in self._read(place).items():
                if abs(len(other) - len(word)) <= edits and not other.startswith(PART_MARK):
                    yield other, count

    def _read(self, place: int) -> Forms:
        fields = self._line(place).decode().split("\t")
        return dict(zip(fields[1::2], map(int, fields[2::2]), strict=True))

    def _bisect(self, key: bytes) -> int:
        low, high = 0, self._size
        while low < high:
            middle = (low + high) // 2
            if self._line(middle) < key:
                low = middle + 1
            else:
                high = middle
        return low

    def _line(self, place: int) -> bytes:
        return self._lines[self._offsets[place] : self._offsets[place + 1]]


def read_lexicon(index: Index) -> Lexicon | None:
    """Return the vocabulary of an index that can be searched lexically by this version, or None."""
    made = index.info.fingerprint
    if made is None or made.analyzer != ANALYZER:
        return None
    try:
        return Lexicon(index.lexicon())
    except ValueError:
        return None


def analyzed_text(chunk: Chunk) -> str:
    """Return the text that lexical search sees of a chunk."""
    return f"{chunk.heading_path}\n\n{chunk.text}"


def _edits(word: str, places: int) -> Iterator[str]:
    """Yield every text that one edit within the first places makes of a word."""
    for place in range(places):
        before, after = word[:place], word[place:]
        yield before + after[1:]
        yield before + after[1:2] + after[:1] + after[2:]
        for letter in _LETTERS:
            yield before + letter + after[1:]
            yield before + letter + after


def _distance(one: str, other: str) -> int:
    """Count the edits between two words; exchanging two neighbouring letters counts as one."""
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
