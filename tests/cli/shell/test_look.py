"""Width, colour and marked words."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recto.cli.shell.show import Look, cells, cut, wrapped
from recto.search.display import words_to_match


@pytest.mark.parametrize(
    ("question", "text", "marked"),
    [
        ("What is a node?", "Nodes and a node; nodal is not.", ["Nodes", "node"]),
        (
            "How are robots simulated?",
            "We simulate a robot; simulating robots.",
            ["simulate", "robot", "simulating", "robots"],
        ),
        ("qos policies", "A QoS policy, several policies.", ["QoS", "policy", "policies"]),
        ("bus", "A bus, two buses, business.", ["bus", "buses"]),
        ("What is a bus?", "It is what it is.", []),
        ("c++ (really)", "c++ is (really) fast", ["c", "really"]),
        ("rclpy.spin", "call rclpy.spin now", ["rclpy.spin"]),
    ],
)
def test_words_are_marked_in_their_simple_forms(question: str, text: str, marked: list[str]) -> None:
    words = words_to_match(question, None)
    shown = Look(80, colour=True).marked(text, words)
    assert re.findall(r"\x1b\[1m(.*?)\x1b\[0m", shown) == marked
    assert re.sub(r"\x1b\[\d*m", "", shown) == text
    assert Look(80).marked(text, words) == text


def test_without_colour_nothing_is_added() -> None:
    plain = Look(80)
    for style in (plain.strong, plain.faint, plain.good, plain.doubtful, plain.bad, plain.address):
        assert style("text") == "text"


@given(st.text(), st.integers(20, 100))
def test_wrapped_lines_fit_and_lose_nothing(text: str, width: int) -> None:
    lines = list(wrapped(text, width, "  "))
    assert all(cells(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


def test_wide_characters_take_two_columns() -> None:
    assert cells("ロボット") == 8
    assert list(wrapped("ロボット" * 4, 20)) == ["ロボットロボットロボ", "ットロボット"]
    assert cut("ロボット", 8) == "ロボット"
    assert cells(cut("ロボット", 7)) <= 7


@given(st.text(max_size=200))
def test_marking_changes_no_text(question: str) -> None:
    shown = Look(80, colour=True).marked(question, words_to_match(question, None))
    assert re.sub(r"\x1b\[[01]m", "", shown) == re.sub(r"\x1b\[[01]m", "", question)
