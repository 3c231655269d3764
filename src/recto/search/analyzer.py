"""Split text into the terms of lexical search: stems of words, identifiers and their parts, numbers, flags.

Chunks and queries are analysed in the same way. `ANALYZER` is the version of the analysis; the fingerprint of
an index has it, because terms of two versions cannot be compared.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple
from zlib import crc32

ANALYZER = "recto-2"

_COMPOUND = re.compile(r"--?[A-Za-z][\w-]*|\w+(?:[.\-]\w+)*")
"""A word, or several joined by dots or hyphens: `pydantic.BaseModel`, `end-to-end`, `9.81`, `--dry-run`."""
_NUMBER = re.compile(r"v?\d+(?:\.\d+)*")
_SUBWORD = re.compile(r"\w+")
_PART = re.compile(r"[^\W\d_]+|\d+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z]{2})")
_QUOTED = re.compile(r'"[^"\n]+"|“[^”\n]+”|`[^`\n]+`')
EXACT_MARK = "="
"""The prefix of terms that are words as written."""
MAX_WORD = 64  # characters; a longer token is encoded data, not a word
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
    """A word of a text with its position and its terms."""

    start: int
    end: int
    terms: tuple[str, ...]


def tokens(text: str) -> Iterator[Token]:
    """Yield the words of a text in order."""
    for match in _COMPOUND.finditer(text):
        if match.end() - match.start() <= MAX_WORD:
            yield Token(match.start(), match.end(), word_terms(match[0]))


def count_words(text: str) -> Counter[str]:
    """Count the words of a text as they are written."""
    return Counter(word for word in _COMPOUND.findall(text) if len(word) <= MAX_WORD)


@lru_cache(maxsize=16_384)
def word_terms(word: str) -> tuple[str, ...]:
    """Return the terms of a word: its stem, then the stems of the parts of a compound or an identifier."""
    terms = [stem(form) for form in word_forms(word)]
    if not _NUMBER.fullmatch(word.lower()):
        parts = (part for piece in _PART.findall(word) for part in _CAMEL.split(piece))
        terms += [stem(part.lower()) for part in parts if len(part) > 1]
    return tuple(dict.fromkeys(terms))


@lru_cache(maxsize=16_384)
def word_forms(word: str) -> tuple[str, ...]:
    """Return a word as written, in lower case, and the words of a compound such as `time-consuming`."""
    whole = word.lower()
    return (whole,) if _NUMBER.fullmatch(whole) else tuple(dict.fromkeys((whole, *_SUBWORD.findall(whole))))


def exact_term(form: str) -> str:
    """Return the term of an English word as written, which queries of a single word prefer to other forms.

    It is empty for words without forms, and for stop words, which would be half of these terms.
    """
    return EXACT_MARK + form if form.isascii() and form.isalpha() and form not in STOP_WORDS else ""


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
        if word.lower() not in STOP_WORDS
        or any(start < token.start and token.end < end for start, end in quoted)
    ]
    return list(dict.fromkeys(content or [word for _, word in words]))
