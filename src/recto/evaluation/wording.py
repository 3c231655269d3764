"""Word questions in plain English: clean headings, choose case, articles and verb forms.

What a grammar cannot tell (is "Sim" a name, is "serialization" countable, is "swizzle" a verb), the prose of
the book does: `Usage` counts how its words are used.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

FENCE = re.compile(r"^([ \t]*)(```+|~~~+)[^\n]*\n.*?(?:^[ \t]*\2[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
INLINE_CODE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"!?\[((?:[^\[\]\n]|\[[^\[\]\n]*\])*)\](?:\([^)\n]*\)|\[[^\]\n]*\])")
_TAG = re.compile(r"</?[A-Za-z][^<>\n]*>|<!--.*?-->|\{/\*.*?\*/\}|\{\s*[#.:][^{}\n]*\}", re.DOTALL)
_LINE_NOISE = re.compile(
    r"^[ \t]*(?:\|.*|:::.*|!!!.*|\?\?\?.*|===.*|import .*|export .*|!\[.*)$", re.MULTILINE
)
_LINE_MARK = re.compile(r"^[ \t]*(?:#{1,6} |[-*+] |\d+[.)] |> ?)+", re.MULTILINE)
_EMPHASIS = re.compile(r"\*{1,3}|(?<!\w)_(?=[^\W_])|(?<=[^\W_])_(?!\w)|~~|==")
_SYMBOLS = re.compile(
    r"[\u2190-\u21ff\u2300-\u27bf\u2b00-\u2bff\ufe00-\ufe0f\u200b-\u200f\U0001f000-\U0001faff]+"
)
_NUMBERING = re.compile(
    r"^(?:(?:step|phase|part|chapter|lesson|module|unit|section|week|day|lab|task|exercise|example|scenario"
    r"|template|script|option|method|approach|tip|appendix|case study|rule|pattern|strategy|technique|issue"
    r"|problem|error|question|q|challenge|project|experiment)"
    r"\s+(?:\d+(?:\.\d+)*[a-z]?|[A-Z](?![\w'])|[IVX]+\b)\s*(?:[:.)—–-]+\s*|$)"
    r"|\d+(?:\.\d+)+\.?\s+|\d+[.):]\s*|[A-Za-z][.)]\s+|\(\d+\)\s*)",
    re.IGNORECASE,
)
_ASIDE = re.compile(
    r"\s*[(\[](?=[^()\[\]]*(?:\d|optional|recap|advanced|recommended|deprecated|minutes|hours|medium|easy|hard"
    r"|continued|new))[^()\[\]]*[)\]]\s*$",
    re.IGNORECASE,
)
_NOUN_PHRASE = re.compile(
    r"\b(a|an|the)\s((?:[a-z][\w'-]*\s){0,3}?[A-Za-z][\w'-]*)(?=\s*(?:[.,;:!?)—–]|$)|\s(?:is|are|was|will|can|may"
    r"|must|should|has|does|of|that|which|who|where|when|with|to|for|in|and|or|by|from|on|as|at|into|if|but|so"
    r"|because|before|after|per|via|than|like|such|then|it|you|we|they|using|called|named|without|between"
    r"|instead|while|not|only|inside|under|over|each|every)\b)",
    re.MULTILINE,
)
_INFINITIVE = re.compile(r"\bto ([a-z]+)\b")
_LOWER = re.compile(r"(?<![\w'’./-])[a-z][a-z'-]*(?![\w/])")
_CAPITAL = re.compile(r"(?<!\w)[A-Z][a-z]+(?![\w/])")
_MID_CAPITAL = re.compile(r"(?<![\w'-])[a-z]+[,;]? ([A-Z][a-z]+)(?![\w/])")
_PAIR = re.compile(r"(?=\b([A-Z][\w-]* [A-Za-z][a-z]+)\b)")
_CODE_LIKE = re.compile(r"[_().]|[a-z][A-Z]|^[-@<]|\d")
_JOINED = re.compile(r"(?P<link>and|or|&) (?P<verb>\w+)\s?(?P<rest>.*)")
_SPELLED_WITH_AN = "AEFHILMNORSX"  # an MDX file, an LLM
_YOU_TO_I = {"your": "my", "yours": "mine", "yourself": "myself", "you": "I", "our": "my"}

_COUNTABLE_SHARE = 0.03  # of a noun's uses that have "a"
_ARTICLE_SHARE = 0.05
_NAMED_OFTEN = 3  # capitals of a word that is never in lower case: it is a name


@cache
def english() -> dict[str, Any]:
    """Return the word lists, as sets, and the roles of headings."""
    data = tomllib.loads(files("recto.evaluation").joinpath("english.toml").read_text("utf-8"))
    return {
        name: frozenset(value.split()) if isinstance(value, str) else value for name, value in data.items()
    }


def words(name: str) -> frozenset[str]:
    """Return one of the word lists."""
    found: frozenset[str] = english()[name]
    return found


def clean(text: str) -> str:
    """Return a heading or a table cell without markup, symbols, numbering, asides and a trailing colon."""
    text = _TAG.sub(" ", _LINK.sub(r"\1", INLINE_CODE.sub(r"\1", text.replace("\\|", "|"))))
    text = _SYMBOLS.sub(" ", _EMPHASIS.sub("", text)).replace("\\", "").replace("`", "")
    text = " ".join(text.split()).rstrip(" -–—:;.,")
    for _ in range(2):
        text = _ASIDE.sub("", _NUMBERING.sub("", text)).strip(" –—:;,•").rstrip("-.")
    return text.removeprefix("- ")


def prose(text: str) -> str:
    """Return the text without code blocks, tables, images and markup; inline code keeps its backticks."""
    text = _LINE_NOISE.sub("", FENCE.sub("\n", text))
    return _EMPHASIS.sub("", _TAG.sub("", _LINE_MARK.sub("", _LINK.sub(r"\1", text))))


def key(text: str) -> str:
    """Return a form of a subject that is the same for singular and plural, with and without an article."""
    found = (word.strip("\"'“”?!.,:;()") for word in text.casefold().split())
    return " ".join(singular(word) for word in found if word and word not in {"a", "an", "the"})


def singular(word: str) -> str:
    """Return the singular of a noun by its ending; good enough to compare words."""
    if not is_plural(word) or word in words("plurals"):
        return word
    if word.endswith("ies") and len(word) > 4:
        return f"{word[:-3]}y"
    return word[:-2] if word.endswith(("sses", "xes", "shes", "ches")) else word[:-1]


def head(phrase: str) -> str:
    """Return the head noun of a noun phrase: the last word before a preposition."""
    parts = phrase.split()
    for number, word in enumerate(parts):
        if number and word.lower() in words("prepositions"):
            participle = number > 1 and parts[number - 1].endswith("ed")  # fields based on their value
            return parts[number - 2 if participle else number - 1]
    return parts[-1] if parts else ""


def is_plural(phrase: str) -> bool:
    """Return whether a noun phrase takes "are"."""
    parts = phrase.split()
    if "and" in parts[1:-1]:
        place = parts.index("and")
        one_thing = parts[0] in {"a", "an", "the"} and parts[place + 1] not in words("determiners")
        if not one_thing and not words("prepositions").intersection(parts[:place]):
            return True
        phrase = " ".join(parts[place + 1 :]) if one_thing else phrase
    noun = head(phrase).strip("()\"'")
    if not noun.endswith("s") or len(noun) < 4 or noun.lower() in words("singular_s"):
        return noun.lower() in words("plurals")
    field_of_study = noun.lower().endswith(tuple(words("fields_of_study")))
    return noun[:-1].isupper() or not (noun.isupper() or field_of_study or noun.endswith(("ss", "us", "is")))


def agree(verb: str, subject: str) -> str:
    """Return "is" or "does" as the subject needs it."""
    return {"is": "are", "does": "do"}[verb] if is_plural(subject) else verb


def with_a(phrase: str) -> str:
    """Return the phrase after "a" or "an"."""
    first = phrase.split(" ", 1)[0]
    if first.isupper() and len(first) > 1 and not re.match(r"[^AEIOU][AEIOU]", first):  # it is spelled out
        vowel = first[0] in _SPELLED_WITH_AN
    else:
        silent = re.match(r"hour|honest|heir", first, re.IGNORECASE)
        consonant = re.match(r"uni|use|usu|eu|one|ur[ld]|ut", first, re.IGNORECASE)
        vowel = bool(silent) or (first[:1].lower() in set("aeiou") and not consonant)
    return f"{'an' if vowel else 'a'} {phrase}"


@dataclass(frozen=True, slots=True)
class Usage:
    """How the prose of a book uses words: case, articles, countable nouns, verbs, and code."""

    lower: Counter[str] = field(default_factory=Counter)
    capital: Counter[str] = field(default_factory=Counter)
    initial: Counter[str] = field(default_factory=Counter)
    pairs: Counter[str] = field(default_factory=Counter)
    articles: dict[str, Counter[str]] = field(default_factory=dict)
    heads: Counter[str] = field(default_factory=Counter)
    infinitives: Counter[str] = field(default_factory=Counter)
    code: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, texts: Iterable[str]) -> Usage:
        """Count the words of all texts."""
        usage = cls()
        for text in texts:
            written = prose(text)
            usage.code.update(INLINE_CODE.findall(written))
            plain = " ".join(INLINE_CODE.sub(" ", line) for line in written.splitlines())
            usage.lower.update(_LOWER.findall(plain))
            usage.capital.update(found.lower() for found in _MID_CAPITAL.findall(plain))
            usage.initial.update(found.lower() for found in _CAPITAL.findall(plain))
            usage.pairs.update(_PAIR.findall(plain))
            usage.infinitives.update(_INFINITIVE.findall(plain))
            for article, phrase in _NOUN_PHRASE.findall(plain.replace("The ", "the ").replace("A ", "a ")):
                usage.articles.setdefault(phrase.lower(), Counter())[article] += 1
                if article != "the":
                    usage.heads[phrase.lower().split()[-1]] += 1
        return usage

    def is_common(self, word: str) -> bool:
        """Return whether a word is an ordinary one, so not a name: the book writes it in lower case."""
        word = word.lower()
        if not self.lower[word] and not self.capital[word]:
            known = word in words("verbs") or word in words("prefixes")
            return known or self.initial[word] < _NAMED_OFTEN
        return self.lower[word] * 2 >= self.capital[word]  # titles are quoted in prose too

    def cased(self, phrase: str) -> str:
        """Return the phrase in sentence case; names, acronyms and code stay as they are."""
        parts = phrase.split()
        found: list[str] = []
        small = words("prepositions") | words("determiners")
        sentence = any(
            len(word) > 3 and word.isalpha() and word.islower() and word not in small for word in parts[1:]
        )
        for word in parts:
            before, lowered = (found[-1] if found else ""), self._cased_word(word)
            if before[:1].isupper() and self.pairs[f"{before} {word}"] > self.pairs[f"{before} {lowered}"]:
                lowered = word  # Visual Studio Code
            # If other words are in lower case, a capital within the phrase is that of a name.
            found.append(word if found and sentence else lowered)
        first = parts[0].lower() if parts else ""
        if sentence and parts[0].istitle() and self.lower[first] * 3 >= self.capital[first] > 0:
            found[0] = first  # capitalised by its position, or in titles
        return " ".join(found)

    def _cased_word(self, word: str) -> str:
        parts = word.split("-")
        if len(parts) > 1 and all(part.isalnum() for part in parts):
            cased = [self._cased_word(part) for part in parts]
            titled = all(part.istitle() for part in parts if part.isalpha() and len(part) > 1)
            return word.lower() if titled and cased[0].islower() else "-".join(cased)
        bare = word.strip("\"'“”(),.:;?!").removesuffix("'s").removesuffix("’s")
        if "()" in word or not bare.isalpha() or not ((bare.istitle() and len(bare) > 1) or bare == "A"):
            return word
        common = bare == "A" or self.is_common(bare) or bare.lower() in words("prepositions")
        return word.lower() if common else word

    def is_name(self, phrase: str) -> bool:
        """Return whether a cased phrase is a proper noun or code, by its head."""
        return not _is_lower(head(phrase))

    def countable(self, noun: str) -> bool:
        """Return whether the book uses "a" with the noun."""
        noun = noun.lower()
        if noun in words("mass"):
            return False
        if noun in words("count_nouns"):
            return True
        agent = len(noun) > 5 and noun.endswith(("er", "or"))
        return agent or self.heads[noun] > max(1, _COUNTABLE_SHARE * self.lower[noun])

    def _has_a(self, phrase: str) -> bool:
        """Return whether the book writes "a" before exactly this phrase, more than by chance."""
        seen = self.articles.get(phrase.lower(), Counter())
        indefinite = seen["a"] + seen["an"]
        rare = " " not in phrase and indefinite < _ARTICLE_SHARE * self.lower[phrase.lower()]
        return indefinite > 0 and not rare and indefinite * 3 >= seen["the"]

    def with_article(self, phrase: str) -> str:
        """Return a cased noun phrase with the article that the book uses with it, if any."""
        first = phrase.split(" ", 1)[0]
        if first.lower() in words("determiners") or is_plural(phrase):
            return phrase
        if self._has_a(phrase):
            return with_a(phrase)
        if self.articles.get(phrase.lower(), Counter())["the"] > 1:
            return f"the {phrase}"
        noun = head(phrase).lower()
        after_name = not _is_lower(first) and " " in phrase
        if self.is_name(phrase) or not ((after_name and self.heads[noun]) or self.countable(noun)):
            return phrase
        return f"the {phrase}" if after_name or " of " in phrase else with_a(phrase)

    def indefinite(self, phrase: str) -> str:
        """Return a cased noun phrase with "a" or "an" if it is countable."""
        first = phrase.split(" ", 1)[0].lower()
        if first in words("determiners") or is_plural(phrase):
            return phrase
        noun = head(phrase)
        mass = noun.endswith(tuple(words("abstract_endings"))) and noun not in words("count_nouns")
        counted = not mass and not self.is_name(phrase) and self.countable(noun)
        return with_a(phrase) if counted or self._has_a(phrase) else phrase

    def imperative(self, phrase: str) -> str:
        """Return the phrase as it follows "How do I", or "" if it is not an imperative or a gerund phrase."""
        first, _, rest = phrase.partition(" ")
        verb = self._verb(first, rest) if rest and not first[1:].isupper() else ""
        if not verb:
            return ""
        if joined := _JOINED.fullmatch(rest):  # creating and using nodes
            second = joined["verb"].lower()
            second = self._base(second) if second.endswith("ing") else second
            if second not in words("verbs") and not self.infinitives[second]:
                return ""
            link = joined["link"].replace("&", "and")
            found = [verb, link, second, *self.object(joined["rest"]).split()]
        else:
            found = [*verb.split(), *self.object(rest).split()]
        if found[-1].lower() in words("prepositions"):
            return ""
        return " ".join(_YOU_TO_I.get(one.lower(), one) for one in found)

    def _verb(self, first: str, rest: str) -> str:
        """Return the base form of the verb that a phrase begins with, or ""."""
        word, lead = first.lower(), rest.split(" ", 1)[0]
        if not word.replace("-", "").isalpha() or lead.lower() in {"is", "are", "used", "not"}:
            return ""
        bare = lead.lower() not in words("determiners")
        if word in words("verbs"):
            return "" if bare and word in words("also_nouns") and not _CODE_LIKE.search(lead) else word
        if not word.endswith("ing"):
            return ""
        if bare and word in words("noun_gerunds") and lead.lower() not in words("prepositions"):
            return ""
        return self._base(word) if not bare or self._is_object(rest) else ""

    def object(self, phrase: str) -> str:
        """Return the object of a verb in sentence case, with an article if it needs one."""
        phrase = self.cased(phrase)
        first, _, rest = phrase.partition(" ")
        if first in words("prepositions"):
            one_noun = rest.isalpha() and rest.islower() and not is_plural(rest) and self.countable(rest)
            return f"{first} the {rest}" if one_noun else phrase
        fixed = first.lower() in words("determiners") | words("particles") or first.endswith("ly")
        if not phrase or fixed or is_plural(phrase) or self.is_name(phrase):
            return phrase
        noun = head(phrase)
        described = first in words("needs_article") and noun not in words("mass")
        if not described and not self.countable(noun):
            return phrase
        return f"the {phrase}" if " of " in phrase else with_a(phrase)

    def _is_object(self, rest: str) -> bool:
        """Return whether words after a gerund are its object, so it is not an adjective ("reading time")."""
        first = rest.split(" ", 1)[0]
        if first.lower() in words("prepositions") or _CODE_LIKE.search(first) or first.endswith("ly"):
            return True
        return is_plural(rest) or " " in rest or not self.countable(head(rest))

    def _base(self, gerund: str) -> str:
        """Return the base form of a gerund, or "" if the book does not use it as a verb."""
        stem = gerund[:-3]
        forms = [stem, f"{stem}e"]
        if len(stem) > 3 and stem[-1] == stem[-2]:
            forms.insert(0, stem[:-1])
        known = [form for form in forms if form in words("verbs")]
        best = max(forms, key=lambda form: self.infinitives[form])
        return known[0] if known else best if self.infinitives[best] > 1 else ""


def _is_lower(word: str) -> bool:
    return word.replace("-", "").isalpha() and word.islower()
