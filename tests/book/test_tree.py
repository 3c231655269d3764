"""Trees of files: what is a page, where it is, what module it belongs to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from recto.book.tree import MarkdownTree


def make(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"# {name}\n\ntext\n", "utf-8")
    return root


def urls(root: Path) -> list[str]:
    return [page.url.removeprefix("local://docs/docs/") for page in MarkdownTree(root).pages()]


def test_addresses_keep_the_files_names(tmp_path: Path) -> None:
    make(tmp_path, "intro.md", "module-1-ros2/01-fundamentals.md", "module-1-ros2/deep/02-more.mdx")
    assert urls(tmp_path) == ["intro", "module-1-ros2/01-fundamentals", "module-1-ros2/deep/02-more"]


def test_directory_pages_have_the_directorys_address(tmp_path: Path) -> None:
    make(tmp_path, "index.md", "a/README.md", "b/index.mdx")
    assert [page.url for page in MarkdownTree(tmp_path).pages()] == ["local://docs/docs/a", "local://docs/docs/b", "local://docs/docs"]


def test_modules(tmp_path: Path) -> None:
    make(tmp_path, "intro.md", "module-2-simulation/x.md", "module-2-simulation/deep/y.md")
    pages = list(MarkdownTree(tmp_path).pages())
    assert [page.module for page in pages] == ["intro", "simulation", "simulation"]
    assert pages[1].module_keys == ("simulation", "module-2-simulation")


def test_what_is_not_a_page(tmp_path: Path) -> None:
    make(tmp_path, "a.md", "_partial.md", "_drafts/b.md", ".hidden/c.md", "node_modules/p/d.md", "build/e.md", "notes.txt")
    assert urls(tmp_path) == ["a"]


def test_a_docusaurus_site_is_read_from_its_docs_as_mdx(tmp_path: Path) -> None:
    make(tmp_path, "README.md", "blog/post.md", "docs/intro.md")
    (tmp_path / "docusaurus.config.ts").touch()
    (page,) = MarkdownTree(tmp_path).pages()
    assert (page.url, page.format) == ("local://docs/docs/intro", "mdx")
    (page,) = MarkdownTree(tmp_path / "docs").pages()
    assert page.format == "mdx"


def test_plain_markdown_is_not_mdx(tmp_path: Path) -> None:
    make(tmp_path, "a.md", "b.mdx")
    assert [page.format for page in MarkdownTree(tmp_path).pages()] == ["markdown", "mdx"]


def test_one_file_is_a_book(tmp_path: Path) -> None:
    make(tmp_path, "a.md", "b.md")
    assert urls(tmp_path / "a.md") == ["a"]


def test_a_loop_of_links_ends(tmp_path: Path) -> None:
    make(tmp_path, "a/b.md")
    os.symlink(tmp_path, tmp_path / "a" / "loop")
    assert urls(tmp_path) == ["a/b"]


@pytest.mark.parametrize(("path", "name"), [("robots", "robots"), ("robots/docs", "robots"), ("robots/website/docs", "robots")])
def test_the_books_name(tmp_path: Path, path: str, name: str) -> None:
    make(tmp_path / path, "a.md")
    assert MarkdownTree(tmp_path / path).book == name
    assert MarkdownTree(tmp_path / path, book="given").book == "given"


def test_titles_of_pages_that_state_none(tmp_path: Path) -> None:
    make(tmp_path, "module-1-x/setting_up-robots.md", "module-1-x/index.md")
    assert [page.title for page in MarkdownTree(tmp_path).pages()] == ["Module 1 x", "Setting up robots"]
