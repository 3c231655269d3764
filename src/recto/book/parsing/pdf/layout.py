"""Find the rows, columns and paragraphs of the pages of a PDF, from the positions of their words.

A PDF has words with positions, and nothing else. `in_reading_order` joins the words of a page into rows,
column by column. `without_running_heads` drops what repeats on every page. `paragraphs` groups the rows of
all pages into paragraphs, lists, tables and blocks of code. Distances are measured in sizes of the font, so
that they hold for every book.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from recto.book.parsing.rendered import table

_GUTTER = (0.3, 0.7)  # the share of the text's width where the space between two columns may be
_MOST_CROSSING = 0.2  # the share of rows that may cross it: headings, figures
_FEWEST_ROWS = 5  # of a column
_NARROWEST = 0.25  # of a column's rows; the cells of a table are narrower
# A space can match in one way only: with two, a row of dots takes exponential time.
_LEADER = re.compile(r"(?<![\s.·…])(?:\s*+[.·…]){4,}+\s*+[\divxlc]*+$")
_END_NUMBERS = re.compile(r"^\W*(\d{1,5})\b|\b(\d{1,5})\W*$")
_PAGE_NUMBER = re.compile(r"\W*(?:\d{1,5}|[ivxlcdm]{1,8}|page \d+(?: of \d+)?)\W*", re.IGNORECASE)
_BULLET = re.compile(r"(?:[•‣◦▪●○■–*]|\(?(?:\d{1,2}|[a-z])[.)])\s+(?=\S)")
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_ENDS_SENTENCE = (".", "!", "?", ":", "”", ")", "。")
_SAME_LINE = 0.4  # sizes; the bottoms of words on one line differ less, as in an index or an exponent
_SAME_SIZE = 0.15  # of the size above; a larger difference begins another block
_NEXT_LINE = 1.45  # usual distances of lines; a larger one is a space between paragraphs
_NEXT_CODE_LINE = 2.6  # usual distances of lines; a block of code may have a blank line
_INDENT = 0.8  # sizes; the first line of a paragraph is indented by more
_SHORT_LINE = 8  # sizes that the last line of a paragraph is shorter than the longest one
_MOST_FOOTNOTES = 6  # blocks at the end of a page that a paragraph may skip
_COLUMN_GAP = 1.5  # sizes between the starts of two columns of a table
UNKNOWN = -1.0
"""The pitch of a row whose words are too short to tell."""
LARGE = 1.15  # sizes of body text, from which a row is a heading
_LONGEST_HEAD = 150  # characters of a running head
_COMMON_HEAD = 3  # pages that have the same first or last row, from which it is a running head


@dataclass(slots=True)
class Row:
    """Words on one line of a column, in one or several cells; y grows upwards.

    `pitch` is the width of a character if all have the same, zero if not, and `UNKNOWN` for a short word.
    """

    left: float
    right: float
    bottom: float
    size: float
    pitch: float
    cells: list[tuple[float, str]]
    page: int = 0

    @property
    def text(self) -> str:
        """The text of all cells."""
        return " ".join(text for _, text in self.cells)


@dataclass(slots=True)
class TextRun:
    """What a paragraph, a list, a block of code, a table or a heading consists of."""

    kind: str
    page: int
    rows: list[Row] = field(default_factory=list)
    text: str = ""
    level: int = 0


def in_reading_order(segments: Sequence[Row]) -> list[Row]:
    """Return the rows of a page: the left column before the right one."""
    if not segments:
        return []
    gutter = _gutter(segments)
    if gutter is None:
        return _rows(segments)
    ordered: list[Row] = []
    band: list[Row] = []
    for segment in sorted(segments, key=lambda segment: -segment.bottom):
        if segment.left < gutter < segment.right:
            ordered += [*_columns(band, gutter), segment]
            band = []
        else:
            band.append(segment)
    return [*ordered, *_columns(band, gutter)]


def _columns(band: Sequence[Row], gutter: float) -> list[Row]:
    """Return the rows of a band that no segment crosses: left of the gutter, then right of it."""
    left = [segment for segment in band if segment.right <= gutter]
    right = [segment for segment in band if segment.right > gutter]
    return [*_rows(left), *_rows(right)]


def _gutter(segments: Sequence[Row]) -> float | None:
    """Return where the space between two columns of text is; None if the page has one column."""
    start, end = min(row.left for row in segments), max(row.right for row in segments)
    width = end - start
    best: tuple[float, float] | None = None
    for step in range(21):
        x = start + width * (_GUTTER[0] + (_GUTTER[1] - _GUTTER[0]) * step / 20)
        left = [row for row in segments if row.right <= x]
        right = [row for row in segments if row.left >= x]
        crossing = len(segments) - len(left) - len(right)
        if min(len(left), len(right)) < _FEWEST_ROWS or crossing > len(segments) * _MOST_CROSSING:
            continue
        narrow = min(median(row.right - row.left for row in side) for side in (left, right))
        if narrow >= width * _NARROWEST and (best is None or crossing < best[0]):
            best = (crossing, x)
    return best[1] if best else None


def _rows(segments: Sequence[Row]) -> list[Row]:
    """Join segments on the same line into rows, from top to bottom."""
    rows: list[Row] = []
    for segment in sorted(segments, key=lambda segment: (-segment.bottom, segment.left)):
        above = rows[-1] if rows else None
        if above and abs(above.bottom - segment.bottom) < _SAME_LINE * max(above.size, segment.size):
            above.cells = sorted([*above.cells, *segment.cells])
            above.left, above.right = min(above.left, segment.left), max(above.right, segment.right)
            above.size, above.pitch = max(above.size, segment.size), min(above.pitch, segment.pitch)
        else:
            rows.append(segment)
    return rows


def body_size(pages: Iterable[Iterable[Row]]) -> float:
    """Return the size of the font that most of the text has."""
    sizes: Counter[float] = Counter()
    for rows in pages:
        for row in rows:
            sizes[round(row.size, 1)] += len(row.text)
    return sizes.most_common(1)[0][0] if sizes else 0.0


def without_running_heads(pages: list[list[Row]]) -> list[list[Row]]:
    """Return the pages without running heads, running feet, page numbers and lines of a table of contents."""
    body = body_size(pages)
    ends = [(page, rows[index]) for page, rows in enumerate(pages) for index in {0, len(rows) - 1} if rows]
    texts = Counter((_normalized(row.text), round(row.bottom / 4)) for _, row in ends)
    offsets: Counter[int] = Counter(number - page for page, row in ends for number in _numbers(row.text))
    offset, count = offsets.most_common(1)[0] if offsets else (0, 0)

    def runs(page: int, row: Row) -> bool:
        if _PAGE_NUMBER.fullmatch(row.text):
            return True
        key, height = _normalized(row.text), round(row.bottom / 4)
        repeated = sum(texts[key, height + near] for near in (-1, 0, 1)) >= _COMMON_HEAD
        numbered = count >= _COMMON_HEAD and any(number - page == offset for number in _numbers(row.text))
        is_text = key and len(row.text) < _LONGEST_HEAD and row.size < LARGE * body
        return bool(is_text) and (repeated or numbered)

    kept = []
    for page, rows in enumerate(pages):
        start, end = 0, len(rows)
        while start < end and start < 2 and runs(page, rows[start]):
            start += 1
        while end > start and end > len(rows) - 2 and runs(page, rows[end - 1]):
            end -= 1
        kept.append([row for row in rows[start:end] if not _LEADER.search(row.text[-200:])])
    return kept


def _normalized(text: str) -> str:
    return re.sub(r"[\W\d_]+", "", text.lower())


def _numbers(text: str) -> list[int]:
    return [int(first or last) for first, last in _END_NUMBERS.findall(text)]


def paragraphs(rows: Iterable[Row], headings: dict[int, tuple[int, str]], hyphens: Hyphens) -> list[TextRun]:
    """Group rows into paragraphs and other blocks; `headings` has level and title by `id` of their rows."""
    runs: list[TextRun] = []
    ordered = list(rows)
    pitch = _pitch(ordered)
    for near, row in (*pairwise(ordered), *((below, row) for row, below in pairwise(ordered))):
        # A row of short words is code if the row above or below it is.
        if row.pitch == UNKNOWN and near.pitch > 0 and abs(near.size - row.size) < 0.1 * row.size:
            row.pitch = near.pitch
    for row in ordered:
        if id(row) in headings:
            level, title = headings[id(row)]
            if title:
                runs.append(TextRun("heading", row.page, [row], title, level))
            continue
        last = runs[-1] if runs else None
        kind = "code" if row.pitch > 0 else "list" if _BULLET.match(row.text) else "paragraph"
        if last and row.page > last.rows[-1].page:
            last = _above_footnotes(runs, row)
        if last and last.kind != "heading" and last.rows and _continues(last, row, kind, pitch):
            last.rows.append(row)
        else:
            runs.append(TextRun(kind, row.page, [row]))
    for run in runs:
        if run.kind != "heading":
            _set_text(run, hyphens)
    return [run for run in runs if run.text.strip()]


def _above_footnotes(runs: Sequence[TextRun], row: Row) -> TextRun:
    """Return the last block of the page before, above its footnotes, which are smaller than the next row."""
    for run in reversed(runs[-_MOST_FOOTNOTES:]):
        if run.kind == "heading" or run.rows[-1].size >= row.size * (1 - _SAME_SIZE):
            return run
    return runs[-1]


def _pitch(rows: Sequence[Row]) -> float:
    """Return the usual distance between two lines, in sizes of their font."""
    steps = [
        step
        for row, below in pairwise(rows)
        if row.page == below.page and row.size and 0.5 < (step := (row.bottom - below.bottom) / row.size) < 3
    ]
    return median(steps) if steps else 1.2


def _continues(run: TextRun, row: Row, kind: str, pitch: float) -> bool:
    """Return whether a row belongs to the block above it."""
    above = run.rows[-1]
    step = (above.bottom - row.bottom) / max(above.size, row.size, 1)
    near = above.page == row.page and -0.5 < step < pitch * _NEXT_LINE
    if run.kind == "code" or kind == "code":
        return run.kind == kind and (near or (above.page == row.page and 0 < step < pitch * _NEXT_CODE_LINE))
    if abs(above.size - row.size) > _SAME_SIZE * above.size:
        return False
    if kind == "list":
        return run.kind == "list" and near
    if len(above.cells) > 1 and len(row.cells) > 1:
        return near
    starts_low = row.text[:1].islower()
    is_short = above.right < max(other.right for other in run.rows) - _SHORT_LINE * above.size
    if not near:  # the next column or page
        goes_on = starts_low or (len(run.rows) > 1 and not is_short)
        return goes_on and not above.text.endswith(_ENDS_SENTENCE) and run.kind == "paragraph"
    indent = row.left - min(other.left for other in run.rows)
    is_indented = run.kind == "paragraph" and indent > _INDENT * row.size and len(run.rows) > 1
    return not is_indented and not (is_short and above.text.endswith(_ENDS_SENTENCE) and not starts_low)


def _set_text(run: TextRun, hyphens: Hyphens) -> None:
    """Set the text of a run; a paragraph whose rows have several cells turns out to be a table."""
    rows = run.rows
    if run.kind == "code":
        left = min(row.left for row in rows)
        run.text = "\n".join(" " * min(round((row.left - left) / row.pitch), 80) + row.text for row in rows)
    elif sum(len(row.cells) > 1 for row in rows) >= max(3, 0.6 * len(rows)):
        run.kind, run.text = "table", _table(rows)
    elif run.kind == "list":
        run.text = "\n".join(hyphens.joined(item) for item in _items(rows))
    else:
        run.text = hyphens.joined([row.text for row in rows])


def _items(rows: Sequence[Row]) -> list[list[str]]:
    """Return the lines of each item of a list; any bullet becomes a hyphen."""
    items: list[list[str]] = []
    for row in rows:
        if mark := _BULLET.match(row.text):
            number, text = mark[0].strip(), row.text[mark.end() :]
            items.append([f"{number} {text}" if number[-1] in ".)" else f"- {text}"])
        elif items:
            items[-1].append(row.text)
        else:
            items.append([row.text])
    return items


def _table(rows: Sequence[Row]) -> str:
    """Return rows as a Markdown table; cells that begin at about the same x are a column."""
    size = median(row.size for row in rows) or 1
    columns: list[float] = []
    last = float("-inf")
    for x in sorted(x for row in rows for x, _ in row.cells):
        columns += [x] if x - last > _COLUMN_GAP * size else []
        last = x
    lines: list[list[str]] = []
    for row in rows:
        cells = [""] * len(columns)
        for x, text in row.cells:
            column = max((index for index, start in enumerate(columns) if start <= x + 0.1), default=0)
            cells[column] = f"{cells[column]} {text}".strip().replace("|", "\\|")
        if lines and sum(map(bool, cells)) == 1 and not cells[0]:  # the second line of a cell
            lines[-1] = [f"{cell} {more}".strip() for cell, more in zip(lines[-1], cells, strict=True)]
        else:
            lines.append(cells)
    return "\n".join(table(lines))


class Hyphens:
    """Joins lines, and words that a hyphen at the end of a line divides."""

    def __init__(self, texts: Iterable[str]) -> None:
        """Count the words of a book: they tell which words are written with a hyphen."""
        self._words: Counter[str] = Counter()
        for text in texts:
            self._words.update(word.lower() for word in _WORD.findall(text))

    def joined(self, lines: Sequence[str]) -> str:
        """Return lines as one."""
        whole = ""
        for line in lines:
            following = _WORD.match(line)
            if whole[-1:] in "-‐" and whole[-2:-1].isalpha() and following and line[:1].islower():
                first = re.search(r"(?<![^\W\d_])[^\W\d_]++$", whole[-100:-1])
                before = first[0].lower() if first else ""
                after = following[0].lower()
                divided = self._words[before + after] >= self._words[f"{before}-{after}"]
                whole = (whole[:-1] if divided else whole) + line
            else:
                whole = f"{whole} {line}" if whole else line
        return whole
