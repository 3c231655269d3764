"""ASCII text is tokenized exactly as by the library."""

from __future__ import annotations

import string

import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from recto.api import sample_source
from recto.embedders.granite.bpe import AsciiTokenizer
from recto.embedders.granite.embedder import MERGES
from recto.embedders.granite.weights import find_pack, read_tokenizer
from recto.embedders.onnx import new_tokenizer
from scripts.make_merges import merges

LIBRARY = new_tokenizer(read_tokenizer(find_pack()))
ASCII = AsciiTokenizer(MERGES)
WORDS = [
    "robot's",
    "I'll",
    "ROS",
    " 2",
    "2.0",
    "''ve",
    "  ",
    "\t\n",
    "don't",
    "aaaaaa",
    "http://x.y/z#a",
    "__init__()",
    "the",
    "Ġ",
    "1e-5",
]


def test_the_merge_rules_are_those_of_the_pack() -> None:
    assert MERGES.read_bytes() == merges(read_tokenizer(find_pack()))


@given(
    st.text(st.characters(max_codepoint=127))
    | st.lists(st.sampled_from(WORDS)).map("".join)
    | st.text(string.ascii_lowercase)
)
@example("")
@example(" \x1c\x1f \x00\x7f ")
@example("What is ROS 2?")
@hypothesis_settings(max_examples=500, deadline=None)
def test_any_text_gets_the_tokens_of_the_library_or_none(text: str) -> None:
    result = ASCII.encode(text)
    assert (
        result == LIBRARY.encode(text).ids
        if result is not None
        else not text.isascii() or "<" in text or len(text) > 64
    )


def test_a_book_gets_the_tokens_of_the_library() -> None:
    source = sample_source()
    for page in source.pages():
        for line in page.text.splitlines():
            assert ASCII.encode(line) in (None, LIBRARY.encode(line).ids)


@pytest.mark.parametrize(
    "text",
    ["Was ist ein Schlüssel?", "what does <mask> mean", "</s>", "🤖", "a\u00a0b", "x" * 65, "ab" * 900],
)
def test_other_text_is_left_to_the_library(text: str) -> None:
    assert ASCII.encode(text) is None
