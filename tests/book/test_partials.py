"""Partials: what a page imports and shows is part of it."""

from __future__ import annotations

from pathlib import Path

from recto.book.chunker import DEFAULT_SIZE, chunk_page
from recto.book.reading import read
from recto.book.tree import open_book
from recto.types import Page

CONFIG = "export default {url: 'https://x.org', baseUrl: '/', presets: [['classic', {docs: {}}]]};"
PAGE = """---
title: Page
---
import Setup from './_setup.mdx';
import Gone from "./_gone.mdx"
import Out from '../../../outside.mdx';
import Tabs from '@theme/Tabs';

Before.

<Setup os="linux" />

<Gone />
<Out/>

## After

The end.
"""


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("DOT", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def site(tmp_path: Path) -> Path:
    root = tmp_path / "site"
    write(root, docusaurusDOTconfigDOTjs=CONFIG, docs__guide__pageDOTmdx=PAGE)
    write(
        root,
        docs__guide___setupDOTmdx="---\nx: 1\n---\nimport Deep from '@site/docs/_deep.mdx';\n\n## Install\n\nUse the package.\n\n<Deep/>\n",
    )
    write(root, docs___deepDOTmdx="### Deeper\n\nEven deeper words.\n\nimport Self from './_deep.mdx'\n\n<Self />\n")
    (tmp_path / "outside.mdx").write_text("A secret.")
    return root


def only_page(root: Path) -> Page:
    (page,) = open_book(root).pages()
    return page


def test_text_and_anchors_of_a_partial_belong_to_the_page(tmp_path: Path) -> None:
    page = only_page(site(tmp_path))
    passages = chunk_page(page, read(page), "book", lambda text: len(text.split()), 512, DEFAULT_SIZE)
    text = "\n".join(passage.chunk.text for passage in passages)
    assert text.index("Before.") < text.index("Use the package.") < text.index("Even deeper words.") < text.index("The end.")
    assert {"install", "deeper", "after"} <= {anchor for passage in passages for anchor in passage.chunk.anchors}
    assert "secret" not in text


def test_a_file_that_imports_itself_ends(tmp_path: Path) -> None:
    assert 1 < only_page(site(tmp_path)).text.count("Even deeper words.") <= 5


def test_lines_are_the_files_own(tmp_path: Path) -> None:
    page = only_page(site(tmp_path))
    lines = PAGE.split("\n")
    assert len(page.lines) == len(page.text.split("\n"))
    for text, origin in zip(page.text.split("\n"), page.lines, strict=True):
        assert lines[origin - 1] == text or lines[origin - 1] == '<Setup os="linux" />'


def test_a_changed_partial_changes_the_page(tmp_path: Path) -> None:
    root = site(tmp_path)
    before = only_page(root).revision
    write(root, docs__guide___setupDOTmdx="Other words.\n")
    after = only_page(root)
    assert after.revision != before
    assert "Other words." in after.text


def test_a_page_without_partials_is_as_written(tmp_path: Path) -> None:
    root = tmp_path / "site"
    write(root, docusaurusDOTconfigDOTjs=CONFIG, docs__pageDOTmdx="import X from './x.mdx'\n\ntext\n")
    page = only_page(root)
    assert (page.text, page.lines) == ("import X from './x.mdx'\n\ntext\n", ())
