"""Module names and page addresses: compared the way people type them."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from recto._util.text import filter_keys, module_keys, nearest, page_key, short_name


@pytest.mark.parametrize(
    ("directory", "name"),
    [
        ("module-1-ros2", "ros2"),
        ("01-ros2", "ros2"),
        ("chapter-3-isaac-ai-brain", "isaac-ai-brain"),
        ("Module-2-Simulation", "simulation"),
        ("module_2_simulation", "simulation"),
        ("ros2-fundamentals", "ros2-fundamentals"),
        ("module-1", "module-1"),
        ("module1", "module1"),
        ("2024", "2024"),
        ("week 3 sensing", "sensing"),
    ],
)
def test_short_names(directory: str, name: str) -> None:
    assert short_name(directory) == name
    assert module_keys(directory)[0] == name
    assert directory.lower() in module_keys(directory)


@given(st.text(min_size=1).filter(str.strip))
def test_a_directory_is_always_found_by_its_own_name(directory: str) -> None:
    assert filter_keys([directory])[0] in module_keys(directory)


@pytest.mark.parametrize(
    ("typed", "meant"), [("ros", "ros2"), ("ROS2 ", "ros2"), ("simulaton", "simulation"), ("zzz", None)]
)
def test_nearest_spelling(typed: str, meant: str | None) -> None:
    assert nearest(typed, ["intro", "isaac", "ros2", "simulation", "vla"]) == meant


@settings(max_examples=50)
@given(
    st.lists(st.from_regex(r"[A-Za-z0-9_-]+", fullmatch=True), min_size=1, max_size=4),
    st.sampled_from(["", "/", ".md", ".mdx", "/#x", "#who-it-is-for"]),
)
@example(["Docs", "intro"], "")
def test_every_spelling_of_a_path_has_its_key(parts: list[str], ending: str) -> None:
    path = "/".join(parts)
    assert page_key(f"HTTPS://Example.ORG/{path}{ending}") == f"https://example.org/{path}"


@given(st.text())
def test_any_text_has_a_key(text: str) -> None:
    assert page_key(f" {text} ") == page_key(text)
