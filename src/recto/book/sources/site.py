"""A site with one directory of pages: what most generators of sites have in common."""

from __future__ import annotations

import json
import tomllib
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote, urljoin

from recto._util.text import slug
from recto.book.parsing import MARKDOWN, MDX, Format, format_of
from recto.book.parsing.frontmatter import load_yaml, split_front_matter
from recto.book.sources.directory import Generator, Navigation, PageDirectory, SiteRules, any_of
from recto.book.sources.docusaurus.javascript import get, read_exported
from recto.book.sources.includes import Directive, Includes
from recto.book.sources.options import (
    BookFile,
    UnreadableSite,
    check_url,
    is_inside,
    local_parts,
    read_config,
    read_import,
    read_logo,
    read_start,
    repository_of,
    resolved_path,
    unknown_choice,
)
from recto.types.book import AnchorStyle, Page

Entry = tuple[str, str, tuple[str, ...]]
"""A page of a navigation: its file or address, its title ("" if it has none), the sections above it."""

_LARGEST_HEAD = 1 << 16  # characters of front matter whose aliases are written out


class Site(Generator, SiteRules):
    """A site and the rules of its one directory; a generator overrides what it does in its own way.

    `configure` reads the configuration and sets `root`, `url`, `title` and the navigation. It may set
    `only_listed` if the navigation lists all pages, `left_out` to globs of files that are not pages, and the
    directories of languages with `choose_locale`.
    """

    suffixes: tuple[str, ...] = (*MARKDOWN.suffixes, *MDX.suffixes)
    only_listed = False
    left_out: Sequence[str] = ()
    locale = ""
    other_locales: tuple[str, ...] = ()
    anchors: AnchorStyle = "github"
    markdown: ClassVar[Format] = MARKDOWN

    def __init__(self, config_file: Path, book_file: BookFile, book: str) -> None:
        SiteRules.__init__(self, book, book_file)
        self.directory = self.root = self.folder_of(config_file)
        self.bounds = repository_of(self.directory)
        self.notes: list[str] = []
        self.title = self.logo = self.url = ""
        self.titles: dict[str, str] = {}
        self.sections: dict[str, tuple[str, ...]] = {}
        self._excluded = any_of(book_file.exclude)
        self._heads: dict[str, dict[str, Any]] = {}
        self.configure(config_file)
        self._left_out = any_of(self.left_out)
        self.root = resolved_path(self.root)
        url = book_file.options.url or check_url(self.url if "://" in self.url else "", config_file.name)
        self.url = url if url.endswith("/") or not url else f"{url}/"

    @classmethod
    def folder_of(cls, config_file: Path) -> Path:
        """Return the directory of the site, which may be above the directory of its configuration."""
        return config_file.parent

    @abstractmethod
    def configure(self, config_file: Path) -> None:
        """Read the configuration."""

    def address(self, name: str, head: dict[str, Any]) -> str:  # noqa: ARG002
        """Return the address of a page relative to the address of the site."""
        return "/".join(local_parts(name))

    def format_of(self, name: str) -> Format | None:
        """Return the format of a file by its suffix; None if the file cannot be a page."""
        format = format_of(name)
        return self.markdown if format is MARKDOWN else format

    def reason_to_skip(self, name: str, head: dict[str, Any]) -> str:  # noqa: ARG002
        """Return why a page is not published, or ""."""
        return "draft" if head.get("draft") is True else ""

    def find(self, text: str, file: Path) -> Iterable[Directive]:  # noqa: ARG002
        """Return the included files and the markup that Recto resolves before it parses a page."""
        return ()

    def directories(self, path: Path) -> list[PageDirectory]:
        """Return the directory of the pages, limited to `path`; nothing if `path` is elsewhere."""
        if path != self.directory and not path.is_relative_to(self.root):
            return []
        inside = path.is_relative_to(self.root)
        below = path.relative_to(self.root).as_posix().removeprefix(".") if inside else ""
        if not is_inside(self.root, self.bounds):
            raise UnreadableSite(f"The pages are outside the repository: {self.root}")
        includes = Includes(self.find, self.bounds)
        return [PageDirectory(self.root, self, self.bounds, below, includes=includes)]

    def enters(self, folder: str) -> bool:
        """Return whether a directory may hold pages."""
        hidden = folder.rpartition("/")[2].startswith((".", "node_modules"))
        return not (hidden or self._left_out(folder) or f"{folder}/".startswith(self.other_locales))

    def wants(self, name: str) -> bool:
        """Return whether a file is a page."""
        if name.rpartition("/")[2].startswith(".") or not name.startswith(self.locale):
            return False
        if self.only_listed and name not in self.sections:
            return False
        is_page = name.lower().endswith(self.suffixes) and self.format_of(name) is not None
        return is_page and not self._excluded(name) and not self._left_out(name)

    def is_unlisted(self, name: str) -> bool:
        """Return whether a file would be a page if the navigation listed it; a README would not."""
        file = name.rpartition("/")[2]
        if not self.only_listed or name in self.sections or file.startswith(("_", ".")):
            return False
        is_page = file.lower().endswith(self.suffixes) and not file.partition(".")[0].isupper()
        return is_page and not self._excluded(name) and not self._left_out(name)

    def page(self, name: str, page: Page) -> Page | str:
        """Complete the page of a file."""
        head = split_front_matter(page.text)[0]
        if reason := self.reason_to_skip(name, head):
            return reason
        format = self.format_of(name) or self.markdown
        title = self.titles.get(name) or page.title
        page = replace(page, title=title, format=format.name, anchors=self.anchors)
        return self.publish(page, self.address(name, head)) if self.url else page

    def publish(self, page: Page, address: str) -> Page:
        """Return a page with its published URL."""
        return replace(page, url=urljoin(self.url, quote(address, safe="/#?&=%~+,;:@!$'()*")))

    def navigation(self, names: Sequence[str]) -> Navigation:
        """Order pages as the navigation does; pages that it does not list come last."""
        return Navigation(names, self.sections)

    def list_pages(self, entries: Iterable[Entry]) -> None:
        """Set the navigation, and the modules that it states."""
        for target, title, sections in entries:
            if (name := self.file_of(target)) is None:
                continue
            self.titles |= {name: title} if title and name not in self.titles else {}
            self.sections.setdefault(name, sections)
        self.book_file = replace(self.book_file, pages=_flat_modules(self.sections))

    def file_of(self, target: str) -> str | None:
        """Return the name of the page that the navigation lists, if there is one."""
        return target if self.exists(target) else None

    def head(self, name: str) -> dict[str, Any]:
        """Return the front matter of a file; {} if it has none."""
        if name not in self._heads:
            self._heads[name] = self.read_head(read_start(self.root / name, self.bounds))
        return self._heads[name]

    def read_head(self, text: str) -> dict[str, Any]:
        """Return the front matter of a text."""
        return split_front_matter(text)[0]

    def exists(self, name: str) -> bool:
        """Return whether there is a page of this name."""
        try:
            return bool(name) and (self.root / name).is_file()
        except (OSError, ValueError):
            return False

    def choose_locale(self, locales: Any, default: str = "root") -> None:
        """Set the directory of the language to read: the stated one, else the default; "" is the root."""
        names = list(locales) if isinstance(locales, dict) else []
        stated = self.book_file.options.locale
        if stated and stated not in names and not (self.root / stated).is_dir():
            raise unknown_choice(f"There is no locale {stated} of this site", stated, names)
        chosen = stated or default
        folders = [entry.name for entry in self.root.iterdir()] if self.root.is_dir() else []
        written = {folder.lower(): folder for folder in folders}  # `zh-CN` is the directory of `zh-cn`
        directory = {name: f"{written.get(name.lower(), name)}/" for name in (*names, chosen)}
        self.locale = directory[chosen] if chosen != "root" and (stated or chosen in names) else ""
        self.other_locales = tuple(directory[name] for name in names if name not in ("root", chosen))

    def set_logo(self, *images: Any) -> None:
        """Set the logo to the first of these files that is a small image."""
        names = [image.lstrip("/") for image in images if isinstance(image, str) and image]
        folders = (self.directory, self.root)
        self.logo = read_logo((folder / name for name in names for folder in folders), self.bounds)

    def read_toml(self, file: Path) -> dict[str, Any]:
        """Load a TOML file of the site."""
        return dict(self._load(file, tomllib.loads))

    def read_yaml(self, file: Path) -> dict[str, Any]:
        """Load a YAML file of the site."""
        return dict(self._load(file, load_yaml))

    def read_javascript(self, file: Path) -> dict[str, Any]:
        """Evaluate a JavaScript configuration without running it; {} if that is not possible."""
        imported = partial(read_import, file.parent.resolve(), self.bounds)
        value = self._load(file, partial(read_exported, load=imported, calls=True))
        if not isinstance(value, dict):
            self.notes.append(
                f"{file.name} cannot be read without running it; pages are in the order of their names."
            )
        return value if isinstance(value, dict) else {}

    def _load(self, file: Path, load: Callable[[str], Any]) -> Any:
        try:
            return load(read_config(file, self.bounds))
        except (ValueError, RecursionError) as error:
            reason = str(error).replace('in "<unicode string>", ', "at ")[:200]
            raise UnreadableSite(f"{file.name} cannot be read: {reason}") from error


def text_of(values: Any, *keys: str) -> str:
    """Return a string below a path of keys; "" if there is none."""
    value = get(values, *keys)
    return value if isinstance(value, str) else ""


def texts_of(value: Any) -> list[str]:
    """Return a string or a list of strings as a list."""
    return [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, str)]


def with_lines_of_head(text: str, shown: Sequence[str]) -> str:
    """Put what a theme shows of the front matter on lines that the front matter leaves.

    The front matter takes three lines, and a blank line is needed below the others.
    """
    head, body, lines = split_front_matter(text)
    content = body.lstrip("\n")
    room = lines - 3 + len(body) - len(content) - len(shown)
    if not shown or (room < 1 and content):
        return text
    with suppress(TypeError):  # a key that is no text
        # Aliases are written out, and an emoji that is escaped is no YAML.
        if len(written := json.dumps(head, default=str, ensure_ascii=False)) <= _LARGEST_HEAD:
            return "\n".join(["---", written, "---", *shown, "\n" * room + content])
    return text


def html_address(name: str) -> str:
    """Return the address of a page as the name of its HTML file."""
    return f"{name.rpartition('.')[0]}.html"


def _flat_modules(sections: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Return the module of each page by its outermost section, if the pages are not in directories.

    A section with a single page is not a module.
    """
    if not sections or sum("/" in name for name in sections) * 2 > len(sections):
        return {}
    first = {name: titles[0] for name, titles in sections.items() if titles}
    sizes = Counter(first.values())
    return {name: key for name, title in first.items() if sizes[title] > 1 and (key := slug(title))}
