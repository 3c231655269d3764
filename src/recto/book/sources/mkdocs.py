"""A MkDocs site: its pages, their URLs, the titles in its navigation, and the files that pages include."""

from __future__ import annotations

import re
import textwrap
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote, urljoin

from recto.book.parsing.formats import MARKDOWN, NOTEBOOK
from recto.book.parsing.frontmatter import PAGE_RELATIVE, load_yaml
from recto.book.sources.directory import (
    Generator,
    Navigation,
    PageDirectory,
    SiteRules,
    any_of,
    ignored,
    is_file,
)
from recto.book.sources.includes import (
    Directive,
    Includes,
    InCode,
    Select,
    code_ranges,
    in_order,
    line_end,
    line_start,
    select_lines,
    whole_line,
)
from recto.book.sources.options import (
    PLAIN,
    BookFile,
    UnreadableSite,
    check_url,
    chosen_names,
    is_inside,
    read_config,
    read_logo,
    repository_of,
    title_of,
)
from recto.types.book import Page

CONFIG_FILES = ("mkdocs.yml", "mkdocs.yaml")
_ALWAYS_IGNORED = (".*", "/templates/")
_MOST_PARENTS = 10
_DEEPEST = 50
_BRACES, _VARIANTS, _SNIPPETS, _TAGS = "{!", "{*", "8<-", "{%"
_INCLUDING = {
    _BRACES: ("markdown_include.include", "markdown_include", "mdx_include"),
    _VARIANTS: ("markdown_include_variants",),
    _SNIPPETS: ("pymdownx.snippets",),
}


class MkDocsSite(Generator, SiteRules):
    """A MkDocs site; it is also the rules of its one directory.

    With the plugin mkdocs-static-i18n, each locale that is read has its own copy of the rules.
    """

    generator = "mkdocs"
    config_files: ClassVar[tuple[str, ...]] = CONFIG_FILES
    options: tuple[str, ...] = ("locale", "locales")

    def __init__(self, config_file: Path, book_file: BookFile, book: str) -> None:
        SiteRules.__init__(self, book, book_file)
        self.directory = config_file.parent
        self.notes: list[str] = []
        self._bounds = repository_of(self.directory)
        self._config = config = self.load(config_file, self._bounds)
        self.root = (self.directory / (_text(config, "docs_dir") or "docs")).resolve()
        self.title = _text(config, "site_name")
        theme = config.get("theme")
        images = [_text(theme, key) for key in ("logo", "favicon")] if isinstance(theme, dict) else []
        self.logo = read_logo((self.root / image.lstrip("/") for image in images if image), self._bounds)
        self.files_of = self.locale = (
            _text(theme, "language") or _text(theme, "locale") if isinstance(theme, dict) else ""
        )
        options = book_file.options
        url = options.url or check_url(_text(config, "site_url"), f"{config_file.name}: site_url")
        self._url = url if url.endswith("/") or not url else f"{url}/"
        self._directory_urls = options.trailing_slash
        if self._directory_urls is None:
            self._directory_urls = config.get("use_directory_urls") is not False
        self._ignored = ignored((*_ALWAYS_IGNORED, *_text(config, "exclude_docs").splitlines()))
        self._drafts = ignored(_text(config, "draft_docs").splitlines())
        self._excluded = any_of(book_file.exclude)
        notebooks = NOTEBOOK.suffixes if "mkdocs-jupyter" in _options(config, "plugins") else ()
        self._suffixes = (*MARKDOWN.suffixes, *notebooks)
        self._titles: dict[str, str] = {}
        self._sections: dict[str, tuple[str, ...]] = {}
        for name, title, sections in _nav_entries(config.get("nav"), ()):
            self._titles |= {name: title} if title else {}
            self._sections.setdefault(name, sections)
        self._translations = _translations(config)
        if self._translations is None:
            self.options = ()
        else:
            names = self._translations.names
            chosen = chosen_names(options.locale, "locale", names, names[0])
            self.locale = chosen[0]
            self.locales = chosen if len(chosen) > 1 else []

    @staticmethod
    def load(config_file: Path, bounds: Path) -> dict[str, Any]:
        """Return the values of the configuration."""
        return _load(config_file, bounds)

    def directories(self, path: Path) -> list[PageDirectory]:
        """Return the directory of the pages, limited to `path`; nothing if `path` is elsewhere."""
        if path != self.directory and not path.is_relative_to(self.root):
            return []
        below = "" if path == self.directory else path.relative_to(self.root).as_posix().removeprefix(".")
        if not is_inside(self.root, self._bounds):
            raise UnreadableSite(f"docs_dir is outside the repository: {self.root}", hint=PLAIN)
        locales = self.locales or [self.locale]
        if self._translations and below and not self.book_file.options.locale:
            locales = [self._translations.split(below)[0]]
        editions = [self._edition(locale, locale) for locale in locales]
        if self._translations and self._translations.has_fallback:
            default = self._translations.names[0]
            editions += [self._edition(locales[0], default)] if default not in locales else []
        return [
            PageDirectory(self.root, one, self._bounds, below, includes=self._includes()) for one in editions
        ]

    def _edition(self, locale: str, files_of: str) -> MkDocsSite:
        """Return the rules of a locale for the files of the same or of the default locale."""
        if self._translations is None:
            return self
        own = copy(self)
        own.locale, own.files_of = locale, files_of
        edition = f"{files_of}/" if self._translations.by_folder else ""
        own.book_file = replace(self.book_file, edition=edition)
        return own

    def _includes(self) -> Includes:
        """Return the includes, with the directories that the site's extensions and plugins search."""
        extensions, plugins = _options(self._config, "markdown_extensions"), _options(self._config, "plugins")
        bases: dict[str, tuple[Path | None, ...]] = {}
        for syntax, names in _INCLUDING.items():
            if used := [extensions[name] for name in names if name in extensions]:
                paths = [path for options in used for path in _texts(options.get("base_path"))]
                bases[syntax] = tuple(map(self._base, paths))
        if "include-markdown" in plugins:
            bases[_TAGS] = (self.root,)
        elif "macros" in plugins:
            bases[_TAGS] = tuple(map(self._base, _texts(plugins["macros"].get("include_dir"))))
        return Includes(MkDocsIncludes((self.directory, self.root, self._bounds), bases), self._bounds)

    def _base(self, path: str) -> Path | None:
        if path == PAGE_RELATIVE:
            return None
        path = path.replace("$config_dir", str(self.directory)).replace("$docs_dir", str(self.root))
        base = self.directory / path
        return base.parent if is_file(base) else base

    def enters(self, folder: str) -> bool:
        """Return whether a directory may hold pages."""
        return not folder.rpartition("/")[2].startswith(".") and folder != "templates"

    def wants(self, name: str) -> bool:
        """Return whether a file is a page; index.md is published instead of README.md if both exist."""
        if not name.endswith(self._suffixes) or self._ignored(name) or self._excluded(name):
            return False
        if self._translations and not self._is_read(name, self._translations):
            return False
        folder, slash, file = name.rpartition("/")
        index = f"{folder}{slash}index.md"
        return file != "README.md" or not is_file(self.root / index) or self._ignored(index)

    def page(self, name: str, page: Page) -> Page | str:
        """Complete the page of a file."""
        if self._drafts(name):
            return "draft"
        plain, base, locales = name, "", self._locales_of(name)
        if self._translations:
            plain = self._translations.split(name)[1]
            base = "" if self.locale == self._translations.names[0] else f"{self.locale}/"
        url = urljoin(self._url, base + self._relative(plain)) if self._url else page.url
        title = self._titles.get(plain) or (page.title if plain == name else title_of(plain, self.book))
        format = NOTEBOOK if name.endswith(NOTEBOOK.suffixes) else MARKDOWN
        page = replace(page, url=url, title=title, locale=self.locale, locales=locales)
        return replace(page, format=format.name, anchors="python-markdown")

    def navigation(self, names: Sequence[str]) -> Navigation:
        """Order pages as `nav` does; pages that it does not list come last."""
        if self._translations is None:
            return Navigation(names, self._sections)
        files = {self._translations.split(name)[1]: name for name in names}
        return Navigation(names, {files.get(name, name): above for name, above in self._sections.items()})

    def _is_read(self, name: str, translations: _Translations) -> bool:
        """Return whether a file is a page of this locale, by itself or because it is not translated."""
        locale, plain = translations.split(name)
        is_replaced = name != translations.file(plain, locale) and self._has(plain, locale)
        is_own = self.files_of == self.locale or not self._has(plain, self.locale)
        return locale == self.files_of and is_own and not is_replaced

    def _locales_of(self, name: str) -> tuple[str, ...]:
        """Return the locales whose readers see a page, if several are read."""
        if not self.locales or not self._translations:
            return ()
        plain = self._translations.split(name)[1]
        others = (
            self.locales[1:] if self._translations.has_fallback and self.locale == self.locales[0] else ()
        )
        return self.locale, *(locale for locale in others if not self._has(plain, locale))

    def _has(self, plain: str, locale: str) -> bool:
        return self._translations is not None and is_file(self.root / self._translations.file(plain, locale))

    def _relative(self, name: str) -> str:
        """Return the URL of a page relative to the site's URL."""
        folder, slash, file = name.rpartition("/")
        stem = file.rpartition(".")[0]
        stem = "index" if stem == "README" else stem
        if not self._directory_urls:
            return quote(f"{folder}{slash}{stem}.html")
        return quote(f"{folder}{slash}" if stem == "index" else f"{folder}{slash}{stem}/")


@dataclass(frozen=True, slots=True)
class _Translations:
    """The locales of the plugin mkdocs-static-i18n, the default one first.

    A locale has a directory, or its files have its name before their suffix: `index.de.md`.
    """

    names: tuple[str, ...]
    unpublished: tuple[str, ...]
    by_folder: bool
    has_fallback: bool

    def split(self, name: str) -> tuple[str, str]:
        """Return the locale of a file, and its name without the locale."""
        if self.by_folder:
            locale, _, plain = name.partition("/")
        else:
            stem, _, suffix = name.rpartition(".")
            plain, _, locale = stem.rpartition(".")
            plain = f"{plain}.{suffix}"
        is_locale = locale in (*self.names, *self.unpublished)
        return (locale, plain) if is_locale else (self.names[0], name)

    def file(self, plain: str, locale: str) -> str:
        """Return the name of the file of a page in a locale."""
        stem, _, suffix = plain.rpartition(".")
        return f"{locale}/{plain}" if self.by_folder else f"{stem}.{locale}.{suffix}"


def _translations(config: dict[str, Any]) -> _Translations | None:
    """Return the locales that a site is published in, if it has the plugin."""
    options = _options(config, "plugins").get("i18n", {})
    languages, stated = options.get("languages"), options.get("default_language")
    if isinstance(languages, dict):  # before version 1 of the plugin
        languages = [{"locale": name, "default": name == stated} for name in languages]
    listed = [one for one in (languages if isinstance(languages, list) else []) if isinstance(one, dict)]
    listed = sorted(listed, key=lambda one: one.get("default") is not True)
    names = [one["locale"] for one in listed if isinstance(one.get("locale"), str)]
    unpublished = tuple(one["locale"] for one in listed if one.get("build") is False and "locale" in one)
    built = tuple(name for name in names if name not in unpublished)
    by_folder, fallback = options.get("docs_structure") == "folder", options.get("fallback_to_default")
    return _Translations(built, unpublished, by_folder, fallback is not False) if built else None


class ZensicalSite(MkDocsSite):
    """A Zensical site, whose settings are the same as of MkDocs, but in TOML."""

    generator = "zensical"
    config_files = ("zensical.toml",)

    @staticmethod
    def load(config_file: Path, bounds: Path) -> dict[str, Any]:
        """Return the values of the configuration."""
        try:
            project = tomllib.loads(read_config(config_file, bounds)).get("project")
        except ValueError as error:
            reason = str(error)[:200]
            raise UnreadableSite(f"{config_file.name} cannot be read: {reason}", hint=PLAIN) from error
        return project if isinstance(project, dict) else {}


def _load(file: Path, bounds: Path, depth: int = 0) -> dict[str, Any]:
    """Load a configuration and those that it inherits from in its directory."""
    try:
        values = load_yaml(read_config(file, bounds))
    except ValueError as error:
        raise UnreadableSite(f"{file.name} cannot be read: {str(error)[:200]}", hint=PLAIN) from error
    parent = values.pop("INHERIT", None)
    if not isinstance(parent, str):
        return values
    source = (file.parent / parent).resolve()
    if not source.is_relative_to(bounds) or not source.is_file() or depth >= _MOST_PARENTS:
        raise UnreadableSite(
            f"{file.name}: INHERIT names {parent}, which is not a file in {bounds.name}",
            hint="Pass --site-url and the directory of the pages.",
        )
    return {**_load(source, bounds, depth + 1), **values}


def _text(config: dict[str, Any], key: str) -> str:
    value = config.get(key)
    return value if isinstance(value, str) else ""


def _texts(value: Any) -> list[str]:
    """Return a string or a list of strings as a list."""
    values = value if isinstance(value, list) else [value]
    return [item for item in values if isinstance(item, str)]


def _options(config: dict[str, Any], key: str) -> dict[str, dict[str, Any]]:
    """Return the extensions or plugins with their options; MkDocs accepts a list or a mapping."""
    value = config.get(key)
    items = [value] if isinstance(value, dict) else value if isinstance(value, list) else []
    pairs = [pair for item in items for pair in (item.items() if isinstance(item, dict) else [(item, None)])]
    return {str(name): options if isinstance(options, dict) else {} for name, options in pairs}


def _nav_entries(
    nav: Any, sections: tuple[str, ...], title: str = ""
) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield each file of the navigation, its title, and the titles of the sections above it."""
    if len(sections) > _DEEPEST:
        return
    if isinstance(nav, str):
        yield nav.removeprefix("./"), title, sections
    elif isinstance(nav, list):
        for item in nav:
            yield from _nav_entries(item, sections)
    elif isinstance(nav, dict):
        for name, target in nav.items():
            below = sections if isinstance(target, str) else (*sections, str(name))
            yield from _nav_entries(target, below, str(name))


_BRACED = re.compile(
    r"(?<![\\`])\{![+-]?>?(?P<path>[^\]\[|!{}\n]++)(?:\[ln:(?P<slice>[^\]\n]*+)\])?[ \t]*+(?:\|[^!{}\n]*+)?"
    r"!(?:lines=(?P<lines>[0-9 -]+))?\}"
)
_VARIANT = re.compile(
    r"^(?P<prefix>[ \t>]*)\{\*[ \t]*(?P<path>[^\s*{}]++)(?P<options>[^\n{}]*)\*\}[ \t]*$", re.MULTILINE
)
_LN = re.compile(r"\bln\[([^\]]*)\]")
_SNIPPET = re.compile(
    r"^(?P<prefix>[ \t>]*)(?P<escape>;*)-+8<-+"
    r"(?:[ \t]+(?:\"(?P<double>[^\"\n]+)\"|'(?P<single>[^'\n]+)'))?[ \t]*$",
    re.MULTILINE,
)
_SECTION = re.compile(
    r"(?P<escape>;?)-{1,40}8<-+[ \t]+\[[ \t]*"
    r"(?P<type>start|end)[ \t]*:[ \t]*(?P<name>[A-Za-z][\w-]*)[ \t]*\]",
    re.IGNORECASE,
)
_LISTED = re.compile(r"^(?P<prefix>[ \t>]*+)(?:;.*\n|(?P<path>[^\s;].*)$)", re.MULTILINE)
_SNIPPET_PART = re.compile(r"(?P<path>.*?)(?P<part>(?::-?\d*){1,2}(?:,-?\d*(?::-?\d*)?)*|:[A-Za-z][\w-]*)?")
_TAG = re.compile(
    r"(?<!`)\{%-?\s*include(?:-markdown)?\s+(?:\"(?P<double>[^\"\n]+)\"|'(?P<single>[^'\n]+)')"
    r"(?P<options>(?:[^%]|%(?!\})){0,500})%\}"
)
_MARKER = r"\b{}=(?:\"((?:\\.|[^\"\\])*)\"|'((?:\\.|[^'\\])*)')"


@dataclass(frozen=True, slots=True)
class MkDocsIncludes:
    """Finds the directives of the include extensions and plugins of MkDocs.

    `bases` has the search directories of each syntax that the site turns on; None is the directory of the
    including file. `usual` is searched next. Directives of other syntaxes are resolved if their file
    exists; they count as unresolved only outside code, where they cannot be examples.
    """

    usual: tuple[Path, ...]
    bases: Mapping[str, tuple[Path | None, ...]] = field(default_factory=dict)

    def __call__(self, text: str, file: Path) -> Sequence[Directive]:
        """Return the directives of a text."""
        finders = {_BRACES: _braces, _VARIANTS: _variants, _SNIPPETS: _snippets, _TAGS: _tags}
        used = {syntax: find for syntax, find in finders.items() if syntax in text}
        in_code = code_ranges(text) if used else bool
        directives: list[Directive] = []
        for syntax, find in used.items():
            for directive in find(text, in_code, syntax in self.bases):
                near = (file.parent,) if syntax == _TAGS and directive.path.startswith(".") else ()
                own = (folder or file.parent for folder in self.bases.get(syntax, ()))
                bases = dict.fromkeys((*near, *own, *self.usual[:2], file.parent, *self.usual[2:]))
                counted = syntax in self.bases or not in_code(directive.start)
                directives.append(replace(directive, bases=tuple(bases), counted=counted))
        return in_order(directives)


def _braces(text: str, _: InCode, __: bool) -> Iterator[Directive]:
    """Find `{!file!}`."""
    for match in _BRACED.finditer(text):
        start, end, prefix = whole_line(text, *match.span())
        ranges = match["slice"] or (match["lines"] or "").replace(" ", ",")
        select = select_lines(ranges, "-") if ranges else None
        otherwise = "" if prefix is None else None
        path = match["path"].strip()
        yield Directive(start, end, path, select=select, prefix=prefix or "", otherwise=otherwise)


def _variants(text: str, in_code: InCode, _: bool) -> Iterator[Directive]:
    """Find `{* file ln[1:3] *}`, which makes a fence."""
    for match in _VARIANT.finditer(text):
        ranges = _LN.search(match["options"])
        select = select_lines(ranges[1], ":", gap="\n\n") if ranges and ranges[1].strip() != "0" else None
        code = None if in_code(match.start()) else ""
        prefix = match["prefix"]
        yield Directive(*match.span(), match["path"], select=select, code=code, prefix=prefix, nested=False)


def _snippets(text: str, in_code: InCode, turned_on: bool) -> Iterator[Directive]:
    """Find `--8<-- "file"`, lists of files between two marks, and the marks of sections."""

    def snippet(start: int, end: int, written: str, prefix: str) -> Directive:
        match = _SNIPPET_PART.fullmatch(written.strip())
        path, part = (match["path"], match["part"] or "") if match else (written, "")
        select = _section(part[1:]) if part[1:2].isalpha() else select_lines(part[1:], ":", open_end=True)
        return Directive(start, end, path.strip() or written, select=select if part else None, prefix=prefix)

    block = -1  # start of the list of files in the block form
    for mark in _SNIPPET.finditer(text):
        written = mark["double"] or mark["single"]
        if mark["escape"] or (written and block >= 0):
            continue
        if written:
            yield snippet(*mark.span(), written, mark["prefix"])
        elif turned_on or not in_code(mark.start()):
            yield Directive(mark.start(), min(mark.end() + 1, len(text)))
            for line in _LISTED.finditer(text, block, mark.start()) if block >= 0 else ():
                if line["path"]:
                    yield snippet(line.start(), line.end("path"), line["path"], line["prefix"])
                else:
                    yield Directive(*line.span())
            block = -1 if block >= 0 else mark.end()
    for mark in _SECTION.finditer(text):
        if not mark["escape"] and (turned_on or not in_code(mark.start())):
            after = min(line_end(text, mark.end()) + 1, len(text))
            yield Directive(line_start(text, mark.start()), after)


def _tags(text: str, in_code: InCode, turned_on: bool) -> Iterator[Directive]:
    """Find `{% include "file" %}`."""
    for tag in _TAG.finditer(text):
        start, end, prefix = whole_line(text, *tag.span())
        indented = (prefix or "").startswith((" " * 4, "\t"))
        if not turned_on and (in_code(tag.start()) or indented):
            continue  # code: most likely an example
        path, select = tag["double"] or tag["single"], _between(tag["options"])
        yield Directive(start, end, path, select=select, prefix=prefix or "", otherwise="")


def _section(name: str) -> Select:
    """Select the lines between the marks of a section."""

    def select(text: str) -> str | None:
        lines, inside = list[str](), False
        for line in text.split("\n"):
            mark = _SECTION.search(line)
            if not mark or mark["escape"]:
                lines += [line] if inside else []
            elif mark["name"] == name and mark["type"] == "end" and inside:
                break
            else:
                inside = inside or (mark["name"] == name and mark["type"] == "start")
        return textwrap.dedent("\n".join(lines)) if inside else None

    return select


def _between(options: str) -> Select | None:
    """Select the text between `start="…"` and `end="…"`; every occurrence if both are given."""
    start, end = (
        re.sub(r"\\(.)", lambda code: {"n": "\n", "t": "\t"}.get(code[1], code[1]), mark[1] or mark[2] or "")
        if (mark := re.search(_MARKER.format(name), options))
        else ""
        for name in ("start", "end")
    )
    if not start and not end:
        return None

    def select(text: str) -> str | None:
        if start not in text or end not in text:
            return None
        parts = text.split(start)[1:] if start and end else [text.partition(start)[2]] if start else [text]
        return "".join(part.partition(end)[0] for part in parts) if end else parts[0]

    return select
