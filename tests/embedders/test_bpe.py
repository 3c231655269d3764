"""ASCII text is tokenized exactly as by the library."""

from __future__ import annotations

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
    "aaaaa",
    "x://x.y/z#a",
    "__init__()",
    "Ġ",
    "1e-5",
]


def test_the_merge_rules_are_those_of_the_pack() -> None:
    assert MERGES.read_bytes() == merges(read_tokenizer(find_pack()))


@given(st.text(st.characters(max_codepoint=127)) | st.lists(st.sampled_from(WORDS)).map("".join))
@example("")
@example(" \x1c\x1f \x00\x7f ")
@example("What is ROS 2?")
@hypothesis_settings(max_examples=100)
def test_any_text_gets_the_tokens_of_the_library_or_none(text: str) -> None:
    result, is_left = ASCII.encode(text), not text.isascii() or "<" in text or len(text) > 64
    assert result == LIBRARY.encode(text).ids or (result is None and is_left)


def test_a_book_gets_the_tokens_of_the_library() -> None:
    lines = [line for page in sample_source().pages() for line in page.text.splitlines()][::5]
    tokens = [(ASCII.encode(line), LIBRARY.encode(line).ids) for line in lines]
    assert all(mine in (None, theirs) for mine, theirs in tokens)
    assert sum(mine is not None for mine, _ in tokens) > 200


@pytest.mark.parametrize("text", ["ein Schlüssel?", "what does <mask> mean", "🤖", "a\u00a0b", "x" * 65])
def test_other_text_is_left_to_the_library(text: str) -> None:
    assert ASCII.encode(text) is None
