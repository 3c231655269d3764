"""What is shown of a text: snippets and their words, and Markdown without tags, addresses and half code blocks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recto.book.parsing import read
from recto.search.display import ELLIPSIS, SNIPPET, find_matches, make_snippet, matched_words, words_to_match
from recto.search.lexical import QueryWord
from recto.search.markdown import (
    _code_blocks,
    clean_markdown,
    close_fences,
    is_link_list,
    one_line,
    plain_text,
)
from recto.types.book import Page

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
    text = "Nodes talk to nodes; a node to a topic, then nodes."
    assert matched_words(text, words("node topic")) == ("Nodes", "node", "topic")


def test_the_snippet_shows_the_match_wherever_it_is() -> None:
    text = FILLER * 10 + "Worms keep the soil loose. " + FILLER * 10
    snippet = make_snippet(text, words("worms soil"))
    assert "Worms keep the soil loose." in snippet.text
    assert snippet.text.startswith(ELLIPSIS)
    assert snippet.text.endswith(ELLIPSIS)
    assert [snippet.text[start:end] for start, end in snippet.spans] == ["Worms", "soil"]
    assert len(snippet.text) <= SNIPPET + 2


def test_a_third_of_the_free_space_is_before_the_match() -> None:
    text = "a " * 500 + "worms" + " a" * 500
    (span,) = make_snippet(text, words("worms")).spans
    assert 0.33 < span[0] / (SNIPPET - len("worms")) < 0.37


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
        ("[a]: <b c> 'Its \"title\"' \n[b]: #c (d)\nText", "Text"),
        ("One\n[kinds of sites]: Project sites and more.", "One\n[kinds of sites]: Project sites and more."),
        ("left](https://example.org/a) of a link", "left of a link"),
        ("<!-- hidden --> shown", " shown"),
        ('!!! note "In short"\n    Be careful.', "In short:\n    Be careful."),
        ('!!! info inline end "In short"\n    Be careful.', "In short:\n    Be careful."),
        ("??? note annotate\n    Be careful.", "Note:\n    Be careful."),
        (":::tip\n\nTry it.\n\n:::", "Tip:\n\nTry it."),
        ('/// note | "`async` details"\n\nWait.\n\n///', "`async` details:\n\nWait."),
        ("```html\n<b>[a](b)</b>\n```", "```html\n<b>[a](b)</b>\n```"),
        ('```console\n$ <font color="red">run</font>\n```', "```console\n$ run\n```"),
    ],
)
def test_markup_that_says_nothing_is_left_out(written: str, clean: str) -> None:
    assert clean_markdown(written) == clean


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("### See also:\n\n[`From::from`][from] and [`?`][q]\n\n[from]: https://example.org/from", True),
        ("* [Setup](setup.md)\n* [Pages](pages/index.md) and how\n* https://example.org/further", True),
        (
            "More is on [the page about settings](settings.md), which lists all of them with their defaults.",
            False,
        ),
        ("```md\n[a link](a.md)\n```\n\nA link has a text and an address.", False),
        ("![A large picture of a robot](robot.png)", False),
    ],
)
def test_lists_of_links(text: str, expected: bool) -> None:
    assert is_link_list(text) is expected


RST = "Lights\n======\n\nSee also\n--------\n\n* :ref:`wicks` and :doc:`oil`\n* `Waves <https://example.org/>`_\n"
SEE_ALSO = "Lights\n======\n\n.. seealso::\n\n   * :doc:`oil`\n   * :ref:`wicks`\n"
ADOC = "= Lights\n\n== Further reading\n\n* xref:oil.adoc[Oil]\n* https://example.org/[Waves]\n"
PROSE = (
    "= Lights\n\n== Further information\n\n* " + "The oil of a lamp is kept in a tank below it. " * 4 + "\n"
)


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [(RST, "rst", True), (SEE_ALSO, "rst", True), (ADOC, "asciidoc", True), (PROSE, "asciidoc", False)],
)
def test_lists_of_links_without_marks(text: str, name: str, expected: bool) -> None:
    (section,) = read(Page("a", "", "", "", (), text, "", format=name)).sections
    assert is_link_list("\n\n".join(block.text for block in section.blocks), section.headings) is expected


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


def test_names_with_underscores_are_kept() -> None:
    assert plain_text(
        "A **class** has __init__ and `__call__`, see super().__init__() in __init__.py: __Note__"
    ) == ("A class has __init__ and __call__, see super().__init__() in __init__.py: Note")


def test_emphasis_may_end_in_a_word() -> None:
    assert plain_text("**S**poofing, ***x*** **_y_** (**z**)") == "Spoofing, x y (z)"
    for text in ("*args and **kwargs", "**kwargs and **options", "x**2 + y**2"):
        assert plain_text(text) == text


def test_plain_text_is_what_a_reader_sees() -> None:
    text = (
        "## A *title*\n\n> - [x] See [this](a.md), __now__: `**kept**`, a\\_b, snake_case_name.\n\n"
        '| Name | Use |\n|---|---|\n| `a|b` | c |\n\n┌──┐\n│ x │\n└──┘\n\n```js title="a.js"\nrun(1)\n```\n\n---\n1. First'
    )
    lines = plain_text(text).split("\n")
    assert lines[:2] == ["A title", "See this, now: **kept**, a_b, snake_case_name."]
    others = [" ".join(line.split()) for line in lines[2:]]
    assert others == ["Name Use", "a|b c", "x", "a.js", "run(1)", "1. First"]
    assert plain_text("Call `a::\nb` and `c`\n> or `d\n> e` f") == "Call a::\nb and c\nor d\ne f"
    assert plain_text(r"An \<item>, <b>bold</b>") == "An <item>, bold"
    assert plain_text("map[string][]string, a[1][2], [b][c]") == "map[string][]string, a[1][2], b"
    assert plain_text("```sh {1} [Linux, macOS]\nls\n```") == "Linux, macOS\nls"
    assert plain_text("```sh [~/.rc ~icons:sh-file~]\nls\n```") == "~/.rc\nls"
    assert plain_text('```js {2} title="a.[js|ts]"\nb\n```') == "a.[js|ts]\nb"
    assert plain_text("~~~md\n```rust,ignore\nx\n```\n~~~") == "```rust,ignore\nx\n```"
    assert plain_text(r"Map\<A, B b\>: \`$\{a\}\` `<b>` <b>c</b>") == "Map<A, B b>: `${a}` <b> c"
    code = f"url = 'https://a.example/{'b' * 200}'"
    assert plain_text(f"```\n{code}\n```\n`{code}`") == f"{code}\n{code}"


@pytest.mark.parametrize(
    "title", ["<ClientOnly />", "Box<T>", "The <script> element", "A [x](y) of *args", "The :ref: role"]
)
def test_headings_are_plain_text_already(title: str) -> None:
    assert one_line(f" {title}\n:material-home: :rocket:") == f"{title} 🚀"


@given(st.text(st.sampled_from('ab `~\n[]()<>|*_#-:/={}!".'), max_size=200))
@settings(max_examples=50)
def test_code_blocks_are_always_complete(text: str) -> None:
    assert _code_blocks(close_fences(text).split("\n"))[1] is None
    clean_markdown(text)
    plain_text(text)
