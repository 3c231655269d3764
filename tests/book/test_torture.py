"""Difficult pages, one per family of features: text, headings, anchors and line numbers."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from recto.book.parsing.markdown import parse
from recto.types.book import Document

FOLDER = Path(__file__).parent / "torture"


@dataclass(frozen=True)
class Case:
    """What a page must become; no page may show its text "secret"."""

    name: str
    kept: tuple[str, ...]
    headings: tuple[str, ...]
    anchors: tuple[tuple[int, str], ...]
    dropped: tuple[str, ...] = ()
    kinds: str = ""


CASES = [
    Case(
        "modules.mdx",
        (
            "import duties are paid",
            "The value {props.x} stays",
            '<Highlight color="x">inline text</Highlight> in a line',
            "A block of its own",
            "Card title",
            "Inside the card.",
            "import os from 'kept';\n<Kept>{props.kept}</Kept>",
        ),
        ("Parts",),
        (),
        ("theme", "Second", "brace", "Hello", "colours", "item", 'color="y"', "<Card", "open(", "hidden"),
    ),
    Case(
        "tabs.mdx",
        (
            "Apple pie",
            "This is an apple.",
            "orange",
            "This is an orange.",
            "First choice Said in one line.",
            "Second choice",
            "Said below.",
        ),
        ("Tabs", "Tabs > Peel it", "Tabs > After"),
        ((9, "peel"), (30, "after")),
        ("<Tab", "</Tab", "defaultValue", "Peel"),
    ),
    Case(
        "admonitions.mdx",
        (
            ":::tip Title of a tip\n\n## Heading in a tip\n\nTip text.\n\n:::",
            "::::note[Outer *title*]\n\nOuter text.\n\n:::danger\n\nInner text.\n\n### Deeper\n\n:::\n\nOuter again.\n\n::::",
            '!!! note "An indented one"\n    ## Indented heading',
            "???+ warning\n    Folded text.",
            "//// tab | Tab title\nTab text.\n\n/// tip | Block title\nBlock text.\n///\n////",
            "never closed",
        ),
        ("Notes", "Notes > Heading in a tip"),
        ((5, "heading-in-a-tip"), (19, "deeper"), (28, "indented-heading"), (47, "heading-in-a-tip-1")),
        kinds="group group group group group group",
    ),
    Case(
        "material.md",
        (
            '=== "Python"\n\n    ## Install\n\n    ```python\n    # no heading',
            "Build it.",
            "A paragraph.",
            "Term\n:   Definition of the term.",
            "Grid text.",
            "Last words.",
        ),
        ("Material", "Material > Install", "Material > Styled", "Material > In a grid"),
        (
            (1, "top"),
            (5, "install"),
            (16, "install_1"),
            (19, "lead-paragraph"),
            (21, "styled"),
            (23, "hidden-anchor"),
            (29, "in-a-grid"),
        ),
        ("{ .lead", "<div", "8<--", "{!"),
        kinds="group group paragraph paragraph paragraph paragraph",
    ),
    Case(
        "html.md",
        (
            "goes on, `<!-- shown -->` too.",
            "Delay <50ms",
            "Folded & kept, `&amp;` as typed, ?a=1&copy=2 too.",
            'A named place, and <span id="inline-id">one within</span>.',
            "Line one<br/>line two.",
            "Boxed words.",
            "![A robot arm](arm.png)",
            '<h2 id="no">No &lt; heading</h2>',
        ),
        ("The Page", "The Page > By hand", "The Page > By hand > Without an id", "The Page > Real"),
        ((16, "by-hand"), (18, "named"), (19, "inline-id"), (25, "box"), (37, "real")),
        ("<details", "summary", "<div", "script"),
    ),
    Case(
        "wrappers.mdx",
        ("Wrapped text.", "````md\n```mdx-code-block\n# no heading\n```\n````", "after a comment."),
        ("Wrapped > Heading in a wrapper", "Wrapped > Last"),
        ((8, "heading-in-a-wrapper"), (27, "last-one")),
        ("import", "Secret"),
    ),
    Case(
        "diagrams.md",
        (
            "Sense\nCamera image, frames, Find the cup\ngrip it, Holding?\nGripper",
            "User\nUser, Robot: Bring me the cup\nThey wait\nevery second\nRobot, User: On my way",
            "Idle Moving: command received",
            "Where time goes\nPlanning",
        ),
        ("Diagrams",),
        ((1, "diagrams"),),
        ("-->", "flowchart", "participant", "fill"),
    ),
    Case(
        "math.md",
        (
            "$a_1 * b. C_2 * d$",
            "$$\nx\n= y\n---\n# no heading\n\n- z\n$$",
            "$$ a + b $$",
            "\\[\n\\frac{a}{b}\n\\]",
            "$5 and $6",
            "$$ never closed",
        ),
        ("Energy $E_k = m*v^2*x$", "Energy $E_k = m*v^2*x$ > Real"),
        ((1, "energy-e_k--mv2x"), (24, "real")),
        kinds="paragraph math math math paragraph paragraph paragraph",
    ),
    Case(
        "fences.md",
        (
            "# fake-tilde",
            "# fake-nested",
            "# fake-indented",
            "# fake in a list",
            "# fake in a quotation",
            "## swallowed",
            "- swallowed text",
        ),
        ("Fences", "Fences > Real", "Fences > Real too"),
        ((1, "fences"), (35, "real"), (47, "real-too")),
        kinds="code code code list group code code paragraph code paragraph code",
    ),
    Case(
        "structure.md",
        (
            "- ## In a list\n\n  Item text.",
            "> Quoted text.",
            "a | b\n--|--\n1 \\| 2 | 3 < 4 \\| 5",
            "Footnote[^1], and [a link][ref]",
            "[^1]: word",
            "Noted by Hugo, with a Pod in it.",
        ),
        (
            "Stated > Setext One > Two lines of a heading",
            "Stated > Setext One > Empty > Empty too",
            "Stated > Setext One > Full",
            "Stated > Setext One > Trailing",
        ),
        (
            (6, "setext-one"),
            (9, "two-linesof-a-heading"),
            (13, "in-a-list"),
            (17, "quoted"),
            (37, "empty"),
            (39, "empty-too"),
            (41, "full"),
            (45, "trailing"),
        ),
        ("{{", "{%", "https://"),
        kinds="list group table paragraph paragraph paragraph heading paragraph heading",
    ),
]


def read(name: str, source: str) -> Document:
    return parse(
        source,
        title="Fallback",
        mdx=name.endswith(".mdx"),
        anchors="python-markdown" if name == "material.md" else "github",
    )


def texts(document: Document) -> str:
    return "\n\n".join(block.text for section in document.sections for block in section.blocks)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_hard_page(case: Case, ends: str) -> None:
    source = (FOLDER / case.name).read_text("utf-8")
    document = read(case.name, "\ufeff" * (ends != "\n") + source.replace("\n", ends))
    text = texts(document)
    for kept in case.kept:
        assert kept in text
    for dropped in (*case.dropped, "secret/", "secret ", "secret.md", "# secret"):
        assert dropped not in text
    assert tuple(" > ".join(section.headings) for section in document.sections) == case.headings
    assert tuple(anchor for section in document.sections for anchor in section.anchors) == case.anchors
    if case.kinds:
        assert " ".join(block.kind for section in document.sections for block in section.blocks) == case.kinds


@pytest.mark.parametrize(
    "name", [case.name for case in CASES if case.name not in ("diagrams.md", "tabs.mdx")]
)
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


def test_every_page_of_the_directory_has_a_case() -> None:
    assert {case.name for case in CASES} == {path.name for path in FOLDER.iterdir()}
