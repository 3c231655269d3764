"""A MkDocs site: its pages, their URLs, and the titles in its navigation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urljoin

from recto.book.parsing.formats import MARKDOWN
from recto.book.parsing.frontmatter import PAGE_RELATIVE, load_yaml
from recto.book.sources.directory import PageDirectory, Skipped, SourceFile, bounds_of, is_file
from recto.book.sources.globs import any_of, ignored
from recto.book.sources.includes import (
    BRACES,
    SNIPPETS,
    TAGS,
    VARIANTS,
    Includes,
    MkDocsIncludes,
    repository_of,
)
from recto.book.sources.navigation import Navigation, by_navigation
from recto.book.sources.options import BookFile, UnreadableSite, check_url, local_url, page_modules, title_of
from recto.types import Page

CONFIG_FILES = ("mkdocs.yml", "mkdocs.yaml")
_ALWAYS_IGNORED = (".*", "/templates/")
_LARGEST = 1 << 20  # bytes; far more than any configuration has
_MOST_PARENTS = 10
_DEEPEST = 50
_INCLUDING = {
    BRACES: ("markdown_include.include", "markdown_include", "mdx_include"),
    VARIANTS: ("markdown_include_variants",),
    SNIPPETS: ("pymdownx.snippets",),
}


class MkDocsSite:
    """A MkDocs site; it is also the rules of its one directory."""

    def __init__(self, config_file: Path, book_file: BookFile, book: str) -> None:
        self.directory = config_file.parent
        self._book_file = book_file
        self._book = book
        self._config = _load(config_file, self.directory.resolve())
        options = book_file.options
        url = options.url or check_url(_text(self._config, "site_url"), f"{config_file.name}: site_url")
        self._url = url if url.endswith("/") or not url else f"{url}/"
        self._directory_urls = self._config.get("use_directory_urls") is not False
        if options.trailing_slash is not None:
            self._directory_urls = options.trailing_slash
        self._ignored = ignored((*_ALWAYS_IGNORED, *_text(self._config, "exclude_docs").splitlines()))
        self._drafts = ignored(_text(self._config, "draft_docs").splitlines())
        self._left_out = any_of(book_file.exclude)
        nav = list(_nav_entries(self._config.get("nav"), ()))
        self._titles = {name: title for name, title, _ in nav if title}
        self._sections = {name: sections for name, _, sections in reversed(nav)}
        self._sections = {name: self._sections[name] for name in dict.fromkeys(name for name, _, _ in nav)}
        self.notes: list[str] = []

    @property
    def root(self) -> Path:
        """The directory of the pages."""
        return (self.directory / (_text(self._config, "docs_dir") or "docs")).resolve()

    def directories(self, path: Path) -> list[PageDirectory]:
        """Return the directory of the pages, limited to `path`; nothing if `path` is elsewhere."""
        if path != self.directory and not path.is_relative_to(self.root):
            return []
        below = "" if path == self.directory else path.relative_to(self.root).as_posix().removeprefix(".")
        bounds = bounds_of(self.directory, self.root)
        if bounds is None:
            raise UnreadableSite(
                f"docs_dir is outside the project: {self.root}",
                hint="Give the directory of the pages itself.",
            )
        return [PageDirectory(self.root, self, below, bounds=bounds, includes=self._includes())]

    def _includes(self) -> Includes:
        """Return the includes, with the directories that the site's extensions and plugins search."""
        extensions, plugins = _options(self._config, "markdown_extensions"), _options(self._config, "plugins")
        bases: dict[str, tuple[Path | None, ...]] = {}
        for syntax, names in _INCLUDING.items():
            if used := [extensions[name] for name in names if name in extensions]:
                bases[syntax] = tuple(
                    self._base(path) for options in used for path in _texts(options.get("base_path"))
                )
        if "include-markdown" in plugins:
            bases[TAGS] = (self.root,)
        elif "macros" in plugins:
            bases[TAGS] = tuple(self._base(path) for path in _texts(plugins["macros"].get("include_dir")))
        repository = repository_of(self.directory)
        return Includes(MkDocsIncludes((self.directory, self.root, repository), bases), repository, self.root)

    def _base(self, path: str) -> Path | None:
        if path == PAGE_RELATIVE:
            return None
        place = self.directory / path.replace("$config_dir", str(self.directory)).replace(
            "$docs_dir", str(self.root)
        )
        return place.parent if is_file(place) else place

    def enters(self, folder: str) -> bool:
        """Return whether a directory may hold pages."""
        return not folder.rpartition("/")[2].startswith(".") and folder != "templates"

    def wants(self, name: str) -> bool:
        """Return whether a file is a page."""
        if not name.endswith(MARKDOWN.suffixes) or self._ignored(name) or self._left_out(name):
            return False
        folder, _, file = name.rpartition("/")
        # MkDocs publishes index.md if both exist.
        return not (
            file == "README.md"
            and is_file(self.root / folder / "index.md")
            and not self._ignored(f"{folder}/index.md".lstrip("/"))
        )

    def page(self, written: SourceFile) -> Page | Skipped:
        """Make the page of a file."""
        if self._drafts(written.name):
            return Skipped("draft")
        keys = page_modules(written.path, self._book_file)
        return Page(
            path=written.path,
            url=urljoin(self._url, self._relative(written.name)) if self._url else local_url(written.path),
            title=self._titles.get(written.name) or title_of(written.name, self._book),
            module=keys[0],
            module_keys=keys,
            text=written.text,
            revision=written.revision,
            format=MARKDOWN.name,
            anchors="python-markdown",
            lines=written.lines,
        )

    def module(self, path: str) -> str:
        """Return the module of a page by its path in the book."""
        return page_modules(path, self._book_file)[0]

    def navigation(self, names: Sequence[str]) -> Navigation:
        """Order pages as `nav` does; pages that it does not list come last."""
        return Navigation(by_navigation(names, self._sections), self._sections)

    def _relative(self, name: str) -> str:
        """Return the URL of a page relative to that of the site."""
        folder, _, file = name.rpartition("/")
        stem = file.rpartition(".")[0]
        stem = "index" if stem == "README" else stem
        parts = [folder] if folder else []
        if not self._directory_urls:
            return quote("/".join([*parts, f"{stem}.html"]))
        parts += [] if stem == "index" else [stem]
        return quote("/".join([*parts, ""])) if parts else ""


def _load(file: Path, bounds: Path, depth: int = 0) -> dict[str, Any]:
    """Load a configuration and those that it inherits from in its directory."""
    try:
        if file.stat().st_size > _LARGEST:
            raise UnreadableSite(
                f"{file.name} is larger than {_LARGEST >> 20} MiB",
                hint="Give the directory of the pages itself.",
            )
        values = load_yaml(file.read_bytes().decode("utf-8"))
    except (OSError, ValueError) as error:
        raise UnreadableSite(
            f"{file.name} cannot be read: {str(error)[:200]}",
            hint="Repair it, or give the directory of the pages itself.",
        ) from error
    parent = values.pop("INHERIT", None)
    if not isinstance(parent, str):
        return values
    source = (file.parent / parent).resolve()
    if not source.is_relative_to(bounds) or not source.is_file() or depth >= _MOST_PARENTS:
        raise UnreadableSite(
            f"{file.name}: INHERIT names {parent}, which is not a file in {bounds.name}",
            hint="Give --site-url and the pages' directory.",
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


def _nav_entries(nav: Any, sections: tuple[str, ...]) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield each file of the navigation, its title, and the titles of the sections above it."""
    if len(sections) > _DEEPEST:
        return
    if isinstance(nav, str):
        yield nav.removeprefix("./"), "", sections
    elif isinstance(nav, list):
        for item in nav:
            yield from _nav_entries(item, sections)
    elif isinstance(nav, dict):
        for title, target in nav.items():
            if isinstance(target, str):
                yield target.removeprefix("./"), str(title), sections
            else:
                yield from _nav_entries(target, (*sections, str(title)))
