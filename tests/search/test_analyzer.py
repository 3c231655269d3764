"""Lexical analysis: words, identifiers and their parts, numbers, flags, stems, stop words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recto.search.analyzer import exact_term, query_words, stem, word_forms, word_spans, word_terms


def terms(text: str) -> list[str]:
    return [term for start, end in word_spans(text) for term in word_terms(text[start:end])]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The robot", ["the", "robot"]),
        ("9.81", ["9.81"]),
        ("v2.10.3", ["v2.10.3"]),
        ("--dry-run", ["--dry-run", "dry", "run"]),
        ("base_link", ["base_link", "bas", "link"]),
        ("BaseModels", ["basemodel", "bas", "model"]),
        ("ROS_DOMAIN_ID", ["ros_domain_id", "ros", "domain", "id"]),
        ("HTTPServer", ["httpserver", "http", "server"]),
        ("URLs", ["url"]),
        ("pydantic.BaseModel", ["pydantic.basemodel", "pydantic", "basemodel", "bas", "model"]),
        ("E0308", ["e0308", "0308"]),
        ("time-consuming", ["time-consuming", "tim", "consum"]),
        ("Größe", ["größe"]),
    ],
)
def test_terms(text: str, expected: list[str]) -> None:
    assert terms(text) == expected


@pytest.mark.parametrize(
    ("forms", "shared"),
    [
        (("configure", "configures", "configured", "configuring"), "configur"),
        (("make", "makes", "making"), "mak"),
        (("run", "runs", "running"), "run"),
        (("library", "libraries"), "library"),
        (("class", "classes"), "class"),
        (("status",), "status"),
        (("ros2",), "ros2"),
        (("base_links",), "base_links"),
    ],
)
def test_forms_of_a_word_share_their_stem(forms: tuple[str, ...], shared: str) -> None:
    assert {stem(form) for form in forms} == {shared}


def test_stop_words_count_only_in_quotes_or_alone() -> None:
    assert query_words("How do I use the with statement?") == ["use", "statement"]
    assert query_words('How do I use the "with" statement?') == ["use", "with", "statement"]
    assert query_words("what is it") == ["what", "is", "it"]


@given(st.text(max_size=300))
def test_any_text_can_be_analysed(text: str) -> None:
    last = 0
    for start, end in word_spans(text):
        assert last <= start < end <= len(text)
        first, *others = word_terms(text[start:end])
        assert first == stem(text[start:end].lower())
        assert all(others)
        last = end
    assert len(set(query_words(text))) == len(query_words(text))


@given(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True))
def test_identifiers_are_case_insensitive(word: str) -> None:
    assert word_terms(word)[0] == word_terms(word.lower())[0] == stem(word.lower())


def test_words_as_written_are_terms_of_their_own() -> None:
    assert word_forms("time-consuming") == ("time-consuming", "time", "consuming")
    assert [exact_term(form) for form in ("scrolling", "the", "base_link", "größe")] == [
        "=scrolling",
        "",
        "",
        "",
    ]
