"""Baselines and the gate: what is compared, and how often the gate is right."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from recto.errors import InvalidArgument
from recto.evaluation.baseline import checks, compare, load_baseline, make_baseline
from recto.evaluation.measures import DEFAULT_MEASURES, Judged
from recto.evaluation.runs import QueryResult, Run
from recto.testing.parts import chunk
from recto.types.search import Hit

DEPTH = 10
QUESTIONS = 200


@cache
def answer(number: int, rank: int | None) -> QueryResult:
    """A question whose one target came at a rank, or not at all."""
    gains = tuple(float(place == rank) for place in range(1, DEPTH + 1))
    judged = Judged(gains, (1.0,))
    values = {str(one): value for one in DEFAULT_MEASURES if (value := one.of(judged)) is not None}
    found = tuple(
        Hit(0.9 - place / 100, replace(chunk(0), page_url="right" if gain else f"wrong-{place}", anchor=""))
        for place, gain in enumerate(gains)
    )
    key, query, ranks = f"q{number:04}", f"question {number}", (rank,) if rank else ()
    return QueryResult(key, query, ("right",), "right", (), (), found, ranks, rank == 1, values, 1.0)


def run_of(ranks: list[int | None]) -> Run:
    answers = tuple(answer(number, rank) for number, rank in enumerate(ranks))
    return Run("s", "digest", "book", "g1", None, 5, DEPTH, 0.0, DEFAULT_MEASURES, answers, (), (), 1.0)


def lost(before: list[int | None], now: list[int | None]) -> bool:
    comparison = compare(run_of(now), make_baseline(run_of(before)))
    return any(delta.significant_drop for delta in comparison.deltas)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "line 1, column 1"),
        (b"[]", "not a baseline"),
        (b'{"format": "other"}', "not a baseline"),
        (b'{"format": "recto-baseline-1"}', "damaged: KeyError"),
        (b'{"format": "recto-baseline-1", "suite": 3}', "damaged: TypeError"),
        (b"\xff", "not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_damaged_baseline(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "b.json").write_bytes(content)
    with pytest.raises(InvalidArgument, match=words) as caught:
        load_baseline(tmp_path / "b.json")
    assert caught.value.hint


def test_what_entered_and_left_is_told() -> None:
    ((change,),) = [compare(run_of([1, 7, 2]), make_baseline(run_of([1, 2, 2]))).changes]
    assert (change.id, change.rank_before, change.rank_now) == ("q0001", 2, 7)
    assert (change.entered, change.left) == (("wrong-1",), ("right",))


def test_only_questions_of_both_runs_are_compared() -> None:
    now, before = run_of([1, 1, None, 1]), run_of([1, 1, 1])
    *same, other = before.answers
    before = replace(before, answers=(*same, replace(other, targets=("elsewhere",))))
    comparison = compare(now, make_baseline(before))
    assert (comparison.compared, comparison.only_now) == (2, ("q0003",))
    assert comparison.expected_otherwise == ("q0002",)
    assert compare(run_of([1]), make_baseline(run_of([1, 2]))).only_before == ("q0001",)
    assert not any(delta.significant_drop for delta in comparison.deltas)


def test_nothing_compared_does_not_pass() -> None:
    now = replace(run_of([1]), answers=(replace(answer(9, 1), key="other"),))
    comparison = compare(now, make_baseline(run_of([1])))
    assert comparison.compared == 0
    assert [check.holds for check in checks(now, (), comparison)][-1] is False


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
    shares = {1: 0.7, 2: 0.1, 3: 0.05, 4: 0.03, 5: 0.02, 7: 0.02, 10: 0.01, 0: 0.07}
    return [int(rank) or None for rank in numbers.choice(list(shares), questions, p=list(shares.values()))]


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
    return sum(lost(*pairs(np.random.default_rng(seed))) for seed in range(rounds)) / rounds


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
