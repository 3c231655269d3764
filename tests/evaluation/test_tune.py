"""Tuning: the ranking of each configuration is that of a search, and only significant gains are recommended."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from recto.contracts import QUERY_COLLECTION
from recto.errors import InvalidArgument
from recto.evaluation.measures import Measure
from recto.evaluation.runs import Options, run_suite
from recto.evaluation.suites import Expectation, Suite, load_suite
from recto.evaluation.tune import (
    DEFAULT_MEASURE,
    LEVEL,
    SearchConfiguration,
    advice,
    decide,
    run_configurations,
    tune,
    verdict,
)
from recto.protocols import Embedder
from recto.search.retriever import Retriever
from recto.stores.edge import EdgeStore
from recto.types.search import MODES
from tests.running import ROOT
from tests.shared_embedder import Counting

HELD_OUT = load_suite(ROOT / "tests" / "evaluation" / "heldout.json")
WEIGHTS = (0.0, 0.1, 0.5)


def test_scores_are_those_of_a_run_and_texts_are_embedded_once(sample_home: Path, embedder: Embedder) -> None:
    counting = Counting(embedder)
    retriever = Retriever(counting, EdgeStore(sample_home), QUERY_COLLECTION)
    questions = (*HELD_OUT.expectations[:40], Expectation("best pizza dough", nothing=True))
    found = run_configurations([retriever], Suite("s", questions), MODES, WEIGHTS, DEFAULT_MEASURE)
    labels = ["hybrid 0.25", "hybrid 0", "hybrid 0.1", "hybrid 0.5", "dense", "lexical"]
    assert [one.label for one in found.configurations] == labels
    assert len(found.keys) == 40, "a question that expects nothing has no rank"
    assert len(counting.queries) == 40, "each query is embedded once"
    for column, one in enumerate(found.configurations):
        weighted = Retriever(embedder, EdgeStore(sample_home), QUERY_COLLECTION, one.weight or 0.0)
        options = Options(measures=(DEFAULT_MEASURE,), mode=one.mode)
        run = run_suite(weighted, Suite("s", questions[:40]), options)
        values = [answer.measures["nDCG@10"] for answer in run.answers]
        assert found.scores[:, column] == pytest.approx(values), one


def test_the_same_configuration_twice_is_kept(retriever: Retriever) -> None:
    result = tune([retriever], HELD_OUT, ["hybrid"], [retriever.lexical_weight])
    assert (result.recommended, len(result.scores), result.detectable) == (None, 1, 0)
    assert advice(result) == []
    better = replace(result, recommended=SearchConfiguration("other", "dense"))
    assert verdict(better) == "Recommended: other: dense."
    assert [step.partition(":")[0] for step in advice(better)] == ["Search 'other'", "Search in dense mode"]
    weighted = replace(result, recommended=SearchConfiguration(retriever.collection, "hybrid", 0.1))
    assert advice(weighted) == ["Set RECTO_LEXICAL_WEIGHT=0.1 in the environment or in .env."]


def test_a_suite_without_a_question_for_the_measure(retriever: Retriever) -> None:
    suite = Suite("s", (Expectation("pizza", nothing=True),))
    with pytest.raises(InvalidArgument, match="No question of 's' can be measured by MRR"):
        tune([retriever], suite, MODES, WEIGHTS, Measure("MRR"))


def paired(gained: int, lost: int, count: int) -> np.ndarray:
    """Return the scores of two configurations; the second answers some questions that the first does not."""
    scores = np.full((count, 2), 0.5)
    scores[:gained] = (0.0, 1.0)
    scores[gained : gained + lost] = (1.0, 0.0)
    return scores


@pytest.mark.parametrize(
    ("gained", "lost", "count", "chosen"),
    [
        (0, 0, 100, 0),
        (12, 0, 100, 1),
        (0, 12, 100, 0),
        (20, 6, 100, 1),
        (10, 8, 100, 0),
        (4, 0, 4, 0),
        (6, 0, 100, 1),
        (6, 0, 1000, 0),
        (1, 0, 1, 0),
    ],
    ids=["equal", "gain", "loss", "net gain", "noise", "too few", "a point", "less than a point", "one"],
)
def test_only_a_significant_gain_is_chosen(gained: int, lost: int, count: int, chosen: int) -> None:
    decision = decide(paired(gained, lost, count))
    assert decision.chosen == chosen
    assert decision.p_values[0] == 1.0
    assert len(decision.gains) == count


def test_the_p_value_is_that_of_the_exact_test_for_two_configurations() -> None:
    exact = sum((1, 9, 36)) / 2**9  # McNemar: at least 7 of 9 changed questions gained
    assert decide(paired(7, 2, 50)).p_values[1] == pytest.approx(exact, abs=0.015)


def test_more_configurations_need_more_evidence() -> None:
    generator = np.random.default_rng(2)
    noise = generator.normal(0, 0.3, (200, 30))
    noise[:, 0] = 0
    few, many = decide(noise[:, :2]), decide(noise)
    assert many.p_values[1] > few.p_values[1]
    assert many.chosen == 0
    assert min(many.p_values) > LEVEL
    assert np.mean(many.gains) < noise.mean(axis=0).max(), "the best of many looks better than it is"


def test_equal_configurations_are_rarely_told_apart() -> None:
    """Among nine configurations that differ by chance, one is recommended in at most about 5 %."""
    generator = np.random.default_rng(2)
    wrong = 0
    for _ in range(200):
        shared = generator.normal(0, 0.2, (60, 1))
        scores = shared + generator.normal(0, 0.2, (60, 10))
        wrong += decide(scores).chosen > 0
    assert wrong <= 19  # 5 % of 200, and 3 standard deviations
