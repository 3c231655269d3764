"""GitBook, Nextra and d2lbook: sites whose files and addresses follow the tree of the pages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from recto.book.parsing.formats import D2L
from recto.book.sources.docusaurus.javascript import read_exported, read_json
from recto.book.sources.includes import Directive, code_ranges
from recto.book.sources.options import UnreadableSite, read_config
from recto.book.sources.site import Entry, Site, html_address, read_summary, text_of

_LARGEST = 1 << 20  # bytes of a page
_DEEPEST = 20  # directories in directories
_TAG = re.compile(r"\{%[^%\n]*?(?:\b(?:title|description|caption)=\"(?P<shown>[^\"]*)\"[^%\n]*?)?%\}")
_TOC = re.compile(r"^```(?:toc|eval_rst\s+\.\. toctree::)[ \t]*\n(?P<body>.*?)^```", re.MULTILINE | re.DOTALL)


class GitBookSite(Site):
    """A GitBook book: the pages that `SUMMARY.md` lists."""

    generator = "gitbook"
    config_files = (".gitbook.yaml", ".gitbook.yml", "SUMMARY.md")
    only_listed = True

    @classmethod
    def recognises(cls, config_file: Path) -> bool:
        """Return whether a summary does not belong to mdBook."""
        folders = (config_file.parent, *config_file.parent.parents[:2])
        return config_file.suffix != ".md" or not any((folder / "book.toml").is_file() for folder in folders)

    def configure(self, config_file: Path) -> None:
        """Read the summary."""
        config = self.read_yaml(config_file) if config_file.suffix != ".md" else {}
        self.root = self.directory / (text_of(config, "root") or ".")
        summary = self.root / (text_of(config, "structure", "summary") or "SUMMARY.md")
        self.list_pages(read_summary(read_config(summary, self.bounds)))

    def find(self, text: str, file: Path) -> Sequence[Directive]:  # noqa: ARG002
        """Find `{% hint %}` and similar tags, which become their title."""
        in_code = code_ranges(text) if "{%" in text else bool
        tags = (tag for tag in _TAG.finditer(text) if not in_code(tag.start()))
        return [Directive(*tag.span(), new=tag["shown"] or "") for tag in tags]


class NextraSite(Site):
    """A Nextra site: pages in `content` or `pages`, in the order of their `_meta` files."""

    generator = "nextra"
    config_files = tuple(f"next.config.{end}" for end in ("mjs", "js", "ts", "cjs"))
    signature = "nextra"

    def configure(self, config_file: Path) -> None:  # noqa: ARG002
        """Read the `_meta` files."""
        folders = (self.directory / name for name in ("content", "src/content", "pages", "src/pages"))
        self.root = next((folder for folder in folders if folder.is_dir()), self.directory)
        self.list_pages(self._entries(self.root, ()))

    def _entries(self, folder: Path, sections: tuple[str, ...]) -> Iterator[Entry]:
        """Yield the pages of a directory as its `_meta` file orders them; links are not followed."""
        if len(sections) > _DEEPEST:
            return
        meta, entries = self._meta(folder), list(folder.iterdir())
        folders = {one.name for one in entries if one.is_dir() and not one.is_symlink()}
        folders -= {name for name in folders if name.startswith((".", "_", "node_modules"))}
        names = folders | {one.stem for one in entries if one.name.endswith(self.suffixes)}
        unlisted = sorted(names - set(meta), key=lambda name: (name != "index", name))
        for key in (*(key for key in meta if key in names), *unlisted):
            value = meta.get(key)
            title = value if isinstance(value, str) else text_of(value, "title")
            files = (folder / f"{key}{end}" for end in (".mdx", ".md"))
            inner = (*sections, title or key.replace("-", " ").capitalize()) if key in folders else sections
            if file := next((one for one in files if one.is_file()), None):
                yield file.relative_to(self.root).as_posix(), title, inner
            if key in folders:
                yield from self._entries(folder / key, inner)

    def _meta(self, folder: Path) -> dict[str, Any]:
        for file in (folder / f"_meta.{end}" for end in ("js", "ts", "tsx", "jsx", "mjs", "json")):
            if file.is_file():
                with suppress(UnreadableSite):
                    text = read_config(file, self.bounds)
                    value = read_json(text) if file.suffix == ".json" else read_exported(text)
                    return value if isinstance(value, dict) else {}
        return {}


class D2lBookSite(Site):
    """A d2lbook book, such as Dive into Deep Learning: Sphinx with roles of its own in Markdown."""

    generator = "d2lbook"
    config_files = ("config.ini",)
    signature = r"(?s)\A(?=.*\[project\])(?=.*\[build\])"
    only_listed = True
    suffixes = (".md",)
    anchors = "docutils"
    markdown = D2L

    @classmethod
    def recognises(cls, config_file: Path) -> bool:
        """Return whether a file has the sections of d2lbook, and there is a first page beside it."""
        return super().recognises(config_file) and config_file.with_name("index.md").is_file()

    def configure(self, config_file: Path) -> None:
        """Read the title, and the tables of contents from the first page on."""
        text = read_config(config_file, self.bounds)
        title = re.search(r"^title\s*=\s*(.+)$", text, re.MULTILINE)
        self.title = title[1].strip() if title else ""
        self.list_pages((name, "", ()) for name in self._listed())

    def _listed(self) -> Iterator[str]:
        """Yield the first page and those that the tables of contents list, in reading order."""
        seen, waiting = set[str](), ["index.md"]
        while waiting:
            name = waiting.pop()
            if name in seen or not self.exists(name):
                continue
            seen.add(name)
            yield name
            text, folder = read_config(self.root / name, self.bounds, _LARGEST), name.rpartition("/")[0]
            lines = [line.strip() for toc in _TOC.finditer(text) for line in toc["body"].split("\n")]
            pages = [line for line in lines if line and not line.startswith(":")]
            waiting += [f"{folder}/{page}.md".lstrip("/") for page in reversed(pages)]

    def address(self, name: str, head: dict[str, Any]) -> str:  # noqa: ARG002
        """Return the name of the HTML file."""
        return html_address(name)

    def find(self, text: str, file: Path) -> Sequence[Directive]:  # noqa: ARG002
        """Find the tables of contents, which are removed: they are the navigation."""
        return [Directive(*toc.span()) for toc in _TOC.finditer(text)]
