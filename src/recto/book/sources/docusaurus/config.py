"""The configuration of a Docusaurus site: its docs plugins and their versions.

A value that cannot be evaluated without running the configuration is an error that names the flag for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from recto.book.sources.docusaurus.javascript import Unknown, get, read_exported, to_text, truth
from recto.book.sources.docusaurus.pages import CURRENT_VERSION, Docs
from recto.book.sources.options import (
    SiteOptions,
    UnreadableSite,
    is_inside,
    read_config,
    read_import,
    read_logo,
    repository_of,
)
from recto.errors import ConfigurationError

CONFIG_FILES = tuple(f"docusaurus.config.{suffix}" for suffix in ("js", "ts", "mjs", "cjs", "mts", "cts"))
DEFAULT_ID = "default"
"""The id of an instance of the docs plugin that states none."""
_INCLUDE = ("**/*.{md,mdx}",)
_EXCLUDE = ("**/_*.{js,jsx,ts,tsx,md,mdx}", "**/_*/**", "**/*.test.{js,jsx,ts,tsx}", "**/__tests__/**")
_CLASSIC = re.compile(r"(?:@docusaurus/)?(?:preset-)?classic|.*preset-classic.*")
_DOCS_PLUGIN = re.compile(r"(?:@docusaurus/)?(?:plugin-)?content-docs|.*plugin-content-docs.*")
_PLUGIN_CODE = re.compile(r"(?:async\b|function\b|class\b|\(|new\b)")
_CHANGING = ("beforeDefaultRemarkPlugins", "remarkPlugins", "beforeDefaultRehypePlugins", "rehypePlugins")
_FORMULAS = re.compile("math|katex", re.IGNORECASE)
_PLUGIN = re.compile(r"require\(['\"]([^'\"]+)['\"]\)|([\w@/.-]+)$")
_UNREAD = "cannot be read without running it"
_FLAGS = {
    "url": "--site-url",
    "baseUrl": "--site-url",
    "trailingSlash": "--trailing-slash or --no-trailing-slash",
    "routeBasePath": "--route-base-path",
    "defaultLocale": "--locale",
}


class DocusaurusConfig:
    """A site's configuration; a value that cannot be evaluated is an error that names the flag for it."""

    def __init__(self, file: Path, options: SiteOptions) -> None:
        self.file = file
        self.notes: list[str] = []
        self._options = options
        self.bounds = repository_of(file.parent)
        folder = file.parent.resolve()
        text, load = read_config(file, self.bounds), partial(read_import, folder, folder)
        self.root = read_exported(text, load)
        if not isinstance(self.root, dict):
            written = self.root.source if isinstance(self.root, Unknown) else "nothing"
            raise UnreadableSite(
                f"{file.name} does not export an object that can be read without running it: {written}"
            )
        if "process.env" in text and not options.url:
            computed = read_exported(text, load, Unknown("process.env"))
            for key in ("url", "baseUrl", "trailingSlash"):
                value = self.root.get(key)
                if isinstance(get(computed, key), Unknown) and not isinstance(value, Unknown):
                    written = "left out" if value is None else json.dumps(value, default=str)
                    self.notes.append(f"{key} depends on the environment; taken as {written}")

    def markdown_format(self) -> str:
        """Return how to read pages: `mdx`, `md` or `detect`."""
        stated = get(self.root, "markdown", "format")
        if isinstance(stated, Unknown):
            self.note_unread("markdown.format", stated, "pages are read as MDX")
        return stated if isinstance(stated, str) else "mdx"

    def title(self) -> str:
        """Return the title of the site, or "" if it cannot be read."""
        return self._stated("title") or self._stated("themeConfig", "navbar", "title")

    def logo(self) -> str:
        """Return the logo of the site, else its icon, as a `data:` URL; "" if neither can be read."""
        stated = get(self.root, "staticDirectories")
        named = stated if isinstance(stated, list) else ["static"]
        folders = [self.file.parent / name for name in named if isinstance(name, str)]
        images = (self._stated("themeConfig", "navbar", "logo", "src"), self._stated("favicon"))
        files = (folder / image.lstrip("/") for image in images if image for folder in folders)
        return read_logo(files, self.bounds)

    def _stated(self, *path: str) -> str:
        value = get(self.root, *path)
        return value if isinstance(value, str) else ""

    def docs(self) -> list[Docs]:
        """Return the instances of the docs plugin, the preset's first."""
        instances = [self._docs(options) for options in (*self._preset_options(), *self._plugin_options())]
        route = self._options.route_base_path
        if instances and route is not None:
            chosen = next((docs for docs in instances if docs.id == DEFAULT_ID), instances[0])
            instances = [replace(docs, route=route) if docs is chosen else docs for docs in instances]
        return instances

    def text(self, value: Any, key: str) -> str:
        """Return a string; "" if the value is missing."""
        self.check(value, key)
        if not isinstance(value, str | None):
            raise self._error(key, to_text(value) if isinstance(value, bool | float) else "…", "is not text")
        return value or ""

    def switch(self, value: Any, key: str) -> bool | None:
        """Return a boolean; None if the value is missing."""
        self.check(value, key)
        return None if value is None else truth(value)

    def texts(self, value: Any, key: str) -> tuple[str, ...] | None:
        """Return a list of strings; None if the value is missing."""
        self.check(value, key)
        if not isinstance(value, list | None):
            raise self._error(key, key, _UNREAD)
        return None if value is None else tuple(self.text(item, key) for item in value)

    def check(self, value: Any, key: str) -> None:
        """Raise an error if a value is unknown."""
        if isinstance(value, Unknown):
            raise self._error(key, value.source, _UNREAD)

    def _error(self, key: str, source: str, what: str) -> ConfigurationError:
        """Return the error for an unusable value; its hint names the flag for it."""
        message = f"{self.file.name}: {key} {what}: {source}"
        if flag := _FLAGS.get(key.rpartition(".")[2]):
            return ConfigurationError(message, hint=f"Set it with {flag}, or in recto.toml.")
        return UnreadableSite(message)

    def note_unread(self, key: str, value: Unknown, instead: str) -> None:
        """Add a note on a value that cannot be read, and what is used instead."""
        self.notes.append(f"{key} {_UNREAD} ({value.source}); {instead}.")

    def _preset_options(self) -> Iterator[dict[str, Any]]:
        presets, unread = self._items("presets")
        docs_of = [
            docs
            for name, options in presets
            for docs in [get(options, "docs")]
            if _CLASSIC.fullmatch(name) or isinstance(docs, dict)
        ]
        for docs in docs_of:
            self.check(docs, "docs")
            if docs is not False:
                yield docs if isinstance(docs, dict) else {}
        if unread and not docs_of:
            raise self._error("presets", unread[0], _UNREAD)

    def _plugin_options(self) -> Iterator[dict[str, Any]]:
        plugins, unread = self._items("plugins")
        for name, options in plugins:
            if _DOCS_PLUGIN.fullmatch(name):
                if isinstance(options, Unknown):
                    raise self._error(name, options.source, f"has options that {_UNREAD}")
                yield options if isinstance(options, dict) else {}
        if unread := [source for source in unread if not _PLUGIN_CODE.match(source)]:
            self.notes.append(
                f"plugins cannot all be read without running them ({', '.join(unread[:3])}); "
                "docs in those are left out."
            )

    def posts(self) -> int:
        """Return how many files the blogs have, which are not read."""
        presets = [get(options, "blog") for _, options in self._items("presets")[0]]
        plugins = [options for name, options in self._items("plugins")[0] if "content-blog" in name]
        paths = [get(blog, "path") for blog in (*presets, *plugins) if blog is not False]
        folders = {self.file.parent / (path if isinstance(path, str) else "blog") for path in paths}
        inside = [folder for folder in folders if is_inside(folder, self.bounds)]
        return sum(file.suffix in (".md", ".mdx") for folder in inside for file in folder.rglob("*.md*"))

    def _items(self, key: str) -> tuple[list[tuple[str, Any]], list[str]]:
        """Return presets or plugins with their options, and the source of those that are unknown."""
        value = get(self.root, key)
        entries = value if isinstance(value, list) else [value]
        items: list[tuple[str, Any]] = []
        unread: list[str] = []
        for entry in entries:
            name, options = (get(entry, "0"), get(entry, "1")) if isinstance(entry, list) else (entry, None)
            if isinstance(name, str):
                items.append((name, options))
            elif isinstance(name, Unknown):
                unread.append(name.source)
        return items, unread

    def _docs(self, options: dict[str, Any]) -> Docs:
        route = get(options, "routeBasePath")
        if self._options.route_base_path is not None and isinstance(route, Unknown):
            route = ""  # the flag replaces it
        numbers = get(options, "numberPrefixParser")
        if isinstance(numbers, Unknown):
            self.note_unread("numberPrefixParser", numbers, "the usual one is used")
        if changing := list(_changing_plugins(options)):
            self.notes.append(f"What plugins change in pages is not read: {', '.join(changing)}.")
        return Docs(
            id=self.text(get(options, "id"), "docs.id") or DEFAULT_ID,
            path=(self.text(get(options, "path"), "docs.path") or "docs").strip("/").removeprefix("./"),
            route=self.text("docs" if route is None else route, "docs.routeBasePath"),
            include=self.texts(get(options, "include"), "docs.include") or _INCLUDE,
            exclude=_EXCLUDE
            if (stated := self.texts(get(options, "exclude"), "docs.exclude")) is None
            else stated,
            numbered=numbers is not False,
            options=options,
        )


def _changing_plugins(options: dict[str, Any]) -> Iterator[str]:
    """Yield the names of plugins that may change the text of pages; formulas are read without them."""
    for key in _CHANGING:
        plugins = get(options, key)
        for entry in plugins if isinstance(plugins, list) else ():
            plugin = get(entry, "0") if isinstance(entry, list) else entry
            source = plugin.source if isinstance(plugin, Unknown) else str(plugin)
            if not _FORMULAS.search(source):
                named = _PLUGIN.match(source)
                yield named[1] or named[2] if named else "a function of the site"


def with_versions(config: DocusaurusConfig, docs: Docs, requested: str) -> Docs:
    """Read the versions of an instance of the docs plugin; `requested` has the names that the user chose."""
    options = docs.options
    released = _released(config.file.parent, docs, config.bounds)
    if released and config.switch(get(options, "disableVersioning"), "docs.disableVersioning"):
        released = []
    current = config.switch(get(options, "includeCurrentVersion"), "docs.includeCurrentVersion") is not False
    names = released if CURRENT_VERSION in released or not current else [CURRENT_VERSION, *released]
    if not names:
        raise ConfigurationError(
            f"The docs in {docs.path} have no version",
            hint="Set includeCurrentVersion, or add to versions.json.",
        )
    only, last = get(options, "onlyIncludeVersions"), get(options, "lastVersion")
    for key, value in (("onlyIncludeVersions", only), ("lastVersion", last)):
        if isinstance(value, Unknown) and not requested and len(names) > 1:
            config.note_unread(f"docs.{key}", value, "taken as left out")
    only, last = (None if isinstance(value, Unknown) else value for value in (only, last))
    included = config.texts(only, "docs.onlyIncludeVersions")
    names = [name for name in names if included is None or name in included] or names
    stated = config.text(last, "docs.lastVersion") if len(names) > 1 else ""
    if stated and stated not in names:
        raise ConfigurationError(
            f"{config.file.name}: docs.lastVersion is {stated}, which does not exist",
            hint=f"There are: {', '.join(names)}.",
        )
    last = stated or next((name for name in names if name != CURRENT_VERSION), CURRENT_VERSION)
    routes = {name: "" if name == last else "next" if name == CURRENT_VERSION else name for name in names}
    for name in names:
        if (path := get(options, "versions", name, "path")) is not None:
            routes[name] = config.text(path, f"docs.versions.{name}.path")
    return replace(docs, versions=routes, last=last)


def _released(site: Path, docs: Docs, bounds: Path) -> list[str]:
    """Return the versions that `versions.json` lists; each must be a plain directory name."""
    file = site / ("versions.json" if docs.id == DEFAULT_ID else f"{docs.id}_versions.json")
    if not file.is_file():
        return []
    try:
        names = json.loads(read_config(file, bounds))
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"{file.name} cannot be read: {error}", hint="It must be a list of version names."
        ) from error
    if not isinstance(names, list) or not all(
        isinstance(name, str) and name.strip() and name not in (".", "..") and not set(name) & set("/\\\0")
        for name in names
    ):
        raise ConfigurationError(
            f"{file.name} is not a list of version names", hint='Such as ["2.0", "1.0"].'
        )
    return names
