"""Markdown: headings, line numbers, and MDX code that is not text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recto.book.parsing.markdown import parse


@pytest.mark.parametrize(
    ("markdown", "title"),
    [
        ("---\ntitle: Stated\n---\n# Written\n", "Stated"),
        ("---\nsidebar_label: Label\n---\ntext\n", "Label"),
        ("---\nsidebar_label: Label\n---\n# Written\n", "Written"),
        ("# Written *with* `code`\n", "Written with code"),
        ("Setext\n======\n", "Setext"),
        ("text only\n", "Fallback"),
        ("---\ntitle: [broken\n---\n# Written\n", "Written"),
        ("---\ntitle: 7\n---\n", "7"),
        ("\ufeff# With a mark\r\n\r\ntext\r\n", "With a mark"),
        ("", "Fallback"),
    ],
)
def test_titles(markdown: str, title: str) -> None:
    assert parse(markdown, title="Fallback").title == title


def test_indented_code_is_text_in_mdx() -> None:
    source = "Intro.\n\n    # comment\n    run\n"
    assert [block.kind for block in parse(source).sections[0].blocks] == ["paragraph", "code"]
    assert [block.kind for block in parse("Intro.\n\n    plain\n", mdx=True).sections[0].blocks] == [
        "paragraph",
        "paragraph",
    ]


def test_text_before_the_first_heading() -> None:
    document = parse("Before.\n\n## One\n\nAfter.\n", title="Page")
    assert [(section.headings, section.anchor) for section in document.sections] == [
        (("Page",), ""),
        (("Page", "One"), "one"),
    ]


@given(st.text(alphabet=st.sampled_from("#`~:<>{}/*-|=!\n \tabT\"'[]()"), max_size=200), st.booleans())
def test_any_text_is_parsed(text: str, mdx: bool) -> None:
    document = parse(text, title="T", mdx=mdx)
    count = text.count("\n") + 1
    for section in document.sections:
        assert section.headings[0] == document.title
        for block in section.blocks:
            assert 1 <= block.first <= block.last <= count
            assert block.text.strip()
