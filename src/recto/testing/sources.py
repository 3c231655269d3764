"""What every source must do."""

from __future__ import annotations

from pathlib import Path

import pytest

from recto.book.parsing.formats import read
from recto.indexing.indexer import IndexJob, index_book
from recto.protocols import Source
from recto.stores.edge.store import EdgeStore
from recto.testing.values import HashEmbedder
from recto.types import Document, Failure, Page


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
        """Check the fields of every page."""
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

    def test_paths_are_unique(self, source: Source) -> None:
        """Check that no two pages have the same path: the path is part of the ids of chunks."""
        paths = [page.path for page in source.pages()]
        assert len(set(paths)) == len(paths)

    def test_the_order_is_stable(self, source: Source) -> None:
        """Check that a second run yields the same pages, and that positions count up if there are any."""
        pages = list(source.pages())
        assert list(source.pages()) == pages
        positions = [page.position for page in pages]
        assert positions in ([0] * len(pages), sorted(set(positions)))

    def test_the_revision_follows_the_text(self, source: Source) -> None:
        """Check that pages with different texts have different revisions."""
        pages = list(source.pages())
        assert len({page.text for page in pages}) <= len({page.revision for page in pages})

    def test_pages_can_be_read(self, source: Source) -> None:
        """Check that every page has a format with a reader."""
        for page in source.pages():
            document = read(page)
            assert isinstance(document, Document)
            assert document.title

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
