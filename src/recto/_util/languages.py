"""Languages of texts: tags, detection, stop words, and the scripts that need a lexical analysis of their own.

Languages have two-letter tags such as `de`; an empty tag stands for a text without enough words to tell.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from recto._util.markdown import FENCE_MARKS

ENGLISH = "en"
UNSPACED = (
    "\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff\u1100-\u11ff\u3130-\u318f\uac00-\ud7a3\u0e01-\u0e3a"
    "\u0e40-\u0e4e\u0e81-\u0ecd\u0edc-\u0edf\u0f40-\u0fbc\u1000-\u103f\u1050-\u109f\u1780-\u17d3"
)
"""The characters, for a regular expression, of scripts without spaces between words, and of Korean."""
MARKS = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f"
    "\u0670\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed\u0900-\u0903\u093a-\u094f\u0951-\u0957\u0962\u0963"
    "\u0981-\u0983\u09bc-\u09cd\u0a01-\u0a03\u0a3c-\u0a4d\u0a70\u0a71\u0a81-\u0a83\u0abc-\u0acd\u0b01-\u0b03"
    "\u0b3c-\u0b4d\u0b82\u0bbe-\u0bcd\u0c00-\u0c04\u0c3e-\u0c4d\u0c81-\u0c83\u0cbc-\u0ccd\u0d00-\u0d03"
    "\u0d3b-\u0d4d\u0d81-\u0d83\u0dca-\u0ddf\u200c\u200d"
)
"""Accents, vowel signs and joiners, for a regular expression: parts of words that `\\w` does not match."""
UNSPACED_LANGUAGES = frozenset("ja zh ko th lo km my bo".split())  # noqa: SIM905
_TAG = r"([a-z]{2,3})(?:[-_][a-z0-9-_]+)?(?:\..*)?"
_SCRIPTS = {
    "ja": "\u3041-\u30ff\uff66-\uff9f",
    "zh": "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff",
    "ko": "\u1100-\u11ff\uac00-\ud7a3",
    "th": "\u0e01-\u0e4e",
    "lo": "\u0e81-\u0ecd",
    "km": "\u1780-\u17d3",
    "my": "\u1000-\u103f",
    "bo": "\u0f40-\u0fbc",
    "ar": "\u0620-\u064a\u066e-\u06d3",
    "he": "\u05d0-\u05ea",
    "el": "\u0370-\u03ff",
    "ru": "\u0400-\u04ff",
    "hy": "\u0531-\u0587",
    "ka": "\u10d0-\u10ff",
    "hi": "\u0900-\u0963",
    "bn": "\u0980-\u09df",
    "pa": "\u0a01-\u0a4d",
    "gu": "\u0a81-\u0acd",
    "ta": "\u0b82-\u0bcd",
    "te": "\u0c00-\u0c4d",
    "kn": "\u0c81-\u0ccd",
    "ml": "\u0d00-\u0d4d",
    "si": "\u0d81-\u0ddf",
}
"""The characters of a script, and the language that most texts in it have."""
_LETTERS_OF = {"ur": "ٹڈڑںے", "fa": "پچژگ", "uk": "іїєґ", "bg": "ъщ", "sr": "јљњћђ"}
"""Letters that other languages with the same script rarely have."""
_MIN_SHARE = 0.02  # of the letters of a text that must be such letters
_CODE = rf"(?sm)^((?>{FENCE_MARKS})).*?^\1|`[^`\n]*`|https?://\S+|<[^<>\n]*>"
_LONGEST = 3_000  # characters of a text that are looked at
_WORD = r"[^\W\d_]+"
_MIN_HITS = 3  # stop words of a language that a text must have
_CLEAR = 1.5  # how many more stop words the detected language must have than English

_JOINING_SIGNS = "\u094d\u09cd\u0acd\u0b4d\u0c4d\u0d4d\u1039\u17d2"
"""Signs that join two consonants, in Indic scripts, Burmese and Khmer."""
_ENGLISH_STOP_WORDS = """
    a about above after again all also am an and any are as at be because been before being below
    between both but by can could did do does doing don down during each few for from further get
    had has have having he her here hers him his how i if in into is it its itself just let me more
    most my no nor not of off on once only or other our out over own same she should so some such
    than that the their them then there these they this those through to too under until up us very
    was we were what when where which while who whom why will with would you your
"""


def language_tag(text: object) -> str:
    """Return the language of a tag such as `pt-BR` or `zh_Hans`, or an empty tag if it is none."""
    match = re.fullmatch(_TAG, text.strip().lower()) if isinstance(text, str) else None
    return match[1] if match else ""


def stop_words(language: str) -> frozenset[str]:
    """Return the most frequent words of a language, which say nothing about the subject of a text."""
    return english_stop_words() if language == ENGLISH else _other_stop_words().get(language, frozenset())


def is_between_characters(text: str, cut: int) -> bool:
    """Return whether a cut separates no mark from its letter, and no parts of an emoji or a syllable."""
    if not 0 < cut < len(text) or text[cut].isascii():
        return True
    from unicodedata import category

    before, after = text[cut - 1], text[cut]
    is_joined = before == "\u200d" or after in "\u200c\u200d" or "\U0001f3fb" <= after <= "\U0001f3ff"
    is_flag = "\U0001f1e6" <= after <= "\U0001f1ff" and _flag_letters(text[max(0, cut - 64) : cut]) % 2 == 1
    kind = category(after)
    # Thai and Lao sara am is a letter to Unicode, but is drawn with the consonant before it.
    is_syllable = (
        ("\u1100" <= before <= "\u11ff" and "\u1160" <= after <= "\u11ff")
        or after in "\u0e33\u0eb3"
        or (before in _JOINING_SIGNS and kind.startswith("L"))
    )
    return not (is_joined or is_flag or is_syllable or kind.startswith("M"))


def _flag_letters(text: str) -> int:
    """Count the letters of flags at the end of a text; a flag has two."""
    return len(text) - len(text.rstrip("".join(map(chr, range(0x1F1E6, 0x1F200)))))


@cache
def english_stop_words() -> frozenset[str]:
    """Return the most frequent words of English, without reading the table of other languages."""
    return frozenset(_ENGLISH_STOP_WORDS.split())


@cache
def _other_stop_words() -> dict[str, frozenset[str]]:
    """Read the table of other languages: a line per language, with its tag and its most frequent words."""
    table = Path(__file__).with_name("stop-words.txt").read_text(encoding="utf-8")
    rows = (line.split() for line in table.splitlines())
    return {language: frozenset(words) for language, *words in rows}


def detect_language(text: str, min_hits: int = _MIN_HITS) -> str:
    """Return the language of a text, or an empty tag if it has too few words; code is left out."""
    prose = re.sub(_CODE, " ", text[: 4 * _LONGEST])[:_LONGEST]
    total = sum(map(len, re.findall(_WORD, prose)))
    if not prose.isascii():
        counts = {language: len(re.findall(f"[{letters}]", prose)) for language, letters in _SCRIPTS.items()}
        script = max(counts, key=lambda language: counts[language])
        # A Chinese or Japanese character stands for about three letters; names and code are mostly Latin.
        if 3 * counts[script] > total - counts[script]:
            return _language_of_script(script, prose, counts)
    return _latin_language(prose, min_hits)


def detection_rules() -> dict[str, object]:
    """Return what tells the language of a query, for the static client."""
    words = {language: " ".join(sorted(words)) for language, words in _other_stop_words().items()}
    return {"scripts": list(_SCRIPTS.values()), "stop_words": words, "unspaced": UNSPACED}


def _language_of_script(script: str, text: str, counts: dict[str, int]) -> str:
    """Tell languages apart that share a script: by kana, by letters, by stop words."""
    if script in ("zh", "ja"):
        return "ja" if 10 * counts["ja"] > counts["zh"] else "zh"
    others = {"ar": ("ur", "fa"), "ru": ("uk", "sr", "bg")}.get(script, ())
    for language in others:
        letters = sum(map(text.count, _LETTERS_OF[language]))
        if letters > _MIN_SHARE * counts[script]:
            return language
    return script


def _latin_language(text: str, min_hits: int) -> str:
    words = re.findall(_WORD, text.lower())
    hits = {
        language: sum(map(others.__contains__, words)) for language, others in _other_stop_words().items()
    }
    english = sum(map(english_stop_words().__contains__, words))
    best = max(hits, key=lambda language: hits[language])
    if hits[best] >= min_hits and hits[best] > _CLEAR * english:
        return best
    return ENGLISH if english >= min_hits else ""
