"""A Docusaurus site: which versions and locales are read, their directories, and their URLs.

`config.py` reads the configuration, `pages.py` has the rules of one directory, and `javascript.py` evaluates
configurations without running them.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from recto._util.languages import ENGLISH
from recto._util.text import plural
from recto.book.sources.directory import Generator, PageDirectory
from recto.book.sources.docusaurus.config import (
    CONFIG_FILES,
    DEFAULT_ID,
    DocusaurusConfig,
    with_versions,
)
from recto.book.sources.docusaurus.javascript import Unknown, get
from recto.book.sources.docusaurus.pages import (
    CURRENT_VERSION,
    Docs,
    DocsRules,
    DocusaurusIncludes,
    Published,
    SidebarItem,
    find_magic_comments,
    join,
    read_sidebars,
)
from recto.book.sources.includes import Directive, Includes, in_order
from recto.book.sources.options import (
    BookFile,
    UnreadableSite,
    check_url,
    chosen_names,
    is_inside,
    resolved_path,
)
from recto.errors import InvalidArgument

_PLUGIN = "docusaurus-plugin-content-docs"


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
        version = self._options.version
        self._docs = [with_versions(self._config, docs, version) for docs in self._config.docs()]
        if not self._docs:
            raise UnreadableSite(f"{config_file.name}: the site has no docs")
        self._chosen = self._chosen_versions()
        self._locales = self._chosen_locales()
        self._is_single = len(self._locales) == 1 and all(len(names) == 1 for names in self._chosen.values())
        self.locales = [locale.name for locale in self._locales] if len(self._locales) > 1 else []
        current: dict[str, bool] = {}
        for docs in self._docs:
            labels = [docs.label(name) for name in self._chosen[docs.id]]
            current |= {label: current.get(label, False) or label == labels[0] for label in labels if label}
        self.versions = [] if all(current.values()) else list(current.items())
        if posts := self._config.posts():
            self._config.notes.append(f"Left out: {plural(posts, 'post')} of the blog.")

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
        for version in docs.versions:
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

    def _page_directory(self, docs: Docs, version: str, locale: Published) -> PageDirectory:
        instance = "" if docs.id == DEFAULT_ID else f"{docs.id}_"
        bounds = self._config.bounds
        stated = docs.path if version == CURRENT_VERSION else f"{instance}versioned_docs/version-{version}"
        root = resolved_path(self.directory / stated)
        if not is_inside(root, bounds):
            raise UnreadableSite(f"{self._config.file.name}: the docs are outside the repository: {stated}")
        translated = self._translated(docs, version, locale)
        first, *others = self._locales
        untranslated = ((other.name, self._translated(docs, version, other)) for other in others)
        published = replace(
            locale,
            route=join(locale.base, docs.route, docs.versions[version]),
            version=docs.label(version),
            others=(tuple(untranslated) if locale is first else ()) if others else None,
        )
        folders = (root,) if translated is None else (translated, root)
        sidebar = self._sidebar(docs, version, instance)
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
            includes=Includes(self._find, bounds),
        )

    def _find(self, text: str, file: Path) -> list[Directive]:
        """Find included files, and comments that readers do not see."""
        return in_order([*find_magic_comments(text), *DocusaurusIncludes(self.directory)(text, file)])

    def _translated(self, docs: Docs, version: str, locale: Published) -> Path | None:
        """Return the directory with the translations of a version, if there may be any."""
        if locale.translations is None:
            return None
        plugin = _PLUGIN if docs.id == DEFAULT_ID else f"{_PLUGIN}-{docs.id}"
        below = CURRENT_VERSION if version == CURRENT_VERSION else f"version-{version}"
        translated = resolved_path(locale.translations / plugin / below)
        if is_inside(translated, self._config.bounds):
            return translated
        self._config.notes.append(
            f"The translations in {plugin}/{below} are outside the repository; they are left out."
        )
        return None

    def _sidebar(self, docs: Docs, version: str, instance: str) -> list[SidebarItem]:
        """Read the sidebars of a version; return nothing if there are none or they cannot be read."""
        stated = get(docs.options, "sidebarPath")
        written = re.search(r"['\"]([^'\"]+)['\"]", stated.source) if isinstance(stated, Unknown) else None
        path = stated if isinstance(stated, str) else written[1] if written else ""
        if version != CURRENT_VERSION:
            path = f"{instance}versioned_sidebars/version-{version}-sidebars.json"
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

    def _chosen_versions(self) -> dict[str, list[str]]:
        """Return the versions to read of each instance of the docs plugin, the current one first.

        If several are asked for, other instances than the first are also read in their current version.
        """
        names = list(dict.fromkeys(name for docs in self._docs for name in docs.versions))
        requested = chosen_names(self._options.version, "version", names, "")
        chosen = {}
        for docs in self._docs:
            selected = [name for name in requested if name in docs.versions]
            if len(requested) > 1 and docs is not self._docs[0] and docs.last not in selected:
                selected.append(docs.last)
            chosen[docs.id] = sorted(selected or [docs.last], key=docs.last.__ne__)
            if self._options.version and not selected:
                self._config.notes.append(
                    f"The docs in {docs.path} have no version {', '.join(requested)}; "
                    f"version {docs.last} is read."
                )
        return chosen

    def _chosen_locales(self) -> list[Published]:
        """Return the locales to read, the site's default first."""
        config = self._config
        default, folder = get(config.root, "i18n", "defaultLocale"), get(config.root, "i18n", "path")
        first = default if isinstance(default, str) else ENGLISH
        files = self.directory / (folder if isinstance(folder, str) else "i18n")
        names = self._locale_names(get(config.root, "i18n", "locales"), files, first)
        locales = []
        for name in chosen_names(self._options.locale, "locale", names, first):
            locale_config = get(config.root, "i18n", "localeConfigs", name)
            if isinstance(locale_config, Unknown):
                instead = "the site's own language and address are used"
                config.note_unread("i18n", locale_config, instead)
                locale_config = None
            url, base = self._address(locale_config, "" if name == first else name)
            path = get(locale_config, "path")
            translated = files / (path if isinstance(path, str) else name)
            has_translations = get(locale_config, "translate") is not False and translated.is_dir()
            slash = self._options.trailing_slash
            if slash is None and url:
                slash = config.switch(get(config.root, "trailingSlash"), "trailingSlash")
            label = name if len(names) > 1 or name != ENGLISH else ""
            translations = translated if has_translations else None
            published = Published(name, translations, url, base, label, slash, config.markdown_format())
            locales.append(published)
        return locales

    def _locale_names(self, locales: Any, files: Path, first: str) -> list[str]:
        listed = locales if isinstance(locales, list) else [locales]
        if not any(isinstance(name, Unknown) for name in listed):
            return list(self._config.texts(locales, "i18n.locales") or (first,))
        there = [folder.name for folder in files.iterdir() if folder.is_dir()] if files.is_dir() else []
        return list(dict.fromkeys([first, *sorted(there)]))

    def _address(self, locale_config: Any, segment: str) -> tuple[str, str]:
        """Return the URL and the base path of a locale; what it states itself comes first."""
        config = self._config
        if self._options.url:
            parts = urlsplit(self._options.url)
            url, base = f"{parts.scheme}://{parts.netloc}", parts.path
        else:
            stated = config.text(get(locale_config, "url"), "url") or config.text(
                get(config.root, "url"), "url"
            )
            url = check_url(stated.rstrip("/"), f"{config.file.name}: url")
            base = config.text(get(config.root, "baseUrl"), "baseUrl") if url else ""
        localized = config.text(get(locale_config, "baseUrl"), "baseUrl") if url else ""
        return url, join("/", localized, "/") if localized else join("/", base, segment, "/")
