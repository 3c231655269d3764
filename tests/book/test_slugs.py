from __future__ import annotations

import pytest

from recto.book.slugs import Slugger, split_explicit_id


@pytest.mark.parametrize(
    ("heading", "slug"),
    [
        ("What is ROS 2?", "what-is-ros-2"),
        ("C++ & Python", "c--python"),
        ("Überblick: die Küche", "überblick-die-küche"),
        ("`ros2 topic list`", "ros2-topic-list"),
        ("a_b-c.d", "a_b-cd"),
        ("机器人 学", "机器人-学"),
        ("🤖 robots", "-robots"),
    ],
)
def test_githubs_rules(heading: str, slug: str) -> None:
    assert Slugger().slug(heading) == slug


def test_repeated_headings_are_numbered() -> None:
    slugger = Slugger()
    assert [slugger.slug(heading) for heading in ("Setup", "Setup", "Setup 1", "Setup", "setup")] == [
        "setup",
        "setup-1",
        "setup-1-1",
        "setup-2",
        "setup-3",
    ]


@pytest.mark.parametrize(
    ("source", "text", "explicit"),
    [
        ("Title {#my-id}", "Title", "my-id"),
        ("Title {/* #my-id */}", "Title", "my-id"),
        ("Title", "Title", ""),
        ("Set {x}", "Set {x}", ""),
        ("Title {#a} more", "Title {#a} more", ""),
    ],
)
def test_explicit_ids(source: str, text: str, explicit: str) -> None:
    assert split_explicit_id(source) == (text, explicit)
