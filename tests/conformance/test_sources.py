"""Run the conformance suites on every built-in source and reader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from recto.book.parsing.formats import MARKDOWN, MDX, QUARTO, RST
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

More text.
"""


class TestMarkdownTree(SourceConformance):
    @pytest.fixture
    def source(self, small_book: Path) -> Source:
        return open_book(small_book)


class TestDocusaurusSite(SourceConformance):
    @pytest.fixture
    def source(self) -> Source:
        return open_book(SAMPLE_DOCS)


class TestMkDocsSite(SourceConformance):
    @pytest.fixture
    def source(self, small_book: Path) -> Source:
        (small_book.parent / "mkdocs.yml").write_text(
            "site_name: Book\nsite_url: https://example.org/\ndocs_dir: book\n"
        )
        return open_book(small_book.parent)


class TestWebsite(SourceConformance):
    @pytest.fixture
    def source(self, tmp_path: Path) -> Iterator[Source]:
        with SiteDouble() as site:
            site.put("/book/", page("Welcome", "A book about bees.", "/book/hive", "/book/honey"))
            site.put("/book/hive", page("Hive", "Bees live in a hive."))
            site.put("/book/honey", page("Honey", "Bees make honey from nectar."))
            options = CrawlOptions(delay=0, allow_private=True)
            yield WebsiteSource(f"{site.url}/book/", tmp_path / "cache", options)


class TestEpub(SourceConformance):
    @pytest.fixture
    def source(self, tmp_path: Path) -> Source:
        pages = {
            "a.xhtml": "<h1>Arms</h1><p>An arm bends.</p>",
            "b.xhtml": "<h1>Legs</h1><p>A leg walks.</p>",
        }
        (tmp_path / "robots.epub").write_bytes(epub(pages, '<li><a href="a.xhtml">Arms</a></li>'))
        return open_book(tmp_path / "robots.epub")


class TestPdf(SourceConformance):
    @pytest.fixture
    def source(self, tmp_path: Path) -> Source:
        pages = [column(["Arms", "An arm bends."]), column(["Legs", "A leg walks."])]
        (tmp_path / "robots.pdf").write_bytes(pdf(pages, [(0, "Arms", 0, 710), (0, "Legs", 1, 710)]))
        return open_book(tmp_path / "robots.pdf")


class TestBuiltSite(SourceConformance):
    @pytest.fixture
    def source(self, tmp_path: Path) -> Source:
        for name in ("index", "arms"):
            (tmp_path / f"{name}.html").write_text(f"<h1>{name}</h1><p>About {name}.</p>")
        return open_book(tmp_path)


class TestQuartoReader(ReaderConformance):
    @pytest.fixture
    def reader(self) -> Reader:
        return QUARTO.read

    @pytest.fixture
    def text(self) -> str:
        return PAGE


class TestRstReader(ReaderConformance):
    @pytest.fixture
    def reader(self) -> Reader:
        return RST.read

    @pytest.fixture
    def text(self) -> str:
        return RST_PAGE


class TestMarkdownReader(ReaderConformance):
    @pytest.fixture
    def reader(self) -> Reader:
        return MARKDOWN.read

    @pytest.fixture
    def text(self) -> str:
        return PAGE


class TestMdxReader(ReaderConformance):
    @pytest.fixture
    def reader(self) -> Reader:
        return MDX.read

    @pytest.fixture
    def text(self) -> str:
        return PAGE + "\n## Hands\n\n<Tabs>\n\nA hand grasps.\n\n</Tabs>\n"
