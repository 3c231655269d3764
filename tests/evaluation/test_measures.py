"""Measures: names read back, values agree with ir-measures, and means have confidence intervals."""

from __future__ import annotations

import math
import warnings
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recto.errors import InvalidArgument
from recto.evaluation.measures import (
    DEFAULT_MEASURES,
    Judged,
    Measure,
    estimate,
    holm,
    p_value_of_loss,
    parse_measure,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # an escape that is none, in a package that ir-measures loads
    import ir_measures

THEIR_NAMES = {"Hit": "Success", "Recall": "R", "Precision": "P", "MRR": "RR", "MAP": "AP", "nDCG": "nDCG"}
PROVIDERS = [ir_measures.pytrec_eval, ir_measures.cwl_eval, ir_measures.msmarco]
MEASURES = [
    *(Measure(kind, cutoff) for kind in THEIR_NAMES for cutoff in (1, 3, 10)),
    *(Measure(kind) for kind in ("MRR", "MAP", "nDCG")),
]
GAINS = st.lists(st.integers(0, 3), min_size=1, max_size=15)


@given(st.sampled_from([*MEASURES, *DEFAULT_MEASURES]))
def test_a_name_reads_back(measure: Measure) -> None:
    assert parse_measure(str(measure)) == measure
    assert parse_measure(f" {str(measure).upper()} ") == measure


@pytest.mark.parametrize(
    ("name", "measure"), [("P@5", "Precision@5"), ("success@1", "Hit@1"), ("AP", "MAP"), ("RR@10", "MRR@10")]
)
def test_the_names_of_others_are_known(name: str, measure: str) -> None:
    assert str(parse_measure(name)) == measure


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nDGC@10", "did you mean nDCG@10"),
        ("Hits@5", "did you mean Hit@5"),
        ("ModulAccuracy", "did you mean ModuleAccuracy"),
        ("Hit", "needs a number"),
        ("Hit@0", "1 to 1000"),
        ("Hit@9999", "1 to 1000"),
        ("Hit@99999", "no measure"),
        ("Hit@-1", "no measure"),
        ("ModuleAccuracy@3", "first result only"),
        ("", "no measure"),
        ("@5", "no measure"),
        ("Hit@5@5", "no measure"),
        ("Hit@٣", "no measure"),
    ],
)
def test_a_name_that_means_nothing(name: str, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words) as caught:
        parse_measure(name)
    assert caught.value.hint


def theirs(measure: Measure, gains: list[int], more: list[int]) -> float | None:
    """Return what a provider of ir-measures says; None where those that run here do not know the measure."""
    their = ir_measures.parse_measure(str(measure).replace(measure.kind, THEIR_NAMES[measure.kind]))
    if measure == Measure("nDCG"):
        their = ir_measures.nDCG
    qrels = [ir_measures.Qrel("q", f"d{place}", gain) for place, gain in enumerate([*gains, *more])]
    run = [ir_measures.ScoredDoc("q", f"d{place}", float(len(gains) - place)) for place in range(len(gains))]
    for provider in PROVIDERS:
        if provider is ir_measures.cwl_eval and measure.kind == "MAP" and any(more):
            continue  # it counts only the relevant results that the run holds
        if provider.is_available() and provider.supports(their):
            return float(next(iter(provider.iter_calc([their], qrels, run))).value)
    return None


@pytest.mark.parametrize("measure", MEASURES, ids=str)
@given(gains=GAINS, more=GAINS)
def test_values_agree_with_ir_measures(measure: Measure, gains: list[int], more: list[int]) -> None:
    if not any(gains + more):
        return
    expected = theirs(measure, gains, more)
    if expected is None:
        assert not ir_measures.pytrec_eval.is_available(), (
            "where the compiled judge can be had, nothing is left out"
        )
        return  # the reference below judges it here
    assert measure.of(Judged(tuple(gains), tuple(gains + more))) == pytest.approx(expected, abs=1e-6)


def reference(measure: Measure, gains: list[int], ideal: list[int]) -> float:
    """The definitions once more, by rank positions and sets instead of loops over gains."""
    depth = measure.cutoff or len(gains)
    relevant = {rank for rank in range(1, len(gains) + 1) if gains[rank - 1] > 0}
    within = sorted(rank for rank in relevant if rank <= depth)
    total = len([gain for gain in ideal if gain > 0])
    ranked = sorted(ideal, reverse=True)[: measure.cutoff or len(ideal)]
    dcg = math.fsum(gains[rank - 1] * math.log(2) / math.log(rank + 1) for rank in within)
    return {
        "Hit": 1.0 if within else 0.0,
        "Recall": len(within) / total,
        "Precision": len(within) / depth,
        "MRR": 1 / within[0] if within else 0.0,
        "MAP": math.fsum(len([other for other in within if other <= rank]) / rank for rank in within) / total,
        "nDCG": dcg
        / math.fsum(gain * math.log(2) / math.log(rank + 1) for rank, gain in enumerate(ranked, 1)),
    }[measure.kind]


@pytest.mark.parametrize("measure", MEASURES, ids=str)
@given(gains=GAINS, more=GAINS)
def test_values_agree_with_the_definitions(measure: Measure, gains: list[int], more: list[int]) -> None:
    ideal = gains + more
    if any(ideal):
        value = measure.of(Judged(tuple(gains), tuple(ideal)))
        assert value == pytest.approx(reference(measure, gains, ideal), abs=1e-12)
        assert value is not None
        assert 0 <= value <= 1 + 1e-12


def test_what_does_not_apply_is_not_measured() -> None:
    assert Measure("MRR").of(Judged((), ())) is None
    assert Measure("ModuleAccuracy").of(Judged((1,), (1,))) is None
    assert Measure("MRR").of(Judged((), (1,))) == 0, "nothing found is a result"


def test_an_interval_is_the_same_every_time_and_holds_the_mean() -> None:
    values = [0.0, 1.0, 1.0, 0.5, 1.0, 0.25, 0.0, 1.0] * 25
    first, second = estimate(values), estimate(values)
    assert first == second
    assert first is not None
    assert first.low < first.mean < first.high
    assert first.count == 200
    assert first.mean == pytest.approx(0.59375)
    assert estimate([]) is None
    assert estimate([1.0, 1.0]) is not None


def test_an_interval_is_as_wide_as_theory_says() -> None:
    found = estimate([1.0] * 80 + [0.0] * 20)
    assert found is not None
    error = math.sqrt(0.8 * 0.2 / 100)
    assert found.low == pytest.approx(0.8 - 1.96 * error, abs=0.015)
    assert found.high == pytest.approx(0.8 + 1.96 * error, abs=0.015)


@pytest.mark.long
def test_a_hundred_thousand_values_are_no_matter() -> None:
    found = estimate([number / 99_999 for number in range(100_000)])
    assert found is not None
    assert found.high - found.low == pytest.approx(2 * 1.96 * math.sqrt(1 / 12 / 100_000), rel=0.1)


def by_enumeration(deltas: list[float]) -> float:
    sums = [
        sum(sign * abs(delta) for sign, delta in zip(signs, deltas, strict=True))
        for signs in product((-1, 1), repeat=len(deltas))
    ]
    return sum(value <= sum(deltas) + 1e-9 for value in sums) / len(sums)


@given(st.lists(st.sampled_from([-1.0, -0.5, -0.25, 0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=10))
def test_the_chance_of_a_loss_is_that_of_all_signs(deltas: list[float]) -> None:
    assert p_value_of_loss(deltas) == pytest.approx(by_enumeration(deltas), abs=0.04)


@pytest.mark.parametrize(
    ("lost", "won", "p_value"), [(10, 0, 2**-10), (0, 10, 1.0), (5, 0, 2**-5), (1, 1, 0.75), (0, 0, 1.0)]
)
def test_the_chance_of_a_loss_is_mcnemars_for_hits(lost: int, won: int, p_value: float) -> None:
    assert p_value_of_loss([-1.0] * lost + [1.0] * won + [0.0] * 100) == pytest.approx(p_value)


def test_several_findings_share_the_risk() -> None:
    assert holm([0.04, 0.2], 0.05) == [False, False]
    assert holm([0.04, 0.02], 0.05) == [True, True]
    assert holm([0.03, 0.03], 0.05) == [False, False]
    assert holm([], 0.05) == []
