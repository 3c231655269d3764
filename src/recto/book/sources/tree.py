"""A book on disk: the source of a site, a built site, one file, or a plain tree of files."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from recto._util.cpu_limit import PAGE_SECONDS, CpuLimitExceeded, cpu_limit
from recto._util.files import disk_advice
from recto._util.text import nearest, plural
from recto.book.parsing import ASCIIDOC, MARKDOWN, MDX, format_of, skip_advice, suffix_list
from recto.book.parsing.frontmatter import split_front_matter
from recto.book.sources import mkdocs
from recto.book.sources.antora import AntoraSite
from recto.book.sources.asciidoc import AsciiDocBook, Preprocessor
from recto.book.sources.built import BuiltSiteRules, is_built_site
from recto.book.sources.directory import (
    Generator,
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
from recto.book.sources.includes import Directive, Includes, silent_components
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
from recto.errors import ConfigurationError, InvalidArgument, InvalidOption, RectoError
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
        AntoraSite,
        AsciiDocBook,
    )
}
"""The generators of sites, in the order in which they are tried."""
_SITE_FOLDERS = frozenset(
    {"docs", "doc", "documentation", "website", "site", "www", "book", "guide", "manual"}
)
"""Where a repository has its site, or the sites of its languages."""
_MOST_COMMANDS = 20  # in a message; as many as a screen has lines
NO_GENERATOR = "plain"
NO_INFO = BookInfo()
_DOCS = "docs/"
_MOST_NAMES = 3
_UNPUBLISHED = "the site does not publish them as pages; index their directory as a book of its own"
_PAGE_TITLES = frozenset({"home", "introduction", "overview", "readme", "welcome", "contents", "preface"})
"""Titles that name the first page, not the book."""
_DOWNLOADS = frozenset({".pdf", ".epub", ".docx", ".odt"})
_PROJECT_FILES = frozenset(
    {"CHANGELOG", "CHANGES", "CODE_OF_CONDUCT", "CONTRIBUTING", "LICENSE", "SECURITY", "SUMMARY"}
)
"""Files about the project of a book; only a site can publish them as pages."""
_HEAD = 1 << 14  # characters of a page that are searched for front matter
_OPEN_SECONDS = 600.0  # of CPU time for the configuration and the order of the pages; 10 000 take a minute
_PATH_HINT = "Pass the directory that holds the pages of the book, or an address that begins with https://."


def open_book(path: Path, options: SiteOptions = NO_OPTIONS, book: str = "") -> BookTree | VolumeSource:
    """Open a book: a site if it has a configuration, else a plain tree; `options` override `recto.toml`."""
    check_url(options.url, "--site-url")
    with _readable(path):
        location = _existing(path)
        if volume := open_volume(location, options, book):
            return volume
        folder = location if location.is_dir() else location.parent
        folder_options = read_book_file(folder, options=options).options
        generators = _generators(folder_options.generator)
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
        below = _sites_below(location, generators)
        if usual := _usual_site(path, location, below):
            name = usual.relative_to(location).as_posix()
            note = f"The site in {name}/ is the book. To read all files, add --generator {NO_GENERATOR}."
            book = book or book_name(location)
            if opened := _open_site(usual, usual, folder_options, book, generators, [note]):
                return opened
        if len(generators) == 1:
            files = " or ".join(generators[0].config_files)
            raise InvalidOption(
                f"{location} is not part of a {generators[0].generator} site",
                hint=f"Pass the directory that holds {files}, or leave out --generator.",
            )
        _refuse_flags(options, location, ())
        if is_built_site(location):
            book_file = read_book_file(location, options=options)
            rules = BuiltSiteRules(book or book_name(location), book_file, location)
            directory = PageDirectory(location, rules, location)
            return BookTree([directory], rules.book, location, info=BookInfo(rules.title))
        notes = [
            f"{site.name}/ is a separate site. To get its published URLs: {_command(path / site.name)}"
            for site in below
        ]
        return MarkdownTree(path, book, options, notes)


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
    for file in (file for name in generator.config_files for file in sorted(folder.glob(name))):
        if is_file(file) and generator.recognises(file):
            return file
    return None


def _open_site(
    site: Path,
    location: Path,
    options: SiteOptions,
    book: str,
    generators: Sequence[type[Generator]],
    notes: Sequence[str] = (),
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
            return BookTree(directories, name, location, [*notes, *opened.notes], info)
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


def _sites_below(location: Path, generators: Sequence[type[Generator]]) -> list[Path]:
    """Return the directories of sites one level down, and two levels down in the usual places of a site."""
    sites: list[Path] = []
    waiting = _folders(location)
    for folder in waiting:
        if any(_config_file(folder, generator) for generator in generators):
            sites.append(folder)
        elif folder.parent == location and folder.name.lower() in _SITE_FOLDERS:
            waiting += _folders(folder)
    return sites


def _folders(folder: Path) -> list[Path]:
    folders = sorted(entry for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else []
    return [
        entry
        for entry in folders
        if entry.name not in SKIPPED and not entry.name.startswith(".") and not entry.is_symlink()
    ]


def _usual_site(path: Path, location: Path, sites: Sequence[Path]) -> Path | None:
    """Return the only site in a usual place, such as `docs`; raise an error if there are several."""
    usual = [site for site in sites if site.relative_to(location).parts[0].lower() in _SITE_FOLDERS]
    if len(usual) > 1:
        commands = [_command(path / site.relative_to(location)) for site in usual]
        listed = ", ".join([*commands[:_MOST_COMMANDS], *["..."] * (len(commands) > _MOST_COMMANDS)])
        raise InvalidArgument(
            f"There are {len(usual)} sites below {path}",
            hint=f"Index each as a book: {listed}. "
            f"To read all files as one book, add --generator {NO_GENERATOR}.",
        )
    return next(iter(usual), None)


def _command(folder: Path) -> str:
    return f"`recto index {shlex.quote(str(folder))}`"


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn a system error into one that names the path, and limit the time that finding the pages takes."""
    try:
        with cpu_limit(_OPEN_SECONDS):
            yield
    except CpuLimitExceeded as error:
        raise InvalidArgument(
            f"{str(path)[:200]}: finding its pages takes more than {_OPEN_SECONDS:g} s of CPU time",
            hint=f"Pass the directory of the pages itself, with --generator {NO_GENERATOR}.",
        ) from error
    except RectoError:
        raise
    except (OSError, RuntimeError, ValueError) as error:  # names that cannot exist, loops of links
        raise InvalidArgument(
            f"{str(path)[:200]} cannot be read: {getattr(error, 'strerror', None) or error}",
            hint=f"{disk_advice(error, path, ('read', 'search'))}."
            if isinstance(error, PermissionError)
            else _PATH_HINT,
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
        is_plain = all(isinstance(directory.rules, _PlainRules) for directory in directories)
        chapters = {
            end: count for end, count in unread.most_common() if count and _is_chapter(end, is_plain=is_plain)
        }
        if sum(chapters.values()) > len(self._files) > 0:
            for end in chapters:
                name, reason = plural(unread.pop(end), f"{end} file"), skip_advice(end)
                self._refused.append(Failure(name, f"more than half of the book. Not read: {reason}"))
        self._open_notes = [
            *(
                f"{plural(count, f'{end} file')} not read: {skip_advice(end) or _UNPUBLISHED}."
                for end, count in unread.most_common()
                if count
            ),
            *notes,
            *(note for directory in directories for note in directory.notes),
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
        components: Counter[str] = Counter()
        for directory, name in self._files:
            for page in _limited(directory, name):
                if isinstance(page, Page):
                    addresses[page.url] += 1
                    components.update(silent_components(page.text) if _has_components(page) else ())
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
            *self._unlisted_note(),
            *include_notes(self._includes, components),
            *(f"Left out: {plural(count, f'{reason} page')}." for reason, count in skipped.items()),
            *(f"{count} pages have the same URL {url}." for url, count in shared[:5]),
        ]

    def _unlisted_note(self) -> Iterator[str]:
        """Say which files the navigation does not list, if they are more than the pages."""
        every = ((place, name) for place, _ in self._directories for name in sorted(place.unlisted))
        included = self.included_files
        names = [name for place, name in every if place.root / name not in included]
        if len(names) > len(self._files):
            listed = ", ".join(names[:_MOST_NAMES])
            end = ", ..." if len(names) > _MOST_NAMES else "."
            yield f"{plural(len(names), 'file')} not in the navigation, so not indexed: {listed}{end}"


def _has_components(page: Page) -> bool:
    """Return whether tags on a page may be components of JavaScript."""
    return page.format == MDX.name or page.anchors == "vitepress"


def _limited(directory: PageDirectory, name: str) -> Iterator[Page | str | Failure]:
    """Yield the pages of a file; what its included files and references cost is limited, too."""
    pages = iter(directory.pages(name))
    try:
        while True:
            with cpu_limit(PAGE_SECONDS):
                page = next(pages, None)
            if page is None:
                return
            yield page
    except CpuLimitExceeded:
        yield Failure(name, f"it takes more than {PAGE_SECONDS:g} s of CPU time to read")


def _is_chapter(suffix: str, *, is_plain: bool) -> bool:
    """Return whether an unread file may be a chapter: on a site, office files and volumes are downloads."""
    return bool(skip_advice(suffix)) and (is_plain or suffix not in _DOWNLOADS)


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
            preprocessor = Preprocessor()

            def find(text: str, file: Path) -> Iterable[Directive]:
                return (preprocessor.find if format_of(file.name) is ASCIIDOC else finder)(text, file)

        rules = _PlainRules(name, book_file, root, bounds, mdx=site is not None)
        below = "" if location.is_dir() else location.name
        directory = PageDirectory(root, rules, bounds, below, includes=Includes(find, bounds))
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

    def expands(self, name: str) -> bool:
        return format_of(name) is ASCIIDOC or super().expands(name)

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
