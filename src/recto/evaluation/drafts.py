"""Draft a suite from an index: questions that a reader could ask, each bound to the section that answers it.

A question whose subject has headings on several pages names the subject of its page, or is left out. Pages in
other languages give the headings that are questions, and quoted headings.
"""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice, zip_longest

from recto._util.text import page_key, with_anchor
from recto.evaluation.draft_headings import Draft, SectionText, from_heading, is_gerund, page_subject
from recto.evaluation.draft_texts import from_text
from recto.evaluation.suites import Expectation, Suite
from recto.evaluation.wording import INLINE_CODE, Usage, clean, key, prose, words
from recto.protocols import Index
from recto.types import Chunk

Questions = dict[Draft, tuple[str, ...]]
"""Drafts with the places that answer them."""

_MIN_WORDS, _MAX_WORDS = 3, 15
_MAX_CHARACTERS = 150
_MAX_QUOTED = 8  # words
_MAX_PLACES = 3  # a subject in more places is not specific to any of them
_BOILERPLATE = 4  # a heading on more pages belongs to a template
_COMMON_SHARE = 0.2  # of the pages: a word on more of them needs a heading of its own
_LONGEST_TERM = 4  # words
_MARKUP = re.compile(r"[`*|<>{}\[\]\\$~^]|(?:^|\s)#|https?://|&\w+;|__\W|\W__(?!\w+__)|[\x00-\x1f]")
_ENGLISH = {"the", "and", "of", "to", "is", "with", "that", "this", "for", "are", "you", "it", "be", "by"}
_ENGLISH_SHARE = 0.12  # of all words; outlines have less
_FOREIGN_SHARE = 0.03
_FEWEST_WORDS = 30
_WORD = re.compile(r"[^\W\d_]+")
_FROM_HEADING = ("heading", "steps", "question", "comparison")


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
    english = _english(sections)
    usage = Usage.of(section.text for section in sections if section.page in english)
    subjects = _subjects(sections, usage)
    headings = _Headings(sections)
    found: list[Draft] = []
    for section in sections:
        if section.page in english:
            known = replace(section, subject=subjects[section.page])
            repeated = len(headings.whole[key(clean(section.heading))]) > _BOILERPLATE
            asked = (*from_heading(known, usage), *from_text(known, usage))
            found += (one for one in asked if not (repeated and one.about and one.kind in _FROM_HEADING))
        else:
            found += _quoted(section)
    return _unambiguous([one for one in found if _is_readable(one.query)], headings, usage)


def _sections(chunks: Iterable[Chunk]) -> list[SectionText]:
    """Join the chunks of each section, in the order of the pages."""
    parts: dict[tuple[str, str, tuple[str, ...]], list[Chunk]] = defaultdict(list)
    for chunk in sorted(chunks, key=lambda one: (one.page_url, one.chunk_index)):
        parts[chunk.page_url, chunk.anchor, chunk.headings].append(chunk)
    found = []
    for (page, anchor, headings), inside in parts.items():
        first = inside[0]
        place = with_anchor(page_key(first.source) if first.source else page, anchor)
        text = "\n\n".join(chunk.text for chunk in inside)
        found.append(SectionText(place, page, first.module_name, first.page_title, headings, text))
    return found


def _english(sections: list[SectionText]) -> set[str]:
    """Return the pages in English; short pages are in the language of most of the book."""
    counts: dict[str, Counter[bool]] = defaultdict(Counter)
    for section in sections:
        counts[section.page].update(word in _ENGLISH for word in _WORD.findall(prose(section.text).lower()))

    def share(seen: Counter[bool]) -> float:
        return seen[True] / max(1, seen.total())

    book = share(sum(counts.values(), Counter())) > (_ENGLISH_SHARE + _FOREIGN_SHARE) / 2
    return {
        page
        for page, seen in counts.items()
        if share(seen) >= _ENGLISH_SHARE
        or (book and (seen.total() < _FEWEST_WORDS or share(seen) > _FOREIGN_SHARE))
    }


def _subjects(sections: list[SectionText], usage: Usage) -> dict[str, str]:
    """Return the subject of each page; "" if its title names none, or the same as another page's."""
    titles = {section.page: section.title for section in sections}
    subjects = {page: page_subject(title, usage) for page, title in titles.items()}
    pages = Counter(key(subject) for subject in subjects.values())
    return {page: subject if pages[key(subject)] == 1 else "" for page, subject in subjects.items()}


def _quoted(section: SectionText) -> Iterator[Draft]:
    """Yield the question about a section in another language: a heading that asks, or the quoted heading."""
    heading, title = clean(section.heading), clean(section.title)
    if heading.endswith(("?", "？", "؟")):
        yield Draft(heading, "question", section, heading)
    elif heading and len(heading.split()) <= _MAX_QUOTED and heading.casefold() not in title.casefold():
        quoted = f'"{heading.replace(chr(34), "")}" {title}'
        yield Draft(quoted, "heading", section, quoted, 2)


class _Headings:
    """Which pages have a subject in their headings, and which words and identifiers are on many pages."""

    def __init__(self, sections: list[SectionText]) -> None:
        self.whole: dict[str, set[str]] = defaultdict(set)
        self._parts: dict[str, set[str]] = defaultdict(set)
        self._code: dict[str, set[str]] = defaultdict(set)
        on_page: dict[str, set[str]] = defaultdict(set)
        for section in sections:
            on_page[section.page].update(_WORD.findall(section.text.lower()))
            for name in INLINE_CODE.findall(section.text):
                self._code[name.removesuffix("()")].add(section.page)
            for heading in section.headings:
                text = key(clean(heading))
                self.whole[text].add(section.page)
                for part in _runs(text.split()):
                    self._parts[part].add(section.page)
        self._pages = Counter(word for found in on_page.values() for word in found)
        self._most = max(_MAX_PLACES, _COMMON_SHARE * len(on_page))

    def is_everywhere(self, name: str, pages: set[str]) -> bool:
        """Return whether many pages mention an identifier that has no heading on these pages."""
        headed = self._parts[key(name)] & pages
        return not headed and len(self._code[name.removesuffix("()")] - pages) >= _MAX_PLACES

    def leads_to(self, subject: str, pages: set[str], *, defined: bool) -> bool:
        """Return whether a reader expects the subject on these pages, and not on others."""
        if self.whole[subject] - pages:
            return False
        own, others = self._parts[subject] & pages, self._parts[subject] - pages
        if not defined:
            return True
        if others and (not own or len(others) > _MAX_PLACES):
            return False
        return bool(own) or " " in subject or self._pages[subject] <= self._most


def _runs(found: list[str]) -> Iterator[str]:
    """Yield all runs of words up to the length of a term."""
    for start in range(len(found)):
        for end in range(start + 1, min(len(found), start + _LONGEST_TERM) + 1):
            yield " ".join(found[start:end])


def _unambiguous(found: list[Draft], headings: _Headings, usage: Usage) -> Questions:
    """Keep one question for each subject; narrow or drop those that other pages answer too."""
    groups: dict[str, list[Draft]] = defaultdict(list)
    for one in found:
        groups[key(one.about or one.query)].append(one)
    kept: Questions = {}
    for subject, group in groups.items():
        pages: dict[str, list[Draft]] = defaultdict(list)
        for one in group:
            pages[one.section.page].append(one)
        first, on_pages = group[0], set(pages)
        if first.kind in {"identifier", "table"} and headings.is_everywhere(first.about, on_pages):
            continue
        places = tuple(dict.fromkeys(one.section.place for one in group))
        defined = all(one.kind == "definition" for one in group)
        if first.kind in {"identifier", "table"} and len(places) > len(pages) and not _is_headed(group):
            continue
        clear = not first.about or headings.leads_to(subject, on_pages, defined=defined)
        best = min(group, key=lambda one: (one.needs_page, one.rank))
        if clear and not best.needs_page and (len(pages) == 1 or defined) and len(places) <= _MAX_PLACES:
            kept[best] = places if defined else (best.section.place,)
        else:
            kept |= _narrowed(pages.values(), usage)
    queries = Counter(key(one.query) for one in kept)
    return {one: places for one, places in kept.items() if queries[key(one.query)] == 1}


def _is_headed(group: list[Draft]) -> bool:
    """Return whether an identifier is in the heading of one of its sections."""
    return any(key(one.about) in key(one.section.heading) for one in group)


def _narrowed(pages: Iterable[list[Draft]], usage: Usage) -> Questions:
    """Return one question for each page that names the subject of the page."""
    kept: Questions = {}
    for inside in pages:
        best = min(inside, key=lambda one: one.rank)
        query = _in_page(best, usage)
        if query and len({one.section.place for one in inside}) <= _MAX_PLACES:
            kept[replace(best, query=query, rank=best.rank + 1)] = (best.section.place,)
    return kept


def _in_page(one: Draft, usage: Usage) -> str:
    """Return the question with the subject of its page, or "" if that does not make it readable."""
    subject = one.section.subject
    asked = set(key(one.query[:-1]).split())
    named = set(key(subject).split()) - words("prepositions")
    if subject and one.needs_page and named <= asked:
        return one.query
    stems = {word[:6] for word in asked}
    unfit = one.kind in {"error", "definition"} or not one.query.endswith("?") or " in " in one.query
    if not subject or unfit or any(word[:6] in stems for word in named):
        return ""
    query = f"{one.query[:-1]} {'when' if is_gerund(subject, usage) else 'in'} {subject}?"
    return query if _is_readable(query) else ""


def _is_readable(query: str) -> bool:
    found = query.split()
    if _MARKUP.search(query) or len(query) > _MAX_CHARACTERS or query.count('"') % 2:
        return False
    if not query.isascii() and not any(word.isascii() for word in found):  # Chinese has no spaces
        return len(query) >= _MIN_WORDS
    return _MIN_WORDS <= len(found) <= _MAX_WORDS and any(char.isalpha() for char in query)


def choose_drafts(found: Questions, count: int, seed: int) -> list[tuple[Draft, tuple[str, ...]]]:
    """Choose questions in turn from each module, the best first, spread over its pages and kinds."""
    modules: dict[str, list[Draft]] = defaultdict(list)
    for one in found:
        modules[one.section.module].append(one)
    generator = random.Random(seed)  # noqa: S311 (not for secrets)
    turns = [_spread(generator.sample(inside, len(inside))) for _, inside in sorted(modules.items())]
    order = (one for row in zip_longest(*turns) for one in row if one is not None)
    return [(one, found[one]) for one in islice(order, count)]


def _spread(inside: list[Draft]) -> list[Draft]:
    """Order the questions of a module so that pages and kinds alternate, and the better ones come first."""
    on_page: Counter[str] = Counter()
    of_kind: Counter[str] = Counter()
    order: dict[Draft, float] = {}
    for one in sorted(inside, key=lambda one: one.rank):
        order[one] = one.rank + on_page[one.section.page] + of_kind[one.kind] / 4
        on_page[one.section.page] += 1
        of_kind[one.kind] += 1
    return sorted(order, key=lambda one: order[one])
