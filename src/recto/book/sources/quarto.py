"""Quarto: `_quarto.yml` of a book or a website, included files and callouts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from recto.book.parsing.formats import format_of
from recto.book.sources.directory import any_of
from recto.book.sources.includes import Directive, Finder, code_ranges, find_containers, in_order, whole_line
from recto.book.sources.site import Entry, Site, html_address, text_of, texts_of

_SHORTCODE = re.compile(r"\{\{<\s*(?P<name>[\w-]+)\s*(?P<arguments>[^\n]*?)\s*>\}\}")
_CALLOUT = re.compile(r"^(?P<prefix>[ \t>]*):{3,}[ \t]*\{(?P<attributes>[^{}\n]*)\}[ \t]*$", re.MULTILINE)
_KIND = re.compile(r"\.callout-(\w+)")
_TITLE = re.compile(r"\btitle=\"([^\"]*)\"")
_DEEPEST = 10


class QuartoSite(Site):
    """A Quarto book or website."""

    generator = "quarto"
    config_files = ("_quarto.yml", "_quarto.yaml")
    suffixes = (".qmd", ".md", ".ipynb", ".rmd")
    anchors = "pandoc"

    def configure(self, config_file: Path) -> None:
        """Read the project, its chapters or its sidebars."""
        config = self.read_yaml(config_file)
        project, book, website = (config.get(key) for key in ("project", "book", "website"))
        kind = text_of(project, "type")
        site = book if kind == "book" else website
        self.title = text_of(site, "title") or text_of(project, "title")
        self.url = text_of(site, "site-url")
        self.set_logo(text_of(site, "favicon"))
        render = texts_of(project.get("render") if isinstance(project, dict) else None)
        self._rendered = any_of([one for one in render if not one.startswith("!")] or ["**"])
        self._not_rendered = any_of(one.removeprefix("!") for one in render if one.startswith("!"))
        entries: list[Entry] = []
        if isinstance(site, dict):
            for key in ("chapters", "appendices"):
                entries += _entries(site.get(key), ())
            sidebars = site.get("sidebar")
            for sidebar in sidebars if isinstance(sidebars, list) else [sidebars]:
                entries += _entries(sidebar.get("contents") if isinstance(sidebar, dict) else None, ())
        self._book = kind == "book"
        self.list_pages(
            entries, lambda name: (one := name.lstrip("/")) if self.exists(name.lstrip("/")) else None
        )

    def enters(self, folder: str) -> bool:
        """Return whether a directory may hold pages."""
        return super().enters(folder) and not folder.rpartition("/")[2].startswith("_")

    def wants(self, name: str) -> bool:
        """Return whether a file is a page; a book has only its chapters."""
        file = name.rpartition("/")[2]
        if not super().wants(name) or format_of(name) is None or file.startswith("_"):
            return False
        if file.upper().startswith("README.") or (file.endswith(".md") and file.partition(".")[0].isupper()):
            return name in self.sections
        return name in self.sections if self._book else self._rendered(name) and not self._not_rendered(name)

    def expands(self, name: str) -> bool:
        """Return whether included files are inserted into a page."""
        return name.lower().endswith((".qmd", ".md", ".rmd"))

    def address(self, name: str, head: dict[str, Any]) -> str:  # noqa: ARG002
        """Return the name of the HTML file; an index page has the address of its directory."""
        return re.sub(r"(^|/)index\.html$", r"\1", html_address(name))

    def finder(self) -> Finder:
        """Return the finder of included files, callouts and other shortcodes."""
        return self._find

    def _find(self, text: str, file: Path) -> Sequence[Directive]:
        in_code = code_ranges(text) if "{{<" in text or ":::" in text else bool
        directives = []
        for match in _SHORTCODE.finditer(text) if "{{<" in text else ():
            if match["name"] == "include":
                start, end, prefix = whole_line(text, *match.span())
                path = match["arguments"].strip("\"'")
                bases = (self.root,) if path.startswith("/") else (file.parent, self.root)
                directives.append(
                    Directive(start, end, path.lstrip("/"), bases, prefix=prefix or "", otherwise="")
                )
            elif not in_code(match.start()) and text[match.start() - 1 : match.start()] != "{":
                directives.append(Directive(*match.span()))
        if ":::" in text:
            for match in _CALLOUT.finditer(text):
                if not in_code(match.start()):
                    kind, title = _KIND.search(match["attributes"]), _TITLE.search(match["attributes"])
                    shown = title[1] if title else kind[1].capitalize() if kind else ""
                    new = f"{match['prefix']}**{shown}**\n\n" if shown else ""
                    directives.append(Directive(match.start(), min(match.end() + 1, len(text)), new=new))
            directives += find_containers(text)
        return in_order(directives)


def _entries(value: Any, sections: tuple[str, ...]) -> Iterator[Entry]:
    """Yield the pages of a list of chapters or of a sidebar."""
    for item in value if isinstance(value, list) and len(sections) < _DEEPEST else ():
        if isinstance(item, str):
            yield item, "", sections
        elif isinstance(item, dict):
            file = (
                text_of(item, "href")
                or text_of(item, "file")
                or text_of(item, "part")
                or text_of(item, "section")
            )
            title = text_of(item, "text") or text_of(item, "section") or text_of(item, "part")
            below = next(
                (item[key] for key in ("chapters", "contents") if isinstance(item.get(key), list)), None
            )
            inner = (*sections, title) if below and title and "." not in title else sections
            if "." in file:
                yield file, text_of(item, "text"), inner
            yield from _entries(below, inner)
