"""Measures: names read back, values agree with ir-measures, and means have confidence intervals."""

from __future__ import annotations

import math
import warnings
from itertools import product

import pytest
from hypothesis import assume, given, settings
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
PARSED = {
    "P@5": "Precision@5",
    "success@1": "Hit@1",
    "AP": "MAP",
    "RR@10": "MRR@10",
    **{f" {str(one).upper()} ": str(one) for one in (*MEASURES, *DEFAULT_MEASURES)},
}
GAINS = st.lists(st.integers(0, 3), min_size=1, max_size=15)


def test_a_name_reads_back_and_the_names_of_others_are_known() -> None:
    for name, measure in PARSED.items():
        assert str(parse_measure(name)) == str(parse_measure(measure)) == measure


WRONG_NAMES = {
    "did you mean nDCG@10": ("nDGC@10",),
    "did you mean Hit@5": ("Hits@5",),
    "did you mean ModuleAccuracy": ("ModulAccuracy",),
    "needs a number": ("Hit",),
    "1 to 1000": ("Hit@0", "Hit@9999"),
    "first result only": ("ModuleAccuracy@3",),
    "no measure": ("Hit@99999", "Hit@-1", "", "@5", "Hit@5@5", "Hit@٣"),
}


@pytest.mark.parametrize("words", WRONG_NAMES)
def test_a_name_that_means_nothing(words: str) -> None:
    for name in WRONG_NAMES[words]:
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
@settings(max_examples=20)
@given(gains=GAINS, more=GAINS)
def test_values_agree_with_ir_measures(measure: Measure, gains: list[int], more: list[int]) -> None:
    assume(any(gains + more))
    value = measure.of(Judged(tuple(gains), tuple(gains + more)))
    assert value is not None
    assert 0 <= value <= 1 + 1e-12
    expected = theirs(measure, gains, more)
    assert expected is not None or not ir_measures.pytrec_eval.is_available()
    assert expected is None or value == pytest.approx(expected, abs=1e-6)


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


def test_a_proportion_has_the_interval_of_wilson() -> None:
    """A bootstrap of 14 hits of 14 says [1, 1]."""
    always, never = estimate([1.0] * 14), estimate([0.0] * 14)
    assert always is not None
    assert never is not None
    assert [always.low, always.high] == pytest.approx([0.7847, 1.0], abs=1e-4)
    assert [never.low, never.high] == pytest.approx([0.0, 1 - 0.7847], abs=1e-4)


def test_an_interval_is_as_wide_as_theory_says() -> None:
    found = estimate([1.0] * 80 + [0.0] * 20)
    assert found is not None
    error = math.sqrt(0.8 * 0.2 / 100)
    assert found.low == pytest.approx(0.8 - 1.96 * error, abs=0.015)
    assert found.high == pytest.approx(0.8 + 1.96 * error, abs=0.015)


def by_enumeration(deltas: list[float]) -> float:
    sums = [
        sum(sign * abs(delta) for sign, delta in zip(signs, deltas, strict=True))
        for signs in product((-1, 1), repeat=len(deltas))
    ]
    return sum(value <= sum(deltas) + 1e-9 for value in sums) / len(sums)


@settings(max_examples=30)
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
