"""Tables that scroll inside their own box, and matrices whose cells are coloured by their share of the row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from recto.report.charts import agreement
from recto.report.markup import Markup, element, joined, safe, words

_CHART, _NUMBER, _TEXT = "chart", "number", "text"


@dataclass(frozen=True, slots=True)
class Column:
    """A column's heading, and what its cells hold."""

    title: str
    kind: str = _TEXT


def text(title: str) -> Column:
    """A column of words."""
    return Column(title)


def numbers(title: str) -> Column:
    """A column of numbers, aligned by their digits."""
    return Column(title, _NUMBER)


def chart(title: str) -> Column:
    """A column of drawings."""
    return Column(title, _CHART)


def table(caption: str, columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> Markup:
    """Return a table whose rows are named by their first cells."""
    head = element("tr", *(element("th", column.title, scope="col", class_=column.kind) for column in columns))
    return boxed(caption, head, (_row(columns, row) for row in rows))


def boxed(caption: str, head: Markup, rows: Iterable[Markup], class_: str = "box") -> Markup:
    """Put rows under a heading into a box that scrolls where the page is narrower; the keyboard reaches it."""
    body = element("tbody", joined(rows))
    whole = element("table", element("caption", element("span", caption)), element("thead", head), body)
    return element("div", whole, class_=class_, role="region", aria_label=caption, tabindex=0)


def matrix(caption: str, corner: str, counts: Mapping[str, Mapping[str, int]]) -> Markup:
    """Return how often a row's name met each column's; right is blue, wrong is orange, and deeper is more often."""
    names = sorted({*counts, *(name for row in counts.values() for name in row)})
    head = element("tr", element("th", corner, scope="col"), *(element("th", words(name), scope="col", class_=_NUMBER) for name in names))
    rows = (
        element("tr", element("th", words(name), scope="row"), *(_cell(name, other, row) for other in names))
        for name, row in counts.items()
    )
    return boxed(caption, head, rows, "box matrix")


def _cell(name: str, other: str, row: Mapping[str, int]) -> Markup:
    count, total = row.get(other, 0), sum(row.values())
    if not count:
        return element("td", "\N{MIDDLE DOT}", class_="number none")
    return element("td", str(count), class_=f"number {agreement(count / total, right=name == other)}")


def _row(columns: Sequence[Column], cells: Sequence[str]) -> Markup:
    first = element("th", cells[0], scope="row", class_=columns[0].kind)
    rest = (element("td", cell, class_=column.kind) for column, cell in zip(columns[1:], cells[1:], strict=True))
    return element("tr", first, *map(safe, rest))
