"""Baselines and the gate: what is compared, and how often the gate is right."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from recto.errors import InvalidArgument, StorageError
from recto.evaluation.baseline import checks, compare, load_baseline, make_baseline, save_baseline
from recto.evaluation.measures import DEFAULT_MEASURES, Judged
from recto.evaluation.runs import QueryResult, Run, run_suite
from recto.evaluation.suites import load_suite
from recto.search.retriever import Retriever
from recto.testing.values import chunk
from recto.types.search import Hit
from tests.running import ROOT

DEPTH = 10
QUESTIONS = 200


@cache
def answer(number: int, rank: int | None) -> QueryResult:
    """A question whose one target came at a rank, or not at all."""
    gains = tuple(float(place == rank) for place in range(1, DEPTH + 1))
    judged = Judged(gains, (1.0,))
    values = {
        str(measure): value for measure in DEFAULT_MEASURES if (value := measure.of(judged)) is not None
    }
    found = tuple(
        Hit(0.9 - place / 100, replace(chunk(0), page_url="right" if gain else f"wrong-{place}", anchor=""))
        for place, gain in enumerate(gains)
    )
    return QueryResult(
        f"q{number:04}",
        f"question {number}",
        ("right",),
        "right",
        (),
        (),
        found,
        (rank,) if rank else (),
        rank == 1,
        values,
        1.0,
    )


def run_of(ranks: list[int | None]) -> Run:
    answers = tuple(answer(number, rank) for number, rank in enumerate(ranks))
    return Run("s", "digest", "book", "g1", None, 5, DEPTH, 0.0, DEFAULT_MEASURES, answers, (), (), 1.0)


def lost(before: list[int | None], now: list[int | None]) -> bool:
    comparison = compare(run_of(now), make_baseline(run_of(before)))
    return any(delta.significant_drop for delta in comparison.deltas)


def test_a_baseline_reads_back(retriever: Retriever, tmp_path: Path) -> None:
    run = run_suite(retriever, load_suite(ROOT / "tests" / "evaluation" / "heldout.json"))
    path = tmp_path / "expected_results.json"
    save_baseline(path, make_baseline(run))
    text = path.read_text("utf-8")
    assert load_baseline(path) == make_baseline(run)
    save_baseline(path, load_baseline(path))
    assert path.read_text("utf-8") == text, "the same answers give the same bytes"
    data = json.loads(text)
    assert [entry["id"] for entry in data["queries"]] == sorted(entry["id"] for entry in data["queries"])
    assert all(len(entry["found"]) == 5 for entry in data["queries"])
    assert max(map(len, text.split("\n"))) < 400
    comparison = compare(run, load_baseline(path))
    assert (comparison.changes, comparison.compared) == ((), 100)
    assert comparison.same_suite
    assert {delta.delta.mean for delta in comparison.deltas} == {0.0}
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "damaged"),
        (b"[]", "not a baseline"),
        (b'{"format": "other"}', "not a baseline"),
        (b'{"format": "recto-baseline-1"}', "damaged: KeyError"),
        (b'{"format": "recto-baseline-1", "suite": 3}', "damaged: TypeError"),
        (b"\xff", "damaged"),
        (b"[" * 100_000, "damaged"),
    ],
)
def test_a_damaged_baseline(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "b.json").write_bytes(content)
    with pytest.raises(InvalidArgument, match=words) as caught:
        load_baseline(tmp_path / "b.json")
    assert "--update-baseline" in caught.value.hint


def test_a_baseline_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.json", tmp_path):
        with pytest.raises(InvalidArgument, match="cannot be read"):
            load_baseline(path)
    with pytest.raises(StorageError, match="cannot be written"):
        save_baseline(tmp_path / "no" / "such" / "b.json", make_baseline(run_of([1])))


def test_what_entered_and_left_is_told() -> None:
    ((change,),) = [compare(run_of([1, 7, 2]), make_baseline(run_of([1, 2, 2]))).changes]
    assert (change.key, change.rank_before, change.rank_now) == ("q0001", 2, 7)
    assert (change.entered, change.left) == (("wrong-1",), ("right",))


def test_only_questions_of_both_runs_are_compared() -> None:
    now, before = run_of([1, 1, None, 1]), run_of([1, 1, 1])
    before = replace(
        before, answers=(*before.answers[:2], replace(before.answers[2], targets=("elsewhere",)))
    )
    comparison = compare(now, make_baseline(before))
    assert (comparison.compared, comparison.only_now, comparison.expected_otherwise) == (
        2,
        ("q0003",),
        ("q0002",),
    )
    assert compare(run_of([1]), make_baseline(run_of([1, 2]))).only_before == ("q0001",)
    assert not any(delta.significant_drop for delta in comparison.deltas)


def test_nothing_compared_does_not_pass() -> None:
    now = replace(run_of([1]), answers=(replace(answer(9, 1), key="other"),))
    comparison = compare(now, make_baseline(run_of([1])))
    assert comparison.compared == 0
    assert [check.holds for check in checks(now, (), comparison)][-1] is False


def test_runs_of_other_depths_are_not_compared() -> None:
    with pytest.raises(InvalidArgument, match="--top-k 3"):
        compare(replace(run_of([1]), top_k=3), make_baseline(run_of([1])))


def test_a_loss_that_nobody_would_notice_does_not_fail() -> None:
    before: list[int | None] = [1] * 2000
    now: list[int | None] = [None] * 12 + [1] * 1988
    comparison = compare(run_of(now), make_baseline(run_of(before)))
    assert max(delta.p_value for delta in comparison.deltas if delta.gated) < 0.001
    assert not any(delta.significant_drop for delta in comparison.deltas), "0.6 points"


def test_a_loss_names_its_measure() -> None:
    comparison = compare(run_of([None] * 20 + [1] * 80), make_baseline(run_of([1] * 100)))
    assert [check.name for check in checks(run_of([1]), (), comparison) if not check.holds] == [
        "no loss of Hit@5",
        "no loss of MRR",
    ]
    assert json.loads(json.dumps(comparison.to_dict()))["measures"]["MRR"]["significant_loss"] is True


Ranks = list[int | None]


def suite_of(numbers: np.random.Generator, questions: int = QUESTIONS) -> Ranks:
    """Ranks as a good book index gives them: mostly first, some a little later, a few not at all."""
    return [
        int(rank) if rank else None
        for rank in numbers.choice(
            [1, 2, 3, 4, 5, 7, 10, 0], questions, p=[0.7, 0.1, 0.05, 0.03, 0.02, 0.02, 0.01, 0.07]
        )
    ]


def swapped(numbers: np.random.Generator, ranks: Ranks, share: float) -> tuple[Ranks, Ranks]:
    """Two runs of equal quality: in some questions the one or, as likely, the other is a fresh draw."""
    before, now = list(ranks), list(ranks)
    for number, fresh in enumerate(suite_of(numbers, len(ranks))):
        if numbers.random() < share:
            (before if numbers.random() < 0.5 else now)[number] = fresh
    return before, now


def flipped(numbers: np.random.Generator, ranks: Ranks, down: float, up: float) -> tuple[Ranks, Ranks]:
    """A run that loses some questions that came first before, and wins others that did not come at all."""
    before, now = list(ranks), list(ranks)
    for number, draw in enumerate(numbers.random(len(ranks))):
        if draw < down:
            before[number], now[number] = 1, None
        elif draw < down + up:
            before[number], now[number] = None, 1
    return before, now


def frequency(pairs: Callable[[np.random.Generator], tuple[Ranks, Ranks]], rounds: int = 60) -> float:
    found = 0
    for seed in range(rounds):
        before, now = pairs(np.random.default_rng(seed))
        found += lost(before, now)
    return found / rounds


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.05, 1.0])
def test_equal_runs_fail_at_most_in_one_of_twenty(share: float) -> None:
    assert frequency(lambda numbers: swapped(numbers, suite_of(numbers), share)) <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize(
    ("down", "up", "least", "most"),
    [(0.075, 0.025, 0.5, 0.9), (0.125, 0.025, 0.9, 1), (0.0, 0.05, 0, 0)],
    ids=["five points in noise", "ten points in noise", "a gain"],
)
def test_how_often_a_loss_is_caught(down: float, up: float, least: float, most: float) -> None:
    assert least <= frequency(lambda numbers: flipped(numbers, suite_of(numbers), down, up)) <= most
