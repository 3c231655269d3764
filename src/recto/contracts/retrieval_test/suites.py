"""Document 003's test suites: evaluation questions with the expectations that only this contract has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recto.contracts.retrieval_test.contract import DEFAULT_TOP_K, MAX_TOP_K
from recto.errors import InvalidArgument
from recto.evaluation.suites import (
    SHAPE,
    Expectation,
    SuiteFile,
    check_id,
    check_keys,
    parse_names,
    read_suite_file,
    suite_file,
)

MAX_BYTES = 5_000_000
_MAX_REPEATED = 1_000_000
_ENTRY_KEYS = ("id", "query", "query_repeat", "category", "tags", "top_k", "expect", "note")
_EXPECT_KEYS = ("page", "module", "text", "within", "min_results", "weaker_than", "error")
_ERRORS = ("argument", "api")


@dataclass(frozen=True, slots=True)
class Case(Expectation):
    """One query of a suite; all expectations must be met, empty ones do not apply.

    One of `pages`, one of `modules` and the passage must be among the first `within` results. The best score
    must be below the best score of each query in `weaker_than`. `given` is the expectation as written.
    """

    category: str = ""
    top_k: int | None = None
    within: int = DEFAULT_TOP_K
    min_results: int = 1
    weaker_than: tuple[str, ...] = ()
    error: str = ""
    given: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cases:
    """A suite's name and its queries in order."""

    name: str
    cases: tuple[Case, ...]


def load_cases(path: Path) -> Cases:
    """Read a suite's file."""
    return _parse(read_suite_file(path, MAX_BYTES))


def parse_cases(data: Any, origin: str) -> Cases:
    """Parse a suite's JSON value."""
    return _parse(suite_file(data, origin))


def _parse(raw: SuiteFile) -> Cases:
    cases: list[Case] = []
    ids: dict[str, str] = {}
    for number, (place, entry) in enumerate(raw.entries, 1):
        case = _case(entry, number, place)
        check_id(case.id, place, ids)
        cases.append(case)
    for case in cases:
        for other in case.weaker_than:
            if other not in ids or other == case.id:
                raise _fault(
                    case.place, f'"weaker_than" names "{other}", which is no other query of the suite'
                )
    name = raw.header.get("name")
    return Cases(name if isinstance(name, str) and name.strip() else Path(raw.origin).stem, tuple(cases))


def _case(entry: Any, number: int, place: str) -> Case:
    if not isinstance(entry, dict):
        raise _fault(place, "it is not an object")
    check_keys(entry, _ENTRY_KEYS, place)
    id = entry.get("id", f"query-{number}")
    if not isinstance(id, str) or not id.strip():
        raise _fault(place, '"id" must be a text that is not empty')
    top_k, expect = entry.get("top_k"), entry.get("expect", {})
    if not isinstance(expect, dict):
        raise _fault(place, '"expect" must be an object')
    check_keys(expect, _EXPECT_KEYS, place, '"{key}" cannot be expected')
    error, text = expect.get("error", ""), _text(expect, place, "text")
    if error not in ("", *_ERRORS):
        raise _fault(place, f'"error" must be one of {", ".join(_ERRORS)}')
    if error and len(expect) > 1:
        raise _fault(place, 'beside an "error" nothing else can be expected')
    return Case(
        _query(entry, place),
        modules=parse_names(expect.get("module"), place, "module"),
        pages=parse_names(expect.get("page"), place, "page"),
        passages=(text,) if text else (),
        id=id,
        tags=parse_names(entry.get("tags"), place, "tags"),
        place=place,
        category=_text(entry, place, "category"),
        top_k=None if top_k is None else _whole(top_k, place, "top_k", 1),
        within=_whole(expect.get("within", DEFAULT_TOP_K), place, "within", 1),
        min_results=_whole(expect.get("min_results", 1), place, "min_results", 0),
        weaker_than=parse_names(expect.get("weaker_than"), place, "weaker_than"),
        error=error,
        given=expect,
    )


def _query(entry: dict[str, Any], place: str) -> str:
    """Return the query; `query_repeat` writes a very long one as a text and a number of repetitions."""
    if ("query" in entry) == ("query_repeat" in entry):
        raise _fault(place, 'it needs a "query" or a "query_repeat"')
    if "query" in entry:
        if not isinstance(entry["query"], str):
            raise _fault(place, f'"query" must be a text, not {type(entry["query"]).__name__}')
        return entry["query"]
    repeat = entry["query_repeat"]
    if not isinstance(repeat, dict) or set(repeat) != {"text", "times"}:
        raise _fault(place, '"query_repeat" must be an object with "text" and "times"')
    text, times = _text(repeat, place, "text"), repeat["times"]
    whole = isinstance(times, int) and not isinstance(times, bool)
    if not whole or not 1 <= times * max(1, len(text)) <= _MAX_REPEATED:
        raise _fault(place, f'"times" must be a whole number that makes at most {_MAX_REPEATED} characters')
    return text * int(times)


def _text(entry: dict[str, Any], place: str, key: str) -> str:
    value = entry.get(key, "")
    if not isinstance(value, str):
        raise _fault(place, f'"{key}" must be a text')
    return value


def _whole(value: Any, place: str, key: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_TOP_K:
        raise _fault(place, f'"{key}" must be a whole number from {least} to {MAX_TOP_K}')
    return value


def _fault(place: str, problem: str) -> InvalidArgument:
    return InvalidArgument(f"{place}: {problem}", hint=f"{SHAPE} backend/README.md lists all expectations.")
