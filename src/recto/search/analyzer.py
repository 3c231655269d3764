"""Split text into the terms of lexical search: words, identifiers and their parts, numbers, versions, flags.

Chunks and queries are analysed in the same way. `ANALYZER` is the version of the analysis; the fingerprint of
an index has it, because terms of two versions cannot be compared.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from typing import NamedTuple
from zlib import crc32

ANALYZER = "recto-1"

_COMPOUND = re.compile(r"--?[A-Za-z][\w-]*|\w+(?:[.\-]\w+)*")
"""A word, or several joined by dots or hyphens: `pydantic.BaseModel`, `end-to-end`, `9.81`, `--dry-run`."""
_NUMBER = re.compile(r"v?\d+(?:\.\d+)*")
_SUBWORD = re.compile(r"\w+")
_PART = re.compile(r"[^\W\d_]+|\d+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_QUOTED = re.compile(r'"[^"\n]+"|“[^”\n]+”|`[^`\n]+`')
PART_MARK = "~"
"""The prefix of terms that are parts of an identifier."""
_MAX_WORD = 64  # characters; a longer token is encoded data, not a word
_VOWEL = re.compile(r"[aeiouy]")

STOP_WORDS = frozenset(
    """
    a about above after again all also am an and any are as at be because been before being below
    between both but by can could did do does doing don down during each few for from further get had
    has have having he her here hers him his how i if in into is it its itself just let me more most my
    no nor not of off on once only or other our out over own same she should so some such than that the
    their them then there these they this those through to too under until up us very was we were what
    when where which while who whom why will with would you your
    """.split()  # noqa: SIM905
)


class Token(NamedTuple):
    """A word of a text with its position and its terms; the first term is the whole word."""

    start: int
    end: int
    terms: tuple[str, ...]


def tokens(text: str) -> Iterator[Token]:
    """Yield the words of a text in order."""
    for match in _COMPOUND.finditer(text):
        if match.end() - match.start() <= _MAX_WORD:
            yield Token(match.start(), match.end(), word_terms(match[0]))


def text_terms(text: str) -> Counter[str]:
    """Count the terms of a text."""
    words = (word for word in _COMPOUND.findall(text) if len(word) <= _MAX_WORD)
    return Counter(chain.from_iterable(map(word_terms, words)))


@lru_cache(maxsize=16_384)
def word_terms(word: str) -> tuple[str, ...]:
    """Return the terms of a word, in lower case: the whole word, the words of a compound, its parts.

    Parts have a mark, because `link` as a word must differ from `link` in `base_link`.
    """
    whole = word.lower()
    if (word.isalpha() and (word.islower() or word.istitle())) or _NUMBER.fullmatch(whole):
        return (whole,)
    terms = [whole]
    for subword in _SUBWORD.findall(word):
        parts = [part.lower() for piece in _PART.findall(subword) for part in _CAMEL.split(piece)]
        terms.append(subword.lower())
        if len(parts) > 1 or parts[:1] != [terms[-1]]:
            terms += [f"{PART_MARK}{part}" for part in parts if len(part) > 1]
    return tuple(dict.fromkeys(terms))


def stem(word: str) -> str:
    """Remove the plural and the most common endings of an English word."""
    if len(word) <= 3 or not (word.isascii() and word.isalpha()):
        return word
    if word.endswith("ies") and len(word) > 4:
        word = f"{word[:-3]}y"
    elif word.endswith(("sses", "shes", "ches", "xes", "zes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed"):
        if word.endswith(ending):
            rest = word[: -len(ending)]
            if len(rest) < 3 or not _VOWEL.search(rest):
                break
            return rest[:-1] if rest[-1] == rest[-2] and rest[-1] not in "lsz" else rest
    return word[:-1] if word.endswith("e") and len(word) > 3 else word


@lru_cache(maxsize=16_384)
def term_id(term: str) -> int:
    """Return the index of a term in lexical vectors."""
    return crc32(term.encode())


def query_words(text: str) -> list[str]:
    """Return the distinct words of a query; stop words only in quotes, or if there are no other words."""
    words = [(token, text[token.start : token.end]) for token in tokens(text)]
    quoted = [match.span() for match in _QUOTED.finditer(text)]
    content = [
        word
        for token, word in words
        if token.terms[0] not in STOP_WORDS
        or any(start < token.start and token.end < end for start, end in quoted)
    ]
    return list(dict.fromkeys(content or [word for _, word in words]))
