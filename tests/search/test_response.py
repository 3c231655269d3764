"""The estimate of whether the book covers a query."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recto.search.lexical import LexicalQuery
from recto.search.pipeline import best_evidence, rank
from recto.search.response import answerable, coverage, noise_score
from recto.types.index import Calibration, Candidates, SparseVector
from recto.types.search import LEXICAL_WEIGHT

CALIBRATION = Calibration(noise_floor=0.6, auroc=1.0, off_topic=32, in_book=16, spread=0.05)


def query(known: float) -> LexicalQuery:
    return LexicalQuery(SparseVector((), ()), (), known, 0.1)


def test_similar_and_known_queries_are_covered() -> None:
    grades = {"covered": (0.8, 1.0), "unclear": (0.62, 0.95), "not covered": (0.62, 0.3)}
    for grade, (evidence, known) in grades.items():
        assert coverage(answerable(evidence, query(known), CALIBRATION)) == grade
    assert coverage(None) is None


@pytest.mark.parametrize(
    ("cosine", "lexical", "calibration"),
    [(None, query(1), CALIBRATION), (0.7, None, CALIBRATION), (0.7, query(1), None)],
)
def test_coverage_is_unknown_without_a_cosine_a_vocabulary_or_a_calibration(
    cosine: float | None, lexical: LexicalQuery | None, calibration: Calibration | None
) -> None:
    assert answerable(cosine, lexical, calibration) is None


def test_similarities_are_scaled_by_the_spread_of_the_index() -> None:
    wide = CALIBRATION._replace(noise_floor=0.3, spread=0.1)
    assert answerable(0.7, query(0.5), CALIBRATION) == answerable(0.5, query(0.5), wide)


@given(st.floats(-1, 1), st.floats(0, 1), st.floats(0, 0.5), st.floats(0, 0.3))
@settings(max_examples=50)
def test_coverage_grows_with_similarity_and_known_words(
    cosine: float, known: float, more_similar: float, more_known: float
) -> None:
    less = answerable(cosine, query(known), CALIBRATION)
    greater = answerable(cosine + more_similar, query(known + more_known), CALIBRATION)
    assert less is not None
    assert greater is not None
    assert 0 <= less <= greater <= 1


@given(
    st.lists(st.tuples(st.floats(-1, 1), st.floats(0, 1)), min_size=1, max_size=5),
    st.floats(0, 1),
    st.floats(LEXICAL_WEIGHT, 2),
)
@settings(max_examples=50)
def test_the_best_hit_of_a_covered_query_is_above_the_noise_floor(
    scores: list[tuple[float, float]], known: float, weight: float
) -> None:
    """So no query is called covered while all of its hits are called weak; a smaller weight can do that."""
    found, asked = Candidates(), query(known)._replace(weight=weight)
    for number, (cosine, lexical) in enumerate(scores):
        found.dense[number], found.lexical[number] = cosine, lexical
    (_, best), *_ = rank(found, "hybrid", weight)
    floor = noise_score(CALIBRATION.noise_floor, "hybrid", asked)
    assert floor is not None
    if coverage(answerable(best_evidence(found), asked, CALIBRATION)) == "covered":
        assert best > floor
