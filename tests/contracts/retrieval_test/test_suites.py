"""Suites: invalid files, rate limit, metrics, and the comparison with expected results."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recto._util import nearest_rank as percentile
from recto.contracts.retrieval_test import FormattedResponse, QdrantAPIError, format_response
from recto.contracts.retrieval_test.suites import Cases, parse_cases, run_cases, summary, wait_between_queries
from recto.testing.parts import chunk
from recto.types.search import Hit
from tests.contracts.retrieval_test.conftest import BACKEND, Call

ONE = {"id": "one", "query": "robot"}


def suite_file(workdir: Path, content: Any) -> str:
    path = workdir / "suite.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return "suite.json"


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"", "suite.json, line 1, column 1"),
        (b'{"queries": [\n{"query": }]}', "suite.json, line 2, column 11"),
        (b'{"queries": [{"query": "caf\xe9"}]}', "suite.json, byte 28: not UTF-8 text"),
        (b"[" * 100_000, "suite.json: nested too deeply"),
        (b"1" * 5000, "suite.json: "),
        ([], "there are no queries"),
        ({"queries": []}, "there are no queries"),
        ({"queries": {"a": 1}}, "there are no queries"),
        ({"queries": ["What is ROS 2?"]}, "query 1: it is not an object"),
        ({"queries": [ONE, {"id": "two"}]}, 'query 2: it needs a "query"'),
        ({"queries": [{"query": None}]}, 'query 1: "query" must be a string, not NoneType'),
        ({"queries": [{"query": 7}]}, 'query 1: "query" must be a string, not int'),
        (
            {"queries": [{**ONE, "query_repeat": {"text": "a", "times": 2}}]},
            'needs a "query" or a "query_repeat"',
        ),
        ({"queries": [{"query_repeat": {"text": "a", "times": 10**9}}]}, '"times" must be'),
        ({"queries": [{"query_repeat": {"text": "a"}}]}, '"query_repeat" must be'),
        (
            {"queries": [ONE, {"id": "two", "query": "x"}, ONE]},
            'query 3: the id "one" is already that of query 1',
        ),
        ({"queries": [{**ONE, "id": 3}]}, '"id" must be'),
        ({"queries": [{**ONE, "top_k": 51}]}, '"top_k" must be a whole number from 1 to 50'),
        ({"queries": [{**ONE, "top_k": True}]}, '"top_k" must be'),
        ({"queries": [{**ONE, "tags": [1]}]}, '"tags" must be'),
        ({"queries": [{**ONE, "category": 1}]}, '"category" must be'),
        ({"queries": [{**ONE, "expects": {}}]}, 'there is no "expects"'),
        ({"queries": [{**ONE, "expect": []}]}, '"expect" must be an object'),
        ({"queries": [{**ONE, "expect": {"pages": "x"}}]}, '"pages" cannot be expected'),
        ({"queries": [{**ONE, "expect": {"error": "any"}}]}, '"error" must be one of'),
        ({"queries": [{**ONE, "expect": {"error": "api", "page": "x"}}]}, "nothing else can be expected"),
        ({"queries": [{**ONE, "expect": {"text": 1}}]}, '"text" must be'),
        ({"queries": [{**ONE, "expect": {"weaker_than": "two"}}]}, '"weaker_than" names "two"'),
        ({"queries": [{**ONE, "expect": {"weaker_than": "one"}}]}, '"weaker_than" names "one"'),
    ],
)
def test_errors_in_suites_have_a_position(
    call: Call, embedded: Path, workdir: Path, content: Any, place: str
) -> None:
    outcome = call("--test-suite", suite_file(workdir, content))
    assert (outcome.code, outcome.error["kind"]) == (1, "argument")
    assert place in outcome.error["message"]
    assert outcome.error["hint"]


def test_suite_files_that_cannot_be_read(call: Call, embedded: Path, workdir: Path) -> None:
    (workdir / "directory").mkdir()
    with (workdir / "huge.json").open("wb") as huge:
        huge.truncate(100_000_000)
    for name, reason in (
        ("missing.json", "No such file"),
        ("directory", "directory"),
        ("huge.json", "larger than 5 MB"),
        ("a\0b", "null"),
    ):
        outcome = call("--test-suite", name)
        assert outcome.code == 1
        assert reason in outcome.error["message"]


def test_unmet_expectations_are_exit_code_3(call: Call, embedded: Path, workdir: Path) -> None:
    outcome = call(
        "--test-suite",
        suite_file(
            workdir,
            {
                "queries": [
                    {
                        "id": "page",
                        "query": "What is a digital twin?",
                        "expect": {"page": "module-4-vla/06-capstone", "within": 1},
                    },
                    {
                        "id": "module",
                        "query": "What is a digital twin?",
                        "expect": {"module": "ros2", "within": 1},
                    },
                    {
                        "id": "text",
                        "query": "What is a digital twin?",
                        "expect": {"text": "no passage says this"},
                    },
                    {"id": "error", "query": "robot", "expect": {"error": "argument"}},
                    {"id": "refused", "query": ""},
                    {"id": "stronger", "query": "What is a digital twin?", "expect": {"weaker_than": "off"}},
                    {"id": "off", "query": "quantum entanglement"},
                    {
                        "id": "right",
                        "query": "What is a digital twin?",
                        "expect": {"text": "DIGITAL   twin", "module": "module-2-simulation"},
                    },
                ]
            },
        ),
    )
    assert outcome.code == 3
    assert [entry["id"] for entry in outcome.document["queries"] if entry["passed"]] == ["off", "right"]
    assert all(entry["unmet"] for entry in outcome.document["queries"] if not entry["passed"])


class Clock:
    """A simulated clock that moves only in `sleep`."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def sent(wait: Callable[[], None], clock: Clock, queries: int) -> list[float]:
    times = []
    for _ in range(queries):
        wait()
        times.append(clock.now)
        clock.now += 0.5
    return times


def test_at_most_ten_queries_a_minute_against_cohere(told: list[str]) -> None:
    clock = Clock()
    times = sent(
        wait_between_queries(paid=True, delay=None, notify=told.append, clock=clock, sleep=clock.sleep),
        clock,
        48,
    )
    assert all(sum(start <= time < start + 60 for time in times) <= 10 for start in times)
    assert times[-1] < 5 * 60, "but not much slower"
    assert told, "the wait is reported"


def test_the_embedded_engine_does_not_wait(told: list[str]) -> None:
    clock = Clock()
    sent(
        wait_between_queries(paid=False, delay=None, notify=told.append, clock=clock, sleep=clock.sleep),
        clock,
        48,
    )
    assert clock.slept == []


@pytest.mark.parametrize("paid", [True, False])
def test_delay_overrides_the_rate_limit(told: list[str], paid: bool) -> None:
    clock = Clock()
    sent(
        wait_between_queries(paid=paid, delay=2.0, notify=told.append, clock=clock, sleep=clock.sleep),
        clock,
        20,
    )
    assert clock.slept == [1.5] * 19, "between queries, not before the first"
    clock = Clock()
    sent(
        wait_between_queries(paid=paid, delay=0, notify=told.append, clock=clock, sleep=clock.sleep),
        clock,
        20,
    )
    assert clock.slept == []


def answered(query: str, top_k: int, score: float = 0.5) -> FormattedResponse:
    found = replace(chunk(0), page_url="https://b.example.org/docs/a", source="docs/a.md")
    return format_response(query, [Hit(score, found)], top_k, embed_ms=1.0, search_ms=2.0)


def cases(*entries: dict[str, Any]) -> Cases:
    return parse_cases({"queries": list(entries)}, "suite")


def test_invalid_queries_do_not_wait() -> None:
    waited: list[int] = []
    run_cases(
        cases({"query": ""}, {"query": "robot"}, {"query_repeat": {"text": "a", "times": 3000}}),
        answered,
        lambda: waited.append(1),
    )
    assert len(waited) == 1


@pytest.mark.parametrize(
    ("page", "met"),
    [
        ("a", True),
        ("docs/a", True),
        ("docs/a.md", True),
        ("https://b.example.org/docs/a/", True),
        ("b", False),
        ("s/a", False),
    ],
)
def test_names_of_pages(page: str, met: bool) -> None:
    (verdict,) = run_cases(cases({"query": "robot", "expect": {"page": page}}), answered, lambda: None)
    assert verdict.passed is met


def test_an_api_error_can_be_expected() -> None:
    def fail(query: str, top_k: int) -> FormattedResponse:
        raise QdrantAPIError("no")

    suite = cases({"query": "robot", "expect": {"error": "api"}}, {"query": "robot"})
    first, second = run_cases(suite, fail, lambda: None)
    assert (first.passed, first.failed_api) == (True, False)
    assert (second.passed, second.failed_api) == (False, True)


def test_summary() -> None:
    suite = cases(
        {"query": "robot"},
        {"query": "arm", "top_k": 10},
        {"query": "", "expect": {"error": "argument"}},
        {"query": ""},
    )
    metrics = summary(run_cases(suite, answered, lambda: None))
    assert (metrics["query_count"], metrics["passed"], metrics["failed"]) == (4, 3, 1)
    assert (metrics["success_rate"], metrics["failure_rate"]) == (0.75, 0.25)
    assert metrics["latency_ms"]["search"] == {"count": 2, "mean": 2.0, "p95": 2.0, "p99": 2.0, "max": 2.0}
    assert metrics["top_k_distribution"] == {"5": 3, "10": 1}
    assert metrics["within_targets"] == {"embed": True, "search": True, "total": True}
    assert summary(run_cases(cases({"query": ""}), answered, lambda: None))["within_targets"]["total"] is None


def test_percentiles_are_measured_values() -> None:
    values = [float(number) for number in range(100, 0, -1)]
    assert (percentile(values, 0.95), percentile(values, 0.99), percentile([7.0], 0.99)) == (95.0, 99.0, 7.0)


def test_compare_with_expected_results(call: Call, embedded: Path, workdir: Path) -> None:
    suite = suite_file(
        workdir,
        {
            "queries": [
                {"id": "twin", "query": "What is ROS 2?"},
                {"id": "arm", "query": "robot arm", "top_k": 3},
            ]
        },
    )
    assert call("--test-suite", suite, "--update-expected", "kept.json").code == 0
    assert call("--test-suite", suite, "--expected", "kept.json").code == 0
    kept = json.loads((workdir / "kept.json").read_text("utf-8"))

    def changed(change: Callable[[Any], object]) -> Any:
        other = json.loads(json.dumps(kept))
        change(other)
        (workdir / "other.json").write_text(json.dumps(other))
        return call("--test-suite", suite, "--expected", "other.json")

    def first(data: Any) -> Any:
        return data["queries"]["twin"]["results"][0]

    outcome = changed(lambda data: first(data).update(score=first(data)["score"] - 0.05))
    assert outcome.code == 3
    assert "expected 0." in outcome.document["queries"][0]["unmet"][0]
    assert changed(lambda data: first(data).update(score=first(data)["score"] - 0.005)).code == 0, (
        "within the tolerance"
    )
    assert (
        "no longer found"
        in changed(lambda data: first(data).update(chunk_index=99)).document["queries"][0]["unmet"][0]
    )
    assert (
        "another query text"
        in changed(lambda data: data["queries"]["twin"].update(query="x")).document["queries"][0]["unmet"][0]
    )
    assert (
        "do not have this query"
        in changed(lambda data: data["queries"].pop("arm")).document["queries"][1]["unmet"][0]
    )
    assert (
        "results where 2"
        in changed(lambda data: data["queries"]["arm"]["results"].pop()).document["queries"][1]["unmet"][0]
    )
    for change, message in (
        (lambda data: data.update(model="another"), "cannot be compared"),
        (lambda data: data["queries"].update(gone={"error": "api"}), '"gone" that is not in the suite'),
        (lambda data: data["queries"].update(arm=7), '"arm": it has neither results nor an error'),
        (lambda data: data.pop("queries"), "no model and no queries"),
    ):
        outcome = changed(change)
        assert (outcome.code, message in outcome.error["message"]) == (1, True)


def test_the_suite_file_has_one_query_per_line() -> None:
    lines = (BACKEND / "test_queries.json").read_text("utf-8").split("\n")
    assert sum('"id":' in line for line in lines) == len(json.loads("\n".join(lines))["queries"])
