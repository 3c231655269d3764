"""Width, colors and highlighted words."""

from __future__ import annotations

import json
import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from recto.cli.render import Style, cells, cut, results, results_json, wrap
from recto.search.display import NOT_COVERED, UNCLEAR, words_to_match
from recto.search.response import coverage
from recto.testing.parts import chunk
from recto.types.search import NO_FILTERS, Hit, Outcome, SearchResponse, Timings


def test_all_forms_of_a_word_are_highlighted() -> None:
    words = words_to_match("How are robots simulated with c++?", None)
    text = "We simulate a robot; simulating robots in c++."
    shown = Style(80, color=True).highlight(text, words)
    assert re.findall(r"\x1b\[1m(.*?)\x1b\[0m", shown) == ["simulate", "robot", "simulating", "robots", "c"]
    assert re.sub(r"\x1b\[\d*m", "", shown) == text
    assert Style(80).highlight(text, words) == text


@given(st.text(), st.integers(20, 100))
def test_wrapped_lines_fit_and_lose_nothing(text: str, width: int) -> None:
    lines = list(wrap(text, width, "  "))
    assert all(cells(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


def test_wide_characters_take_two_columns() -> None:
    assert cells("ロボット") == 8
    assert list(wrap("ロボット" * 4, 20)) == ["ロボットロボットロボ", "ットロボット"]
    assert cut("ロボット", 8) == "ロボット"
    assert cells(cut("ロボット", 7)) <= 7


def test_the_note_the_marks_and_the_number_agree() -> None:
    hits = (Hit(0.9, chunk(0)), Hit(0.2, chunk(1)))
    for number in (0.0, 0.249, 0.25, 0.499, 0.5, 1.0):
        found = SearchResponse("soil", hits, NO_FILTERS, "books", Outcome.FOUND, Timings(0, 0, 0))
        response = replace(found, noise_floor=0.5, answerable=number, coverage=coverage(number))
        printed = results(response, (), Style(80), verbose=False)
        assert (NOT_COVERED in printed) == (number < 0.25)
        assert (UNCLEAR in printed) == (0.25 <= number < 0.5)
        assert printed.count(" weak  ") == (2 if number < 0.25 else 1), "the second is below the noise floor"
        data = json.loads(results_json(response, ()))
        assert (data["answerable"], data["coverage"]) == (number, response.coverage)
        assert [hit["above_noise"] for hit in data["results"]] == [True, False]
