"""Lint a suite: list its errors and what makes it weak; extend one by what readers asked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recto._util.text import page_key, plural, with_anchor
from recto.errors import InvalidArgument
from recto.evaluation.binding import bind
from recto.evaluation.suites import FORMAT, Suite, parse_json, read_file, survey
from recto.protocols import Index
from recto.search.query_log import normalize
from recto.types import Chunk

if TYPE_CHECKING:
    from recto.evaluation.gaps import Cluster, Gaps


def _place(chunk: Chunk) -> str:
    """Return the section of a chunk as a suite names it."""
    return with_anchor(page_key(chunk.source) if chunk.source else chunk.page_url, chunk.anchor)


def questions_from(found: Gaps, index: Index, known: Iterable[str], count: int) -> list[dict[str, Any]]:
    """Return entries of a suite for the queries of readers, those that the book does not answer first.

    Each cluster gives one entry, unless one of its queries is already known. It expects the section that
    readers opened, or else the nearest one, or nothing if the book does not seem to answer it. All are
    drafts: a person decides.
    """
    asked = {normalize(query) for query in known}
    places = {chunk.link: _place(chunk) for chunk in index.scroll()}
    rest = sorted((one for one in found.clusters if not one.is_gap), key=lambda one: (-one.count, one.label))
    entries: list[dict[str, Any]] = []
    for cluster in (*found.gaps, *rest):
        if len(entries) == count:
            break
        if asked.isdisjoint(normalize(query) for query, _ in cluster.queries):
            entries.append(_question(cluster, places))
    return entries


def _question(cluster: Cluster, places: Mapping[str, str]) -> dict[str, Any]:
    asked = f"Asked {plural(cluster.count, 'time')}"
    expect: dict[str, Any]
    nearest = next((places[one.url] for one in cluster.nearest if one.url in places), "")
    if cluster.clicked in places:
        expect, note = {"page": places[cluster.clicked]}, f"{asked}; readers opened this section most often."
    elif 2 * cluster.not_covered > cluster.count or not nearest:
        expect, note = {"nothing": True}, f"{asked}; the book does not seem to answer it."
    else:
        expect, note = {"page": nearest}, f"{asked}; this is the nearest section."
    return {
        "query": cluster.queries[0][0],
        "expect": expect,
        "tags": ["log"],
        "drafted": True,
        "note": note,
    }


def extended(path: Path, entries: Sequence[Mapping[str, Any]], name: str) -> str:
    """Return the text of a suite's file with more entries; a file that does not exist is a new suite."""
    if path.suffix.lower() in {".jsonl", ".ndjson"}:
        text = read_file(path) if path.exists() else ""
        lines = [json.dumps(entry, ensure_ascii=False) for entry in entries]
        return "\n".join((*filter(None, [text.rstrip("\n")]), *lines)) + "\n"
    if path.suffix.lower() == ".csv":
        raise InvalidArgument(f"{path} is a CSV file", hint="Add to a suite in JSON or JSON Lines.")
    data: dict[str, Any] = {"format": FORMAT, "name": name, "queries": []}
    if path.exists():
        data = parse_json(read_file(path), str(path))
    data["queries"] = [*data["queries"], *entries]
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


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
