"""Judge results: pool the sections that several configurations find, and record grades in a suite's file.

A section is judged once, whichever configuration found it, and by its URL `page#anchor`, or by a quotation if
the section has no anchor. So grades stay valid if the book is split into other chunks.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any
from urllib.parse import unquote

from recto._util.files import write_file
from recto._util.text import page_key, with_anchor, without_space
from recto.errors import InvalidArgument
from recto.evaluation.binding import bind, heading_key, is_quotation, split_target
from recto.evaluation.measures import Measure
from recto.evaluation.runs import batches
from recto.evaluation.suites import (
    GRADED_FORMAT,
    JSON_LINES,
    Expectation,
    Suite,
    load_strict_suite,
    load_suite,
    parse_json,
    read_file,
)
from recto.search.retriever import Retriever
from recto.types.search import HEADING_SEPARATOR, Chunk, Mode

GRADES = (0, 1, 2)
"""Not relevant, partly relevant, relevant."""
_QUOTE_FROM, _QUOTE_TO = 40, 160  # characters of a quotation
_NO_QUOTE = re.compile(r"#|```|~~~|:::|\||<")
"""How lines begin that are headings or markup."""

_Key = tuple[str, str, tuple[str, ...]]
"""A section: its page, and its anchor or else its headings."""


@dataclass(frozen=True, slots=True)
class PooledSearch:
    """A collection, and the mode to search it in."""

    retriever: Retriever
    mode: Mode

    @property
    def name(self) -> str:
        """The name for a report."""
        return f"{self.retriever.collection}, {self.mode}"


@dataclass(frozen=True)
class PooledSection:
    """A section to judge, with its chunks in reading order; `name` is how a suite names it."""

    name: str
    chunks: tuple[Chunk, ...]
    is_quoted: bool = False

    @cached_property
    def pages(self) -> tuple[str, str]:
        """The keys of its page: of the URL, and of the source."""
        return page_key(self.chunks[0].page_url), page_key(self.chunks[0].source)

    @cached_property
    def text(self) -> str:
        """The text without white space, to look for passages."""
        return "".join(without_space(chunk.text) for chunk in self.chunks)


@dataclass(frozen=True, slots=True)
class PooledQuestion:
    """A question, and the sections to judge for it, in an order that does not depend on their ranks."""

    expectation: Expectation
    candidates: tuple[PooledSection, ...]


@dataclass(frozen=True, slots=True)
class Pool:
    """The questions of a suite with their candidates, and the results of each configuration."""

    questions: tuple[PooledQuestion, ...]
    results: tuple[tuple[PooledSearch, tuple[tuple[Chunk, ...], ...]], ...]
    depth: int


def load_judged_suite(path: Path) -> Suite:
    """Read a suite that grades can be added to: a JSON file without duplicate questions."""
    if path.suffix.lower() in JSON_LINES:
        hint = 'Save it as JSON: {"queries": [...]}, with one object for each question.'
        raise InvalidArgument(f"{path}: grades cannot be added to this format", hint=hint)
    return load_strict_suite(path)


def pool(suite: Suite, searches: Sequence[PooledSearch], depth: int) -> Pool:
    """Search with each configuration, and pool the sections of the first `depth` results of each question.

    The sections that a question expects are judged, too. The texts come from the first collection.
    """
    results = tuple((search, _search(search, suite, depth)) for search in searches)
    whole: dict[_Key, list[Chunk]] = defaultdict(list)
    by_name: dict[tuple[str, str], _Key] = {}
    for chunk in searches[0].retriever.open().scroll():
        key = _section(chunk)
        whole[key].append(chunk)
        by_name |= {(page_key(page), key[1]): key for page in (chunk.page_url, chunk.source) if key[1]}
    questions = []
    for number, expectation in enumerate(suite.expectations):
        pooled: dict[_Key, list[Chunk]] = defaultdict(list)
        for _, chunks_by_question in results:
            for chunk in chunks_by_question[number]:
                pooled[_section(chunk)].append(chunk)
        for page, anchor, heading in map(split_target, expectation.pages):
            if not heading and (page_key(page), anchor) in by_name:
                pooled.setdefault(by_name[page_key(page), anchor], [])
        candidates = [_candidate(whole.get(key) or chunks) for key, chunks in pooled.items()]
        candidates.sort(key=lambda one: hashlib.sha256(f"{expectation.key}\n{one.name}".encode()).digest())
        questions.append(PooledQuestion(expectation, tuple(candidates)))
    return Pool(tuple(questions), results, depth)


def _search(search: PooledSearch, suite: Suite, depth: int) -> tuple[tuple[Chunk, ...], ...]:
    chunks: dict[int, tuple[Chunk, ...]] = {}
    for numbers in batches(suite.expectations):
        queries = [suite.expectations[number].query for number in numbers]
        filters = suite.expectations[numbers[0]].filters
        responses = search.retriever.search_batch(queries, depth, filters, mode=search.mode)
        for number, response in zip(numbers, responses, strict=True):
            chunks[number] = tuple(hit.chunk for hit in response.hits)
    return tuple(chunks[number] for number in range(len(suite.expectations)))


def _section(chunk: Chunk) -> _Key:
    """Return the section of a chunk: the same for all chunk sizes, and however the site is published."""
    anchor = unquote(chunk.anchor)
    return page_key(chunk.source or chunk.page_url), anchor, () if anchor else chunk.headings


def _candidate(chunks: Iterable[Chunk]) -> PooledSection:
    distinct = {chunk.id: chunk for chunk in chunks}.values()
    ordered = tuple(sorted(distinct, key=lambda chunk: chunk.chunk_index))
    first = ordered[0]
    page = page_key(first.source) if first.source else first.page_url
    if first.anchor:
        return PooledSection(with_anchor(page, first.anchor), ordered)
    if quotation := _quotation(ordered):
        return PooledSection(quotation, ordered, is_quoted=True)
    return PooledSection(HEADING_SEPARATOR.join((page, *first.headings[-1:])), ordered)


def _quotation(chunks: Iterable[Chunk]) -> str:
    """Return the first long line of a section, or its longest one, up to a word."""
    lines = [line.strip() for chunk in chunks for line in chunk.text.splitlines()]
    lines = [line for line in lines if line and not _NO_QUOTE.match(line)]
    line = next((line for line in lines if len(line) >= _QUOTE_FROM), max(lines, key=len, default=""))
    return line if len(line) <= _QUOTE_TO else line[:_QUOTE_TO].rpartition(" ")[0] or line[:_QUOTE_TO]


def names_of(expectation: Expectation, candidate: PooledSection) -> list[str]:
    """Return the targets and graded sections of a question that are this very section, or text of it.

    A whole page or a module does not judge a section.
    """
    names = dict.fromkeys((*expectation.pages, *expectation.passages, *dict(expectation.grades)))
    return [name for name in names if _is_named(name, expectation, candidate)]


def _is_named(name: str, expectation: Expectation, candidate: PooledSection) -> bool:
    if name == candidate.name:
        return True
    if name not in expectation.passages:
        page, anchor, heading = split_target(name)
        chunk = candidate.chunks[0]
        if page_key(page) in candidate.pages:
            same = not anchor or anchor == unquote(chunk.anchor)
            return same and (heading == heading_key(chunk.headings[-1]) if heading else bool(anchor))
    is_text = name in expectation.passages or (name not in expectation.pages and is_quotation(name))
    return is_text and without_space(name) in candidate.text


def grade_of(expectation: Expectation, candidate: PooledSection) -> int | None:
    """Return the grade of a candidate, or None if it is not judged; what is drafted is not judged."""
    grades = dict(expectation.grades)
    names = names_of(expectation, candidate)
    own = [grades[name] for name in names if name in grades]
    if own:
        return max(own)
    return 1 if names and not expectation.drafted else None


def record(path: Path, question: PooledQuestion, candidate: PooledSection, grade: int) -> dict[str, Any]:
    """Write a grade into a suite's file, and return the question's entry as it was before.

    The file is read again, so that changes by an editor stay. When all candidates of a drafted question are
    judged, it is no draft any more.
    """

    def change(entry: dict[str, Any], expectation: Expectation) -> dict[str, Any]:
        changed = _with_grade(entry, expectation, candidate, grade, names_of(expectation, candidate))
        others = (one for one in question.candidates if one is not candidate)
        if all(grade_of(expectation, one) is not None for one in others):
            changed.pop("drafted", None)
        return changed

    return _change(path, question.expectation.key, change)


def restore(path: Path, question: PooledQuestion, entry: dict[str, Any]) -> None:
    """Write back an entry that `record` returned."""
    _change(path, question.expectation.key, lambda *_: entry)


def _change(
    path: Path, key: str, change: Callable[[dict[str, Any], Expectation], dict[str, Any]]
) -> dict[str, Any]:
    suite, data = load_suite(path), parse_json(read_file(path), str(path))
    number = next((n for n, one in enumerate(suite.expectations) if one.key == key), None)
    if number is None:
        raise InvalidArgument(
            f"{path} does not have the question {key!r} any more", hint="Start `recto judge` again."
        )
    before: dict[str, Any] = data["queries"][number]
    data["queries"][number] = change(before, suite.expectations[number])
    # After an undo, a file may have the newer format without grades; all versions with grades read it.
    head = {"format": GRADED_FORMAT}
    write_file(path, json.dumps(head | data | head, ensure_ascii=False, indent=2) + "\n")
    return before


def _with_grade(
    entry: dict[str, Any],
    expectation: Expectation,
    candidate: PooledSection,
    grade: int,
    names: Sequence[str],
) -> dict[str, Any]:
    """Return the entry of a question with the grade of a section, in place of what it said about it."""
    name = names[0] if names else candidate.name
    pages = [page for page in expectation.pages if page not in names]
    passages = [passage for passage in expectation.passages if passage not in names]
    is_passage = name in expectation.passages or (name not in expectation.pages and is_quotation(name))
    if grade:
        (passages if is_passage or candidate.is_quoted else pages).append(name)
    changed = replace(
        expectation,
        pages=tuple(pages),
        passages=tuple(passages),
        nothing=expectation.nothing and not grade,
        grades=(*(one for one in expectation.grades if one[0] not in names), (name, grade)),
    )
    if "question" in entry:  # a reader's question; its evidence is for people
        note = {"note": entry["evidence"]} if "evidence" in entry else {}
        entry = expectation.to_dict() | note
    rest = {field: value for field, value in entry.items() if field != "nothing"}
    return rest | {"expect": changed.to_dict()["expect"]}


def summarize(pool: Pool, suite: Suite) -> list[tuple[str, dict[str, float | None]]]:
    """Return the mean of Judged@k and nDCG@k of each configuration, over the questions with grades."""
    measures = (Measure("Judged", pool.depth), Measure("nDCG", pool.depth))
    summary: list[tuple[str, dict[str, float | None]]] = []
    for search, results in pool.results:
        bound = {one.expectation.key: one for one in bind(suite, search.retriever.open())}
        judged = []
        for question, chunks in zip(pool.questions, results, strict=True):
            one = bound.get(question.expectation.key)
            if one is not None and one.expectation.grades:
                judged.append(one.judge(chunks))
        means: dict[str, float | None] = {}
        for measure in measures:
            values = [value for each in judged if (value := measure.of(each)) is not None]
            means[str(measure)] = fmean(values) if values else None
        summary.append((search.name, means))
    return summary
