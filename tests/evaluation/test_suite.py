"""Suites: what is understood, and what is refused with its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recto.errors import InvalidArgument
from recto.evaluation.suite import Expectation, documented_suite, load_suite


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
    assert suite.expectations == (Expectation("What?", ("ros2",)), Expectation("Where?", ("ros2", "vla"), ("intro",)))
    assert suite.expectations[1].expected == "ros2 or vla"


def test_a_mark_at_the_beginning_does_not_matter(tmp_path: Path) -> None:
    assert load_suite(write(tmp_path, '\ufeff{"queries": [{"query": "x", "expect": {"module": "a"}}]}')).name == "suite"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{\n  oops", "line 2, column 3"),
        ("", "line 1"),
        ("[" * 100_000, "nested too deeply"),
        ([], "no queries"),
        ({"queries": []}, "no queries"),
        ({"queries": "x"}, "no queries"),
        ({"queries": ["x"]}, "query 1"),
        ({"queries": [{"query": "x"}]}, "query 1"),
        ({"queries": [{"query": "x", "expect": {}}]}, "neither"),
        ({"queries": [{"query": "x", "expect": {"module": 3}}]}, '"module" must be'),
        ({"queries": [{"query": "x", "expect": {"module": [""]}}]}, '"module" must be'),
        (
            {"queries": [{"query": "x", "expect": {"module": "a"}}, {"query": "  ", "expect": {"module": "a"}}]},
            "query 2: Query cannot be empty",
        ),
        ({"queries": [{"query": 5, "expect": {"module": "a"}}]}, "must be text"),
        ({"queries": [{"query": "x" * 2001, "expect": {"module": "a"}}]}, "too long"),
    ],
)
def test_what_is_refused(tmp_path: Path, content: object, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words) as caught:
        load_suite(write(tmp_path, content))
    assert caught.value.hint


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.json", tmp_path):
        with pytest.raises(InvalidArgument, match="cannot be read"):
            load_suite(path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidArgument, match="not UTF-8"):
        load_suite(tmp_path / "binary")


def test_the_documented_suite_has_a_query_for_each_module() -> None:
    assert {expectation.modules for expectation in documented_suite().expectations} == {
        ("ros2",),
        ("simulation",),
        ("isaac",),
        ("vla",),
        ("intro",),
    }
