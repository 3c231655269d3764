"""Parse reStructuredText of docutils and Sphinx; nothing in a page is executed, and no other file is read.

Sphinx's own directives and roles are not loaded: a directive becomes its title and content, a role its words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock
from typing import Any

from docutils import nodes
from docutils.core import publish_doctree
from docutils.parsers.rst import Directive, Parser, directives
from docutils.readers import standalone
from docutils.transforms import misc, references

from recto._util.markdown import MOST_LINES, escaped_tags
from recto.book.parsing.directives import (
    CODE,
    CONTAINERS,
    DIRECTIVE_TITLES,
    DROPPED,
    MODULES,
    OF_DOCUTILS,
    VERSIONS,
    looks_like_code,
)
from recto.book.parsing.objects import (
    Scope,
    describes_object,
    group_fields,
    is_object,
    short_names,
    signature,
)
from recto.book.parsing.rendered import TextBlock, code_span, fenced, indented, joined, sections, table
from recto.book.parsing.rst_inline import make_inliner
from recto.types.book import Document, Page

_LONGEST_LINE = 20_000  # characters; docutils drops the page of a longer one
_SETTINGS = {
    "_disable_config": True,
    "auto_id_prefix": "id",  # as Sphinx does
    "doctitle_xform": False,
    "docinfo_xform": False,
    "file_insertion_enabled": False,
    "halt_level": 5,
    "line_length_limit": _LONGEST_LINE,
    "raw_enabled": False,
    "report_level": 5,
    "sectsubtitle_xform": False,
    "smart_quotes": False,
    "syntax_highlight": "none",
    "warning_stream": "",
}
_MOST_SUBSTITUTIONS = 2_000  # references on a page; a definition may repeat another one many times
_SUBSTITUTED = re.compile(r"\|(?!\s)[^|]{1,1000}(?<!\s)\|")  # not the cells of a table
_DEEPEST = 40
_WITHOUT_ARGUMENT = frozenset({"parsed-literal", "productionlist"})
_INVISIBLE = frozenset({"title", "comment", "substitution_definition", "raw", "pending", "transition"})
_DOCTEST_OPTION = re.compile(r"(?<![ \t])[ \t]*+#[ \t]{0,9}doctest:.+|^[ \t]*+<BLANKLINE>", re.MULTILINE)
_lock = Lock()


def read_rst(page: Page) -> Document:
    """Parse a page; its title is its first heading."""
    text = page.text.removeprefix("\ufeff").replace("\0", "\ufffd")
    blocks = rst_blocks(text, Scope(), dict(page.references))
    title = next((block.lines[0] for block in blocks if block.kind == "heading"), "") or page.title
    return Document(title, tuple(sections(blocks, title)))


def rst_blocks(text: str, scope: Scope, references: Mapping[str, str]) -> list[TextBlock]:
    """Return the rendered blocks of a text; `scope` is that of the objects, and is changed."""
    if text.count("\n") > MOST_LINES:
        raise ValueError(f"it has more than {MOST_LINES} lines (split it into several pages)")
    if any(len(line) > _LONGEST_LINE for line in text.splitlines()):
        raise ValueError(f"it has a line of more than {_LONGEST_LINE} characters (wrap it)")
    if "replace::" in text and len(_SUBSTITUTED.findall(text)) > _MOST_SUBSTITUTIONS:
        raise ValueError(f"it has more than {_MOST_SUBSTITUTIONS} substitutions")
    try:
        blocks = _Renderer().children(_doctree(text, scope, references), 0)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return _with_lines(blocks, text)


def _with_lines(blocks: list[TextBlock], text: str) -> list[TextBlock]:
    """Return the blocks with their first and last lines in the file; a block ends before the next one."""
    lines = [*text.split("\n"), ""]
    first, starts = 1, list[int]()
    for block in blocks:
        first = max(first, min(block.source[0], len(lines) - 1))
        starts.append(first)
    numbered = []
    for block, start, end in zip(blocks, starts, [*starts[1:], len(lines)], strict=False):
        last = max(start, end - 1)
        if block.kind == "paragraph":  # comments and dropped directives may follow
            last = min(last, start + len(block.lines) - 1)
        while last > start and not lines[last - 1].strip():
            last -= 1
        numbered.append(replace(block, source=(start, last)))
    return numbered


def _doctree(text: str, scope: Scope, words: Mapping[str, str]) -> Any:
    """Parse a page with docutils."""
    with _own_directives():
        settings = {**_SETTINGS, "scope": scope}
        return publish_doctree(
            text, reader=_Reader(), parser=Parser(inliner=make_inliner(words)), settings_overrides=settings
        )


@contextmanager
def _own_directives() -> Iterator[None]:
    """Let docutils find our directives; it has no other way to treat names that it does not know."""
    with _lock:
        original = directives.directive

        def find(name: str, language: Any, document: Any) -> Any:
            lower = name.lower()
            return original(name, language, document) if lower in OF_DOCUTILS else (_AnyDirective, [])

        directives.directive = find
        try:
            yield
        finally:
            directives.directive = original


class _Reader(standalone.Reader):  # type: ignore[misc]
    """Leaves out transforms that take quadratic time; `_Renderer` does what they do to a text."""

    def get_transforms(self) -> list[Any]:
        """Return the transforms."""
        left_out = (references.DanglingReferences, misc.Transitions)
        return [each for each in super().get_transforms() if each not in left_out]


class _AnyOptions(dict[str, Any]):
    """Options of any name, with any value."""

    def __bool__(self) -> bool:
        return True

    def __missing__(self, _: str) -> Any:
        return lambda value: value or ""


class _AnyDirective(Directive):  # type: ignore[misc]
    """Reads every directive that docutils does not read as Sphinx does."""

    has_content = True
    optional_arguments = 1
    final_argument_whitespace = True
    option_spec = _AnyOptions()

    def run(self) -> list[Any]:  # noqa: PLR0911 - a table
        """Return the nodes of the directive."""
        name, argument = self.name.lower(), self.arguments[0] if self.arguments else ""
        if name in MODULES:
            self._scope.module = "" if argument == "None" else argument
            is_stated = name.endswith("currentmodule") or {"noindex", "no-index"} & set(self.options)
            return [] if is_stated else [nodes.target("", "", ids=[f"module-{argument}"]), *self._nested()]
        if name in DROPPED or name.startswith("auto") or (name == "only" and "html" not in argument):
            return self._paragraphs(self.options.get("alt", "") if name == "image" else "")
        if name in CODE:
            return self._code(name, argument)
        if name == "program":
            self._scope.program = "" if argument == "None" else "-".join(argument.split())
            return []
        if is_object(name):
            return self._object(argument, name)
        if name == "math":
            text = "\n".join((argument, *self.content)).strip()
            labels = [value for key, value in self.options.items() if key in ("label", "name") and value]
            block = nodes.math_block(text, text, ids=[f"equation-{label}" for label in labels])
            return [self._at_line(block)]
        if name.removeprefix("prf:") not in CONTAINERS and looks_like_code(name, "\n".join(self.content)):
            return [*self._paragraphs(argument), *self._code(name, "")]
        title = "" if name == "only" else argument
        rest = ""
        if words := DIRECTIVE_TITLES.get(name):
            version, _, after = " ".join(argument.split()).partition(" ")
            title, rest = (f"{words} {version}", after) if name in VERSIONS else (words, argument)
        return [*self._paragraphs(f"**{title}**" if words and title else title, rest), *self._nested()]

    def _at_line(self, node: Any) -> Any:
        """Return a node with the line of the directive."""
        node.line = self.lineno
        return node

    def _code(self, name: str, argument: str) -> list[Any]:
        caption, lines = self.options.get("caption", ""), list(self.content)
        if name in _WITHOUT_ARGUMENT or (name == "graphviz" and not lines):
            lines = [*argument.split("\n"), *[""] * bool(argument and lines), *lines] if argument else lines
            argument = ""
        text = "\n".join(lines)
        parsed = (
            self.state.inline_text(text, self.lineno)[0] if name == "parsed-literal" else [nodes.Text(text)]
        )
        language = (argument.split() or [""])[0] if name != "mermaid" else name
        block = nodes.literal_block(text, "", *parsed, classes=["code", language])
        return [*self._paragraphs(caption), *([self._at_line(block)] if lines else [])]

    @property
    def _scope(self) -> Scope:
        """The module and the classes that names belong to here."""
        scope: Scope = self.state.document.settings.scope
        return scope

    def _object(self, argument: str, kind: str) -> list[Any]:
        """Return the signatures of a described object, which are its anchors, and its text."""
        parts: list[Any] = []
        name, scope = "", self._scope
        above, directive, module = scope.classes, scope.directive, scope.module
        for line in filter(None, map(str.strip, argument.replace("\\\n", "").split("\n"))):
            shown = signature(kind, line, self.options, scope)
            paragraph = nodes.paragraph("", "", nodes.literal(shown.text, shown.text))
            paragraph["ids"] = shown.anchors
            parts.append(self._at_line(paragraph))
            name = shown.name
        scope.classes, scope.module = name.split(".") if name else above, self.options.get("module", module)
        nested = self._nested()
        scope.classes, scope.directive, scope.module = above, directive, module
        stated = (self.options.get(key, "") if kind == "confval" else "" for key in ("type", "default"))
        texts = [f"{label}: {text}" for label, text in zip(("Type", "Default"), stated, strict=True) if text]
        return [*parts, *self._paragraphs(*texts), *nested]

    def _paragraphs(self, *texts: str) -> list[Any]:
        """Return paragraphs of the texts that are not empty."""
        parsed = ((text, self.state.inline_text(text, self.lineno)[0]) for text in filter(None, texts))
        return [self._at_line(nodes.paragraph(text, "", *inline)) for text, inline in parsed]

    def _nested(self) -> list[Any]:
        node = nodes.container()
        self.state.nested_parse(self.content, self.content_offset, node, match_titles=False)
        return list(node.children)


class _Renderer:
    """Renders a tree of docutils as blocks."""

    def __init__(self) -> None:
        self._pending: list[str] = []
        self._depth = 0

    def children(self, node: Any, level: int) -> list[TextBlock]:
        """Return the blocks of a node's children."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ValueError(f"it is nested more than {_DEEPEST} levels deep")
        blocks = [block for child in node.children for block in self._block(child, level)]
        self._depth -= 1
        return blocks

    def _block(self, node: Any, level: int) -> list[TextBlock]:
        kind = node.tagname
        if kind == "target":
            is_alias = "refuri" in node or node.indirect_reference_name
            self._pending += [] if is_alias else node.get("ids", [])
            return []
        is_metadata = kind == "field_list" and level == 0 and not describes_object(_field_names(node))
        if kind in _INVISIBLE or is_metadata:
            return []
        line = node.line or next((inner.line for inner in node.findall() if getattr(inner, "line", None)), 0)
        anchors = [*self._pending, *sorted(node.get("ids", []), key=_is_numbered)]
        self._pending = []
        render = getattr(self, f"_{kind}", None)
        line -= kind == "section" and line > 1  # docutils states the line of the underline
        blocks: list[TextBlock] = render(node, level) if render else self._other(node, level)
        if blocks:
            blocks[0].source = (line or blocks[0].source[0], 0)
            labels = [(0, name) for name in dict.fromkeys(anchors)]
            blocks[0].anchors = [*labels, *(anchor for anchor in blocks[0].anchors if anchor not in labels)]
        else:
            self._pending = anchors
        return blocks

    def _section(self, node: Any, level: int) -> list[TextBlock]:
        title, names = node.children[0], sorted(node.get("ids", []), key=_is_numbered)
        text = " ".join(title.astext().replace("`", "").split())
        heading = TextBlock("heading", [text], level=min(level + 1, 6), id=names[0] if names else "")
        heading.anchors = [(0, name) for name in names]
        return [*([heading] if text else []), *self.children(node, level + 1)]

    def _other(self, node: Any, level: int) -> list[TextBlock]:
        """Render a node of any other kind: its blocks, or its text."""
        if any(child.tagname == "#text" or isinstance(child, nodes.Inline) for child in node.children):
            return self._paragraph(node, level)
        return self.children(node, level + 1)

    def _paragraph(self, node: Any, _: int) -> list[TextBlock]:
        lines = [line.rstrip() for line in self._inline(node).split("\n")]
        return [TextBlock("paragraph", lines)] if any(lines) else []

    def _rubric(self, node: Any, _: int) -> list[TextBlock]:
        return [TextBlock("paragraph", [f"**{self._words(node)}**"])]

    def _system_message(self, node: Any, _: int) -> list[TextBlock]:
        """Render the title of a section in a directive or docstring, which docutils does not allow."""
        message, block = node.children[0], node.children[-1]
        titles = [line.strip() for line in block.astext().split("\n") if re.search(r"\w", line)]
        if "section title" not in message.astext() or len(titles) != 1:
            return []
        heading = TextBlock("paragraph", [f"**{titles[0].replace('``', '`')}**"])
        heading.anchors = [(0, name)] if (name := nodes.make_id(titles[0])) else []
        return [heading]

    def _literal_block(self, node: Any, _: int) -> list[TextBlock]:
        text, classes = node.astext().strip("\n"), node.get("classes", [])
        if text.startswith(">>>"):
            text = _DOCTEST_OPTION.sub("", text)
        language = classes[1] if len(classes) > 1 and classes[0] == "code" else ""
        return [TextBlock("code", fenced(text, language))] if text.strip() else []

    _doctest_block = _literal_block

    def _math_block(self, node: Any, _: int) -> list[TextBlock]:
        return [TextBlock("math", ["$$", *node.astext().strip().split("\n"), "$$"])]

    def _image(self, node: Any, _: int) -> list[TextBlock]:
        alt = node.get("alt", "")
        return [TextBlock("paragraph", [" ".join(alt.split())])] if alt.strip() else []

    def _figure(self, node: Any, level: int) -> list[TextBlock]:
        return self.children(node, level + 1)

    def _line_block(self, node: Any, level: int) -> list[TextBlock]:
        lines = list[str]()
        for child in node.children:
            nested = child.tagname == "line_block" and child.children
            lines += self._line_block(child, level)[0].lines if nested else [self._words(child)]
        return [TextBlock("paragraph", lines or [""])]

    def _enumerated_list(self, node: Any, level: int) -> list[TextBlock]:
        items = []
        for number, child in enumerate(node.children, int(node.get("start", 1))):
            mark = "- " if node.tagname == "bullet_list" else f"{number}. "
            if blocks := self.children(child, level + 1):
                items.append(indented(joined("item", blocks), mark))
        return [joined("list", items)] if items else []

    _bullet_list = _enumerated_list

    def _definition_list(self, node: Any, level: int) -> list[TextBlock]:
        items = []
        for child in node.children:
            terms = [
                term for term in child.children if term.tagname in ("term", "field_name", "option_group")
            ]
            item = TextBlock("item", [" ".join(map(self._words, terms))])
            item.anchors = [(0, name) for term in terms for name in term.get("ids", [])]
            for body in child.children[len(terms) :]:
                if body.tagname != "classifier" and (blocks := self.children(body, level + 1)):
                    item.append(indented(joined("item", blocks), ": "))
            items.append(item)
        return [joined("list", items)] if items else []

    def _field_list(self, node: Any, level: int) -> list[TextBlock]:
        """Render fields; those of an object in the groups and words that Sphinx shows."""
        if not describes_object(_field_names(node)):
            return self._definition_list(node, level)
        bodies = [joined("item", self.children(field.children[-1], level + 1)) for field in node.children]
        texts = (" ".join(" ".join(body.lines).split()) for body in bodies)
        fields = list(zip(_field_names(node), texts, strict=True))
        items = []
        for words, members in group_fields(fields):
            items.append(TextBlock("item", [f"**{words}**"]))
            for label, index in members:
                body = bodies[index]
                if words == "Return type":
                    body.lines = [short_names(line) for line in body.lines]
                if label:
                    body.lines[:1] = [f"`{label}`" + (f" – {body.lines[0]}" if body.lines else "")]
                items.append(indented(body, "- " if label else ": "))
        return [joined("list", items)] if items else []

    _option_list = _definition_list

    def _block_quote(self, node: Any, level: int) -> list[TextBlock]:
        blocks = self.children(node, level + 1)
        return [indented(joined("group", blocks), "> ", "> ")] if blocks else []

    def _admonition(self, node: Any, level: int) -> list[TextBlock]:
        """Render an admonition, a topic or a sidebar with its title."""
        first = node.children[0] if node.children else None
        titled = first is not None and first.tagname == "title"
        title = self._words(first) if titled else node.tagname.capitalize()
        blocks = [TextBlock("paragraph", [f"**{title}**"])]
        for child in node.children[titled:]:
            blocks += self._block(child, level + 1)
        return [joined("group", blocks)]

    _note = _warning = _tip = _hint = _important = _caution = _danger = _attention = _error = _admonition
    _topic = _sidebar = _admonition

    def _footnote(self, node: Any, level: int) -> list[TextBlock]:
        label = next((child.astext() for child in node.children if child.tagname == "label"), "")
        children = (child for child in node.children if child.tagname != "label")
        blocks = [block for child in children for block in self._block(child, level + 1)]
        return [indented(joined("group", blocks), f"[{label}] ")] if blocks else []

    _citation = _footnote

    def _table(self, node: Any, level: int) -> list[TextBlock]:
        rows: list[list[str]] = []
        parts = (part for group in node.children for part in group.children)
        for row in (row for part in parts for row in part.children if row.tagname == "row"):
            cells = []
            for entry in row.children:
                text = " ".join(block.as_cell() for block in self.children(entry, level + 1))
                cells += [text.replace("|", "\\|"), *[""] * min(int(entry.get("morecols", 0)), 50)]
            rows.append(cells)
        caption = next((child for child in node.children if child.tagname == "title"), None)
        blocks = [TextBlock("paragraph", [self._words(caption)])] if caption is not None else []
        return [*blocks, TextBlock("table", table(rows))] if rows else blocks

    def _words(self, node: Any) -> str:
        """Return the text of a node on one line."""
        return " ".join(self._inline(node).split())

    def _inline(self, node: Any) -> str:
        """Return the text of a node with Markdown's marks."""
        parts = []
        for child in node.children:
            kind = child.tagname
            if kind == "#text":
                parts.append(escaped_tags(child.astext()))
            elif kind in ("emphasis", "strong"):
                mark = "*" if kind == "emphasis" else "**"
                parts.append(f"{mark}{self._inline(child)}{mark}")
            elif kind in ("literal", "math"):
                parts.append(f"${child.astext()}$" if kind == "math" else code_span(child.astext()))
            elif _is_dangling(child):
                parts.append(child.rawsource)
            elif kind in ("footnote_reference", "citation_reference"):
                parts.append(f"[{child.astext()}]")
            elif kind == "image":
                parts.append(child.get("alt", ""))
            elif kind not in ("raw", "system_message"):
                parts.append(self._inline(child) if child.children else child.astext())
        return "".join(parts)


def _is_dangling(node: Any) -> bool:
    """Return whether a reference has no target."""
    if node.tagname == "target" or "refname" not in node or node.resolved:
        return False
    return node.document.nameids.get(node["refname"]) is None


def _field_names(node: Any) -> list[str]:
    """Return the names of a list of fields."""
    return [field.children[0].astext() for field in node.children]


def _is_numbered(name: str) -> bool:
    """Return whether docutils numbered an id, which changes with the page."""
    return bool(re.fullmatch(r"id\d+", name))
