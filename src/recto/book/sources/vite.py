"""Sites built with Vite: VitePress, and Starlight, the documentation theme of Astro."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from recto._util.text import plural
from recto.book.parsing.frontmatter import stated
from recto.book.parsing.markdown.headings import slugger
from recto.book.sources.docusaurus.javascript import Unknown, get
from recto.book.sources.docusaurus.pages import DocusaurusIncludes
from recto.book.sources.includes import (
    COMMENT_END,
    COMMENT_START,
    Directive,
    code_ranges,
    find_containers,
    in_order,
    select_lines,
    select_region,
)
from recto.book.sources.options import is_inside
from recto.book.sources.site import Entry, Site, text_of, texts_of, with_lines_of_head
from recto.types.book import AnchorStyle, Page

_SUFFIXES = ("ts", "mts", "js", "mjs")
_SNIPPET = re.compile(
    r"^(?P<prefix>[ \t>]*)<<<[ \t]*(?P<path>[^\s#{\[]+)"
    r"(?:#(?P<region>[\w*-]+))?(?P<braces>\{[^{}\n]*\})?(?P<title>[ \t]*\[[^\[\]\n]+\])?[^\n]*$",
    re.MULTILINE,
)
_INCLUDE = re.compile(
    r"<!--[ \t]*@include:[ \t]*(?P<path>[^\s#{<]+?)(?:#(?P<region>[\w-]+))?"
    r"(?:\{(?P<lines>[\d,]*+)\})?[ \t]*+-->"
)
_START = re.compile(r"#?region\s+(?P<name>[\w*-]+)")
_END = re.compile(r"#?endregion\b\s*(?P<name>[\w*-]*)")
_PLAYGROUND = re.compile(r"(?<=[\w/])#[\w+/=-]{100,}(?=\))")  # code that the address of a link holds
_INTERPOLATION = re.compile(  # a value of a script; in code and in blocks with `v-pre` it is text
    r"(?<!`)(`+)(?!`)[^\n]{1,500}?(?<!`)\1(?!`)|<(\w+) v-pre>.{0,500}?</\2>|(?P<value>\{\{[^{}\n]*\}\})"
    r"|^[ \t>]*+:::+[ \t]*+v-pre\b[^\n]*\n(?:(?![ \t>]*+:::)[^\n]*\n)*+",
    re.MULTILINE,
)
_CODE_MARK = re.compile(  # a comment that marks a line of code
    rf"(?<![ \t])[ \t]*+{COMMENT_START}\[!code [^\]\n]{{1,100}}+\](?:{COMMENT_END})?"
)
_SEGMENT = re.compile(  # of a path with parameters: `docs-:version`, `:slug*`
    r"(?P<before>[^/:()*+?{}\\]*)(?::(?P<name>\w+)(?P<many>[*+?]?)|(?P<any>\(\.\*\)))?(?P<after>[^/:()*+?{}\\]*)"
)
_ASIDE = re.compile(
    r"^(?P<before>[^`\n]*?)(?P<tag><Aside(?=[\s>])(?P<properties>(?:(?!\btitle=)[^<>])*+)>)", re.MULTILINE
)
_TYPE = re.compile(r"\btype=[\"'](\w+)[\"']")
_AS_WRITTEN = re.compile(  # VitePress's function, without what shortens anchors and makes them lower case
    r".{1,99}\.normalize\(['\"]NFKD['\"]\)(?:(?!toLowerCase|\^-).){1,500}"
)
_PARAMETER = re.compile(r"(?P<slash>/?)(?::(?P<name>\w+)[*+?]?|\(\.\*\))")
_MOST_PATTERNS, _MOST_SEGMENTS = 100, 50
_DEEPEST = 10

Rewrite = Callable[[str], str | None]
"""Returns the new path of a file; None if its path does not match."""


class VitePressSite(Site):
    """A VitePress site in one language."""

    generator = "vitepress"
    config_files = tuple(f".vitepress/config{kind}.{end}" for kind in ("", "/index") for end in _SUFFIXES)
    suffixes = (".md",)
    anchors: AnchorStyle = "vitepress"
    options = ("locale",)

    @classmethod
    def folder_of(cls, config_file: Path) -> Path:
        """Return the directory that holds `.vitepress`."""
        return next(folder.parent for folder in config_file.parents if folder.name == ".vitepress")

    def configure(self, config_file: Path) -> None:
        """Read the options that decide which pages there are and where they are published."""
        config = self.read_javascript(config_file)
        self.root = self.directory / (text_of(config, "srcDir") or ".")
        self.title = text_of(config, "title")
        self.set_logo(text_of(config, "themeConfig", "logo"))
        host, base = text_of(config, "sitemap", "hostname"), text_of(config, "base")
        self.url = host.rstrip("/") + (base or "/") if host else ""
        slash = self.book_file.options.trailing_slash
        self._suffix = "" if config.get("cleanUrls") is True or slash is not None else ".html"
        self.left_out = texts_of(config.get("srcExclude"))
        self._set_rewrites(config.get("rewrites"))
        self.choose_locale(config.get("locales"))
        sidebar = get(config, "locales", self.book_file.options.locale or "root", "themeConfig", "sidebar")
        more = (self.root / f"{self.locale}config.{end}" for end in _SUFFIXES)
        if file := next((file for file in more if file.is_file() and sidebar is None), None):
            sidebar = get(self.read_javascript(file), "themeConfig", "sidebar")
        sidebar = sidebar or get(config, "themeConfig", "sidebar")
        self.list_pages(_entries(sidebar, "", ()))
        slug = get(config, "markdown", "anchor", "slugify")
        if isinstance(slug, Unknown) and _AS_WRITTEN.fullmatch(slug.code):
            self.anchors = "vitepress-cased"
        elif slug is not None:
            self.notes.append("The site makes anchors with its own function; those of Recto may differ.")
        if sidebar is not None and not self.sections:
            self.notes.append(
                "The sidebar cannot be read without running the configuration; "
                "pages are in the order of their names."
            )

    def _set_rewrites(self, rewrites: Any) -> None:
        """Take over the paths that the site changes, with parameters such as `:slug*`; note the others."""
        stated = rewrites if isinstance(rewrites, dict) else {}
        pairs = [(source, target) for source, target in stated.items() if isinstance(target, str)]
        self._rewritten = dict(pairs)
        self._sources = {target: source for source, target in pairs}
        patterns = [pair for pair in pairs if re.search("[:(^]", pair[0])]
        both = [(_rewrite(*pair), _rewrite(*pair[::-1])) for pair in patterns[:_MOST_PATTERNS]]
        self._patterns = [pair for pair in both if pair[0]]
        unread = len(stated) - len(pairs) + len(patterns) - len(self._patterns)
        if unread or not isinstance(rewrites, dict | None):
            self.notes.append(
                f"{plural(max(unread, 1), 'rewrite')} of addresses cannot be read without running the "
                "configuration; if addresses are wrong, index the address of the site."
            )

    def file_of(self, target: str) -> str | None:
        """Return the file of a link."""
        path = target.partition("#")[0].strip("/").removesuffix(".html").removesuffix(".md")
        names = [f"{path}.md", f"{path}/index.md".lstrip("/")]
        names += [self._sources[name] for name in names if name in self._sources]
        names += [file for name in names[:2] for _, back in self._patterns if back and (file := back(name))]
        return None if "://" in target else next(filter(self.exists, names), None)

    def reason_to_skip(self, name: str, head: dict[str, Any]) -> str:
        """Return why a page is not published; `[name].md` is a template of pages that a script makes."""
        return "generated" if "[" in name else super().reason_to_skip(name, head)

    def page(self, name: str, page: Page) -> Page | str:
        """Complete the page of a file; a landing page has the site's title, and shows its front matter."""
        head = self.head(name)
        if head.get("layout") == "home":
            text = with_lines_of_head(page.text, list(_shown_at_home(head)))
            page = replace(page, title=self.title or page.title, text=text)
        return super().page(name, page)

    def address(self, name: str, head: dict[str, Any]) -> str:  # noqa: ARG002
        """Return the address of a page; an index page has the address of its directory."""
        patterns = (new for rewrite, _ in self._patterns if rewrite and (new := rewrite(name)) is not None)
        name = self._rewritten.get(name) or next(patterns, name)
        if name.rpartition("/")[2] == "index.md":
            return name.removesuffix("index.md")
        return f"{name.removesuffix('.md')}{self._suffix}"

    def find(self, text: str, file: Path) -> Sequence[Directive]:
        """Find snippets, included files, containers, values of scripts and code in addresses."""
        directives = find_containers(text) if ":::" in text else []
        if "<<<" in text or "@include" in text:
            directives += _files(text, self.root, file)
        if "{{" in text:
            in_code = code_ranges(text)
            values = (match for match in _INTERPOLATION.finditer(text) if match["value"])
            directives += [Directive(*value.span()) for value in values if not in_code(value.start())]
        directives += [Directive(*code.span()) for code in _PLAYGROUND.finditer(text)]
        directives += [Directive(*mark.span()) for mark in _CODE_MARK.finditer(text) if "[!code " in text]
        return in_order(directives)


def _rewrite(source: str, target: str) -> Rewrite | None:
    """Return a function that rewrites the paths that match a pattern; None for other regular expressions.

    Only one parameter may stand for several directories or none, so that matching takes little time.
    """
    expressions, many = list[str](), 0
    for segment in map(_SEGMENT.fullmatch, source.strip("/").split("/", _MOST_SEGMENTS)):
        if segment is None or source.startswith("^"):
            return None
        name = f"p{segment['name']}" if segment["name"] else "any"
        several = "(?:/[^/]+)*" if segment["many"] in ("*", "+") else ""
        value = f"(?P<{name}>{'.*' if segment['any'] else f'[^/]+{several}'})"
        before, after = re.escape(segment["before"]), re.escape(segment["after"])
        expression = f"/{before}{value if segment['name'] or segment['any'] else ''}{after}"
        expressions.append(f"(?:{expression})?" if segment["many"] in ("*", "?") else expression)
        many += bool(segment["many"] or segment["any"])
    try:
        pattern = re.compile("".join(expressions), re.IGNORECASE)
    except re.error:  # two parameters have the same name
        return None

    def rewrite(path: str) -> str | None:
        match = pattern.fullmatch(f"/{path}")
        values = match.groupdict() if match else {}

        def value_of(parameter: re.Match[str]) -> str:
            value = values.get(f"p{parameter['name']}" if parameter["name"] else "any")
            return f"{parameter['slash']}{value}" if value else ""

        return _PARAMETER.sub(value_of, f"/{target}").lstrip("/") if match else None

    return rewrite if many <= 1 else None


def _shown_at_home(head: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a landing page: its name, text and tagline, its buttons, and its features."""
    hero, *lists = head.get("hero"), get(head, "hero", "actions"), head.get("features")
    parts = [part for parts in lists if isinstance(parts, list) for part in parts]
    for number, part in enumerate([hero, *parts]):
        keys = ("name", "title", "text", "details", "linkText", "tagline")
        texts = list(filter(None, (" ".join(text_of(part, key).split()) for key in keys)))
        yield from [f"- {': '.join(texts)}"] if number and texts else texts


def _entries(value: Any, base: str, sections: tuple[str, ...]) -> Iterator[Entry]:
    """Yield the links of a sidebar: a list of items, or several lists by the paths of their pages."""
    if len(sections) > _DEEPEST:
        return
    if isinstance(value, list):
        for item in value:
            yield from _entries(item, base, sections)
    elif isinstance(value, dict):
        base, items = text_of(value, "base") or base, value.get("items")
        text, link = text_of(value, "text"), text_of(value, "link")
        if link:
            yield base + link if base else link, text, (*sections, text) if items else sections
        if items:
            yield from _entries(items, base, (*sections, text) if text else sections)
        elif not text:
            for part in value.values():
                yield from _entries(part, base, sections)


def _files(text: str, root: Path, file: Path) -> Iterator[Directive]:
    in_code = code_ranges(text)
    for match in (*_SNIPPET.finditer(text), *_INCLUDE.finditer(text)):
        if in_code(match.start()):
            continue
        path, region = match["path"], match["region"]
        bases = (root,) if path.startswith("@") else (file.parent,)
        path = path.removeprefix("@").lstrip("/") if path.startswith("@") else path
        select = select_region(region, _START, _END) if region else None
        if match.re is _SNIPPET:
            language = re.search(r"[A-Za-z][\w+-]*", match["braces"] or "")
            title = f" {match['title'].strip()}" if match["title"] else ""
            code, prefix = (language[0] if language else "") + title, match["prefix"]
        else:
            code, prefix = None, ""
            if lines := match["lines"]:
                select = select_lines(lines.replace(",", ":"), ":")
        place = (*match.span(), path, bases)
        yield Directive(*place, select=select, code=code, prefix=prefix, nested=code is None, otherwise="")


class StarlightSite(Site):
    """A Starlight site in its default language, or in the one of `--locale`."""

    generator = "starlight"
    config_files = tuple(f"astro.config.{end}" for end in ("mjs", "ts", "js", "mts", "cjs"))
    signature = "starlight"
    anchors = "astro"
    options = ("locale",)

    def configure(self, config_file: Path) -> None:
        """Read the options of Starlight among the integrations."""
        config = self.read_javascript(config_file)
        listed, keys = config.get("integrations"), {"sidebar", "title", "locales", "defaultLocale"}
        integrations = listed if isinstance(listed, list) else []
        options = next((item for item in integrations if isinstance(item, dict) and keys & set(item)), {})
        self.root = self.directory / (text_of(config, "srcDir") or "src") / "content" / "docs"
        self.title = text_of(options, "title")
        self.set_logo(text_of(options, "logo", "src"), text_of(options, "favicon"))
        site, base = text_of(config, "site"), text_of(config, "base")
        self.url = f"{site.rstrip('/')}/{base.strip('/')}" if site else ""
        slash = self.book_file.options.trailing_slash
        self._slash = slash if slash is not None else text_of(config, "trailingSlash") != "never"
        self.choose_locale(options.get("locales"), text_of(options, "defaultLocale") or "root")
        self.list_pages(self._entries(options.get("sidebar"), ()))

    def _entries(self, value: Any, sections: tuple[str, ...]) -> Iterator[Entry]:
        if isinstance(value, Unknown) or len(sections) > _DEEPEST:
            self.notes.append("A part of the sidebar cannot be read without running the configuration.")
        for item in value if isinstance(value, list) else ():
            if isinstance(item, str):
                yield item, "", sections
            elif isinstance(item, dict):
                label, items = text_of(item, "label"), item.get("items")
                below = (*sections, label) if label else sections
                yield from self._entries(items, below)
                if folder := text_of(item, "autogenerate", "directory"):
                    start = self.root / self.locale
                    inside = is_inside(start / folder, self.root.resolve())
                    files = self._sorted((start / folder).rglob("*.md*")) if inside else []
                    yield from ((name.removeprefix(self.locale), "", below) for name in files)
                elif items is None and (target := text_of(item, "slug") or text_of(item, "link")):
                    yield target, label, sections

    def _sorted(self, files: Iterable[Path]) -> list[str]:
        """Sort files as Starlight does: by the order of a page or the lowest in a directory, then by slug."""
        orders, lowest = dict[str, float](), dict[str, float]()
        for name in (file.relative_to(self.root).as_posix() for file in files):
            order = get(self.head(name), "sidebar", "order")
            orders[name] = order if isinstance(order, int | float) else math.inf
            for folder in PurePosixPath(name).parents:
                lowest[f"{folder}"] = min(lowest.get(f"{folder}", math.inf), orders[name])

        def key(name: str) -> list[tuple[float, str]]:
            folders = [f"{folder}" for folder in reversed(PurePosixPath(name).parents)]
            keys = [(lowest[folder], self.address(f"{folder}/index.md", {})) for folder in folders]
            return [*keys, (orders[name], self.address(name, self.head(name)))]

        return sorted(orders, key=key)

    def file_of(self, target: str) -> str | None:
        """Return the file of a slug, a link or a path."""
        path = f"{self.locale}{target.strip('/')}"
        names = (f"{path}{end}" for end in ("", ".md", ".mdx", "/index.md", "/index.mdx"))
        names = (name.replace("//", "/").lstrip("/") for name in names)
        return None if "://" in target else next(filter(self.exists, names), None)

    def wants(self, name: str) -> bool:
        """Return whether a file is a page; the error page and names that begin with an underscore are not."""
        is_error = name.rpartition(".")[0] == f"{self.locale}404"
        hidden = is_error or any(part.startswith("_") for part in name.split("/"))
        return super().wants(name) and not hidden

    def address(self, name: str, head: dict[str, Any]) -> str:
        """Return the address of a page: its `slug`, or the slugs of the parts of its path."""
        slug = stated(head, "slug")
        if slug is None:
            parts = name.rpartition(".")[0].split("/")
            parts = parts[:-1] if parts[-1] == "index" else parts
            slug = "/".join(slugger("github")(part) for part in parts)
        return re.sub(r"/$", "", slug) + "/" * bool(slug and self._slash)

    def find(self, text: str, file: Path) -> Sequence[Directive]:
        """Find asides, which have a title by their type, and the pages that a page imports."""
        asides = find_containers(text) if ":::" in text else []
        in_code = code_ranges(text)
        for aside in _ASIDE.finditer(text):
            kind = _TYPE.search(aside["properties"])
            new = f'<Aside title="{(kind[1] if kind else "note").capitalize()}"{aside["properties"]}>'
            asides += [] if in_code(aside.start()) else [Directive(*aside.span("tag"), new=new)]
        return in_order([*asides, *DocusaurusIncludes(self.directory)(text, file)])
