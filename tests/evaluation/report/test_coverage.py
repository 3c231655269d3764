"""The page of a book's coverage: the map, the matrix, and the three lists."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recto.evaluation.coverage import CoverageReport, CoverageSection, Reached, cover
from recto.evaluation.report import coverage_page
from recto.search.retriever import Retriever
from recto.testing.parts import chunk
from recto.types.index import IndexInfo
from tests.evaluation.report.reading import HOSTILE, TRICKS, WHEN, nodes, read, said


@pytest.fixture(scope="module")
def info(house_retriever: Retriever) -> IndexInfo:
    return house_retriever.open().info


@pytest.fixture(scope="module")
def sound(house_retriever: Retriever) -> CoverageReport:
    return cover(house_retriever)


def page(found: CoverageReport, info: IndexInfo, least: float | None = None) -> str:
    return coverage_page(found, info, least=least, when=WHEN)


def with_holes(found: CoverageReport) -> CoverageReport:
    lost, twice, hidden, *others = found.sections
    stranger = replace(chunk(7, module="cellar"), page_url="https://example.org/cellar")
    holes = (
        replace(lost, heading_rank=None, sentence_rank=None, first=(chunk(3),)),
        replace(twice, copies=("https://example.org/copy#a", "local://copy")),
        replace(hidden, heading_rank=4, first=(stranger, stranger)),
    )
    return replace(found, sections=(*holes, *others))


def test_every_page_is_on_the_map(sound: CoverageReport, info: IndexInfo) -> None:
    tree = read(page(with_holes(sound), info))
    rows = with_holes(sound).pages()
    cells = nodes(tree, "#map li a")
    assert [cell.text() for cell in cells] == [f"{row['heat'] * 100:.0f}" for row in rows]
    for row, line in zip(rows, nodes(tree, "#pages tbody tr"), strict=True):
        assert row["page_url"] in line.text()
        numbers = [cell.text() for cell in line.css("td.number")]
        assert numbers == [
            f"{row['heat']:.0%}",
            *(str(row[name]) for name in ("sections", "by_heading", "by_sentence", "reached")),
        ]
    assert {node.text() for node in nodes(tree, "#map dt")} == {"garden", "kitchen", "workshop", "intro"}


def test_the_lists(sound: CoverageReport, info: IndexInfo) -> None:
    found = with_holes(sound)
    tree = read(page(found, info))
    lost, twice, hidden = (one.section.url for one in found.sections[:3])
    assert f"{lost} " in said(tree, "#unreachable")
    assert "none none local://docs/docs/a#section-3" in said(tree, "#unreachable")
    assert twice in said(tree, "#duplicates")
    assert "https://example.org/copy#a local://copy" in said(tree, "#duplicates")
    assert hidden in said(tree, "#shadowed")
    assert "cellar" in said(tree, "#shadowed")
    for part in ("#unreachable", "#duplicates", "#shadowed"):
        assert "None." in said(read(page(sound, info)), part)


def test_a_threshold_is_a_verdict(sound: CoverageReport, info: IndexInfo) -> None:
    assert "Failed" in said(read(page(with_holes(sound), info, 100)), ".verdict")
    assert "Passed" in said(read(page(sound, info, 100)), ".verdict")
    assert "Passed" not in said(read(page(sound, info)), ".verdict")


def test_hostile_text_stays_text(sound: CoverageReport, info: IndexInfo) -> None:
    nasty = HOSTILE + TRICKS
    first = replace(chunk(0, module=nasty), title=nasty, anchor=nasty, headings=(nasty, nasty))
    section = CoverageSection(replace(first, page_url=f"javascript:{nasty}"), (nasty, nasty))
    other = replace(chunk(1, module=f"{nasty} other"), page_url=nasty, anchor=nasty)
    reached = Reached(section, None, None, (other,), (nasty,))
    found = CoverageReport(nasty, (reached,), {nasty: {f"{nasty} other": 1}})
    tree = read(page(found, replace(info, generation=nasty)))
    for part in ("h1", "header", "#map", "#unreachable", "#duplicates", "#shadowed", "#confusion", "#pages"):
        assert "<script>alert(1)</script>" in said(tree, part), part


def test_an_empty_book(info: IndexInfo) -> None:
    tree = read(page(CoverageReport("empty", (), {}), replace(info, fingerprint=None), 90))
    assert "The book has no sections." in said(tree, "#map")
    assert not nodes(tree, "#confusion")
