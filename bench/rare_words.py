"""Search for rare words, as written and with a typo, and look for the word in the first hits.

Words are found by a separate regular expression, so that the check does not depend on Recto's analyzer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean
from string import ascii_lowercase

TOP = 3
_FREQUENCY = 3  # maximum number of chunks that contain a rare word
_LETTERS = 4  # minimum letters of a word for a typo
_SEED = 20_261_115
_TOKEN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{3,}")
_ANY_WORD = re.compile(r"\w+")

Search = Callable[[str], Iterable[str]]
"""Returns the texts of the first hits."""


@dataclass(frozen=True, slots=True)
class Draw:
    """A rare word as the book writes it, and with a typo if it is long enough."""

    word: str
    typo: str


@dataclass(frozen=True, slots=True)
class Found:
    """The share of words that a first hit contains, for queries as written and with a typo."""

    words: int
    exact: float
    typos: int
    typo: float


def draw(texts: Sequence[str], count: int, book: str) -> list[Draw]:
    """Choose rare words of a book, the same in every run."""
    random = Random(f"{_SEED} {book}")
    spelling: dict[str, str] = {}
    frequency: Counter[str] = Counter()
    for text in texts:
        frequency.update(tokens(text))
        for word in _TOKEN.findall(text):
            spelling[word.lower()] = min(word, spelling.get(word.lower(), word))
    words_of_book = {word for text in texts for word in _ANY_WORD.findall(text.lower())}
    rare = sorted(word for word, chunks in frequency.items() if chunks <= _FREQUENCY)
    chosen = random.sample(rare, min(count, len(rare)))
    return [Draw(spelling[word], misspell(spelling[word], words_of_book, random)) for word in chosen]


def tokens(text: str) -> set[str]:
    """Return the words and identifiers of a text in lower case."""
    return {word.lower() for word in _TOKEN.findall(text)}


def misspell(word: str, known: set[str], random: Random) -> str:
    """Change one letter so that the result is not a word of the book; return "" for a short word."""
    letters = [place for place, letter in enumerate(word) if letter.isalpha()]
    if len(letters) < _LETTERS:
        return ""
    while True:
        place, letter, kind = random.choice(letters), random.choice(ascii_lowercase), random.randrange(4)
        before, here, after = word[:place], word[place], word[place + 1 :]
        typo = (
            before + letter + after,
            before + after,
            before + letter + here + after,
            before + after[:1] + here + after[1:],
        )[kind]
        if typo.lower() not in known | {word.lower()}:
            return typo


def ask(draws: Sequence[Draw], search: Search) -> Found:
    """Search for each word alone, then for each typo."""
    exact = [_found(each.word, search(each.word)) for each in draws]
    typos = [_found(each.word, search(each.typo)) for each in draws if each.typo]
    return Found(len(exact), fmean(exact or [0.0]), len(typos), fmean(typos or [0.0]))


def _found(word: str, texts: Iterable[str]) -> float:
    return float(any(word.lower() in tokens(text) for text in texts))
