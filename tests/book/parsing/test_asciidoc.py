"""Read AsciiDoc as Asciidoctor does: text, headings, anchors, attributes."""

from __future__ import annotations

import time
from textwrap import dedent

import pytest

from recto.book.parsing import read
from recto.types.book import Document, Page


def parse(text: str) -> Document:
    """Parse a page."""
    return read(Page("a", "local://a", "File", "intro", ("intro",), dedent(text), "", format="asciidoc"))


def text_of(text: str) -> str:
    """Return the text of a page."""
    return "\n\n".join(block.text for section in parse(text).sections for block in section.blocks)


def test_sections_have_asciidoctors_ids() -> None:
    page = parse("""\
        = The Lighthouse
        Ann Author <a@x.org>
        v1.0, 2024
        :name: Lamp

        Intro.

        == The {name}'s _oil_ -- and wick

        One.

        [#own.role]
        === Second

        Two.

        == Second

        Three.

        Fourth
        ------

        Four. [[here]]There.

        [[a,Label]]
        == Second [[inner]]

        Five.
        """)
    assert page.title == "The Lighthouse"
    assert [(section.headings[1:], section.anchor, section.line) for section in page.sections] == [
        ((), "", 1),
        (("The Lamp's oil -- and wick",), "_the_lamps_oiland_wick", 8),
        (("The Lamp's oil -- and wick", "Second"), "own", 13),
        (("Second",), "_second", 17),
        (("Fourth",), "_fourth", 21),
        (("Second",), "a", 27),
    ]
    assert [name for _, name in page.sections[4].anchors] == ["_fourth", "here"]


@pytest.mark.parametrize(
    ("attributes", "anchor"),
    [
        ("", "_a_b_c_2"),
        (":idprefix:", "a_b_c_2"),
        (":idprefix: x-\n:idseparator: -", "x-a-b-c-2"),
        (":idseparator:", "_abc2"),
        (":!sectids:", ""),
    ],
)
def test_the_attributes_of_ids(attributes: str, anchor: str) -> None:
    text = f"{attributes}\n\n= T\n\n== A b, C\n\nx\n\n== A b, C\n\ny\n"
    assert parse(text).sections[-1].anchor == anchor


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("*a* _b_ `c_d_` **e**f #g# ^h^ ~i~", "**a** *b* `c_d_` **e**f g h i"),
        ("`+{x}+` +*j*+ pass:[<b>k</b>] \\*l*", "`{x}` *j* k *l*"),
        ('"`m`" https://x.org[n] link:o.html[p,role=q] https://y.org', "“m” n p https://y.org"),
        ("kbd:[Ctrl+C] menu:File[New > Page] btn:[OK] image:a.png[Alt,300]", "Ctrl+C File › New › Page OK Alt"),
        ("a(((b, c))) ((d)) indexterm:[e] footnote:[f] stem:[x^2]", "a d   [f] $x^2$"),
        (":a: b\n:c: {a}{a}\n\n{c} {unknown} \\{a}", "bb {unknown} {a}"),
        ("NOTE: Mind.", "**Note**\n\nMind."),
        ("[WARNING]\n====\nMind.\n\nHot.\n====", "**Warning**\n\nMind.\n\nHot."),
        (".T\n[source,python]\n----\n# a <1>\n== b\n----\n<1> c", "**T**\n\n```python\n# a <1>\n== b\n```\n\n1. c"),
        ("* a\n** b\n+\nc\n\n* d\n\n  e", "- a\n  - b\n\n    c\n- d\n\n  ```\n  e\n  ```"),
        (". a\n+\n----\nb\n----\n. c", "1. a\n\n   ```\n   b\n   ```\n2. c"),
        ("a:: b\nc::\n  d", "a\n: b\nc\n: d"),
        ("a::\n+\n----\n<b>\n----\nc:: d", "a\n```\n<b>\n```\nc\n: d"),
        ("= T\n:a: b\n[[author]]\n\n{a}", "b"),
        ("= T\nA\n// no\nv1\nc", "c"),
        ("[quote,A,B]\n____\nc\n____", "> c\n>\n> — A, B"),
        ('[cols="1,2a"]\n|===\n|A |B\n\n.2+|c d\n|* e\n|f \\| g\n|===', "| A | B |\n| --- | --- |\n| c d | - e |\n|  | f \\| g |"),
        (".T\n|===\n2+|a\n|b|c\n|===", "**Table 1. T**\n\n| a |  |\n| --- | --- |\n| b | c |"),
        (',===\na,"b, c"\n,===', "| a | b, c |\n| --- | --- |"),
        ("[appendix]\n== A\n\nSee <<_a>>, <<gone>>.", "See Appendix A: A, [gone]."),
        ("The `<<<<<`, `=====`, and `>>>>>` lines.", "The `<<<<<`, `=====`, and `>>>>>` lines."),
        ("A <name> of `<x>`, ``a```'s and ``b``", "A \\<name> of `<x>`, `a`’s and `b`"),
        ("////\n== no\n////\n// no\nyes", "yes"),
        ("chart::a[b]\n\n--\n[discrete]\n== C\n\nd\n--", "chart::a[b]\n\n**C**\n\nd"),
        ("====\n== not a heading\n====\n\n  literal\n  == text", "== not a heading\n\n```\nliteral\n== text\n```"),
        ("++++\n<p>a</p><script>b</script>\n++++", "a"),
        ("[latexmath]\n++++\nx\n++++", "$$\nx\n$$"),
    ],
)  # fmt: skip
def test_text(source: str, text: str) -> None:
    assert text_of(source) == text


def test_blocks_have_their_lines() -> None:
    page = parse("= T\n\nOne\ntwo.\n\n----\nx\n----\n\nThree.\n")
    assert [(block.first, block.last) for block in page.sections[0].blocks] == [(3, 4), (6, 8), (10, 10)]


@pytest.mark.parametrize(
    "unit",
    ["*a ", "`a", "[a]#", "xref:a[", "http://", "pass:[", "+a", "<<a", "((a", "{a}", '"`a', "a|", "^a", "a::", "<script", "&amp;"],
)  # fmt: skip
def test_hostile_markup_takes_linear_time(unit: str) -> None:
    began = time.process_time()
    parse(f":a: {'x' * 4_000}\n\n{unit * ((1 << 20) // len(unit))}")
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    "text",
    [
        "".join("=" * (4 + level) + "\n" for level in range(1_000)),
        "".join("*" * (1 + level) + " a\n" for level in range(1_200)),
        "".join(f":a{n}: {{a{n - 1}}}{{a{n - 1}}}x\n" for n in range(5_000)) + "\n{a4999}" * 500,
        "|===\n" + "999999*|a " * 100_000 + "\n|===",
        "== a\nb\n\n" * 4_900,
        f"[#a]\n== {'x' * 300_000}\n\n" + "<<a>> " * 10_000,
    ],
)
def test_hostile_nesting_and_growth(text: str) -> None:
    began = time.process_time()
    document = parse(text)
    assert time.process_time() - began < 2
    assert sum(len(block.text) for section in document.sections for block in section.blocks) < 4 << 20
