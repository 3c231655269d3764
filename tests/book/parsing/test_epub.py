"""EPUBs: spine, navigation, anchors; and archives that must not be read."""

from __future__ import annotations

import stat
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from recto.book.parsing import read
from recto.book.parsing.epub import split_epub
from recto.book.sources.options import SiteOptions
from recto.book.sources.tree import open_book
from recto.errors import InvalidArgument
from tests.book.files import write
from tests.book.parsing.builders import CONTAINER, epub, page_of, zipped

PAGES = {
    "intro.xhtml": '<h1>Welcome</h1><p>Hello <a id="here"/>there.</p>',
    "text/one.xhtml": '<h2 id="s">A section</h2><p>Energy is <math><mi>E</mi><annotation encoding="application/x-tex">'
    "E=mc^2</annotation></math>.</p><table><tr><th>A</th></tr><tr><td>1</td></tr></table>",
    "text/two.xhtml": "<h1>Two</h1><pre><code>x = 1</code></pre>",
}
NAVIGATION = (
    '<li><a href="intro.xhtml">Introduction</a></li><li><a href="text/one.xhtml">Part one</a><ol>'
    '<li><a href="text/one.xhtml#s">A section</a></li><li><a href="text/two.xhtml">Chapter two</a></li></ol></li>'
)
BOOK = epub(PAGES, NAVIGATION)
BOMB = b"0" * (17 << 20)


def test_the_spine_and_the_navigation_make_pages() -> None:
    volume = split_epub(BOOK)
    assert volume.title == "A small book"
    assert [(part.name, part.title, part.section) for part in volume.parts] == [
        ("OEBPS/intro.xhtml", "Introduction", ""),
        ("OEBPS/text/one.xhtml", "Part one", "Part one"),
        ("OEBPS/text/two.xhtml", "Chapter two", "Part one"),
    ]
    one, two, three = (read(page_of(part.text, "epub", part.title)) for part in volume.parts)
    assert (one.title, two.title, three.title) == ("Introduction", "Part one", "Chapter two")
    assert one.sections[0].headings == ("Introduction", "Welcome")
    assert one.sections[0].blocks[0].text == "Hello there."
    assert one.sections[0].anchors == ((5, "here"),)
    assert two.sections[0].headings == ("Part one", "A section")
    assert two.sections[0].anchor == "s"
    shown = [block.text for block in two.sections[0].blocks]
    assert shown == ["Energy is $E=mc^2$.", "| A |\n| --- |\n| 1 |"]
    assert three.sections[0].blocks[0].text == "```\nx = 1\n```"


def test_a_book_is_one_file(tmp_path: Path) -> None:
    (tmp_path / "small.epub").write_bytes(BOOK)
    book = open_book(tmp_path / "small.epub")
    pages = list(book.pages())
    assert (book.book, book.info.title, len(pages)) == ("small", "A small book", 3)
    assert [page.url for page in pages][1] == "local://docs/docs/small/OEBPS/text/one"
    assert [(page.module, page.module_title) for page in pages] == [
        ("intro", "A small book"),
        ("part-one", "Part one"),
        ("part-one", "Part one"),
    ]
    published = open_book(tmp_path / "small.epub", SiteOptions("https://example.org/files"))
    assert next(iter(published.pages())).url == "https://example.org/files/small.epub?OEBPS/intro.xhtml"


def test_a_book_in_a_tree(tmp_path: Path) -> None:
    write(tmp_path, {"page.md": "# Page\n\nText.\n"})
    tree = open_book(write(tmp_path / "part", {"small.epub": BOOK, "broken.epub": BOOK[:100]}).parent)
    assert [(page.path, page.module) for page in tree.pages()] == [
        ("page.md", "intro"),
        *((f"part/small.epub/OEBPS/{name}", "part") for name in PAGES),
    ]
    (failure,) = tree.failed
    assert failure.covers("part/broken.epub/OEBPS/intro.xhtml"), "its pages stay in the index"
    assert "the EPUB is damaged" in failure.reason


def _link() -> bytes:
    buffer = BytesIO(BOOK)
    with zipfile.ZipFile(buffer, "a") as archive:
        link = zipfile.ZipInfo("OEBPS/link.xhtml")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    return buffer.getvalue()


ENCRYPTED = '<encryption><EncryptedData><EncryptionMethod Algorithm="http://www.w3.org/2001/04/xmlenc#aes128-cbc"/></EncryptedData></encryption>'
FONTS = ENCRYPTED.replace("http://www.w3.org/2001/04/xmlenc#aes128-cbc", "http://www.idpf.org/2008/embedding")
ENTITIES = '<!DOCTYPE a [<!ENTITY b "bbbb">]>' + CONTAINER.partition("?>")[2]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "damaged"),
        (BOOK[:200], "damaged"),
        (zipped({"mimetype": "application/epub+zip"}), "damaged: it has no META-INF/container.xml"),
        (epub(PAGES, NAVIGATION, {"../outside.xhtml": "x"}), "a path that leaves the book"),
        (epub(PAGES, NAVIGATION, {"/etc/passwd": "x"}), "a path that leaves the book"),
        (_link(), "a symbolic link: 'OEBPS/link.xhtml'"),
        (epub(PAGES, NAVIGATION, {"META-INF/encryption.xml": ENCRYPTED}), "it is encrypted"),
        (epub(PAGES, NAVIGATION, {"META-INF/container.xml": ENTITIES}), "XML entities"),
        (epub(PAGES, NAVIGATION, {"OEBPS/intro.xhtml": BOMB}), "too large when it is unpacked"),
        (epub({}, NAVIGATION), "its spine lists no page"),
        (epub(PAGES, NAVIGATION, {"OEBPS/book.opf": "<package"}), "OEBPS/book.opf is not well-formed"),
    ],
)
def test_an_archive_that_cannot_or_must_not_be_read(data: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "book.epub").write_bytes(data)
    with pytest.raises(InvalidArgument, match=f"cannot be read: .*{reason}"):
        open_book(tmp_path / "book.epub")


def test_fonts_may_be_obfuscated_and_navigation_may_be_absent() -> None:
    volume = split_epub(epub(PAGES, "", {"META-INF/encryption.xml": FONTS}))
    assert [part.title for part in volume.parts] == ["", "", ""], "the pages have titles of their own"
