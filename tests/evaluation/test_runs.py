"""Runs: a suite asked on the real index, measured question by question."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from recto.errors import InvalidArgument
from recto.evaluation.baseline import checks, parse_threshold
from recto.evaluation.binding import bind, lint
from recto.evaluation.measures import parse_measure
from recto.evaluation.runs import Options, _covers_nothing, run_suite, validate
from recto.evaluation.suites import Expectation, Suite, load_suite
from recto.search.retriever import Retriever
from recto.types.search import Filters
from tests.running import ROOT

HELD_OUT = load_suite(ROOT / "tests" / "evaluation" / "heldout.json")
DDS = "module-1-ros2/04-dds-and-qos"


def test_a_run_measures_every_question(retriever: Retriever) -> None:
    run = run_suite(retriever, HELD_OUT, Options(mode="dense"))
    assert len(run.answers) == len(HELD_OUT.expectations) == 100
    assert list(run.scores()) == ["Hit@1", "Hit@5", "Recall@5", "MRR", "nDCG@10", "ModuleAccuracy"]
    contract = validate(retriever, HELD_OUT)
    passed = [[answer.passed for answer in one.answers] for one in (run, contract)]
    assert passed[0] == passed[1], "one idea of passing"
    assert run.scores()["Hit@1"].mean == contract.page_hits(1)
    assert run.scores()["Hit@5"].mean == contract.page_hits(5)
    assert run.scores()["ModuleAccuracy"].mean == contract.share == run.share
    assert sum(run.ranks().values()) == 100
    assert run.ranks()["1"] == round(100 * run.scores()["Hit@1"].mean)
    assert sum(count for row in run.confusion().values() for count in row.values()) == 100
    assert sum(row.get(module, 0) for module, row in run.confusion().items()) == run.passed
    assert set(run.by_module()) == {"intro", "ros2", "simulation", "isaac", "vla"}
    assert all(len(answer.found) == run.depth == 10 for answer in run.answers)
    json.dumps(run.to_dict(), allow_nan=False)


def test_questions_keep_their_filters_and_their_order(retriever: Retriever) -> None:
    questions = [
        Expectation(f"What is topic {number}?", ("ros2",), filters=Filters(("ros2",) if number % 2 else ()))
        for number in range(80)
    ]
    run = run_suite(retriever, Suite("s", tuple(questions)))
    assert [answer.query for answer in run.answers] == [question.query for question in questions]
    assert all({hit.chunk.module for hit in answer.found} == {"ros2"} for answer in run.answers[1::2])
    assert all(answer.passed for answer in run.answers[1::2])


def test_nothing_is_judged_by_coverage_or_by_the_noise_floor(retriever: Retriever) -> None:
    pizza = Expectation("How long do I bake a pizza?", nothing=True)
    suite = Suite("s", (pizza, Expectation("What is DDS?", pages=(DDS,))))
    uncovered, answer = run_suite(retriever, suite).answers
    assert (uncovered.passed, uncovered.outcome, uncovered.measures) == (True, "passed", {})
    response = retriever.search(pizza.query, mode="dense")
    for noise, passed in ((response.hits[0].score + 0.01, True), (response.hits[0].score - 0.01, False)):
        assert _covers_nothing(replace(response, noise_floor=noise)) is passed
    assert answer.passed
    only = run_suite(retriever, Suite("s", suite.expectations[:1]), Options(mode="lexical"))
    assert only.answers[0].passed is None, "words alone do not tell whether a book covers a query"
    assert not checks(only)[0].holds, "nothing judged is nothing proved"
    with pytest.raises(InvalidArgument, match="nothing"):
        validate(retriever, suite)


def test_a_deep_measure_looks_deep(retriever: Retriever) -> None:
    run = run_suite(retriever, HELD_OUT, Options(top_k=3, measures=(parse_measure("Hit@30"),)))
    assert (run.top_k, run.depth) == (3, 30)
    assert list(run.scores()) == ["Hit@30"]


def test_thresholds() -> None:
    assert str(parse_threshold(" hit@5 >= 90% ")) == "Hit@5>=0.9"
    assert str(parse_threshold("MRR>0.75")) == "MRR>0.75"
    assert parse_threshold("MRR>=0.3").met_by(0.1 + 0.2)
    assert not parse_threshold("MRR>0.3").met_by(0.3)


@pytest.mark.parametrize(
    "expression",
    ["Hit@5", "Hit@5<=0.9", "Hit@5>=", "Hit@5>=1.5", "Hit@5>=0.9.1", ">=0.9", "Hit@5>=-1", "Hits@5>=1",
     "Hit@5>=nan"],
)  # fmt: skip
def test_what_is_not_a_threshold(expression: str) -> None:
    with pytest.raises(InvalidArgument):
        parse_threshold(expression)


def test_lint_tells_what_is_wrong_and_what_is_weak(retriever: Retriever, tmp_path: Path) -> None:
    path = tmp_path / "suite.json"
    entries = [
        {"query": "what is dds in ROS 2", "expect": {"page": DDS}},
        {"query": "Why DDS?", "expect": {"page": [DDS, "gone"]}, "drafted": True},
        {"query": "Where?", "expect": {"page": "module-1-ros2/04-dds-and-qo"}},
        {"query": "Who?", "expect": {}},
    ]
    path.write_text(json.dumps({"queries": entries}))
    checked = lint(path, retriever.open())
    assert checked["questions"] == 3
    positions = [problem.partition(": ")[0].rpartition(", ")[2] for problem in checked["problems"]]
    assert positions == ["query 4", "query 3"]
    assert DDS in checked["problems"][1]
    drafts, gone = checked["warnings"]
    assert "1 of 3" in drafts
    assert "'gone' is not in the index" in gone
    assert len(lint(path)["problems"]) == 1


GRADES = {f"{DDS}#what-is-dds": 2, DDS: 1, "intro": 0}
WITH_GRADES = Expectation("What is DDS in ROS 2?", pages=tuple(GRADES)[:2], grades=tuple(GRADES.items()))


def test_a_result_gains_the_grade_of_its_best_place(retriever: Retriever) -> None:
    (question,) = bind(Suite("graded", (WITH_GRADES,)), retriever.open())
    chunks = [chunk for chunk in retriever.open().scroll() if chunk.source.removesuffix(".md").endswith(DDS)]
    section = next(chunk for chunk in chunks if chunk.anchor == "what-is-dds")
    other = next(chunk for chunk in chunks if chunk.anchor != "what-is-dds")
    assert question.judge([section, other]).gains == (2, 1)
    assert question.judge([other, other, section]).gains == (1, 0, 2)
    assert question.judge([]).ideal == (2, 1)
