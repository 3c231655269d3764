"""Lint a suite, extend it by what readers asked, and exchange it with tools such as trec_eval.

In the files of TREC, a document is a page or a section, named as in the suite. White space separates the
columns, so it is percent-encoded in names. A result has the name of the judged place that it is in. A second
chunk of the same place gains nothing in Recto's measures, so it gets a name of its own, such as `intro~2`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from recto._util.text import plural
from recto.errors import InvalidArgument, InvalidQuery
from recto.evaluation.binding import bind, section_name
from recto.evaluation.suites import (
    JSON_LINES,
    MAX_GRADE,
    SUITE_FORMAT,
    Expectation,
    Suite,
    invalid,
    parse_json,
    read_file,
    survey,
)
from recto.protocols import Index
from recto.search.query import check_query
from recto.search.query_log import normalize
from recto.types.search import HEADING_SEPARATOR

if TYPE_CHECKING:
    from recto.evaluation.gaps import Cluster, Gaps
    from recto.evaluation.runs import QueryResult, Run

_ENCODED = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_QRELS_HINT = "A line has four columns: the id of the query, 0, the page, and the grade."
_QUERIES_HINT = "A line has the id of a query, a tab, and the query."
_STEP = 1e-6  # between the scores of equal results: trec_eval reads scores in single precision


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


def questions_from(gaps: Gaps, index: Index, asked: Iterable[str], count: int) -> list[dict[str, Any]]:
    """Return entries of a suite for the queries of readers; queries that the book does not answer come first.

    Each cluster gives one entry, unless one of its queries is already asked. It expects the section that
    readers opened, or else the nearest one, or nothing if the book does not seem to answer it. All are
    drafts: a person decides.
    """
    already = {normalize(query) for query in asked}
    places = {chunk.url: section_name(chunk) for chunk in index.scroll()}
    rest = sorted((one for one in gaps.clusters if not one.is_gap), key=lambda one: (-one.count, one.label))
    entries: list[dict[str, Any]] = []
    for cluster in (*gaps.gaps, *rest):
        if len(entries) == count:
            break
        if already.isdisjoint(normalize(query) for query, _ in cluster.queries):
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
    if path.suffix.lower() in JSON_LINES:
        text = read_file(path) if path.exists() else ""
        lines = [json.dumps(entry, ensure_ascii=False) for entry in entries]
        return "\n".join((*filter(None, [text.rstrip("\n")]), *lines)) + "\n"
    if path.suffix.lower() == ".csv":
        raise InvalidArgument(f"{path} is a CSV file", hint="Add to a suite in JSON or JSON Lines.")
    data: dict[str, Any] = {"format": SUITE_FORMAT, "name": name, "queries": []}
    if path.exists():
        data = parse_json(read_file(path), str(path))
    data["queries"] = [*data["queries"], *entries]
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


@dataclass(frozen=True, slots=True)
class Imported:
    """A suite that was made from TREC files, and how many queries have no relevant page."""

    suite: Suite
    left_out: int


@dataclass(frozen=True, slots=True)
class Exported:
    """The text of the files, and how many questions have no judgments: their targets are not pages."""

    qrels: str
    queries: str
    left_out: int


def import_suite(qrels: Path, queries: Path) -> Imported:
    """Make a suite from judgments and queries; queries without a relevant page are left out."""
    texts = dict(_read_queries(queries))
    grades: dict[str, dict[str, int]] = {id: {} for id in texts}
    for place, id, page, grade in _read_qrels(qrels):
        if id not in grades:
            raise invalid(place, f"there is no query {id!r} in {queries}", _QRELS_HINT)
        grades[id][page] = grade
    expectations = [_expectation(id, texts[id], pages) for id, pages in grades.items() if any(pages.values())]
    if not expectations:
        raise InvalidArgument(f"{qrels} has no relevant page for any query", hint=_QRELS_HINT)
    return Imported(Suite(qrels.stem, tuple(expectations)), len(texts) - len(expectations))


def _expectation(id: str, query: str, grades: dict[str, int]) -> Expectation:
    graded = set(grades.values()) != {1}
    return Expectation(
        query,
        pages=tuple(page for page, grade in grades.items() if grade > 0),
        id="" if _decode(id) == query else id,
        grades=tuple(grades.items()) if graded else (),
    )


def _read_queries(path: Path) -> Iterator[tuple[str, str]]:
    seen = set()
    for place, line in _lines(path):
        id, tab, query = line.partition("\t")
        if not tab or not id.strip() or len(id.split()) > 1 or id in seen:
            problem = f"the id {id!r} is there twice" if id in seen else "it is not a query"
            raise invalid(place, problem, _QUERIES_HINT)
        seen.add(id)
        try:
            yield id.strip(), check_query(query)
        except InvalidQuery as error:
            raise invalid(place, error.message, _QUERIES_HINT) from error


def _read_qrels(path: Path) -> Iterator[tuple[str, str, str, int]]:
    for place, line in _lines(path):
        columns = line.split()
        if len(columns) != 4 or not re.fullmatch(r"-?[0-9]{1,3}", columns[3]):
            raise invalid(place, "it is not a judgment", _QRELS_HINT)
        id, _, page, grade = columns
        if int(grade) > MAX_GRADE:
            hint = f"Recto's grades are 0 to {MAX_GRADE}: divide the grades of the file."
            raise invalid(place, f"the grade is {grade}", hint)
        yield place, id, _decode(page), max(0, int(grade))  # some collections have negative grades for spam


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(read_file(path).split("\n"), 1):
        if line.strip():
            yield f"{path}, line {number}", line.rstrip("\r")


def export_suite(suite: Suite) -> Exported:
    """Write the questions of a suite as queries, and their expected pages and grades as judgments."""
    judged = [one for one in suite.expectations if one.pages and not one.passages]
    qrels = [
        f"{_encode(one.key)} 0 {_encode(page)} {grade}\n"
        for one in judged
        for page, grade in (dict.fromkeys(one.pages, 1) | dict(one.grades)).items()
    ]
    queries = [f"{_encode(one.key)}\t{' '.join(one.query.split())}\n" for one in suite.expectations]
    return Exported("".join(qrels), "".join(queries), len(suite.expectations) - len(judged))


def run_text(run: Run) -> str:
    """Write the results of a run: query, Q0, document, rank, score and the name of the system."""
    return "".join(line for answer in run.answers for line in _run_lines(answer))


def _run_lines(answer: QueryResult) -> Iterator[str]:
    seen: dict[str, int] = {}
    step = _STEP * max([1.0, *(chunk.score for chunk in answer.found)])
    last = float("inf")
    for number, (chunk, place) in enumerate(zip(answer.found, answer.places, strict=True), 1):
        name = _encode(place or chunk.url)
        seen[name] = seen.get(name, 0) + 1
        last = min(chunk.score, last - step)  # trec_eval sorts by score, and ties by name
        document = name if seen[name] == 1 else f"{name}~{seen[name]}"
        yield f"{_encode(answer.key)} Q0 {document} {number} {last:.6f} recto\n"


def _encode(name: str) -> str:
    return re.sub(r"\s", lambda space: quote(space[0]), name)


def _decode(name: str) -> str:
    """Return a name with its white space; an address keeps what is encoded in it."""
    page, separator, heading = name.partition(_encode(HEADING_SEPARATOR))
    page = page if "://" in page else _ENCODED.sub(_space, page)
    return page + HEADING_SEPARATOR + _ENCODED.sub(_space, heading) if separator else page


def _space(encoded: re.Match[str]) -> str:
    text = unquote(encoded[0])
    return text if text.isspace() else encoded[0]
