"""The frame of a report: head, verdict, contents, sections; written whole or not at all."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

from recto import __version__
from recto.atomic import replace_text
from recto.errors import StorageError
from recto.report.markup import Markup, element, joined, safe
from recto.types import Fingerprint


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
    style = files("recto.report").joinpath("style.css").read_text("utf-8").replace("\r\n", "\n")
    digest = b64encode(sha256(style.encode()).digest()).decode()
    sections = [section for section in report.sections if section.body]
    head = (
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("meta", http_equiv="Content-Security-Policy", content=f"default-src 'none'; style-src 'sha256-{digest}'"),
        element("meta", name="generator", content=f"Recto {__version__}"),
        element("title", report.title),
        element("style", Markup(style)),
    )
    links = [element("li", element("a", section.title, href=f"#{section.key}")) for section in sections]
    body = (
        element("a", "Skip to the contents of the report", class_="skip", href="#main"),
        element("header", element("p", "Recto", class_="brand"), element("h1", report.title), report.verdict, report.facts),
        element("nav", element("ul", *links), aria_label="Sections of this report") if links else None,
        element("main", joined(_section(section) for section in sections), id="main"),
        element("footer", element("p", f"Made by Recto {__version__}. This page loads nothing and runs nothing.")),
    )
    html = element("html", element("head", joined(("", *head))), "\n", element("body", joined(body)), lang="en")
    return f"<!DOCTYPE html>\n{html}\n"


def write(path: Path, page: str) -> None:
    """Write a page's file."""
    try:
        replace_text(path, page)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror or error}", hint="Check the directory.") from error


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
    return element("time", when.strftime("%Y-%m-%d %H:%M:%S %Z").strip(), datetime=when.isoformat(timespec="seconds"))


def tiles(values: Sequence[tuple[str, str, str]]) -> Markup:
    """Return the few numbers that matter most: what it is, the number, and a note."""
    told = (
        element("div", element("dt", name), element("dd", element("b", value), element("small", note) if note else None))
        for name, value, note in values
    )
    return element("dl", *told, class_="tiles")


def outcome(*, good: bool, yes: str, no: str) -> Markup:
    """Return a word with a sign, so that its colour is not needed."""
    sign = "\N{CHECK MARK}" if good else "\N{BALLOT X}"
    return element("span", element("span", sign, aria_hidden="true"), f" {yes if good else no}", class_="good" if good else "bad")


def folded(title: str, body: Markup) -> Markup:
    """Return a part that is opened by a click, and always open on paper."""
    return element("details", element("summary", title), body)


def note(*parts: str) -> Markup:
    """Return a remark under a heading."""
    return element("p", *map(safe, parts), class_="note")


def _section(section: Section) -> Markup:
    heading = element("h2", section.title, id=f"{section.key}-title")
    return element("section", heading, "\n", section.body, id=section.key, aria_labelledby=f"{section.key}-title")
