"""The words of a book as elements: what an author writes is what a reader sees."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.desk import Desk

_RENDER = """
async (text) => {
    const { blocks, render } = await import("/static/markdown.js");
    const box = document.createElement("div");
    box.append(...render(blocks(text)));
    const outline = (node) => node.nodeType === 3 ? node.data : [node.localName, ...[...node.childNodes].map(outline)];
    return [...box.childNodes].map(outline);
}
"""
CASES: dict[str, tuple[str, list[Any]]] = {
    "paragraphs": ("One\nline.\n\nTwo.", [["p", "One\nline."], ["p", "Two."]]),
    "emphasis": (
        "*a* **b** _c_ snake_case_name ***d*** ~~e~~",
        [
            [
                "p",
                ["em", "a"],
                " ",
                ["strong", "b"],
                " ",
                ["em", "c"],
                " snake_case_name ",
                ["strong", ["em", "d"]],
                " ",
                ["del", "e"],
            ]
        ],
    ),
    "stars that multiply": ("2 * 3 * 4 and a**b", [["p", "2 * 3 * 4 and a**b"]]),
    "code": ("`a*b*` and ``x ` y``", [["p", ["code", "a*b*"], " and ", ["code", "x ` y"]]]),
    "escapes": (r"\*not\* \<b\>", [["p", "*not* <b>"]]),
    "markup": ("a <b>c</b> &lt;", [["p", "a <b>c</b> &lt;"]]),
    "links": (
        "[web](https://a.example/b_(c)) <https://d.example> https://e.example/f.",
        [["p", ["a", "web"], " ", ["a", "https://d.example"], " ", ["a", "https://e.example/f"], "."]],
    ),
    "links elsewhere": (
        "[file](./x.md) [bad](javascript:alert(1))",
        [["p", ["span", "file"], " ", ["span", "bad"]]],
    ),
    "picture": ("![a dog](d.png)", [["p", ["span", ["span", "Picture: a dog"]]]]),
    "lists": (
        "- a\n  more\n- b\n  1. c\n  2. d\n\n- e",
        [["ul", ["li", "a\nmore"], ["li", "b", ["ol", ["li", "c"], ["li", "d"]]], ["li", "e"]]],
    ),
    "list of paragraphs": ("1. a\n\n   b\n2. c", [["ol", ["li", "a", ["p", "b"]], ["li", "c"]]]),
    "list after text": (
        "Text:\n- a\n- b\n\nEnd.",
        [["p", "Text:"], ["ul", ["li", "a"], ["li", "b"]], ["p", "End."]],
    ),
    "fence": (
        '```py title="x.py"\na = [1]  # <b>\n\n- b\n```\nafter',
        [["figure", ["figcaption", "x.py"], ["pre", ["code", "a = [1]  # <b>\n\n- b"]]], ["p", "after"]],
    ),
    "fence without end": ("~~~\na", [["figure", ["pre", ["code", "a"]]]]),
    "fence in a list": (
        "- a\n\n  ```\n  b\n  ```\n- c",
        [["ul", ["li", "a", ["figure", ["pre", ["code", "b"]]]], ["li", "c"]]],
    ),
    "table": (
        "| a | b |\n|---|:-:|\n| `x \\| y` | 2 |\n| 3 |\n\nend",
        [
            [
                "div",
                [
                    "table",
                    ["thead", ["tr", ["th", "a"], ["th", "b"]]],
                    ["tbody", ["tr", ["td", ["code", "x | y"]], ["td", "2"]], ["tr", ["td", "3"], ["td"]]],
                ],
            ],
            ["p", "end"],
        ],
    ),
    "quote": ("> a\n> - b\n\nc", [["blockquote", ["p", "a"], ["ul", ["li", "b"]]], ["p", "c"]]),
    "admonition": (
        ":::tip[Well]\n\nDo **it**.\n\n:::\nafter",
        [["div", ["p", "Well"], ["p", "Do ", ["strong", "it"], "."]], ["p", "after"]],
    ),
    "headings and rules": (
        "## A `b` {#x}\ntext\n\n---\n",
        [["p", "A ", ["code", "b"]], ["p", "text"], ["hr"]],
    ),
}


@pytest.fixture
def render(desk: Desk) -> Any:
    desk.open()
    return lambda text: desk.page.evaluate(_RENDER, text)


def test_what_is_written_is_what_is_seen(render: Any) -> None:
    for name, (text, seen) in CASES.items():
        assert render(text) == seen, name


def test_no_text_is_too_much(render: Any) -> None:
    """What would cost a careless reader minutes, or its stack, is read at once."""
    for text in (
        "[" * 20_000,
        "*" * 20_000,
        "`" * 20_000,
        "> " * 5_000 + "a",
        "- " * 5_000 + "a",
        "|" * 20_000,
        "_a" * 10_000,
        "![" * 10_000,
        "<" * 20_000,
        "**a" * 7_000,
    ):
        assert render(text) != []
