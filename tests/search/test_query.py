"""Invalid queries and parameters are rejected with a clear error."""

from __future__ import annotations

from typing import Any

import pytest

from recto.errors import InvalidArgument, InvalidQuery
from recto.search.query import check_queries, check_search
from recto.types.search import NO_FILTERS, Filters


@pytest.mark.parametrize("value", [float("nan"), 2, -1.1])
def test_min_score_of_dense_mode_is_a_cosine(value: Any) -> None:
    with pytest.raises(InvalidArgument, match="between -1 and 1"):
        check_search(5, NO_FILTERS, value)


@pytest.mark.parametrize("value", ["0.5", [], object(), True])
def test_min_score_must_be_a_number(value: Any) -> None:
    with pytest.raises(InvalidArgument, match="min_score must be a number"):
        check_search(5, NO_FILTERS, value)


@pytest.mark.parametrize("filters", [Filters(("\ud800",)), Filters((), "local://\udfff")])
def test_filters_with_lone_surrogates_are_rejected(filters: Filters) -> None:
    with pytest.raises(InvalidArgument, match="must be text"):
        check_search(5, filters, None)


@pytest.mark.parametrize("value", ["one question", None, 5])
def test_a_batch_must_be_a_list(value: Any) -> None:
    with pytest.raises(InvalidQuery, match="list of strings"):
        check_queries(value)
    assert check_queries([" one question "]) == ["one question"]
