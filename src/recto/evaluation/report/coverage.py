"""The coverage of a book as a page: a map of its pages by how well their sections come, and the sections that do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import groupby

from recto import __version__
from recto.evaluation.coverage import WITHIN, Coverage, PageCoverage, Reached
from recto.evaluation.report import page as charts
from recto.evaluation.report import page as tables
from recto.evaluation.report.page import (
    Markup,
    Report,
    Section,
    counted,
    document,
    element,
    facts,
    folded,
    joined,
    made,
    moment,
    note,
    outcome,
    place,
    tiles,
    words,
)
from recto.types import IndexInfo

_OPEN = 50
"""Longer lists are folded."""


def coverage_page(found: Coverage, info: IndexInfo, *, least: float | None, when: datetime) -> str:
    """Return the page; `least` is the percentage of sections that have to come, if one was asked for."""
    sections = (
        Section("map", "Map of the book", _map(found)),
        Section(
            "unreachable",
            "Unreachable",
            _listing("Sections that neither question brings", found.unreachable, "First came", _first),
        ),
        Section(
            "duplicates",
            "Duplicates",
            _listing(
                "Sections that stand elsewhere in nearly the same words",
                found.duplicates,
                "The same as",
                _copies,
            ),
        ),
        Section(
            "shadowed",
            "Shadowed",
            _listing(
                "Sections before which another module always comes", found.shadowed, "Comes first", _shadow
            ),
        ),
        Section("confusion", "Modules", _modules(found)),
        Section("pages", "Pages", _pages(found)),
    )
    return document(
        Report(f"Coverage of {found.collection}", _verdict(found, least), _facts(found, info, when), sections)
    )


def _verdict(found: Coverage, least: float | None) -> Markup:
    total, reached = len(found.sections), len(found.sections) - len(found.unreachable)
    good = least is None or found.share * 100 >= least
    asked = f", of at least {least:g} %" if least is not None else ""
    head = (
        element("h2", outcome(good=good, yes="Passed", no="Failed"), id="verdict-title")
        if least is not None
        else None
    )
    told = element(
        "p",
        f"{reached} of {counted(total, 'section')} can be reached ({found.share:.1%}{asked}).",
        class_="told",
    )
    shown = tiles(
        [
            ("By heading", *_part(sum(one.heading_rank is not None for one in found.sections), total)),
            (
                "By first sentence",
                *_part(sum(one.sentence_rank is not None for one in found.sections), total),
            ),
            ("Unreachable", str(len(found.unreachable)), ""),
            ("Duplicates", str(len(found.duplicates)), ""),
            ("Shadowed", str(len(found.shadowed)), ""),
        ]
    )
    kind = "" if least is None else " passed" if good else " failed"
    return element("section", joined((head, told, shown)), class_=f"verdict{kind}", aria_label="Result")


def _part(count: int, total: int) -> tuple[str, str]:
    return f"{count / total:.1%}" if total else "\N{EN DASH}", f"{count} of {total} in the first {WITHIN}"


def _facts(found: Coverage, info: IndexInfo, when: datetime) -> Markup:
    return facts(
        [
            ("Collection", words(found.collection)),
            ("Generation", info.generation),
            ("Passages", str(info.chunks)),
            *made(info.fingerprint),
            ("Run", joined((moment(when), f"by Recto {__version__}"), " ")),
        ]
    )


def _map(found: Coverage) -> Markup:
    rows = found.pages()
    if not rows:
        return note("The book has no sections.")
    told = note(
        "Each cell is a page; its number is the percentage of questions (by heading and by first sentence) that bring their section "
        f"among the first {WITHIN}. Orange is low, blue is high."
    )
    modules = (
        _cells(module, list(pages))
        for module, pages in groupby(enumerate(rows), key=lambda numbered: numbered[1].module)
    )
    return joined((told, element("dl", *modules, class_="map")))


def _cells(module: str, pages: Sequence[tuple[int, PageCoverage]]) -> Markup:
    cells = (
        element(
            "li",
            element(
                "a",
                f"{row.heat * 100:.0f}",
                href=f"#page-{number}",
                class_=charts.shade(row.heat),
                title=f"{row.title or row.page_url}: {row.heat:.0%}",
                aria_label=f"{row.title or row.page_url}: {row.heat:.0%}",
            ),
        )
        for number, row in pages
    )
    return element("div", element("dt", words(module)), element("dd", element("ol", *cells)))


def _pages(found: Coverage) -> Markup:
    rows = found.pages()
    if not rows:
        return Markup()
    columns = (
        *map(tables.text, ("Page", "Module")),
        tables.chart("Questions that bring their section"),
        *map(tables.numbers, ("Percent", "Sections", "By heading", "By sentence", "Reached")),
    )
    return tables.table(
        "Pages, and how many of their sections come",
        columns,
        (_page(number, row) for number, row in enumerate(rows)),
    )


def _page(number: int, row: PageCoverage) -> tuple[str, ...]:
    name = element(
        "span",
        words(row.title) if row.title else None,
        element("small", place(row.page_url)),
        id=f"page-{number}",
    )
    drawn = charts.bar(f"{row.heat:.0%}", row.heat)
    counts = map(str, (row.sections, row.by_heading, row.by_sentence, row.reached))
    return name, words(row.module), drawn, f"{row.heat:.0%}", *counts


def _modules(found: Coverage) -> Markup:
    if not found.confusion:
        return Markup()
    matrix = tables.matrix(
        "Where the first results were from, for each module asked for", "Asked for", found.confusion
    )
    return joined(
        (
            matrix,
            note(
                "Blue: the module itself. Orange: another one. The deeper, the larger the share of the row."
            ),
        )
    )


def _listing(caption: str, found: Sequence[Reached], why: str, reason: Callable[[Reached], Markup]) -> Markup:
    if not found:
        return note("None.")
    columns = (
        *map(tables.text, ("Section", "Module")),
        *map(tables.numbers, ("By heading", "By sentence")),
        tables.text(why),
    )
    rows = (
        (
            _name(one),
            words(one.section.module),
            _rank(one.heading_rank),
            _rank(one.sentence_rank),
            reason(one),
        )
        for one in found
    )
    table = tables.table(caption, columns, rows)
    return table if len(found) <= _OPEN else folded(counted(len(found), "section"), table)


def _name(one: Reached) -> Markup:
    return element(
        "span", words(" > ".join(one.section.headings)), element("small", place(one.section.place))
    )


def _rank(rank: int | None) -> str:
    return "none" if rank is None else str(rank)


def _first(one: Reached) -> Markup:
    return place(one.first[0].link) if one.first else element("span", "nothing came", class_="none")


def _copies(one: Reached) -> Markup:
    return element("ul", *(element("li", place(copy)) for copy in one.copies))


def _shadow(one: Reached) -> Markup:
    return words(one.shadowed_by)
