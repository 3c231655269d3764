"""Draft a suite from an index: questions that a reader could ask, each bound to the section that answers it.

Questions are made from headings and text, by patterns and templates. A template does not know which article
a noun takes, so some questions read stiffly: a person reviews them. `english.toml` has the word lists, and
the questions for headings such as "Limitations".

A question whose subject is on several pages names the subject of its page, or is left out. Pages in other
languages give the headings that are questions, and quoted headings.
"""

from __future__ import annotations

import random
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from itertools import islice, zip_longest
from typing import Any

from recto.evaluation.binding import section_name
from recto.evaluation.suites import Expectation, Suite
from recto.protocols import Index
from recto.search.query import current_edition
from recto.types.search import Chunk

_MIN_WORDS, _MAX_WORDS = 3, 15
_MAX_CHARACTERS = 150
_MAX_QUOTED = 8  # words
_MAX_PLACES = 3  # a subject in more places is not specific to any of them
_BOILERPLATE = 4  # a heading on more pages belongs to a template
_LONGEST_TERM = 4  # words
_UNREADABLE = re.compile(r"[`*|<>{}\[\]\\$~^]|(?:^|\s)#|https?://|&\w+;|__\W|\W__(?!\w+__)|[\x00-\x1f]")
_ENGLISH = {"the", "and", "of", "to", "is", "with", "that", "this", "for", "are", "you", "it", "be", "by"}
_ENGLISH_SHARE = 0.06  # of all words: prose has 0.2, an outline 0.1, another language 0.03 at most
_WORD = re.compile(r"[^\W\d_]+")
_MAX_SUBJECT = 6  # words

# Markup
_FENCE = re.compile(r"^[ \t]*(```+|~~~+)[^\n]*\n.*?(?:^[ \t]*\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_INLINE_CODE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"!?\[((?:[^\[\]\n]|\[[^\[\]\n]*\])*)\](?:\([^)\n]*\)|\[[^\]\n]*\])")
_TAG = re.compile(r"</?[A-Za-z][^<>\n]*>|<!--.*?-->|\{/\*.*?\*/\}|\{\s*[#.:][^{}\n]*\}", re.DOTALL)
_NOT_PROSE = re.compile(r"^[ \t]*(?:\||:::|!!!|\?\?\?|===|import |export |!\[).*$", re.MULTILINE)
_LINE_MARK = re.compile(r"^[ \t]*(?:#{1,6} |[-*+] |\d+[.)] |> ?)+", re.MULTILINE)
_EMPHASIS = re.compile(r"\*{1,3}|(?<!\w)_(?=[^\W_])|(?<=[^\W_])_(?!\w)|~~|==")
_SYMBOLS = re.compile(
    "[\u2190-\u21ff\u2300-\u27bf\u2b00-\u2bff\ufe00-\ufe0f\u200b-\u200f\U0001f000-\U0001faff]+"
)
_NUMBERING = re.compile(  # "3. ", "2.1 ", "Lesson 2.2 — ", "Error 3: ", "B) "
    r"^(?:(?:[A-Za-z]+\s+)?\d+(?:\.\d+)*[a-z]?\s*(?:[:.)—–]|-\s)\s*|\d+(?:\.\d+)+\s+|\(\d+\)\s*|[A-Za-z][.)]\s+)"
)
_ASIDE = re.compile(r"\s[(\[<][^()\[\]<>]+[)\]>]$")

# Headings
_INTRODUCTION = re.compile(
    r"^(?:(?:an? )?(?:introduction to|intro to|getting started with|overview of|guide to|understanding) )?"
    r"(?:the |an? )?",
    re.IGNORECASE,
)
_NOT_A_NOUN = re.compile(r"[→↔⇒=<>?!;:/\"“”()&+,%]|\s[-–—]\s|'")
_TASK = re.compile(r"\W*(?:exercise|challenge|assignment|homework|project)\b", re.IGNORECASE)
_PROBLEM = re.compile(r"\W*(?:error|issue|problem|symptom|bug)\s*\d*\s*[:.—–-]\s*(.+)$", re.IGNORECASE)
_VERSUS = re.compile(r"(?P<one>[^:,]+?) (?:vs\.?|versus) (?:the )?(?P<other>[^:,—–]+)", re.IGNORECASE)
_ASKS = re.compile(
    r"(?:how|what|when|where|which|who|why|can|should|do|does|is|are|could|will) .+\?", re.IGNORECASE
)
_HOW_TO = re.compile(r"(?P<word>how|what|when|where) to (?P<action>.+)", re.IGNORECASE)
_SHORT_ACTION = re.compile(r"[\w-]+ (?:(?:the|my|an?|some) )?[a-z]+")

# Definitions and errors
_A_THING = r"(?:an?|any|the)\s(?P<next>[\w-]+)"  # how a definition goes on after "is"
_DEFINITION = re.compile(
    r"(?:^|(?<=[.!?]\s))(?P<article>An?\s)?(?P<term>[A-Za-z][\w./+-]*(?:\s[\w./+-]+){0,3}?)(?:\s\([A-Z]\w+\))?\s"
    rf"(?:(?P<verb>is|are)\s{_A_THING}|refers to|is defined as)\s[^.\n]{{10,}}",
    re.MULTILINE,
)
_LISTED = re.compile(
    r"^[ \t]*(?:[-*+]|\d+\.)\s+\*\*(?P<term>[^*\n]{3,40}?)(?::\*\*|\*\*\s*(?:\([A-Z]{2,6}\))?\s*(?::|-|–|—))"
    rf"\s+\**{_A_THING}\s",
    re.MULTILINE | re.IGNORECASE,
)
_EXCEPTION = re.compile(r"`(?:[\w.]+\.)?(?P<name>[A-Z]\w+(?:Error|Exception|Warning))`")
_ERROR_LINE = re.compile(
    r"^[ \t]*(?P<line>(?:(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception|Warning)|error|ERROR|Error|fatal|FATAL)"
    r"(?:\[[\w-]+\])?:\s(?:(?!\.\.\.|…|%s|[{}<>`|$*\\]).){10,140}(?<![,:(]))$",
    re.MULTILINE,
)

# Identifiers
_CODE_SHAPE = re.compile(
    r"(?:--?[a-z][\w-]+|@?[A-Za-z][\w.]*\(.*\)|@[a-zA-Z][\w./-]+|[A-Za-z]\w*(?:_\w+)+|_*[a-z]+\d*[A-Z]\w*"
    r"|[A-Za-z]\w+(?:\.\w+)+|[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]+)+)"
)
_CODE_ITEM = re.compile(
    r"^[ \t]*[-*+]\s+(?:\*\*)?`(?P<name>[^`\n]{3,40})`(?:\*\*)?(?:\s\([^)\n]*\))?\s*(?::|-|–|—)\s+\S.{15,}$",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class SectionText:
    """A section with all its text; `subject` is the subject of its page, "" if the title names none."""

    place: str
    page: str
    module: str
    title: str
    headings: tuple[str, ...]
    text: str
    subject: str = ""

    @property
    def heading(self) -> str:
        """The section's own heading; "" for the text under the page's title."""
        return self.headings[-1] if len(self.headings) > 1 else ""


@dataclass(frozen=True, slots=True)
class DraftedQuestion:
    """A question about a section; `about` is its subject, `rank` is 0 for the kinds that read best.

    If `needs_page` is true, it is clear only with the subject of the page.
    """

    query: str
    kind: str
    section: SectionText
    about: str
    rank: int = 0
    needs_page: bool = False


Questions = dict[DraftedQuestion, tuple[str, ...]]
"""Drafted questions with the names of the sections that answer them."""


def draft(index: Index, count: int, name: str = "drafted", seed: int = 0) -> Suite:
    """Draft up to `count` questions, spread over modules, pages and kinds; always the same for a seed."""
    chosen = choose_drafts(find_questions(index.scroll(current_edition(index))), count, seed)
    return Suite(
        name,
        tuple(Expectation(one.query, pages=places, tags=(one.kind,), drafted=True) for one, places in chosen),
    )


def find_questions(chunks: Iterable[Chunk]) -> Questions:
    """Return all questions that can be drafted from chunks, with the sections that answer them."""
    sections = _sections(chunks)
    mentions = _Mentions(sections)
    if _is_english(sections):
        drafted = list(_from_english(sections, mentions))
    else:
        drafted = [one for section in sections for one in _quoted(section)]
    return _unambiguous([one for one in drafted if _is_readable(one.query)], mentions)


def _from_english(sections: list[SectionText], mentions: _Mentions) -> Iterator[DraftedQuestion]:
    usage = Usage(section.text for section in sections)
    subjects = _subjects(sections, usage)
    for section in sections:
        titled = replace(section, subject=subjects[section.page])
        yield from from_text(titled, usage)
        # A heading that many pages have can be asked only about the subject of its page ("Limitations").
        is_template = mentions.is_template(section.heading)
        yield from (one for one in from_heading(titled, usage) if not (is_template and one.about))


def _sections(chunks: Iterable[Chunk]) -> list[SectionText]:
    """Join the chunks of each section, in the order of the pages."""
    parts: dict[tuple[str, str, tuple[str, ...]], list[Chunk]] = defaultdict(list)
    for chunk in sorted(chunks, key=lambda one: (one.page_url, one.chunk_index)):
        parts[chunk.page_url, chunk.anchor, chunk.headings].append(chunk)
    sections = []
    for (page, _, headings), inside in parts.items():
        first, text = inside[0], "\n\n".join(chunk.text for chunk in inside)
        place = section_name(first)
        sections.append(SectionText(place, page, first.module, first.title, headings, text))
    return sections


def _is_english(sections: list[SectionText]) -> bool:
    words = [word for section in sections for word in _WORD.findall(prose(section.text).lower())]
    return sum(word in _ENGLISH for word in words) >= _ENGLISH_SHARE * max(1, len(words))


def _subjects(sections: list[SectionText], usage: Usage) -> dict[str, str]:
    """Return the subject of each page; "" if its title names none, or the same as another page's."""
    titles = {section.page: section.title for section in sections}
    subjects = {page: page_subject(title, usage) for page, title in titles.items()}
    pages = Counter(_key(subject) for subject in subjects.values())
    return {page: subject if pages[_key(subject)] == 1 else "" for page, subject in subjects.items()}


def _quoted(section: SectionText) -> Iterator[DraftedQuestion]:
    """Yield the question about a section in another language: a heading that asks, or the quoted heading."""
    heading, title = clean(section.heading), clean(section.title)
    if heading.endswith(("?", "？", "؟")):
        yield DraftedQuestion(heading, "question", section, heading)
    elif heading and len(heading.split()) <= _MAX_QUOTED and heading.casefold() not in title.casefold():
        quoted = f'"{heading.replace(chr(34), "")}" {title}'
        yield DraftedQuestion(quoted, "heading", section, quoted, 2)


def _key(text: str) -> str:
    """Return a form of a subject that is the same for singular and plural, with and without an article."""
    words = (word.strip("\"'“”?!.,:;()") for word in text.casefold().split())
    return " ".join(
        word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")) else word
        for word in words
        if word and word not in {"a", "an", "the"}
    )


class _Mentions:
    """Which pages have a subject as a heading, or within a heading."""

    def __init__(self, sections: list[SectionText]) -> None:
        self._headings: dict[str, set[str]] = defaultdict(set)
        self._in_headings: dict[str, set[str]] = defaultdict(set)
        for section in sections:
            for heading in section.headings:
                words = _key(clean(heading)).split()
                self._headings[" ".join(words)].add(section.page)
                for start in range(len(words)):
                    for end in range(start + 1, min(len(words), start + _LONGEST_TERM) + 1):
                        self._in_headings[" ".join(words[start:end])].add(section.page)

    def is_template(self, heading: str) -> bool:
        """Return whether so many pages have a heading that it belongs to their template."""
        return len(self._headings[_key(clean(heading))]) > _BOILERPLATE

    def is_specific(self, subject: str, pages: set[str], *, is_term: bool) -> bool:
        """Return whether a reader expects the subject on these pages, and not on others."""
        if self._headings[subject] - pages:
            return False
        own, others = self._in_headings[subject] & pages, self._in_headings[subject] - pages
        return not is_term or len(others) <= (_MAX_PLACES if own else 0)


def _unambiguous(drafted: list[DraftedQuestion], mentions: _Mentions) -> Questions:
    """Keep one question for each subject; narrow or drop a question that other pages answer too."""
    groups: dict[str, list[DraftedQuestion]] = defaultdict(list)
    for one in drafted:
        groups[_key(one.about or one.query)].append(one)
    kept: Questions = {}
    for subject, group in groups.items():
        pages: dict[str, list[DraftedQuestion]] = defaultdict(list)
        for one in group:
            pages[one.section.page].append(one)
        best = min(group, key=lambda one: (one.needs_page, one.rank))
        places = tuple(dict.fromkeys(one.section.place for one in group))
        is_term = all(one.kind == "definition" for one in group)
        specific = not best.about or mentions.is_specific(subject, set(pages), is_term=is_term)
        if specific and not best.needs_page and (len(pages) == 1 or is_term) and len(places) <= _MAX_PLACES:
            kept[best] = places if is_term else (best.section.place,)
        else:
            kept |= _narrowed(pages.values())
    queries = Counter(_key(one.query) for one in kept)
    return {one: places for one, places in kept.items() if queries[_key(one.query)] == 1}


def _narrowed(pages: Iterable[list[DraftedQuestion]]) -> Questions:
    """Return one question for each page that names the subject of the page."""
    kept: Questions = {}
    for inside in pages:
        best = min(inside, key=lambda one: one.rank)
        query = _in_page(best)
        if query and len({one.section.place for one in inside}) <= _MAX_PLACES:
            kept[replace(best, query=query, rank=best.rank + 1)] = (best.section.place,)
    return kept


def _in_page(one: DraftedQuestion) -> str:
    """Return the question with the subject of its page, or "" if that does not make it readable."""
    subject = one.section.subject
    stems = {word[:6] for word in _key(one.query[:-1]).split()}
    named = {word[:6] for word in _key(subject).split()}
    if not subject or one.kind in {"error", "definition"} or not one.query.endswith("?"):
        return ""
    if named & stems or " in " in one.query:
        return one.query if one.needs_page and named <= stems else ""
    query = f"{one.query[:-1]} {'when' if subject.split()[0].endswith('ing') else 'in'} {subject}?"
    return query if _is_readable(query) else ""


def _is_readable(query: str) -> bool:
    words = query.split()
    if _UNREADABLE.search(query) or len(query) > _MAX_CHARACTERS or query.count('"') % 2:
        return False
    if not query.isascii() and not any(word.isascii() for word in words):  # Chinese has no spaces
        return len(query) >= _MIN_WORDS
    return _MIN_WORDS <= len(words) <= _MAX_WORDS and any(char.isalpha() for char in query)


def choose_drafts(found: Questions, count: int, seed: int) -> list[tuple[DraftedQuestion, tuple[str, ...]]]:
    """Choose questions in turn from each module, the best first, spread over its pages and kinds."""
    modules: dict[str, list[DraftedQuestion]] = defaultdict(list)
    for one in found:
        modules[one.section.module].append(one)
    generator = random.Random(seed)  # noqa: S311 (not for secrets)
    turns = [_spread(generator.sample(inside, len(inside))) for _, inside in sorted(modules.items())]
    order = (one for row in zip_longest(*turns) for one in row if one is not None)
    return [(one, found[one]) for one in islice(order, count)]


def _spread(inside: list[DraftedQuestion]) -> list[DraftedQuestion]:
    """Order the questions of a module so that pages and kinds alternate, and the better ones come first."""
    on_page: Counter[str] = Counter()
    of_kind: Counter[str] = Counter()
    order: dict[DraftedQuestion, float] = {}
    for one in sorted(inside, key=lambda one: one.rank):
        order[one] = one.rank + on_page[one.section.page] + of_kind[one.kind] / 4
        on_page[one.section.page] += 1
        of_kind[one.kind] += 1
    return sorted(order, key=lambda one: order[one])


@cache
def _lists() -> dict[str, Any]:
    data = tomllib.loads(files("recto.evaluation").joinpath("english.toml").read_text("utf-8"))
    questions = data.pop("page_questions")
    lists: dict[str, Any] = {name: frozenset(words.split()) for name, words in data.items()}
    return lists | {"page_questions": {name: text for text, names in questions.items() for name in names}}


def _words(name: str) -> frozenset[str]:
    words: frozenset[str] = _lists()[name]
    return words


def clean(text: str) -> str:
    """Return a heading without markup, symbols, numbering, asides and a trailing colon."""
    text = _TAG.sub(" ", _LINK.sub(r"\1", _INLINE_CODE.sub(r"\1", text)))
    text = _SYMBOLS.sub(" ", _EMPHASIS.sub("", text)).replace("\\", "").replace("`", "").replace("’", "'")
    text = " ".join(text.split()).rstrip(" -–—:;.,")
    return _ASIDE.sub("", _NUMBERING.sub("", text)).strip(" –—:;,•").rstrip("-.").removeprefix("- ")


def prose(text: str) -> str:
    """Return the text without code blocks, tables, images and markup; inline code keeps its backticks."""
    text = _NOT_PROSE.sub("", _FENCE.sub("\n", text))
    return _EMPHASIS.sub("", _TAG.sub("", _LINE_MARK.sub("", _LINK.sub(r"\1", text))))


class Usage:
    """How the prose of a book writes words: which of them are names, and which are code."""

    def __init__(self, texts: Iterable[str]) -> None:
        text = "\n".join(map(prose, texts))
        self.code = {name.removesuffix("()") for name in _INLINE_CODE.findall(text)}
        plain = " ".join(_INLINE_CODE.sub(" ", text).split())
        small = {*re.findall(r"(?<![\w'./-])[a-z]+(?![\w/])", plain), *_words("verbs"), *_words("joints")}
        capitals = set(re.findall(r"(?<![\w'-])[a-z]+[,;]? ([A-Z][a-z]+)(?![\w/])", plain))
        self._names = capitals - {word.capitalize() for word in small}

    def in_sentence(self, phrase: str) -> str:
        """Return a phrase as it is written within a sentence: only names keep their capitals."""
        others = set(phrase.split()[1:]) - _words("joints")
        # In a phrase with other small letters, only the first word can be capitalised by its position.
        start = "^" if any(word.isalpha() and word.islower() for word in others) else r"(?<![\w./@])"
        return re.sub(
            start + r"(?:[A-Z][a-z]+|A)(?![\w(.])",
            lambda match: match[0] if match[0] in self._names else match[0].lower(),
            phrase,
        )


def is_empty(heading: str) -> bool:
    """Return whether a heading has no subject: "Summary", "Key concepts", "Chapter 3"."""
    found = re.findall(r"[a-z][a-z'-]*", heading.casefold())
    return all(word in _words("empty") or word in _words("joints") or not word.strip("ivx") for word in found)


def _has(text: str, *lists: str) -> bool:
    """Return whether a text has a word of one of the lists."""
    found = set(re.findall(r"[a-z'-]+", text.lower()))
    return any(not _words(name).isdisjoint(found) for name in lists)


def _is_subject(text: str, most: int = _MAX_SUBJECT) -> bool:
    """Return whether a phrase can name a subject: it is not vague, a sentence or an instruction."""
    words = text.lower().split()
    if not 1 <= len(words) <= most or is_empty(text) or _NOT_A_NOUN.search(text):
        return False
    is_instruction = len(words) > 1 and words[0] in _words("verbs")
    ends = _words("joints") & {words[0], words[-1]}
    return not (is_instruction or ends or _has(text, "vague", "sentence"))


def page_subject(title: str, usage: Usage) -> str:
    """Return the subject that a page's title names, as it is written within a sentence, or ""."""
    parts = (clean(part) for part in re.split(r":\s|\s[-–—|]\s", clean(title)))
    text = _INTRODUCTION.sub("", next((part for part in parts if not is_empty(part)), "")).replace("&", "and")
    return usage.in_sentence(text) if _is_subject(text) else ""


def from_heading(section: SectionText, usage: Usage) -> Iterator[DraftedQuestion]:
    """Yield the question that a section's heading asks or answers."""
    text = clean(section.heading)
    about_page = _lists()["page_questions"].get(text.casefold().removeprefix("the ").rstrip("?"), "")
    if about_page and section.subject and len(section.headings) == 2:
        yield DraftedQuestion(about_page.format(subject=section.subject), "heading", section, "", 1)
    elif problem := _PROBLEM.match(section.heading):
        yield from _symptom(section, clean(problem[1]))
    elif is_empty(text) or _has(text, "vague") or _TASK.match(section.heading):
        return
    elif _is_code(text, usage):
        yield _about_code(section, text)
    elif versus := _VERSUS.fullmatch(text):
        one, other = usage.in_sentence(versus["one"]), usage.in_sentence(versus["other"])
        query = f"What is the difference between {one} and {other}?"
        yield DraftedQuestion(query, "comparison", section, text)
    elif question := _asked(text, usage):
        yield DraftedQuestion(question, "question", section, text)
    elif action := _action(text, usage):
        is_short = _SHORT_ACTION.fullmatch(action) is not None
        yield DraftedQuestion(f"How do I {action}?", "steps", section, text, needs_page=is_short)
    else:
        yield from _topic(section, usage, _INTRODUCTION.sub("", text.partition(":")[0]))


def _asked(text: str, usage: Usage) -> str:
    """Return a heading that asks, or that begins like a question, as a question; "" for others."""
    if _ASKS.fullmatch(text):
        return f"{text[0].upper()}{usage.in_sentence(text)[1:]}"
    if how_to := _HOW_TO.fullmatch(text):
        verb = "do" if how_to["word"].lower() == "how" else "should"
        return f"{how_to['word'].capitalize()} {verb} I {_as_i(usage.in_sentence(how_to['action']))}?"
    return ""


def _action(text: str, usage: Usage) -> str:
    """Return an instruction as it follows "How do I", or "" if a heading does not begin with a verb."""
    joined = re.match(r"(\w+) (?:and|&) (\w+) (.+)", text)  # creating and using nodes
    first, second, rest = joined.groups() if joined else (text.partition(" ")[0], "", text.partition(" ")[2])
    verbs, lead = [_verb(word) for word in (first, second) if word], rest.partition(" ")[0]
    before_object = second or lead.lower() in _words("joints") or _CODE_SHAPE.fullmatch(lead)
    if not all(verbs) or not rest or "?" in rest or (first.lower() in _words("nouns") and not before_object):
        return ""
    return _as_i(f"{' and '.join(verbs)} {usage.in_sentence(rest)}")


def _verb(word: str) -> str:
    """Return a verb, or the verb of a gerund; "" for other words."""
    word = word.lower()
    stem = word.removesuffix("ing")
    forms = (word,) if stem == word else (stem, f"{stem}e", stem[:-1])  # install, use, set
    return next((form for form in forms if form in _words("verbs")), "")


def _as_i(text: str) -> str:
    return re.sub(r"\byour\b", "my", re.sub(r"\byou\b", "I", text))


def _topic(section: SectionText, usage: Usage, text: str) -> Iterator[DraftedQuestion]:
    """Ask about a noun phrase, if the section's own text speaks of it."""
    topic, body = usage.in_sentence(text), prose(section.text).lower()
    if _is_subject(text) and all(word[: max(4, len(word) - 3)] in body for word in text.lower().split()):
        is_word = topic.isalpha() and topic.islower()
        query = f"What should I know about {topic}?"
        yield DraftedQuestion(query, "heading", section, text, 2 if is_word else 1, needs_page=is_word)


def _symptom(section: SectionText, what: str) -> Iterator[DraftedQuestion]:
    what = what.strip(" .!'\"“”")
    if " " in what and not is_empty(what):
        yield DraftedQuestion(f'How do I fix "{what}"?', "error", section, what)


def _is_code(text: str, usage: Usage) -> bool:
    """Return whether a heading is an identifier; a name such as GitHub is one only if the book quotes it."""
    in_code = text.removesuffix("()") in usage.code
    has_shape = _CODE_SHAPE.fullmatch(text) and (in_code or not text.isalnum())
    return " " not in text and len(text) > 2 and bool(has_shape or (in_code and text[0].islower()))


def _about_code(section: SectionText, name: str, rank: int = 0) -> DraftedQuestion:
    name = re.sub(r"\(.+\)$", "()", name)
    is_word = name.isalpha() and name.islower()
    return DraftedQuestion(f"What does {name} do?", "identifier", section, name, rank, needs_page=is_word)


def from_text(section: SectionText, usage: Usage) -> Iterator[DraftedQuestion]:
    """Yield the questions that the text of a section answers."""
    plain, without_code = prose(section.text), _FENCE.sub("\n", section.text)
    yield from _definitions(section, usage, plain)
    for match in _CODE_ITEM.finditer(without_code):
        if _CODE_SHAPE.fullmatch(match["name"]):
            yield _about_code(section, match["name"], rank=1)
    for fence in _FENCE.finditer(section.text):
        for match in _ERROR_LINE.finditer(fence[0]):  # a reader pastes what is printed
            line = " ".join(match["line"].split())
            yield DraftedQuestion(line, "error", section, line)
    for match in _EXCEPTION.finditer(plain):
        yield DraftedQuestion(f"Why do I get {match['name']}?", "error", section, match["name"], 1)


def _definitions(section: SectionText, usage: Usage, plain: str) -> Iterator[DraftedQuestion]:
    plain = _INLINE_CODE.sub(r"\1", re.sub(r"(?<=\S)\n(?=\S)", " ", plain))
    for match in (*_DEFINITION.finditer(plain), *_LISTED.finditer(section.text)):
        if (match["next"] or "").lower() not in _words("qualities"):  # not "is a good idea"
            groups = match.groupdict("")
            before = f"What {groups.get('verb') or 'is'} {groups.get('article', '').lower()}"
            yield from _definition(section, usage, clean(match["term"]), before)


def _definition(
    section: SectionText, usage: Usage, term: str, before: str = "What is "
) -> Iterator[DraftedQuestion]:
    """Ask what a term is, unless a phrase before "is a" cannot be a term that the section defines."""
    words = set(term.lower().split())
    is_remark = words & (_words("no_term") | _words("qualities")) or _TASK.match(section.heading)
    if _is_subject(term, 4) and not is_remark and len(term) > 2 and not term.endswith("ly"):
        topic = usage.in_sentence(term)
        yield DraftedQuestion(f"{before}{topic}?", "definition", section, topic)
