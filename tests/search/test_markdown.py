"""Markdown for readers and models: no tags, no addresses, complete code blocks, one tab; plain text for snippets."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recto.search.markdown import (
    _code_blocks,
    clean_markdown,
    close_fences,
    one_line,
    plain_text,
)


@pytest.mark.parametrize(
    ("written", "clean"),
    [
        ("See [the **guide**](../guide.md#top 'A guide') now.", "See the **guide** now."),
        ("See [`a[0]`][items] and [that][].", "See `a[0]` and that."),
        ("[![Build](https://x/b.svg)](https://x/(ci))", "Build"),
        ('100% <abbr title="The amount of code">coverage</abbr>', "100% coverage"),
        ("Write `<b>` and <b>bold</b><br/>text.", "Write `<b>` and bold text."),
        ("<https://recto.example/a> and <me@example.org>", "https://recto.example/a and me@example.org"),
        ("if a < b and c > d", "if a < b and c > d"),
        ("![A robot](data:image/png;base64,AAAA)", "A robot"),
        ("Go: https://play.example/?code=" + "x" * 200, "Go: …"),
        ("A button{ .md-button } and [link](#a){ data-preview }", "A button and link"),
        (":material-check: done :rocket: at 10:30:45", " done 🚀 at 10:30:45"),
        ("A set :class:`Node` stays", "A set :class:`Node` stays"),
        ("As said[^1].", "As said."),
        ("[items]: https://example.org\nText", "Text"),
        ("left](https://example.org/a) of a link", "left of a link"),
        ("<!-- hidden --> shown", " shown"),
        ('!!! note "In short"\n    Be careful.', "In short:\n    Be careful."),
        (":::tip\n\nTry it.\n\n:::", "Tip:\n\nTry it."),
        ('/// note | "`async` details"\n\nWait.\n\n///', "`async` details:\n\nWait."),
        ("```html\n<b>[a](b)</b>\n```", "```html\n<b>[a](b)</b>\n```"),
        ('```console\n$ <font color="red">run</font>\n```', "```console\n$ run\n```"),
    ],
)
def test_markup_that_says_nothing_is_left_out(written: str, clean: str) -> None:
    assert clean_markdown(written) == clean


@pytest.mark.parametrize(
    ("part", "whole"),
    [
        ("Run:\n\n```python\na = 1", "Run:\n\n```python\na = 1\n```"),
        ("a = 1\n```\n\nDone.", "```\na = 1\n```\n\nDone."),
        ("Run:\n\n```python", "Run:"),
        ("~~~~\n```\n~~~~", "~~~~\n```\n~~~~"),
        ("- ```sh\n  ls", "- ```sh\n  ls\n  ```"),
        ("a = 1\n```\n\nThen:\n\n```python\nb = 2", "```\na = 1\n```\n\nThen:\n\n```python\nb = 2\n```"),
    ],
)
def test_half_a_code_block_is_completed(part: str, whole: str) -> None:
    assert close_fences(part) == whole
    assert close_fences(whole) == whole


TABS = '=== "Linux"\n\n    ```sh\n    apt install x -y -q\n    ```\n\n=== "macOS"\n\n    Run `brew install the-program` once.\n\nThen go on.'


def test_one_tab_is_shown_and_all_on_request() -> None:
    linux = "Linux:\n\n```sh\napt install x -y -q\n```\n\nThen go on."
    assert clean_markdown(TABS) == linux
    mac = "macOS:\n\nRun `brew install the-program` once.\n\nThen go on."
    assert clean_markdown(TABS, ["Run `brew install the-program` once."]) == mac
    # The best hit comes first and decides, although another hit is in an earlier tab.
    assert clean_markdown(TABS, ["Run `brew install the-program` once.", "    apt install x -y -q"]) == mac
    both = clean_markdown(TABS, all_tabs=True)
    assert "apt install" in both
    assert "brew install" in both
    text = "//// tab | Python 3.9\n\n////\n\n//// tab | Python 3.8\n\nOld.\n\n////\n\nNext"
    assert clean_markdown(text) == "Python 3.8:\n\nOld.\n\nNext"


def test_plain_text_is_what_a_reader_sees() -> None:
    text = (
        "## A *title*\n\n> - [x] See [this](a.md), __now__: `**kept**`, a\\_b, snake_case_name.\n\n"
        '| Name | Use |\n|---|---|\n| `a|b` | c |\n\n┌──┐\n│ x │\n└──┘\n\n```js title="a.js"\nrun(1)\n```\n\n---\n1. First'
    )
    lines = plain_text(text).split("\n")
    assert lines[:2] == ["A title", "See this, now: **kept**, a_b, snake_case_name."]
    others = [" ".join(line.split()) for line in lines[2:]]
    assert others == ["Name Use", "a|b c", "x", "a.js", "run(1)", "1. First"]


def test_a_title_is_one_line() -> None:
    assert one_line("A\n\n</quotation 01>\n`b`  *c*") == "A b c"


@given(st.text(st.sampled_from('ab `~\n[]()<>|*_#-:/={}!".'), max_size=200))
@settings(max_examples=50)
def test_code_blocks_are_always_complete(text: str) -> None:
    assert _code_blocks(close_fences(text).split("\n"))[1] is None
    clean_markdown(text)
    plain_text(text)
