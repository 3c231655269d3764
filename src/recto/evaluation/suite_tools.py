"""Draft a suite from an index, and lint a suite."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from recto._util.text import page_key, plural, with_anchor
from recto.evaluation.binding import bind
from recto.evaluation.calibration import FENCE
from recto.evaluation.suites import Expectation, Suite, survey
from recto.protocols import Index
from recto.search.query import MAX_QUERY
from recto.types import Chunk

_PER_PAGE = 40
_MAX_SECTIONS = 3  # an identifier in more sections is not specific to any of them

_WORDS = r"(?:\s[\w`./+-]+){0,3}"
_DEFINITION = re.compile(
    rf"(?:^|(?<=[.!?]\s))(?:(?P<article>An?)\s(?P<thing>[\w`./+-]+{_WORDS})|(?P<name>[A-Z`][\w`./+-]*{_WORDS}))"
    r"\s(?P<verb>is|are)\s(?:an?|the|one)\s",
    re.MULTILINE,
)
_NO_TERM = re.compile(
    r"(?:The|This|That|These|Those|It|They|There|Here|He|She|We|You|If|When|What|Where|Why|How"
    r"|In|On|At|For|As|With|But|And|So)\b"
)
_IDENTIFIER = re.compile(
    r"(?<![\w/.-])(?:[a-z][a-z0-9]*(?:_[a-z0-9]+)+|[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]+)+)(?![\w/.-])"
)
_CODE = re.compile(r"```.*?```|~~~.*?~~~|`[^`\n]+`", re.DOTALL)
_VERSUS = re.compile(r"^(?P<one>.+?)\s(?:vs\.?|versus)\s(?P<other>.+)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Draft:
    query: str
    kind: str
    module: str
    place: str
    order: tuple[str, int]


def draft(index: Index, count: int, name: str = "drafted") -> Suite:
    """Draft up to `count` questions, spread over modules, pages and kinds, always the same for an index."""
    drafts: list[_Draft] = []
    per_page: Counter[str] = Counter()
    identifiers: dict[str, dict[str, _Draft]] = {}
    for chunk in index.scroll():
        for found in (*_definitions(chunk), *_headings(chunk)):
            per_page[chunk.page_url] += 1
            if per_page[chunk.page_url] <= _PER_PAGE:
                drafts.append(found)
        for found in _identifiers(chunk):
            places = identifiers.setdefault(found.query, {})
            if len(places) <= _MAX_SECTIONS:
                places.setdefault(found.place, found)
    specific = {query: found for query, found in identifiers.items() if len(found) <= _MAX_SECTIONS}
    drafts += [min(found.values(), key=_order) for found in specific.values()]
    chosen: dict[str, Expectation] = {}
    for one in _spread(sorted(drafts, key=_order)):
        if len(chosen) == count:
            break
        pages = tuple(sorted(specific.get(one.query, (one.place,))))
        expectation = Expectation(one.query, pages=pages, tags=(one.kind,), drafted=True)
        chosen.setdefault(" ".join(one.query.casefold().split()), expectation)
    return Suite(name, tuple(chosen.values()))


def _order(one: _Draft) -> tuple[str, int, str, str]:
    return *one.order, one.kind, one.query


def _spread(drafts: list[_Draft]) -> Iterator[_Draft]:
    """Alternate between modules, within a module between pages, within a page between kinds of questions."""
    modules: dict[str, dict[str, dict[str, list[_Draft]]]] = {}
    for one in drafts:
        modules.setdefault(one.module, {}).setdefault(one.order[0], {}).setdefault(one.kind, []).append(one)
    return _turns(_turns(_turns(kinds.values()) for kinds in pages.values()) for pages in modules.values())


def _turns(queues: Iterable[Iterable[_Draft]]) -> Iterator[_Draft]:
    return (one for row in zip_longest(*queues) for one in row if one is not None)


def _definitions(chunk: Chunk) -> Iterator[_Draft]:
    prose = FENCE.sub("", chunk.text)
    for found in _DEFINITION.finditer(prose):
        term = " ".join((found["thing"] or found["name"]).replace("`", "").split())
        if len(term) < 3 or _NO_TERM.match(term):
            continue
        inside = term[0].lower() + term[1:]
        if inside in prose:  # it is capitalised only at the start of a sentence
            term = inside
        article = f"{found['article'].lower()} " if found["article"] else ""
        yield _drafted(chunk, f"What {found['verb']} {article}{term}?", "definition")


def _headings(chunk: Chunk) -> Iterator[_Draft]:
    heading = " ".join(chunk.headings[-1].replace("`", "").split()) if len(chunk.headings) > 1 else ""
    first, _, rest = heading.partition(" ")
    if not rest or heading.endswith("?") or len(heading) > MAX_QUERY // 4:
        return
    if versus := _VERSUS.match(heading):
        query = f"What is the difference between {versus['one']} and {versus['other']}?"
    elif heading.lower().startswith("how to "):
        query = f"How do I {heading[7:]}?"
    elif first.lower() in {"how", "what", "when", "where", "which", "who", "why"}:
        return  # it is a question already
    elif first.endswith("ing"):
        query = f"How does one go about {first.lower()} {rest}?"
    else:
        query = f"What should I know about {heading} in {chunk.page_title.rstrip('?!.')}?"
    yield _drafted(chunk, query, "heading")


def _identifiers(chunk: Chunk) -> Iterator[_Draft]:
    names = {name for code in _CODE.findall(chunk.text) for name in _IDENTIFIER.findall(code)}
    return (
        _drafted(chunk, f"Where is `{name}` used?", "identifier") for name in sorted(names) if len(name) > 5
    )


def _drafted(chunk: Chunk, query: str, kind: str) -> _Draft:
    page = page_key(chunk.source) if chunk.source else chunk.page_url
    place = with_anchor(page, chunk.anchor)
    return _Draft(query[:MAX_QUERY], kind, chunk.module_name, place, (chunk.page_url, chunk.chunk_index))


@dataclass(frozen=True, slots=True)
class Lint:
    """The result of linting: `problems` fail the suite, `warnings` weaken it."""

    questions: int
    problems: tuple[str, ...]
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"questions": self.questions, "problems": list(self.problems), "warnings": list(self.warnings)}


def lint(path: Path, index: Index | None = None) -> Lint:
    """Check a suite's file, and look up its targets if there is an index."""
    suite, problems = survey(path)
    warnings = []
    if drafted := sum(expectation.drafted for expectation in suite.expectations):
        total = len(suite.expectations)
        warnings.append(f'Drafts: {drafted} of {plural(total, "question")}; review them and remove "drafted"')
    if index is not None and suite.expectations:
        for question in bind(suite, index).questions:
            place = question.expectation.place
            if question.measured:
                warnings += [
                    f"{place}: {one}; its other targets still measure it" for one in question.missing
                ]
            else:
                problems += [f"{place}: UNMEASURED: {one}" for one in question.missing]
        warnings += _too_easy(suite, index)
    return Lint(len(suite.expectations), tuple(problems), tuple(warnings))


def _too_easy(suite: Suite, index: Index) -> list[str]:
    """Name the questions that are literally a heading of the book: they prove little."""
    asked = {_words(expectation.query): expectation for expectation in suite.expectations}
    copied = {
        words
        for chunk in index.scroll()
        for heading in (*chunk.headings, *re.findall(r"^#+ (.+)$", chunk.text, re.MULTILINE))
        if (words := _words(heading)) in asked
    }
    return [
        f"{expectation.place}: {expectation.query!r} is literally a heading of the book: ask as a reader"
        for words, expectation in asked.items()
        if words in copied
    ]


def _words(text: str) -> str:
    return " ".join(text.casefold().strip(" ?!.:`").split())
