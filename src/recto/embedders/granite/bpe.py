"""Tokenize queries without the `tokenizers` library, which takes a third of a second to load.

This is byte-pair encoding: a word starts as single bytes, and of all neighbouring pairs that a merge rule
joins, the one of the earliest rule is joined first. `training/export.py` writes the rules. Possible special
tokens, very long words and characters that Python does not know are left to the library, which gets the same
rules. So are the texts of books, which it tokenizes faster.
"""

from __future__ import annotations

import json
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
_NO_RULE = 1 << 32
_CACHED_WORDS = 1024
_MAX_WORD = 64  # characters
_START, _END = 0, 2  # the special tokens <s> and </s>
_SPECIAL = {"<s>": _START, "<pad>": 1, "</s>": _END, "<unk>": 3, "<mask>": 50_264}


class MergeRules:
    """The rank and the result of each merge rule, by its pair of tokens; and the token of each byte."""

    def __init__(self, path: Path) -> None:
        data = path.read_bytes()
        count = (len(data) - 2 * _BYTES) // 8
        self._pairs, self._ranks, self._results, self._letters = (array(code) for code in "IHHH")
        self._pairs.frombytes(data[: 4 * count])
        self._ranks.frombytes(data[4 * count : 6 * count])
        self._results.frombytes(data[6 * count : 8 * count])
        self._letters.frombytes(data[8 * count :])
        if sys.byteorder == "big":
            for numbers in (self._pairs, self._ranks, self._results, self._letters):
                numbers.byteswap()

    def description(self) -> bytes:
        """Return a tokenizer.json with these rules, for the `tokenizers` library."""
        names = dict(zip(self._letters, byte_letters(), strict=True))
        merges = []
        for rule in sorted(range(len(self._ranks)), key=self._ranks.__getitem__):
            left, right = names[self._pairs[rule] >> 16], names[self._pairs[rule] & 0xFFFF]
            names[self._results[rule]] = left + right
            merges.append((left, right))
        vocabulary = {name: token for token, name in names.items()} | _SPECIAL
        added = [
            {"id": token, "content": name, "special": True, "single_word": False, "normalized": False}
            | {"lstrip": name == "<mask>", "rstrip": False}
            for name, token in _SPECIAL.items()
        ]
        pieces = {"add_prefix_space": False, "trim_offsets": True}
        return json.dumps(
            {
                "version": "1.0",
                "added_tokens": added,
                "pre_tokenizer": {"type": "ByteLevel"} | pieces,
                "post_processor": {"type": "RobertaProcessing", "sep": ["</s>", _END], "cls": ["<s>", _START]}
                | pieces,
                "decoder": {"type": "ByteLevel"} | pieces,
                "model": {"type": "BPE", "vocab": vocabulary, "merges": merges},
            }
        ).encode()

    def split(self, word: str) -> list[int]:
        """Return the tokens of a word."""
        tokens = [self._letters[byte] for byte in word.encode()]
        rules = [self._find(left, right) for left, right in pairwise(tokens)]
        while rules and (first := min(rules)) < _NO_RULE:
            place = rules.index(first)
            tokens[place : place + 2] = [first & 0xFFFF]
            del rules[place]
            for near in range(max(place - 1, 0), min(place + 1, len(rules))):
                rules[near] = self._find(tokens[near], tokens[near + 1])
        return tokens

    def _find(self, left: int, right: int) -> int:
        """Return the rank and the result of the rule for a pair as one number, or `_NO_RULE`."""
        pair = left << 16 | right
        index = bisect_left(self._pairs, pair)
        if index == len(self._pairs) or self._pairs[index] != pair:
            return _NO_RULE
        return self._ranks[index] << 16 | self._results[index]


def byte_letters() -> list[str]:
    """Return the character that stands for each byte in the names of tokens: itself, if it is visible."""
    visible = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    stand_ins = {
        byte: chr(_BYTES + place) for place, byte in enumerate(b for b in range(_BYTES) if b not in visible)
    }
    return [stand_ins.get(byte, chr(byte)) for byte in range(_BYTES)]


class QueryTokenizer:
    """Tokenizes short texts exactly as the library does."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def encode(self, text: str) -> list[int] | None:
        """Return the tokens, special ones included, or None if the text is left to the library."""
        words, split = ascii_words(text) if text.isascii() else _other_words(text), self._split
        return None if words is None else [_START, *(token for word in words for token in split(word)), _END]

    @cached_property
    def _split(self) -> Callable[[str], list[int]]:
        return lru_cache(_CACHED_WORDS)(MergeRules(self._path).split)


def ascii_words(text: str) -> list[str] | None:
    """Return the words that are tokenized one by one, or None if the text is left to the library."""
    if not text.isascii() or "<" in text:
        return None
    words: list[str] = _WORDS.findall(text)
    # The time for a word grows with the square of its length.
    return None if max(map(len, words), default=0) > _MAX_WORD else words


def _other_words(text: str) -> list[str] | None:
    """Return the words of a text that is not ASCII: the pattern sees an ASCII character instead of each."""
    kinds = "".join(character if character.isascii() else _kind(character) for character in text)
    if ascii_words(kinds) is None:
        return None
    return [text[slice(*match.span())] for match in _WORDS.finditer(kinds)]


def _kind(character: str) -> str:
    """Return an ASCII character of the same kind, or "<", which leaves the text to the library."""
    from unicodedata import category

    if character.isspace():
        return "\t"
    kind = category(character)
    return "<" if kind in ("Cs", "Cn") else {"L": "x", "N": "0"}.get(kind[0], "!")
