"""bookdown: the R Markdown files of a book, which are merged and then split into a page for each chapter."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from recto.book.parsing.markdown.headings import heading_texts, slugger
from recto.book.parsing.markdown.text import code_fences
from recto.book.sources.includes import Directive, code_ranges, in_order
from recto.book.sources.options import is_inside, read_config
from recto.book.sources.site import Entry, Site, text_of, texts_of

_LARGEST = 1 << 22  # bytes of a file
_HEADING = re.compile(
    r"^(?P<level>#{1,6})[ \t]+(?P<text>[^\n]*?)[ \t]*(?P<attributes>\{[^{}\n]*\})?[ \t]*$", re.MULTILINE
)
_PART = re.compile(r"\((?:PART|APPENDIX)(?:\\?\*)?\)[ \t]*")
_ID = re.compile(r"#([\w:.-]+)")
_HIDDEN = re.compile(r"\{r\b[^\n]*\b(?:include|echo)[ ]*=[ ]*F(?:ALSE)?\b")
_LABEL = re.compile(
    r"\\@ref\((?:[\w-]+:)?(?P<reference>[^()\n]*)\)|\(\\#[\w:.-]+\)|^\(ref:[\w-]+\)", re.MULTILINE
)


class BookdownSite(Site):
    """A bookdown book that is published as one page for each chapter, the default."""

    generator = "bookdown"
    config_files = ("_bookdown.yml",)
    suffixes = (".rmd", ".md")
    only_listed = True
    anchors = "pandoc"

    def configure(self, config_file: Path) -> None:
        """Read the list of files, and make the ids of all headings, which are numbered across the book."""
        config = self.read_yaml(config_file)
        names = self._names(config)
        self._headings: dict[str, list[tuple[re.Match[str], str]]] = {}
        self._addresses: dict[str, str] = {}
        slug, chapter = slugger("pandoc"), ""
        for name in names:
            text = read_config(self.root / name, self.bounds, _LARGEST)
            self._headings[name] = headings = []
            for match in _headings(text):
                explicit = _ID.search(match["attributes"] or "")
                headings.append((match, explicit[1] if explicit else slug(heading_texts(match["text"])[1])))
            chapters = [
                id for match, id in headings if match["level"] == "#" and not _PART.match(match["text"])
            ]
            chapter = self._addresses[name] = f"{chapters[0]}.html" if chapters else chapter
        self._addresses |= {name: "" for name in names if name.lower() == "index.rmd"}
        head = self.head(next((name for name in names if not self._addresses[name]), ""))
        self.title, self.url = text_of(head, "title"), text_of(head, "url")
        self.list_pages(self._entries())

    def _names(self, config: dict[str, Any]) -> list[str]:
        """Return the files of the book: the listed ones, or all of the directory, the first page first."""
        listed = config.get("rmd_files")
        listed = listed.get("html") if isinstance(listed, dict) else listed
        if names := texts_of(listed):
            return [name for name in names if self.exists(name)]
        folders = config.get("rmd_subdir")
        found = list(self.root.glob("*.[Rr]md"))
        for folder in ["."] if folders is True else texts_of(folders):
            inside = is_inside(self.root / folder, self.root)
            below = (self.root / folder).rglob("*.[Rr]md") if inside else ()
            found += [file for file in below if file.parent != self.root]
        files = sorted(
            file.relative_to(self.root).as_posix() for file in found if file.is_relative_to(self.root)
        )
        names = [name for name in files if not name.rpartition("/")[2].startswith("_")]
        return sorted(names, key=lambda name: name.lower() != "index.rmd")

    def _entries(self) -> Iterator[Entry]:
        """Yield the files; a part begins with its title."""
        part = ""
        for name, headings in self._headings.items():
            for match, _ in headings:
                if start := _PART.match(match["text"]):
                    part = heading_texts(match["text"][start.end() :])[0]
            yield name, "", (part,) if part else ()

    def expands(self, name: str) -> bool:
        """Return whether the markup of a page is resolved."""
        return name.lower().endswith(self.suffixes)

    def address(self, name: str, head: dict[str, Any]) -> str:  # noqa: ARG002
        """Return the name of the HTML file, which is the id of the chapter."""
        return self._addresses[name]

    def find(self, text: str, file: Path) -> Sequence[Directive]:
        """Find parts, the ids of headings, cross-references, and code that is not shown."""
        name = file.relative_to(self.root).as_posix() if file.is_relative_to(self.root) else ""
        directives = [
            Directive(opening.start(), closing.end())
            for opening, closing in code_fences(text)
            if closing and _HIDDEN.search(opening[0])
        ]
        for match, (_, id) in zip(_headings(text), self._headings.get(name, ()), strict=False):
            is_part = _PART.match(match["text"])
            new = "" if is_part else f"{match['level']} {match['text']} {{#{id}}}"
            directives.append(Directive(*match.span(), new=new))
        in_code = code_ranges(text)
        for match in _LABEL.finditer(text):
            if not in_code(match.start()):
                words = (match["reference"] or "").replace("-", " ").replace("_", " ")
                directives.append(Directive(*match.span(), new=words))
        return in_order(directives)


def _headings(text: str) -> list[re.Match[str]]:
    """Return the headings of a text that are not in code."""
    in_code = code_ranges(text)
    return [match for match in _HEADING.finditer(text) if not in_code(match.start())]
