"""Read and write the files of TREC: topics, judgments (qrels) and runs, for tools such as trec_eval.

A document is a page or a section, named as in the suite. White space separates the columns of these files, so
it is percent-encoded in names. A result has the name of the judged place that it is in. A second chunk of the
same place gains nothing in Recto's measures, so it gets a name of its own, such as `intro~2`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

from recto.errors import InvalidArgument, InvalidQuery
from recto.evaluation.runs import QueryResult, Run
from recto.evaluation.suites import MAX_GRADE, Expectation, Suite, invalid, read_file
from recto.search.query import check_query
from recto.types import HEADING_SEPARATOR

_ENCODED = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_QRELS_HINT = "A line has four columns: the id of the query, 0, the page, and the grade."
_QUERIES_HINT = "A line has the id of a query, a tab, and the query."
_STEP = 1e-6  # between the scores of equal results: trec_eval reads scores in single precision


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
    expectations = [_expectation(id, texts[id], found) for id, found in grades.items() if any(found.values())]
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
            hint = f"Recto's grades are 0 to {MAX_GRADE}: divide those of the file."
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
    step = _STEP * max([1.0, *(found.score for found in answer.found)])
    last = float("inf")
    for number, (found, place) in enumerate(zip(answer.found, answer.places, strict=True), 1):
        name = _encode(place or found.link)
        seen[name] = seen.get(name, 0) + 1
        last = min(found.score, last - step)  # trec_eval sorts by score, and ties by name
        document = name if seen[name] == 1 else f"{name}~{seen[name]}"
        yield f"{_encode(answer.key)} Q0 {document} {number} {last:.6f} recto\n"


def _encode(name: str) -> str:
    return re.sub(r"\s", lambda found: quote(found[0]), name)


def _decode(name: str) -> str:
    """Return a name with its white space; an address keeps what is encoded in it."""
    page, separator, heading = name.partition(_encode(HEADING_SEPARATOR))
    page = page if "://" in page else _ENCODED.sub(_space, page)
    return page + HEADING_SEPARATOR + _ENCODED.sub(_space, heading) if separator else page


def _space(found: re.Match[str]) -> str:
    text = unquote(found[0])
    return text if text.isspace() else found[0]
