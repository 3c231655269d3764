"""A Docusaurus site: its configuration, the directories of its versions and locales, and their URLs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from recto._util.languages import ENGLISH
from recto.book.sources.directory import Generator, PageDirectory
from recto.book.sources.docusaurus.javascript import Unknown, get, read_exported, to_text, truth
from recto.book.sources.docusaurus.pages import (
    Docs,
    DocsRules,
    DocusaurusIncludes,
    Published,
    SidebarItem,
    join,
    read_sidebars,
)
from recto.book.sources.includes import Includes
from recto.book.sources.options import (
    BookFile,
    SiteOptions,
    UnreadableSite,
    check_url,
    chosen_names,
    is_inside,
    read_config,
    read_logo,
    repository_of,
)
from recto.errors import ConfigurationError, InvalidArgument

CONFIG_FILES = tuple(f"docusaurus.config.{suffix}" for suffix in ("js", "ts", "mjs", "cjs", "mts", "cts"))
_DEFAULT_ID = "default"
_CURRENT = "current"
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
_PLUGIN = "docusaurus-plugin-content-docs"


class _Locale(NamedTuple):
    """A locale of the site: where it is published, and the directory of its translations, if there is one."""

    name: str
    published: Published
    translations: Path | None


class DocusaurusSite(Generator):
    """A Docusaurus site in some of its versions and locales, by default in one version and one locale.

    The paths of pages in another version or locale than the first one begin with its name.
    """

    generator = "docusaurus"
    config_files = CONFIG_FILES
    options = ("version", "locale", "route_base_path")

    def __init__(self, config_file: Path, book_file: BookFile, book: str) -> None:
        self.directory = config_file.parent
        self._options = book_file.options
        self._book_file = book_file
        self._book = book
        self._config = DocusaurusConfig(config_file, self._options)
        self.title, self.logo = self._config.title(), self._config.logo()
        self._docs = self._config.docs()
        if not self._docs:
            raise UnreadableSite(f"{config_file.name}: the site has no docs")
        self._versions = {
            docs.id: _read_versions(self._config, self.directory, docs, self._options.version)
            for docs in self._docs
        }
        self._chosen = self._chosen_versions()
        self._locales = self._chosen_locales()
        self._is_single = len(self._locales) == 1 and all(len(one) == 1 for one in self._chosen.values())
        self.locales = [one.name for one in self._locales] if len(self._locales) > 1 else []
        current: dict[str, bool] = {}
        for id, chosen in self._chosen.items():
            labels = [self._versions[id].label(name) for name in chosen]
            current |= {one: current.get(one, False) or one == labels[0] for one in labels if one}
        self.versions = [] if all(current.values()) else list(current.items())

    @property
    def notes(self) -> list[str]:  # type: ignore[override]
        """What Recto had to assume."""
        return list(dict.fromkeys(self._config.notes))

    def directories(self, path: Path) -> list[PageDirectory]:
        """Return the directories of pages: all of the site, or the one that holds `path`, limited to it."""
        if path == self.directory:
            directories = [
                self._page_directory(docs, version, locale)
                for locale in self._locales
                for docs in self._docs
                for version in self._chosen[docs.id]
                if locale is self._locales[0] or self._translated(docs, version, locale)
            ]
        elif not self._is_single:
            raise InvalidArgument(
                "Several versions or locales can be read only from the directory of the site",
                hint=f"Pass {self.directory}.",
            )
        else:
            directories = [directory for docs in self._docs for directory in self._holding(docs, path)][:1]
        there = [directory for directory in directories if directory.root.is_dir()]
        for directory in directories:
            if directory not in there:
                self._config.notes.append(
                    f"There is no directory {self._relative(directory.root)}; its docs are left out."
                )
        return there or directories[:1]

    def _holding(self, docs: Docs, path: Path) -> list[PageDirectory]:
        """Return the docs directory that holds a path, in its own version or in the one asked for."""
        chosen = self._chosen[docs.id][0]
        for version in self._versions[docs.id].routes:
            directory = self._page_directory(docs, version, self._locales[0])
            root = directory.root.resolve()
            if not path.is_relative_to(root):
                continue
            below = path.relative_to(root).as_posix().removeprefix(".")
            if self._options.version and version != chosen:
                if below:
                    raise InvalidArgument(
                        f"{path} belongs to version {version}, not {chosen}", hint="Leave out --docs-version."
                    )
                return [self._page_directory(docs, chosen, self._locales[0])]
            if version != chosen:
                self._config.notes.append(
                    f"{self._relative(root)} is version {version}, but the site's default is version "
                    f"{chosen}. Pass the site's directory to read that one."
                )
            return [replace(directory, below=below)]
        return []

    def _page_directory(self, docs: Docs, version: str, locale: _Locale) -> PageDirectory:
        own = "" if docs.id == _DEFAULT_ID else f"{docs.id}_"
        bounds = self._config.bounds
        stated = docs.path if version == _CURRENT else f"{own}versioned_docs/version-{version}"
        root = (self.directory / stated).resolve()
        if not is_inside(root, bounds):
            raise UnreadableSite(f"{self._config.file.name}: the docs are outside the repository: {stated}")
        translated, versions = self._translated(docs, version, locale), self._versions[docs.id]
        first, *others = self._locales
        untranslated = ((one.name, self._translated(docs, version, one)) for one in others)
        published = replace(
            locale.published,
            route=join(locale.published.base, docs.route, versions.routes[version]),
            version=versions.label(version),
            others=(tuple(untranslated) if locale is first else ()) if others else None,
        )
        folders = (root,) if translated is None else (translated, root)
        sidebar = self._sidebar(docs, version, own)
        names = (locale.name if locale is not first else "", version)
        edition = "".join(f"@{name}/" for name in names if name not in ("", self._chosen[docs.id][0]))
        book_file = replace(self._book_file, edition="" if self._is_single else edition)
        rules = DocsRules(self._book, book_file, docs, published, folders, bounds, sidebar)
        return PageDirectory(
            root,
            rules,
            bounds,
            prefix=book_file.edition + self._prefix(docs),
            translated=translated,
            only_translated=locale is not first,
            includes=Includes(DocusaurusIncludes(self.directory), bounds),
        )

    def _translated(self, docs: Docs, version: str, locale: _Locale) -> Path | None:
        """Return the directory with the translations of a version, if there may be any."""
        if locale.translations is None:
            return None
        plugin = _PLUGIN if docs.id == _DEFAULT_ID else f"{_PLUGIN}-{docs.id}"
        below = _CURRENT if version == _CURRENT else f"version-{version}"
        translated = (locale.translations / plugin / below).resolve()
        if is_inside(translated, self._config.bounds):
            return translated
        self._config.notes.append(
            f"The translations in {plugin}/{below} are outside the repository; they are left out."
        )
        return None

    def _sidebar(self, docs: Docs, version: str, own: str) -> list[SidebarItem]:
        """Read the sidebars of a version; return nothing if there are none or they cannot be read."""
        stated = get(docs.options, "sidebarPath")
        written = re.search(r"['\"]([^'\"]+)['\"]", stated.source) if isinstance(stated, Unknown) else None
        path = stated if isinstance(stated, str) else written[1] if written else ""
        if version != _CURRENT:
            path = f"{own}versioned_sidebars/version-{version}-sidebars.json"
        file = self.directory / path
        if not path or not file.is_file():
            return []
        items = read_sidebars(file, self._config.bounds)
        if items is None:
            self._config.notes.append(
                f"{file.name} cannot be read without running it; pages are in the order of their file names."
            )
        return items or []

    def _relative(self, folder: Path) -> str:
        inside = folder.is_relative_to(self.directory)
        return folder.relative_to(self.directory).as_posix() if inside else str(folder)

    def _prefix(self, docs: Docs) -> str:
        """Return what page names begin with: nothing for the main docs, the path for other instances."""
        main = next((other for other in self._docs if other.id == _DEFAULT_ID), self._docs[0])
        if docs is main:
            return ""
        name = docs.path.replace("../", "").strip("./") or docs.id
        taken = (self.directory / main.path / name).exists()
        return f"@{docs.id}/" if taken else f"{name}/"

    def _chosen_versions(self) -> dict[str, list[str]]:
        """Return the versions to read of each instance of the docs plugin, the current one first.

        If several are asked for, other instances than the first are also read in their current version.
        """
        names = list(dict.fromkeys(name for versions in self._versions.values() for name in versions.routes))
        asked = chosen_names(self._options.version, "version", names, "")
        chosen = {}
        for docs in self._docs:
            versions = self._versions[docs.id]
            own = [one for one in asked if one in versions.routes]
            if len(asked) > 1 and docs is not self._docs[0] and versions.last not in own:
                own.append(versions.last)
            own.sort(key=lambda one: one != versions.last)
            chosen[docs.id] = own or [versions.last]
            if self._options.version and not own:
                self._config.notes.append(
                    f"The docs in {docs.path} have no version {', '.join(asked)}; "
                    f"version {versions.last} is read."
                )
        return chosen

    def _chosen_locales(self) -> list[_Locale]:
        """Return the locales to read, the site's default first."""
        config = self._config
        default, folder = get(config.root, "i18n", "defaultLocale"), get(config.root, "i18n", "path")
        first = default if isinstance(default, str) else ENGLISH
        files = self.directory / (folder if isinstance(folder, str) else "i18n")
        names = self._locale_names(get(config.root, "i18n", "locales"), files, first)
        locales = []
        for name in chosen_names(self._options.locale, "locale", names, first):
            own = get(config.root, "i18n", "localeConfigs", name)
            url, base = self._address(own, "" if name == first else name)
            path = get(own, "path")
            translated = files / (path if isinstance(path, str) else name)
            has_own = get(own, "translate") is not False and translated.is_dir()
            slash = self._options.trailing_slash
            if slash is None and url:
                slash = config.switch(get(config.root, "trailingSlash"), "trailingSlash")
            shown = name if len(names) > 1 or name != ENGLISH else ""
            published = Published(url, base, shown, slash, config.markdown_format())
            locales.append(_Locale(name, published, translated if has_own else None))
        return locales

    def _locale_names(self, locales: Any, files: Path, first: str) -> list[str]:
        listed = locales if isinstance(locales, list) else [locales]
        if not any(isinstance(name, Unknown) for name in listed):
            return list(self._config.texts(locales, "i18n.locales") or (first,))
        there = [folder.name for folder in files.iterdir() if folder.is_dir()] if files.is_dir() else []
        return list(dict.fromkeys([first, *sorted(there)]))

    def _address(self, own: Any, segment: str) -> tuple[str, str]:
        """Return the URL of a language, by its own configuration, and its base path."""
        config = self._config
        if self._options.url:
            parts = urlsplit(self._options.url)
            url, base = f"{parts.scheme}://{parts.netloc}", parts.path
        else:
            stated = config.text(get(own, "url"), "url") or config.text(get(config.root, "url"), "url")
            url = check_url(stated.rstrip("/"), f"{config.file.name}: url")
            base = config.text(get(config.root, "baseUrl"), "baseUrl") if url else ""
        localized = config.text(get(own, "baseUrl"), "baseUrl") if url else ""
        return url, join("/", localized, "/") if localized else join("/", base, segment, "/")


class DocusaurusConfig:
    """A site's configuration; a value that cannot be evaluated is an error that names the flag for it."""

    def __init__(self, file: Path, options: SiteOptions) -> None:
        self.file = file
        self.notes: list[str] = []
        self._options = options
        self.bounds = repository_of(file.parent)
        text, load = read_config(file, self.bounds), partial(_load, file.parent.resolve())
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
            self._note_unread("markdown.format", stated, "pages are read as MDX")
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
            chosen = next((docs for docs in instances if docs.id == _DEFAULT_ID), instances[0])
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

    def _note_unread(self, key: str, value: Unknown, instead: str) -> None:
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
            self._note_unread("numberPrefixParser", numbers, "the usual one is used")
        return Docs(
            id=self.text(get(options, "id"), "docs.id") or _DEFAULT_ID,
            path=(self.text(get(options, "path"), "docs.path") or "docs").strip("/").removeprefix("./"),
            route=self.text("docs" if route is None else route, "docs.routeBasePath"),
            include=self.texts(get(options, "include"), "docs.include") or _INCLUDE,
            exclude=_EXCLUDE
            if (stated := self.texts(get(options, "exclude"), "docs.exclude")) is None
            else stated,
            numbered=numbers is not False,
            options=options,
        )


def _load(directory: Path, path: str) -> str:
    """Return the text of a file in a directory; raise LookupError if it cannot be read."""
    try:
        return read_config(directory / path, directory)
    except (OSError, ValueError, UnreadableSite) as error:
        raise LookupError(path) from error


@dataclass(frozen=True, slots=True)
class _Versions:
    """The versions of docs: the parts of the URL that name them, and the one that readers see first."""

    routes: Mapping[str, str]
    last: str

    def label(self, name: str) -> str:
        """Return the version of pages; "" if the docs are not versioned."""
        return name if len(self.routes) > 1 or name != _CURRENT else ""


def _read_versions(config: DocusaurusConfig, site: Path, docs: Docs, asked: str) -> _Versions:
    """Read the versions of an instance of the docs plugin."""
    options = docs.options
    released = _released(site, docs, config.bounds)
    if released and config.switch(get(options, "disableVersioning"), "docs.disableVersioning"):
        released = []
    current = config.switch(get(options, "includeCurrentVersion"), "docs.includeCurrentVersion") is not False
    names = released if _CURRENT in released or not current else [_CURRENT, *released]
    if not names:
        raise ConfigurationError(
            f"The docs in {docs.path} have no version",
            hint="Set includeCurrentVersion, or add to versions.json.",
        )
    only, last = get(options, "onlyIncludeVersions"), get(options, "lastVersion")
    if asked or len(names) == 1:  # then a value that cannot be read is not needed
        only, last = (None if isinstance(value, Unknown) else value for value in (only, last))
    included = config.texts(only, "docs.onlyIncludeVersions")
    names = [name for name in names if included is None or name in included] or names
    stated = config.text(last, "docs.lastVersion") if len(names) > 1 else ""
    if stated and stated not in names:
        raise ConfigurationError(
            f"{config.file.name}: docs.lastVersion is {stated}, which does not exist",
            hint=f"There are: {', '.join(names)}.",
        )
    last = stated or next((name for name in names if name != _CURRENT), _CURRENT)
    routes = {name: "" if name == last else "next" if name == _CURRENT else name for name in names}
    for name in names:
        if (path := get(options, "versions", name, "path")) is not None:
            routes[name] = config.text(path, f"docs.versions.{name}.path")
    return _Versions(routes, last)


def _released(site: Path, docs: Docs, bounds: Path) -> list[str]:
    """Return the versions that `versions.json` lists; each must be a plain directory name."""
    file = site / ("versions.json" if docs.id == _DEFAULT_ID else f"{docs.id}_versions.json")
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
