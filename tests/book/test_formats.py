"""Formats are looked up by file suffix, and a plugin can add its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from recto.book.parsing import formats
from recto.book.parsing.document import Block, Document, Section
from recto.book.parsing.formats import MARKDOWN, MDX, Format, format_of, page_suffixes, read, register_format
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
def test_the_suffix_decides_the_format(name: str, expected: Format | None) -> None:
    assert format_of(name) is expected


def test_a_tree_reads_every_markdown_suffix(tmp_path: Path) -> None:
    for suffix in (".md", ".markdown", ".mdx"):
        (tmp_path / f"page{suffix}").write_text("# Title\n\nText.\n")
    found = {page.path: page.format for page in MarkdownTree(tmp_path).pages()}
    assert found == {"page.md": "markdown", "page.markdown": "markdown", "page.mdx": "mdx"}


def test_a_registered_format_is_read_from_a_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_text(page: Page) -> Document:
        return Document({}, "T", (Section(("T",), 1, "", 1, (Block("paragraph", page.text, 1, 1),)),))

    monkeypatch.setattr(formats, "_FORMATS", dict(formats._FORMATS))
    register_format(Format("text", (".txt",), read_text))
    (tmp_path / "page.txt").write_text("Plain text.")
    [page] = MarkdownTree(tmp_path).pages()
    assert page.format == "text"
    assert read(page).sections[0].blocks[0].text == "Plain text."
    assert ".txt" in page_suffixes()
