"""The formats of pages, with their file suffixes and readers; plugins add further ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from operator import itemgetter

from recto._util.text import MARKDOWN_SUFFIXES, MDX_SUFFIXES
from recto.errors import ConfigurationError
from recto.plugins import READERS, load_reader, plugin_names, plugin_version
from recto.protocols import Reader
from recto.types.book import Document, Page


@dataclass(frozen=True, slots=True)
class Format:
    """A page format; `Page.format` is its name. A format without suffixes is not read from files.

    `plugin` is the name of the entry point if a plugin has the reader.
    """

    name: str
    suffixes: tuple[str, ...]
    read: Reader
    plugin: str = ""


def _read_markdown(page: Page) -> Document:
    from recto.book.parsing.markdown import parse

    return parse(page.text, title=page.title, mdx=page.format == MDX.name, anchors=page.anchors)


def _read_html(page: Page) -> Document:
    from recto.book.parsing.html import parse_html

    return parse_html(page.text, title=page.title, url=page.url)


MARKDOWN = Format("markdown", MARKDOWN_SUFFIXES, _read_markdown)
MDX = Format("mdx", MDX_SUFFIXES, _read_markdown)
HTML = Format("html", (), _read_html)  # pages of websites; HTML files beside Markdown are build output
BUILT_IN = (MARKDOWN, MDX, HTML)


@cache
def formats() -> tuple[Format, ...]:
    """Return all formats; readers of plugins are imported when they are first used."""
    by_name = {format.name: format for format in BUILT_IN}
    suffixes = {suffix for format in BUILT_IN for suffix in format.suffixes}
    for plugin in plugin_names(READERS):
        name = plugin.lower().lstrip(".")
        if name in by_name or f".{name}" in suffixes:
            raise ConfigurationError(
                f"{plugin_version(READERS, plugin)} has a reader for .{name}, which Recto reads itself",
                hint="Uninstall the plugin, or rename its entry point.",
            )
        by_name[name] = Format(name, (f".{name}",), _plugin_reader(plugin), plugin)
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


def page_suffixes() -> tuple[str, ...]:
    """Return the suffixes of all files that can be pages."""
    return tuple(dict.fromkeys(suffix for format in formats() for suffix in format.suffixes))


def suffix_list() -> str:
    """Return the suffixes of all files that can be pages, for a message."""
    *most, last = page_suffixes()
    return f"{', '.join(most)} or {last}"


def format_of(name: str) -> Format | None:
    """Return the format of a file by its suffix, in any case; None if the file cannot be a page."""
    lower = name.lower()
    candidates = [
        (len(suffix), format) for format in formats() for suffix in format.suffixes if lower.endswith(suffix)
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
