"""A Docusaurus site: the directories of one version in one language, and their URLs."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from recto._util.text import nearest
from recto.book.sources.directory import PageDirectory
from recto.book.sources.docusaurus.config import (
    CONFIG_FILES,
    CURRENT,
    DEFAULT_ID,
    Docs,
    DocusaurusConfig,
    SidebarItem,
    read_sidebars,
    read_versions,
)
from recto.book.sources.docusaurus.javascript import Unknown, get
from recto.book.sources.docusaurus.pages import DocsRules, DocusaurusIncludes, Published, join
from recto.book.sources.includes import Includes
from recto.book.sources.options import PLAIN, BookFile, UnreadableSite, check_url, is_inside
from recto.errors import ConfigurationError, InvalidArgument

__all__ = ["CONFIG_FILES", "DocusaurusConfig", "DocusaurusSite"]

_PLUGIN = "docusaurus-plugin-content-docs"


class DocusaurusSite:
    """A Docusaurus site in one version and one language."""

    def __init__(self, config_file: Path, book_file: BookFile, book: str) -> None:
        self.directory = config_file.parent
        self._options = book_file.options
        self._book_file = book_file
        self._book = book
        self._config = DocusaurusConfig(config_file, self._options)
        self.title, self.logo = self._config.title(), self._config.logo()
        self._docs = self._config.docs()
        if not self._docs:
            raise UnreadableSite(f"{config_file.name}: the site has no docs", hint=PLAIN)
        self._versions = {
            docs.id: read_versions(self._config, self.directory, docs, self._options.version)
            for docs in self._docs
        }
        self._check_version()
        self._translations: Path | None = None
        self._published = self._chosen_locale()

    @property
    def notes(self) -> list[str]:
        """What Recto had to assume."""
        return list(dict.fromkeys(self._config.notes))

    def directories(self, path: Path) -> list[PageDirectory]:
        """Return the directories of pages: all of the site, or the one that holds `path`, limited to it."""
        if path == self.directory:
            directories = [self._page_directory(docs, self._versions[docs.id].chosen) for docs in self._docs]
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
        versions = self._versions[docs.id]
        for version in versions.routes:
            directory = self._page_directory(docs, version)
            root = directory.root.resolve()
            if not path.is_relative_to(root):
                continue
            below = path.relative_to(root).as_posix().removeprefix(".")
            if self._options.version and version != versions.chosen:
                if below:
                    raise InvalidArgument(
                        f"{path} belongs to version {version}, not {versions.chosen}",
                        hint="Leave out --docs-version.",
                    )
                return [self._page_directory(docs, versions.chosen)]
            if version != versions.chosen:
                self._config.notes.append(
                    f"{self._relative(root)} is version {version}, but the site's default is version "
                    f"{versions.chosen}. Pass the site's directory to read that one."
                )
            return [replace(directory, below=below)]
        return []

    def _page_directory(self, docs: Docs, version: str) -> PageDirectory:
        own = "" if docs.id == DEFAULT_ID else f"{docs.id}_"
        below = CURRENT if version == CURRENT else f"version-{version}"
        bounds = self._config.bounds
        stated = docs.path if version == CURRENT else f"{own}versioned_docs/{below}"
        root = (self.directory / stated).resolve()
        if not is_inside(root, bounds):
            raise UnreadableSite(
                f"{self._config.file.name}: the docs are outside the repository: {stated}", hint=PLAIN
            )
        translated = None
        if self._translations is not None:
            plugin = _PLUGIN if docs.id == DEFAULT_ID else f"{_PLUGIN}-{docs.id}"
            translated = (self._translations / plugin / below).resolve()
            if not is_inside(translated, bounds):
                self._config.notes.append(
                    f"The translations in {plugin}/{below} are outside the repository; they are left out."
                )
                translated = None
        versions = self._versions[docs.id]
        published = replace(
            self._published,
            route=join(self._published.base, docs.route, versions.routes[version]),
            version=version if len(versions.routes) > 1 or version != CURRENT else "",
        )
        folders = (root,) if translated is None else (translated, root)
        sidebar = self._sidebar(docs, version, own)
        rules = DocsRules(self._book, self._book_file, docs, published, folders, bounds, sidebar)
        includes = Includes(DocusaurusIncludes(self.directory), bounds)
        return PageDirectory(
            root, rules, bounds, prefix=self._prefix(docs), translated=translated, includes=includes
        )

    def _sidebar(self, docs: Docs, version: str, own: str) -> list[SidebarItem]:
        """Read the sidebars of a version; return nothing if there are none or they cannot be read."""
        stated = get(docs.options, "sidebarPath")
        written = re.search(r"['\"]([^'\"]+)['\"]", stated.source) if isinstance(stated, Unknown) else None
        path = stated if isinstance(stated, str) else written[1] if written else ""
        if version != CURRENT:
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
        main = next((other for other in self._docs if other.id == DEFAULT_ID), self._docs[0])
        if docs is main:
            return ""
        name = docs.path.replace("../", "").strip("./") or docs.id
        taken = (self.directory / main.path / name).exists()
        return f"@{docs.id}/" if taken else f"{name}/"

    def _check_version(self) -> None:
        asked = self._options.version
        if not asked:
            return
        names = list(dict.fromkeys(name for versions in self._versions.values() for name in versions.routes))
        if asked not in names:
            raise _unknown_choice(f"There is no version {asked} of these docs", asked, names)
        for docs in self._docs:
            if asked not in self._versions[docs.id].routes:
                chosen = self._versions[docs.id].chosen
                self._config.notes.append(
                    f"The docs in {docs.path} have no version {asked}; version {chosen} is read."
                )

    def _chosen_locale(self) -> Published:
        config = self._config
        default, folder = get(config.root, "i18n", "defaultLocale"), get(config.root, "i18n", "path")
        first = default if isinstance(default, str) else "en"
        files = self.directory / (folder if isinstance(folder, str) else "i18n")
        names = self._locale_names(get(config.root, "i18n", "locales"), files, first)
        asked = self._options.locale or first
        if self._options.locale and asked not in names:
            raise _unknown_choice(f"There is no locale {asked} of this site", asked, names)
        own = get(config.root, "i18n", "localeConfigs", asked)
        url, base = self._address(own, "" if asked == first else asked)
        path = get(own, "path")
        translated = files / (path if isinstance(path, str) else asked)
        if get(own, "translate") is not False and translated.is_dir():
            self._translations = translated
        slash = self._options.trailing_slash
        if slash is None and url:
            slash = config.switch(get(config.root, "trailingSlash"), "trailingSlash")
        return Published(url, base, asked if len(names) > 1 else "", slash, config.markdown_format())

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


def _unknown_choice(message: str, asked: str, names: list[str]) -> ConfigurationError:
    guess = nearest(asked, names)
    hint = f"Did you mean {guess}? " if guess else ""
    return ConfigurationError(message, hint=f"{hint}The site has: {', '.join(names)}.")
