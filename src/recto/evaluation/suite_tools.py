"""Draft a suite from an index, and lint a suite."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from recto._util.text import page_key, with_anchor
from recto.evaluation.binding import bind
from recto.evaluation.suites import Expectation, Suite, survey
from recto.protocols import Index
from recto.search.query import MAX_QUERY
from recto.types import Chunk

_PER_PAGE = 40
_PLACES = 3
"""An identifier in more sections than this is not specific to any of them."""

_FENCE = re.compile(r"^(```|~~~).*?^\1[`~]*\s*$", re.MULTILINE | re.DOTALL)
_DEFINITION = re.compile(
    r"(?:^|(?<=[.!?]\s))(?:(?P<article>An?)\s(?P<thing>[\w`./+-]+(?:\s[\w`./+-]+){0,3})|(?P<name>[A-Z`][\w`./+-]*(?:\s[\w`./+-]+){0,3}))"
    r"\s(?P<verb>is|are)\s(?:an?|the|one)\s",
    re.MULTILINE,
)
_NO_TERM = re.compile(
    r"^(?:The|This|That|These|Those|It|They|There|Here|He|She|We|You|If|When|What|Where|Why|How|In|On|At|For|As|With|But|And|So)\b"
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
    per_page: dict[str, int] = {}
    identifiers: dict[str, list[_Draft]] = {}
    for chunk in index.scroll():
        for found in (*_definitions(chunk), *_headings(chunk)):
            per_page[chunk.page_url] = per_page.get(chunk.page_url, 0) + 1
            if per_page[chunk.page_url] <= _PER_PAGE:
                drafts.append(found)
        for found in _identifiers(chunk):
            places = identifiers.setdefault(found.query, [])
            if len(places) <= _PLACES and found.place not in {other.place for other in places}:
                places.append(found)
    drafts += [min(places, key=_order) for places in identifiers.values() if len(places) == 1]
    several = {
        query: tuple(sorted(found.place for found in places))
        for query, places in identifiers.items()
        if 1 < len(places) <= _PLACES
    }
    drafts += [min(identifiers[query], key=_order) for query in several]
    chosen: dict[str, Expectation] = {}
    for one in _spread(sorted(drafts, key=_order)):
        if len(chosen) == count:
            break
        asked = " ".join(one.query.casefold().split())
        if asked not in chosen:
            chosen[asked] = Expectation(
                one.query, pages=several.get(one.query, (one.place,)), tags=(one.kind,), drafted=True
            )
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
    prose = _FENCE.sub("", chunk.text)
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
    words = heading.split()
    if len(words) < 2 or heading.endswith("?") or len(heading) > MAX_QUERY // 4:
        return
    if versus := _VERSUS.match(heading):
        yield _drafted(
            chunk, f"What is the difference between {versus['one']} and {versus['other']}?", "heading"
        )
    elif heading.lower().startswith("how to "):
        yield _drafted(chunk, f"How do I {heading[7:]}?", "heading")
    elif words[0].lower() in {"how", "what", "when", "where", "which", "who", "why"}:
        return  # it is a question already
    elif words[0].endswith("ing"):
        yield _drafted(chunk, f"How does one go about {words[0].lower()} {' '.join(words[1:])}?", "heading")
    else:
        yield _drafted(
            chunk, f"What should I know about {heading} in {chunk.page_title.rstrip('?!.')}?", "heading"
        )


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
        warnings.append(
            f'{drafted} of {len(suite.expectations)} questions are drafts: review them and remove "drafted"'
        )
    if index is not None and suite.expectations:
        bound = bind(suite, index)
        places = {question.expectation.key: question.expectation.place for question in bound.questions}
        problems += [
            f"{places[missing.key]}: UNMEASURED: {missing}"
            for question in bound.unmeasured
            for missing in question.missing
        ]
        warnings += [
            f"{places[missing.key]}: {missing}; its other targets still measure it"
            for missing in bound.partial
        ]
        warnings += _too_easy(suite, index)
    return Lint(len(suite.expectations), tuple(problems), tuple(warnings))


def _too_easy(suite: Suite, index: Index) -> list[str]:
    """Name the questions that are literally a heading of the book: they prove little."""
    asked = {_words(expectation.query): expectation for expectation in suite.expectations}
    copied = {
        words
        for chunk in index.scroll()
        for heading in _all_headings(chunk)
        if (words := _words(heading)) in asked
    }
    return [
        f"{expectation.place}: {expectation.query!r} is literally a heading of the book: ask as a reader"
        for words, expectation in asked.items()
        if words in copied
    ]


def _all_headings(chunk: Chunk) -> list[str]:
    """Return a chunk's headings, and those inside its text."""
    return [*chunk.headings, *re.findall(r"^#+ (.+)$", chunk.text, re.MULTILINE)]


def _words(text: str) -> str:
    return " ".join(text.casefold().strip(" ?!.:`").split())
