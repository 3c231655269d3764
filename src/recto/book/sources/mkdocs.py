"""A MkDocs site: its pages, their URLs, and the titles in its navigation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urljoin

from recto.book.parsing.formats import MARKDOWN
from recto.book.parsing.frontmatter import PAGE_RELATIVE, load_yaml
from recto.book.sources.directory import (
    Navigation,
    PageDirectory,
    SiteRules,
    Skipped,
    SourceFile,
    any_of,
    by_navigation,
    ignored,
    is_file,
)
from recto.book.sources.includes import (
    BRACES,
    SNIPPETS,
    TAGS,
    VARIANTS,
    Includes,
    MkDocsIncludes,
)
from recto.book.sources.options import (
    PLAIN,
    BookFile,
    UnreadableSite,
    check_url,
    is_inside,
    read_config,
    read_logo,
    repository_of,
)
from recto.types.book import Page

CONFIG_FILES = ("mkdocs.yml", "mkdocs.yaml")
_ALWAYS_IGNORED = (".*", "/templates/")
_MOST_PARENTS = 10
_DEEPEST = 50
_INCLUDING = {
    BRACES: ("markdown_include.include", "markdown_include", "mdx_include"),
    VARIANTS: ("markdown_include_variants",),
    SNIPPETS: ("pymdownx.snippets",),
}


class MkDocsSite(SiteRules):
    """A MkDocs site; it is also the rules of its one directory."""

    def __init__(self, config_file: Path, book_file: BookFile, book: str) -> None:
        super().__init__(book, book_file)
        self.directory = config_file.parent
        self.notes: list[str] = []
        self._bounds = repository_of(self.directory)
        self._config = config = _load(config_file, self._bounds)
        self.root = (self.directory / (_text(config, "docs_dir") or "docs")).resolve()
        self.title = _text(config, "site_name")
        theme = config.get("theme")
        images = [_text(theme, key) for key in ("logo", "favicon")] if isinstance(theme, dict) else []
        self.logo = read_logo((self.root / image.lstrip("/") for image in images if image), self._bounds)
        options = book_file.options
        url = options.url or check_url(_text(config, "site_url"), f"{config_file.name}: site_url")
        self._url = url if url.endswith("/") or not url else f"{url}/"
        self._directory_urls = options.trailing_slash
        if self._directory_urls is None:
            self._directory_urls = config.get("use_directory_urls") is not False
        self._ignored = ignored((*_ALWAYS_IGNORED, *_text(config, "exclude_docs").splitlines()))
        self._drafts = ignored(_text(config, "draft_docs").splitlines())
        self._excluded = any_of(book_file.exclude)
        self._titles: dict[str, str] = {}
        self._sections: dict[str, tuple[str, ...]] = {}
        for name, title, sections in _nav_entries(config.get("nav"), ()):
            self._titles |= {name: title} if title else {}
            self._sections.setdefault(name, sections)

    def directories(self, path: Path) -> list[PageDirectory]:
        """Return the directory of the pages, limited to `path`; nothing if `path` is elsewhere."""
        if path != self.directory and not path.is_relative_to(self.root):
            return []
        below = "" if path == self.directory else path.relative_to(self.root).as_posix().removeprefix(".")
        if not is_inside(self.root, self._bounds):
            raise UnreadableSite(f"docs_dir is outside the repository: {self.root}", hint=PLAIN)
        return [PageDirectory(self.root, self, self._bounds, below, includes=self._includes())]

    def _includes(self) -> Includes:
        """Return the includes, with the directories that the site's extensions and plugins search."""
        extensions, plugins = _options(self._config, "markdown_extensions"), _options(self._config, "plugins")
        bases: dict[str, tuple[Path | None, ...]] = {}
        for syntax, names in _INCLUDING.items():
            if used := [extensions[name] for name in names if name in extensions]:
                paths = [path for options in used for path in _texts(options.get("base_path"))]
                bases[syntax] = tuple(map(self._base, paths))
        if "include-markdown" in plugins:
            bases[TAGS] = (self.root,)
        elif "macros" in plugins:
            bases[TAGS] = tuple(map(self._base, _texts(plugins["macros"].get("include_dir"))))
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
        if not name.endswith(MARKDOWN.suffixes) or self._ignored(name) or self._excluded(name):
            return False
        folder, slash, file = name.rpartition("/")
        index = f"{folder}{slash}index.md"
        return file != "README.md" or not is_file(self.root / index) or self._ignored(index)

    def page(self, file: SourceFile) -> Page | Skipped:
        """Make the page of a file."""
        if self._drafts(file.name):
            return Skipped("draft")
        url = urljoin(self._url, self._relative(file.name)) if self._url else ""
        title = self._titles.get(file.name, "")
        return self.make_page(file, url, MARKDOWN.name, title=title, anchors="python-markdown")

    def navigation(self, names: Sequence[str]) -> Navigation:
        """Order pages as `nav` does; pages that it does not list come last."""
        return Navigation(by_navigation(names, self._sections), self._sections)

    def _relative(self, name: str) -> str:
        """Return the URL of a page relative to the site's URL."""
        folder, slash, file = name.rpartition("/")
        stem = file.rpartition(".")[0]
        stem = "index" if stem == "README" else stem
        if not self._directory_urls:
            return quote(f"{folder}{slash}{stem}.html")
        return quote(f"{folder}{slash}" if stem == "index" else f"{folder}{slash}{stem}/")


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
