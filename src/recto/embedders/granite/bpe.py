"""The tokens of plain text without the tokenizer library, which takes a tenth of a second to read its 50 000 rules.

Byte-pair encoding over ASCII: a word begins as its letters, and of all neighbours that a rule joins, those of the earliest rule are joined
first. The rules are in a file made by `scripts/make_merges.py`. Text beyond ASCII, with what could be a special
token or with a word of unusual length is left to the library.
"""

from __future__ import annotations

import re
import sys
from array import array
from bisect import bisect_left
from collections.abc import Callable
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path

_WORDS = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+", re.ASCII)
_BYTES = 256
_NEVER = 1 << 16
_REMEMBERED = 1024
_LONGEST = 64  # characters of a word
_FIRST, _LAST = 0, 2


class Merges:
    """The rules: of two neighbouring tokens, how early they are joined and into which; and the token of each byte."""

    def __init__(self, pairs: array[int], ranks: array[int], joined: array[int], letters: array[int]) -> None:
        self._pairs, self._ranks, self._joined, self._letters = pairs, ranks, joined, letters

    @classmethod
    def read(cls, path: Path) -> Merges:
        """Read a file of rules."""
        data = path.read_bytes()
        count = (len(data) - 2 * _BYTES) // 8
        pairs, ranks, joined, letters = array("I"), array("H"), array("H"), array("H")
        pairs.frombytes(data[: 4 * count])
        ranks.frombytes(data[4 * count : 6 * count])
        joined.frombytes(data[6 * count : 8 * count])
        letters.frombytes(data[8 * count :])
        if sys.byteorder == "big":
            for numbers in (pairs, ranks, joined, letters):
                numbers.byteswap()
        return cls(pairs, ranks, joined, letters)

    def split(self, word: str) -> list[int]:
        """Return the tokens of a word."""
        tokens = [self._letters[byte] for byte in word.encode("ascii")]
        while len(tokens) > 1:
            places = [self._place(left, right) for left, right in pairwise(tokens)]
            ranks = [_NEVER if place < 0 else self._ranks[place] for place in places]
            rank = min(ranks)
            if rank == _NEVER:
                break
            tokens = _join(tokens, ranks, rank, self._joined[places[ranks.index(rank)]])
        return tokens

    def _place(self, left: int, right: int) -> int:
        pair = left << 16 | right
        place = bisect_left(self._pairs, pair)
        return place if place < len(self._pairs) and self._pairs[place] == pair else -1


class PlainTokenizer:
    """Gives plain text the same tokens as the library does."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def encode(self, text: str) -> list[int] | None:
        """Return the tokens with the marks at both ends, or nothing if the text is not plain."""
        if not text.isascii() or "<" in text:
            return None
        words, split = _WORDS.findall(text), self._split
        if any(len(word) > _LONGEST for word in words):  # its time grows with the square of a word's length
            return None
        return [_FIRST, *(token for word in words for token in split(word)), _LAST]

    @cached_property
    def _split(self) -> Callable[[str], list[int]]:
        """Split words that are asked for again and again once."""
        return lru_cache(_REMEMBERED)(Merges.read(self._path).split)


def _join(tokens: list[int], ranks: list[int], rank: int, joined: int) -> list[int]:
    """Join every pair of this rank, from the left; a token is part of one pair only."""
    found, place = [], 0
    while place < len(tokens):
        if place < len(ranks) and ranks[place] == rank:
            found.append(joined)
            place += 2
        else:
            found.append(tokens[place])
            place += 1
    return found
