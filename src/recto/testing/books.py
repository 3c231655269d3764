"""What every reader and every source must do."""

from __future__ import annotations

from pathlib import Path

import pytest

from recto.book.chunking import DEFAULT_SIZE, chunk_page
from recto.book.parsing import read
from recto.indexing.indexer import IndexJob, index_book
from recto.protocols import Reader, Source
from recto.stores.edge import EdgeStore
from recto.testing.values import HashEmbedder
from recto.types.book import Document, Failure, Page


def page_of(text: str, format: str = "markdown") -> Page:
    """Return a page with a text; its title is only used if the text states none."""
    return Page(
        "guide/page", "local://docs/docs/guide/page", "Fallback", "guide", ("guide",), text, "1", format
    )


class ReaderConformance:
    """Override the fixtures `reader` and `text`."""

    @pytest.fixture
    def reader(self) -> Reader:
        """Return the reader to check."""
        raise NotImplementedError("Override the fixture `reader`.")

    @pytest.fixture
    def text(self) -> str:
        """Return a page in the reader's format, with a title and at least two sections below it."""
        raise NotImplementedError("Override the fixture `text`.")

    def test_sections_have_the_title_and_text(self, reader: Reader, text: str) -> None:
        """Check that headings begin with the title, that sections have text, and that anchors are unique."""
        document = reader(page_of(text))
        assert isinstance(document, Document)
        assert document.title
        assert document.title != "Fallback"
        assert len(document.sections) >= 2
        for section in document.sections:
            assert section.headings[0] == document.title
            assert all(block.text.strip() for block in section.blocks)
        assert len({section.headings for section in document.sections}) >= 2
        anchors = [section.anchor for section in document.sections if section.anchor]
        assert len(set(anchors)) == len(anchors)
        assert not any(anchor.startswith("#") or " " in anchor for anchor in anchors)

    def test_lines_are_those_of_the_text(self, reader: Reader, text: str) -> None:
        """Check that blocks are in order, and that their first lines are the lines of the page."""
        lines = text.splitlines()
        before = 0
        for section in reader(page_of(text)).sections:
            assert 1 <= section.line <= len(lines)
            for block in section.blocks:
                assert before < block.first <= block.last <= len(lines)
                before = block.last
                assert block.text.splitlines()[0].strip() in lines[block.first - 1]

    def test_the_page_can_be_chunked(self, reader: Reader, text: str) -> None:
        """Check that all text of the blocks is in a chunk, and that the reader keeps no state."""
        document = reader(page_of(text))
        assert reader(page_of(text)) == document
        chunks = chunk_page(
            page_of(text), document, "book", lambda text: len(text.split()), 512, DEFAULT_SIZE
        )
        written = " ".join(" ".join(chunk.chunk.text for chunk in chunks).split())
        for section in document.sections:
            for block in section.blocks:
                assert " ".join(block.text.split())[:200] in written

    def test_a_page_without_headings(self, reader: Reader) -> None:
        """Check that a page without headings has its fallback title, and its text if it has any."""
        for text in ("", "\n\n", " ", "Only a sentence.\n"):
            document = reader(page_of(text))
            assert document.title in ("", "Fallback")
            texts = [block.text.strip() for section in document.sections for block in section.blocks]
            assert [one for one in texts if one] == ([text.strip()] if text.strip() else [])


class SourceConformance:
    """Override the fixture `source`: a book with at least two pages that does not change during the test."""

    @pytest.fixture
    def source(self) -> Source:
        """Return the source to check."""
        raise NotImplementedError("Override the fixture `source`.")

    def test_the_book_has_a_name_and_a_location(self, source: Source) -> None:
        """Check that both are known before and after the pages are read, and stay the same."""
        before = (source.book, source.location)
        assert all(before)
        list(source.pages())
        assert (source.book, source.location) == before

    def test_pages_are_complete(self, source: Source) -> None:
        """Check the fields of every page, and that a reader can parse it."""
        pages = list(source.pages())
        assert len(pages) >= 2
        for page in pages:
            assert isinstance(page, Page)
            assert page.path
            assert "://" in page.url
            assert page.title
            assert page.text.strip()
            assert page.revision
            assert page.module == page.module_keys[0]
            assert all(key == key.strip().lower() for key in page.module_keys)
            assert page.lines == () or len(page.lines) == page.text.count("\n") + 1
            document = read(page)
            assert isinstance(document, Document)
            assert document.title

    def test_the_order_is_stable(self, source: Source) -> None:
        """Check that a second run yields the same pages; paths are part of the ids of chunks."""
        pages = list(source.pages())
        assert list(source.pages()) == pages
        assert len({page.path for page in pages}) == len(pages)
        positions = [page.position for page in pages]
        assert positions in ([0] * len(pages), sorted(set(positions)))
        assert len({page.text for page in pages}) <= len({page.revision for page in pages})

    def test_failures_and_notes(self, source: Source) -> None:
        """Check that pages that failed are not yielded, and that a second run does not add to the reports."""
        paths = {page.path for page in source.pages()}
        failed, notes = list(source.failed), list(source.notes)
        assert all(isinstance(failure, Failure) and failure.reason for failure in failed)
        assert paths.isdisjoint(failure.path for failure in failed)
        assert all(isinstance(note, str) and note for note in notes)
        list(source.pages())
        assert (list(source.failed), list(source.notes)) == (failed, notes)

    def test_a_second_run_changes_nothing(self, source: Source, tmp_path: Path) -> None:
        """Check that indexing the same book again finds every page unchanged."""
        store, journal = EdgeStore(tmp_path / "home"), tmp_path / "journal"
        first = index_book(IndexJob(source, HashEmbedder()), store, "book", journal=journal)
        assert first.published
        assert first.info.chunks >= 2
        second = index_book(IndexJob(source, HashEmbedder()), store, "book", journal=journal)
        assert not second.published
        assert second.plan.texts == 0
        store.close()
