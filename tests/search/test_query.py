"""What no search can be asked for is refused in words, whatever its type."""

from __future__ import annotations

from typing import Any

import pytest

from recto.errors import InvalidArgument, InvalidQuery
from recto.search.query import check_queries, check_search
from recto.types import NO_FILTERS, Filters


@pytest.mark.parametrize("given", [float("nan"), 2, -1.1])
def test_a_score_is_a_cosine(given: Any) -> None:
    with pytest.raises(InvalidArgument, match="between -1 and 1"):
        check_search(5, NO_FILTERS, given)


@pytest.mark.parametrize("given", ["0.5", [], object(), True])
def test_a_score_is_a_number(given: Any) -> None:
    with pytest.raises(InvalidArgument, match="min_score must be a number"):
        check_search(5, NO_FILTERS, given)


@pytest.mark.parametrize("filters", [Filters(("\ud800",)), Filters((), "local://\udfff")])
def test_half_a_character_names_nothing(filters: Filters) -> None:
    with pytest.raises(InvalidArgument, match="must be text"):
        check_search(5, filters, None)


@pytest.mark.parametrize("given", ["one question", None, 5])
def test_several_questions_are_a_list(given: Any) -> None:
    with pytest.raises(InvalidQuery, match="list of texts"):
        check_queries(given)
    assert check_queries([" one question "]) == ["one question"]
