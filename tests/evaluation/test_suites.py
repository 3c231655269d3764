"""Suites: what is understood, and what is refused with its position in the file."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from recto.errors import InvalidArgument
from recto.evaluation.suites import Expectation, load_strict_suite, load_suite, survey
from recto.types.search import Filters
from tests.running import ROOT

SCHEMA = json.loads(files("recto.evaluation").joinpath("suite.schema.json").read_text("utf-8"))
GOOD: dict[str, Any] = {"query": "x", "expect": {"module": "a"}}


def write(tmp_path: Path, content: object) -> Path:
    path = tmp_path / "suite.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return path


def test_names_may_be_one_or_several(tmp_path: Path) -> None:
    entries = [
        {"query": " What? ", "expect": {"module": "ros2"}},
        {"query": "Where?", "expect": {"module": ["ros2", "vla"], "page": "intro"}},
    ]
    suite = load_suite(write(tmp_path, {"name": "mine", "queries": entries}))
    assert suite.name == "mine"
    where = Expectation("Where?", ("ros2", "vla"), ("intro",))
    assert suite.expectations == (Expectation("What?", ("ros2",)), where)
    assert suite.expectations[1].expected == "ros2 or vla"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{\n  oops", "line 2, column 3"),
        ("", "line 1"),
        ("[" * 100_000, "nested too deeply"),
        ('{"queries": [{"query": "x", "query": "y", "expect": {"module": "a"}}]}', '"query" is there twice'),
        ([], "no queries"),
        ({"queries": []}, "no queries"),
        ({"queries": "x"}, "no queries"),
        ({"queries": ["x"]}, "query 1"),
        ({"queries": [GOOD, GOOD | {"query": "  "}]}, "query 2: Query cannot be empty"),
        ({"querys": [], "queries": [GOOD]}, 'did you mean "queries"'),
        ({"format": "recto-suite-9", "queries": [GOOD]}, "recto-suite-9"),
        ({"threshold": 80, "queries": [GOOD]}, "between 0 and 1"),
        ({"queries": [GOOD | {"id": "one"}] * 2}, 'query 2: the id "one" is already that of query 1'),
    ],
)
def test_what_is_refused_in_a_file(tmp_path: Path, content: object, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message) as caught:
        load_suite(write(tmp_path, content))
    assert caught.value.hint


def test_lines_say_the_same_as_a_json_file(tmp_path: Path) -> None:
    entries = [expectation.to_dict() for expectation in SAME]
    (tmp_path / "s.json").write_text("\ufeff" + json.dumps({"queries": entries}), "utf-8")
    (tmp_path / "s.jsonl").write_text("\n".join(["", *map(json.dumps, entries), ""]))
    suites = [load_suite(tmp_path / name) for name in ("s.json", "s.jsonl")]
    assert [suite.expectations for suite in suites] == [SAME] * 2
    assert suites[0].digest == suites[1].digest
    assert suites[1].expectations[2].position.endswith("s.jsonl, line 4")
    wrong = {"{oops": "line 2, column 2", '{"query": "y"}': "line 2: it needs", "": "no queries"}
    for text, words in wrong.items():
        (tmp_path / "s.jsonl").write_text(f"{json.dumps(GOOD)}\n{text}" if text else "\n\n")
        with pytest.raises(InvalidArgument, match=words):
            load_suite(tmp_path / "s.jsonl")


def expecting(**expect: Any) -> dict[str, Any]:
    return {"expect": expect}


def grading(*grades: object, **more: Any) -> list[dict[str, Any]]:
    return [expecting(grades=one, **(more or {"page": "a"})) for one in grades]


REFUSED: dict[str, list[dict[str, Any]]] = {
    "must be text": [{"query": 5}],
    "cannot be empty": [{"query": " "}],
    "too long": [{"query": "x" * 2001}],
    "neither": [expecting(), expecting(module=[])],
    '"module" must be': [expecting(module=3), expecting(module=[""])],
    'did you mean "module"': [expecting(modul="a")],
    "nothing": [expecting(module="a", nothing=True)],
    "true or false": [expecting(nothing=1)],
    "begins with its path": [expecting(page="#anchor"), expecting(page=" #a")],
    "grade": grading({"a": 5}, {"a": "2"}, ["a"], {"a": True}, {" ": 0}) + grading({"a": 1}, nothing=True),
    'did you mean "tags"': [{"tag": "b"}],
    '"id" must be': [{"id": " "}, {"id": 3}],
    '"drafted"': [{"drafted": "yes"}],
    '"more"': [{"more": 1}],
    '"filters" must be': [{"filters": "ros2"}],
    '"tag"': [{"filters": {"tag": "b"}}],
    '"url" must be a name': [{"filters": {"url": ["a", "b"]}}],
}
NOT_IN_THE_SCHEMA = {"not a language": [{"filters": {"lang": "???"}}], "grade": grading({"b": 1}, {"a": 0})}
INVALID = [
    (change, message, messages is NOT_IN_THE_SCHEMA)
    for messages in (REFUSED, NOT_IN_THE_SCHEMA)
    for message, changes in messages.items()
    for change in changes
]


@pytest.mark.parametrize(("change", "message", "fits_the_schema"), INVALID)
def test_refused_entry(tmp_path: Path, change: dict[str, Any], message: str, fits_the_schema: bool) -> None:
    data = {"queries": [GOOD | change]}
    with pytest.raises(InvalidArgument, match=f"query 1: .*{message}") as caught:
        load_suite(write(tmp_path, data))
    assert caught.value.hint
    assert Draft202012Validator(SCHEMA).is_valid(data) == fits_the_schema


VALID: list[dict[str, Any]] = [
    GOOD,
    {"query": "x", "expect": {"page": ["a", "b#c", "https://x.org/y#z"]}},
    GOOD | {"tags": ["t"], "filters": {"module": ["m"], "url": "u"}, "drafted": True},
    GOOD | {"filters": {"lang": "de", "version": "2.0"}},
    {"query": "x", "expect": {"passage": "a b"}},
    {"query": "x", "expect": {"nothing": True}, "note": "off topic", "id": "n1"},
    {"query": "x", "expect": {"page": ["a", "b"], "grades": {"a": 2, "c#d": 0}}},
    {"query": "x", "expect": {"nothing": True, "grades": {"a": 0}}},
    {"query": "x", "expect": {"grades": {"a": 0, "a quotation of b": 0}}},
    {"query": "x", "nothing": True},
]


@pytest.mark.parametrize("entry", VALID)
def test_what_the_schema_allows_is_read_and_written(tmp_path: Path, entry: dict[str, Any]) -> None:
    format = "recto-suite-2" if "grades" in entry.get("expect", {}) else "recto-suite-1"
    data = {"$schema": "suite.schema.json", "format": format, "queries": [entry]}
    Draft202012Validator(SCHEMA).validate(data)
    suite = load_suite(write(tmp_path, data))
    written = {"queries": [expectation.to_dict() for expectation in suite.expectations]}
    assert load_suite(write(tmp_path, written)) == suite, "what is written reads back"


def test_the_suites_of_this_repository_fit_the_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    source = ROOT / "src" / "recto"
    own = (source / "sample" / "development.json", source / "evaluation" / "documented.json")
    for path in (ROOT / "tests" / "evaluation" / "heldout.json", *own):
        Draft202012Validator(SCHEMA).validate(json.loads(path.read_text("utf-8")))
        load_strict_suite(path)


_ALL: dict[str, Any] = {"id": "q1", "tags": ("easy", "short"), "filters": Filters(("ros2",), "intro")}
SAME = (
    Expectation("What, exactly?", ("ros2", "vla"), ("intro#goals",), **_ALL),
    Expectation("Pizza?", nothing=True, drafted=True),
    Expectation("Who said it?", passages=('She said "no", twice',)),
)


def test_a_question_that_is_asked_twice(tmp_path: Path) -> None:
    entries = [
        {"query": "What is it?", "expect": {"module": "a"}},
        {"query": "what  is it?", "expect": {"module": "b"}, "filters": {"module": "b"}},
        {"query": "What is it?", "expect": {"module": "b"}, "filters": {"version": "1.0", "lang": "de"}},
    ]
    expectations = load_strict_suite(write(tmp_path, {"queries": entries})).expectations
    keys = ["What is it?", "what  is it? [b]", "What is it? [de, 1.0]"]
    assert [one.key for one in expectations] == keys, "other filters make another question"
    path = write(tmp_path, {"queries": [*entries, {"query": "What is IT?", "expect": {"module": "c"}}]})
    with pytest.raises(InvalidArgument, match="query 4.*query 1"):
        load_strict_suite(path)
    assert len(load_suite(path).expectations) == 4, "the contract's report takes it"


def test_all_that_is_wrong_is_found_at_once(tmp_path: Path) -> None:
    entries = [
        {"query": "x"},
        {"query": "y", "expect": {"module": "a"}},
        {"query": "", "expect": {"module": "a"}},
        {"query": "y", "expect": {"page": "a"}},
    ]
    suite, problems = survey(write(tmp_path, {"queries": entries}))
    assert [expectation.query for expectation in suite.expectations] == ["y", "y"]
    positions = [problem.partition(": ")[0].rpartition(", ")[2] for problem in problems]
    assert positions == ["query 1", "query 3", "query 4"]


def test_text_that_is_no_text(tmp_path: Path) -> None:
    text = '{"queries": [{"query": "a\\ud800b", "expect": {"page": "x\\udfff"}, "id": "\\ud83d"}]}'
    (expectation,) = load_suite(write(tmp_path, text)).expectations
    assert (expectation.query, expectation.pages, expectation.id) == ("a?b", ("x?",), "?")


SEEDS = {"page": "garden/seeds.md", "section": "Sowing `Phaseolus` {#beans}"}
SOIL = {"page": "garden/soil.mdx", "section": ""}
BEANS: dict[str, Any] = {"id": "1", "question": "When?", "type": "howto", "expected": [SEEDS, SOIL]}
BEANS |= {"match": "any", "evidence": ["after the last frost"]}
SOILS = {"id": "2", "question": "Which?", "type": "compare", "match": "all", "expected": [SOIL]}
BEES = {"id": "3", "question": "How?", "type": "howto", "match": "none", "expected": [], "evidence": []}


def write_questions(tmp_path: Path, *questions: dict[str, Any]) -> Path:
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(f"{json.dumps(question)}\n" for question in questions), "utf-8")
    return path


def test_a_question_becomes_an_expectation(tmp_path: Path) -> None:
    suite = load_strict_suite(write_questions(tmp_path, BEANS, SOILS, BEES))
    assert suite.name == "questions"
    pages = ("garden/seeds.md > Sowing `Phaseolus` {#beans}", "garden/soil.mdx")
    assert suite.expectations == (
        Expectation("When?", pages=pages, id="1", tags=("howto",)),
        Expectation("Which?", pages=pages[1:], id="2", tags=("compare",)),
        Expectation("How?", nothing=True, id="3", tags=("howto",)),
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"match": "some"}, '"match" must be any, all or none'),
        ({"match": "none"}, '"match" is none, but "expected" has 2 pages'),
        ({"expected": []}, '"match" is any, but "expected" has 0 pages'),
        ({"expected": "garden/soil.mdx"}, '"expected" must be a list of pages'),
        ({"expected": [{"section": "Soil"}]}, '"expected" must be a list of pages'),
        ({"expected": [{"page": "a", "section": 3}]}, '"expected" must be a list of pages'),
        ({"expected": [{"page": " "}]}, '"expected" must be a list of pages'),
        ({"question": " "}, "Query cannot be empty"),
        ({"expectd": []}, 'did you mean "expected"'),
    ],
)
def test_unclear_questions_are_named(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        load_strict_suite(write_questions(tmp_path, BEES, BEANS | change))
    assert words in caught.value.message
    assert "line 2" in caught.value.message
    assert caught.value.hint
