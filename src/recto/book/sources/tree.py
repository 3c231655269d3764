"""A book on disk: the source of a site, a built site, one file, or a plain tree of files."""

from __future__ import annotations

import os
import posixpath
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from recto._util.files import disk_advice, read_limited
from recto._util.text import nearest, plural
from recto.book.parsing import HTML, LARGEST_PAGE, MARKDOWN, MDX, format_of, skip_advice, suffix_list
from recto.book.parsing.frontmatter import split_front_matter
from recto.book.parsing.html.tokens import read_head, split_site_name
from recto.book.sources import mkdocs
from recto.book.sources.directory import (
    Generator,
    Navigation,
    PageDirectory,
    SiteRules,
    any_of,
    is_file,
    module_titles,
)
from recto.book.sources.docusaurus import DocusaurusSite
from recto.book.sources.docusaurus.config import CONFIG_FILES, DocusaurusConfig
from recto.book.sources.docusaurus.pages import DocusaurusIncludes, encoded, read_category
from recto.book.sources.hugo import HugoSite
from recto.book.sources.includes import Includes
from recto.book.sources.includes import notes as include_notes
from recto.book.sources.jekyll import JekyllSite
from recto.book.sources.options import (
    INDEX_PAGES,
    NO_OPTIONS,
    BookFile,
    SiteOptions,
    UnreadableSite,
    book_name,
    check_url,
    is_inside,
    local_parts,
    read_book_file,
    repository_of,
)
from recto.book.sources.pandoc import BookdownSite, QuartoSite
from recto.book.sources.sphinx import JupyterBookSite, MystSite, SphinxSite
from recto.book.sources.summary import D2lBookSite, GitBookSite, MdBookSite, NextraSite
from recto.book.sources.vite import StarlightSite, VitePressSite
from recto.book.sources.volume import VolumeSource, open_volume
from recto.errors import ConfigurationError, InvalidArgument, InvalidOption
from recto.types.book import BookInfo, Failure, Page

SKIPPED = frozenset({"node_modules", "build", "dist", "target", "__pycache__", "venv"})
GENERATORS: dict[str, type[Generator]] = {
    site.generator: site
    for site in (
        DocusaurusSite,
        mkdocs.ZensicalSite,
        mkdocs.MkDocsSite,
        MdBookSite,
        VitePressSite,
        HugoSite,
        StarlightSite,
        JupyterBookSite,
        MystSite,
        SphinxSite,
        QuartoSite,
        BookdownSite,
        NextraSite,
        D2lBookSite,
        JekyllSite,
        GitBookSite,
    )
}
"""The generators of sites, in the order in which they are tried."""
NO_GENERATOR = "plain"
NO_INFO = BookInfo()
_DOCS = "docs/"
_UNPUBLISHED = "the site does not publish them as pages; index their directory as a book of its own"
_PAGE_TITLES = frozenset({"home", "introduction", "overview", "readme", "welcome", "contents", "preface"})
"""Titles that name the first page, not the book."""
_PROJECT_FILES = frozenset(
    {"CHANGELOG", "CHANGES", "CODE_OF_CONDUCT", "CONTRIBUTING", "LICENSE", "SECURITY", "SUMMARY"}
)
"""Files about the project of a book; only a site can publish them as pages."""
_HEAD = 1 << 14  # characters of a page that are searched for front matter
_PATH_HINT = "Pass the directory that holds the pages of the book."
_HTML_SUFFIXES = (".html", ".htm", ".xhtml")
_NOT_PAGES = frozenset({"404", "search", "genindex", "py-modindex", "print", "toc", "modindex"})
_MOST_FILES = 100_000  # that are looked at to find out whether a directory is a built site


def open_book(path: Path, options: SiteOptions = NO_OPTIONS, book: str = "") -> BookTree | VolumeSource:
    """Open a book: a site if it has a configuration, else a plain tree; `options` override `recto.toml`."""
    check_url(options.url, "--site-url")
    with _readable(path):
        location = _existing(path)
        if volume := open_volume(location, options, book):
            return volume
        folder = location if location.is_dir() else location.parent
        generators = _generators(options.generator or read_book_file(folder).options.generator)
        for site in (folder, *folder.parents) if generators else ():
            try:
                opened = _open_site(site, location, options, book, generators)
            except UnreadableSite as error:
                if site == location or len(generators) == 1:
                    raise
                note = f"{error.message}. The pages are read without the site's own rules."
                return MarkdownTree(path, book, options, [note])
            if opened is not None:
                return opened
            if (site / ".git").exists():
                break
        if len(generators) == 1:
            files = " or ".join(generators[0].config_files)
            raise InvalidOption(
                f"{location} is not part of a {generators[0].generator} site",
                hint=f"Pass the directory that holds {files}, or leave out --generator.",
            )
        _refuse_flags(options, location, ())
        if _is_built_site(location):
            book_file = read_book_file(location, options=options)
            rules = _BuiltSiteRules(book or book_name(location), book_file, location)
            directory = PageDirectory(location, rules, location)
            return BookTree([directory], rules.book, location, info=BookInfo(rules.title))
        return MarkdownTree(path, book, options, _sites_below(location))


def _generators(name: str) -> list[type[Generator]]:
    """Return the generators to try: all, or the one of this name; none for a plain tree."""
    if name and name != NO_GENERATOR and name not in GENERATORS:
        names = [*GENERATORS, NO_GENERATOR]
        guess = nearest(name, names)
        hint = f"Did you mean {guess}? " if guess else ""
        raise InvalidOption(f"There is no generator {name!r}", hint=f"{hint}There are: {', '.join(names)}.")
    return [generator for key, generator in GENERATORS.items() if name in ("", key)]


def _config_file(folder: Path, generator: type[Generator]) -> Path | None:
    """Return the configuration of a generator's site in a directory, if there is one."""
    for file in (folder / name for name in generator.config_files):
        if is_file(file) and generator.recognises(file):
            return file
    return None


def _open_site(
    site: Path, location: Path, options: SiteOptions, book: str, generators: Sequence[type[Generator]]
) -> BookTree | None:
    """Open a path as part of the site in a directory; return None if it is not part of one."""
    folder = location if location.is_dir() else location.parent
    for generator in generators:
        config = _config_file(site, generator)
        if config is None:
            continue
        name = book or book_name(site)
        book_file = read_book_file(folder, site, options=options)
        opened = generator(config, book_file, name)
        if directories := opened.directories(location):
            _refuse_flags(options, location, opened.options)
            info = BookInfo(
                title=book_file.options.title or opened.title,
                logo=opened.logo,
                versions=tuple(opened.versions),
                locales=tuple(opened.locales),
            )
            return BookTree(directories, name, location, opened.notes, info)
    return None


def _refuse_flags(options: SiteOptions, location: Path, effective: Sequence[str]) -> None:
    """Raise an error for a flag that would have no effect."""
    flags = {"version": "docs-version", "locale": "locale", "route_base_path": "route-base-path"}
    for name, flag in flags.items():
        if getattr(options, name) and name not in effective:
            users = [key for key, generator in GENERATORS.items() if name in generator.options]
            raise InvalidOption(
                f"--{flag} has no effect on {location}",
                hint=f"Leave it out, or pass the directory of a site: it is for {', '.join(users)}.",
            )


def _sites_below(location: Path) -> list[str]:
    """Return notes on sites one level down, whose URLs and versions a plain tree does not know."""
    folders = sorted(folder for folder in location.iterdir() if folder.is_dir()) if location.is_dir() else []
    return [
        f"{folder.name}/ is a separate site. Pass its directory instead, to get its published URLs."
        for folder in folders
        if not folder.name.startswith(".")
        and any(_config_file(folder, generator) for generator in GENERATORS.values())
    ]


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn a system error into one that names the path."""
    try:
        yield
    except OSError as error:
        denied = isinstance(error, PermissionError)
        raise InvalidArgument(
            f"{str(path)[:200]} cannot be read: {error.strerror or error}",
            hint=f"{disk_advice(error, path, ('read', 'search'))}." if denied else _PATH_HINT,
        ) from error


def _existing(path: Path) -> Path:
    if not path.exists():
        raise InvalidArgument(f"{path} does not exist", hint=_PATH_HINT)
    return path.resolve()


class BookTree:
    """Yields the pages of directories in reading order."""

    def __init__(
        self,
        directories: Sequence[PageDirectory],
        book: str,
        location: Path,
        notes: Sequence[str] = (),
        info: BookInfo = NO_INFO,
    ) -> None:
        """Find the files; raise an error if there are none."""
        self.book = book
        self.info = info
        self.location = str(location)
        with _readable(location):
            self._directories = [
                (directory, directory.rules.navigation(directory.names())) for directory in directories
            ]
        self._files = [
            (directory, name) for directory, navigation in self._directories for name in navigation.names
        ]
        self._includes = [directory.includes for directory in directories if directory.includes is not None]
        self._refused = [failure for directory in directories for failure in directory.refused]
        unread = sum((directory.unread for directory in directories), Counter[str]())
        self._open_notes = [
            *notes,
            *(note for directory in directories for note in directory.notes),
            *(
                f"{plural(count, f'{end} file')} not read: {skip_advice(end) or _UNPUBLISHED}."
                for end, count in unread.most_common()
                if count
            ),
        ]
        self.failed: list[Failure] = []
        """The pages that could not be read in the last run."""
        self.notes = list(self._open_notes)
        """What was assumed, and what was left out of the last run."""
        if not self._files:
            hint = "; ".join([*map(str, self._refused[:3]), *self._open_notes[:3]]) or _PATH_HINT
            refused = any(failure.path for failure in self._refused)
            problem = "No page can be read" if refused else f"There is no {suffix_list()} file"
            raise InvalidArgument(f"{problem} in {location}", hint=hint)

    @property
    def included_files(self) -> dict[Path, tuple[int, int]]:
        """The files that pages included in the last run, with the time and size that they had."""
        return {file: seen for includes in self._includes for file, seen in includes.files.items()}

    def __len__(self) -> int:
        """Return the number of files."""
        return len(self._files)

    def pages(self) -> Iterator[Page]:
        """Yield each page; record those that cannot be read in `failed`."""
        self.failed[:] = self._refused
        titles, position = module_titles(self._directories), 0
        for includes in self._includes:
            includes.reset()
        skipped: Counter[str] = Counter()
        addresses: Counter[str] = Counter()
        for directory, name in self._files:
            for page in directory.pages(name):
                if isinstance(page, Page):
                    addresses[page.url] += 1
                    position += 1
                    yield replace(page, module_title=titles[page.module], position=position)
                elif isinstance(page, Failure):
                    self.failed.append(page)
                else:
                    skipped[page] += 1
        unresolved = sum(len(includes.unresolved) for includes in self._includes)
        self.info = replace(self.info, unresolved_includes=unresolved)
        shared = [(url, count) for url, count in addresses.items() if count > 1]
        self.notes[:] = [
            *self._open_notes,
            *include_notes(self._includes),
            *(f"Left out: {plural(count, f'{reason} page')}." for reason, count in skipped.items()),
            *(f"{count} pages have the same URL {url}." for url, count in shared[:5]),
        ]


class MarkdownTree(BookTree):
    """A plain tree of Markdown files, or the docs of a site without its rules; URLs follow the file names."""

    def __init__(
        self, path: Path, book: str = "", options: SiteOptions = NO_OPTIONS, notes: Sequence[str] = ()
    ) -> None:
        """Find the root of the pages: the directory itself, or `docs` in a site."""
        with _readable(path):
            location = _existing(path)
            if location.is_dir() and _is_site(location) and (location / "docs").is_dir():
                if not is_inside(location / "docs", repository_of(location)):
                    raise InvalidArgument(
                        f"{location / 'docs'} is a symbolic link that leaves the book", hint=_PATH_HINT
                    )
                location = (location / "docs").resolve()
            root = location if location.is_dir() else location.parent
            site = next((folder for folder in (root, root.parent) if _is_site(folder)), None)
            book_file = read_book_file(root, site or root, options=options)
            name = book or book_name(root)
            bounds = repository_of(site or root)
            finder = DocusaurusIncludes(site) if site else mkdocs.MkDocsIncludes((root, root.parent, bounds))
        rules = _PlainRules(name, book_file, root, bounds, mdx=site is not None)
        below = "" if location.is_dir() else location.name
        directory = PageDirectory(root, rules, bounds, below, includes=Includes(finder, bounds))
        super().__init__([directory], name, location, notes)
        if all(name.startswith(_DOCS) for _, name in self._files):  # as in a site, `docs` is not a module
            rules.book_file = replace(book_file, module_root=_DOCS)
        self._name_book(site, directory, rules.book_file)

    def _name_book(self, site: Path | None, directory: PageDirectory, book_file: BookFile) -> None:
        """Set title and logo as the site's configuration states them; else the first page gives the title."""
        title, logo = book_file.options.title, ""
        if site is not None:
            file = next(site / name for name in CONFIG_FILES if (site / name).is_file())
            with suppress(ConfigurationError):  # the configuration cannot be read
                config = DocusaurusConfig(file, book_file.options)
                title, logo = title or config.title(), config.logo()
        if not title:
            title = directory.index_title(book_file.module_root.rstrip("/"))
            title = "" if title.lower() in _PAGE_TITLES else title
        self.info = BookInfo(title, logo)


class _PlainRules(SiteRules):
    """Rules for a plain tree: no hidden files, partials or build output."""

    def __init__(self, book: str, book_file: BookFile, root: Path, bounds: Path, *, mdx: bool) -> None:
        super().__init__(book, book_file)
        self._root, self._bounds = root, bounds
        self._mdx = mdx
        self._excluded = any_of(book_file.exclude)

    def enters(self, folder: str) -> bool:
        name = folder.rpartition("/")[2]
        return name not in SKIPPED and not name.startswith((".", "_"))

    def wants(self, name: str) -> bool:
        file = name.rpartition("/")[2]
        hidden = file.startswith((".", "_")) or file.rpartition(".")[0] in _PROJECT_FILES
        return format_of(name) is not None and not hidden and not self._excluded(name)

    def page(self, name: str, page: Page) -> Page | str:
        if "draft:" in page.text[:_HEAD] and split_front_matter(page.text)[0].get("draft") is True:
            return "draft"
        format = format_of(name) or MARKDOWN
        format = MDX if self._mdx and format is MARKDOWN else format
        return replace(page, url=self._url(page.path) or page.url, format=format.name)

    def label(self, folder: str) -> str:
        label = read_category(folder, [self._root], self._bounds).get("label")
        return label if isinstance(label, str) else ""

    def _url(self, path: str) -> str:
        """Return the URL of a page below the site's URL, or "" if the site has none."""
        options = self.book_file.options
        if not options.url:
            return ""
        index = path.rpartition(".")[0].rpartition("/")[2].lower() in INDEX_PAGES
        slash = index if options.trailing_slash is None else options.trailing_slash
        relative = encoded("/".join(local_parts(path)))
        return f"{options.url.rstrip('/')}/{relative}{'/' * bool(slash and relative)}"


def _is_site(folder: Path) -> bool:
    return any((folder / name).is_file() for name in CONFIG_FILES)


def _is_built_site(location: Path) -> bool:
    """Return whether a directory has HTML files, and no page in another format."""
    html, files, has_index = (
        False,
        0,
        any((location / f"index{suffix}").is_file() for suffix in _HTML_SUFFIXES),
    )
    for folder, folders, names in os.walk(location) if location.is_dir() else ():
        folders[:] = [name for name in folders if not name.startswith((".", "_")) and name != "node_modules"]
        for name in names:
            files += 1
            if files > _MOST_FILES:
                return False
            format = format_of(name)
            is_download = has_index and format is not None and format.split is not None
            if format is not None and not is_download and not name.lower().startswith("readme"):
                return False
            html = html or (name.lower().endswith(_HTML_SUFFIXES) and Path(folder, name).is_file())
    return html


class _BuiltSiteRules(SiteRules):
    """Rules for HTML files: each is a page, in the order in which the first page links them."""

    def __init__(self, book: str, book_file: BookFile, root: Path) -> None:
        super().__init__(book, book_file)
        self._excluded = any_of(book_file.exclude)
        files = (root / f"index{suffix}" for suffix in _HTML_SUFFIXES)
        index = next((file for file in files if file.is_file()), None)
        try:
            text = read_limited(index, LARGEST_PAGE).decode("utf-8", "replace") if index else ""
        except (OSError, ValueError):
            text = ""
        head = read_head(text)
        links = filter(_is_local, head.links)
        self._links = [posixpath.normpath(unquote(urlsplit(link).path)) for link in links]
        self.title = book_file.options.title or head.site_name or split_site_name(head.title)[0]

    def enters(self, folder: str) -> bool:
        """Return whether a directory may hold pages."""
        return not folder.rpartition("/")[2].startswith((".", "_"))

    def wants(self, name: str) -> bool:
        """Return whether a file is a page."""
        stem, suffix = posixpath.splitext(name.rpartition("/")[2].lower())
        return suffix in _HTML_SUFFIXES and stem not in _NOT_PAGES and not self._excluded(name)

    def page(self, name: str, page: Page) -> Page | str:
        """Give a page its published address; leave out redirections."""
        if read_head(page.text).refresh:
            return "redirecting"
        site = self.book_file.options.url.rstrip("/")
        path = name.removesuffix("index.html") if name.rpartition("/")[2] == "index.html" else name
        return replace(page, url=f"{site}/{path}" if site else page.url, format=HTML.name)

    def navigation(self, names: Sequence[str]) -> Navigation:
        """Put the pages in the order of the links of the first page."""
        there = set(names)
        first = [name for name in names if "/" not in name and name.startswith("index.")]
        linked = (name for link in self._links for name in (link, f"{link}/index.html", f"{link}.html"))
        return Navigation(list(dict.fromkeys([*first, *(name for name in linked if name in there), *names])))


def _is_local(link: str) -> bool:
    try:
        parts = urlsplit(link)
    except ValueError:
        return False
    return not parts.scheme and not parts.netloc and bool(parts.path) and not parts.path.startswith("/")
