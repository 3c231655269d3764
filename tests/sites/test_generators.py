"""Build small books with the real generators, and compare addresses, anchors, titles and order with ours."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import pytest
from selectolax.lexbor import LexborHTMLParser

from recto.book.chunking import leftovers
from recto.book.parsing import read
from recto.book.sources.options import SiteOptions
from recto.book.sources.tree import open_book
from recto.protocols import Source
from tests.book.files import write
from tests.sites.building import run

pytestmark = pytest.mark.sites

URL = "https://book.example.org/"
NPM = {"vitepress": "1.6.4", "astro": "5.18.2", "@astrojs/starlight": "0.36.3", "sharp": "0.34.5"}


@dataclass(frozen=True)
class Book:
    """A small site: its files, the command that builds it, and where the build is."""

    command: list[str]
    build: str
    order: list[str]
    texts: list[str]
    files: dict[str, str]


def _books() -> Iterator[tuple[str, Book]]:
    """Yield the sites of generators.toml with their names."""
    data = tomllib.loads(Path(__file__).with_name("generators.toml").read_text("utf-8"))
    headings, included = data.pop("headings"), data.pop("included")
    for name, book in data.items():
        for path, written in book["files"].items():
            text = written.replace("@URL", URL).replace("@HEADINGS", headings)
            book["files"][path] = text.replace("@INCLUDED", included)
        yield name, Book(**book)


BOOKS = dict(_books())


@pytest.fixture(scope="module")
def node_modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of npm; RECTO_TEST_SITES names a directory that keeps them for the next run."""
    kept = os.environ.get("RECTO_TEST_SITES", "")
    listed = json.dumps({"private": True, "dependencies": NPM})
    name = f"generators-{hashlib.sha256(listed.encode()).hexdigest()[:16]}"
    folder = (Path(kept) if kept else tmp_path_factory.mktemp("npm")) / name
    if not (folder / "done").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text(listed, "utf-8")
        run(["npm", "install", "--no-audit", "--no-fund", "--prefer-offline", "--loglevel=error"], folder)
        (folder / "done").touch()
    return folder / "node_modules"


@pytest.mark.parametrize("generator", BOOKS)
def test_a_book_is_read_as_published(generator: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    book, site = BOOKS[generator], tmp_path / "lights"
    write(site, book.files)
    if book.command[0] == "node":
        (site / "node_modules").symlink_to(request.getfixturevalue("node_modules"))
    elif shutil.which("uv") is None:
        pytest.skip("uv runs the generators of pip")
    run(book.command, site, ASTRO_TELEMETRY_DISABLED="1")
    source = open_book(site)
    result = compare(source, site / book.build, URL)
    assert (result.missing_pages, result.missing_anchors, result.other_titles) == ([], [], [])
    assert result.anchors >= 5
    pages = list(source.pages())
    assert [page.path for page in pages] == book.order
    assert result.in_order, (result.urls, result.listed)
    sections = [section for page in pages for section in read(page).sections]
    text = "\n".join(block.text for section in sections for block in section.blocks)
    assert not leftovers(text)
    assert "Not published" not in text
    assert [expected for expected in book.texts if expected not in text] == []
    assert open_book(site, SiteOptions(generator=generator)).info.title == "Lights"


_NO_TITLE = "<no title>"  # Sphinx writes it for a page without a heading


class BuiltPage:
    """The ids and titles of an HTML page, the links in its navigation, and the page that comes next."""

    def __init__(self, file: Path, url: str) -> None:
        tree = LexborHTMLParser(file.read_text("utf-8"))
        self.ids = {node.attributes.get(name) for node in tree.css("[id], [name]") for name in ("id", "name")}
        following = tree.css_first("link[rel=next]")
        self.next = urljoin(url, following.attributes.get("href") or "") if following is not None else ""
        navigations = [
            [urljoin(url, link.attributes["href"] or "").partition("#")[0] for link in one.css("a[href]")]
            for one in tree.css("nav, aside")
        ]
        # Others than the one with the most links are tabs, or lead to the next page.
        self.links = max(navigations, key=len, default=[])
        for link in tree.css("h1 a"):
            link.decompose()
        nodes = (tree.css_first("h1"), tree.css_first("title"))
        self.titles = [" ".join(node.text().split()) if node is not None else "" for node in nodes]
        self.has_title = not self.titles[1].startswith(_NO_TITLE)

    def is_titled(self, title: str) -> bool:
        """Return whether the page has a title, in its heading or before the name of the site."""
        (heading, top), words = self.titles, " ".join(title.split())
        starts = tuple(words + mark for mark in (" |", " -", " —", " –", " ·"))
        return words in (heading.rstrip(" ¶#"), top) or top.startswith(starts)


@dataclass
class Comparison:
    """The pages of a book, and what of them is in the build."""

    pages: int = 0
    anchors: int = 0
    missing_pages: list[str] = field(default_factory=list)
    missing_anchors: list[str] = field(default_factory=list)
    other_titles: list[str] = field(default_factory=list)
    urls: list[str] = field(default_factory=list)
    listed: list[str] = field(default_factory=list)
    following: dict[str, str] = field(default_factory=dict)

    @property
    def in_order(self) -> bool:
        """Whether the pages come as the first page lists them, and before the ones that they link as next."""
        places = {url: place for place, url in enumerate(self.urls)}
        listed = [places[url] for url in dict.fromkeys(self.listed) if url in places]
        pairs = [(places[url], places[after]) for url, after in self.following.items() if after in places]
        return listed == sorted(listed) and all(place < after for place, after in pairs)


def compare(source: Source, build: Path, site_url: str) -> Comparison:
    """Compare the pages of a book with the files of a build."""
    result = Comparison()
    for page in source.pages():
        result.pages += 1
        result.urls.append(page.url)
        file = built_file(build, page.url.removeprefix(site_url))
        if file is None:
            result.missing_pages.append(f"{page.path}: {page.url}")
            continue
        built = BuiltPage(file, page.url)
        result.listed += built.links if result.pages == 1 else []
        result.following |= {page.url: built.next} if built.next else {}
        document = read(page)
        if built.has_title and not built.is_titled(document.title):
            result.other_titles.append(f"{page.path}: {document.title!r} {built.titles}")
        anchors = {anchor for section in document.sections for _, anchor in section.anchors}
        result.anchors += len(anchors)
        result.missing_anchors += [f"{page.path}#{anchor}" for anchor in sorted(anchors - built.ids)]
    return result


def built_file(build: Path, address: str) -> Path | None:
    """Return the file that a server would send for an address, or None."""
    path = unquote(urlsplit(address).path).lstrip("/")
    names = (path, f"{path.rstrip('/')}/index.html".lstrip("/"), f"{path}.html")
    return next((build / name for name in names if name and (build / name).is_file()), None)
