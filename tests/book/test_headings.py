from __future__ import annotations

import pytest

from recto.book.parsing.markdown.headings import heading_texts, slugger, split_explicit_id
from recto.types.book import AnchorStyle


@pytest.mark.parametrize(
    ("heading", "slug"),
    [
        ("What is ROS 2?", "what-is-ros-2"),
        ("C++ & Python", "c--python"),
        ("Überblick: die Küche", "überblick-die-küche"),
        ("`ros2 topic list`", "ros2-topic-list"),
        ("a_b-c.d", "a_b-cd"),
        ("机器人 学", "机器人-学"),
        ("🤖 robots", "-robots"),
        (" at both ends ", "-at-both-ends-"),
        ("Ⓐ in a circle", "ⓐ-in-a-circle"),
        ("½ of x²", "-of-x"),
    ],
)
def test_github_slugs(heading: str, slug: str) -> None:
    assert slugger("github")(heading) == slug


def test_repeated_headings_are_numbered() -> None:
    slug = slugger("github")
    assert [slug(heading) for heading in ("Setup", "Setup", "Setup 1", "Setup", "setup")] == [
        "setup",
        "setup-1",
        "setup-1-1",
        "setup-2",
        "setup-3",
    ]


@pytest.mark.parametrize(
    ("heading", "slug"),
    [
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
    """The anchors are those that Docusaurus 3.10 gave to these headings."""
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
    assert {heading: slug(heading_texts(heading, alt=False)[1]) for heading in page} == page


def test_numbered_headings_have_their_own_count() -> None:
    slug = slugger("python-markdown")
    assert [slug(heading) for heading in ("x_3", "x", "x", "x_3", "x")] == [
        "x_3",
        "x",
        "x_1",
        "x_4",
        "x_2",
    ]


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
