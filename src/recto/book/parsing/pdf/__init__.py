"""Split a PDF into pages of a book by its outline, and parse these; without an outline, by font sizes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from recto._util.text import slug
from recto.book.parsing.pdf.layout import (
    LARGE,
    UNKNOWN,
    Hyphens,
    Row,
    TextRun,
    body_size,
    in_reading_order,
    paragraphs,
    without_running_heads,
)
from recto.book.parsing.rendered import TextBlock, by_anchor, fenced, sections
from recto.errors import missing_extra
from recto.types.book import Document, Page, Part, Volume

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument, PdfTextPage

_TIMEOUT = 600  # seconds
_MOST_MEMORY = 512 << 20  # bytes of the child process, and _PER_BYTE for each byte of the file
_PER_BYTE = 8
_MOST_PAGES, _MOST_CHARACTERS = 10_000, 30_000  # of a book, and of a page
_MOST_ENTRIES = 20_000  # of an outline
_FEWEST_CHARACTERS = 8  # of a page with text; a scanned page may have a page number
_FEWEST_ENTRIES = 4  # of an outline, to doubt that all are on one page
_LONGEST_HEADING = 150
_PAGES_PER_PART = 40  # if the chapters have more, their sections are pages of their own
_PAGES_WITHOUT_HEADINGS = 20
_GAP = 1.6  # sizes of a font, from which a space separates cells or columns
_FEWEST_UNIFORM, _MOST_UNIFORM = 4, 8  # characters of a word that tell whether all have the same width
_MONO = re.compile(
    r"mono|courier|consol|typewriter|cmtt|sftt|ectt|inconsolata|menlo|code|fixed|lettergothic", re.IGNORECASE
)
_NUMBERING = re.compile(r"^(?:chapter|part|appendix|section)?[\s.]*[\divxlc]*(?:[.\d]*)", re.IGNORECASE)
_HYPHENS = "\u00ad\ufffe\x02"  # a hyphen at the end of a line
_ICON = re.compile("[\ue000-\uf8ff\ufeff]")
_SCANNED = "it has no text: it is scanned. Recognise its text first, for instance with `ocrmypdf`"


class _Entry(NamedTuple):
    """An entry of the outline: its level from one, its title, its page from zero, and its height on it."""

    level: int
    title: str
    page: int
    top: float | None


def split_pdf(data: bytes) -> Volume:
    """Return the chapters of a PDF; raise ValueError if it cannot be read.

    A child process with limits reads it: PDFium is a large program in C++, and the file may be hostile.
    """
    if find_spec("pypdfium2") is None:
        raise missing_extra("Reading a PDF", "pdf")
    command = [sys.executable, "-c", f"from {__name__} import main; main()"]
    try:
        run = subprocess.run(command, input=data, capture_output=True, check=False, timeout=_TIMEOUT)
    except subprocess.TimeoutExpired as error:
        raise ValueError(f"reading it takes more than {_TIMEOUT} seconds") from error
    if run.returncode:
        reason = run.stderr.decode("utf-8", "replace").strip().split("\n")[-1]
        raise ValueError(f"the process that read it ended unexpectedly ({reason[:200] or run.returncode})")
    answer = json.loads(run.stdout)
    if "problem" in answer:
        raise ValueError(answer["problem"])
    return Volume(answer["title"], tuple(Part(*part) for part in answer["parts"]), tuple(answer["notes"]))


def main() -> None:
    """Read a PDF from standard input in a child process, and print its chapters as JSON."""
    data = sys.stdin.buffer.read()
    with suppress(ImportError, ValueError, OSError):  # not on Windows, or there is a lower limit
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY + _PER_BYTE * len(data),) * 2)
    try:
        volume = split_in_process(data)
        answer = {
            "title": volume.title,
            "notes": volume.notes,
            "parts": [(part.name, part.title, part.text, part.section) for part in volume.parts],
        }
    except (ValueError, MemoryError) as error:
        answer = {"problem": str(error) or "it needs too much memory"}
    sys.stdout.write(json.dumps(answer))


def split_in_process(data: bytes) -> Volume:
    """Return the chapters of a PDF, without the protection of a child process."""
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        locked = "password" in str(error).lower()
        raise ValueError("it is protected by a password" if locked else "the PDF is damaged") from error
    try:
        return _split(document)
    finally:
        document.close()


def read_pdf(page: Page) -> Document:
    """Parse a chapter, as `split_pdf` wrote it; every section begins a new one on each page."""
    blocks: list[TextBlock] = []
    last = 0
    for kind, level, number, text in json.loads(page.text):
        lines = fenced(text) if kind == "code" else text.split("\n")
        block = TextBlock(kind, lines, level=level, id=f"page={number}" if kind == "heading" else "")
        block.anchors = [(0, f"page={number}")] if number != last or kind == "heading" else []
        last = number
        blocks.append(block)
    whole = sections(blocks, page.title)
    return Document(
        page.title, tuple(part for section in whole for part in by_anchor(section, section.anchors))
    )


def _split(document: PdfDocument) -> Volume:
    count = len(document)
    if count > _MOST_PAGES:
        raise ValueError(f"it has {count} pages, and the limit is {_MOST_PAGES}")
    pages = [_page_rows(document, number) for number in range(count)]
    empty = sum(sum(len(row.text) for row in rows) < _FEWEST_CHARACTERS for rows in pages)
    if empty == count:
        raise ValueError(_SCANNED)
    notes = (f"{empty} of its {count} pages have no text; they may be scanned.",) if empty * 4 > count else ()
    _forget_fixed_width(pages)
    pages = without_running_heads(pages)
    title = " ".join((document.get_metadata_dict().get("Title") or "").split())[:_LONGEST_HEADING]
    entries = _relocated(_outline(document, count), pages) or _headings_by_size(pages)
    headings = _heading_rows(entries, pages)
    hyphens = Hyphens(row.text for rows in pages for row in rows)
    runs = paragraphs((row for rows in pages for row in rows), headings, hyphens)
    return Volume(title, tuple(_parts(runs, count, title)), notes)


def _forget_fixed_width(pages: Sequence[Sequence[Row]]) -> None:
    """Read a book that is set in a font of fixed width as text, not as code."""
    rows = [row for page in pages for row in page]
    if sum(len(row.text) for row in rows if row.pitch > 0) * 2 > sum(len(row.text) for row in rows):
        for row in rows:
            row.pitch = 0.0


def _page_rows(document: PdfDocument, number: int) -> list[Row]:
    """Return the rows of a page in reading order; none if the page is damaged."""
    import pypdfium2

    try:
        page = document[number]
        text_page = page.get_textpage()
    except pypdfium2.PdfiumError:
        return []
    try:
        rows = in_reading_order(list(_segments(text_page)))
    finally:
        text_page.close()
        page.close()
    for row in rows:
        row.page = number
    return rows


def _segments(text_page: PdfTextPage) -> Iterator[Row]:
    """Yield runs of words on one line; a wide space ends a run."""
    row: Row | None = None
    for start, text, breaks in _words(text_page):
        left, bottom, right, size = _box(text_page, start, start + len(text) - 1)
        gap = left - row.right if row else 0.0
        same_line = row is not None and abs(row.bottom - bottom) < 0.5 * row.size and not breaks
        if row and same_line and -row.size < gap < (40 if row.pitch > 0 else _GAP) * row.size:
            if row.pitch and (pitch := _pitch(text_page, start, text)) != UNKNOWN:
                row.pitch = pitch
            spaces = " " * max(1, round(gap / row.pitch)) if row.pitch > 0 else " "
            row.cells[-1] = (row.cells[-1][0], row.cells[-1][1] + spaces + text)
            row.right, row.size = right, max(row.size, size)
            continue
        if row:
            yield row
        row = Row(left, right, bottom, size, _pitch(text_page, start, text), [(left, text)])
    if row:
        yield row


def _words(text_page: PdfTextPage) -> Iterator[tuple[int, str, bool]]:
    """Yield each word with its first character's index, and whether it begins a line."""
    from pypdfium2 import raw

    start, marks, breaks = 0, list[str](), True
    for index in range(min(text_page.count_chars(), _MOST_CHARACTERS)):
        code = raw.FPDFText_GetUnicode(text_page, index)
        mark = chr(code) if 0 < code < 0x110000 and not 0xD800 <= code < 0xE000 else " "
        if mark.isspace():
            if marks:
                yield start, "".join(marks), breaks
                marks, breaks = [], False
            breaks = breaks or mark in "\r\n"
            continue
        if not marks:
            start = index
        marks.append("-" if mark in _HYPHENS else mark)
        if mark in _HYPHENS:  # PDFium leaves out the line break after it
            yield start, "".join(marks), breaks
            marks, breaks = [], True
    if marks:
        yield start, "".join(marks), breaks


def _box(text_page: PdfTextPage, first: int, last: int) -> tuple[float, float, float, float]:
    """Return the left, baseline and right of a word, and the size of its font."""
    left, bottom, right, top = text_page.get_charbox(first, loose=True)
    if last > first:
        right = text_page.get_charbox(last, loose=True)[2]
    return left, _origin(text_page, first)[1], max(right, left), max(top - bottom, 1.0)


def _origin(text_page: PdfTextPage, index: int) -> tuple[float, float]:
    from ctypes import c_double

    from pypdfium2 import raw

    x, y = c_double(), c_double()
    raw.FPDFText_GetCharOrigin(text_page, index, x, y)
    return x.value, y.value


def _pitch(text_page: PdfTextPage, start: int, text: str) -> float:
    """Return the width of the characters of a word in a font of fixed width, else zero, or `UNKNOWN`."""
    from ctypes import c_int, create_string_buffer

    from pypdfium2 import raw

    name, flags = create_string_buffer(128), c_int()
    raw.FPDFText_GetFontInfo(text_page, start, name, len(name), flags)
    positions = [_origin(text_page, start + index)[0] for index in range(min(len(text), _MOST_UNIFORM))]
    widths = [end - start for start, end in pairwise(positions)]
    if flags.value & 1 or _MONO.search(name.value.decode("utf-8", "replace")):
        left, _, right, _ = text_page.get_charbox(start, loose=True)
        return max(widths[0] if widths else right - left, 0.0)
    if len(set(text[:_MOST_UNIFORM])) < _FEWEST_UNIFORM:
        return UNKNOWN
    return widths[0] if 0 < max(widths) < 1.02 * min(widths) else 0.0


def _outline(document: PdfDocument, count: int) -> list[_Entry]:
    entries: list[_Entry] = []
    for bookmark in document.get_toc(max_depth=6):
        destination: Any = bookmark.get_dest()
        title = " ".join(_ICON.sub("", bookmark.get_title()).split())[:_LONGEST_HEADING]
        page = destination.get_index() if destination else None
        if title and page is not None and 0 <= page < count:
            _, view = destination.get_view()
            top = view[1] if len(view) > 1 and isinstance(view[1], float) else None
            entries.append(_Entry(bookmark.level + 1, title, page, top))
        if len(entries) >= _MOST_ENTRIES:
            break
    return entries


def _headings_by_size(pages: Sequence[Sequence[Row]]) -> list[_Entry]:
    """Return rows in a font that is larger than body text as an outline; [] if there are too many or few."""
    body = body_size(pages)
    large = [
        row
        for rows in pages
        for row in rows
        if row.size >= body * LARGE
        and row.pitch <= 0
        and 2 < len(row.text) <= _LONGEST_HEADING
        and any(mark.isalpha() for mark in row.text)
    ]
    total = sum(map(len, pages))
    if len(large) < 2 or len(large) * 4 > total:
        return []
    steps = sorted({round(row.size) for row in large}, reverse=True)
    return [_Entry(min(steps.index(round(row.size)) + 1, 4), row.text, row.page, row.bottom) for row in large]


def _relocated(entries: list[_Entry], pages: Sequence[Sequence[Row]]) -> list[_Entry]:
    """Search for the titles of an outline whose entries all point to the same page, in their order."""
    if len(entries) < _FEWEST_ENTRIES or len({entry.page for entry in entries}) > 1:
        return entries
    placed, start = list[_Entry](), 0
    for entry in entries:
        anywhere = entry._replace(top=None)
        page = next((page for page in range(start, len(pages)) if _matching(anywhere, pages[page])), None)
        if page is not None:
            placed.append(anywhere._replace(page=page))
            start = page
    return placed


def _heading_rows(entries: Sequence[_Entry], pages: list[list[Row]]) -> dict[int, tuple[int, str]]:
    """Return the level and title of the rows that are headings, by `id`; further rows of one have none."""
    headings: dict[int, tuple[int, str]] = {}
    for entry in entries:
        rows = [row for row in pages[entry.page] if id(row) not in headings]
        matched = _matching(entry, rows)
        if not matched:
            top = entry.top
            following = next((row for row in rows if top is None or row.bottom <= top), None)
            matched = [Row(0, 0, 0, 1, 0, [], entry.page)]
            index = next((index for index, row in enumerate(pages[entry.page]) if row is following), None)
            pages[entry.page].insert(len(pages[entry.page]) if index is None else index, matched[0])
        headings[id(matched[0])] = (entry.level, entry.title)
        headings |= {id(row): (0, "") for row in matched[1:]}
    return headings


def _letters(text: str) -> str:
    return re.sub(r"[\W_]+", "", text.lower())


def _matching(entry: _Entry, rows: Sequence[Row]) -> Sequence[Row]:
    """Return the rows that show the title of an entry, nearest to its position."""
    wanted = {_letters(entry.title), _letters(_NUMBERING.sub("", entry.title, count=1))} - {""}
    candidates: list[Sequence[Row]] = []
    for index in range(len(rows)):
        for length in range(1, 5):
            shown = " ".join(row.text for row in rows[index : index + length])
            if {_letters(shown), _letters(_NUMBERING.sub("", shown, count=1))} & wanted:
                candidates.append(rows[index : index + length])
                break
            if len(_letters(shown)) > 250:
                break

    def rank(rows: Sequence[Row]) -> tuple[float, float]:
        distance = abs(rows[0].bottom - entry.top) if entry.top is not None else 0.0
        return max(row.size for row in rows), -distance

    return max(candidates, key=rank, default=[])


def _parts(runs: Sequence[TextRun], count: int, title: str) -> Iterator[Part]:
    """Yield a page for each chapter; for each of their sections if chapters are long."""
    tops = [run.level for run in runs if run.kind == "heading"]
    level = 1
    while tops and level < 3 and count / max(1, sum(top <= level for top in tops)) > _PAGES_PER_PART:
        level += 1
    section, label, blocks = "", title or "Front matter", list[TextRun]()
    groups = [(section, label, blocks)]
    for run in runs:
        starts = run.kind == "heading" and run.level <= level
        pages = not tops and blocks and run.page - blocks[0].page >= _PAGES_WITHOUT_HEADINGS
        if starts:
            section = section if run.level > 1 else run.text if level > 1 else ""
        if starts or pages:
            label, blocks = run.text if starts else f"Page {run.page + 1}", []
            groups.append((section, label, blocks))
        if not starts:
            blocks.append(run)
    names: Counter[str] = Counter()
    for section, label, blocks in groups:
        if any(run.kind != "heading" for run in blocks):
            name = slug(label) or f"page-{blocks[0].page + 1}"
            names[name] += 1
            shift = min((run.level for run in blocks if run.kind == "heading"), default=2) - 2
            levels = [max(run.level - shift, 2) if run.level else 0 for run in blocks]
            written = [
                (run.kind, level, run.page + 1, run.text) for run, level in zip(blocks, levels, strict=True)
            ]
            text = json.dumps(written, ensure_ascii=False)
            yield Part(name if names[name] == 1 else f"{name}-{names[name]}", label, text, section)
