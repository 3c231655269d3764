"""What mkdocstrings and mkautodoc write in pages of MkDocs, from the source of the documented code.

It is parsed, never imported. Each `::: package.Name` becomes Markdown: headings, signatures and docstrings.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

from recto.book.parsing.frontmatter import load_yaml
from recto.book.parsing.markdown.headings import LONGEST_HEADING, slugger
from recto.book.sources.autodoc import DEEPEST, MOST_TEXT, AutodocOptions, Code, content_of
from recto.book.sources.definitions import Definition, Module, exported
from recto.book.sources.docstrings import as_markdown
from recto.book.sources.docusaurus.javascript import get
from recto.book.sources.includes import Directive, code_ranges
from recto.book.sources.signatures import (
    Function,
    annotation_of,
    decorators_of,
    described_type,
    is_property,
    signature_of,
    source_of,
)

_DIRECTIVE = re.compile(
    r"^(?P<prefix>[ \t>]*+)(?P<level>#{1,6}+[ \t]*+)?:::[ \t]?(?P<name>[\w.:/-]++)[ \t]*+$", re.MULTILINE
)
_FILTER = re.compile(r"(!?)([\w^$\[\]]{1,80}+)")  # only what takes linear time
_HEADING = re.compile(r"^(#{1,6}+)[ \t]++([^\n]++)$", re.MULTILINE)
_FILTERS = ("!^_[^_]",)
_MOST_FILTERS = 50
_FENCE = re.compile(r"^ {0,3}```", re.MULTILINE)
_BLANK = re.compile(r"\n[ \t>]*+(?=\n)")
_CHARGE = 64  # characters that each object counts, to limit the number of those without text


class DocumentedCode(Code):
    """The code that the pages of a site document, with the options of mkdocstrings's handler of Python."""

    inherits_docs = False

    def __init__(self, roots: Sequence[Path], bounds: Path, options: Mapping[str, Any]) -> None:
        super().__init__(roots, bounds, AutodocOptions())
        self._stated = options
        self._signatures: dict[tuple[int, bool, bool], str] = {}
        self._left = 0  # characters that the directives of a page may add

    def directives(self, text: str) -> Iterator[Directive]:
        """Yield the directives of a page; those whose code is not in the repository leave nothing."""
        in_code, done = code_ranges(text), 0
        self._left = MOST_TEXT
        for match in _DIRECTIVE.finditer(text):
            if match.start() < done or in_code(match.start()):
                continue
            prefix, name = match["prefix"], match["name"]
            stated, body, done = content_of(text, match.end(), len(prefix))
            if blank := _BLANK.search(text, match.end(), done):  # what follows is code
                body, done = body.partition("\n\n")[0], blank.start()
            lines, before = list[str](), self._examined
            if self._left > 0:
                with suppress(RecursionError):  # the code is nested too deeply
                    level = (match["level"] or "").count("#")
                    written = self._described(name, stated, name) if stated else self._root(name, body, level)
                    lines = list(written)
            new = "\n".join(f"{prefix}{line}".rstrip() for line in "\n".join(lines).strip("\n").split("\n"))
            self._left -= len(new) + self._examined - before
            if not lines and "." not in name and not (stated or body) and name != "mkdocs-click":
                continue  # not of this plugin, such as `::: tip`
            if lines:
                yield Directive(match.start(), done, new=f"{new}\n")
            else:
                yield Directive(match.start(), done, stated.get("module") or name, otherwise="")

    def _options_of(self, body: str) -> dict[str, Any]:
        """Return the options of a directive, with those of the site."""
        with suppress(ValueError, RecursionError):
            stated = get(load_yaml(body), "options")
            return {**self._stated, **(stated if isinstance(stated, dict) else {})}
        return dict(self._stated)

    def _found(self, path: str) -> tuple[Module, Definition] | None:
        """Return the module or the object at a path."""
        if module := self.module(path):
            return module, Definition(path, module.tree, ast.get_docstring(module.tree) or "")
        return self.resolve(path)

    def _described(self, path: str, options: Mapping[str, str], shown: str) -> Iterator[str]:
        """Yield what mkautodoc writes: the signature, the docstring and the members, without headings."""
        self._left -= _CHARGE
        if self._left < 0 or (found := self._found(path)) is None:
            return
        signature = self._signature(*found, shown != path, with_types=False)
        self._left -= len(found[1].doc)
        kind = "class " if isinstance(found[1].node, ast.ClassDef) else ""
        yield from (f"**`{kind}{shown}{signature}`**", "")
        if "docstring" in options:
            yield from (*found[1].doc.split("\n"), "")
        for name in options.get("members", "").split():
            yield from self._described(f"{path}.{name}", {"docstring": ""}, name)

    def _root(self, path: str, body: str, stated: int) -> Iterator[str]:
        """Yield what mkdocstrings writes for an object, whose directive has these options."""
        if (found := self._found(path)) is None:
            return
        options = self._options_of(body)
        self._left -= len(options)
        level = stated or options.get("heading_level")
        level = level if isinstance(level, int) and 0 < level <= 6 else 2
        if options.get("show_root_heading") is True:
            shown = path if options.get("show_root_full_path") is not False else path.rpartition(".")[2]
            yield from self._head(found, path, shown, options, level)
            level += 1
        elif options.get("show_root_toc_entry") is not False:
            yield from (f'<a id="{path}"></a>', "")
        level = max(level, 2)  # a member is not the title of the page
        yield from self._content(found, path, options, level, 0)

    def _head(
        self, found: tuple[Module, Definition], path: str, shown: str, options: Mapping[str, Any], level: int
    ) -> Iterator[str]:
        """Yield the heading of an object, with its signature or before it."""
        module, item = found
        with_types = options.get("show_signature_annotations") is True
        is_merged = not isinstance(item.node, ast.ClassDef) or options.get("merge_init_into_class") is True
        is_member = self.module(path.rpartition(".")[0]) is None
        signature = self._signature(module, item, is_member, with_types=with_types) if is_merged else ""
        is_apart = options.get("separate_signature") is True or len(shown + signature) > LONGEST_HEADING // 2
        yield f"{'#' * min(level, 6)} `{shown}{'' if is_apart else signature}` {{ #{path} }}"
        yield ""
        is_attribute = not isinstance(item.node, Function | ast.ClassDef) or is_property(item.node)
        overloads = (replace(item, node=node) for node in item.overloads)
        others = [self._signature(module, each, is_member, with_types=True) for each in overloads]
        for written in (*others, *([signature] if is_apart and (signature or is_attribute) else [])):
            yield from ("```python", f"{path.rpartition('.')[2]}{written}", "```", "")

    def _signature(self, module: Module, item: Definition, is_member: bool, *, with_types: bool) -> str:
        """Return the parameters of a function or class, or the type and value of an attribute."""
        node = item.node
        function = self._constructor(module, item)[1].node if isinstance(node, ast.ClassDef) else node
        if isinstance(function, Function) and not is_property(function):
            is_method = function is not node or (is_member and "staticmethod" not in decorators_of(node))
            key = id(function), is_method, with_types
            if key not in self._signatures:
                plain = _documented(function)[0]
                self._signatures[key] = signature_of(
                    plain, is_method, annotation_of if with_types else None, function is node
                )
            self._left -= len(self._signatures[key])
            return self._signatures[key]
        type = getattr(node, "returns", None) or described_type(getattr(node, "annotation", None))[0]
        value = getattr(node, "value", None)
        text = f": {annotation_of(type)}" if type and with_types else ""
        text += f" = {source_of(value)}" if isinstance(value, ast.expr) else ""
        self._left -= len(text)
        return text

    def _content(
        self, found: tuple[Module, Definition], path: str, options: Mapping[str, Any], level: int, depth: int
    ) -> Iterator[str]:
        """Yield the docstring of an object, and its members."""
        module, item = found
        node, doc = item.node, item.doc
        self._left -= _CHARGE + len(doc)
        function = self._constructor(module, item)[1].node if isinstance(node, ast.ClassDef) else node
        if isinstance(node, ast.ClassDef) and node.bases and options.get("show_bases") is not False:
            self._left -= _CHARGE * len(node.bases)
            bases = (annotation_of(base) for base in node.bases)
            names = (module.imports.get(base, ("", ""))[1] or base for base in bases)
            yield from ("Bases: " + ", ".join(f"`{name}`" for name in names), "")
        statements = node.body if isinstance(node, ast.ClassDef) else []
        self._left -= len(statements)
        stated = [item for item in statements if isinstance(item, ast.AnnAssign)]
        types = {ast.unparse(item.target): (f"`{annotation_of(item.annotation)}`", "") for item in stated}
        if isinstance(function, Function):
            if function is not node and options.get("merge_init_into_class") is True:
                doc = f"{doc}\n\n{ast.get_docstring(function) or ''}".strip()
            function, described = _documented(function)
            doc += "\n\nArgs:\n" * bool(described)
            doc += "\n".join(
                f"    {name}:\n{textwrap.indent(text, ' ' * 8)}" for name, text in described.items()
            )
            style = str(options.get("docstring_section_style", "table"))
            types |= {} if is_property(function) else _types(function, style)
        self._left -= len(doc) + sum(_CHARGE + len("".join(type)) for type in types.values())
        text = _shifted(as_markdown(doc, types), path, level)
        open_fence = ["```"] if len(_FENCE.findall(text)) % 2 else []
        yield from (*text.split("\n"), *open_fence, "")
        if depth >= DEEPEST:
            return
        for name, member in self._selected(module, item, options):
            if self._left < 0:
                return
            yield from self._head(member, f"{path}.{name}", name, options, level)
            kept = {key: value for key, value in options.items() if key != "members"}
            yield from self._content(member, f"{path}.{name}", kept, level + 1, depth + 1)

    def _selected(
        self, module: Module, item: Definition, options: Mapping[str, Any]
    ) -> list[tuple[str, tuple[Module, Definition]]]:
        """Return the members that the options select: attributes, classes and functions, in their order."""
        stated = options.get("members")
        if isinstance(item.node, ast.Module):
            members = {name: (module, found) for name, found in module.objects.items()}
            public = exported(module)
            self._left -= len(public)
            for name in [*public, *(stated if isinstance(stated, list) else [])]:  # that are imported, too
                found = None if name in members else self._found(f"{module.name}.{name}")
                if found and not isinstance(found[1].node, ast.Module):
                    members[name] = found
            if options.get("filters") == "public" and public:
                members = {name: members[name] for name in public if name in members}
        else:
            inherited = bool(options.get("inherited_members"))
            members = self._members(module, item, inherited=inherited)
        self._left -= sum(1 + len(getattr(found.node, "body", ())) for _, found in members.values())
        is_merged = options.get("merge_init_into_class") is True
        members = {name: found for name, found in members.items() if not (is_merged and name == "__init__")}
        if stated is False:
            return []
        if isinstance(stated, list):
            self._left -= len(stated)
            chosen = [(name, members[name]) for name in stated if isinstance(name, str) and name in members]
        else:
            rules = _rules(options.get("filters", _FILTERS))
            every = options.get("show_if_no_docstring") is True or stated is True
            chosen = [
                (name, found)
                for name, found in members.items()
                if (stated is True or _is_kept(name, rules)) and (every or _has_docstring(found[1]))
            ]
            if options.get("members_order") != "source":
                chosen.sort(key=lambda item: item[0])
        return sorted(chosen, key=lambda item: _category(item[1][1].node))


def _category(node: ast.AST) -> int:
    """Return the place of the category of an object: attributes, classes, functions."""
    is_function = isinstance(node, Function) and not is_property(node)
    return 2 if is_function else 1 if isinstance(node, ast.ClassDef) else 0


def _has_docstring(item: Definition) -> bool:
    """Return whether an object, not its base class, or one of its members is documented."""
    node = item.node
    if not isinstance(node, Function | ast.ClassDef):
        return bool(item.doc)
    inner = node.body if isinstance(node, ast.ClassDef) else ()
    texts = [getattr(item.value, "value", None) for item in inner if isinstance(item, ast.Expr)]
    functions = (one for one in (node, *inner) if isinstance(one, Function | ast.ClassDef))
    return any(isinstance(text, str) for text in texts) or any(map(ast.get_docstring, functions))


def _rules(filters: Any) -> list[tuple[bool, re.Pattern[str]]]:
    """Return patterns of names, each with whether it keeps them."""
    stated = filters if isinstance(filters, list | tuple) else _FILTERS
    rules = list[tuple[bool, re.Pattern[str]]]()
    for rule in filter(
        None, (_FILTER.fullmatch(one) for one in stated[:_MOST_FILTERS] if isinstance(one, str))
    ):
        with suppress(re.error):
            rules.append((not rule[1], re.compile(rule[2])))
    return rules


def _is_kept(name: str, rules: Sequence[tuple[bool, re.Pattern[str]]]) -> bool:
    """Return whether the rules keep a name: the last one that matches decides."""
    matching = [keeps for keeps, pattern in rules if pattern.search(name)]
    return matching[-1] if matching else {keeps for keeps, _ in rules} != {True}


def _documented(function: Function) -> tuple[Function, dict[str, str]]:
    """Return a function without `Annotated[…]`, and the texts of `Doc("…")` that it holds."""
    texts, arguments = dict[str, str](), copy(function.args)

    def plain(item: ast.arg) -> ast.arg:
        type, text = described_type(item.annotation)
        texts.update({item.arg: text} if text else {})
        return ast.arg(item.arg, type)

    for name in ("posonlyargs", "args", "kwonlyargs"):
        setattr(arguments, name, list(map(plain, getattr(arguments, name))))
    function = copy(function)
    function.args = arguments
    return function, texts


def _types(function: Function, style: str) -> dict[str, tuple[str, str]]:
    """Return the types and defaults of the parameters of a function, and the type of its result."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = dict(zip(reversed(positional), reversed(arguments.defaults), strict=False))
    keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    defaults |= {item: value for item, value in keywords if value is not None}
    label, required = "type: " * (style == "spacy"), "required" * (style == "table")
    types = dict[str, tuple[str, str]]()
    for item in (*positional, *arguments.kwonlyargs):
        type = f"{label}`{annotation_of(item.annotation)}`" if item.annotation else ""
        default = f"default: `{source_of(defaults[item])}`" if item in defaults else required
        types[item.arg] = type, default
    if function.returns:
        types["return"] = f"{label}`{annotation_of(function.returns)}`", ""
    return types


def _shifted(text: str, path: str, level: int) -> str:
    """Return a docstring whose headings are below that of its object, with their anchors."""
    in_code, slug = code_ranges(text), slugger("python-markdown")

    def heading(match: re.Match[str]) -> str:
        if in_code(match.start()):
            return match[0]
        depth = min(level - 1 + len(match[1]), 6)
        return f"{'#' * depth} {match[2]} {{ #{path}--{slug(match[2])} }}"

    return _HEADING.sub(heading, text)
