"""Sphinx and Jupyter Book: `conf.py` (never run), `_toc.yml`, `myst.yml` and the toctrees of pages."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import Any, ClassVar

from recto._util.text import plural
from recto.book.parsing import MARKDOWN, MYST, RST, Format, format_of
from recto.book.parsing.frontmatter import split_front_matter
from recto.book.parsing.markdown.headings import heading_texts
from recto.book.sources.docusaurus.javascript import get
from recto.book.sources.includes import (
    Directive,
    Select,
    code_ranges,
    in_order,
    select_between,
    select_lines,
    whole_line,
)
from recto.book.sources.options import UnreadableSite, read_config
from recto.book.sources.site import Entry, Site, html_address, text_of, texts_of

_TOCTREE = re.compile(
    r"^(?P<indent>[ \t]*)(?:\.\. toctree::[^\n]*\n(?P<rst>(?:(?P=indent)[ \t]+[^\n]*\n|[ \t]*\n)*)"
    r"|(?P<marks>`{3,}|:{3,})\{toctree\}[^\n]*\n(?P<myst>(?:(?![ \t]*(?:```|:::))[^\n]*\n)*+)"
    r"(?P=indent)(?P=marks)[ \t]*$)",
    re.MULTILINE,
)
_OPTION = re.compile(r":(?P<name>[\w-]+):[ \t]*(?P<value>.*)")
_TITLED = re.compile(r"(?P<title>.*?)[ \t]*<(?P<target>[^<>]+)>")
_LITERAL = re.compile(
    r"^(?P<prefix>[ \t]*)(?P<marks>`{3,}|:{3,})\{(?P<kind>literalinclude|include)\}"
    r"[ \t]*(?P<path>[^\s`]+)[ \t]*\n"
    r"(?P<options>(?:[ \t]*:[\w-]+:[^\n]*\n)*)[ \t]*(?P=marks)[ \t]*$",
    re.MULTILINE,
)
_RST_INCLUDE = re.compile(
    r"^(?P<prefix>[ \t]*)\.\. (?P<kind>literalinclude|include)::[ \t]+(?P<path>[^\s<]\S*)[ \t]*"
    r"(?P<options>(?:\n[ \t]+:[\w-]+:[^\n]*)*)$",
    re.MULTILINE,
)
_AUTODOC = re.compile(r"^[ \t]*(?:\.\. |`{3,}\{|:{3,}\{)auto[a-z]+(?:::|\})", re.MULTILINE)
_SUBSTITUTION = re.compile(r"(?<!`)(`+)(?!`)[^\n]{1,500}?(?<!`)\1(?!`)|\{\{[ \t]*(?P<name>\w+)[ \t]*\}\}")
_EDGES = {"start-at": 0, "start-after": 1, "end-at": 1, "end-before": 0}
"""The marks that begin and end a part, and the lines between a mark and the edge."""
_LARGEST = 1 << 20
_CHARGE = 64  # characters that each substitution adds to its own, to limit their number
_MOST_LISTED = 10_000
_DEEPEST = 20


class SphinxSite(Site):
    """A Sphinx project; the pages of its formats that Recto reads."""

    generator = "sphinx"
    config_files: ClassVar[tuple[str, ...]] = ("conf.py", "source/conf.py")
    anchors = "docutils"
    markdown = MYST
    signature = r"^(?:extensions|html_theme|master_doc|root_doc|source_suffix)\s*="
    suffixes: tuple[str, ...] = (".rst", ".md", ".txt", ".ipynb")
    first = "index"

    @classmethod
    def folder_of(cls, config_file: Path) -> Path:
        """Return the directory of the project, which may be above `source`."""
        is_below = config_file.parts[-2:] == ("source", "conf.py")
        return config_file.parents[1] if is_below else config_file.parent

    def configure(self, config_file: Path) -> None:
        """Read the literals of `conf.py`, and the toctrees of the pages from the first one on."""
        self.root = config_file.parent
        self.set_options(_literals(read_config(config_file, self.bounds)))
        self._autodoc = 0
        self.list_pages(self._toctree())
        if self._autodoc:
            self.notes.append(
                f"{plural(self._autodoc, 'autodoc directive')} not resolved, because that runs the "
                "documented code; to have these texts, index the built HTML or the address of the site."
            )

    def format_of(self, name: str) -> Format | None:
        """Return the format of a file: a suffix that only the configuration names is reStructuredText."""
        return super().format_of(name) or (RST if name.lower().endswith(self.suffixes) else None)

    def set_options(self, config: dict[str, Any]) -> None:
        """Take over the options of `conf.py`."""
        self.title = text_of(config, "html_title") or text_of(config, "project")
        self.url = text_of(config, "html_baseurl")
        self.first = text_of(config, "root_doc") or text_of(config, "master_doc") or "index"
        self.left_out = (*texts_of(config.get("exclude_patterns")), "_build/**")
        suffixes = config.get("source_suffix")
        stated = tuple(texts_of(list(suffixes) if isinstance(suffixes, dict) else suffixes))
        extensions = " ".join(texts_of(config.get("extensions")))
        parsed = (suffix for suffix, name in ((".md", "myst"), (".ipynb", "nb")) if name in extensions)
        self.suffixes = stated or (".rst", *parsed)
        values = config.get("myst_substitutions")
        self._substitutions = values if isinstance(values, dict) else {}

    def expands(self, name: str) -> bool:
        """Return whether included files are inserted into a page."""
        return not name.lower().endswith(".ipynb")

    def reason_to_skip(self, name: str, head: dict[str, Any]) -> str:  # noqa: ARG002
        """Return "": Sphinx has no drafts."""
        return ""

    def address(self, name: str, head: dict[str, Any]) -> str:  # noqa: ARG002
        """Return the address of a page: a file, or a directory as the builder `dirhtml` makes it."""
        if not self.book_file.options.trailing_slash:
            return html_address(name)
        return re.sub(r"(^|/)index/$", r"\1", f"{name.rpartition('.')[0]}/")

    def file_of(self, target: str) -> str | None:
        """Return the file of a document, which is listed without its suffix."""
        names = [target, *(target + suffix for suffix in self.suffixes)]
        return next((name for name in names if self.format_of(name) and self.exists(name)), None)

    def _toctree(self) -> Iterator[Entry]:
        """Yield the pages from the first one on; captions and pages with a toctree are sections."""
        seen, waiting = set[str](), [(self.first, tuple[str, ...]())]
        while waiting and len(seen) <= _MOST_LISTED:
            document, sections = waiting.pop()
            name = self.file_of(document)
            if name is None or name in seen or len(sections) > _DEEPEST:
                continue
            seen.add(name)
            text = self._read(name)
            self._autodoc += len(_AUTODOC.findall(text))
            trees = list(_toctrees(text)) if "toctree" in text else []
            title = _title(text) if trees and document != self.first else ""
            above = (*sections, title) if title else sections
            yield name, "", above
            below = [
                (target, (*above, caption) if caption else above)
                for caption, entries in trees
                for entry in entries
                for target in self._targets(entry, document)
            ]
            waiting += reversed(below)

    def _read(self, name: str) -> str:
        try:
            return read_config(self.root / name, self.bounds, _LARGEST)
        except UnreadableSite:
            return ""

    def _targets(self, entry: str, document: str) -> list[str]:
        titled = _TITLED.fullmatch(entry)
        target = titled["target"] if titled else entry
        folder = PurePosixPath(document).parent
        path = target.lstrip("/") if target.startswith("/") else normpath(folder / target)
        if "*" not in path:
            return [re.sub(r"\.(?:rst|md|ipynb|txt)$", "", path)]
        files: list[Path] = []
        with suppress(ValueError):  # not a glob, such as `a**`
            files += self.root.glob(path) if not path.startswith("..") else ()
        matches = (file.relative_to(self.root) for file in files if file.name.endswith(self.suffixes))
        return sorted({file.as_posix().rpartition(".")[0] for file in matches} - {document})

    def find(self, text: str, file: Path) -> Sequence[Directive]:
        """Find the files that a page includes, and the names that MyST replaces."""
        is_markdown = "{{" in text and format_of(file.name) is MARKDOWN
        substituted = self._substituted(text) if is_markdown else ()
        return in_order([*_included(self.root, text, file), *substituted])

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


class MystSite(Site):
    """A MyST project or Jupyter Book 2 with `myst.yml`; addresses are the names of files without folders."""

    generator = "myst"
    config_files = ("myst.yml",)
    suffixes = (".md", ".ipynb")
    markdown = MYST

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

    def address(self, name: str, head: dict[str, Any]) -> str:  # noqa: ARG002
        """Return the address of a page; the first one is the home page."""
        if name == self._first:
            return ""
        folder, slash, file = name.rpartition("/")
        parts = [
            re.sub(r"[^a-z0-9-]+", "-", re.sub(r"^\d+[-_.]", "", part.lower())).strip("-")
            for part in [*folder.split("/"), file.rpartition(".")[0]]
        ]
        return "/".join(filter(None, parts)) if self._folders and slash else parts[-1]

    def find(self, text: str, file: Path) -> Sequence[Directive]:
        """Find the files that a page includes."""
        return _included(self.root, text, file)


def _literals(source: str) -> dict[str, Any]:
    """Return the names that a Python file assigns literals to; nothing is run."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    values: dict[str, Any] = {}
    for node in tree.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        with suppress(ValueError, TypeError, RecursionError, MemoryError):  # it is not a literal
            value = ast.literal_eval(node.value)
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            values |= {target.id: value for target in targets if isinstance(target, ast.Name)}
    return values


def _toctrees(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the caption and the entries of each toctree."""
    for tree in _TOCTREE.finditer(text):
        caption, entries = "", list[str]()
        body = (
            tree["rst"]
            if tree["rst"] is not None
            else re.sub(r"\A[ \t]*---\n(.*?)\n[ \t]*---\n", _as_options, tree["myst"], flags=re.DOTALL)
        )
        for line in map(str.strip, body.split("\n")):
            if option := _OPTION.fullmatch(line):
                caption = option["value"] if option["name"] == "caption" else caption
            elif line and line != "self" and "://" not in line:
                entries.append(line)
        yield caption, entries


def _as_options(head: re.Match[str]) -> str:
    """Return the YAML head of a directive as options."""
    return "".join(f":{line.replace(':', ':  ', 1)}\n" for line in head[1].split("\n"))


def _title(text: str) -> str:
    """Return the first heading of a page in Markdown or reStructuredText."""
    heading = re.search(
        r"^# +(?P<atx>[^\n]+)|^(?P<rst>[^\s:.`][^\n]*)\n[=\-~^*#\"]{3,}[ \t]*$", text, re.MULTILINE
    )
    return heading_texts((heading["atx"] or heading["rst"]).strip())[0] if heading else ""


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


def _included(root: Path, text: str, file: Path) -> Sequence[Directive]:
    """Return the directives of a page that include a file."""
    directives = []
    is_rst = format_of(file.name) is not MARKDOWN
    for match in (_RST_INCLUDE if is_rst else _LITERAL).finditer(text) if "include" in text else ():
        options = {option["name"]: option["value"].strip() for option in _OPTION.finditer(match["options"])}
        is_code = match["kind"] == "literalinclude" or bool({"code", "literal"} & set(options))
        language = options.get("language") or options.get("code") or ""
        select = _selected(match["kind"], options)
        directives.append(
            Directive(
                *match.span(),
                match["path"].lstrip("/"),
                (root if match["path"].startswith("/") else file.parent,),
                select=partial(_rst_code, select, language) if is_rst and is_code else select,
                code=language if is_code and not is_rst else None,
                prefix=match["prefix"],
                nested=not is_code,
                otherwise="",
            )
        )
    return directives


def _rst_code(select: Select | None, language: str, text: str) -> str | None:
    """Return a part of a file as a code block of reStructuredText."""
    part = select(text) if select else text
    if part is None:
        return None
    return f".. code-block:: {language}\n\n" + textwrap.indent(part.strip("\n"), "   ")


def _selected(kind: str, options: dict[str, str]) -> Select | None:
    if kind == "literalinclude":
        return partial(_code_part, options)
    if lines := options.get("lines"):
        return select_lines(lines, "-")
    return select_between(options.get("start-after", ""), options.get("end-before", ""))


def _code_part(options: dict[str, str], text: str) -> str | None:
    """Return the part of a file of code that options select; None if the file does not have it."""
    lines = (_python_object(name, text) if (name := options.get("pyobject")) else text).split("\n")
    for option, more in _EDGES.items():
        if not (mark := options.get(option)):
            continue
        first = int(option == "end-before")  # Sphinx does not search the first line for it
        index = next((index for index, line in enumerate(lines[first:], first) if mark in line), None)
        if index is None:
            return None
        lines = lines[index + more :] if option.startswith("start") else lines[: index + more]
    part = textwrap.dedent("\n".join(lines)).strip("\n")
    return (select_lines(options["lines"], "-")(part) if options.get("lines") else part) or None


def _python_object(name: str, text: str) -> str:
    """Return the code of a class or function such as `Tower.climb`, by indentation; "" if there is none.

    Parsing the file would take long for a hostile one, and fail for another version of Python.
    """
    code, inside = "", text
    for step in name.split(".", _DEEPEST):
        definition = rf"^([ \t]*)(?:async[ \t]+def|def|class)[ \t]+{re.escape(step)}\b.*\n?"
        heads = list(re.finditer(definition, inside, re.MULTILINE))
        if not heads:
            return ""
        head = min(heads, key=lambda head: len(head[1]))  # the outermost one
        outside = rf"^(?![ \t]{{{len(head[1]) + 1}}}|[ \t]*$|[ \t]*[)\]}}])"
        outer = re.compile(outside, re.MULTILINE).search(inside, head.end())
        start, end = head.start(), outer.start() if outer else len(inside)
        while inside[(line := inside.rfind("\n", 0, max(start - 1, 0)) + 1) : start].lstrip().startswith("@"):
            start = line
        code, inside = inside[start:end], inside[head.end() : end]
    return code
