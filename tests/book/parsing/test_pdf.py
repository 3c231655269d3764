"""PDFs: outlines, pages as anchors, columns, running heads, hyphens, code, tables, scans and damage."""

from __future__ import annotations

import sys
import zlib
from pathlib import Path

import pytest

from recto.book.parsing import read
from recto.book.parsing.pdf import split_in_process, split_pdf
from recto.book.sources.tree import open_book
from recto.errors import InvalidArgument
from recto.types.book import Document, Volume
from tests.book.parsing.builders import Line, column, page_of, pdf

TEXT = ["A robot has sensors and motors, and a program that reads the", "sensors and moves the motors."]


def documents(volume: Volume) -> dict[str, Document]:
    return {part.title: read(page_of(part.text, "pdf", part.title)) for part in volume.parts}


def texts(document: Document) -> list[str]:
    return [block.text for section in document.sections for block in section.blocks]


def heading(text: str, top: float, size: float = 18) -> Line:
    return (72, top, size, "F1", text)


@pytest.fixture
def book() -> bytes:
    head = [(72, 760, 9, "F1", "A Small Book"), (500, 760, 9, "F1", "7")]
    first = [*column(TEXT), heading("1.1 Cameras", 640, 14), *column(TEXT, top=610)]
    second = [*column(["A camera sees light."]), heading("2 Motors", 600), *column(TEXT, top=570)]
    rest = [[*head, *column([text])] for text in ("A motor turns.", "The last page.")]
    return pdf(
        [[heading("1 Sensors", 720), *first], [*head, *second], *rest],
        [(0, "Sensors", 0, 730), (1, "Cameras", 0, 650), (0, "Motors", 1, 610)],
    )


def test_the_outline_makes_pages_and_sections(book: bytes) -> None:
    by_title = documents(split_pdf(book))
    assert list(by_title) == ["Sensors", "Motors"]
    sensors = by_title["Sensors"].sections
    assert [(section.headings, section.anchor) for section in sensors] == [
        (("Sensors",), "page=1"),
        (("Sensors", "Cameras"), "page=1"),
        (("Sensors", "Cameras"), "page=2"),
    ]
    assert texts(by_title["Sensors"])[0] == " ".join(TEXT)
    assert [section.anchor for section in by_title["Motors"].sections] == ["page=2", "page=3", "page=4"]
    assert texts(by_title["Motors"]) == [" ".join(TEXT), "A motor turns.", "The last page."], (
        "without running heads and page numbers"
    )


def test_hyphens_at_line_ends() -> None:
    lines = ["The pro-", "gram is a well-", "known example. A program is", "well-known."]
    (document,) = documents(split_in_process(pdf([column(lines)]))).values()
    assert texts(document) == ["The program is a well-known example. A program is well-known."]


def test_a_paragraph_goes_on_after_a_footnote_and_a_page_break() -> None:
    lines = [
        "A robot has sensors and motors, and a program of",
        "the sensors and motors is written for the system",
    ]
    footnote = (72, 90, 7, "F1", "1 See the second chapter")
    second = ["ROS, which runs on it.", "", "Another paragraph without an end of its own", "and short"]
    pages = [[*column(lines), footnote], column(second), column(["Not a part of it."])]
    (document,) = documents(split_in_process(pdf(pages))).values()
    assert texts(document) == [
        f"{' '.join(lines)} ROS, which runs on it.",
        "1 See the second chapter",
        "Another paragraph without an end of its own and short",
        "Not a part of it.",
    ]


@pytest.mark.parametrize("interleaved", [False, True])
def test_two_columns_are_read_one_after_the_other(interleaved: bool) -> None:
    left = [f"left {n} of the column with enough words" for n in range(12)]
    right = [f"right {n} of the column with enough words" for n in range(12)]
    sides = [*column(left), *column(right, x=320)]
    if interleaved:
        sides.sort(key=lambda line: -line[1])
    title = heading("A title over both of the columns of this page", 740)
    (document,) = documents(split_in_process(pdf([[title, *sides]]))).values()
    text = " ".join(texts(document))
    assert text.index("left 0") < text.index("left 11") < text.index("right 0") < text.index("right 11")


def test_code_and_tables() -> None:
    code = column(["def move(speed):", "", "return speed"], font="F2", top=600)
    code[1] = (72 + 4 * 6, 588, 10, "F2", "return speed")
    cells = [("Sensor", "Unit"), ("Camera", "pixel"), ("Lidar", "metre"), ("Gyroscope", "degree")]
    table = [
        (x, 500 - 12 * row, 10.0, "F1", text)
        for row, pair in enumerate(cells)
        for x, text in zip((72.0, 250.0), pair, strict=True)
    ]
    (document,) = documents(split_in_process(pdf([[*column(TEXT), *code, *table]]))).values()
    assert texts(document) == [
        " ".join(TEXT),
        "```\ndef move(speed):\n    return speed\n```",
        "| Sensor | Unit |\n| --- | --- |\n| Camera | pixel |\n| Lidar | metre |\n| Gyroscope | degree |",
    ]
    kinds = [block.kind for section in document.sections for block in section.blocks]
    assert kinds == ["paragraph", "code", "table"]


def test_font_sizes_replace_a_missing_outline() -> None:
    titles = [f"Chapter {n} begins" for n in (1, 2, 3)]
    pages = [[heading(title, 700, 20), *column(TEXT * 3, top=660)] for title in titles]
    assert list(documents(split_in_process(pdf(pages)))) == titles


def test_a_row_of_dots_is_read_in_bounded_time() -> None:
    """Only a row that ends with dots and a page number is a line of a table of contents."""
    dots = ". " * 80
    (document,) = documents(
        split_in_process(pdf([column([*TEXT, f"Motors {dots}12", f"A {dots}end!"])]))
    ).values()
    assert "end!" in texts(document)[-1]
    assert "Motors" not in " ".join(texts(document))


def test_pages_replace_missing_headings() -> None:
    volume = split_in_process(pdf([column([*TEXT, f"Only on sheet {n}."]) for n in range(45)]))
    assert [part.title for part in volume.parts] == ["Front matter", "Page 21", "Page 41"]
    (first, *_) = documents(volume).values()
    assert [section.anchor for section in first.sections][:2] == ["page=1", "page=2"]


def test_a_scanned_book_says_so(tmp_path: Path) -> None:
    (tmp_path / "scan.pdf").write_bytes(pdf([[], []]))
    with pytest.raises(InvalidArgument, match="it is scanned. Recognise its text first"):
        open_book(tmp_path / "scan.pdf")
    half = pdf([column(TEXT), [], []])
    assert split_in_process(half).notes == ("2 of its 3 pages have no text; they may be scanned.",)


@pytest.mark.parametrize("data", [b"", b"%PDF-1.4", b"hello", pdf([column(TEXT)])[:200]])
def test_a_damaged_file_is_an_error(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "book.pdf").write_bytes(data)
    with pytest.raises(InvalidArgument, match="cannot be read: the PDF is damaged"):
        open_book(tmp_path / "book.pdf")


def test_a_stream_that_expands_to_gigabytes_is_an_error() -> None:
    content = zlib.compress(zlib.compress(b"BT /F1 12 Tf 72 700 Td (aaaaaaaa) Tj ET\n" * (2 << 20), 9), 9)
    small = pdf([column(TEXT)])
    stream = b"<</Length %d/Filter[/FlateDecode/FlateDecode]>>stream\n%s" % (len(content), content)
    start = small.index(b"<</Length")
    bomb = small[:start] + stream + small[small.index(b"\nendstream") :]
    assert len(bomb) < 10_000
    with pytest.raises(ValueError, match="ended unexpectedly|too much memory"):
        split_pdf(bomb)


def test_a_crash_of_the_child_process_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ValueError, match="the process that read it ended unexpectedly"):
        split_pdf(pdf([column(TEXT)]))
