"""What decides addresses in a Docusaurus configuration, read as text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recto.book.bookfile import SiteOptions, UnreadableSite
from recto.book.sites.javascript import UNDEFINED, Unknown, Value, read_exported, shown, unknown
from recto.errors import ConfigurationError

CONFIG_FILES = tuple(f"docusaurus.config.{extension}" for extension in ("js", "ts", "mjs", "cjs", "mts", "cts"))
DEFAULT_ID = "default"
PLAIN = "Give the directory of the pages itself; --site-url says where they are published."
_LARGEST = 1 << 20  # bytes; no configuration that is written by people comes near it
_INCLUDE = ("**/*.{md,mdx}",)
_EXCLUDE = ("**/_*.{js,jsx,ts,tsx,md,mdx}", "**/_*/**", "**/*.test.{js,jsx,ts,tsx}", "**/__tests__/**")
_CLASSIC = re.compile(r"(?:@docusaurus/)?(?:preset-)?classic|.*preset-classic.*")
_DOCS_PLUGIN = re.compile(r"(?:@docusaurus/)?(?:plugin-)?content-docs|.*plugin-content-docs.*")
_PLUGIN_CODE = re.compile(r"(?:async\b|function\b|class\b|\(|new\b)")
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
    """One instance of the docs plugin; `options` keeps what only matters for some versions."""

    id: str
    path: str
    route: str
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    numbered: bool
    options: Value


class DocusaurusConfig:
    """A site's configuration; a value that matters and cannot be read is an error that names the flag for it."""

    def __init__(self, file: Path, options: SiteOptions) -> None:
        self.file = file
        self.notes: list[str] = []
        self._options = options
        self._root = read_exported(_text(file), _JsonBeside(file.parent.resolve()))
        if not isinstance(self._root.data, Mapping):
            written = self._root.data.source if isinstance(self._root.data, Unknown) else "nothing"
            raise UnreadableSite(
                f"{file.name} does not export an object that can be read without running it: {written}",
                hint=PLAIN,
            )

    def url(self) -> str:
        """Return the site's address without its base path, or nothing if it has none."""
        return self.text(self._root.get("url"), "url").rstrip("/")

    def base_url(self) -> str:
        """Return the base path, with slashes on both ends."""
        return self.text(self._root.get("baseUrl"), "baseUrl") or "/"

    def trailing_slash(self) -> bool | None:
        """Return the rule for a slash at the end of an address."""
        return self.switch(self._root.get("trailingSlash"), "trailingSlash")

    def markdown_format(self) -> str:
        """Return how pages are read: `mdx`, `md` or `detect`."""
        value = self._root.get("markdown", "format")
        if isinstance(value.data, Unknown):
            self.notes.append(f"markdown.format cannot be read without running it ({value.data.source}); pages are read as MDX.")
            return "mdx"
        return value.data if isinstance(value.data, str) else "mdx"

    def locale(self, *keys: str) -> Value:
        """Return a value of the internationalisation."""
        return self._root.get("i18n", *keys)

    def docs(self) -> list[Docs]:
        """Return the instances of the docs plugin, that of the preset first."""
        found = [self._docs(options) for options in self._preset_options()]
        found += [self._docs(options) for options in self._plugin_options()]
        route = self._options.route_base_path
        if found and route is not None:
            chosen = next((docs for docs in found if docs.id == DEFAULT_ID), found[0])
            found = [Docs(d.id, d.path, route, d.include, d.exclude, d.numbered, d.options) if d is chosen else d for d in found]
        return found

    def text(self, value: Value, key: str) -> str:
        """Return a text; nothing is an empty one."""
        found = self.known(value, key)
        if found.missing:
            return ""
        if not isinstance(found.data, str):
            raise self.error(key, shown(found.data) if isinstance(found.data, bool | float) else "…", "is not text")
        return found.data

    def switch(self, value: Value, key: str) -> bool | None:
        """Return true, false, or None for what is not said."""
        found = self.known(value, key)
        return None if found.missing else bool(found.truth)

    def texts(self, value: Value, key: str) -> tuple[str, ...] | None:
        """Return a list of texts, or None for what is not said."""
        found = self.known(value, key)
        if found.missing:
            return None
        items = found.data if isinstance(found.data, tuple) and not found.rest else (unknown(found.rest or key),)
        return tuple(self.text(item, key) for item in items)

    def known(self, value: Value, key: str) -> Value:
        """Return a value that can be used; note it if it depends on the environment."""
        if isinstance(value.data, Unknown):
            raise self.error(key, value.data.source, "cannot be read without running it")
        if value.environment:
            written = "left out" if value.data is UNDEFINED else json.dumps(value.plain, default=str)
            self.notes.append(f"{key} depends on the environment; taken as {written}")
        return value

    def error(self, key: str, source: str, what: str) -> ConfigurationError:
        """Return the error for a value that cannot be used, with the flag that gives it."""
        flag = _FLAGS.get(key.rpartition(".")[2])
        message = f"{self.file.name}: {key} {what}: {source}"
        return ConfigurationError(message, hint=f"Give it with {flag}, or in recto.toml.") if flag else UnreadableSite(message, hint=PLAIN)

    def _preset_options(self) -> Iterator[Value]:
        presets, unread = self._items("presets")
        seen = False
        for name, options in presets:
            docs = options.get("docs")
            if not (_CLASSIC.fullmatch(name) or isinstance(docs.data, Mapping)):
                continue
            seen = True
            if isinstance(docs.data, Unknown):
                raise self.error("docs", docs.data.source, "cannot be read without running it")
            if docs.data is not False:
                yield docs if isinstance(docs.data, Mapping) else Value({})
        if unread and not seen:
            raise self.error("presets", unread[0], "cannot be read without running it")

    def _plugin_options(self) -> Iterator[Value]:
        plugins, unread = self._items("plugins")
        for name, options in plugins:
            if _DOCS_PLUGIN.fullmatch(name):
                if isinstance(options.data, Unknown):
                    raise self.error(name, options.data.source, "has options that cannot be read without running it")
                yield options if isinstance(options.data, Mapping) else Value({})
        unread = [source for source in unread if not _PLUGIN_CODE.match(source)]
        if unread:
            self.notes.append(f"plugins cannot all be read without running them ({', '.join(unread[:3])}); docs in those are left out.")

    def _items(self, key: str) -> tuple[list[tuple[str, Value]], list[str]]:
        """Return the names of presets or plugins with their options, and the source of those that cannot be read."""
        value = self._root.get(key)
        found: list[tuple[str, Value]] = []
        unread = [value.data.source] if isinstance(value.data, Unknown) else [value.rest] if value.rest else []
        for item in value.data if isinstance(value.data, tuple) else ():
            name = item.get("0") if isinstance(item.data, tuple) else item
            if isinstance(name.data, str):
                found.append((name.data, item.get("1") if isinstance(item.data, tuple) else Value(UNDEFINED)))
            elif isinstance(name.data, Unknown):
                unread.append(name.data.source)
        return found, unread

    def _docs(self, options: Value) -> Docs:
        route = options.get("routeBasePath")
        given = self._options.route_base_path is not None and isinstance(route.data, Unknown)
        numbers = options.get("numberPrefixParser")
        if isinstance(numbers.data, Unknown):
            self.notes.append(f"numberPrefixParser cannot be read without running it ({numbers.data.source}); the usual one is used.")
        return Docs(
            id=self.text(options.get("id"), "docs.id") or DEFAULT_ID,
            path=(self.text(options.get("path"), "docs.path") or "docs").strip("/").removeprefix("./"),
            route="" if given else "docs" if self.known(route, "docs.routeBasePath").missing else self.text(route, "docs.routeBasePath"),
            include=self.texts(options.get("include"), "docs.include") or _INCLUDE,
            exclude=_EXCLUDE if (excluded := self.texts(options.get("exclude"), "docs.exclude")) is None else excluded,
            numbered=numbers.data is not False,
            options=options,
        )


class _JsonBeside:
    """Reads JSON files of the site's own directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __call__(self, path: str) -> Any:
        try:
            file = (self._directory / path).resolve()
            if not file.is_relative_to(self._directory) or not file.is_file() or file.stat().st_size > _LARGEST:
                raise LookupError(path)
            return json.loads(file.read_text("utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise LookupError(path) from error


def _text(file: Path) -> str:
    try:
        if file.stat().st_size > _LARGEST:
            raise UnreadableSite(f"{file.name} is larger than a configuration is", hint=PLAIN)
        return file.read_bytes().decode("utf-8", "replace")
    except OSError as error:
        raise UnreadableSite(f"{file.name} cannot be read: {error.strerror or error}", hint=PLAIN) from error
