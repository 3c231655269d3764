"""Snippets: the words of a text that match a query, and the part of the text that is shown."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recto.search.display import ELLIPSIS, SNIPPET, find_matches, make_snippet, matched_words, words_to_match
from recto.search.lexical import QueryWord
from recto.search.markdown import plain_text

FILLER = "Old gardeners note in a diary what they did each week and how much they picked. "


def words(query: str) -> tuple[QueryWord, ...]:
    return words_to_match(query, None)


def marked(text: str, query: str) -> list[str]:
    return [text[match.start : match.end] for match in find_matches(text, words(query))]


@pytest.mark.parametrize(
    ("text", "query", "expected"),
    [
        (
            "Two nodes publish; one Node was publishing, a knot.",
            "publish node",
            "nodes publish Node publishing",
        ),
        ("Set `base_link` first.", "link", "base_link"),
        ("What is the soil?", "what is the soil", "soil"),
        ("Soil and air", "", ""),
    ],
    ids=["other forms", "a part of an identifier", "stop words", "no words"],
)
def test_words_that_match(text: str, query: str, expected: str) -> None:
    assert marked(text, query) == expected.split()


def test_matched_words_are_listed_once_as_they_are_written_first() -> None:
    assert matched_words("Nodes talk to nodes; a node to a topic, then nodes.", words("node topic")) == (
        "Nodes",
        "node",
        "topic",
    )


def test_the_snippet_shows_the_match_wherever_it_is() -> None:
    text = FILLER * 10 + "Worms keep the soil loose. " + FILLER * 10
    snippet = make_snippet(text, words("worms soil"))
    assert "Worms keep the soil loose." in snippet.text
    assert snippet.text.startswith(ELLIPSIS)
    assert snippet.text.endswith(ELLIPSIS)
    assert [snippet.text[start:end] for start, end in snippet.spans] == ["Worms", "soil"]
    assert len(snippet.text) <= SNIPPET + 2


def test_rare_words_and_several_words_are_preferred() -> None:
    common, rare = QueryWord("soil", 1.0, ("soil",)), QueryWord("marl", 5.0, ("marl",))
    text = "Soil, soil and soil. " + FILLER * 5 + "Marl is heavy. " + FILLER * 5
    assert "Marl is heavy." in make_snippet(text, (common, rare)).text
    text = "Worms. " + FILLER * 5 + "Worms live in soil. " + FILLER * 5
    assert "Worms live in soil." in make_snippet(text, words("worms soil")).text
    nothing = make_snippet(FILLER * 10, words("pizza"))
    assert nothing.text.startswith("Old gardeners note")
    assert (nothing.text[-1], nothing.spans) == (ELLIPSIS, ())


TABLE = "| Aspect | ROS 1 |\n| --- | :---: |\n| Name | Central |\n\n```python title=x\nrun()\n```\n\n## Next"
TIP = 'Wear gloves.\n\n:::tip[Why this matters]\n\nIt burns.\n\n:::\n\n!!! note "In short"\n    Be careful.'


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (TABLE, "Aspect ROS 1 Name Central run() Next"),
        (TIP, "Wear gloves. Why this matters: It burns. In short: Be careful."),
    ],
)
def test_markdown_syntax_is_left_out(text: str, shown: str) -> None:
    assert make_snippet(text, ()).text == shown


def test_punctuation_around_a_match_is_not_cut() -> None:
    text = FILLER * 3 + "(`rclcpp::Node`), " + FILLER * 3
    snippet = make_snippet(text, words("node"), 12)
    assert "(rclcpp::Node)," in snippet.text
    assert [snippet.text[start:end] for start, end in snippet.spans] == ["Node"]


TEXTS = st.text(st.sampled_from("ab cé_.(\n\t9漢"), max_size=400)


@given(TEXTS, TEXTS, st.integers(5, 60))
@settings(max_examples=50)
def test_a_snippet_is_made_of_words_of_the_text(text: str, query: str, length: int) -> None:
    ends = [0, *(place for match in find_matches(text, words(query)) for place in match[:2]), len(text)]
    assert ends == sorted(ends)
    snippet = make_snippet(text, words(query), length)
    shown = " ".join(plain_text(text).split())
    own = shown.split()
    for word in snippet.text.removeprefix(ELLIPSIS).removesuffix(ELLIPSIS).split():
        assert any(word in other for other in own), word
    for start, end in snippet.spans:
        assert 0 <= start < end <= len(snippet.text)
        assert find_matches(snippet.text[start:end], words(query))
    longest = max((end - start for start, end in snippet.spans), default=0)
    assert len(snippet.text) <= max(2 * length, longest) + 2
    assert bool(snippet.spans) == bool(find_matches(shown, words(query)))
