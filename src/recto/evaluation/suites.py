"""Read suites: questions with expectations that name pages or passages of the book, never chunks.

The suites of the retrieval test contract have further keys, but the same reader and the same values.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

from recto._util.files import read_text
from recto._util.text import encodable, nearest, plural
from recto.errors import InvalidArgument, InvalidQuery
from recto.search.query import check_query, to_filters
from recto.types.search import HEADING_SEPARATOR, NO_FILTERS, Filters

SUITE_FORMAT, GRADED_FORMAT = "recto-suite-1", "recto-suite-2"
"""The second format has grades."""
JSON_LINES = (".jsonl", ".ndjson")
MAX_GRADE = 4
DEFAULT_THRESHOLD = 0.8
MAX_BYTES = 64_000_000
SHAPE = (
    'A suite looks like {"queries": [{"query": "What is ROS 2?", "expect": {"module": "ros2"}}]}; '
    'you can add a "page" to the "module".'
)
_QUESTION_SHAPE = (
    'A question looks like {"question": "What is ROS 2?", "match": "any", '
    '"expected": [{"page": "intro.md", "section": "ROS 2"}]}; '
    'without a section the whole page counts, and "match": "none" expects nothing.'
)
_NO_QUERIES = "there are no queries in it"

Rule = tuple[Callable[[Any], bool], str]
"""Whether a value is valid, and what it must be."""


def whole_number(least: int, most: int) -> Rule:
    """Return the rule for a whole number; True and False are not numbers."""
    return (
        lambda value: type(value) is int and least <= value <= most,
        f"a whole number from {least} to {most}",
    )


_IS_GRADE, _GRADE = whole_number(0, MAX_GRADE)
ANY: Rule = (lambda _value: True, "")  # names and queries are checked when they are read
TEXT: Rule = (lambda value: isinstance(value, str), "a string")
OBJECT: Rule = (lambda value: isinstance(value, dict), "an object")
_NAME: Rule = (lambda value: isinstance(value, str) and bool(value.strip()), "a name")
_FLAG: Rule = (lambda value: isinstance(value, bool), "true or false")
_GRADES: Rule = (
    lambda value: (
        isinstance(value, dict) and all(map(str.strip, value)) and all(map(_IS_GRADE, value.values()))
    ),
    f"an object that gives each page or passage {_GRADE}",
)
_SHARE: Rule = (
    lambda value: isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1,
    "a share between 0 and 1",
)
_SUITE: Mapping[str, Rule] = {
    "$schema": ANY, "format": ANY, "name": ANY, "description": ANY, "threshold": _SHARE, "queries": ANY,
}  # fmt: skip
_ENTRY: Mapping[str, Rule] = {
    "id": _NAME, "query": ANY, "expect": OBJECT, "nothing": _FLAG,
    "tags": ANY, "filters": OBJECT, "drafted": _FLAG, "note": ANY,
}  # fmt: skip
_EXPECT: Mapping[str, Rule] = {
    "module": ANY, "page": ANY, "passage": ANY, "nothing": _FLAG, "grades": _GRADES,
}  # fmt: skip
_FILTERS: Mapping[str, Rule] = {"module": ANY, "url": _NAME, "lang": _NAME, "version": _NAME}


def _is_place(value: Any) -> bool:
    """Return whether a value is a page with an optional section."""
    return (
        isinstance(value, dict)
        and {"page"} <= set(value) <= {"page", "section", "heading"}
        and all(isinstance(text, str) for text in value.values())
        and bool(value["page"].strip())
    )


_QUESTION: Mapping[str, Rule] = {
    **dict.fromkeys(("id", "question", "type", "evidence", "source"), ANY),
    "match": (lambda value: value in ("any", "all", "none"), "any, all or none"),
    "expected": (
        lambda value: isinstance(value, list) and all(map(_is_place, value)),
        "a list of pages with sections",
    ),
}


@dataclass(frozen=True, slots=True)
class SuiteFile:
    """The parsed content of a suite's file: its header, and its entries with their positions in the file."""

    origin: str
    header: dict[str, Any]
    entries: list[tuple[str, Any]]

    @property
    def name(self) -> str:
        """The name of the suite, else of its file."""
        name = self.header.get("name")
        return name.strip() if isinstance(name, str) and name.strip() else Path(self.origin).stem


def invalid(position: str, problem: str, hint: str = SHAPE) -> InvalidArgument:
    """Return the error for a problem at a position in a file."""
    return InvalidArgument(f"{position}: {problem}", hint=hint)


def read_suite_file(path: Path, max_bytes: int = MAX_BYTES) -> SuiteFile:
    """Read a suite's file by its extension: JSON Lines, and JSON for anything else."""
    text, origin = read_text(path, max_bytes), str(path)
    if path.suffix.lower() not in JSON_LINES:
        return suite_file(parse_json(text, origin), origin)
    entries = [
        (f"{origin}, line {number}", parse_json(line, origin, number))
        for number, line in enumerate(text.split("\n"), 1)
        if line.strip()
    ]
    if not entries:
        raise invalid(origin, _NO_QUERIES)
    return SuiteFile(origin, {}, entries)


def suite_file(data: Any, origin: str) -> SuiteFile:
    """Read the JSON value of a suite: an object with the list `queries`."""
    entries = data.get("queries") if isinstance(data, dict) else None
    if not isinstance(entries, list) or not entries:
        raise invalid(origin, _NO_QUERIES)
    header = {key: value for key, value in data.items() if key != "queries"}
    numbered = [(f"{origin}, query {number}", entry) for number, entry in enumerate(entries, 1)]
    return SuiteFile(origin, header, numbered)


def parse_json(text: str, origin: str, line: int | None = None, *, hint: str = SHAPE) -> Any:
    """Parse JSON; an error says where in the file it is."""
    try:
        return json.loads(text, object_pairs_hook=_unique_keys)
    except json.JSONDecodeError as error:
        position = f"{origin}, line {line or error.lineno}, column {error.colno}"
        raise invalid(position, error.msg, hint) from error
    except RecursionError as error:
        raise invalid(origin, "nested too deeply", hint) from error
    except ValueError as error:  # a number with too many digits, or a duplicate key
        raise invalid(f"{origin}, line {line}" if line else origin, str(error), hint) from error


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        ((twice, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f'"{twice}" is there twice in one object')
    return values


@dataclass(frozen=True, slots=True)
class Expectation:
    """A question and its targets, one of which must be the first result; passages are finer than pages.

    `grades` says how well a target answers: 1 if not given, and 0 for a page or passage that does not answer
    the question. With grades of 0 only, it is not known what answers the question: it cannot be measured.
    `category`, `top_k` and `conditions` belong to the retrieval test contract; `conditions` is its `expect`.
    """

    query: str
    modules: tuple[str, ...] = ()
    pages: tuple[str, ...] = ()
    passages: tuple[str, ...] = ()
    nothing: bool = False
    id: str = ""
    tags: tuple[str, ...] = ()
    filters: Filters = NO_FILTERS
    drafted: bool = False
    grades: tuple[tuple[str, int], ...] = ()
    category: str = ""
    top_k: int | None = None
    conditions: Mapping[str, Any] = field(default_factory=dict, hash=False)
    position: str = field(default="", compare=False)

    @property
    def expected(self) -> str:
        """The expectation as text, for reports."""
        return "nothing" if self.nothing else " or ".join(self.modules or self.pages or self.passages)

    @property
    def key(self) -> str:
        """The identity of the question across runs: its id, or its query and filters."""
        if self.id:
            return self.id
        filters = self.filters
        names = (*sorted(filters.modules), filters.page_url, filters.language, *filters.versions)
        narrowed = ", ".join(filter(None, names))
        return f"{self.query} [{narrowed}]" if narrowed else self.query

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of a suite's file."""
        targets = {"module": self.modules, "page": self.pages, "passage": self.passages}
        expect = {name: names[0] if len(names) == 1 else list(names) for name, names in targets.items()}
        entry = {
            "id": self.id,
            "query": self.query,
            "expect": _without_empty(expect | {"nothing": self.nothing, "grades": dict(self.grades)}),
            "tags": list(self.tags),
            "filters": _without_empty(
                {
                    "module": list(self.filters.modules),
                    "url": self.filters.page_url,
                    "lang": self.filters.language,
                    "version": next(iter(self.filters.versions), None),
                }
            ),
            "drafted": self.drafted,
        }
        return _without_empty(entry)


def _without_empty(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value}


@dataclass(frozen=True)
class Suite:
    """Expectations in order, and the share of questions that must pass."""

    name: str
    expectations: tuple[Expectation, ...]
    threshold: float = DEFAULT_THRESHOLD

    @cached_property
    def digest(self) -> str:
        """A hash of the questions and expectations, independent of the file format."""
        # The empty list has no meaning any more, but the digests in existing baselines contain it.
        data = [[], [expectation.to_dict() for expectation in self.expectations]]
        return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def documented_suite() -> Suite:
    """Return the five queries of the query contract."""
    text = files("recto.evaluation").joinpath("documented.json").read_text("utf-8")
    return _parse_suite(suite_file(parse_json(text, "documented.json"), "documented.json"))


def load_suite(path: str | Path) -> Suite:
    """Read a suite's file; an error names the position in the file."""
    if not isinstance(path, str | Path):
        raise InvalidArgument(
            f"A suite is a file or a Suite, not {type(path).__name__}", hint='Such as "questions.json".'
        )
    return _parse_suite(read_suite_file(Path(path)))


def load_strict_suite(path: Path) -> Suite:
    """Read a suite's file, and refuse duplicate questions."""
    suite = load_suite(path)
    for message in duplicates(suite):
        raise InvalidArgument(message, hint="Merge the two entries, or add filters to one of them.")
    return suite


def survey(path: Path) -> tuple[Suite, list[str]]:
    """Read a suite's file, and return its valid entries and all problems."""
    problems: list[str] = []
    suite = _parse_suite(read_suite_file(path), problems)
    return suite, problems + duplicates(suite)


def duplicates(suite: Suite) -> list[str]:
    """Describe duplicate questions (with the same filters), with both positions."""
    seen: dict[tuple[str, Filters], str] = {}
    messages = []
    for question in suite.expectations:
        key = " ".join(question.query.casefold().split()), question.filters
        first = seen.setdefault(key, question.position)
        if first != question.position:
            messages.append(f"{question.position}: the question {question.query!r} is already in {first}")
    return messages


def _parse_suite(raw: SuiteFile, problems: list[str] | None = None) -> Suite:
    """Parse the header and every entry; raise what is wrong, or add it to `problems` and skip the entry."""
    check_values(
        raw.header, _SUITE, raw.origin, hint="The threshold is the share of questions that must pass."
    )
    format = raw.header.get("format", SUITE_FORMAT)
    if format not in (SUITE_FORMAT, GRADED_FORMAT):
        hint = f"This version of Recto reads {SUITE_FORMAT} and {GRADED_FORMAT}."
        raise invalid(raw.origin, f"its format is {format!r}", hint)
    expectations = parse_entries(raw, lambda entry, position, _: _expectation(entry, position), problems)
    return Suite(raw.name, expectations, float(raw.header.get("threshold", DEFAULT_THRESHOLD)))


def parse_entries(
    raw: SuiteFile, parse: Callable[[Any, str, int], Expectation], problems: list[str] | None = None
) -> tuple[Expectation, ...]:
    """Parse each entry with its position and its number; refuse an id that an earlier entry has.

    Raise what is wrong, or add it to `problems` and skip the entry.
    """
    expectations: list[Expectation] = []
    positions: dict[str, str] = {}
    for number, (position, entry) in enumerate(raw.entries, 1):
        try:
            expectation = parse(entry, position, number)
            if expectation.id and positions.setdefault(expectation.id, position) != position:
                first = positions[expectation.id].rpartition(", ")[2]
                problem = f'the id "{expectation.id}" is already that of {first}'
                raise invalid(position, problem, "Give every entry its own id.")
        except InvalidArgument as error:
            if problems is None:
                raise
            problems.append(error.message)
        else:
            expectations.append(expectation)
    return tuple(expectations)


def _expectation(entry: Any, position: str) -> Expectation:
    if isinstance(entry, dict) and "question" in entry:
        entry = _from_question(entry, position)
    if not isinstance(entry, dict) or not {"expect", "nothing"} & set(entry):
        raise invalid(position, 'it needs a "query" and an "expect"')
    expect = entry.get("expect", {})
    check_values(entry, _ENTRY, position)
    check_values(expect, _EXPECT, position, '"{key}" cannot be expected')
    try:
        query = check_query(entry.get("query", ""))
    except InvalidQuery as error:
        raise invalid(position, error.message) from error
    modules, pages, passages = (
        parse_names(expect.get(kind), position, kind) for kind in ("module", "page", "passage")
    )
    has_targets = bool(modules or pages or passages)
    nothing = expect.get("nothing", False) or entry.get("nothing", False)
    if nothing and has_targets:
        hint = 'Leave "nothing" out, or everything else.'
        raise invalid(position, 'it expects "nothing" and something', hint)
    if not nothing and not has_targets and not expect.get("grades"):
        raise invalid(position, 'it expects neither a "module" nor a "page", a "passage" or "nothing"')
    if any(page.startswith("#") for page in pages):
        problem = 'a "page" begins with its path or address, before the "#"'
        raise invalid(position, problem, 'Such as "intro#goals".')
    return Expectation(
        query,
        modules,
        pages,
        passages,
        nothing=nothing,
        id=_clean(entry.get("id", "")),
        tags=parse_names(entry.get("tags"), position, "tags"),
        filters=_filters(entry.get("filters", {}), position),
        drafted=entry.get("drafted", False),
        grades=_grades(expect.get("grades", {}), (*pages, *passages), position),
        position=position,
    )


def _grades(value: dict[str, int], targets: tuple[str, ...], position: str) -> tuple[tuple[str, int], ...]:
    """Parse grades: a target has at least 1, any other page 0."""
    grades = {_clean(name): grade for name, grade in value.items()}
    for name, grade in grades.items():
        if (grade > 0) != (name in targets):
            problem = f"the grade of {name!r} is {grade}, but it is {'not ' if grade else ''}expected"
            raise invalid(position, problem, "A page or passage is expected if its grade is at least 1.")
    return tuple(grades.items())


def _from_question(entry: dict[str, Any], position: str) -> dict[str, Any]:
    """Convert a reader's question to a suite's entry; a section is named `page > heading`."""
    check_values(entry, _QUESTION, position, hint=_QUESTION_SHAPE)
    expected, match = entry.get("expected", []), entry.get("match", "any")
    if bool(expected) == (match == "none"):
        problem = f'"match" is {match}, but "expected" has {plural(len(expected), "page")}'
        raise invalid(position, problem, _QUESTION_SHAPE)
    pages = [
        HEADING_SEPARATOR.join(filter(None, (place["page"], heading.strip())))
        for place in expected
        for heading in (place.get("section") or place.get("heading", ""),)
    ]
    expect = {"page": pages} if pages else {"nothing": True}
    converted = {"query": entry["question"], "expect": expect, "tags": entry.get("type")}
    return converted | ({"id": entry["id"]} if "id" in entry else {})


def _filters(value: dict[str, Any], position: str) -> Filters:
    check_values(value, _FILTERS, position)
    names = {key: _clean(name) for key, name in value.items() if key != "module"}
    try:
        return to_filters({"module": parse_names(value.get("module"), position, "module"), **names})
    except InvalidArgument as error:
        raise invalid(position, error.message, error.hint) from error


def parse_names(value: Any, position: str, key: str) -> tuple[str, ...]:
    """Parse one name or a list of names."""
    names = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(names, list) or not all(isinstance(name, str) and name.strip() for name in names):
        raise invalid(position, f'"{key}" must be a name or a list of names')
    return tuple(dict.fromkeys(map(_clean, names)))


def _clean(text: str) -> str:
    return encodable(text).strip()


def check_values(
    values: dict[str, Any],
    rules: Mapping[str, Rule],
    position: str,
    unknown: str = 'there is no "{key}"',
    hint: str = SHAPE,
) -> None:
    """Refuse unknown keys, with the nearest one that is allowed, and values that do not fit their rules."""
    for key, value in values.items():
        if key not in rules:
            near = nearest(key, rules)
            meant = f'; did you mean "{near}"?' if near else ""
            raise invalid(position, unknown.format(key=key) + meant, f"Known: {', '.join(rules)}.")
        is_valid, description = rules[key]
        if not is_valid(value):
            raise invalid(position, f'"{key}" must be {description}, not {type(value).__name__}', hint)
