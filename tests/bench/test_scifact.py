"""What a form of the model costs: an exact ranking, judged claim by claim."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bench.scifact import lexical_scores, ndcg
from recto.search.lexical import SINGLE_WORD_WEIGHT
from recto.types.search import LEXICAL_WEIGHT


def test_each_claim_is_judged_by_the_order_of_all_abstracts() -> None:
    ids = [f"p{number}" for number in range(12)]
    scores = np.array([np.arange(12, 0, -1), np.arange(12)], np.float32)  # p0 first, p11 first
    first, second, missed = {"p0"}, {"p0", "p1"}, {"p1", "p0"}
    assert ndcg(scores[:1], ids, [first]) == [1.0]
    assert ndcg(scores[:1], ids, [{"p1"}]) == pytest.approx([1 / math.log2(3)])
    assert ndcg(scores, ids, [second, missed]) == pytest.approx([1.0, 0.0])


def test_lexical_scores_are_shares_of_the_best() -> None:
    scores, weights = lexical_scores(
        ["the red fox", "a red dog", "a cat"], ["which of these foxes is really red", "dog"]
    )
    assert scores[0].argmax() == 0
    assert scores.max(axis=1) == pytest.approx([1.0, 1.0])
    assert 0 < scores[0, 1] < 1
    assert (scores[0, 2], list(weights[:, 0])) == (0.0, [LEXICAL_WEIGHT, SINGLE_WORD_WEIGHT])
