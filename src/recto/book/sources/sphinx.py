"""Sphinx and Jupyter Book: `conf.py` (never run), `_toc.yml`, `myst.yml` and the toctrees of pages."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from itertools import islice
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import Any, ClassVar

from recto._util.markdown import code_fences
from recto._util.text import plural
from recto.book.parsing import MARKDOWN, MYST, RST, Format, format_of
from recto.book.parsing.directives import is_computed
from recto.book.parsing.frontmatter import split_front_matter
from recto.book.sources.autodoc import AutodocOptions, Code, content_of
from recto.book.sources.directory import Navigation, any_of, is_file
from recto.book.sources.docusaurus.javascript import get
from recto.book.sources.includes import Directive, code_ranges, in_order, whole_line
from recto.book.sources.literal_includes import (
    OPTION,
    embedded_rst,
    find_embedded,
    find_included,
    is_literal,
    labels_of,
    with_options,
)
from recto.book.sources.literals import read_literals
from recto.book.sources.options import UnreadableSite, is_inside, read_config
from recto.book.sources.references import References, page_title
from recto.book.sources.site import Entry, Site, html_address, text_of, texts_of
from recto.types.book import AnchorStyle, Page

_TOCTREE = re.compile(
    r"^(?P<indent>[ \t]*+)(?:\.\. toctree::[^\n]*+\n(?P<rst>(?:(?P=indent)[ \t][^\n]*+\n|[ \t]*+\n)*+)"
    r"|(?P<marks>`{3,}|:{3,})\{toctree\}[^\n]*\n(?P<myst>(?:(?![ \t]*(?:```|:::))[^\n]*\n)*+)"
    r"(?P=indent)(?P=marks)[ \t]*$)",
    re.MULTILINE,
)
_TITLED = re.compile(r"(?P<title>.*?)(?<![ \t])[ \t]*+<(?P<target>[^<>]+)>")
_AUTODOC = re.compile(r"^[ \t]*+(?:[*+-][ \t]++)?(?:\.\. |`{3,}\{|:{3,}\{)auto[a-z]+(?:::|\})", re.MULTILINE)
_RST_DIRECTIVE = re.compile(
    r"^(?P<indent>[ \t]*+)\.\. (?P<name>[a-z][\w.+-]*+(?::[\w.+-]++)*+)::[ \t]*+(?P<argument>[^\n]*+)",
    re.MULTILINE,
)
_MYST_DIRECTIVE = re.compile(r"\{(?P<name>[a-z][\w:.+-]*+)\}")
_OPTIONS = re.compile(r"^[ \t]*+:[\w-]++:[^\n]*+", re.MULTILINE)
_SUBSTITUTION = re.compile(r"(?<!`)(`+)(?!`)[^\n]{1,500}?(?<!`)\1(?!`)|\{\{[ \t]*(?P<name>\w+)[ \t]*\}\}")
_DEFINITION = re.compile(
    r"^\.\. (?:\|([^|\n]{1,200})\|[ \t]|_`?([^:`\n]{1,200})`?:)[^\n]*+(?:\n[ \t]++\S[^\n]*+)*+", re.MULTILINE
)
_DOCUMENT_SUFFIX = r"\.(?:rst|md|ipynb|txt)$"
_SYS_PATH = re.compile(r"\bsys\.path\.(?:insert|append)\([^\n]{0,300}?[\"']([^\"'\n]{1,300}+)[\"']")
_DIRHTML = re.compile(
    r"\bbuilder:[ \t]*[\"']?dirhtml\b|[ \t]-[bM][ \t]*dirhtml\b|^(?>.*?\bmake\b).*\bdirhtml\b", re.MULTILINE
)
_LARGEST = 1 << 20
_CHARGE = 64  # characters that each substitution adds to its own, to limit their number
_MOST_DEFINITIONS, _LONGEST_DEFINITION = 500, 2_000  # in `rst_prolog` and `rst_epilog`
_MOST_LISTED = 10_000
_MOST_ENTRIES = 100_000  # of the toctrees of all pages, which can list the same pages many times
_MOST_GLOBS = 1_000  # in the toctrees of all pages; each is compared with all files
_MOST_KEPT = 50  # expanded pages, each of which is read three times and has up to 1 MB
_FAR = 200  # characters that tell whether a directive holds text
_DEEPEST = 20


Tree = tuple[str, list[str]]
"""A toctree: its caption, and its entries."""


class _ReferringSite(Site):
    """A site whose pages show the titles that they refer to."""

    markdown = MYST
    suffixes: tuple[str, ...] = (".md", ".ipynb")
    _roles: Mapping[str, str] = {}
    _default_role = ""

    @cached_property
    def _references(self) -> References:
        return References(self._text, self._roles, self._default_role)

    def _text(self, document: str) -> str:
        name = self.file_of(document)
        return self._read(name) if name and not name.endswith(".ipynb") else ""

    def _read(self, name: str) -> str:
        try:
            return read_config(self.root / name, self.bounds, _LARGEST)
        except UnreadableSite:
            return ""

    def file_of(self, target: str) -> str | None:
        """Return the file of a document, which is listed without its suffix."""
        names = [target, *(target + suffix for suffix in self.suffixes)]
        return next((name for name in names if self.format_of(name) and self.exists(name)), None)

    def navigation(self, names: Sequence[str]) -> Navigation:
        """Order pages as the navigation does, and remember them for references to labels."""
        self._references.index([name.rpartition(".")[0] for name in names])
        return super().navigation(names)

    def page(self, name: str, page: Page) -> Page | str:
        """Complete the page of a file; what it shows of other pages is part of its revision."""
        completed = super().page(name, page)
        has_references = "`" in page.text or "[](" in page.text
        if not isinstance(completed, Page) or not has_references or name.endswith(".ipynb"):
            return completed
        references = tuple(self._references.words(name.rpartition(".")[0], page.text))
        seen = f"{page.revision}{references}" if references else ""
        revision = hashlib.sha256(seen.encode()).hexdigest() if seen else page.revision
        return replace(completed, references=references, revision=revision)


class SphinxSite(_ReferringSite):
    """A Sphinx project; the pages of its formats that Recto reads."""

    generator = "sphinx"
    config_files: ClassVar[tuple[str, ...]] = ("conf.py", "source/conf.py")
    anchors = "docutils"
    signature = r"^(?:extensions|html_theme|master_doc|root_doc|source_suffix)\s*="
    suffixes: tuple[str, ...] = (".rst", ".md", ".txt", ".ipynb")
    first = "index"
    _expanded: Callable[[str], Iterable[tuple[int, int, str]]] = staticmethod(lambda _: ())
    _external: Mapping[str, Sequence[Tree]] = {}
    _definitions: Mapping[str, str] = {}

    @classmethod
    def folder_of(cls, config_file: Path) -> Path:
        """Return the directory of the project, which may be above `source`."""
        is_below = config_file.parts[-2:] == ("source", "conf.py")
        return config_file.parents[1] if is_below else config_file.parent

    def configure(self, config_file: Path) -> None:
        """Read the literals of `conf.py`, and the toctrees of the pages from the first one on."""
        self.root = config_file.parent
        text = read_config(config_file, self.bounds)
        config = read_literals(text)
        self.set_options(config)
        code = Code(self._code_roots(text), self.bounds, _autodoc_options(config))
        self._expanded = lru_cache(_MOST_KEPT)(lambda text: list(code.expand(text)))
        self._unresolved = 0
        self._globs: dict[str, list[str]] = {}
        if "sphinx_external_toc" in texts_of(config.get("extensions")):
            toc = self.read_yaml(self.root / (text_of(config, "external_toc_path") or "_toc.yml"))
            self._external = _external_trees(toc)
            self.first = text_of(toc, "root") or self.first
            self.only_listed = config.get("external_toc_exclude_missing") is True
        self.list_pages(self._toctree())
        if self._unresolved:
            self.notes.append(
                f"{plural(self._unresolved, 'autodoc directive')} not resolved, because the repository does "
                "not have the code; to have these texts, index the built HTML or the address of the site."
            )

    def _code_roots(self, config: str) -> list[Path]:
        """Return the directories that may hold the documented code, as `conf.py` states them or as usual."""
        stated = [self.root / match[1] for match in _SYS_PATH.finditer(config)]
        above = [folder for folder in (self.root, *self.root.parents) if folder.is_relative_to(self.bounds)]
        usual = [folder / name for folder in above for name in ("", "src", "lib", "python")]
        return [folder for folder in map(Path.resolve, (*stated, *usual)) if is_inside(folder, self.bounds)]

    def format_of(self, name: str) -> Format | None:
        """Return the format of a file: a suffix that only the configuration names is reStructuredText."""
        return super().format_of(name) or (RST if name.lower().endswith(self.suffixes) else None)

    def set_options(self, config: dict[str, Any]) -> None:
        """Take over the options of `conf.py`."""
        self._has_folders = self._is_dirhtml()
        self.title = text_of(config, "html_title") or text_of(config, "project")
        self.url = text_of(config, "html_baseurl")
        self.first = text_of(config, "root_doc") or text_of(config, "master_doc") or "index"
        assets = (
            path.strip("/")
            for option in ("templates_path", "html_static_path", "html_extra_path")
            for path in texts_of(config.get(option))
        )
        self.left_out = (
            *texts_of(config.get("exclude_patterns")),
            "_build/**",
            *(f"{path}/**" for path in assets if path),
        )
        suffixes = config.get("source_suffix")
        stated = tuple(texts_of(list(suffixes) if isinstance(suffixes, dict) else suffixes))
        extensions = " ".join(texts_of(config.get("extensions")))
        parsed = (suffix for suffix, name in ((".md", "myst"), (".ipynb", "nb")) if name in extensions)
        self.suffixes = tuple(dict.fromkeys((*(stated or (".rst",)), *parsed)))  # the extensions add theirs
        is_smart = "smartquotes" in texts_of(config.get("myst_enable_extensions"))
        self._markdown_anchors: AnchorStyle = "docutils-smartquotes" if is_smart else "docutils"
        values = config.get("myst_substitutions")
        self._substitutions = values if isinstance(values, dict) else {}
        links = config.get("extlinks") if isinstance(config.get("extlinks"), dict) else {}
        captions = (
            {role: link[1] for role, link in links.items() if len(link) > 1}
            if isinstance(links, dict)
            else {}
        )
        self._roles = {role: text for role, text in captions.items() if text}
        self._default_role = text_of(config, "default_role")
        self._definitions = dict(islice(_definitions(config), _MOST_DEFINITIONS))

    def page(self, name: str, page: Page) -> Page | str:
        """Complete the page of a file."""
        completed = super().page(name, page)
        if isinstance(completed, Page) and completed.format != RST.name:
            completed = replace(completed, anchors=self._markdown_anchors)
        return completed

    def expands(self, name: str) -> bool:
        """Return whether included files are inserted into a page."""
        return not name.lower().endswith(".ipynb")

    def reason_to_skip(self, name: str, head: dict[str, Any]) -> str:  # noqa: ARG002
        """Return "": Sphinx has no drafts."""
        return ""

    def address(self, name: str, head: dict[str, Any]) -> str:  # noqa: ARG002
        """Return the address of a page: a file, or a directory as the builder `dirhtml` makes it."""
        stated = self.book_file.options.trailing_slash
        if not (self._has_folders if stated is None else stated):
            return html_address(name)
        return re.sub(r"(^|/)index/$", r"\1", f"{name.rpartition('.')[0]}/")

    def _is_dirhtml(self) -> bool:
        """Return whether Read the Docs builds directories, as the nearest of its configurations says."""
        above = [folder for folder in (self.root, *self.root.parents) if folder.is_relative_to(self.bounds)]
        files = (folder / f".readthedocs.{end}" for folder in above for end in ("yaml", "yml"))
        file = next((file for file in files if is_file(file)), None)
        return file is not None and _DIRHTML.search(read_config(file, self.bounds)) is not None

    def _toctree(self) -> Iterator[Entry]:
        """Yield the pages from the first one on; captions and pages with a toctree are sections."""
        seen, waiting, left = set[str](), [(self.first, tuple[str, ...]())], _MOST_ENTRIES
        while waiting and len(seen) <= _MOST_LISTED:
            document, sections = waiting.pop()
            name = self.file_of(document)
            if name is None or name in seen or len(sections) > _DEEPEST:
                continue
            seen.add(name)
            text = self._read(name)
            if "auto" in text:
                self._unresolved += len(_AUTODOC.findall(text)) - len(self._documented(name, text))
            trees = list(_toctrees(text)) if "toctree" in text else []
            trees += self._external.get(document, ())
            title = page_title(text) if trees and document != self.first else ""
            above = (*sections, title) if title else sections
            yield name, "", above
            below = (
                (target, (*above, caption) if caption else above)
                for caption, entries in trees
                for entry in entries
                for target in self._targets(entry, document)
            )
            added = list(islice(below, left))
            left -= len(added)
            waiting += reversed(added)

    def _targets(self, entry: str, document: str) -> list[str]:
        titled = _TITLED.fullmatch(entry)
        target = titled["target"] if titled else entry
        folder = PurePosixPath(document).parent
        path = target.lstrip("/") if target.startswith("/") else normpath(folder / target)
        if "*" not in path:
            return [re.sub(_DOCUMENT_SUFFIX, "", path)]
        if path not in self._globs and len(self._globs) < _MOST_GLOBS:
            matches, ends = any_of([path]), self.suffixes
            names = {name.rpartition(".")[0] for name in self._files if name.endswith(ends) and matches(name)}
            self._globs[path] = sorted(names)
        return [name for name in self._globs.get(path, ()) if name != document]

    @cached_property
    def _files(self) -> list[str]:
        """Return the files of the project; links are not followed, which may lead in circles."""
        folders = ((Path(folder).relative_to(self.root), names) for folder, _, names in os.walk(self.root))
        return [(folder / name).as_posix() for folder, names in folders for name in names]

    def find(self, text: str, file: Path) -> Sequence[Directive]:
        """Find the files that a page includes, and the names that MyST replaces."""
        is_markdown = "{{" in text and format_of(file.name) is MARKDOWN
        substituted = self._substituted(text) if is_markdown else ()
        documented = self._documented(file.name, text) if "auto" in text else ()
        defined = dict.fromkeys(new for mark, new in self._definitions.items() if mark in text)
        if defined and format_of(file.name) is not MARKDOWN:
            documented = [*documented, Directive(len(text), len(text), new="\n\n" + "\n".join(defined))]
        computed = _computed(file.name, text)
        return in_order([*find_included(self.root, text, file), *substituted, *documented, *computed])

    def _documented(self, name: str, text: str) -> list[Directive]:
        """Find the directives of autodoc whose code is in the repository."""
        found = [Directive(start, end, new=new) for start, end, new in self._expanded(text)]
        if not found or format_of(name) is not MARKDOWN:
            return found
        in_rst = embedded_rst(text)
        return [directive for directive in found if in_rst(directive.start)]

    def _substituted(self, text: str) -> Iterator[Directive]:
        """Find the names for which the configuration or the front matter has a text."""
        page_values = get(split_front_matter(text)[0], "myst", "substitutions")
        values = {**self._substitutions, **(page_values if isinstance(page_values, dict) else {})}
        in_code, added = code_ranges(text), 0
        for substitution in _SUBSTITUTION.finditer(text):
            value = values.get(substitution["name"]) if substitution["name"] else None
            if not isinstance(value, str | int | float) or in_code(substitution.start()):
                continue
            is_block = whole_line(text, *substitution.span())[2] is not None
            new = str(value).strip() if is_block else " ".join(str(value).split())
            added += len(new) + _CHARGE
            if added > _LARGEST:
                return
            yield Directive(*substitution.span(), new=new)


class JupyterBookSite(SphinxSite):
    """A Jupyter Book 1 with `_config.yml` and `_toc.yml`; pages that the table does not list are left out."""

    generator = "jupyter-book"
    config_files = ("_toc.yml",)
    signature = ""

    @classmethod
    def recognises(cls, config_file: Path) -> bool:
        """Return whether Jupyter Book builds the site, and not Sphinx with `sphinx_external_toc`."""
        has_config = config_file.with_name("_config.yml").is_file()
        return has_config or not SphinxSite.recognises(config_file.with_name("conf.py"))

    def configure(self, config_file: Path) -> None:
        """Read the configuration and the table of contents."""
        file = config_file.with_name("_config.yml")
        config = self.read_yaml(file) if file.is_file() else {}
        values = (config.get("parse"), get(config, "sphinx", "config"))
        self.set_options(
            {key: options[key] for options in values if isinstance(options, dict) for key in options}
        )
        self.suffixes = (".md", ".ipynb", ".rst")
        self.title = text_of(config, "title")
        self.url = text_of(config, "html", "baseurl") or self.url
        self.set_logo(text_of(config, "logo"))
        self.only_listed = config.get("only_build_toc_files") is not False
        self.list_pages(_contents(self.read_yaml(config_file), ()))


class MystSite(_ReferringSite):
    """A MyST project or Jupyter Book 2 with `myst.yml`; addresses are the names of files without folders."""

    generator = "myst"
    config_files = ("myst.yml",)
    anchors = "myst"

    def configure(self, config_file: Path) -> None:
        """Read the project and its table of contents."""
        config = self.read_yaml(config_file)
        project, site = config.get("project"), config.get("site")
        self.title = text_of(project, "title") or text_of(site, "title")
        self._folders = get(site, "options", "folders") is True
        self.left_out = ("_build/**", *texts_of(get(project, "exclude")))
        self.list_pages(_contents({"chapters": get(project, "toc")}, ()))
        self.only_listed = bool(self.sections)
        self._first = next(iter(self.sections), "")
        self._numbers: dict[str, int] = {}
        slugs = Counter[str]()
        for name in self.sections:
            slug = self._slug(name)
            self._numbers[name] = slugs[slug]
            slugs[slug] += 1

    def address(self, name: str, head: dict[str, Any]) -> str:  # noqa: ARG002
        """Return the address of a page; the first one is the home page, and equal ones are numbered."""
        if name == self._first:
            return ""
        slug, number = self._slug(name), self._numbers.get(name, 0)
        return f"{slug}-{number}" if number else slug

    def _slug(self, name: str) -> str:
        folder, slash, file = name.rpartition("/")
        parts = [
            re.sub(r"[^a-z0-9-]+", "-", re.sub(r"^\d+[-_.]", "", part.lower())).strip("-")
            for part in [*folder.split("/"), file.rpartition(".")[0]]
        ]
        path = "/".join(filter(None, parts)) if self._folders and slash else parts[-1]
        return path.removesuffix("/index")

    @cached_property
    def _labels(self) -> dict[str, str]:
        """The file of each label; it is read when a page embeds what has the label."""
        names = [name for name in self.sections if not name.endswith(".ipynb")]
        return {label: name for name in names for label in labels_of(self._read(name))}

    def find(self, text: str, file: Path) -> Sequence[Directive]:
        """Find the files and the labelled blocks that a page includes."""
        embedded = find_embedded(self.root, text, lambda label: self._labels.get(label, ""))
        return in_order([*find_included(self.root, text, file), *embedded])


def _definitions(config: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the marks by which pages use what the configuration defines for all, and the definitions."""
    for name in ("version", "release"):
        if value := " ".join(text_of(config, name).split()):
            yield f"|{name}|", f".. |{name}| replace:: {value}"
    for definition in _DEFINITION.finditer(
        "\n".join(text_of(config, f"rst_{at}") for at in ("prolog", "epilog"))
    ):
        if len(definition[0]) <= _LONGEST_DEFINITION:
            marks = [f"|{definition[1]}|"] if definition[1] else [f"{definition[2]}_", f"{definition[2]}`_"]
            yield from ((mark, definition[0]) for mark in marks)


def _toctrees(text: str) -> Iterator[Tree]:
    """Yield the caption and the entries of each toctree that is not in a literal block."""
    for tree in _TOCTREE.finditer(text):
        if tree["indent"] and is_literal(text, tree.start(), len(tree["indent"])):
            continue
        caption, entries = "", list[str]()
        body = tree["rst"] if tree["rst"] is not None else with_options(tree["myst"])
        for line in map(str.strip, body.split("\n")):
            if option := OPTION.fullmatch(line):
                caption = option["value"] if option["name"] == "caption" else caption
            elif line and line != "self" and "://" not in line:
                entries.append(line)
        yield caption, entries


def _external_trees(toc: dict[str, Any]) -> dict[str, list[Tree]]:
    """Return the toctrees that `sphinx_external_toc` adds to each document: their captions and entries."""
    trees: dict[str, list[Tree]] = {}
    waiting: list[tuple[str, dict[str, Any]]] = [(text_of(toc, "root"), toc)]
    while waiting:
        document, value = waiting.pop()
        groups = [value[key] for key in ("parts", "subtrees") if isinstance(value.get(key), list)]
        for group in (*(part for parts in groups for part in parts), value):
            lists = (get(group, key) for key in ("chapters", "sections", "entries"))
            items = [item for items in lists if isinstance(items, list) for item in items]
            entries = [text_of(item, "file") or text_of(item, "glob") for item in items]
            if any(entries):
                tree = (text_of(group, "caption"), [f"/{entry}" for entry in entries if entry])
                trees.setdefault(re.sub(_DOCUMENT_SUFFIX, "", document), []).append(tree)
            waiting += [(text_of(item, "file"), item) for item in items if text_of(item, "file")]
    return trees


def _computed(name: str, text: str) -> Iterator[Directive]:
    """Find the directives of which code makes the text."""
    is_markdown = format_of(name) is MARKDOWN
    for match in () if is_markdown else _RST_DIRECTIVE.finditer(text):
        indent = len(match["indent"])
        options, body, _ = content_of(text[match.start() : match.end() + _FAR], len(match[0]), indent)
        is_mark = bool(match["argument"]) and not options
        if is_computed(match["name"], body, is_mark) and not is_literal(text, match.start(), indent):
            yield Directive(match.start(), match.start(), computes=match["name"])
    for opening, closing in code_fences(text) if is_markdown else ():
        info = _MYST_DIRECTIVE.match(opening["info"])
        body = _OPTIONS.sub("", text[opening.end() : closing.start() if closing else None])
        if info and is_computed(info["name"], body):
            yield Directive(opening.start(), opening.start(), computes=info["name"])


def _autodoc_options(config: dict[str, Any]) -> AutodocOptions:
    """Return the options of autodoc; those of all directives may state `True` or a text."""
    stated = config.get("autodoc_default_options")
    defaults = stated.items() if isinstance(stated, dict) else ()
    return AutodocOptions(
        text_of(config, "autodoc_typehints") or "signature",
        text_of(config, "autodoc_member_order") or "alphabetical",
        config.get("autodoc_preserve_defaults") is True,
        config.get("autodoc_class_signature") == "separated",
        text_of(config, "autoclass_content") or "class",
        "sphinx.ext.napoleon" in texts_of(config.get("extensions")),
        {key: value if isinstance(value, str) else "" for key, value in defaults if value is not False},
    )


def _contents(value: Any, sections: tuple[str, ...]) -> Iterator[Entry]:
    """Yield the files of a table of contents; captions and files with others below are sections."""
    if len(sections) > _DEEPEST or not isinstance(value, dict):
        return
    file = text_of(value, "root") or text_of(value, "file")
    caption, title = text_of(value, "caption"), text_of(value, "title")
    keys = ("parts", "chapters", "sections", "children", "entries", "subtrees")
    below = [item for key in keys if isinstance(value.get(key), list) for item in value[key]]
    label = caption or (title if below else "")
    inner = (*sections, label) if label and not text_of(value, "root") else sections
    if file:
        yield file, title, inner
    for item in below:
        yield from _contents(item, inner)
