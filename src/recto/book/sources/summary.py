"""Sites that list their pages beside them: mdBook and GitBook in `SUMMARY.md`, Nextra, d2lbook."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from recto._util.markdown import code_fences
from recto.book.parsing import D2L
from recto.book.parsing.markdown.headings import heading_texts
from recto.book.sources.docusaurus.javascript import get, read_exported, read_json
from recto.book.sources.includes import (
    Directive,
    Select,
    code_ranges,
    in_order,
    select_lines,
    select_region,
    whole_line,
)
from recto.book.sources.options import UnreadableSite, read_config
from recto.book.sources.site import Entry, Site, html_address, text_of
from recto.types.book import AnchorStyle

_LINK = re.compile(r"(?P<escape>\\?)\{\{#(?P<kind>\w++)(?P<arguments>[^{}\n]*+)\}\}")
_HIDDEN = re.compile(r"^[ \t>]*+#(?:[ \t][^\n]*+)?\n", re.MULTILINE)
_START = re.compile(r"ANCHOR:\s*(?P<name>[\w-]+)")
_END = re.compile(r"ANCHOR_END:\s*(?P<name>[\w-]+)")
_NUMBERS = re.compile(r"[\d:]+")

_LARGEST = 1 << 20  # bytes of a page
_DEEPEST = 20  # directories in directories
_TAG = re.compile(
    r"\{%(?:(?!\b(?:title|description|caption)=\")[^%\n])*+"
    r"(?:\b(?:title|description|caption)=\"(?P<shown>[^\"]*+)\")?[^%\n]*+%\}"
)
_TOC = re.compile(r"^```(?:toc|eval_rst\s+\.\. toctree::)[ \t]*\n(?P<body>.*?)^```", re.MULTILINE | re.DOTALL)
_LISTED = re.compile(
    r"^(?P<indent>[ \t]*)(?:[-*+][ \t]+)?\[(?P<title>(?:[^\[\]]|\[[^\[\]]*\]){1,500})\]"
    r"\((?P<path>[^()\s]*|<[^<>\n]*>)\)"
    r"|^#{1,6}[ \t]+(?P<part>[^\n]+)",
    re.MULTILINE,
)


class MdBookSite(Site):
    """An mdBook book: only the pages that `SUMMARY.md` lists are published."""

    generator = "mdbook"
    config_files = ("book.toml",)
    only_listed = True
    anchors: AnchorStyle = "github-trimmed"

    def configure(self, config_file: Path) -> None:
        """Read the book's configuration and its summary."""
        config = self.read_toml(config_file)
        self.root = self.directory / (text_of(config, "book", "src") or "src")
        self.title = text_of(config, "book", "title")
        self.url = text_of(config, "output", "html", "site-url")
        if get(config, "output", "html", "smart-punctuation") is not False:
            self.anchors = "hugo"  # the same, without dashes that become typographic
        summary = self.root / "SUMMARY.md"
        if not summary.is_file():
            raise UnreadableSite(f"{config_file.name}: there is no SUMMARY.md in {self.root.name}")
        self.list_pages(read_summary(read_config(summary, self.bounds)))

    def address(self, name: str, head: dict[str, Any]) -> str:  # noqa: ARG002
        """Return the name of the HTML file; a README is the index of its directory."""
        return re.sub(r"(^|/)README\.html$", r"\1index.html", html_address(name), flags=re.IGNORECASE)

    def find(self, text: str, file: Path) -> Sequence[Directive]:
        """Find `{{#include}}` and similar links, and the lines of Rust that the book hides."""
        links = _links(text, file) if "{{#" in text else ()
        return in_order([*links, *_hidden_lines(text)])


def _links(text: str, file: Path) -> Iterator[Directive]:
    in_code = code_ranges(text)
    for link in _LINK.finditer(text):
        words = link["arguments"].split()
        if link["escape"]:
            yield Directive(link.start(), link.start() + 1)
        elif link["kind"] == "title":
            start, end, prefix = whole_line(text, *link.span())
            yield Directive(start, min(end + (prefix is not None), len(text)))
        elif words and link["kind"] in ("include", "rustdoc_include", "playground", "playpen"):
            path, _, part = words[0].partition(":")
            code = "" if link["kind"].startswith("play") and not in_code(link.start()) else None
            start, end, prefix = whole_line(text, *link.span())
            place, select = (file.parent,), _select(part)
            yield Directive(
                start, end, path, place, select=select, code=code, prefix=prefix or "", otherwise=""
            )


def _hidden_lines(text: str) -> Iterator[Directive]:
    for opening, closing in code_fences(text) if "rust" in text else ():
        if opening["info"].startswith("rust"):
            end = closing.start() if closing else len(text)
            yield from (Directive(*line.span()) for line in _HIDDEN.finditer(text, opening.end(), end))


def _select(part: str) -> Select | None:
    if not part:
        return None
    if _NUMBERS.fullmatch(part):
        return select_lines(part, ":")
    return select_region(part, _START, _END)


def read_summary(text: str) -> Iterator[Entry]:
    """Yield the pages of a `SUMMARY.md`: a list of links; headings name its parts."""
    start, *comments = text.split("<!--")
    text = "".join([start, *(comment.partition("-->")[2] for comment in comments)])
    part, above, first = "", list[tuple[int, str]](), True
    for line in _LISTED.finditer(text):
        if line["part"]:
            part, above = ("" if first else heading_texts(line["part"].strip())[0]), []
            first = False
            continue
        first = False
        indent, title = len(line["indent"].expandtabs(4)), heading_texts(line["title"])[0]
        above = [(depth, upper) for depth, upper in above if depth < indent]
        path = unquote(line["path"].strip("<>")).partition("#")[0].removeprefix("./")
        listed = line[0].lstrip()[0] in "-*+"
        chapter = (title,) if listed and not above and not part else ()
        yield path, title, (*filter(None, [part]), *(upper for _, upper in above), *chapter)
        above.append((indent, title))


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
        folders = {entry.name for entry in entries if entry.is_dir() and not entry.is_symlink()}
        folders -= {name for name in folders if name.startswith((".", "_", "node_modules"))}
        names = folders | {entry.stem for entry in entries if entry.name.endswith(self.suffixes)}
        unlisted = sorted(names - set(meta), key=lambda name: (name != "index", name))
        for key in (*(key for key in meta if key in names), *unlisted):
            value = meta.get(key)
            title = value if isinstance(value, str) else text_of(value, "title")
            files = (folder / f"{key}{end}" for end in (".mdx", ".md"))
            inner = (*sections, title or key.replace("-", " ").capitalize()) if key in folders else sections
            if file := next((file for file in files if file.is_file()), None):
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
