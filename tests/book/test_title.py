"""The title and the logo of a book, from the configuration of its site or from its pages."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path

import pytest

from recto.book.sources import SourceOptions, open_source, sample_source
from recto.book.sources.tree import BookTree, open_book
from recto.book.sources.website import CrawlOptions
from recto.book.sources.website.crawl import WebsiteSource
from recto.errors import InvalidArgument
from tests.book.files import write, write_pages
from tests.doubles.site import SiteDouble, page

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
    kind, _, data = both.logo.partition(",")
    assert (kind, b64decode(data)) == ("data:image/svg+xml;base64", SVG)
    icon = docusaurus(tmp_path / "icon", logo, static_icon_png=b"png")
    assert icon.logo.startswith("data:image/png;base64,")
    other = "staticDirectories: ['public', 'static'], favicon: 'icon.png'"
    assert docusaurus(tmp_path / "other", other, public_icon_png=b"png").logo == icon.logo


@pytest.mark.parametrize(
    "src", ["https://x.y/a.svg", "large.png", "a.html", "../../a.png", "\\0.png", "link.png"]
)
def test_logos_that_are_not_read(tmp_path: Path, src: str) -> None:
    (tmp_path / "a.png").write_bytes(b"secret")
    (tmp_path / "site" / "static").mkdir(parents=True)
    (tmp_path / "site" / "static" / "link.png").symlink_to(tmp_path / "a.png")
    values = f"themeConfig: {{navbar: {{logo: {{src: '{src}'}}}}}}"
    files = {"static_large_png": b"x" * 40_000, "static_a_html": b"<p>"}
    assert docusaurus(tmp_path / "site", values, **files).logo == ""


def test_title_and_logo_of_a_mkdocs_site(tmp_path: Path) -> None:
    values = "site_name: Bees\ntheme:\n  name: material\n  logo: img/bee.webp\n"
    source = book(tmp_path, {"mkdocs.yml": values, "docs/img/bee.webp": b"webp"})
    assert (source.title, source.logo) == ("Bees", "data:image/webp;base64,d2VicA==")


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
    assert book(tmp_path, files).title == title


def test_a_configuration_that_cannot_be_read(tmp_path: Path) -> None:
    book(tmp_path, {"docs/index.md": "# Bees\n\nText."})
    (tmp_path / "docusaurus.config.js").write_text("module.exports = make();", "utf-8")
    source = open_book(tmp_path / "docs")
    assert isinstance(source, BookTree)
    assert (source.title, source.logo) == ("Bees", "")


def test_the_sample_book_has_the_titles_of_its_site() -> None:
    source = sample_source()
    assert getattr(source, "title", "") == "Physical AI and Humanoid Robotics"
    assert "Module 2: Simulation and Digital Twins" in {one.module_title for one in source.pages()}


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
            assert source.title == expected


def test_a_given_title_counts(tmp_path: Path) -> None:
    docusaurus(tmp_path, "title: 'Robots'")
    source = open_source(str(tmp_path), SourceOptions(title="My robots"), None, print)
    assert getattr(source, "title", "") == "My robots"
    with pytest.raises(InvalidArgument, match="--title"):
        open_source("zip://book.zip", SourceOptions(title="x"), None, print)
