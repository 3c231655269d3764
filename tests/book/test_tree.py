"""Trees of files, built sites on disk, and `recto.toml`: which files are pages, their order, URLs and modules."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from recto.book.parsing.formats import read
from recto.book.sources.options import SiteOptions, read_book_file
from recto.book.sources.tree import MarkdownTree, open_book
from recto.errors import ConfigurationError, InvalidArgument
from tests.book.files import write, write_pages


def urls(root: Path) -> list[str]:
    return [page.url.removeprefix("local://docs/docs/") for page in MarkdownTree(root).pages()]


def test_urls_follow_file_names(tmp_path: Path) -> None:
    names = ["index.md", "intro.md", "m-1/01-start.md", "m-1/README.md", "m-1/deep/02-more.mdx"]
    write_pages(tmp_path, *names)
    assert urls(tmp_path) == ["local://docs/docs", "intro", "m-1/01-start", "m-1", "m-1/deep/02-more"]
    assert urls(tmp_path / "intro.md") == ["intro"], "one file is a book"


def modules(root: Path) -> list[tuple[str, str]]:
    return list(dict.fromkeys((page.module, page.module_title) for page in open_book(root).pages()))


def test_a_directory_that_only_holds_docs(tmp_path: Path) -> None:
    """As in a site, the directories in `docs` are the modules; paths and URLs stay as they are."""
    book = write_pages(tmp_path / "my-book", "docs/start.md", "docs/1-soil/a.md", "docs/1-soil/deep/b.md")
    write(book, {"docs/2-seeds/index.md": "# All about seeds\n\ntext\n", "pictures/a.png": b""})
    assert modules(book) == [("soil", "Soil"), ("seeds", "All about seeds"), ("intro", "Introduction")]
    assert modules(book) == modules(book / "docs")
    assert urls(book) == ["docs/1-soil/a", "docs/1-soil/deep/b", "docs/2-seeds", "docs/start"]
    (book / "recto.toml").write_text('[modules]\nplants = ["docs/2-seeds"]\n')
    assert modules(book)[1][0] == "plants"
    write_pages(book, "README.md")
    assert {name for name, _ in modules(book)} == {"docs", "plants", "intro"}, "other layouts are as before"


def test_docs_without_directories(tmp_path: Path) -> None:
    book = write_pages(tmp_path / "my-book", "docs/a.md", "docs/b.md")
    assert modules(book) == [("intro", "My book")]
    (book / "docs" / "index.md").write_text("# A book on soil\n\ntext\n")
    assert modules(book) == [("intro", "A book on soil")]
    assert modules(write_pages(tmp_path / "other", "a.md")) == [("intro", "Introduction")]


def test_files_that_are_not_pages(tmp_path: Path) -> None:
    names = "a.md _partial.md _drafts/b.md .hidden/c.md node_modules/p/d.md build/e.md notes.txt"
    write_pages(tmp_path, *names.split())
    assert urls(tmp_path) == ["a"]


def test_docusaurus_docs_are_read_as_mdx(tmp_path: Path) -> None:
    write_pages(tmp_path, "README.md", "blog/post.md", "docs/intro.md")
    (tmp_path / "docusaurus.config.ts").touch()
    for root in (tmp_path, tmp_path / "docs"):
        (page,) = MarkdownTree(root).pages()
        assert (page.url, page.format) == ("local://docs/docs/intro", "mdx")


@pytest.mark.parametrize("path", ["robots", "robots/docs", "robots/website/docs"])
def test_book_name(tmp_path: Path, path: str) -> None:
    write_pages(tmp_path / path, "a.md")
    assert MarkdownTree(tmp_path / path).book == "robots"
    assert MarkdownTree(tmp_path / path, book="given").book == "given"


def test_unreadable_files_are_reported_and_the_rest_is_read(tmp_path: Path) -> None:
    book = write_pages(tmp_path / "book", "a.md", "part/b.md")
    write_pages(tmp_path, "outside.md")
    os.symlink(tmp_path / "outside.md", book / "linked.md")
    os.symlink(book / "a.md", book / "within.md")
    os.symlink(book / "self.md", book / "self.md")
    os.mkfifo(book / "pipe.md")
    (book / "large.md").write_bytes(b"x" * ((2 << 20) + 1))
    (book / "latin.md").write_bytes(b"caf\xe9")
    with open(os.fsencode(book) + b"/name\xff.md", "wb") as file:
        file.write(b"# Name\n")
    for source in (MarkdownTree(book), open_book(book)):
        assert [page.path for page in source.pages()] == ["a.md", "part/b.md", "within.md"]
        reasons = {failure.path: failure.reason for failure in source.failed}
        assert reasons.pop("self.md")
        assert reasons == {
            "linked.md": "it is a symbolic link that leaves the book",
            "pipe.md": "it is not a regular file",
            "large.md": "it has 2.0 MiB, and the limit is 2 MiB (split it into several pages)",
            "latin.md": "not UTF-8 (byte 3)",
            "name\\udcff.md": "its name is not UTF-8",
        }


def test_links_to_directories_are_not_followed(tmp_path: Path) -> None:
    write_pages(tmp_path, "a/b.md", "other/c.md")
    os.symlink(tmp_path / "other", tmp_path / "a" / "more")
    os.symlink(tmp_path / "a", tmp_path / "a" / "loop")
    source = open_book(tmp_path / "a")
    assert [page.path for page in source.pages()] == ["b.md"]
    note = "/ is a symbolic link to a directory; such links are not followed."
    assert sorted(source.notes) == [f"loop{note}", f"more{note}"]


@contextmanager
def as_somebody() -> Iterator[None]:
    """Drop the privilege to read everything, if this user has it."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


def test_unreadable_directories_are_reported_and_the_rest_is_read() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        root.chmod(0o755)
        write_pages(root, "a.md", "closed/b.md", "secret.md")
        (root / "closed").chmod(0)
        (root / "secret.md").chmod(0)
        with as_somebody():
            source = open_book(root)
            assert [page.path for page in source.pages()] == ["a.md"]
        (root / "closed").chmod(0o700)
    reason = "Permission denied (give yourself permission to read it)"
    assert {one.path: one.reason for one in source.failed} == {"closed/": reason, "secret.md": reason}


@pytest.mark.parametrize(
    "config", ["", "module.exports = {docs: 'd'}", "export default {url: 'https://x.y'}"]
)
def test_unreadable_site_is_read_as_a_tree_or_refused(tmp_path: Path, config: str) -> None:
    write(write_pages(tmp_path, "docs/a.md"), {"docusaurus.config.js": config})
    with pytest.raises(ConfigurationError) as error:
        open_book(tmp_path)
    assert "the directory of the pages itself" in error.value.hint
    source = open_book(tmp_path / "docs")
    (page,) = source.pages()
    assert (page.url, page.format) == ("local://docs/docs/a", "mdx")
    assert "without the site's own rules" in source.notes[0]


def test_directory_beside_the_docs_is_a_plain_tree(tmp_path: Path) -> None:
    write_pages(tmp_path, "docs/01-a.md", "notes/01-b.md")
    config = "module.exports = {url: 'https://x.org', presets: ['classic']}"
    write(tmp_path, {"docusaurus.config.js": config})
    assert [page.url for page in open_book(tmp_path / "notes").pages()] == ["local://docs/docs/01-b"]
    assert [page.url for page in open_book(tmp_path / "docs").pages()] == ["https://x.org/docs/a"]


def test_invalid_site_url_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="--site-url"):
        open_book(write_pages(tmp_path, "a.md"), SiteOptions(url="example.org"))


def test_site_in_a_subdirectory_is_noted(tmp_path: Path) -> None:
    write_pages(tmp_path, "README.md", "website/docs/a.md")
    write(tmp_path, {"website/docusaurus.config.js": "module.exports = {presets: ['classic']}"})
    source = open_book(tmp_path)
    assert len(list(source.pages())) == 2
    (note,) = source.notes
    assert note == "website/ is a separate site. Pass its directory instead, to get its published URLs."


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """A built site: a page that lists others, two that are not listed, and files that are not pages."""
    text = "<title>{0} - My book</title><main><h1 id=a>{0}</h1><p>Text of {0}.</p></main>"
    names = ("one/index.html", "part/two.html", "404.html", "_static/x.html", "genindex.html", "three.html")
    links = '<nav><a href="part/two.html#x">Two</a><a href="one/">One</a><a href="https://x.org/">X</a></nav>'
    index = text.format("Home").replace("<main>", f"{links}<main>")
    files = {name: text.format(name) for name in names} | {"index.html": index, "a.js": ""}
    return write(tmp_path, files | {"old.html": '<meta http-equiv="refresh" content="0; url=one/">'})


def test_built_pages_are_in_the_order_of_the_links(built: Path) -> None:
    book = open_book(built, SiteOptions("https://example.org/book"))
    assert [(page.path, page.url.removeprefix("https://example.org/book/")) for page in book.pages()] == [
        ("index.html", ""),
        ("part/two.html", "part/two.html"),
        ("one/index.html", "one/"),
        ("three.html", "three.html"),
    ]
    assert book.notes == ["Left out: 1 redirecting page."]
    home = next(iter(open_book(built).pages()))
    assert (home.format, home.url) == ("html", "local://docs/docs")
    document = read(home)
    assert (document.title, document.sections[0].blocks[0].text) == ("Home", "Text of Home.")


def test_html_beside_other_pages_is_build_output(built: Path) -> None:
    write_pages(built, "README.md", "page.md")
    assert [page.path for page in open_book(built).pages()] == ["README.md", "page.md"]


def test_a_directory_without_pages_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"There is no \.md"):
        open_book(write(tmp_path, {"a.png": b""}))


WHOLE = """
[site]
url = "https://example.org/book/"
route_base_path = "docs"
trailing_slash = false
version = "1.0"
locale = "fr"
title = "Robots"
exclude = ["tutorial-*/**"]

[modules]
ros2 = ["module-1-ros2", "ros2-fundamentals/"]
Deep = ["module-1-ros2/deep"]
"""


def with_book_file(folder: Path, text: str, *names: str) -> Path:
    return write(write_pages(folder, *(names or ("a.md",))), {"recto.toml": text})


def test_all_keys_are_read(tmp_path: Path) -> None:
    file = read_book_file(tmp_path, with_book_file(tmp_path / "b", WHOLE))
    assert file.options == SiteOptions("https://example.org/book/", "docs", False, "1.0", "fr", "Robots")
    assert file.exclude == ("tutorial-*/**",)
    assert file.modules == {"ros2": ("module-1-ros2", "ros2-fundamentals"), "deep": ("module-1-ros2/deep",)}


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("[sites]", "unknown key sites", "Did you mean site?"),
        ("[site]\nbase_url = ''", "unknown key site.base_url", "site."),
        ("[site]\nexlude = []", "unknown key site.exlude", "Did you mean site.exclude?"),
        ("[site]\nversion = 1.0", "site.version must be text", "quotes"),
        ("[site]\ntrailing_slash = 'no'", "site.trailing_slash must be true or false", "without quotes"),
        ("[site]\nexclude = 'a'", "site.exclude must be a list of strings", "drafts"),
        ("[site]\nurl = 'example.org'", "site.url is not the URL of a website", "https://"),
        ("site = 1", "site must be a table", "[site]"),
        ("[modules]\nros2 = 'x'", "modules.ros2 must be a list of strings", ""),
        ("[site", "cannot be read", "TOML"),
    ],
)
def test_an_error_names_the_invalid_key(tmp_path: Path, text: str, message: str, hint: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as error:
        read_book_file(with_book_file(tmp_path, text))
    assert str(tmp_path / "recto.toml") in str(error.value)
    assert hint in error.value.hint


def test_plain_tree_with_a_site_url(tmp_path: Path) -> None:
    names = ("index.md", "a b.md", "part/README.md", "part/c.mdx")
    root = with_book_file(tmp_path, "[site]\nurl = 'https://x.org/book'", *names)
    assert {page.path: page.url.removeprefix("https://x.org/book/") for page in open_book(root).pages()} == {
        "a b.md": "a%20b",
        "index.md": "",
        "part/README.md": "part/",
        "part/c.mdx": "part/c",
    }
    options = SiteOptions(url="https://y.org/", trailing_slash=True)
    urls = [page.url for page in open_book(root / "part", options).pages()]
    assert urls == ["https://y.org/", "https://y.org/c/"]


def test_modules_and_exclude(tmp_path: Path) -> None:
    names = "module-1-ros2/a.md module-1-ros2/deep/b.md ros2-fundamentals/c.md tutorial-basics/d.md e.md"
    pages = open_book(with_book_file(tmp_path, WHOLE, *names.split())).pages()
    assert {page.path: page.module_keys for page in pages} == {
        "module-1-ros2/a.md": ("ros2", "module-1-ros2"),
        "module-1-ros2/deep/b.md": ("deep", "ros2", "module-1-ros2"),
        "ros2-fundamentals/c.md": ("ros2", "ros2-fundamentals"),
        "e.md": ("intro",),
    }


def test_file_beside_a_site(tmp_path: Path) -> None:
    text = WHOLE.replace('version = "1.0"', "")
    root = with_book_file(tmp_path, text, "docs/module-1-ros2/01-a.md", "docs/tutorial-basics/b.md")
    config = "module.exports = {i18n: {defaultLocale: 'fr', locales: ['fr']}, presets: ['classic']}"
    write(root, {"docusaurus.config.js": config})
    for given in (root, root / "docs", root / "docs" / "module-1-ros2"):
        (page,) = open_book(given).pages()
        assert (page.url, page.module) == ("https://example.org/book/docs/module-1-ros2/a", "ros2")
    options = SiteOptions(url="https://z.org", trailing_slash=True, route_base_path="/")
    assert [page.url for page in open_book(root, options).pages()] == ["https://z.org/module-1-ros2/a/"]
