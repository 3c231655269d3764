import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.measures import overlap, shared, union

ranges = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 60)).map(lambda pair: (min(pair), max(pair) + 1)), max_size=6
)


def test_overlap_by_hand() -> None:
    overlapping = overlap([(0, 10), (20, 30)], [(5, 15)])
    assert (overlapping.recall, overlapping.precision, overlapping.iou) == pytest.approx((0.5, 0.25, 0.2))


def test_what_is_retrieved_twice_must_be_read_twice() -> None:
    once, twice = overlap([(0, 10)], [(0, 10)]), overlap([(0, 10), (0, 10)], [(0, 10)])
    assert (once.recall, once.precision, once.iou) == (1, 1, 1)
    assert (twice.recall, twice.precision, twice.iou) == (1, 0.5, 0.5)


@given(ranges, ranges)
def test_shared_counts_characters(some: list[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    def characters(parts: list[tuple[int, int]]) -> set[int]:
        return {place for start, end in parts for place in range(start, end)}

    assert shared(some, others) == len(characters(some) & characters(others))
    assert characters(union(some)) == characters(some)
