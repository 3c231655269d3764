"""Formats of pages by file suffix, and their front matter."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recto.book.parsing import formats
from recto.book.parsing.document import Block, Document, Section
from recto.book.parsing.formats import MARKDOWN, MDX, Format, format_of, page_suffixes, read, register_format
from recto.book.parsing.frontmatter import split_front_matter
from recto.book.sources.tree import MarkdownTree
from recto.types import Page


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.md", MARKDOWN),
        ("docs/A.MD", MARKDOWN),
        ("a.markdown", MARKDOWN),
        ("a.mdx", MDX),
        ("a.html", None),
        ("a.txt", None),
        ("md", None),
    ],
)
def test_format_by_suffix(name: str, expected: Format | None) -> None:
    assert format_of(name) is expected


def test_tree_reads_every_markdown_suffix(tmp_path: Path) -> None:
    for suffix in (".md", ".markdown", ".mdx"):
        (tmp_path / f"page{suffix}").write_text("# Title\n\nText.\n")
    found = {page.path: page.format for page in MarkdownTree(tmp_path).pages()}
    assert found == {"page.md": "markdown", "page.markdown": "markdown", "page.mdx": "mdx"}


def test_registered_format_is_read_from_a_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_text(page: Page) -> Document:
        return Document({}, "T", (Section(("T",), 1, "", 1, (Block("paragraph", page.text, 1, 1),)),))

    monkeypatch.setattr(formats, "_FORMATS", dict(formats._FORMATS))
    register_format(Format("text", (".txt",), read_text))
    (tmp_path / "page.txt").write_text("Plain text.")
    [page] = MarkdownTree(tmp_path).pages()
    assert page.format == "text"
    assert read(page).sections[0].blocks[0].text == "Plain text."
    assert ".txt" in page_suffixes()


@pytest.mark.parametrize(
    ("text", "values", "body", "lines"),
    [
        ("---\nslug: /a\n---\n# T\n", {"slug": "/a"}, "# T\n", 3),
        ("\ufeff---\r\nid: b\r\n---\r\nx", {"id": "b"}, "x", 3),
        ("---\n---\nx", {}, "x", 2),
        ("---\na: [\n---\nx", {}, "x", 3),
        ("---\n- a\n---\nx", {}, "x", 3),
        ("---\nnever: closed\n", {}, "---\nnever: closed\n", 0),
        ("----\na: 1\n----\n", {}, "----\na: 1\n----\n", 0),
        ("# T\n---\na: 1\n---\n", {}, "# T\n---\na: 1\n---\n", 0),
        ("---\nday: 2020-02-31\n---\nx", {}, "x", 3),
        ("---\ntitle: a --- b\nx: 1\n--- \nx", {"title": "a --- b", "x": 1}, "x", 4),
    ],
)
def test_front_matter(text: str, values: dict[str, object], body: str, lines: int) -> None:
    assert split_front_matter(text) == (values, body, lines)


@given(st.text(max_size=100))
def test_any_front_matter_is_parsed(text: str) -> None:
    for whole in (text, f"---\n{text}\n---\nbody"):
        values, body, lines = split_front_matter(whole)
        assert isinstance(values, dict)
        assert whole.endswith(body)
        assert whole[: len(whole) - len(body)].count("\n") == lines
