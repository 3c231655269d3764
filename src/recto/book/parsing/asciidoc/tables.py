"""The rows of AsciiDoc tables."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from recto.book.parsing.asciidoc.text import number_of

_MOST_COLUMNS = 100  # a specification such as `999999*` must not fill the memory
_MOST_CELLS = 20_000  # each costs time
_SPEC = re.compile(
    r"(?<=\s)(?:(?:(?P<columns>\d{1,6})?(?:\.(?P<rows>\d{1,6}))?(?P<sign>[*+]))?(?:[<^>]?(?:\.[<^>])?)(?P<style>[a-z])?)$"
)
_COLUMN = re.compile(r"(?:(?P<count>\d{1,6})\*)?[^a-z]*(?P<style>[a-z])?")

Cell = tuple[str, str]
"""The text of a cell, and the letter of its style."""


@dataclass(frozen=True, slots=True)
class _Spec:
    columns: int = 1
    rows: int = 1
    repeated: int = 1
    style: str = ""


def table_rows(lines: Sequence[str], columns: str, separator: str) -> Iterator[list[Cell]]:
    """Yield the rows of a table; `columns` is the attribute `cols`."""
    styles = _styles(columns)
    if separator in (",", "\t", ":"):
        for row in csv.reader([line for line in lines if line], delimiter=separator):
            styles = styles or [""] * len(row)
            yield list(zip(row[:_MOST_COLUMNS], [*styles, *[""] * _MOST_COLUMNS], strict=False))
        return
    first = next((line for line in lines if line), "")
    width = len(styles) or sum(spec.columns * spec.repeated for spec, _ in _cells(first, separator)) or 1
    yield from _laid_out(_cells("\n".join(lines), separator), min(width, _MOST_COLUMNS), styles)


def _styles(columns: str) -> list[str]:
    """Return the style of each column that `cols` states."""
    styles: list[str] = []
    for part in re.split(r"[,;]", columns) if columns else ():
        found = _COLUMN.match(part.strip())
        count = number_of(found["count"] or "1") if found else 1
        styles += [(found["style"] or "") if found else ""] * min(count, _MOST_COLUMNS)
    return styles[:_MOST_COLUMNS]


def _cells(text: str, separator: str) -> Iterator[tuple[_Spec, str]]:
    """Yield the cells of a text; what stands before a separator is the specification of the next cell."""
    parts = re.split(rf"(?<!\\){re.escape(separator)}", text, maxsplit=_MOST_CELLS)
    spec = _spec(f"\n{parts[0]}")[0]
    for index, part in enumerate(parts[1:], 2):
        following, length = _spec(part) if index < len(parts) else (_Spec(), 0)
        yield spec, part[: len(part) - length].strip().replace(f"\\{separator}", separator)
        spec = following


def _spec(text: str) -> tuple[_Spec, int]:
    """Return the specification at the end of a text, and its length."""
    found = _SPEC.search(text, max(len(text) - 20, 0)) if not text or not text[-1].isspace() else None
    if found is None:
        return _Spec(), 0
    columns, rows = number_of(found["columns"] or "1"), number_of(found["rows"] or "1")
    style, length = found["style"] or "", len(found[0])
    if found["sign"] == "*":
        return _Spec(repeated=min(columns, _MOST_COLUMNS), style=style), length
    return _Spec(max(1, min(columns, _MOST_COLUMNS)), max(1, rows), style=style), length


def _laid_out(cells: Iterator[tuple[_Spec, str]], width: int, styles: Sequence[str]) -> Iterator[list[Cell]]:
    """Yield rows of `width` cells; a cell that spans others leaves them empty."""
    row: list[Cell] = []
    below = [0] * width
    repeated = ((spec, text) for spec, text in cells for _ in range(spec.repeated))
    for spec, text in islice(repeated, _MOST_CELLS):
        while len(row) < width and below[len(row)]:
            below[len(row)] -= 1
            row.append(("", ""))
        column = len(row)
        if column < width:
            row.append((text, spec.style or (styles[column] if column < len(styles) else "")))
            row += [("", "")] * min(spec.columns - 1, width - column - 1)
            for index in range(column, len(row)):
                below[index] = spec.rows - 1
        while len(row) < width and below[len(row)]:
            below[len(row)] -= 1
            row.append(("", ""))
        if len(row) >= width:
            yield row
            row = []
    if row:
        yield [*row, *[("", "")] * (width - len(row))]
