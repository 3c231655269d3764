"""VitePress: `.vitepress/config`, its sidebar, snippets, included files and containers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from recto.book.sources.directory import any_of
from recto.book.sources.docusaurus.javascript import get
from recto.book.sources.includes import (
    Directive,
    Finder,
    code_ranges,
    find_containers,
    in_order,
    select_lines,
    select_region,
)
from recto.book.sources.site import Entry, Site, text_of, texts_of

_SUFFIXES = ("ts", "mts", "js", "mjs")
_SNIPPET = re.compile(
    r"^(?P<prefix>[ \t>]*)<<<[ \t]*(?P<path>[^\s#{\[]+)"
    r"(?:#(?P<region>[\w*-]+))?(?P<braces>\{[^{}\n]*\})?[^\n]*$",
    re.MULTILINE,
)
_INCLUDE = re.compile(
    r"<!--[ \t]*@include:[ \t]*(?P<path>[^\s#{]+?)(?:#(?P<region>[\w-]+))?(?:\{(?P<lines>[\d,]*)\})?[ \t]*-->"
)
_START = re.compile(r"#?region\s+(?P<name>[\w*-]+)")
_END = re.compile(r"#?endregion\b\s*(?P<name>[\w*-]*)")
_PLAYGROUND = re.compile(r"(?<=[\w/])#[\w+/=-]{100,}(?=\))")  # code that the address of a link holds
_INTERPOLATION = re.compile(  # a value of a script; in code and in elements with `v-pre` it is text
    r"(?<!`)(`+)(?!`)[^\n]*?(?<!`)\1(?!`)|<(\w+) v-pre>.*?</\2>|(?P<value>\{\{[^{}\n]*\}\})"
)
_DEEPEST = 10


class VitePressSite(Site):
    """A VitePress site in one language."""

    generator = "vitepress"
    config_files = tuple(f".vitepress/config{kind}.{end}" for kind in ("", "/index") for end in _SUFFIXES)
    suffixes = (".md",)
    anchors = "vitepress"
    options = ("locale",)

    @classmethod
    def folder_of(cls, config_file: Path) -> Path:
        """Return the directory that holds `.vitepress`."""
        return next(folder.parent for folder in config_file.parents if folder.name == ".vitepress")

    def configure(self, config_file: Path) -> None:
        """Read the options that decide which pages there are and where they are published."""
        config = self.read_javascript(config_file)
        self.root = self.directory / (text_of(config, "srcDir") or ".")
        self.title = text_of(config, "title")
        self.set_logo(text_of(config, "themeConfig", "logo"))
        host, base = text_of(config, "sitemap", "hostname"), text_of(config, "base")
        self.url = host.rstrip("/") + (base or "/") if host else ""
        slash = self.book_file.options.trailing_slash
        self._suffix = "" if config.get("cleanUrls") is True or slash is not None else ".html"
        self._left_out = any_of(texts_of(config.get("srcExclude")))
        rewrites = config.get("rewrites")
        self._rewrites = (
            {key: value for key, value in rewrites.items() if isinstance(value, str)}
            if isinstance(rewrites, dict)
            else {}
        )
        locales = config.get("locales")
        chosen = self.book_file.options.locale
        self._others = (
            tuple(f"{key}/" for key in locales if key not in ("root", chosen))
            if isinstance(locales, dict)
            else ()
        )
        own = get(locales, chosen or "root", "themeConfig", "sidebar")
        sidebar = own or get(config, "themeConfig", "sidebar")
        self.list_pages(list(_entries(sidebar, "", ())), self._file)
        if sidebar is not None and not self.sections:
            self.notes.append(
                "The sidebar cannot be read without running the configuration; "
                "pages are in the order of their names."
            )

    def _file(self, link: str) -> str | None:
        path = link.partition("#")[0].strip("/").removesuffix(".html").removesuffix(".md")
        names = [f"{path}.md", f"{path}/index.md".lstrip("/")]
        return None if "://" in link else next(filter(self.exists, names), None)

    def enters(self, folder: str) -> bool:
        """Return whether a directory may hold pages."""
        return super().enters(folder) and not f"{folder}/".startswith(self._others)

    def wants(self, name: str) -> bool:
        """Return whether a file is a page."""
        return super().wants(name) and not self._left_out(name) and not name.startswith(self._others)

    def address(self, name: str, head: dict[str, Any]) -> str:  # noqa: ARG002
        """Return the address of a page; an index page has the address of its directory."""
        name = self._rewrites.get(name, name)
        if name.rpartition("/")[2] == "index.md":
            return name.removesuffix("index.md")
        return f"{name.removesuffix('.md')}{self._suffix}"

    def finder(self) -> Finder:
        """Return the finder of snippets, included files and containers."""
        return partial(_find, self.root)


def _entries(value: Any, base: str, sections: tuple[str, ...]) -> Iterator[Entry]:
    """Yield the links of a sidebar: a list of items, or several lists by the paths of their pages."""
    if len(sections) > _DEEPEST:
        return
    if isinstance(value, list):
        for item in value:
            yield from _entries(item, base, sections)
    elif isinstance(value, dict):
        base, text, link, items = (
            text_of(value, "base") or base,
            text_of(value, "text"),
            text_of(value, "link"),
            value.get("items"),
        )
        if link:
            yield base + link if base else link, text, (*sections, text) if items else sections
        if items:
            yield from _entries(items, base, (*sections, text) if text else sections)
        elif not text:
            for part in value.values():
                yield from _entries(part, base, sections)


def _find(root: Path, text: str, file: Path) -> Sequence[Directive]:
    directives = find_containers(text) if ":::" in text else []
    if "<<<" in text or "@include" in text:
        directives += _files(text, root, file)
    if "{{" in text:
        in_code = code_ranges(text)
        values = (one for one in _INTERPOLATION.finditer(text) if one["value"] and not in_code(one.start()))
        directives += [Directive(*value.span()) for value in values]
    directives += [Directive(*code.span()) for code in _PLAYGROUND.finditer(text)]
    return in_order(directives)


def _files(text: str, root: Path, file: Path) -> Iterator[Directive]:
    in_code = code_ranges(text)
    for match in (*_SNIPPET.finditer(text), *_INCLUDE.finditer(text)):
        if in_code(match.start()):
            continue
        path, region = match["path"], match["region"]
        bases = (root,) if path.startswith("@") else (file.parent,)
        path = path.removeprefix("@").lstrip("/") if path.startswith("@") else path
        select = select_region(region, _START, _END) if region else None
        if match.re is _SNIPPET:
            language = re.search(r"[A-Za-z][\w+-]*", match["braces"] or "")
            code, prefix = language[0] if language else "", match["prefix"]
        else:
            code, prefix = None, ""
            if lines := match["lines"]:
                select = select_lines(lines.replace(",", ":"), ":")
        yield Directive(*match.span(), path, bases, select=select, code=code, prefix=prefix, otherwise="")
