"""Run the conformance suites on every built-in source and reader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from recto.book.parsing import ASCIIDOC, MARKDOWN, MDX, QUARTO, RST
from recto.book.sources.tree import open_book
from recto.book.sources.website import CrawlOptions
from recto.book.sources.website.crawl import WebsiteSource
from recto.protocols import Reader, Source
from recto.testing import ReaderConformance, SourceConformance
from tests.book.parsing.builders import column, epub, pdf
from tests.doubles.site import SiteDouble, page
from tests.running import SAMPLE_DOCS

PAGE = """# Robots

A robot senses and acts.

## Arms

An arm has *joints*:

- a shoulder
- an elbow

## Legs

| kind | feet |
|---|---|
| biped | 2 |

```python
walk()
```
"""
ASCIIDOC_PAGE = """= Robots

A robot senses and acts.

== Arms

An arm has `joints`:

- a shoulder
- an elbow

== Legs

walk:: Moves both legs.
"""
RST_PAGE = """Robots
======

A robot senses and acts.

Arms
----

An arm has *joints*:

- a shoulder
- an elbow

Legs
----

walk
  Moves both legs.
"""


def markdown_tree(directory: Path) -> Source:
    for name in ("welcome", "module-1/arms", "module-1/legs"):
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / f"{name}.md").write_text(f"# {name}\n\nAbout {name}.\n")
    return open_book(directory)


def docusaurus_site(_: Path) -> Source:
    return open_book(SAMPLE_DOCS)


def mkdocs_site(directory: Path) -> Source:
    (directory / "book").mkdir()
    markdown_tree(directory / "book")
    settings = "site_name: Book\nsite_url: https://example.org/\ndocs_dir: book\n"
    (directory / "mkdocs.yml").write_text(settings)
    return open_book(directory)


def epub_file(directory: Path) -> Source:
    pages = {"a.xhtml": "<h1>Arms</h1><p>An arm bends.</p>", "b.xhtml": "<h1>Legs</h1><p>A leg walks.</p>"}
    (directory / "robots.epub").write_bytes(epub(pages, '<li><a href="a.xhtml">Arms</a></li>'))
    return open_book(directory / "robots.epub")


def pdf_file(directory: Path) -> Source:
    pages = [column(["Arms", "An arm bends."]), column(["Legs", "A leg walks."])]
    (directory / "robots.pdf").write_bytes(pdf(pages, [(0, "Arms", 0, 710), (0, "Legs", 1, 710)]))
    return open_book(directory / "robots.pdf")


def built_site(directory: Path) -> Source:
    for name in ("index", "arms"):
        (directory / f"{name}.html").write_text(f"<h1>{name}</h1><p>About {name}.</p>")
    return open_book(directory)


class TestFiles(SourceConformance):
    @pytest.fixture(params=[markdown_tree, docusaurus_site, mkdocs_site, epub_file, pdf_file, built_site])
    def source(self, request: pytest.FixtureRequest, tmp_path: Path) -> Source:
        (tmp_path / "source").mkdir()
        source: Source = request.param(tmp_path / "source")
        return source


class TestWebsite(SourceConformance):
    @pytest.fixture
    def source(self, tmp_path: Path) -> Iterator[Source]:
        with SiteDouble() as site:
            site.put("/book/", page("Welcome", "A book about bees.", "/book/hive", "/book/honey"))
            site.put("/book/hive", page("Hive", "Bees live in a hive."))
            site.put("/book/honey", page("Honey", "Bees make honey from nectar."))
            options = CrawlOptions(delay=0, allow_private=True)
            yield WebsiteSource(f"{site.url}/book/", tmp_path / "cache", options)


READERS = {
    "markdown": (MARKDOWN, PAGE),
    "mdx": (MDX, PAGE + "\n## Hands\n\n<Tabs>\n\nA hand grasps.\n\n</Tabs>\n"),
    "quarto": (QUARTO, PAGE),
    "rst": (RST, RST_PAGE),
    "asciidoc": (ASCIIDOC, ASCIIDOC_PAGE),
}


@pytest.mark.parametrize("format", READERS)
class TestReaders(ReaderConformance):
    @pytest.fixture
    def reader(self, format: str) -> Reader:
        return READERS[format][0].read

    @pytest.fixture
    def text(self, format: str) -> str:
        return READERS[format][1]
