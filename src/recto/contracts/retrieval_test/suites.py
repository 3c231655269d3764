"""A test suite's file: queries with what is expected of each, read strictly; every fault is told with its place."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recto.contracts.retrieval_test.contract import DEFAULT_TOP_K, MAX_TOP_K
from recto.errors import InvalidArgument

MAX_BYTES = 5_000_000
_LONGEST_REPEAT = 1_000_000
_SHAPE = (
    'A suite looks like {"queries": [{"id": "dds", "query": "What is DDS in ROS 2?", '
    '"expect": {"page": "module-1-ros2/04-dds-and-qos"}}]}; backend/README.md lists all that can be expected.'
)
_ENTRY_KEYS = {"id", "query", "query_repeat", "category", "tags", "top_k", "expect", "note"}
ERRORS = ("argument", "api")


@dataclass(frozen=True, slots=True)
class Expect:
    """What must hold of an answer; what is empty or None is not asked for.

    `pages` and `modules`: one of them among the first `within` results; `text`: a passage among them says it; `weaker_than`: the best
    score is below the best of each of these queries, so that "nothing relevant" needs no number that only one model knows.
    """

    pages: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    text: str = ""
    within: int = DEFAULT_TOP_K
    min_results: int = 1
    weaker_than: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """One query of a suite; `given` is the expectation as it was written."""

    id: str
    query: Any
    expect: Expect
    category: str = ""
    tags: tuple[str, ...] = ()
    top_k: int | None = None
    given: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cases:
    """A suite in its order."""

    name: str
    cases: tuple[Case, ...]


def load_cases(path: Path) -> Cases:
    """Read a suite's JSON file."""
    return parse_cases(read_json(path, "--test-suite", _SHAPE), str(path))


def read_json(path: Path, flag: str, shape: str) -> Any:
    """Read a JSON file that a person wrote; every way in which it can be none is told."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise InvalidArgument(f"{flag} {path} cannot be read: {reason}", hint="Check the path.") from None
    if len(content) > MAX_BYTES:
        raise InvalidArgument(
            f"{flag} {path} is larger than {MAX_BYTES // 1_000_000} MB", hint="Split it into several files."
        )
    try:
        return json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{path}, byte {error.start + 1}: not UTF-8 text", hint=shape) from None
    except json.JSONDecodeError as error:
        raise InvalidArgument(
            f"{path}, line {error.lineno}, column {error.colno}: {error.msg}", hint=shape
        ) from None
    except RecursionError:
        raise InvalidArgument(f"{path}: nested too deeply", hint=shape) from None
    except ValueError as error:  # a number with thousands of digits
        raise InvalidArgument(f"{path}: {error}", hint=shape) from None


def parse_cases(data: Any, origin: str) -> Cases:
    """Read a suite's JSON value."""
    entries = data.get("queries") if isinstance(data, dict) else None
    if not isinstance(entries, list) or not entries:
        raise InvalidArgument(f"{origin}: there are no queries in it", hint=_SHAPE)
    cases: dict[str, Case] = {}
    for number, entry in enumerate(entries, 1):
        case = _case(entry, number, f"{origin}, query {number}")
        if case.id in cases:
            first = list(cases).index(case.id) + 1
            raise _fault(f"{origin}, query {number}", f'the id "{case.id}" is already that of query {first}')
        cases[case.id] = case
    for number, case in enumerate(cases.values(), 1):
        for other in case.expect.weaker_than:
            if other not in cases or other == case.id:
                raise _fault(
                    f"{origin}, query {number}",
                    f'"weaker_than" names "{other}", which is no other query of the suite',
                )
    name = data.get("name")
    return Cases(name if isinstance(name, str) and name.strip() else Path(origin).stem, tuple(cases.values()))


def _case(entry: Any, number: int, place: str) -> Case:
    if not isinstance(entry, dict):
        raise _fault(place, "it is not an object")
    if unknown := sorted(set(entry) - _ENTRY_KEYS):
        raise _fault(place, f'there is no "{unknown[0]}"')
    id = entry.get("id", f"query-{number}")
    if not isinstance(id, str) or not id.strip():
        raise _fault(place, '"id" must be a text that is not empty')
    category = entry.get("category", "")
    if not isinstance(category, str):
        raise _fault(place, '"category" must be a text')
    top_k = entry.get("top_k")
    if top_k is not None:
        top_k = _whole(top_k, place, "top_k", 1)
    expect = entry.get("expect", {})
    if not isinstance(expect, dict):
        raise _fault(place, '"expect" must be an object')
    return Case(
        id,
        _query(entry, place),
        _expect(expect, place),
        category,
        _names(entry.get("tags"), place, "tags"),
        top_k,
        expect,
    )


def _query(entry: dict[str, Any], place: str) -> str:
    """Return the query; one that is only long is written as what is repeated and how often."""
    if ("query" in entry) == ("query_repeat" in entry):
        raise _fault(place, 'it needs a "query" or a "query_repeat"')
    if "query" in entry:
        if not isinstance(entry["query"], str):
            raise _fault(place, f'"query" must be a text, not {type(entry["query"]).__name__}')
        return entry["query"]
    repeat = entry["query_repeat"]
    if (
        not isinstance(repeat, dict)
        or set(repeat) != {"text", "times"}
        or not isinstance(repeat["text"], str)
    ):
        raise _fault(place, '"query_repeat" must be an object with "text" and "times"')
    times = repeat["times"]
    if (
        isinstance(times, bool)
        or not isinstance(times, int)
        or not 1 <= times * max(1, len(repeat["text"])) <= _LONGEST_REPEAT
    ):
        raise _fault(place, f'"times" must be a whole number that makes at most {_LONGEST_REPEAT} characters')
    return str(repeat["text"] * times)


def _expect(expect: dict[str, Any], place: str) -> Expect:
    if unknown := sorted(
        set(expect) - {"page", "module", "text", "within", "min_results", "weaker_than", "error"}
    ):
        raise _fault(place, f'"{unknown[0]}" cannot be expected')
    error = expect.get("error", "")
    if error not in ("", *ERRORS):
        raise _fault(place, f'"error" must be one of {", ".join(ERRORS)}')
    if error and len(expect) > 1:
        raise _fault(place, 'beside an "error" nothing else can be expected')
    text = expect.get("text", "")
    if not isinstance(text, str):
        raise _fault(place, '"text" must be a text')
    return Expect(
        pages=_names(expect.get("page"), place, "page"),
        modules=_names(expect.get("module"), place, "module"),
        text=text,
        within=_whole(expect.get("within", DEFAULT_TOP_K), place, "within", 1),
        min_results=_whole(expect.get("min_results", 1), place, "min_results", 0),
        weaker_than=_names(expect.get("weaker_than"), place, "weaker_than"),
        error=error,
    )


def _names(value: Any, place: str, key: str) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(names, list) or not all(isinstance(name, str) and name.strip() for name in names):
        raise _fault(place, f'"{key}" must be a name or a list of names')
    return tuple(name.strip() for name in names)


def _whole(value: Any, place: str, key: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_TOP_K:
        raise _fault(place, f'"{key}" must be a whole number from {least} to {MAX_TOP_K}')
    return value


def _fault(place: str, what: str) -> InvalidArgument:
    return InvalidArgument(f"{place}: {what}", hint=_SHAPE)
