"""Markdown: titles, and difficult pages, one per family of features: text, headings, anchors and line numbers."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recto.book.parsing.markdown import parse
from recto.book.parsing.markdown.headings import heading_texts, slugger, split_explicit_id
from recto.types.book import AnchorStyle, Document

FOLDER = Path(__file__).parent / "torture"


@dataclass(frozen=True)
class Case:
    """What a page must become; no page may show its text "secret"."""

    kept: str  # texts, separated by "; "
    headings: str  # the path of each section
    anchors: str = ""  # line and name
    dropped: str = ""
    kinds: str = ""


CASES = {
    "modules.mdx": Case(
        "import duties are paid; The value {props.x} stays; A block of its own; Card title; Inside the card.; "
        "<Highlight color=\"x\">inline text</Highlight> in a line; import os from 'kept';\n<Kept>{props.kept}</Kept>",
        "Parts",
        dropped='theme; Second; brace; Hello; colours; item; color="y"; <Card; open(; hidden',
    ),
    "tabs.mdx": Case(
        "Apple pie; This is an apple.; orange; This is an orange.; First choice Said in one line.; Second choice; Said below.",
        "Tabs; Tabs > Peel it; Tabs > After",
        "9 peel 30 after",
        "<Tab; </Tab; defaultValue; Peel",
    ),
    "admonitions.mdx": Case(
        ":::tip Title of a tip\n\n## Heading in a tip\n\nTip text.\n\n:::; "
        "::::note[Outer *title*]\n\nOuter text.\n\n:::danger\n\nInner text.\n\n### Deeper\n\n:::\n\nOuter again.\n\n::::; "
        '!!! note "An indented one"\n    ## Indented heading; ???+ warning\n    Folded text.; '
        "//// tab | Tab title\nTab text.\n\n/// tip | Block title\nBlock text.\n///\n////; never closed",
        "Notes; Notes > Heading in a tip",
        "5 heading-in-a-tip 19 deeper 28 indented-heading 47 heading-in-a-tip-1",
        kinds="group group group group group group",
    ),
    "material.md": Case(
        '=== "Python"\n\n    ## Install\n\n    ```python\n    # no heading; Build it.; A paragraph.; '
        "Term\n:   Definition of the term.; Grid text.; Last words.",
        "Material; Material > Install; Material > Styled; Material > In a grid",
        "1 top 5 install 16 install_1 19 lead-paragraph 21 styled 23 hidden-anchor 29 in-a-grid",
        "{ .lead; <div; 8<--; {!",
        "group group paragraph paragraph paragraph paragraph",
    ),
    "html.md": Case(
        "goes on, `<!-- shown -->` too.; Delay <50ms; Folded & kept, `&amp;` as typed, ?a=1&copy=2 too.; "
        'A named place, and <span id="inline-id">one within</span>.; Line one<br/>line two.; Boxed words.; '
        '![A robot arm](arm.png); <h2 id="no">No &lt; heading</h2>',
        "The Page; The Page > By hand; The Page > By hand > Without an id; The Page > Real",
        "16 by-hand 18 named 19 inline-id 25 box 37 real",
        "<details; summary; <div; script",
    ),
    "wrappers.mdx": Case(
        "Wrapped text.; ````md\n```mdx-code-block\n# no heading\n```\n````; after a comment.",
        "Wrapped > Heading in a wrapper; Wrapped > Last",
        "8 heading-in-a-wrapper 27 last-one",
        "import; Secret",
    ),
    "diagrams.md": Case(
        "Sense\nCamera image, frames, Find the cup\ngrip it, Holding?\nGripper; "
        "User\nUser, Robot: Bring me the cup\nThey wait\nevery second\nRobot, User: On my way; "
        "Idle Moving: command received; Where time goes\nPlanning",
        "Diagrams",
        "1 diagrams",
        "-->; flowchart; participant; fill",
    ),
    "math.md": Case(
        "$a_1 * b. C_2 * d$; $$\nx\n= y\n---\n# no heading\n\n- z\n$$; $$ a + b $$; $5 and $6; "
        "\\[\n\\frac{a}{b}\n\\]; $$ never closed",
        "Energy $E_k = m*v^2*x$; Energy $E_k = m*v^2*x$ > Real",
        "1 energy-e_k--mv2x 24 real",
        kinds="paragraph math math math paragraph paragraph paragraph",
    ),
    "fences.md": Case(
        "# fake-tilde; # fake-nested; # fake-indented; # fake in a list; # fake in a quotation; ## swallowed; - swallowed text",
        "Fences; Fences > Real; Fences > Real too",
        "1 fences 35 real 47 real-too",
        kinds="code code code list group code code paragraph code paragraph code",
    ),
    "structure.md": Case(
        "- ## In a list\n\n  Item text.; > Quoted text.; a | b\n--|--\n1 \\| 2 | 3 < 4 \\| 5; "
        "Footnote[^1], and [a link][ref]; [^1]: word; Noted by Hugo, with a Pod in it.",
        "Stated > Setext One > Two lines of a heading; Stated > Setext One > Empty > Empty too; "
        "Stated > Setext One > Full; Stated > Setext One > Trailing",
        "6 setext-one 9 two-linesof-a-heading 13 in-a-list 17 quoted 37 empty 39 empty-too 41 full 45 trailing",
        "{{; {%; https://",
        "list group table paragraph paragraph paragraph heading paragraph heading",
    ),
}


def read(name: str, source: str) -> Document:
    anchors: AnchorStyle = "python-markdown" if name == "material.md" else "github"
    return parse(source, title="Fallback", mdx=name.endswith(".mdx"), anchors=anchors)


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.iterdir()))
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_hard_page(name: str, ends: str) -> None:
    case = CASES[name]
    source = (FOLDER / name).read_text("utf-8")
    sections = read(name, "\ufeff" * (ends != "\n") + source.replace("\n", ends)).sections
    text = "\n\n".join(block.text for section in sections for block in section.blocks)
    for kept in case.kept.split("; "):
        assert kept in text
    for dropped in (*filter(None, case.dropped.split("; ")), "secret/", "secret ", "secret.md", "# secret"):
        assert dropped not in text
    assert "; ".join(" > ".join(section.headings) for section in sections) == case.headings
    anchors = [f"{line} {anchor}" for section in sections for line, anchor in section.anchors]
    assert " ".join(anchors) == case.anchors
    if case.kinds:
        assert " ".join(block.kind for section in sections for block in section.blocks) == case.kinds


@pytest.mark.parametrize("name", sorted(CASES.keys() - {"diagrams.md", "tabs.mdx"}))
def test_block_lines_match_the_source(name: str) -> None:
    """Only labels of tabs and names in diagrams may come from another line."""
    source = (FOLDER / name).read_text("utf-8")
    lines = source.split("\n")
    for section in read(name, source).sections:
        for block in section.blocks:
            stored = block.text.split("\n")
            assert (block.source_line(0), block.source_line(len(stored) - 1)) == (block.first, block.last)
            for number, line in enumerate(stored):
                assert words(line) <= words(lines[block.source_line(number) - 1])


def words(line: str) -> set[str]:
    return set(re.findall(r"\w+", html.unescape(line)))


@pytest.mark.parametrize(
    ("markdown", "title"),
    [
        ("---\ntitle: Stated\n---\n# Written\n", "Stated"),
        ("---\nsidebar_label: Label\n---\ntext\n", "Label"),
        ("---\nsidebar_label: Label\n---\n# Written\n", "Written"),
        ("# Written *with* `code`\n", "Written with code"),
        ("Setext\n======\n", "Setext"),
        ("---\ntitle: [broken\n---\n# Written\n", "Written"),
        ("---\ntitle: 7\n---\n", "7"),
        ("", "Fallback"),
    ],
)
def test_titles(markdown: str, title: str) -> None:
    assert parse(markdown, title="Fallback").title == title


def test_sentences_of_components_are_text() -> None:
    source = """\
<Quiz
  question="Why do bees dance in the hive?"
  options={[
    "To keep the brood warm",
    'To show "where" the food is',
    "Nobody knows",
  ]}
  classNames="flex items center justify between"
  href="https://bees.example/a page about bees"
  onSelect={() => log("the answer was chosen")}
  explanation={`The dance says how far the food is,
and it isn't random.`}
  difficulty="medium"
/>

export const Faq = {
  wild: [{title: "Do wild bees sting people?", content: `Rarely, see
[Stings](https://bees.example/stings) and <code>sting()</code>.`}],
};

export const Mark = ({children}) => <b title="not shown to any reader">{children}</b>;

<Card title="Hives" description="蜂の巣の作り方" icon="hive-icon" />

<Listing number="7-1" file-name="src/hive.rs" caption="The hive of bees"/>

<div title="Not a component" data-note="this is not shown to readers">Text.</div>
"""
    (section,) = parse(source, title="Bees", mdx=True).sections
    quiz, faq, card, listing, div = section.blocks
    assert quiz.text.split("\n") == [
        "Why do bees dance in the hive?",
        "To keep the brood warm",
        'To show "where" the food is',
        "The dance says how far the food is,",
        "and it isn't random.",
    ]
    assert quiz.lines == (2, 4, 5, 11, 12)
    assert faq.text == (
        "Do wild bees sting people? Rarely, see\n[Stings](https://bees.example/stings) and sting()."
    )
    assert (card.text, div.text) == ("Hives 蜂の巣の作り方", "Not a component Text.")
    assert listing.text == "Listing 7-1: src/hive.rs: The hive of bees"


def test_shortcodes_of_material_are_names() -> None:
    source = """\
# Social

#### <!-- md:setting config.cards_exclude -->

Use it.

<!-- md:option social.icon -->

:   <!-- md:default none --> The icon. See <!-- md:option type:note -->.
"""
    document = parse(source, title="Fallback", mdx=False, anchors="python-markdown")
    (section,) = document.sections
    assert (section.headings, section.anchor) == (("Social", "cards_exclude"), "config.cards_exclude")
    assert [block.text.split() for block in section.blocks] == [
        ["Use", "it."],
        ["`icon`"],
        [":", "The", "icon.", "See", "`note`."],
    ]


@pytest.mark.parametrize("mdx", [False, True])
def test_indented_code_is_text_in_mdx(mdx: bool) -> None:
    (section,) = parse("Intro.\n\n    plain\n    run\n", title="Page", mdx=mdx).sections
    assert section.headings == ("Page",), "text before the first heading"
    assert [block.kind for block in section.blocks] == ["paragraph", "paragraph" if mdx else "code"]


@given(st.text(alphabet=st.sampled_from("#`~:<>{}/*-|=!\n \tabT\"'[]()"), max_size=200), st.booleans())
def test_any_text_is_parsed(text: str, mdx: bool) -> None:
    document = parse(text, title="T", mdx=mdx)
    count = text.count("\n") + 1
    for section in document.sections:
        assert section.headings[0] == document.title
        for block in section.blocks:
            assert 1 <= block.first <= block.last <= count
            assert block.text.strip()


@pytest.mark.parametrize(
    ("heading", "slug"),
    [
        ("What is ROS 2?", "what-is-ros-2"),
        ("C++ & Python", "c--python"),
        ("Überblick: die Küche", "überblick-die-küche"),
        ("a_b-c.d", "a_b-cd"),
        ("机器人 学", "机器人-学"),
        (" at both ends ", "-at-both-ends-"),
        ("Ⓐ in a circle", "ⓐ-in-a-circle"),
        ("½ of x²", "-of-x"),
        ("With `code_x` and [link](a.md)", "with-code_x-and-link"),
        ("![alt text](/a.png) image", "alt-text-image"),
        ("Set {props.x} now", "set-propsx-now"),
        ('<Icon name={"a"}/> Icon first', "-icon-first"),
        ("Inline <b>tags</b> here<br/>more", "inline-tags-heremore"),
        ("Key:value pair", "key-pair"),
        ("std::vector 3:30 a: b", "stdvector-330-a-b"),
        ("A &amp; B &lt;50ms", "a--b-50ms"),
        ("🤖 robots :tada:", "-robots-tada"),
        ("~~old~~ **new** _it_", "old-new-it"),
        ("snake_case_name and *a*b*", "snake_case_name-and-ab"),
        ("x {/* a note */} y", "x--a-note--y"),
        ("footnote[^1]", "footnote"),
        (r"\*escaped\* \_x\_", "escaped-_x_"),
        ("http://example.com/x", "httpexamplecomx"),
        (r"E $E_k = m*v^2*x$ and $\alpha_{x}$", "e-e_k--mv2x-and-alpha_x"),
        ("Two lines\nof a heading", "two-linesof-a-heading"),
    ],
)
def test_docusaurus_anchors(heading: str, slug: str) -> None:
    """The anchors are those that Docusaurus 3.10 gave to these headings, by the rules of GitHub."""
    assert slugger("github")(heading_texts(heading, mdx=True)[1]) == slug


def test_python_markdown_anchors() -> None:
    """The anchors are those that Python-Markdown 3.11 gave to these headings, on one page in this order."""
    page = {
        "A `code` & b": "a-code-b",
        "Überblick: *die* Küche": "uberblick-die-kuche",
        "![alt](x.png) Img": "img",
        "Same": "same",
        "Same ": "same_1",
        "Same_1": "same_2",
        " Same": "same_3",
        "机器人": "_1",
        "学": "_2",
        "a&amp;b &lt;c": "ab-c",
        "X id": "x-id_1",
        "x-id": "x-id_2",
        "<b>raw</b> text": "raw-text",
        "[l](u) and ~~s~~ $E_k*m*v$": "l-and-s-e_kmv",
        "foot[^1]": "foot",
        "A -- B  -  C": "a-b-c",
    }
    slug = slugger("python-markdown", ["x-id"])
    assert {heading: slug(heading_texts(heading, style="python-markdown")[1]) for heading in page} == page


@pytest.mark.parametrize(
    ("style", "headings", "anchors"),
    [
        ("github", ["Set", "Set", "Set 1", "Set", "set"], "set set-1 set-1-1 set-2 set-3"),
        ("python-markdown", ["x_3", "x", "x", "x_3", "x"], "x_3 x x_1 x_4 x_2"),
    ],
)
def test_repeated_headings_are_numbered(style: AnchorStyle, headings: list[str], anchors: str) -> None:
    assert " ".join(map(slugger(style), headings)) == anchors


@pytest.mark.parametrize(
    ("style", "source", "text", "explicit"),
    [
        ("github", "Title {#my-id}", "Title", "my-id"),
        ("github", "Title { #my-id }", "Title", "my-id"),
        ("github", "Title {/* #my-id */}", "Title", "my-id"),
        ("github", "Title <!-- #my-id -->", "Title", "my-id"),
        ("github", "Title <!-- a note -->", "Title <!-- a note -->", ""),
        ("github", "Title", "Title", ""),
        ("github", "Set {x}", "Set {x}", ""),
        ("github", "Title {#a} more", "Title {#a} more", ""),
        ("python-markdown", "Title {#my-id}", "Title", "my-id"),
        ("python-markdown", "Title {: #my-id }", "Title", "my-id"),
        ("python-markdown", "Title { .wide #my-id }", "Title", "my-id"),
        ("python-markdown", "Title { .wide }", "Title", ""),
        ("python-markdown", "Title{#glued}", "Title", "glued"),
    ],
)
def test_explicit_ids(style: AnchorStyle, source: str, text: str, explicit: str) -> None:
    assert split_explicit_id(source, style) == (text, explicit)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("<header>\n<p>Kept.</p>\n</header>\n", "Kept."),
        ("<div><svg/><style>.a { b }</style> Kept. <SVG><text>b</text></SVG></div>\n", "Kept."),
        ("<svg a='b'>\n    <style>.a {\n\n    b: c }</style>\n\n# D\n</svg>\n\nKept.\n", "Kept."),
        ("<svg viewBox='0'><path/></svg> **Kept.**\n", "<svg viewBox='0'><path/></svg> **Kept.**"),
        ("<svg>\n\nKept.\n", "Kept."),
    ],
)
def test_what_shows_no_text_is_left_out(source: str, text: str) -> None:
    (section,) = parse(source).sections
    assert "\n".join(block.text for block in section.blocks) == text


def test_lines_of_a_property_are_not_headings() -> None:
    page = '# A\n\n<Command\n  npm="npm run\n# then publish\nnpm publish"\n/>\n\nText.\n'
    (section,) = parse(page, mdx=True).sections
    assert section.headings == ("A",)
