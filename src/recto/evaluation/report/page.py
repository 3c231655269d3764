"""The frame of a report: head, verdict, contents, sections; written whole or not at all."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from html import escape
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlsplit

from recto import __version__
from recto._util.files import replace_text
from recto.errors import StorageError
from recto.evaluation.statistics import Estimate
from recto.types import Fingerprint

_REMOVED = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
"""Control characters, those that turn the direction of what follows them, and what cannot be written as UTF-8 or has no place in HTML."""

_VOID = frozenset({"meta", "line", "circle", "rect"})

Value = str | int | float | bool | None


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def safe(text: str) -> Markup:
    """Return a text as HTML, so that nothing in it is read as a tag or an entity."""
    return text if isinstance(text, Markup) else Markup(escape(_REMOVED.sub("", text), quote=True))


def element(name: str, /, *children: str | None, **attributes: Value) -> Markup:
    """Return an element; `class_` and `aria_label` become `class` and `aria-label`, None and False are left out."""
    written = "".join(
        _attribute(key, value)
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _VOID:
        return Markup(f"<{name}{written}>" if name == "meta" else f"<{name}{written}/>")
    return Markup(
        f"<{name}{written}>{''.join(safe(child) for child in children if child is not None)}</{name}>"
    )


def joined(parts: Iterable[str | None], between: str = "\n") -> Markup:
    """Return several pieces, one after the other."""
    return Markup(safe(between).join(safe(part) for part in parts if part))


def place(address: str) -> Markup:
    """Return an address: a link if a browser can open it, else its text."""
    shown = element("span", address, class_="place")
    return (
        element("a", shown, href=_REMOVED.sub("", address), rel="noopener noreferrer")
        if _is_web(address)
        else shown
    )


def words(text: str) -> Markup:
    """Return what a person wrote, in the direction of its own script."""
    return element("bdi", text)


def number(value: float) -> str:
    """Return a measure or a score as it is printed everywhere."""
    return f"{value:.3f}".replace("-", "\N{MINUS SIGN}")


def signed(value: float) -> str:
    """Return a change, with its sign."""
    return f"{value:+.3f}".replace("-", "\N{MINUS SIGN}")


def counted(count: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _attribute(key: str, value: Value) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    return f' {name}="{safe(f"{value:.6g}" if isinstance(value, float) else str(value))}"'


def _is_web(address: str) -> bool:
    try:
        parts = urlsplit(_REMOVED.sub("", address))
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.netloc)


_HEIGHT = 20
_STEPS = (0.25, 0.45, 0.65, 0.8, 0.9, 0.97)
"""Finer at the top: in most books nearly all sections come, and the few pages that lag behind have to be seen."""


def whisker(name: str, score: Estimate) -> Markup:
    """Draw a mean between 0 and 1 as a dot, with its interval as a line."""
    said = (
        f"{name}: mean {number(score.mean)}, 95 % interval from {number(score.low)} to {number(score.high)}"
    )
    low, high = _percent(score.low), _percent(score.high)
    drawn = (_track(), *_ticks(25, 50, 75), *_interval(low, high), _dot(_percent(score.mean), "dot"))
    return _svg(said, *drawn)


def change(name: str, delta: Estimate, reach: float, *, lost: bool) -> Markup:
    """Draw a change as a dot on an axis from `-reach` to `reach`, with its interval as a line and no change in the middle."""
    said = (
        f"{name}: change {signed(delta.mean)}, 95 % interval from {signed(delta.low)} to {signed(delta.high)}"
    )

    def at(value: float) -> str:
        return _percent(0.5 + value / (2 * reach) if reach else 0.5)

    middle = element("line", class_="zero", x1="50%", x2="50%", y1=1, y2=_HEIGHT - 1)
    return _svg(
        said,
        _track(),
        middle,
        *_interval(at(delta.low), at(delta.high)),
        _dot(at(delta.mean), "dot lost" if lost else "dot"),
    )


def bar(said: str, share: float, mark: float | None = None, *, weak: bool = False) -> Markup:
    """Draw a share of the width as a bar; `mark` is a line across it, such as a noise level."""
    filled = element(
        "rect",
        class_="bar weak" if weak else "bar",
        x=0,
        y=4,
        width=_percent(share),
        height=_HEIGHT - 8,
        rx=2,
    )
    line = (
        None
        if mark is None
        else element("line", class_="mark", x1=_percent(mark), x2=_percent(mark), y1=1, y2=_HEIGHT - 1)
    )
    return _svg(said, _track(), filled, line)


def shade(share: float) -> str:
    """Return the class of a colour from orange to blue, which differ for every kind of colour vision; a sound page is blue."""
    return f"s{sum(share >= step for step in _STEPS)}"


def agreement(share: float, *, right: bool) -> str:
    """Return the class of a matrix's cell: blue for right and orange for wrong, deeper for a larger share of its row."""
    steps = (0.5, 0.8) if right else (0.15, 0.4)
    depth = 1 + sum(share >= step for step in steps)
    return f"s{3 + depth if right else 3 - depth}"


def _svg(said: str, *parts: str | None) -> Markup:
    title = element("title", said)
    return element("svg", title, joined(parts, ""), role="img", aria_label=said, width="100%", height=_HEIGHT)


def _track() -> Markup:
    middle = _HEIGHT // 2
    return element("line", class_="track", x1="0%", x2="100%", y1=middle, y2=middle)


def _ticks(*percents: int) -> Iterator[Markup]:
    for percent in percents:
        yield element(
            "line",
            class_="tick",
            x1=f"{percent}%",
            x2=f"{percent}%",
            y1=_HEIGHT // 2 - 3,
            y2=_HEIGHT // 2 + 3,
        )


def _interval(low: str, high: str) -> Iterator[Markup]:
    middle = _HEIGHT // 2
    yield element("line", class_="whisker", x1=low, x2=high, y1=middle, y2=middle)
    for end in (low, high):
        yield element("line", class_="whisker", x1=end, x2=end, y1=middle - 4, y2=middle + 4)


def _dot(where: str, class_: str) -> Markup:
    return element("circle", class_=class_, cx=where, cy=_HEIGHT // 2, r=4.5)


def _percent(share: float) -> str:
    return f"{min(1.0, max(0.0, share)) * 100:.4g}%"


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
    head = element(
        "tr", *(element("th", column.title, scope="col", class_=column.kind) for column in columns)
    )
    return boxed(caption, head, (_row(columns, row) for row in rows))


def boxed(caption: str, head: Markup, rows: Iterable[Markup], class_: str = "box") -> Markup:
    """Put rows under a heading into a box that scrolls where the page is narrower; the keyboard reaches it."""
    body = element("tbody", joined(rows))
    whole = element("table", element("caption", element("span", caption)), element("thead", head), body)
    return element("div", whole, class_=class_, role="region", aria_label=caption, tabindex=0)


def matrix(caption: str, corner: str, counts: Mapping[str, Mapping[str, int]]) -> Markup:
    """Return how often a row's name met each column's; right is blue, wrong is orange, and deeper is more often."""
    names = sorted({*counts, *(name for row in counts.values() for name in row)})
    head = element(
        "tr",
        element("th", corner, scope="col"),
        *(element("th", words(name), scope="col", class_=_NUMBER) for name in names),
    )
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
    rest = (
        element("td", cell, class_=column.kind) for column, cell in zip(columns[1:], cells[1:], strict=True)
    )
    return element("tr", first, *map(safe, rest))


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report with its heading; one without a body is left out."""

    key: str
    title: str
    body: Markup


@dataclass(frozen=True, slots=True)
class Report:
    """What stands in a page: its title, the verdict beneath it, and the sections."""

    title: str
    verdict: Markup
    facts: Markup
    sections: tuple[Section, ...]


def document(report: Report) -> str:
    """Return the page; its policy lets a browser load nothing and run nothing."""
    style = files("recto.evaluation.report").joinpath("style.css").read_text("utf-8").replace("\r\n", "\n")
    digest = b64encode(sha256(style.encode()).digest()).decode()
    sections = [section for section in report.sections if section.body]
    head = (
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element(
            "meta",
            http_equiv="Content-Security-Policy",
            content=f"default-src 'none'; style-src 'sha256-{digest}'",
        ),
        element("meta", name="generator", content=f"Recto {__version__}"),
        element("title", report.title),
        element("style", Markup(style)),
    )
    links = [element("li", element("a", section.title, href=f"#{section.key}")) for section in sections]
    body = (
        element("a", "Skip to the contents of the report", class_="skip", href="#main"),
        element(
            "header",
            element("p", "Recto", class_="brand"),
            element("h1", report.title),
            report.verdict,
            report.facts,
        ),
        element("nav", element("ul", *links), aria_label="Sections of this report") if links else None,
        element("main", joined(_section(section) for section in sections), id="main"),
        element(
            "footer", element("p", f"Made by Recto {__version__}. This page loads nothing and runs nothing.")
        ),
    )
    html = element(
        "html", element("head", joined(("", *head))), "\n", element("body", joined(body)), lang="en"
    )
    return f"<!DOCTYPE html>\n{html}\n"


def write(path: Path, page: str) -> None:
    """Write a page's file."""
    try:
        replace_text(path, page)
    except OSError as error:
        raise StorageError(
            f"{path} cannot be written: {error.strerror or error}", hint="Check the directory."
        ) from error


def facts(pairs: Sequence[tuple[str, str]]) -> Markup:
    """Return names with their values; those without a value are left out."""
    told = (element("div", element("dt", name), element("dd", value)) for name, value in pairs if value)
    return element("dl", *told, class_="facts")


def made(fingerprint: Fingerprint | None) -> list[tuple[str, str]]:
    """Tell how an index was made, as far as it is known."""
    if fingerprint is None:
        return [("Model", "not known: another pipeline made the collection")]
    return [
        ("Model", str(fingerprint.embedder)),
        ("Book", f"{fingerprint.book}, {fingerprint.pages} pages"),
        ("Content", fingerprint.content_hash),
        ("Chunker", fingerprint.chunker),
        ("Indexed", f"{fingerprint.created_at}, by Recto {fingerprint.recto_version}"),
    ]


def moment(when: datetime) -> Markup:
    """Return a time for people and for programs."""
    return element(
        "time", when.strftime("%Y-%m-%d %H:%M:%S %Z").strip(), datetime=when.isoformat(timespec="seconds")
    )


def tiles(values: Sequence[tuple[str, str, str]]) -> Markup:
    """Return the few numbers that matter most: what it is, the number, and a note."""
    told = (
        element(
            "div",
            element("dt", name),
            element("dd", element("b", value), element("small", note) if note else None),
        )
        for name, value, note in values
    )
    return element("dl", *told, class_="tiles")


def outcome(*, good: bool, yes: str, no: str) -> Markup:
    """Return a word with a sign, so that its colour is not needed."""
    sign = "\N{CHECK MARK}" if good else "\N{BALLOT X}"
    return element(
        "span",
        element("span", sign, aria_hidden="true"),
        f" {yes if good else no}",
        class_="good" if good else "bad",
    )


def folded(title: str, body: Markup) -> Markup:
    """Return a part that is opened by a click, and always open on paper."""
    return element("details", element("summary", title), body)


def note(*parts: str) -> Markup:
    """Return a remark under a heading."""
    return element("p", *map(safe, parts), class_="note")


def _section(section: Section) -> Markup:
    heading = element("h2", section.title, id=f"{section.key}-title")
    return element(
        "section", heading, "\n", section.body, id=section.key, aria_labelledby=f"{section.key}-title"
    )
