"""Site options and `recto.toml`."""

from __future__ import annotations

from pathlib import Path

import pytest

from recto.book.sources.options import SiteOptions, read_book_file
from recto.book.sources.tree import open_book
from recto.errors import ConfigurationError
from tests.book.files import write, write_pages

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


def book(folder: Path, text: str, *names: str) -> Path:
    return write(write_pages(folder, *(names or ("a.md",))), {"recto.toml": text})


def test_all_keys_are_read(tmp_path: Path) -> None:
    file = read_book_file(tmp_path, book(tmp_path / "b", WHOLE))
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
        read_book_file(book(tmp_path, text))
    assert str(tmp_path / "recto.toml") in str(error.value)
    assert hint in error.value.hint


def test_plain_tree_with_a_site_url(tmp_path: Path) -> None:
    names = ("index.md", "a b.md", "part/README.md", "part/c.mdx")
    root = book(tmp_path, "[site]\nurl = 'https://x.org/book'", *names)
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
    pages = open_book(book(tmp_path, WHOLE, *names.split())).pages()
    assert {page.path: page.module_keys for page in pages} == {
        "module-1-ros2/a.md": ("ros2", "module-1-ros2"),
        "module-1-ros2/deep/b.md": ("deep", "ros2", "module-1-ros2"),
        "ros2-fundamentals/c.md": ("ros2", "ros2-fundamentals"),
        "e.md": ("intro",),
    }


def test_file_beside_a_site(tmp_path: Path) -> None:
    text = WHOLE.replace('version = "1.0"', "")
    root = book(tmp_path, text, "docs/module-1-ros2/01-a.md", "docs/tutorial-basics/b.md")
    config = "module.exports = {i18n: {defaultLocale: 'fr', locales: ['fr']}, presets: ['classic']}"
    write(root, {"docusaurus.config.js": config})
    for given in (root, root / "docs", root / "docs" / "module-1-ros2"):
        (page,) = open_book(given).pages()
        assert (page.url, page.module) == ("https://example.org/book/docs/module-1-ros2/a", "ros2")
    options = SiteOptions(url="https://z.org", trailing_slash=True, route_base_path="/")
    assert [page.url for page in open_book(root, options).pages()] == ["https://z.org/module-1-ros2/a/"]
