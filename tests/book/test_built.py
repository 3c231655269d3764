"""Built sites on disk: which HTML files are pages, their order and addresses."""

from __future__ import annotations

from pathlib import Path

import pytest

from recto.book.parsing.formats import read
from recto.book.sources.options import SiteOptions
from recto.book.sources.tree import open_book
from recto.errors import InvalidArgument
from tests.book.files import write

PAGE = (
    "<html><head><title>{0} - My book</title></head><body><main><h1 id=a>{0}</h1><p>Text of {0}.</p></main>"
)
LINKS = '<nav><a href="part/two.html#x">Two</a><a href="one/">One</a><a href="https://x.org/">X</a></nav>'


@pytest.fixture
def site(tmp_path: Path) -> Path:
    names = ("one/index.html", "part/two.html", "404.html", "_static/x.html", "genindex.html", "three.html")
    files = {name: PAGE.format(name.partition(".")[0]) for name in names}
    redirect = '<meta http-equiv="refresh" content="0; url=one/">'
    index = PAGE.format("Home").replace("<main>", f"{LINKS}<main>")
    return write(
        tmp_path / "html", {**files, "index.html": index, "old.html": redirect, "a.js": "", "README.md": "x"}
    )


def test_html_files_are_pages_in_the_order_of_the_links(site: Path) -> None:
    (site / "README.md").unlink()
    book = open_book(site, SiteOptions("https://example.org/book"))
    assert [(page.path, page.url) for page in book.pages()] == [
        ("index.html", "https://example.org/book/"),
        ("part/two.html", "https://example.org/book/part/two.html"),
        ("one/index.html", "https://example.org/book/one/"),
        ("three.html", "https://example.org/book/three.html"),
    ]
    assert book.notes == ["Left out: 1 redirecting page."]
    home = next(iter(open_book(site).pages()))
    assert (home.format, home.url) == ("html", "local://docs/docs")
    document = read(home)
    assert (document.title, document.sections[0].blocks[0].text) == ("Home", "Text of Home.")


def test_html_beside_other_pages_is_build_output(site: Path) -> None:
    (site / "page.md").write_text("# Page\n\nText.\n")
    assert [page.path for page in open_book(site).pages()] == ["README.md", "page.md"]


def test_a_directory_without_pages_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"")
    with pytest.raises(InvalidArgument, match=r"There is no \.md"):
        open_book(tmp_path)
