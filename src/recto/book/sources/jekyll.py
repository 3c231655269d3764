"""Jekyll: pages and collections with front matter, permalinks, Liquid tags and kramdown's attributes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from recto.book.parsing.frontmatter import stated
from recto.book.sources.directory import Navigation
from recto.book.sources.includes import Directive, code_ranges, in_order
from recto.book.sources.options import read_config
from recto.book.sources.site import Entry, Site, text_of, texts_of
from recto.types.book import Page

_DEEPEST = 10  # parents of a page
_STYLES = {"pretty": "/", "none": ":output_ext", "date": ":output_ext", "ordinal": ":output_ext"}
_PROJECT_FILES = frozenset({"code_of_conduct", "contributing", "license", "pull_request_template", "support"})
_LIQUID = re.compile(
    r"\{%-?\s*+(?P<tag>\w++)(?P<arguments>(?:[^%{}-]|%(?!\})|-(?!%\})){0,1000}+)-?%\}"
    r"|\{\{-?(?P<output>(?:[^{}-]|-(?!\}\})){0,500}+)-?\}\}"
)
_BLOCKS = ("raw", "comment", "highlight")
_SILENT = ("assign", "break", "capture", "comment", "continue", "else", "elsif", "raw", "seo")
_ADDRESSES = ("page.url", "site.baseurl", "site.github.url", "site.url")
_ARGUMENT = re.compile(r"(?<![\w-])([\w-]++)[ \t]*+=[ \t]*+(?:\"([^\"]*)\"|'([^']*)')")
_SHOWN = frozenset({"alt", "caption", "content", "description", "text", "title"})
_QUOTED = re.compile(r"\s*(?:\"([^\"]*)\"|'([^']*)')")
_ATTRIBUTES = re.compile(  # below a heading, below an item that the table of contents replaces, or elsewhere
    r"(?:(?P<heading>^#{1,6} [^\n]*)\n|(?P<item>^(?:[-*+]|\d+\.) [^\n]*\n)(?=\{:[^{}\n]*\btoc\b)"
    r"|(?P<line>\n))?(?P<braces>\{::?[^{}\n]{1,500}+\}(?!`))",
    re.MULTILINE,
)
_AFTER_HTML = re.compile(  # a tag after which Markdown is read
    r"^(?:</\w++>[ \t]*+\n(?=[`~#]|\{%)|<\w++[^<>\n]{0,200}?\smarkdown=[^<>\n]{1,200}>[ \t]*+\n(?=\S))",
    re.MULTILINE,
)
_ID = re.compile(r"(?:^|\s)#([\w:.-]+)")


class JekyllSite(Site):
    """A Jekyll site: its pages, and the collections that it publishes; posts are not pages of a book."""

    generator = "jekyll"
    config_files = ("_config.yml", "_config.yaml")
    signature = (  # Hexo has a file of this name, too, with a `source_dir`
        r"\A(?![\s\S]*^source_dir[ \t]*:)[\s\S]*^(?:theme|remote_theme|baseurl|kramdown|plugins|collections"
        r"|defaults|markdown|permalink)[ \t]*:"
    )
    suffixes = (".md", ".markdown", ".mkd")

    def configure(self, config_file: Path) -> None:
        """Read what decides which files are pages, where they are published, and their order."""
        self._config = config = self.read_yaml(config_file)
        self.root = self.directory / (text_of(config, "source") or ".")
        self.title = text_of(config, "title")
        url, base = text_of(config, "url").rstrip("/"), text_of(config, "baseurl").strip("/")
        self.url = f"{url}/{base}" if url else ""
        self.set_logo(text_of(config, "logo"))
        self.left_out = [*(path.strip("/") for path in texts_of(config.get("exclude"))), "vendor"]
        collections = config.get("collections")
        folder = text_of(config, "collections_dir")
        self._collections = {
            f"{folder}/_{name}/".lstrip("/"): (str(name), text_of(options, "permalink"))
            for name, options in (collections.items() if isinstance(collections, dict) else ())
            if name != "posts" and isinstance(options, dict) and options.get("output") is True
        }
        gems = self.directory / "Gemfile"
        # Without a Gemfile, GitHub builds the site, with its own plugins.
        self._needs_head = gems.is_file() and "github-pages" not in read_config(gems, self.bounds)

    def navigation(self, names: Sequence[str]) -> Navigation:
        """Order pages as they state it in their front matter, for the theme Just the Docs."""
        self.list_pages(self._entries(names))
        return super().navigation(names)

    def _entries(self, names: Sequence[str]) -> Iterator[Entry]:
        heads = {name: self.head(name) for name in names}
        heads = {name: head for name, head in heads.items() if {"nav_order", "parent"} & set(head)}
        titled: dict[str | None, list[dict[str, Any]]] = {}
        for head in heads.values():
            titled.setdefault(stated(head, "title"), []).append(head)
        paths = {name: _path(head, titled) for name, head in heads.items()}
        for name in sorted(heads, key=lambda name: [*map(_order, paths[name])]):
            titles = [stated(head, "title") or "" for head in paths[name]]
            yield name, "", tuple(titles[:-1] or titles)

    def _may_be_page(self, name: str) -> bool:
        inner = name.removeprefix(self._collection(name))
        return not any(part.startswith(("_", ".", "#", "~")) for part in inner.split("/"))

    def enters(self, folder: str) -> bool:
        """Return whether a directory may hold pages: with an underscore, only a collection may."""
        is_above = any(path.startswith(f"{folder}/") for path in self._collections)
        return super().enters(folder) and (is_above or self._may_be_page(folder))

    def wants(self, name: str) -> bool:
        """Return whether a file is a page."""
        return super().wants(name) and self._may_be_page(name)

    def page(self, name: str, page: Page) -> Page | str:
        """Complete the page of a file; without the plugins of GitHub, it needs front matter."""
        stem = name.rpartition("/")[2].rpartition(".")[0].lower()
        needs_head = self._needs_head or stem in _PROJECT_FILES or self._collection(name)
        if needs_head and not page.text.startswith(("---", "\ufeff---")):
            return "unpublished"
        return super().page(name, page)

    def reason_to_skip(self, name: str, head: dict[str, Any]) -> str:  # noqa: ARG002
        """Return why a page is not published, or ""."""
        if head.get("published") is False:
            return "unpublished"
        return "redirect" if "redirect_to" in head else ""

    def address(self, name: str, head: dict[str, Any]) -> str:
        """Return the address of a page: its permalink, or the pattern of its collection or of the site."""
        style = text_of(self._config, "permalink") or "date"
        end = _STYLES.get(style) or re.findall(r"/$|:output_ext$|$", style)[0]
        folder, _, file = name.rpartition("/")
        stem, kind = file.rpartition(".")[0], "pages"
        first = (f"{folder}/index.{suffix}".lstrip("/") for suffix in ("md", "html"))
        is_index = stem == "index" or (stem.lower() == "readme" and not any(map(self.exists, first)))
        pattern = "/:path/" if is_index else f"/:path/:basename{end}"
        if collection := self._collection(name):
            kind, pattern = self._collections[collection]
            folder = name[len(collection) :].rpartition(".")[0]
            pattern = pattern or f"/:collection/:path{end}"
        pattern = stated(head, "permalink") or self._default_permalink(name, kind) or pattern
        slug = stated(head, "slug") or stem
        values = dict.fromkeys(("name", "title", "slug"), slug)
        values |= {"path": folder, "basename": stem, "output_ext": ".html", "collection": kind}
        path = re.sub(r":(\w+)", lambda key: values.get(key[1], ""), pattern)
        return re.sub(r"//+", "/", path).lstrip("/")

    def _collection(self, name: str) -> str:
        """Return the directory of the collection that a file is in, or ""."""
        return next((folder for folder in self._collections if name.startswith(folder)), "")

    def _default_permalink(self, name: str, kind: str) -> str:
        """Return the permalink that the configuration states for a directory, the nearest one."""
        defaults, stated_for = self._config.get("defaults"), dict[str, str]()
        for default in defaults if isinstance(defaults, list) else ():
            path, type = text_of(default, "scope", "path").strip("/"), text_of(default, "scope", "type")
            if type in ("", kind) and (not path or f"{name}/".startswith(f"{path}/")):
                stated_for[path] = text_of(default, "values", "permalink")
        return next((stated_for[path] for path in sorted(stated_for, key=len)[::-1] if stated_for[path]), "")

    def find(self, text: str, file: Path) -> Sequence[Directive]:
        """Find Liquid tags and the attributes of kramdown, which are not shown."""
        return in_order([*self._liquid(text, file), *_attributes(text)])

    def _liquid(self, text: str, file: Path) -> Iterator[Directive]:
        """Yield the tags of Liquid: included files, code, and the text that others show."""
        start, until = 0, ""
        for match in _LIQUID.finditer(text):
            tag, arguments = match["tag"] or "", match["arguments"] or ""
            if until and tag != until:
                continue
            start, until = (match.start(), f"end{tag}") if tag in _BLOCKS else (start, "")
            path, output = (
                next(iter(arguments.split()), ""),
                (match["output"] or "").partition("|")[0].strip(),
            )
            if tag == "endcomment":
                yield Directive(start, match.end())
            elif tag in ("highlight", "endhighlight"):
                yield Directive(*match.span(), new=f"```{path}")
            elif tag in ("include", "include_relative") and path.endswith(self.suffixes):
                base = file.parent if tag == "include_relative" else self.root / "_includes"
                yield Directive(*match.span(), path, (base,), otherwise="")
            elif tag in ("link", "post_url"):
                yield Directive(*match.span(), new=path)
            elif tag != "comment":
                texts = [
                    double or single for key, double, single in _ARGUMENT.findall(arguments) if key in _SHOWN
                ]
                new = ". ".join(filter(None, texts)) or self._value(match["output"] or "", file)
                name = f"include {path}" if tag.startswith("include") else tag or f"{{{{ {output} }}}}"
                is_lost = not (new or tag in _SILENT or output in _ADDRESSES or tag.startswith("end"))
                yield Directive(*match.span(), new=new, computes=name if is_lost else "")

    def _value(self, output: str, file: Path) -> str:
        """Return the value of an output tag, if it is a literal, or a text of the site or of the page."""
        if quoted := _QUOTED.match(output):
            return quoted[1] or quoted[2] or ""
        scope, _, key = output.partition("|")[0].strip().partition(".")
        if scope == "page" and file.is_relative_to(self.root):
            return stated(self.head(file.relative_to(self.root).as_posix()), key) or ""
        return text_of(self._config, *key.split(".")) if scope == "site" and key != "baseurl" else ""


def _attributes(text: str) -> Iterator[Directive]:
    """Yield where HTML ends, and attributes of kramdown; an id in the line after a heading is its id."""
    in_code = code_ranges(text)
    for match in _AFTER_HTML.finditer(text):
        if not in_code(match.start()):  # in kramdown, a closing tag ends the block of HTML
            yield Directive(match.end(), match.end(), new="\n")
    for match in _ATTRIBUTES.finditer(text):
        if in_code(match.start("braces")):
            continue
        stated_id = _ID.search(match["braces"])
        new = f" {{#{stated_id[1]}}}\n" if match["heading"] and stated_id else "\n" * bool(match["line"])
        starts = (match.end("heading"), match.start("item"), match.start("line"), match.start("braces"))
        yield Directive(next(start for start in starts if start >= 0), match.end(), new=new)


def _path(head: dict[str, Any], titled: Mapping[str | None, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the front matter of a page after that of its parents, which it names by their titles."""
    path = [head]
    while (parent := stated(path[0], "parent")) and len(path) < _DEEPEST:
        named = titled.get(parent, [])
        nearest = [page for page in named if page.get("parent") == path[0].get("grand_parent")] or named
        if not nearest:
            break
        path.insert(0, nearest[0])
    return path


def _order(head: dict[str, Any]) -> tuple[int, float, str]:
    """Return the place of a page among its siblings: by `nav_order`, a number or a text, else by title."""
    place = head.get("nav_order")
    if isinstance(place, int | float):
        return 0, float(place), ""
    return (1, 0.0, str(place)) if place else (2, 0.0, stated(head, "title") or "")
