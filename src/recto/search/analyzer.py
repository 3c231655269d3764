"""Split text into the terms of lexical search: stems of words, identifiers and their parts, numbers, flags.

Chunks and queries are analysed in the same way, by their language. Languages other than English have one
rule: accents are removed and words are cut after five letters, which finds as many pages as Snowball stemmers
do and needs no data (decision 18); words of five or six letters are also cut after four, so that `Häuser`
matches `Haus`. Scripts without spaces, and Korean, are searched by pairs of characters. A book whose language
is not known is analysed as English, where these rules hold for words with other letters than a to z.

`ANALYZER` is the version of the analysis; the fingerprint of an index has it, because terms of two versions
cannot be compared.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache, lru_cache
from zlib import crc32

from recto._util.languages import ENGLISH, MARKS, UNSPACED, UNSPACED_LANGUAGES, stop_words

ANALYZER = "recto-3"
SEARCHABLE = ("recto-2", ANALYZER)
"""Analyses whose indexes this one searches; in recto-2, a word has no second stem, and English no accents."""

_COMPOUND = re.compile(r"--?[A-Za-z][\w-]*|\w+(?:[.\-]\w+)*")
"""A word, or several joined by dots or hyphens: `pydantic.BaseModel`, `end-to-end`, `9.81`, `--dry-run`."""
_NUMBER = re.compile(r"v?\d+(?:\.\d+)*")
_SUBWORD = re.compile(r"\w+")
_PART = re.compile(r"[^\W\d_]+|\d+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z]{2})")
_QUOTED = r'"[^"\n]+"|“[^“”\n]+”|`[^`\n]+`'
EXACT_MARK = "="
"""The prefix of terms that are words as written."""
MAX_WORD = 64  # characters; a longer token is encoded data, not a word
_VOWEL = re.compile(r"[aeiouy]")

# Other languages: patterns that are compiled when a text needs them, because that takes longer than a query.
# A letter may be an accent or a vowel sign, but not of a script without spaces.
_OTHER_LETTER = rf"(?:[^\W{UNSPACED}]|[{MARKS}])"
_OTHER_COMPOUND = (
    rf"[{UNSPACED}]+|--?[A-Za-z](?:{_OTHER_LETTER}|-)*|{_OTHER_LETTER}+(?:[.\-]{_OTHER_LETTER}+)*"
)
_OTHER_SUBWORD = f"{_OTHER_LETTER}+"
_UNSPACED_START = f"[{UNSPACED}]"
_HAN = "[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
_PARTICLES = "[\u3041-\u309f\u30fc]+"  # hiragana: endings and function words of Japanese
_IGNORED = (
    "[\u0300-\u036f\u0483-\u0487\u0591-\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06ed"
    "\u200c\u200d]+"
)
"""Accents, the vowel signs of Arabic and Hebrew, and characters that only change the look of a word."""
_ARTICLE = "[وفبك]?(?:ال|لل)(?=...)"
_UNCUT = r"[\d_.\-]"
_compiled = cache(re.compile)
_ACCENTS = "[\u0300-\u036f]+"
_STEM, _SHORT_STEM = 5, 4
"""The letters of a word that are its stem and, if it has one or two more than that, its second stem."""

STOP_WORDS = stop_words(ENGLISH)


@cache
def same_letters() -> dict[int, str]:
    """Return letters and digits with several forms, each with the form that replaces it."""
    return str.maketrans(
        {"ß": "ss", "æ": "ae", "œ": "oe", "ø": "o", "đ": "d", "ð": "d", "ł": "l", "ı": "i", "þ": "th"}
        | {"ς": "σ", "ٱ": "ا", "ى": "ي", "ی": "ي", "ے": "ي", "ک": "ك", "ة": "ه", "ہ": "ه", "ھ": "ه", "ە": "ه"}
        | {chr(zero + digit): str(digit) for zero in (0x660, 0x6F0, 0x966) for digit in range(10)}
    )


def analysis_rules() -> dict[str, object]:
    """Return the rules of languages other than English, for the static client."""
    return {
        "unspaced": UNSPACED,
        "unspaced_languages": sorted(UNSPACED_LANGUAGES),
        "marks": MARKS,
        "han": _HAN,
        "particles": _PARTICLES,
        "ignored": _IGNORED,
        "article": _ARTICLE,
        "same": {chr(code): other for code, other in same_letters().items()},
        "stem": _STEM,
    }


def word_spans(text: str, language: str = ENGLISH) -> Iterator[tuple[int, int]]:
    """Yield where words begin and end; in scripts without spaces, overlapping pairs of characters."""
    for match in (_COMPOUND if language == ENGLISH else _compiled(_OTHER_COMPOUND)).finditer(text):
        start, end = match.span()
        if language != ENGLISH and is_unspaced(match[0]):
            for first in range(start, max(start + 1, end - 1)):
                yield first, min(first + 2, end)
        elif end - start <= MAX_WORD:
            yield start, end


def count_words(text: str, language: str = ENGLISH) -> Counter[str]:
    """Count the words of a text as they are written."""
    if language == ENGLISH:
        return Counter(word for word in _COMPOUND.findall(text) if len(word) <= MAX_WORD)
    return Counter(text[start:end] for start, end in word_spans(text, language))


@lru_cache(maxsize=16_384)
def word_terms(word: str, language: str = ENGLISH) -> tuple[str, ...]:
    """Return the terms of a word: its stem, then the stems of the parts of a compound or an identifier."""
    if language != ENGLISH:
        return _other_terms(word, language)
    forms = word_forms(word)
    terms = [stem(form) for form in forms]
    if not _NUMBER.fullmatch(word.lower()):
        parts = (part for piece in _PART.findall(word) for part in _CAMEL.split(piece))
        terms += [stem(part.lower()) for part in parts if len(part) > 1]
    if not word.isascii():
        terms += [short for form in forms if not form.isascii() and (short := _short_stem(unaccented(form)))]
    return tuple(dict.fromkeys(terms))


def _other_terms(word: str, language: str) -> tuple[str, ...]:
    """Return the terms of a word that is not English, or of a pair with its Chinese characters."""
    if language in UNSPACED_LANGUAGES and word.isascii():
        return word_terms(word)
    forms = word_forms(word, language)
    if is_unspaced(word):
        return tuple(dict.fromkeys((*forms, *_compiled(_HAN).findall(forms[0]))))
    terms = [stem(form, language) for form in forms]
    if not _NUMBER.fullmatch(forms[0]):
        parts = (
            [part for piece in _PART.findall(word) for part in _CAMEL.split(piece)] if word.isascii() else []
        )
        if len(parts) > 1:  # an identifier is not cut
            terms[0] = forms[0]
        terms += [stem(part.lower(), language) for part in parts if len(part) > 1]
    terms += [short for form in forms if (short := _short_stem(_without_article(fold(form), language)))]
    return tuple(dict.fromkeys(terms))


def _short_stem(word: str) -> str:
    """Return the second stem of a word, or "" if it has none."""
    is_short = _SHORT_STEM < len(word) <= _SHORT_STEM + 2 and not _compiled(_UNCUT).search(word)
    return word[:_SHORT_STEM] if is_short else ""


def _without_article(word: str, language: str) -> str:
    article = _compiled(_ARTICLE).match(word) if language == "ar" else None
    return word[article.end() :] if article else word


def is_unspaced(word: str) -> bool:
    """Return whether a word is one of a script without spaces, or Korean."""
    return not word.isascii() and _compiled(_UNSPACED_START).match(word) is not None


def has_unspaced(text: str) -> bool:
    """Return whether a text has characters of scripts without spaces, or of Korean."""
    return not text.isascii() and _compiled(_UNSPACED_START).search(text) is not None


@lru_cache(maxsize=16_384)
def word_forms(word: str, language: str = ENGLISH) -> tuple[str, ...]:
    """Return a word as written, in lower case, and the words of a compound such as `time-consuming`."""
    whole = word.lower()
    if language != ENGLISH:
        from unicodedata import normalize

        whole = normalize("NFKC", whole)
        parts = (
            () if is_unspaced(word) or _NUMBER.fullmatch(whole) else _compiled(_OTHER_SUBWORD).findall(whole)
        )
        return tuple(dict.fromkeys((whole, *parts)))
    return (whole,) if _NUMBER.fullmatch(whole) else tuple(dict.fromkeys((whole, *_SUBWORD.findall(whole))))


def exact_term(form: str, language: str = ENGLISH) -> str:
    """Return the term of a word as written, which queries of a single word prefer to other forms.

    It is empty for words without forms, and for stop words, which would be half of these terms.
    """
    if language == ENGLISH:
        return EXACT_MARK + form if form.isascii() and form.isalpha() and form not in STOP_WORDS else ""
    has_forms = not (is_unspaced(form) or _compiled(_UNCUT).search(form) or is_stop_word(form, language))
    return EXACT_MARK + form if has_forms else ""


def fold(word: str) -> str:
    """Remove accents from a word in lower case, and write letters with several forms in one way."""
    if word.isascii():
        return word
    from unicodedata import normalize

    plain = _compiled(_IGNORED).sub("", normalize("NFKD", word.translate(same_letters())))
    return plain.translate(same_letters()) or word


def unaccented(word: str) -> str:
    """Remove the accents of Latin, Greek and Cyrillic letters from a word that is not ASCII."""
    from unicodedata import normalize

    return normalize("NFC", _compiled(_ACCENTS).sub("", normalize("NFKD", word))) or word


def stem(word: str, language: str = ENGLISH) -> str:
    """Remove the plural and the most common endings of an English word; cut other words after five letters.

    Words of the Latin alphabet in Japanese, Chinese and similar texts are English.
    """
    if language != ENGLISH:
        if is_unspaced(word):
            return word
        folded = fold(word)
        if language not in UNSPACED_LANGUAGES or not folded.isascii():
            folded = _without_article(folded, language)
            return folded if _compiled(_UNCUT).search(folded) else folded[:_STEM]
        word = folded
    elif not word.isascii():
        word = unaccented(word)
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


def is_stop_word(word: str, language: str) -> bool:
    """Return whether a word says nothing about the subject of a query, such as a Japanese particle."""
    word = word.lower()
    if language == ENGLISH:
        return word in STOP_WORDS
    return fold(word) in other_stop_words(language) or _compiled(_PARTICLES).fullmatch(word) is not None


@cache
def other_stop_words(language: str) -> frozenset[str]:
    """Return the stop words of a language without accents, and the English ones if words may be English."""
    english = STOP_WORDS if language in UNSPACED_LANGUAGES else frozenset()
    return english | frozenset(map(fold, stop_words(language)))


def query_words(text: str, language: str = ENGLISH) -> list[str]:
    """Return the distinct words of a query; stop words only in quotes, or if there are no other words."""
    spans = list(word_spans(text, language))
    has_quotes = any(mark in text for mark in '"“`')  # a pattern is compiled when a text needs it
    quoted = [match.span() for match in _compiled(_QUOTED).finditer(text)] if has_quotes else []
    content = [
        text[start:end]
        for start, end in spans
        if not is_stop_word(text[start:end], language)
        or any(first < start and end < last for first, last in quoted)
    ]
    return list(dict.fromkeys(content or [text[start:end] for start, end in spans]))
