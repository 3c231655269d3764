"""Patterns of names, and the front matter of pages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recto.book.parsing.frontmatter import split_front_matter
from recto.book.sources.directory import any_of, ignored


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("**/*.{md,mdx}", "a.md", True),
        ("**/*.{md,mdx}", "a/b/c.mdx", True),
        ("**/*.{md,mdx}", "a/b/c.txt", False),
        ("**/_*/**", "a/_b/c.md", True),
        ("**/_*/**", "_b/c.md", True),
        ("**/_*/**", "a/b_/c.md", False),
        ("*.md", "a/b.md", False),
        ("./a/*.md", "a/b.md", True),
        ("a?.md", "ab.md", True),
        ("[!a]*.md", "a.md", False),
        ("[a-c]1.md", "b1.md", True),
        ("{a,b{c,d}}.md", "bd.md", True),
        ("a{b", "a{b", True),
        ("a[b", "a[b", True),
        ("tutorial-*/**", "tutorial-basics/x/y.md", True),
        ("a.md", "aXmd", False),
        ("**", "a/b", True),
    ],
)
def test_globs(pattern: str, name: str, matches: bool) -> None:
    assert any_of([pattern])(name) is matches


@pytest.mark.parametrize(
    ("lines", "name", "matches"),
    [
        (["drafts/"], "a/drafts/b.md", True),
        (["drafts/"], "a/drafts", False),
        (["/a.md"], "b/a.md", False),
        (["b/a.md"], "c/b/a.md", False),
        (["*.md", "!keep.md"], "x/keep.md", False),
        (["!keep.md", "*.md"], "x/keep.md", True),
        (["# a.md", "", "  "], "a.md", False),
        (["a/**/b.md"], "a/x/y/b.md", True),
        (["a/**"], "a/x.md", True),
        (["{a}.md"], "{a}.md", True),
        ([".*"], "x/.hidden/y.md", True),
    ],
)
def test_lines_of_gitignore(lines: list[str], name: str, matches: bool) -> None:
    assert ignored(lines)(name) is matches


@given(st.text("*?[]{}!,/ab.-\\", max_size=20), st.text("ab/.", max_size=10))
def test_any_pattern_is_one(pattern: str, name: str) -> None:
    assert any_of([pattern])(name) in (True, False)
    assert ignored([pattern])(name) in (True, False)


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
def test_any_text_has_front_matter_or_none(text: str) -> None:
    for whole in (text, f"---\n{text}\n---\nbody"):
        values, body, lines = split_front_matter(whole)
        assert isinstance(values, dict)
        assert whole.endswith(body)
        assert whole[: len(whole) - len(body)].count("\n") == lines
