"""GitBook, Nextra and d2lbook: sites whose files and addresses follow the tree of the pages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from recto.book.parsing.formats import D2L
from recto.book.sources.docusaurus.javascript import read_exported, read_json
from recto.book.sources.includes import Directive, Finder, code_ranges
from recto.book.sources.options import UnreadableSite, read_config
from recto.book.sources.site import Entry, Site, html_address, read_summary, text_of

_LARGEST = 1 << 20
_TAG = re.compile(r"\{%[^%\n]*?(?:\b(?:title|description|caption)=\"(?P<shown>[^\"]*)\"[^%\n]*?)?%\}")
_TOC = re.compile(r"^```(?:toc|eval_rst\s+\.\. toctree::)[ \t]*\n(?P<body>.*?)^```", re.MULTILINE | re.DOTALL)


class GitBookSite(Site):
    """A book of GitBook: the pages that `SUMMARY.md` lists."""

    generator = "gitbook"
    config_files = (".gitbook.yaml", ".gitbook.yml", "SUMMARY.md")

    @classmethod
    def recognises(cls, config_file: Path) -> bool:
        """Return whether a summary is not a part of a book of mdBook."""
        folders = (config_file.parent, *config_file.parent.parents[:2])
        return config_file.suffix != ".md" or not any((folder / "book.toml").is_file() for folder in folders)

    def configure(self, config_file: Path) -> None:
        """Read the summary."""
        config = self.read_yaml(config_file) if config_file.suffix != ".md" else {}
        self.root = self.directory / (text_of(config, "root") or ".")
        summary = self.root / (text_of(config, "structure", "summary") or "SUMMARY.md")
        self.list_pages(
            list(read_summary(read_config(summary, self.bounds))),
            lambda path: path if self.exists(path) else None,
        )

    def wants(self, name: str) -> bool:
        """Return whether the summary lists a page."""
        return name in self.sections and super().wants(name)

    def finder(self) -> Finder:
        """Return the finder of `{% hint %}` and its kin."""
        return _tags


def _tags(text: str, _: Path) -> Sequence[Directive]:
    in_code = code_ranges(text) if "{%" in text else bool
    return [
        Directive(*tag.span(), new=tag["shown"] or "")
        for tag in _TAG.finditer(text)
        if not in_code(tag.start())
    ]


class NextraSite(Site):
    """A Nextra site: pages in `content` or `pages`, in the order of their `_meta` files."""

    generator = "nextra"
    config_files = tuple(f"next.config.{end}" for end in ("mjs", "js", "ts", "cjs"))

    @classmethod
    def recognises(cls, config_file: Path) -> bool:
        """Return whether the site uses Nextra."""
        with suppress(OSError):
            return "nextra" in config_file.read_text("utf-8", "replace")
        return False

    def configure(self, config_file: Path) -> None:  # noqa: ARG002
        """Read the `_meta` files."""
        folders = (self.directory / name for name in ("content", "src/content", "pages", "src/pages"))
        self.root = next((folder for folder in folders if folder.is_dir()), self.directory)
        self.list_pages(list(self._entries(self.root, (), set())))

    def _entries(self, folder: Path, sections: tuple[str, ...], seen: set[Path]) -> Iterator[Entry]:
        """Yield the pages of a directory as its `_meta` file orders them."""
        if folder in seen or len(seen) > _LARGEST:
            return
        seen.add(folder)
        meta = self._meta(folder)
        there = {
            entry.stem if entry.is_file() else entry.name
            for entry in folder.iterdir()
            if entry.is_dir() or entry.name.endswith(self.suffixes)
        }
        order = [
            *(key for key in meta if key in there),
            *sorted(there - set(meta), key=lambda one: (one != "index", one)),
        ]
        for key in order:
            value = meta.get(key)
            title = value if isinstance(value, str) else text_of(value, "title")
            below = folder / key
            name = next(
                (
                    file.relative_to(self.root).as_posix()
                    for end in (".mdx", ".md")
                    if (file := folder / f"{key}{end}").is_file()
                ),
                "",
            )
            inner = (*sections, title or key.replace("-", " ").capitalize()) if below.is_dir() else sections
            if name:
                yield name, title, inner
            if below.is_dir() and not key.startswith((".", "_")):
                yield from self._entries(below, inner, seen)

    def _meta(self, folder: Path) -> dict[str, Any]:
        for file in (folder / f"_meta.{end}" for end in ("js", "ts", "tsx", "jsx", "mjs", "json")):
            if file.is_file():
                with suppress(UnreadableSite):
                    text = read_config(file, self.bounds)
                    value = read_json(text) if file.suffix == ".json" else read_exported(text)
                    return value if isinstance(value, dict) else {}
        return {}


class D2lBookSite(Site):
    """A book of d2lbook, such as Dive into Deep Learning: Sphinx with roles of its own in Markdown."""

    generator = "d2lbook"
    config_files = ("config.ini",)
    suffixes = (".md",)
    anchors = "docutils"
    markdown = D2L

    @classmethod
    def recognises(cls, config_file: Path) -> bool:
        """Return whether a file has the sections of d2lbook."""
        with suppress(OSError):
            text = config_file.read_text("utf-8", "replace")
            return "[project]" in text and "[build]" in text and config_file.with_name("index.md").is_file()
        return False

    def configure(self, config_file: Path) -> None:
        """Read the title, and the tables of contents from the first page on."""
        text = read_config(config_file, self.bounds)
        title = re.search(r"^title\s*=\s*(.+)$", text, re.MULTILINE)
        self.title = title[1].strip() if title else ""
        self.list_pages(list(self._toc("index.md", set())))

    def _toc(self, name: str, seen: set[str]) -> Iterator[Entry]:
        if name in seen or not self.exists(name):
            return
        seen.add(name)
        yield name, "", ()
        text = read_config(self.root / name, self.bounds, _LARGEST)
        for toc in _TOC.finditer(text):
            for line in map(str.strip, toc["body"].split("\n")):
                if line and not line.startswith(":"):
                    folder = name.rpartition("/")[0]
                    yield from self._toc(f"{folder}/{line}.md".lstrip("/"), seen)

    def wants(self, name: str) -> bool:
        """Return whether a table of contents lists a page."""
        return name in self.sections and super().wants(name)

    def address(self, name: str, head: dict[str, Any]) -> str:  # noqa: ARG002
        """Return the name of the HTML file."""
        return html_address(name)

    def finder(self) -> Finder:
        """Return the finder of tables of contents; the reader resolves other marks."""
        return _tables_of_contents


def _tables_of_contents(text: str, _: Path) -> Sequence[Directive]:
    """Remove the tables of contents, which are the site's navigation."""
    return [Directive(*toc.span()) for toc in _TOC.finditer(text)]
