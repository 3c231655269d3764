"""The configuration of a Docusaurus site: its docs, their versions and their sidebars."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from recto.book.sources.docusaurus.javascript import (
    UNDEFINED,
    Unknown,
    Value,
    from_json,
    read_exported,
    to_text,
)
from recto.book.sources.options import (
    PLAIN,
    SiteOptions,
    UnreadableSite,
    read_config,
    read_logo,
    repository_of,
)
from recto.errors import ConfigurationError

CONFIG_FILES = tuple(f"docusaurus.config.{suffix}" for suffix in ("js", "ts", "mjs", "cjs", "mts", "cts"))
DEFAULT_ID = "default"
CURRENT = "current"
_DEEPEST = 20  # categories in categories
_INCLUDE = ("**/*.{md,mdx}",)
_EXCLUDE = ("**/_*.{js,jsx,ts,tsx,md,mdx}", "**/_*/**", "**/*.test.{js,jsx,ts,tsx}", "**/__tests__/**")
_CLASSIC = re.compile(r"(?:@docusaurus/)?(?:preset-)?classic|.*preset-classic.*")
_DOCS_PLUGIN = re.compile(r"(?:@docusaurus/)?(?:plugin-)?content-docs|.*plugin-content-docs.*")
_PLUGIN_CODE = re.compile(r"(?:async\b|function\b|class\b|\(|new\b)")
_UNREAD = "cannot be read without running it"
_FLAGS = {
    "url": "--site-url",
    "baseUrl": "--site-url",
    "trailingSlash": "--trailing-slash or --no-trailing-slash",
    "routeBasePath": "--route-base-path",
    "lastVersion": "--docs-version",
    "onlyIncludeVersions": "--docs-version",
    "defaultLocale": "--locale",
}


@dataclass(frozen=True, slots=True)
class Docs:
    """One instance of the docs plugin; `options` are its own options."""

    id: str
    path: str
    route: str
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    numbered: bool
    options: Value


class DocusaurusConfig:
    """A site's configuration; a value that cannot be evaluated is an error that names the flag for it."""

    def __init__(self, file: Path, options: SiteOptions) -> None:
        self.file = file
        self.notes: list[str] = []
        self._options = options
        self.bounds = repository_of(file.parent)
        self.root = read_exported(read_config(file, self.bounds), partial(_load_json, file.parent.resolve()))
        if not isinstance(self.root.data, Mapping):
            written = self.root.data.source if isinstance(self.root.data, Unknown) else "nothing"
            raise UnreadableSite(
                f"{file.name} does not export an object that can be read without running it: {written}",
                hint=PLAIN,
            )

    def markdown_format(self) -> str:
        """Return how to read pages: `mdx`, `md` or `detect`."""
        data = self.root.get("markdown", "format").data
        if isinstance(data, Unknown):
            self._note_unread("markdown.format", data, "pages are read as MDX")
        return data if isinstance(data, str) else "mdx"

    def title(self) -> str:
        """Return the title of the site, or "" if it cannot be read."""
        return self._text_or_nothing("title") or self._text_or_nothing("themeConfig", "navbar", "title")

    def logo(self) -> str:
        """Return the logo of the site, else its icon, as a `data:` URL; "" if neither can be read."""
        stated = self.root.get("staticDirectories").data
        named = [folder.data for folder in stated] if isinstance(stated, tuple) else ["static"]
        folders = [self.file.parent / folder for folder in named if isinstance(folder, str)]
        images = (
            self._text_or_nothing("themeConfig", "navbar", "logo", "src"),
            self._text_or_nothing("favicon"),
        )
        files = (folder / image.lstrip("/") for image in images if image for folder in folders)
        return read_logo(files, self.bounds)

    def _text_or_nothing(self, *path: str) -> str:
        data = self.root.get(*path).data
        return data if isinstance(data, str) else ""

    def docs(self) -> list[Docs]:
        """Return the instances of the docs plugin, the preset's first."""
        instances = [self._docs(options) for options in (*self._preset_options(), *self._plugin_options())]
        route = self._options.route_base_path
        if instances and route is not None:
            chosen = next((docs for docs in instances if docs.id == DEFAULT_ID), instances[0])
            instances = [replace(docs, route=route) if docs is chosen else docs for docs in instances]
        return instances

    def text(self, value: Value, key: str) -> str:
        """Return a string; "" if the value is missing."""
        data = self.evaluated(value, key).data
        if value.missing:
            return ""
        if not isinstance(data, str):
            raise self.error(key, to_text(data) if isinstance(data, bool | float) else "…", "is not text")
        return data

    def switch(self, value: Value, key: str) -> bool | None:
        """Return a boolean; None if the value is missing."""
        return None if self.evaluated(value, key).missing else bool(value.truth)

    def texts(self, value: Value, key: str) -> tuple[str, ...] | None:
        """Return a list of strings; None if the value is missing."""
        data = self.evaluated(value, key).data
        if value.missing:
            return None
        if not isinstance(data, tuple) or value.rest:
            raise self.error(key, value.rest or key, _UNREAD)
        return tuple(self.text(item, key) for item in data)

    def evaluated(self, value: Value, key: str) -> Value:
        """Return a value, or raise an error if it is unknown; note that it depends on the environment."""
        if isinstance(value.data, Unknown):
            raise self.error(key, value.data.source, _UNREAD)
        if value.environment:
            written = "left out" if value.data is UNDEFINED else json.dumps(value.plain, default=str)
            self.notes.append(f"{key} depends on the environment; taken as {written}")
        return value

    def error(self, key: str, source: str, what: str) -> ConfigurationError:
        """Return the error for an unusable value; its hint names the flag for it."""
        message = f"{self.file.name}: {key} {what}: {source}"
        if flag := _FLAGS.get(key.rpartition(".")[2]):
            return ConfigurationError(message, hint=f"Set it with {flag}, or in recto.toml.")
        return UnreadableSite(message, hint=PLAIN)

    def _note_unread(self, key: str, value: Unknown, instead: str) -> None:
        self.notes.append(f"{key} {_UNREAD} ({value.source}); {instead}.")

    def _preset_options(self) -> Iterator[Value]:
        presets, unread = self._items("presets")
        seen = False
        for name, options in presets:
            docs = options.get("docs")
            if not (_CLASSIC.fullmatch(name) or isinstance(docs.data, Mapping)):
                continue
            seen = True
            if isinstance(docs.data, Unknown):
                raise self.error("docs", docs.data.source, _UNREAD)
            if docs.data is not False:
                yield docs if isinstance(docs.data, Mapping) else Value({})
        if unread and not seen:
            raise self.error("presets", unread[0], _UNREAD)

    def _plugin_options(self) -> Iterator[Value]:
        plugins, unread = self._items("plugins")
        for name, options in plugins:
            if _DOCS_PLUGIN.fullmatch(name):
                if isinstance(options.data, Unknown):
                    raise self.error(name, options.data.source, f"has options that {_UNREAD}")
                yield options if isinstance(options.data, Mapping) else Value({})
        if unread := [source for source in unread if not _PLUGIN_CODE.match(source)]:
            self.notes.append(
                f"plugins cannot all be read without running them ({', '.join(unread[:3])}); "
                "docs in those are left out."
            )

    def _items(self, key: str) -> tuple[list[tuple[str, Value]], list[str]]:
        """Return presets or plugins with their options, and the source of those that are unknown."""
        value = self.root.get(key)
        items: list[tuple[str, Value]] = []
        unread = [value.data.source if isinstance(value.data, Unknown) else value.rest]
        for item in value.data if isinstance(value.data, tuple) else ():
            pair = isinstance(item.data, tuple)
            name = (item.get("0") if pair else item).data
            if isinstance(name, str):
                items.append((name, item.get("1") if pair else Value(UNDEFINED)))
            elif isinstance(name, Unknown):
                unread.append(name.source)
        return items, [source for source in unread if source]

    def _docs(self, options: Value) -> Docs:
        route = options.get("routeBasePath")
        if self._options.route_base_path is not None and isinstance(route.data, Unknown):
            route = Value("")  # the flag replaces it
        elif route.missing:
            route = replace(route, data="docs")
        numbers = options.get("numberPrefixParser").data
        if isinstance(numbers, Unknown):
            self._note_unread("numberPrefixParser", numbers, "the usual one is used")
        return Docs(
            id=self.text(options.get("id"), "docs.id") or DEFAULT_ID,
            path=(self.text(options.get("path"), "docs.path") or "docs").strip("/").removeprefix("./"),
            route=self.text(route, "docs.routeBasePath"),
            include=self.texts(options.get("include"), "docs.include") or _INCLUDE,
            exclude=_EXCLUDE
            if (stated := self.texts(options.get("exclude"), "docs.exclude")) is None
            else stated,
            numbered=numbers is not False,
            options=options,
        )


def _load_json(directory: Path, path: str) -> Any:
    """Load a JSON file in a directory; raise LookupError if that is not possible."""
    try:
        return json.loads(read_config(directory / path, directory))
    except (OSError, UnreadableSite, ValueError, RecursionError) as error:
        raise LookupError(path) from error


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions of docs: `last` has no version in its URL, `chosen` is the one to read."""

    names: tuple[str, ...]
    last: str
    chosen: str
    routes: Mapping[str, str] = field(default_factory=dict)

    def route(self, version: str) -> str:
        """Return the part of the URL that names a version."""
        usual = "" if version == self.last else "next" if version == CURRENT else version
        return self.routes.get(version, usual)


def read_versions(config: DocusaurusConfig, site: Path, docs: Docs, asked: str) -> Versions:
    """Read the versions of an instance of the docs plugin and choose one."""
    options = docs.options
    released = _released(site, docs, config.bounds)
    if released and config.switch(options.get("disableVersioning"), "docs.disableVersioning"):
        released = []
    current = config.switch(options.get("includeCurrentVersion"), "docs.includeCurrentVersion") is not False
    names = released if CURRENT in released or not current else [CURRENT, *released]
    if not names:
        raise ConfigurationError(
            f"The docs in {docs.path} have no version",
            hint="Set includeCurrentVersion, or add to versions.json.",
        )
    only, last = options.get("onlyIncludeVersions"), options.get("lastVersion")
    if len(names) == 1:  # nothing to choose from
        if not last.missing and last.data != names[0]:
            written = last.data.source if isinstance(last.data, Unknown) else last.plain
            config.notes.append(f"docs.lastVersion is {written}; only version {names[0]} exists and is read.")
        return Versions((names[0],), names[0], names[0], _routes(config, docs, names))
    keys = {"onlyIncludeVersions": only, "lastVersion": last}
    unread = [key for key, value in keys.items() if isinstance(value.data, Unknown)]
    if unread and not asked:
        config.evaluated(keys[unread[-1]], f"docs.{unread[-1]}")  # raises an error that says what to do
    included = None if "onlyIncludeVersions" in unread else config.texts(only, "docs.onlyIncludeVersions")
    names = [name for name in names if included is None or name in included] or names
    stated = "" if "lastVersion" in unread else config.text(last, "docs.lastVersion")
    usual = next((name for name in names if name != CURRENT), CURRENT)
    if unread:
        config.notes.append(
            f"docs.{unread[-1]} cannot be read; URLs of version {usual} are assumed to have no version."
        )
    if stated and stated not in names:
        raise ConfigurationError(
            f"{config.file.name}: docs.lastVersion is {stated}, which does not exist",
            hint=f"There are: {', '.join(names)}.",
        )
    chosen = asked if asked in names else stated or usual
    return Versions(tuple(names), stated or usual, chosen, _routes(config, docs, names))


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


def _routes(config: DocusaurusConfig, docs: Docs, names: list[str]) -> dict[str, str]:
    """Return the URL parts of versions that the configuration sets."""
    paths = {name: docs.options.get("versions", name, "path") for name in names}
    stated = {name: value for name, value in paths.items() if not value.missing}
    return {name: config.text(value, f"docs.versions.{name}.path") for name, value in stated.items()}


@dataclass(frozen=True, slots=True)
class SidebarItem:
    """A doc by its id, or all docs in a directory; `sections` are the labels above it."""

    target: str
    sections: tuple[str, ...]
    directory: bool = False


def read_sidebars(file: Path, bounds: Path) -> list[SidebarItem] | None:
    """Read a sidebar file without running it; return None if that is not possible."""
    try:
        text = read_config(file, bounds)
        no_imports: dict[str, Any] = {}
        is_json = file.suffix == ".json"
        value = from_json(json.loads(text)) if is_json else read_exported(text, no_imports.__getitem__)
    except (OSError, UnreadableSite, ValueError, RecursionError):
        return None
    if not isinstance(value.data, Mapping):
        return None
    return [item for sidebar in value.data.values() for item in _items(sidebar, ())]


def _items(value: Value, sections: tuple[str, ...]) -> Iterator[SidebarItem]:
    data = value.data
    if len(sections) > _DEEPEST:
        return
    if isinstance(data, tuple):
        for item in data:
            yield from _items(item, sections)
    elif isinstance(data, str):
        yield SidebarItem(data, sections)
    elif isinstance(data, Mapping):
        kind = data["type"].data if "type" in data else None
        if kind == "category":
            label = value.get("label").data
            below = (*sections, label) if isinstance(label, str) else sections
            link = value.get("link", "id").data
            if isinstance(link, str):
                yield SidebarItem(link, below)
            yield from _items(value.get("items"), below)
        elif kind == "autogenerated" and isinstance(folder := value.get("dirName").data, str):
            folder = folder.removeprefix("./").strip("/").removeprefix(".")
            yield SidebarItem(folder, sections, directory=True)
        elif kind in ("doc", "ref") and isinstance(name := value.get("id").data, str):
            yield SidebarItem(name, sections)
        elif kind is None:  # the short form: {label: items}
            for label, items in data.items():
                yield from _items(items, (*sections, label))
