"""Draft a suite from an index: questions that a reader could ask, each bound to the section that answers it.

A question whose subject is on several pages names the subject of its page, or is left out. Pages in other
languages give the headings that are questions, and quoted headings.
"""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice, zip_longest

from recto.evaluation.binding import section_name
from recto.evaluation.draft_rules import (
    DraftedQuestion,
    SectionText,
    Usage,
    clean,
    from_heading,
    from_text,
    page_subject,
    prose,
)
from recto.evaluation.suites import Expectation, Suite
from recto.protocols import Index
from recto.types.search import Chunk

Questions = dict[DraftedQuestion, tuple[str, ...]]
"""Drafted questions with the places that answer them."""

_MIN_WORDS, _MAX_WORDS = 3, 15
_MAX_CHARACTERS = 150
_MAX_QUOTED = 8  # words
_MAX_PLACES = 3  # a subject in more places is not specific to any of them
_BOILERPLATE = 4  # a heading on more pages belongs to a template
_COMMON_SHARE = 0.2  # of the pages: a word on more of them needs a heading of its own
_LONGEST_TERM = 4  # words
_UNREADABLE = re.compile(r"[`*|<>{}\[\]\\$~^]|(?:^|\s)#|https?://|&\w+;|__\W|\W__(?!\w+__)|[\x00-\x1f]")
_ENGLISH = {"the", "and", "of", "to", "is", "with", "that", "this", "for", "are", "you", "it", "be", "by"}
_ENGLISH_SHARE = 0.06  # of all words: prose has 0.2, an outline 0.1, another language 0.03 at most
_FEWEST_WORDS = 30
_WORD = re.compile(r"[^\W\d_]+")


def draft(index: Index, count: int, name: str = "drafted", seed: int = 0) -> Suite:
    """Draft up to `count` questions, spread over modules, pages and kinds; always the same for a seed."""
    chosen = choose_drafts(find_questions(index.scroll()), count, seed)
    return Suite(
        name,
        tuple(Expectation(one.query, pages=places, tags=(one.kind,), drafted=True) for one, places in chosen),
    )


def find_questions(chunks: Iterable[Chunk]) -> Questions:
    """Return all questions that can be drafted from chunks, with the sections that answer them."""
    sections = _sections(chunks)
    english = _english_pages(sections)
    usage = Usage(section.text for section in sections if section.page in english)
    subjects = _subjects(sections, usage)
    mentions = _Mentions(sections)
    drafted: list[DraftedQuestion] = []
    for section in sections:
        if section.page not in english:
            drafted += _quoted(section)
            continue
        titled = replace(section, subject=subjects[section.page])
        drafted += from_text(titled, usage)
        # A heading that many pages have can be asked only about the subject of its page ("Limitations").
        is_template = mentions.is_template(section.heading)
        drafted += (one for one in from_heading(titled, usage) if not (is_template and one.about))
    return _unambiguous([one for one in drafted if _is_readable(one.query)], mentions)


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


def _english_pages(sections: list[SectionText]) -> set[str]:
    """Return the pages in English; short pages are in the language of most of the book."""
    counts: dict[str, Counter[bool]] = defaultdict(Counter)
    for section in sections:
        counts[section.page].update(word in _ENGLISH for word in _WORD.findall(prose(section.text).lower()))

    def is_english(words: Counter[bool]) -> bool:
        return words[True] >= _ENGLISH_SHARE * max(1, words.total())

    book = is_english(sum(counts.values(), Counter()))
    return {
        page
        for page, words in counts.items()
        if (book if words.total() < _FEWEST_WORDS else is_english(words))
    }


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
    """Which pages have a subject in their headings, or a word in their text."""

    def __init__(self, sections: list[SectionText]) -> None:
        self._headings: dict[str, set[str]] = defaultdict(set)
        self._in_headings: dict[str, set[str]] = defaultdict(set)
        self._in_text: dict[str, set[str]] = defaultdict(set)
        for section in sections:
            for word in set(_WORD.findall(section.text.lower())):
                self._in_text[word].add(section.page)
            for heading in section.headings:
                words = _key(clean(heading)).split()
                self._headings[" ".join(words)].add(section.page)
                for start in range(len(words)):
                    for end in range(start + 1, min(len(words), start + _LONGEST_TERM) + 1):
                        self._in_headings[" ".join(words[start:end])].add(section.page)
        self._most = max(_MAX_PLACES, _COMMON_SHARE * len({section.page for section in sections}))

    def is_template(self, heading: str) -> bool:
        """Return whether so many pages have a heading that it belongs to their template."""
        return len(self._headings[_key(clean(heading))]) > _BOILERPLATE

    def is_specific(self, subject: str, pages: set[str], *, is_term: bool) -> bool:
        """Return whether a reader expects the subject on these pages, and not on others."""
        if self._headings[subject] - pages:
            return False
        own, others = self._in_headings[subject] & pages, self._in_headings[subject] - pages
        if not is_term or own:
            return not is_term or len(others) <= _MAX_PLACES
        return not others and (" " in subject or len(self._in_text[subject]) <= self._most)


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
