"""What every reader must do."""

from __future__ import annotations

import pytest

from recto.book.chunking import DEFAULT_SIZE, chunk_page
from recto.protocols import Reader
from recto.types import Block, Document, Page


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
        """Check that headings begin with the title, and that every section has text."""
        document = reader(page_of(text))
        assert isinstance(document, Document)
        assert document.title
        assert document.title != "Fallback"
        assert len(document.sections) >= 2
        for section in document.sections:
            assert section.headings[0] == document.title
            assert all(block.text.strip() for block in section.blocks)
        assert len({section.headings for section in document.sections}) >= 2

    def test_lines_are_those_of_the_text(self, reader: Reader, text: str) -> None:
        """Check that blocks are in order, and that their first lines are the lines of the page."""
        lines = text.splitlines()
        before = 0
        for section in reader(page_of(text)).sections:
            assert 1 <= section.line <= len(lines)
            for block in section.blocks:
                assert before < block.first <= block.last <= len(lines)
                before = block.last
                assert _first_line(block) in lines[block.first - 1]

    def test_anchors_are_unique(self, reader: Reader, text: str) -> None:
        """Check that no two sections have the same anchor."""
        anchors = [section.anchor for section in reader(page_of(text)).sections if section.anchor]
        assert len(set(anchors)) == len(anchors)
        assert not any(anchor.startswith("#") or " " in anchor for anchor in anchors)

    def test_the_page_can_be_chunked(self, reader: Reader, text: str) -> None:
        """Check that all text of the blocks is in a chunk."""
        document = reader(page_of(text))
        chunks = chunk_page(
            page_of(text), document, "book", lambda text: len(text.split()), 512, DEFAULT_SIZE
        )
        written = " ".join(" ".join(chunk.chunk.text for chunk in chunks).split())
        for section in document.sections:
            for block in section.blocks:
                assert " ".join(block.text.split())[:200] in written

    def test_a_page_without_text(self, reader: Reader) -> None:
        """Check that an empty page has no sections and no title of its own."""
        for text in ("", "\n\n", " "):
            document = reader(page_of(text))
            assert document.title in ("", "Fallback")
            assert not any(block.text.strip() for section in document.sections for block in section.blocks)

    def test_a_page_without_headings(self, reader: Reader) -> None:
        """Check that a page of plain text has its fallback title and its text."""
        document = reader(page_of("Only a sentence.\n"))
        assert document.title in ("", "Fallback")
        assert [block.text for section in document.sections for block in section.blocks] == [
            "Only a sentence."
        ]

    def test_reading_twice_gives_the_same(self, reader: Reader, text: str) -> None:
        """Check that the reader keeps no state."""
        assert reader(page_of(text)) == reader(page_of(text))


def _first_line(block: Block) -> str:
    return block.text.splitlines()[0].strip()
