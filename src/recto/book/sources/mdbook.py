"""mdBook: `book.toml`, and the pages, titles and parts of `SUMMARY.md`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from recto.book.sources.includes import (
    Directive,
    Select,
    code_ranges,
    select_lines,
    select_region,
    whole_line,
)
from recto.book.sources.options import UnreadableSite, read_config
from recto.book.sources.site import Site, html_address, read_summary, text_of

_LINK = re.compile(r"(?P<escape>\\?)\{\{#(?P<kind>\w+)(?P<arguments>[^{}\n]*)\}\}")
_START = re.compile(r"ANCHOR:\s*(?P<name>[\w-]+)")
_END = re.compile(r"ANCHOR_END:\s*(?P<name>[\w-]+)")


class MdBookSite(Site):
    """An mdBook book: only the pages that `SUMMARY.md` lists are published."""

    generator = "mdbook"
    config_files = ("book.toml",)
    only_listed = True

    def configure(self, config_file: Path) -> None:
        """Read the book's configuration and its summary."""
        config = self.read_toml(config_file)
        self.root = self.directory / (text_of(config, "book", "src") or "src")
        self.title = text_of(config, "book", "title")
        self.url = text_of(config, "output", "html", "site-url")
        summary = self.root / "SUMMARY.md"
        if not summary.is_file():
            raise UnreadableSite(f"{config_file.name}: there is no SUMMARY.md in {self.root.name}")
        self.list_pages(read_summary(read_config(summary, self.bounds)))

    def address(self, name: str, head: dict[str, Any]) -> str:  # noqa: ARG002
        """Return the name of the HTML file; a README is the index of its directory."""
        return re.sub(r"(^|/)README\.html$", r"\1index.html", html_address(name), flags=re.IGNORECASE)

    def find(self, text: str, file: Path) -> Sequence[Directive]:
        """Find `{{#include}}` and similar links."""
        return list(_links(text, file)) if "{{#" in text else ()


def _links(text: str, file: Path) -> Iterator[Directive]:
    in_code = code_ranges(text)
    for link in _LINK.finditer(text):
        words = link["arguments"].split()
        if link["escape"]:
            yield Directive(link.start(), link.start() + 1)
        elif link["kind"] == "title" or not words:
            start, end, prefix = whole_line(text, *link.span())
            yield Directive(start, min(end + (prefix is not None), len(text)))
        elif link["kind"] in ("include", "rustdoc_include", "playground", "playpen"):
            path, _, part = words[0].partition(":")
            code = "" if link["kind"].startswith("play") and not in_code(link.start()) else None
            start, end, prefix = whole_line(text, *link.span())
            directive = Directive(start, end, path, (file.parent,), select=_select(part), code=code)
            yield replace(directive, prefix=prefix or "", otherwise="")


def _select(part: str) -> Select | None:
    if not part:
        return None
    if re.fullmatch(r"[\d:]+", part):
        return select_lines(part, ":")
    return select_region(part, _START, _END)
