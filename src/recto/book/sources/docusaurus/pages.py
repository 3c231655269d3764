"""The pages of one instance of the Docusaurus docs plugin, in one version and language."""

from __future__ import annotations

import json
import math
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from recto._util.markdown import code_fences
from recto.book.parsing import MARKDOWN, MDX, format_of
from recto.book.parsing.frontmatter import load_mapping, split_front_matter, stated
from recto.book.parsing.markdown.tags import tag_end
from recto.book.sources.directory import Navigation, SiteRules, any_of, is_file
from recto.book.sources.docusaurus.javascript import get, read_exported, read_json
from recto.book.sources.includes import (
    COMMENT_END,
    COMMENT_START,
    MARKDOWN_SUFFIXES,
    Directive,
    InCode,
    code_ranges,
    in_order,
    line_start,
    whole_line,
)
from recto.book.sources.options import BookFile, UnreadableSite, read_config, read_start
from recto.types.book import Page

CURRENT_VERSION = "current"
"""The version that is being written: the docs themselves, not a released copy of them."""
_DATE_OR_VERSION = re.compile(r"[0-9]+[-_.][0-9]+")
_NUMBERED = re.compile(r"([0-9]+)\s*[-_.]+\s*([^-_.\s].*)", re.DOTALL)
_NOT_ENCODED = ";/?:@&=+$,#-_.!~*'()"  # as encodeURI
_DEEPEST = 20  # categories in categories
_CATEGORY_FILES = ("_category_.json", "_category_.yml", "_category_.yaml")
_LARGEST_CATEGORY = 1 << 16
_IMPORT = re.compile(
    r"^[ \t]*import\s+(?:\{\s*Content\s+as\s+)?(?P<name>\w+)(?:\s*\})?\s+from\s+"
    r"(?P<quote>['\"])(?P<path>[^'\"\n]+)(?P=quote);?[ \t]*$",
    re.MULTILINE,
)
_UNESCAPED = re.compile(r"\\(.)")  # in JavaScript, `\_` is `_`
_RAW = re.compile(r"(?:!!raw-loader!(?P<loaded>[^?]+)(?:\?.*)?|(?P<queried>[^?!]+)\?raw)")
_JSX = re.compile(r"<(?P<name>[A-Z][\w.]*|pre|code)(?=[\s/>])")
_EXPRESSION = re.compile(
    r"\s{0,200}+\{\s*+(?:require\(\s*+['\"](?P<path>[^'\"\n]+)['\"]\s*\)|(?P<name>\w+)(?=[\s.}]))"
)
_ALONE = re.compile(r"^(?P<prefix>[ \t>]*)\{\s*(?P<name>\w+)\s*(?:\.[^\n{}]*)?\}[ \t]*$", re.MULTILINE)
_CODE = re.compile(r"\bcode=\{\s*(\w+)\s*\}")
_ATTRIBUTE = re.compile(r"\b(lang(?:uage)?|className|title)=(?:\{\s*)?[\"']([^\"'\n]*)[\"']")
_MAGIC = re.compile(  # a comment in code that highlights lines
    rf"^[ \t>]*+{COMMENT_START}highlight-(?:next-line|start|end)(?:{COMMENT_END})?[ \t]*+\n",
    re.MULTILINE,
)
_LONGEST_EXPRESSION = 4_000
_MOST_IMPORTS = 200
_LAST = 1 << 53  # the largest position; a larger one is the same
_SCRIPTS = ("", ".js", ".jsx", ".ts", ".tsx", ".mjs", ".json")


def split_number(name: str) -> tuple[float, str]:
    """Return the number prefix of a name, or infinity, and the rest; dates and versions have no prefix."""
    numbered = None if _DATE_OR_VERSION.match(name) else _NUMBERED.fullmatch(name)
    # File names have at most 255 digits, so every number fits.
    return (float(numbered[1]), numbered[2]) if numbered else (math.inf, name)


def slug(name: str, front_matter: dict[str, Any], *, numbered: bool = True) -> str:
    """Return the path of a page relative to its docs, with a leading slash."""
    address = stated(front_matter, "slug")
    if address and address.startswith("/"):
        return address
    directory, file = posixpath.split(name)
    stem = file.rpartition(".")[0]
    is_index = stem.lower() in ("index", "readme", directory.rpartition("/")[2].lower() or ".")
    if numbered and front_matter.get("parse_number_prefixes") is not False:
        directory = "/".join(split_number(part)[1] for part in directory.split("/"))
        stem = split_number(stem)[1]
    folder = f"/{directory}/" if directory else "/"
    if is_index and not address:
        return folder
    return _resolved(folder + (address or stated(front_matter, "id") or stem))


def _resolved(path: str) -> str:
    """Resolve `.` and `..` as a browser does; the path never leaves the root."""
    resolved = "/" + posixpath.normpath(path).lstrip("/")
    slash = resolved != "/" and path.rpartition("/")[2] in (".", "..", "")
    return f"{resolved}/" if slash else resolved


def join(*parts: str) -> str:
    """Join parts of a URL path with single slashes."""
    return re.sub(r"/+", "/", "/".join(("", *(part for part in parts if part))))


def with_slash(path: str, base: str, trailing: bool | None) -> str:
    """Apply the site's rule for trailing slashes; the root keeps its own."""
    if trailing is None or path in ("/", base):
        return path
    return path.removesuffix("/") + "/" * trailing


def encoded(path: str) -> str:
    """Return a URL path, percent-encoded as a browser does."""
    return quote(path, safe=_NOT_ENCODED)


@dataclass(frozen=True, slots=True)
class Docs:
    """One instance of the docs plugin; `options` are its own options.

    `versions` has the parts of the URL that name its versions; readers see the one named `last` first.
    """

    id: str
    path: str
    route: str
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    numbered: bool
    options: dict[str, Any]
    versions: Mapping[str, str] = field(default_factory=dict)
    last: str = ""

    def label(self, version: str) -> str:
        """Return the version of pages; "" if the docs are not versioned."""
        return version if len(self.versions) > 1 or version != CURRENT_VERSION else ""


@dataclass(frozen=True, slots=True)
class Published:
    """Where the pages of a locale are: `base` is its URL path, `route` the URL path of a version.

    `translations` is the directory of the translations, if there is one. If several locales are read,
    `others` has those with the directories of their translations to which a page may not be translated.
    """

    name: str
    translations: Path | None
    url: str
    base: str
    locale: str
    slash: bool | None
    format: str
    route: str = "/"
    version: str = ""
    others: tuple[tuple[str, Path | None], ...] | None = None

    def locales(self, name: str) -> tuple[str, ...]:
        """Return the locales whose readers see a page: its own, and those that it is not translated to."""
        if self.others is None:
            return ()
        untranslated = (locale for locale, folder in self.others if not (folder and is_file(folder / name)))
        return self.locale, *untranslated


SidebarItem = tuple[str, tuple[str, ...]]
"""A doc by its id, or all docs in a directory, with a slash at its end; and the labels above it."""


def read_sidebars(file: Path, bounds: Path) -> list[SidebarItem] | None:
    """Read a sidebar file without running it; return None if that is not possible."""
    try:
        text = read_config(file, bounds)
    except (OSError, UnreadableSite):
        return None
    value = read_json(text) if file.suffix == ".json" else read_exported(text)
    if not isinstance(value, dict):
        return None
    return [item for sidebar in value.values() for item in _sidebar_items(sidebar, ())]


def _sidebar_items(value: Any, sections: tuple[str, ...]) -> Iterator[SidebarItem]:
    if len(sections) > _DEEPEST:
        return
    if isinstance(value, list):
        for item in value:
            yield from _sidebar_items(item, sections)
    elif isinstance(value, str):
        yield value, sections
    elif isinstance(value, dict):
        kind, target = value.get("type"), value.get("id")
        if kind == "category":
            label, link = get(value, "label"), get(value, "link", "id")
            below = (*sections, label) if isinstance(label, str) else sections
            if isinstance(link, str):
                yield link, below
            yield from _sidebar_items(get(value, "items"), below)
        elif kind == "autogenerated" and isinstance(folder := value.get("dirName"), str):
            folder = folder.removeprefix("./").strip("/").removeprefix(".")
            yield f"{folder}/", sections
        elif kind in ("doc", "ref") and isinstance(target, str):
            yield target, sections
        elif kind is None:  # the short form: {label: items}
            for label, items in value.items():
                yield from _sidebar_items(items, (*sections, label))


def read_category(name: str, folders: Sequence[Path], bounds: Path) -> dict[str, Any]:
    """Return the content of a directory's category file, the first in these folders."""
    for file in (folder / name / file for folder in folders for file in _CATEGORY_FILES):
        try:
            if file.is_file():
                text = read_config(file, bounds, _LARGEST_CATEGORY)
                values = json.loads(text) if file.suffix == ".json" else load_mapping(text)
                return values if isinstance(values, dict) else {}
        except (OSError, UnreadableSite, ValueError, RecursionError):  # the label is optional
            continue
    return {}


class DocsRules(SiteRules):
    """The rules of one instance of the docs plugin, in one version and language."""

    def __init__(
        self,
        book: str,
        book_file: BookFile,
        docs: Docs,
        published: Published,
        folders: tuple[Path, ...],
        bounds: Path,
        sidebar: Sequence[SidebarItem] = (),
    ) -> None:
        super().__init__(book, book_file)
        self._docs = docs
        self._published = published
        self._folders = folders
        self._bounds = bounds
        self._sidebar = sidebar
        self._categories: dict[str, dict[str, Any]] = {}
        self._included = any_of(docs.include)
        self._excluded = any_of((*docs.exclude, *book_file.exclude))

    def enters(self, folder: str) -> bool:
        """Return whether a directory may hold pages."""
        return not folder.rpartition("/")[2].startswith(".") and not self._excluded(f"{folder}/ ")

    def wants(self, name: str) -> bool:
        """Return whether a file is a page."""
        format = format_of(name)
        if name.rpartition("/")[2].startswith(".") or format is None or not format.common:
            return False
        return self._included(name) and not self._excluded(name)

    def page(self, name: str, page: Page) -> Page | str:
        """Complete the page of a file; leave out drafts and unlisted pages."""
        front_matter = split_front_matter(page.text)[0]
        for reason in ("draft", "unlisted"):
            if front_matter.get(reason) is True:
                return reason
        published, url = self._published, page.url
        if published.url:
            path = join(published.route, slug(name, front_matter, numbered=self._docs.numbered))
            url = published.url + encoded(with_slash(path, published.base, published.slash))
        label = self.label(name.split("/", maxsplit=1)[0]).strip().lower() if "/" in name else ""
        return replace(
            page,
            url=url,
            format=self._format(name, front_matter),
            module_keys=tuple(dict.fromkeys((*page.module_keys, *filter(None, [label])))),
            version=published.version,
            locale=published.locale,
            locales=published.locales(name),
        )

    def _format(self, name: str, front_matter: dict[str, Any]) -> str:
        by_suffix = format_of(name) or MDX
        if by_suffix not in (MARKDOWN, MDX):
            return by_suffix.name
        options = front_matter.get("mdx")
        chosen = options.get("format") if isinstance(options, dict) else None
        chosen = chosen if chosen in ("md", "mdx", "detect") else self._published.format
        return (by_suffix if chosen == "detect" else MARKDOWN if chosen == "md" else MDX).name

    def label(self, folder: str) -> str:
        """Return the sidebar label of a directory."""
        label = self._category(folder).get("label")
        return label if isinstance(label, str) else ""

    def _category(self, folder: str) -> dict[str, Any]:
        """Return the content of a directory's category file."""
        if folder not in self._categories:
            self._categories[folder] = read_category(folder, self._folders, self._bounds)
        return self._categories[folder]

    def navigation(self, names: Sequence[str]) -> Navigation:
        """Order pages as the sidebar does: as listed, or by positions, number prefixes and names."""
        heads = {name: self._head(name) for name in names}
        ordered = sorted(names, key=lambda name: self._sort_key(name, heads[name]))
        ids = {name.rpartition(".")[0]: name for name in ordered}
        ids |= {self._id(name, heads[name]): name for name in ordered}
        listed: dict[str, tuple[str, ...]] = {}
        for target, sections in self._sidebar:
            if not target.endswith("/"):
                listed.setdefault(ids.get(target, target), sections)
                continue
            for name in ordered:
                if name.startswith(target.lstrip("/")):
                    listed.setdefault(name, sections)
        return Navigation(ordered, listed)

    def _head(self, name: str) -> dict[str, Any]:
        """Return the front matter of a page if it may state a position or an id."""
        heads = (read_start(folder / name, self._bounds) for folder in self._folders)
        head = next(filter(None, heads), "")
        return split_front_matter(head)[0] if "sidebar_position" in head or "id:" in head else {}

    def _id(self, name: str, head: dict[str, Any]) -> str:
        parts = name.rpartition(".")[0].split("/")
        parts = [split_number(part)[1] for part in parts] if self._docs.numbered else parts
        return "/".join([*parts[:-1], stated(head, "id") or parts[-1]])

    def _sort_key(self, name: str, head: dict[str, Any]) -> list[tuple[float, str]]:
        """Return the sort key of a page: position and name of each directory above it and of itself."""
        *folders, file = name.split("/")
        stem = file.rpartition(".")[0]
        keys = [
            (_position(self._category("/".join(folders[: depth + 1])).get("position"), folder), folder)
            for depth, folder in enumerate(folders)
        ]
        index = bool(folders) and stem.lower() in ("index", "readme", folders[-1].lower())
        return [*keys, (-math.inf, "") if index else (_position(head.get("sidebar_position"), stem), stem)]


def _position(stated_position: object, name: str) -> float:
    if isinstance(stated_position, int | float) and not isinstance(stated_position, bool):
        return float(max(-_LAST, min(_LAST, stated_position)))
    return split_number(name)[0]


def find_magic_comments(text: str) -> Iterator[Directive]:
    """Find the comments in code that highlight lines; readers do not see them."""
    in_code = code_ranges(text) if "highlight-" in text else None
    for comment in _MAGIC.finditer(text) if in_code else ():
        if in_code and in_code(comment.start()):
            yield Directive(*comment.span())


class DocusaurusIncludes:
    """Finds `<X />` for partials (`import X from './_x.mdx'`) and `{X}` for raw-loader imports."""

    def __init__(self, site: Path) -> None:
        self._site = site

    def __call__(self, text: str, file: Path) -> Sequence[Directive]:
        """Return the directives of a text."""
        if "import" not in text and "raw-loader" not in text:
            return ()
        in_code = code_ranges(text)
        imports = [match for match in _IMPORT.finditer(text) if not in_code(match.start())]
        paths = {match["name"]: _UNESCAPED.sub(r"\1", match["path"]) for match in imports[:_MOST_IMPORTS]}
        raw = {name: path for name in paths if (path := _raw_path(paths[name]))}
        pages = (name for name in paths if paths[name].endswith(MARKDOWN_SUFFIXES))
        partials = {name for name in pages if "!" not in paths[name]}
        if not partials and not raw and "raw-loader" not in text:
            return ()
        directives = [
            replace(directive, path=paths[name]) for name, directive in _partials(text, in_code, partials)
        ]
        if raw or "raw-loader" in text:
            directives += _raw_files(text, in_code, raw, partials)
        opened = _wrappers(text, directives) if "mdx-code-block" in text else ()
        return in_order([*opened, *(self._placed(directive, file) for directive in directives)])

    def _placed(self, directive: Directive, file: Path) -> Directive:
        base = self._site if directive.path.startswith("@site/") else file.parent
        return replace(directive, path=directive.path.removeprefix("@site/"), bases=(base,))


def _tags(text: str, in_code: InCode, select: Callable[[str], bool]) -> Iterator[tuple[re.Match[str], int]]:
    """Yield tags outside code and tables, each with its end."""
    for tag in _JSX.finditer(text):
        if not select(tag["name"]) or in_code(tag.start()):
            continue
        before = text[line_start(text, tag.start()) : tag.start()]
        end = tag_end(text, tag.end())
        if end is not None and not before.count("`") % 2 and not before.lstrip().startswith("|"):
            yield tag, end


def _wrappers(text: str, directives: Sequence[Directive]) -> Iterator[Directive]:
    """Yield the lines of fences that wrap included files, whose own fences would end them."""
    for opened, closed in code_fences(text):
        inside = (closed and opened.end() <= directive.start < closed.start() for directive in directives)
        if closed and opened["info"] == "mdx-code-block" and any(inside):
            yield from (Directive(*line.span()) for line in (opened, closed))


def _partials(text: str, in_code: InCode, names: set[str]) -> Iterator[tuple[str, Directive]]:
    for tag, end in _tags(text, in_code, names.__contains__):
        if text[end - 2] == "/":
            start, stop, prefix = whole_line(text, tag.start(), end)
            yield tag["name"], Directive(start, stop, prefix=prefix or "", apart=prefix is None)


def _raw_files(text: str, in_code: InCode, raw: Mapping[str, str], partials: set[str]) -> Iterator[Directive]:
    """Yield `<CodeBlock>{X}</CodeBlock>`, also with `require`, `<Code code={X} />`, and `{X}` on its line."""

    def directive(start: int, end: int, path: str, info: str, prefix: str | None) -> Directive:
        return Directive(
            *(start, end, path),
            suffixes=_SCRIPTS,
            code=info,
            prefix=prefix or "",
            apart=prefix is None,
            nested=False,
            otherwise="",
        )

    for tag, end in _tags(text, in_code, lambda name: name not in partials):
        attributes = text[tag.end() : end]
        if (code := _CODE.search(attributes)) and code[1] in raw and text[end - 2] == "/":
            start, stop, prefix = whole_line(text, tag.start(), end)
            yield directive(start, stop, raw[code[1]], _fence_info(attributes), prefix)
            continue
        expression = _EXPRESSION.match(text, end, end + _LONGEST_EXPRESSION)
        path = (
            (_raw_path(expression["path"] or "") or raw.get(expression["name"] or "", ""))
            if expression
            else ""
        )
        if not expression or not path:
            continue
        closing = f"</{tag['name']}>"
        close = text.find(closing, expression.end(), expression.end() + _LONGEST_EXPRESSION)
        if close >= 0:
            start, stop, prefix = whole_line(text, tag.start(), close + len(closing))
            yield directive(start, stop, path, _fence_info(attributes), prefix)
    for alone in _ALONE.finditer(text) if raw else ():
        if alone["name"] in raw and not in_code(alone.start()):
            yield directive(*alone.span(), raw[alone["name"]], "", alone["prefix"])


def _raw_path(path: str) -> str:
    match = _RAW.fullmatch(path)
    return (match["loaded"] or match["queried"]) if match else ""


def _fence_info(attributes: str) -> str:
    """Return the info string of a fence, from the language and title attributes of a code block."""
    values = dict(_ATTRIBUTE.findall(attributes))
    named = re.search(r"language-([\w+-]+)", values.get("className", ""))
    language = values.get("language") or values.get("lang") or (named[1] if named else "")
    return f'{language} title="{values["title"]}"' if values.get("title") else language
