"""Formats of pages by file suffix, and their front matter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from recto.book.parsing import format_of, page_suffixes, read, reader_version
from recto.book.parsing.frontmatter import split_front_matter
from recto.book.sources.tree import MarkdownTree, open_book
from recto.errors import ConfigurationError, InvalidArgument
from recto.indexing.planner import PageState
from recto.testing import HashEmbedder
from tests.book.files import write, write_pages
from tests.library import write_index

READER = """
from recto.types.book import Block, Document, Section

def read(page):
    if "broken" in page.text:
        raise ValueError("a broken page")
    if "list" in page.text:
        return []
    block = Block("paragraph", page.text.strip(), 1, 1)
    empty = Section(("T", "Empty"), 2, "empty", 2, ())
    return Document("" if "untitled" in page.text else "T", (Section(("T",), 1, "", 1, (block,)), empty))
"""
DOCUSAURUS = "module.exports = {url: 'https://x.org', baseUrl: '/', presets: [['classic', {docs: {}}]]}"
Install = Callable[..., None]
ORG = {"recto.readers": "org = demo_reader:read"}


@pytest.mark.parametrize(
    ("format", "names"),
    [
        ("markdown", "a.md docs/A.MD a.markdown"),
        ("mdx", "a.mdx"),
        ("rst", "a.rst"),
        ("ipynb", "a.ipynb"),
        ("qmd", "a.qmd a.Rmd"),
        ("epub", "a.EPUB"),
        ("pdf", "a.pdf"),
        ("asciidoc", "a.adoc a.asc a.asciidoc"),
        (None, "a.html a.txt md"),
    ],
)
def test_format_by_suffix(format: str | None, names: str) -> None:
    assert {getattr(format_of(name), "name", None) for name in names.split()} == {format}


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """A book of one page in Org mode."""
    return write(tmp_path / "book", {"guide.org": "Plain text.\n"})


def test_a_reader_of_a_plugin_reads_files_with_its_suffix(book: Path, install_plugin: Install) -> None:
    with pytest.raises(InvalidArgument, match=r"no \.md, .* or \.pdf file"):
        MarkdownTree(book)
    install_plugin("demo-reader", ORG, READER)
    assert ".org" in page_suffixes()
    (page,) = MarkdownTree(book).pages()
    assert (page.format, page.url) == ("org", "local://docs/docs/guide")
    document = read(page)
    assert [section.blocks[0].text for section in document.sections] == ["Plain text."], "no empty section"
    assert read(replace(page, text="untitled")).title == page.title == "Guide"
    with pytest.raises(InvalidArgument, match=r"no \.md, .* or \.org file"):
        MarkdownTree(book.parent / "site-packages" / "demo-reader" / "demo_reader-1.0.dist-info")


def test_a_page_that_the_reader_cannot_read(book: Path, tmp_path: Path, install_plugin: Install) -> None:
    install_plugin("demo-reader", ORG, READER)
    write(book, {"index.org": "broken", "list.org": "a list"})
    report = write_index(book, HashEmbedder(), tmp_path, "book")
    assert report.info.chunks == 1
    assert [str(failure) for failure in report.plan.failed] == [
        "index.org: it cannot be read (ValueError: a broken page)",
        "list.org: it cannot be read (TypeError: the reader returned list instead of a Document)",
    ]


def test_a_new_version_reads_pages_again(book: Path, tmp_path: Path, install_plugin: Install) -> None:
    install_plugin("demo-reader", ORG, READER)
    states = [write_index(book, HashEmbedder(), tmp_path, "book").plan.pages[0].state for _ in range(2)]
    assert states == [PageState.NEW, PageState.UNCHANGED]
    metadata = tmp_path / "site-packages" / "demo-reader" / "demo_reader-1.0.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text().replace("Version: 1.0", "Version: 1.1"))
    reader_version.cache_clear()
    assert write_index(book, HashEmbedder(), tmp_path, "book").plan.pages[0].state is PageState.CHANGED


VOLUMES = """
from recto.types.book import Part, Volume

def split(data):
    title, *parts = data.decode().split("\\n")
    if title == "list":
        return parts
    return Volume(title, tuple(Part(f"{n}.txt", text.title(), text) for n, text in enumerate(parts)))
"""


def test_a_plugin_reads_files_that_hold_many_pages(tmp_path: Path, install_plugin: Install) -> None:
    groups = {**ORG, "recto.volumes": "org = demo_reader:split"}
    install_plugin("demo-reader", groups, READER + VOLUMES)
    file = write(tmp_path / "book", {"all.org": "Bees\nhive\nhoney"}) / "all.org"
    volume = open_book(file)
    assert volume.info.title == "Bees"
    assert [(page.path, page.title, page.format) for page in volume.pages()] == [
        ("all.org/0.txt", "Hive", "org"),
        ("all.org/1.txt", "Honey", "org"),
    ]
    (tmp_path / "book" / "index.md").write_text("# Home\n\nText.\n")
    report = write_index(tmp_path / "book", HashEmbedder(), tmp_path, "book")
    assert [page.path for page in report.plan.pages] == ["all.org/0.txt", "all.org/1.txt", "index.md"]
    file.write_text("list\nhive")
    with pytest.raises(InvalidArgument, match="the plugin returned list instead of a Volume"):
        open_book(file)


@pytest.mark.parametrize("suffix", ["md", ".MDX", "html"])
def test_a_plugin_cannot_replace_a_built_in_format(book: Path, install_plugin: Install, suffix: str) -> None:
    install_plugin("demo-reader", {"recto.readers": f"{suffix} = demo_reader:read"}, READER)
    with pytest.raises(ConfigurationError, match=r"demo-reader 1.0 has a reader for \.\w+, which Recto"):
        MarkdownTree(book)


def test_a_plugin_can_replace_the_reader_of_another_format(book: Path, install_plugin: Install) -> None:
    install_plugin("demo-reader", {"recto.readers": "rst = demo_reader:read"}, READER)
    (book / "page.rst").write_text("Title\n=====\n\nText.\n")
    (page,) = MarkdownTree(book).pages()
    assert read(page).title == "T", "the plugin's"


@pytest.mark.parametrize("suffix", ["pdf", "epub"])
def test_a_format_without_its_extra(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recto.book.parsing._is_installed", lambda _: False)
    (tmp_path / f"a.{suffix}").write_text("x")
    with pytest.raises(ConfigurationError) as caught:  # the exit code is 2
        open_book(tmp_path / f"a.{suffix}")
    assert f"Reading them needs the extra `{suffix}`: uv sync --extra {suffix}" in caught.value.hint
    (tmp_path / "a.md").write_text("# A\n\nText.\n")
    assert [page.path for page in open_book(tmp_path).pages()] == ["a.md"], "the others are read"


def test_a_docusaurus_site_reads_no_other_formats(tmp_path: Path) -> None:
    write_pages(tmp_path, "docs/a.md", "docs/b.rst", "docs/c.ipynb", "docs/d.pdf", "docs/e.qmd")
    write(tmp_path, {"docusaurus.config.js": DOCUSAURUS})
    assert [page.path for page in open_book(tmp_path).pages()] == ["a.md"]


def test_a_reader_that_cannot_be_imported(book: Path, install_plugin: Install) -> None:
    install_plugin("demo-reader", ORG, "import a_package_that_nobody_has")
    (book / "page.md").write_text("# Page\n\nText.\n")
    pages = {page.path: page for page in MarkdownTree(book).pages()}
    assert read(pages["page.md"]).title == "Page", "other formats do not need it"
    with pytest.raises(ConfigurationError, match="'org' of demo-reader cannot be loaded: ModuleNotFound"):
        read(pages["guide.org"])


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
