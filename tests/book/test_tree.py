"""Books on disk: which files are pages, their order, URLs and modules, `recto.toml`, the title and the logo."""

from __future__ import annotations

import os
from base64 import b64decode
from pathlib import Path

import pytest

from recto.book.parsing import read
from recto.book.sources import SourceOptions, open_source
from recto.book.sources.options import SiteOptions, read_book_file
from recto.book.sources.tree import BookTree, MarkdownTree, open_book
from recto.book.sources.website import CrawlOptions
from recto.book.sources.website.crawl import WebsiteSource
from recto.errors import ConfigurationError, InvalidArgument
from tests.book.files import write, write_pages
from tests.doubles.site import SiteDouble, page


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


@pytest.mark.parametrize("path", ["robots", "robots/docs", "robots/website/docs"])
def test_book_name(tmp_path: Path, path: str) -> None:
    write_pages(tmp_path / path, "a.md")
    assert MarkdownTree(tmp_path / path).book == "robots"
    assert MarkdownTree(tmp_path / path, book="given").book == "given"


def test_links_to_directories_are_not_followed(tmp_path: Path) -> None:
    write_pages(tmp_path, "a/b.md", "other/c.md")
    os.symlink(tmp_path / "other", tmp_path / "a" / "more")
    os.symlink(tmp_path / "a", tmp_path / "a" / "loop")
    source = open_book(tmp_path / "a")
    assert [page.path for page in source.pages()] == ["b.md"]
    note = "/ is a symbolic link to a directory; such links are not followed."
    assert sorted(source.notes) == [f"loop{note}", f"more{note}"]


@pytest.mark.parametrize("config", ["", "module.exports = {docs: 'd'}", "export default {url: 'http://x.y'}"])
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


def test_the_site_below_the_root_of_a_repository(tmp_path: Path) -> None:
    repository = write_pages(tmp_path / "lamps", "README.md", "notes/a.md", "docs/en/docs/a.md")
    write(repository, {"docs/en/mkdocs.yml": "site_name: Lamps\nsite_url: https://x.org\n", ".git/HEAD": ""})
    source = open_book(repository)
    assert [page.url for page in source.pages()] == ["https://x.org/a/"]
    assert source.notes == ["The site in docs/en/ is the book. To read all files, add --generator plain."]
    assert source.book == "lamps"
    assert len(open_book(repository, SiteOptions(generator="plain"))) == 3
    write(write_pages(repository, "doc/a.rst"), {"doc/source/conf.py": "extensions = []\n"})
    with pytest.raises(InvalidArgument, match="There are 2 sites below") as error:
        open_book(repository)
    assert f"`recto index {repository}/docs/en`" in error.value.hint
    assert f"`recto index {repository}/doc`" in error.value.hint


def test_a_site_in_another_directory_is_noted(tmp_path: Path) -> None:
    write_pages(tmp_path, "README.md", "demo/docs/a.md")
    write(tmp_path, {"demo/docusaurus.config.js": "module.exports = {presets: ['classic']}"})
    source = open_book(tmp_path)
    assert len(list(source.pages())) == 2
    (note,) = source.notes
    assert note == f"demo/ is a separate site. To get its published URLs: `recto index {tmp_path}/demo`"


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """A built site: a page that lists others, two that are not listed, and files that are not pages."""
    text = "<title>{0} - My book</title><main><h1 id=a>{0}</h1><p>Text of {0}.</p></main>"
    names = ["one/index.html", "part/two.html", "404.html", "_static/x.html", "genindex.html", "three.html"]
    names += ["genindex/index.html", "search/index.html", "genindex-A.html"]
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


SVG = b"<svg xmlns='http://www.w3.org/2000/svg'/>"


def book(root: Path, files: dict[str, str | bytes]) -> BookTree:
    opened = open_book(write(write_pages(root, "docs/a.md"), files))
    assert isinstance(opened, BookTree)
    return opened


def config(values: str) -> dict[str, str | bytes]:
    return {"docusaurus.config.js": f"module.exports = {{presets: [['classic', {{}}]], {values}}};"}


def docusaurus(root: Path, values: str, **files: str | bytes) -> BookTree:
    named = {name.replace("_", "/", 1).replace("_", "."): content for name, content in files.items()}
    return book(root, {**config(values), **named})


def test_logo_of_a_docusaurus_site_else_its_icon(tmp_path: Path) -> None:
    logo = "favicon: 'icon.png', themeConfig: {navbar: {logo: {src: '/logo.svg'}}}"
    both = docusaurus(tmp_path / "both", logo, static_logo_svg=SVG, static_icon_png=b"png")
    kind, _, data = both.info.logo.partition(",")
    assert (kind, b64decode(data)) == ("data:image/svg+xml;base64", SVG)
    icon = docusaurus(tmp_path / "icon", logo, static_icon_png=b"png")
    assert icon.info.logo.startswith("data:image/png;base64,")
    other = "staticDirectories: ['public', 'static'], favicon: 'icon.png'"
    assert docusaurus(tmp_path / "other", other, public_icon_png=b"png").info.logo == icon.info.logo


@pytest.mark.parametrize(
    "src", ["https://x.y/a.svg", "large.png", "a.html", "../../a.png", "\\0.png", "link.png"]
)
def test_logos_that_are_not_read(tmp_path: Path, src: str) -> None:
    (tmp_path / "a.png").write_bytes(b"secret")
    (tmp_path / "site" / "static").mkdir(parents=True)
    (tmp_path / "site" / "static" / "link.png").symlink_to(tmp_path / "a.png")
    values = f"themeConfig: {{navbar: {{logo: {{src: '{src}'}}}}}}"
    files = {"static_large_png": b"x" * 40_000, "static_a_html": b"<p>"}
    assert docusaurus(tmp_path / "site", values, **files).info.logo == ""


def test_title_and_logo_of_a_mkdocs_site(tmp_path: Path) -> None:
    values = "site_name: Bees\ntheme:\n  name: material\n  logo: img/bee.webp\n"
    source = book(tmp_path, {"mkdocs.yml": values, "docs/img/bee.webp": b"webp"})
    assert (source.info.title, source.info.logo) == ("Bees", "data:image/webp;base64,d2VicA==")


@pytest.mark.parametrize(
    ("files", "title"),
    [
        ({"README.md": "# Keeping bees\n\nText.\n"}, "Keeping bees"),
        ({"docs/index.md": "---\ntitle: Bees\n---\n\nText.\n"}, "Bees"),
        ({"README.md": "# Introduction\n\nText.\n"}, ""),
        ({}, ""),
        ({"README.md": "# Keeping bees\n", "recto.toml": '[site]\ntitle = "Bees"\n'}, "Bees"),
        (config("title: 'Robots', themeConfig: {navbar: {title: 'Short'}}"), "Robots"),
        (config("themeConfig: ({navbar: {title: 'Short'}})"), "Short"),
        (config("title: process.env.TITLE + compute()"), ""),
        (config("title: 5"), ""),
        ({"mkdocs.yml": "site_name: 7\ntheme: material\n"}, ""),
    ],
)
def test_title_of_a_book(tmp_path: Path, files: dict[str, str | bytes], title: str) -> None:
    assert book(tmp_path, files).info.title == title


@pytest.mark.parametrize(
    ("titles", "site_name", "title"),
    [
        (("Welcome | Bees", "Hives | Bees", "Honey | Bees"), "", "Bees"),
        (("Welcome | Bees", "Hives | Bees"), "All about bees", "All about bees"),
        (("Keeping bees", "Hives", "Honey - how"), "", "Keeping bees"),
    ],
)
def test_title_of_a_website(titles: tuple[str, ...], site_name: str, title: str) -> None:
    with SiteDouble() as site:
        links = [f"/docs/{number}" for number in range(len(titles))]
        stated = f'<meta property="og:site_name" content="{site_name}">' if site_name else ""
        for link, name in zip(links, titles, strict=True):
            html = page("Heading", "Text.", *links).replace("<head>", f"<head>{stated}<title>{name}</title>")
            site.put("/docs/" if link == links[0] else link, html)
        options = CrawlOptions(delay=0, allow_private=True)
        for given, expected in (("", title), ("Mine", "Mine")):
            source = WebsiteSource(f"{site.url}/docs/", None, options, title=given)
            assert len(list(source.pages())) == len(titles)
            assert source.info.title == expected


def test_a_given_title_counts(tmp_path: Path) -> None:
    docusaurus(tmp_path, "title: 'Robots'")
    source = open_source(str(tmp_path), SourceOptions(title="My robots"), None, print)
    assert source.info.title == "My robots"
    with pytest.raises(InvalidArgument, match="--title"):
        open_source("zip://book.zip", SourceOptions(title="x"), None, print)
