"""The values of reading a book: pages, and the sections and blocks of a parsed page."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

AnchorStyle = Literal[
    "github",
    "python-markdown",
    "vitepress",
    "vitepress-cased",
    "astro",
    "docutils",
    "docutils-smartquotes",
    "myst",
    "pandoc",
    "blackfriday",
    "github-trimmed",
    "hugo",
]
"""How anchors are made from headings: as GitHub (Docusaurus), MkDocs, VitePress, Astro, Sphinx, MyST, Quarto,
older versions of Hugo, mdBook and Hugo do."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a book, as its source yields it.

    `path` identifies the page within the book. `title` is used if the text has no title. `module_keys` are
    all names by which a module filter can refer to its module. If the text was put together from several
    files, `lines` maps each line of it to a line of the page's own file. `position` is the page's place in
    the reading order, counted from one; zero if the source has no order. In a book with several locales,
    `locales` has the locales whose readers see this page: its own, and those that it is not translated to.
    `questions` are the section questions of the page in the question file. `references` are the roles of the
    text that refer to other pages, such as `ref my-label`, with the words that they show.
    """

    path: str
    url: str
    title: str
    module: str
    module_keys: tuple[str, ...]
    text: str
    revision: str
    format: str = "markdown"
    anchors: AnchorStyle = "github"
    version: str = ""
    locale: str = ""
    lines: tuple[int, ...] = ()
    module_title: str = ""
    position: int = 0
    locales: tuple[str, ...] = ()
    questions: tuple[SectionQuestions, ...] = ()
    references: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class SectionQuestions:
    """A line of a question file: questions that a section answers, in the words of readers.

    `hash` is the hash of the section's text when they were written, and `by` says who wrote them; each is ""
    if it is not stated. `line` is the line in the file.
    """

    page: str
    heading: str
    questions: tuple[str, ...]
    hash: str = ""
    by: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a section, such as a paragraph or a list; lines count from one, `last` is its last line.

    `kind` decides where a block that is too long is split: `paragraph` after sentences, `table` between rows,
    `code` (in a fence) between lines, anything else at blank lines. `cuts` are the lines where its nested
    blocks begin and end, by nesting level: the best places to split it.
    `lines` are the source lines of the lines of `text`; it is empty if they are consecutive.
    """

    kind: str
    text: str
    first: int
    last: int
    cuts: tuple[tuple[int, ...], ...] = ()
    lines: tuple[int, ...] = ()

    def source_line(self, number: int) -> int:
        """Return the source line of a line of the text, counted from zero, or the last one known."""
        return self.lines[min(number, len(self.lines) - 1)] if self.lines else self.first + number


@dataclass(frozen=True, slots=True)
class Section:
    """The text under one heading, without its subsections; `headings` begins with the page title.

    `anchors` are all anchors in it, with their lines: its own anchor, the anchors of headings above it that
    have no text, and the anchors of headings and ids within its blocks. `questions` are section questions.
    """

    headings: tuple[str, ...]
    level: int
    anchor: str
    line: int
    blocks: tuple[Block, ...]
    anchors: tuple[tuple[int, str], ...] = ()
    questions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed page: its title, and the sections that have text, in the order of the page."""

    title: str
    sections: tuple[Section, ...]
    front_matter: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failure:
    """A page that could not be read, or a whole directory (`path` then ends with a slash), and why."""

    path: str
    reason: str

    def __str__(self) -> str:
        """Return one line for a report."""
        return f"{self.path}: {self.reason}"

    def covers(self, path: str) -> bool:
        """Return whether this failure affects the page at a path; a file may hold several pages."""
        return path == self.path or path.startswith(f"{self.path.rstrip('/')}/")


@dataclass(frozen=True, slots=True)
class BookInfo:
    """What a source knows about a book besides its pages; the fingerprint of the index has the same fields.

    `title` and `logo` (a small image as a `data:` URL) are for readers. A book with several versions has
    their names in `versions`, each with whether it is current, and a book with several locales has their
    names in `locales`. `options` are the options that the source was opened with, so that the next run can
    repeat them. `unresolved_includes` counts the included files that could not be read in the last run.
    """

    title: str = ""
    logo: str = ""
    versions: tuple[tuple[str, bool], ...] = ()
    locales: tuple[str, ...] = ()
    options: tuple[tuple[str, str | float | bool], ...] = ()
    unresolved_includes: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """A page of a file that holds many: its name in the file, its title, and the part of the book."""

    name: str
    title: str
    text: str
    section: str = ""


@dataclass(frozen=True, slots=True)
class Volume:
    """A file that holds a whole book: its title, its pages in reading order, and remarks for the user."""

    title: str
    parts: tuple[Part, ...]
    notes: tuple[str, ...] = ()
