"""The order of hybrid hits: what changed in releases counts less, pages with two good hits count more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recto.search.markdown import is_release
from recto.search.pipeline import arrange
from recto.types.search import Hit
from tests.search.test_selection import hit

OTHERS = [hit(0.5 - 0.01 * number, f"other {number}", f"other {number}") for number in range(12)]


def pages(hits: list[Hit]) -> list[str]:
    return [each.chunk.page_url for each in hits]


@pytest.mark.parametrize(
    ("heading", "expected"),
    [
        ("1.10.4", True),
        ("v0.3.0-rc.1", True),
        ("Lamp 2.0.0 (2020-12-18)", True),
        ("[1.2.0] - 2024-01-31", True),
        ("9.7.0 November 11, 2025", True),
        ("Version 1.2.3b1 / 31.1.2024", True),
        ("Upgrade from 1.2.0 to 2.0.0", False),
        ("3.2.1 Lamps and oil", False),
        ("4.2 Oil", False),
        ("Lamps", False),
    ],
)
def test_headings_of_releases(heading: str, *, expected: bool) -> None:
    assert is_release(heading) is expected


def test_what_changed_in_a_release_counts_less_unless_the_query_names_one() -> None:
    changes = hit(0.55, "The oil is kept cold.", "changes", "2.0.0 (2020-12-18)")
    hits = [changes, *OTHERS]
    assert pages(arrange(hits, "Where is the oil kept?"))[0] == "other 0"
    assert pages(arrange(hits, "What changed in v2.0.0?"))[0] == "changes"


def test_only_the_best_hit_of_a_page_gains_from_its_second_hit() -> None:
    hits = sorted([hit(0.49, "a", "oil"), hit(0.47, "b", "oil"), *OTHERS], key=lambda each: -each.score)
    assert pages(arrange(hits))[:4] == ["oil", "other 0", "other 1", "other 2"]
    far = [replace(each, score=0.1) if each.chunk.text == "b" else each for each in hits]
    assert pages(arrange(sorted(far, key=lambda each: -each.score)))[0] == "other 0"


def test_no_hits_are_arranged() -> None:
    assert arrange([]) == []
