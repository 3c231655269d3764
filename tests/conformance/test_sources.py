"""Run the conformance suites on every built-in source and reader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from recto.book.parsing.formats import MARKDOWN, MDX
from recto.book.sources.tree import open_book
from recto.book.sources.website import CrawlOptions
from recto.book.sources.website.crawl import WebsiteSource
from recto.protocols import Reader, Source
from recto.testing import ReaderConformance, SourceConformance
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
