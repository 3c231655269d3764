"""The formats of pages, with their file suffixes and readers; plugins add further ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from operator import itemgetter
from typing import Any

from recto._util.text import MARKDOWN_SUFFIXES, MDX_SUFFIXES
from recto.errors import ConfigurationError, install_command
from recto.plugins import READERS, VOLUMES, load_reader, load_splitter, plugin_names, plugin_version
from recto.protocols import Reader
from recto.types.book import Document, Page, Volume

LARGEST_PAGE = 2 << 20  # bytes; far more than any hand-written page has
_LARGEST_NOTEBOOK = 32 << 20  # bytes; most of them are pictures
_LARGEST_VOLUME = 512 << 20  # bytes; a book with many pictures


@dataclass(frozen=True, slots=True)
class Format:
    """A page format; `Page.format` is its name. A format without suffixes is not read from files.

    `plugin` is the name of the entry point if a plugin has the reader. A file may have `largest` bytes.
    `extra` installs the `package` that the reader needs; without it, files of the format are not pages.
    `split` reads a file that holds many pages, each of which `read` then parses. A format that is not
    `common` is read in plain trees, and in sites whose rules name it.
    """

    name: str
    suffixes: tuple[str, ...]
    read: Reader
    plugin: str = ""
    largest: int = LARGEST_PAGE
    package: str = ""
    extra: str = ""
    split: Callable[[bytes], Volume] | None = None
    common: bool = False

    @property
    def is_available(self) -> bool:
        """Whether the package that the reader needs is installed."""
        return not self.package or _is_installed(self.package)


@cache
def _is_installed(package: str) -> bool:
    return find_spec(package) is not None


def _read_markdown(page: Page) -> Document:
    from recto.book.parsing.markdown import parse

    return parse(page.text, title=page.title, mdx=page.format == MDX.name, anchors=page.anchors)


def _read_html(page: Page) -> Document:
    from recto.book.parsing.html import parse_html

    return parse_html(page.text, title=page.title, url=page.url)


def _lazy(module: str, name: str) -> Any:
    """Return a function that imports another one, and calls it."""

    def call(argument: Page | bytes) -> Any:
        return getattr(import_module(f"{__package__}.{module}"), name)(argument)

    return call


_read_extended = _lazy("extended_markdown", "read_extended_markdown")
MARKDOWN = Format("markdown", MARKDOWN_SUFFIXES, _read_markdown, common=True)
MDX = Format("mdx", MDX_SUFFIXES, _read_markdown, common=True)
HTML = Format("html", (), _read_html)  # websites and built sites; HTML files beside Markdown are build output
MYST = Format("myst", (), _read_extended)  # Markdown files of a site that uses MyST
D2L = Format("d2l", (), _read_extended)  # Markdown files of a d2lbook
QUARTO = Format("qmd", (".qmd", ".rmd"), _read_extended)
NOTEBOOK = Format("ipynb", (".ipynb",), _lazy("notebook", "read_notebook"), largest=_LARGEST_NOTEBOOK)
RST = Format("rst", (".rst", ".rest"), _lazy("rst", "read_rst"), largest=1 << 20)
ASCIIDOC = Format("asciidoc", (".adoc", ".asciidoc", ".asc"), _lazy("asciidoc", "read_asciidoc"))
EPUB = Format(
    "epub", (".epub",), _read_html, "", _LARGEST_VOLUME, "selectolax", "epub", _lazy("epub", "split_epub")
)
_read_pdf, _split_pdf = _lazy("pdf", "read_pdf"), _lazy("pdf", "split_pdf")
PDF = Format("pdf", (".pdf",), _read_pdf, "", _LARGEST_VOLUME, "pypdfium2", "pdf", _split_pdf)
BUILT_IN_FORMATS = (MARKDOWN, MDX, HTML, MYST, D2L, QUARTO, NOTEBOOK, RST, ASCIIDOC, EPUB, PDF)
_FIXED = (MARKDOWN, MDX, HTML)  # a plugin may replace the readers of the other formats
_NOT_READ = {
    (
        ".org",
        ".textile",
        ".typ",
        ".wiki",
        ".mediawiki",
        ".sgml",
        ".dbk",
    ): "build the site, and index its address or the directory of its HTML files",
    (".html", ".htm"): "HTML files beside pages in other formats are not read; index their directory",
    (".docx", ".odt", ".tex"): "convert them to one of the formats that Recto reads, such as PDF or EPUB",
}


@cache
def formats() -> tuple[Format, ...]:
    """Return all formats; readers of plugins are imported when they are first used."""
    by_name = {format.name: format for format in BUILT_IN_FORMATS}
    volumes = plugin_names(VOLUMES)
    fixed = {name for format in _FIXED for name in (format.name, *format.suffixes)}
    for plugin in plugin_names(READERS):
        name = plugin.lower().lstrip(".")
        if {name, f".{name}"} & fixed:
            raise ConfigurationError(
                f"{plugin_version(READERS, plugin)} has a reader for .{name}, which Recto reads itself",
                hint="Uninstall the plugin, or rename its entry point.",
            )
        format = Format(name, (f".{name}",), _plugin_reader(plugin), plugin, common=True)
        if plugin in volumes:
            format = replace(format, largest=_LARGEST_VOLUME, split=_plugin_splitter(plugin))
        by_name[name] = format
    return tuple(by_name.values())


def _plugin_reader(plugin: str) -> Reader:
    load = cache(load_reader)

    def read(page: Page) -> Document:
        document = load(plugin)(page)
        if not isinstance(document, Document):
            raise TypeError(f"the reader returned {type(document).__name__} instead of a Document")
        sections = (
            replace(section, blocks=tuple(block for block in section.blocks if block.text.strip()))
            for section in document.sections
        )
        return replace(
            document,
            title=document.title or page.title,
            sections=tuple(section for section in sections if section.blocks),
        )

    return read


def _plugin_splitter(plugin: str) -> Callable[[bytes], Volume]:
    def split(data: bytes) -> Volume:
        volume = load_splitter(plugin)(data)
        if not isinstance(volume, Volume):
            raise TypeError(f"the plugin returned {type(volume).__name__} instead of a Volume")
        return volume

    return split


def page_suffixes() -> tuple[str, ...]:
    """Return the suffixes of all files that can be pages."""
    return tuple(suffix for format in formats() if format.is_available for suffix in format.suffixes)


def skip_advice(suffix: str) -> str:
    """Return what to do about files that cannot be pages, by their suffix; "" if they hold no text."""
    for format in formats():
        if suffix in format.suffixes:
            needed = f"reading them needs the extra `{format.extra}`: {install_command(format.extra)}"
            return "" if format.is_available else needed
    return next((advice for suffixes, advice in _NOT_READ.items() if suffix in suffixes), "")


def suffix_list() -> str:
    """Return the suffixes of all files that can be pages, for a message."""
    *most, last = page_suffixes()
    return f"{', '.join(most)} or {last}"


def format_of(name: str) -> Format | None:
    """Return the format of a file by its suffix, in any case; None if the file cannot be a page."""
    lower = name.lower()
    candidates = [
        (len(suffix), format)
        for format in formats()
        for suffix in format.suffixes
        if lower.endswith(suffix) and format.is_available
    ]
    return max(candidates, key=itemgetter(0))[1] if candidates else None


@cache
def reader_version(name: str) -> str:
    """Return the version of the plugin that reads a format; "" for a built-in format."""
    plugin = _format(name).plugin
    return plugin_version(READERS, plugin) if plugin else ""


def read(page: Page) -> Document:
    """Parse a page with the reader of its format."""
    return _format(page.format).read(page)


def _format(name: str) -> Format:
    for format in formats():
        if format.name == name:
            return format
    raise ConfigurationError(
        f"There is no reader for the format {name!r}",
        hint=f"Formats: {', '.join(format.name for format in formats())}. Install a plugin that adds one.",
    )
