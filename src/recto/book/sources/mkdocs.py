"""A MkDocs site: its pages, their URLs, the titles in its navigation, and the files that pages include."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

from recto.book.parsing import MARKDOWN, NOTEBOOK
from recto.book.parsing.frontmatter import PAGE_RELATIVE
from recto.book.sources.directory import Navigation, PageDirectory, ignored, is_file
from recto.book.sources.docusaurus.javascript import get
from recto.book.sources.includes import (
    Directive,
    Includes,
    InCode,
    Select,
    code_ranges,
    in_order,
    line_end,
    line_start,
    select_between,
    select_lines,
    select_region,
    whole_line,
)
from recto.book.sources.mkdocs_navigation import AwesomeNav, literate_entries, nav_entries, reading_order
from recto.book.sources.mkdocs_plugins import Blog, Translations, excluded, shortcodes, translations
from recto.book.sources.mkdocstrings import DocumentedCode
from recto.book.sources.options import (
    UnreadableSite,
    check_url,
    chosen_names,
    is_inside,
    resolved_path,
    title_of,
)
from recto.book.sources.site import Entry, Site, text_of, texts_of
from recto.types.book import Page

CONFIG_FILES = ("mkdocs.yml", "mkdocs.yaml", "properdocs.yml")
_ALWAYS_IGNORED = (".*", "/templates/")
_REDIRECT = "redirect.html"  # a template of Material and Zensical, which shows nothing of the page
_MOST_PARENTS = 10
_BRACES, _VARIANTS, _SNIPPETS, _TAGS = "{!", "{*", "8<-", "{%"
_DOCUMENTING = {"mkdocstrings", "mkautodoc", "mkdocs-click"}
_COMPUTING = {
    "api-autonav",
    "autoapi",
    "gen-files",
    "macros",
    "markdown-exec",
    "mkdocs-autoapi",
    "simple",
    "table-reader",
}
_MOST_SHOWN = 20
_INCLUDING = {
    _BRACES: ("markdown_include.include", "markdown_include", "mdx_include"),
    _VARIANTS: ("markdown_include_variants",),
    _SNIPPETS: ("pymdownx.snippets",),
}


class MkDocsSite(Site):
    """A MkDocs site.

    With the plugin mkdocs-static-i18n, each locale that is read has its own copy of the rules.
    """

    generator = "mkdocs"
    config_files: ClassVar[tuple[str, ...]] = CONFIG_FILES
    options: tuple[str, ...] = ("locale",)
    anchors = "python-markdown"
    _code: DocumentedCode | None = None

    def configure(self, config_file: Path) -> None:
        """Read the options, the navigation, and what the extensions and plugins include."""
        config = self.load(config_file)
        self.root = resolved_path(self.directory / (text_of(config, "docs_dir") or "docs"))
        self.title = text_of(config, "site_name")
        self.set_logo(text_of(config, "theme", "logo"), text_of(config, "theme", "favicon"))
        self.language = text_of(config, "theme", "language") or text_of(config, "theme", "locale")
        options = self.book_file.options
        stated = text_of(config, "site_url")
        self.url = options.url or check_url(stated, f"{config_file.name}: site_url")
        self._directory_urls = options.trailing_slash
        if self._directory_urls is None:
            self._directory_urls = config.get("use_directory_urls") is not False
        self._ignored = ignored((*_ALWAYS_IGNORED, *text_of(config, "exclude_docs").splitlines()))
        self._drafts = ignored(text_of(config, "draft_docs").splitlines())
        plugins = _options(config, "plugins")
        self.suffixes = (*MARKDOWN.suffixes, *(NOTEBOOK.suffixes if "mkdocs-jupyter" in plugins else ()))
        entries = nav_entries(config.get("nav"), ())
        if "literate-nav" in plugins:
            entries = literate_entries(entries, plugins["literate-nav"], self.root, self.bounds)
        self._list(entries)
        self._awesome = "" if self.sections else next(filter(plugins.__contains__, AwesomeNav.FILES), "")
        self._nav_file = text_of(plugins, self._awesome, "filename") or AwesomeNav.FILES.get(
            self._awesome, ""
        )
        self._dropped = excluded(plugins.get("exclude", {}))
        extensions = _options(config, "markdown_extensions")
        self._note_code([*texts_of(config.get("hooks")), *sorted(_COMPUTING & plugins.keys())])
        bases = self._bases(extensions, plugins)
        self._includes = MkDocsIncludes((self.directory, self.root, self.bounds), bases)
        self._blog = Blog(plugins["blog"]) if "blog" in plugins else None
        self._published: dict[str, str] = {}
        if not _DOCUMENTING.isdisjoint({*plugins, *extensions}):
            watched = (*texts_of(config.get("watch")), *texts_of(get(plugins, "mkdocstrings", "watch")))
            self._code = self._documented(get(plugins, "mkdocstrings", "handlers", "python"), watched)
        self._translations = translations(plugins.get("i18n", {}))
        if self._translations is None:
            self.options = ()
        else:
            names = self._translations.names
            chosen = chosen_names(options.locale, "locale", names, names[0])
            self.language = chosen[0]
            self.locales = chosen if len(chosen) > 1 else []
        self.files_of = self.language

    def _note_code(self, names: Sequence[str]) -> None:
        """Say which code of the site may change or make pages; Recto does not run it."""
        if names:
            listed = ", ".join(names[:_MOST_SHOWN])
            self.notes.append(f"Hooks and plugins are not run, so what these write is missing: {listed}.")

    def _list(self, entries: Iterable[Entry]) -> None:
        """Take over the order and the titles of a navigation."""
        for name, title, sections in entries:
            self.titles |= {name: title} if title else {}
            self.sections.setdefault(name, sections)

    def _load_folder(self, folder: str) -> dict[str, Any]:
        """Return what a directory states about its navigation."""
        file = self.root / folder / self._nav_file
        return self.read_yaml(file) if is_file(file) else {}

    def load(self, config_file: Path, depth: int = 0) -> dict[str, Any]:
        """Load a configuration and those that it inherits from in the repository."""
        values = self.read_yaml(config_file)
        parent = values.pop("INHERIT", None)
        if not isinstance(parent, str):
            return values
        source = resolved_path(config_file.parent / parent)
        if not source.is_relative_to(self.bounds) or not source.is_file() or depth >= _MOST_PARENTS:
            raise UnreadableSite(
                f"{config_file.name}: INHERIT names {parent}, which is not a file in {self.bounds.name}",
                hint="Pass --site-url and the directory of the pages.",
            )
        return _merged(self.load(source, depth + 1), values)

    def _bases(
        self, extensions: dict[str, dict[str, Any]], plugins: dict[str, dict[str, Any]]
    ) -> dict[str, tuple[Path | None, ...]]:
        """Return the directories that the site's extensions and plugins search for included files."""
        bases: dict[str, tuple[Path | None, ...]] = {}
        for syntax, names in _INCLUDING.items():
            if used := [extensions[name] for name in names if name in extensions]:
                paths = [path for options in used for path in texts_of(options.get("base_path"))]
                bases[syntax] = tuple(map(self._base, paths))
        if "include-markdown" in plugins:
            bases[_TAGS] = (self.root,)
        elif "macros" in plugins:
            bases[_TAGS] = tuple(map(self._base, texts_of(plugins["macros"].get("include_dir"))))
        return bases

    def _documented(self, handler: Any, watched: Iterable[str]) -> DocumentedCode:
        """Return the code that pages may document: in stated or usual directories, or beside watched ones."""
        above = (self.directory, *self.directory.parents)
        usual = [folder / name for folder in above for name in ("", "src")]
        stated = [self.directory / path for path in texts_of(get(handler, "paths"))]
        beside = [self.directory / path / ".." for path in watched]
        every = map(resolved_path, (*stated, *usual, *beside))
        roots = [folder for folder in every if is_inside(folder, self.bounds)]
        options = get(handler, "options")
        return DocumentedCode(roots, self.bounds, options if isinstance(options, dict) else {})

    def _base(self, path: str) -> Path | None:
        if path == PAGE_RELATIVE:
            return None
        path = path.replace("$config_dir", str(self.directory)).replace("$docs_dir", str(self.root))
        base = self.directory / path
        return base.parent if is_file(base) else base

    def directories(self, path: Path) -> list[PageDirectory]:
        """Return the directory of the pages, once for each locale that is read."""
        directories = super().directories(path)
        if self._translations is None or not directories:
            return directories
        below, default = directories[0].below, self._translations.names[0]
        locales = list(self.locales) or [self.language]
        if below and not self.book_file.options.locale:
            locales = [self._translations.split(below)[0]]
        editions = [self._edition(locale, locale, self._translations) for locale in locales]
        if self._translations.has_fallback and default not in locales:
            editions.append(self._edition(locales[0], default, self._translations))
        return [
            PageDirectory(self.root, edition, self.bounds, below, includes=Includes(self.find, self.bounds))
            for edition in editions
        ]

    def _edition(self, locale: str, files_of: str, translations: Translations) -> MkDocsSite:
        """Return the rules of a locale for the files of the same or of the default locale."""
        rules = copy(self)
        rules.language, rules.files_of = locale, files_of
        edition = f"{files_of}/" if translations.by_folder else ""
        rules.book_file = replace(self.book_file, edition=edition)
        return rules

    def find(self, text: str, file: Path) -> Sequence[Directive]:
        """Find included files and documented code."""
        included = self._includes(text, file)
        documented = self._code.directives(text) if self._code and ":::" in text else ()
        return in_order([*included, *documented, *shortcodes(text)])

    def enters(self, folder: str) -> bool:
        """Return whether a directory may hold pages."""
        return not folder.rpartition("/")[2].startswith(".") and folder != "templates"

    def wants(self, name: str) -> bool:
        """Return whether a file is a page; index.md is published instead of README.md if both exist."""
        if not name.endswith(self.suffixes):
            return False
        if self._ignored(name) or self._excluded(name) or self._dropped(name):
            return False
        if self._translations and not self._is_read(name, self._translations):
            return False
        folder, slash, file = name.rpartition("/")
        index = f"{folder}{slash}index.md"
        return file != "README.md" or not self.exists(index) or self._ignored(index)

    def reason_to_skip(self, name: str, head: dict[str, Any]) -> str:
        """Return whether the configuration lists a page as a draft, or its theme sends readers elsewhere."""
        if head.get("template") == _REDIRECT:
            return "redirect"
        return "draft" if self._drafts(name) or (self._blog and self._blog.is_draft(name, head)) else ""

    def page(self, name: str, page: Page) -> Page | str:
        """Complete the page of a file, with the language of the theme."""
        if self._blog:
            self._published[name] = self._blog.published(name, page.text)
        if self._translations:
            plain = self._translations.split(name)[1]
            title = self.titles.get(plain) or (page.title if plain == name else title_of(plain, self.book))
            page = replace(page, title=title, locales=self._locales_of(plain, self._translations))
        return super().page(name, replace(page, locale=self.language))

    def navigation(self, names: Sequence[str]) -> Navigation:
        """Order pages as `nav` does, in which they are without their locale."""
        names = sorted(names, key=reading_order)
        names = self._blog.ordered(names, self.head) if self._blog else names
        if self._awesome:
            order = "asc" if self._awesome == "awesome-nav" else ""
            self._list(AwesomeNav(names, self._load_folder, order).entries())
        if self._translations is None:
            return super().navigation(names)
        files = {self._translations.split(name)[1]: name for name in names}
        return Navigation(names, {files.get(name, name): above for name, above in self.sections.items()})

    def _is_read(self, name: str, translations: Translations) -> bool:
        """Return whether a file is a page of this locale, by itself or because it is not translated."""
        locale, plain = translations.split(name)
        file, translated = translations.file(plain, locale), translations.file(plain, self.language)
        is_own = self.files_of == self.language or not self.exists(translated)
        return locale == self.files_of and is_own and (name == file or not self.exists(file))

    def _locales_of(self, plain: str, translations: Translations) -> tuple[str, ...]:
        """Return the locales whose readers see a page, if several are read."""
        if not self.locales:
            return ()
        others = self.locales[1:] if translations.has_fallback and self.language == self.locales[0] else ()
        return self.language, *(
            locale for locale in others if not self.exists(translations.file(plain, locale))
        )

    def address(self, name: str, head: dict[str, Any]) -> str:  # noqa: ARG002
        """Return the address of a page: a directory, or a file without `use_directory_urls`."""
        name = self._published.get(name, name)
        if self._translations:
            is_default = self.language == self._translations.names[0]
            name = self._translations.split(name)[1]
            name = name if is_default else f"{self.language}/{name}"
        folder, slash, file = name.rpartition("/")
        stem = file.rpartition(".")[0]
        stem = "index" if stem == "README" else stem
        if not self._directory_urls:
            return quote(f"{folder}{slash}{stem}.html")
        return quote(f"{folder}{slash}" if stem == "index" else f"{folder}{slash}{stem}/")


class ZensicalSite(MkDocsSite):
    """A Zensical site, whose settings are the same as of MkDocs, but in TOML."""

    generator = "zensical"
    config_files = ("zensical.toml",)

    def load(self, config_file: Path, depth: int = 0) -> dict[str, Any]:  # noqa: ARG002
        """Load the configuration."""
        project = self.read_toml(config_file).get("project")
        return project if isinstance(project, dict) else {}

    def page(self, name: str, page: Page) -> Page | str:
        """Complete the page of a file; without a heading, its title is its file name, not that of `nav`."""
        stem = Path(name).stem.replace("-", " ").replace("_", " ")
        self.titles[name] = stem[:1].upper() + stem[1:] if stem == stem.lower() else stem
        return super().page(name, page)


def _merged(base: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Merge two configurations; mappings in them are merged, too."""
    both = {key: (base[key], value) for key, value in values.items() if key in base}
    inner = {
        key: _merged(old, new)
        for key, (old, new) in both.items()
        if isinstance(old, dict) and isinstance(new, dict)
    }
    return {**base, **values, **inner}


def _options(config: dict[str, Any], key: str) -> dict[str, dict[str, Any]]:
    """Return the extensions or plugins with their options; MkDocs accepts a list or a mapping."""
    value = config.get(key)
    items = [value] if isinstance(value, dict) else value if isinstance(value, list) else []
    pairs = [pair for item in items for pair in (item.items() if isinstance(item, dict) else [(item, None)])]
    return {
        str(name).removeprefix("material/"): options if isinstance(options, dict) else {}
        for name, options in pairs
    }


_BRACED = re.compile(
    r"(?<![\\`])\{![+-]?>?(?P<path>[^\]\[|!{}\n]++)(?:\[ln:(?P<slice>[^\]\[{\n]*+)\])?[ \t]*+"
    r"(?:\|[^!{}\n]*+)?!(?:lines=(?P<lines>[0-9 -]+))?\}"
)
_VARIANT = re.compile(
    r"^(?P<prefix>[ \t>]*)\{\*[ \t]*(?P<path>[^\s*{}]++)(?P<options>[^\n{}]*)\*\}[ \t]*$", re.MULTILINE
)
_LN = re.compile(r"\bln\[([^\[\]]*+)\]")
_TITLE = re.compile(r"\btitle\[\"([^\[\]\"]*+)\"\]")
_NUMBER = re.compile(r"\d{1,9}")
_VERSION = re.compile(r"_py3(\d{1,2})(?=[_./])")
_SNIPPET = re.compile(
    r"^(?P<prefix>[ \t>]*)(?P<escape>;*)-+8<-+"
    r"(?:[ \t]+(?:\"(?P<double>[^\"\n]+)\"|'(?P<single>[^'\n]+)'))?[ \t]*$",
    re.MULTILINE,
)
_SECTION, _START, _END = (
    re.compile(
        rf"(?<![;-])-{{1,40}}8<-+[ \t]+\[[ \t]*(?:{kind})[ \t]*:[ \t]*(?P<name>[A-Za-z][\w-]*)[ \t]*\]",
        re.IGNORECASE,
    )
    for kind in ("start|end", "start", "end")
)
_LISTED = re.compile(r"^(?P<prefix>[ \t>]*+)(?:;.*\n|(?P<path>[^\s;].*)$)", re.MULTILINE)
_SNIPPET_PART = re.compile(
    r"(?P<path>.*?)(?P<part>(?::-?\d{0,9}+){1,2}(?:,-?\d{0,9}+(?::-?\d{0,9}+)?){0,50}|:[A-Za-z][\w-]{0,100})?"
)
_TAG = re.compile(
    r"(?<!`)\{%-?\s*+include(?:-markdown)?\s++(?:\"(?P<double>[^\"\n]+)\"|'(?P<single>[^'\n]+)')"
    r"(?P<options>(?:[^%]|%(?!\})){0,500}+)%\}"
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
                stated = (folder or file.parent for folder in self.bases.get(syntax, ()))
                bases = dict.fromkeys((*near, *stated, *self.usual[:2], file.parent, *self.usual[2:]))
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
        path, options, prefix = match["path"], match["options"], match["prefix"]
        ranges, title = _LN.search(options), _TITLE.search(options)
        select = _select_excerpt(ranges[1]) if ranges and ranges[1].strip() != "0" else None
        version = (_VERSION.findall(path) or ["8"])[-1]
        label = f"Python 3.{version}+ {title[1] if title else ''}".strip()
        code = None if in_code(match.start()) else f' title="{label}"' if path.endswith(".py") else ""
        yield Directive(*match.span(), path, select=select, code=code, prefix=prefix, nested=False)


def _select_excerpt(ranges: str) -> Select:
    """Select lines such as `1:3,5`, with the comments that the extension writes where others are left out."""
    select = select_lines(ranges, ":", gap="\n\n# Code here omitted 👈\n\n")
    numbers = [int(number) for number in _NUMBER.findall(ranges)] or [1]

    def excerpt(text: str) -> str | None:
        shown = select(text)
        above = "# Code above omitted 👆\n\n" * (numbers[0] > 1)
        below = "\n\n# Code below omitted 👇" * (numbers[-1] <= text.rstrip("\n").count("\n"))
        return f"{above}{shown}{below}" if shown else None

    return excerpt


def _snippets(text: str, in_code: InCode, turned_on: bool) -> Iterator[Directive]:
    """Find `--8<-- "file"`, lists of files between two marks, and the marks of sections."""

    def snippet(start: int, end: int, written: str, prefix: str) -> Directive:
        match = _SNIPPET_PART.fullmatch(written.strip())
        path, part = (match["path"], match["part"] or "") if match else (written, "")
        if part[1:2].isalpha():
            select = select_region(part[1:], _START, _END)
        else:
            select = select_lines(part[1:], ":", open_end=True)
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
        if turned_on or not in_code(mark.start()):
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


def _between(options: str) -> Select | None:
    """Select the text between `start="…"` and `end="…"`; every occurrence if both are given."""
    start, end = (
        re.sub(r"\\(.)", lambda code: {"n": "\n", "t": "\t"}.get(code[1], code[1]), mark[1] or mark[2] or "")
        if (mark := re.search(_MARKER.format(name), options))
        else ""
        for name in ("start", "end")
    )
    return select_between(start, end, every=True)
