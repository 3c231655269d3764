"""What Sphinx's autodoc writes, from the source of the documented code: it is parsed, never imported.

Each directive becomes the directives of described objects, such as `py:class`, with their docstrings.
"""

from __future__ import annotations

import ast
import builtins
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path

from recto.book.sources.definitions import Definition, Module, exported, read_attributes, read_body
from recto.book.sources.directory import is_file
from recto.book.sources.docstrings import as_fields
from recto.book.sources.literal_includes import is_literal
from recto.book.sources.options import UnreadableSite, read_config
from recto.book.sources.signatures import (
    Field,
    Function,
    Writer,
    annotation_of,
    as_written,
    constructor_of,
    decorators_of,
    fields_of,
    is_property,
    kind_of,
    names_in_types,
    parameters_of,
    signature_of,
    source_of,
    typed_fields,
)

_DIRECTIVE = re.compile(
    r"^(?P<prefix>[ \t]*(?:[*+-][ \t]+)?)\.\. "
    r"(?:(?:py:)?(?:module|currentmodule)::[ \t]*(?P<module>[\w.]+)[^\n]*"
    r"|(?:py:)?(?:class|exception)::[ \t]*(?P<owner>[\w.]+)[^\n]*"
    r"|auto(?P<kind>module|class|exception|function|decorator|method|attribute|property|data)::[ \t]*"
    r"(?P<name>[\w.]+)[ \t]*(?P<signature>\([^\n]*)?[^\n]*|(?P<summary>autosummary)::[^\n]*)"
    r"|^[ \t]*`{3,}\{currentmodule\}[ \t]+(?P<myst>[\w.]+)",
    re.MULTILINE,
)
_FIRST_SENTENCE = re.compile(r"\S(?:(?!\n[ \t]*\n).)*?(?:\.(?=\s|\Z)|(?=\n[ \t]*\n|\Z))", re.DOTALL)
_DOC_FIELD = re.compile(r":(?:param|type|return|rtype|raise|arg|key)")
_OPTION = re.compile(r":([\w-]+):[ \t]*+(.*+)")
_LARGEST = 1 << 20  # bytes of a file of code
MOST_TEXT = 1 << 20  # characters that the directives of a page may add
_MOST_INHERITED = 500_000  # members: each class has a copy of those of its bases
_MOST_FIELDS = 10_000  # that constructors of data classes have from base classes; their signatures show all
_CHARGE = 64  # characters that each module counts that is looked up, to limit the number of missing ones
_MOST_PARTS, _LONGEST_TYPE = 100, 1_000  # of a type that has a name, and characters
DEEPEST = 10  # imports from imports, classes in classes and base classes
_MOST_NAMES = 20  # in a path such as `package.module.Class`
_INDENT = "   "


@dataclass(frozen=True, slots=True)
class AutodocOptions:
    """The options of `conf.py` that change what autodoc writes."""

    typehints: str = "signature"
    order: str = "alphabetical"
    keeps_defaults: bool = False
    is_separated: bool = False
    class_content: str = "class"
    is_napoleon: bool = False
    defaults: Mapping[str, str] = field(default_factory=dict)


class Code:
    """The Python modules below the directories that hold the documented code."""

    inherits_docs = True  # a member without a docstring has that of the base class, an attribute is bare

    def __init__(self, roots: Sequence[Path], bounds: Path, options: AutodocOptions) -> None:
        self._roots, self._bounds, self._options = roots, bounds, options
        self._modules: dict[str, Module | None] = {}
        self._known_members: dict[tuple[str, int, bool], dict[str, tuple[Module, Definition]]] = {}
        self._fields: dict[tuple[str, int], dict[str, Field]] = {}
        self._values: dict[tuple[str, str], tuple[Module, ast.AST | None]] = {}
        self._aliases: dict[tuple[str, str], str] = {}
        self._inherited = self._inherited_fields = 0  # members and fields, of all classes
        self._examined = 0  # names, also those that add no text; a page can have many such directives

    def expand(self, text: str, module: str = "", owner: str = "") -> Iterator[tuple[int, int, str]]:
        """Yield the spans of a text that autodoc replaces, and their new text; what is not found stays."""
        left, above, done = MOST_TEXT, [(-1, owner)], 0
        for match in _DIRECTIVE.finditer(text):
            if match.start() < done:  # in the content of another one, which is expanded
                continue
            if match["prefix"] and is_literal(text, match.start(), len(match["prefix"])):
                continue
            module = match["module"] or match["myst"] or module
            while len(above) > 1 and len(match["prefix"] or "") <= above[-1][0]:
                above.pop()
            if match["owner"]:
                above.append((len(match["prefix"]), match["owner"]))
            if not match["kind"] and not match["summary"]:
                continue
            owner = above[-1][1]
            module = match["name"] if match["kind"] == "module" else module
            first = " " * len(match["prefix"])
            stated, body, end = content_of(text, match.end(), len(first))
            options = {**self._options.defaults, **stated, "signature": match["signature"] or ""}
            lines, before = list[str](), self._examined
            with suppress(RecursionError):  # the code is nested too deeply
                if match["summary"]:
                    lines = self._summary(body, options, module)
                else:
                    lines = self._directive(match["kind"], match["name"], options, body, (module, owner))
            new = match["prefix"] + textwrap.indent("\n".join(lines), first).lstrip()
            left -= len(new) + self._examined - before
            if left < 0:
                return
            if lines:
                done = end
                yield match.start(), end, f"{new}\n"

    def _directive(
        self, kind: str, name: str, options: Mapping[str, str], body: str, scope: tuple[str, str]
    ) -> list[str]:
        """Return the lines of one directive; [] if the object is not found."""
        if kind == "module":
            found = self.module(name)
            return self._module_lines(found, options, body) if found else []
        module, owner = scope
        for path in (f"{owner}.{name}" if owner else "", name):
            for place in (module, ""):
                whole = f"{place}.{path}".strip(".")
                if path and (resolved := self.resolve(whole)):
                    shown = place or self._module_of(whole)
                    relative = whole.removeprefix(f"{shown}.")
                    kind = kind if kind in ("class", "exception", "decorator") else ""
                    return self._lines(resolved, relative, shown, options, body, kind)
        return []

    def _summary(self, body: str, options: Mapping[str, str], module: str) -> list[str]:
        """Return a list of objects with their parameters and first sentences; [] if none is found."""
        lines, is_known = list[str](), False
        for entry in filter(None, map(str.strip, body.split("\n"))):
            written = re.sub(r"^:[\w:]+:|`", "", entry)
            name = written.lstrip("~")
            paths = (f"{module}.{name}".strip("."), name)
            found = next(filter(None, map(self.resolve, paths)), None)
            self._examined += _CHARGE
            shown = name.rpartition(".")[2] if written.startswith("~") else name
            is_known, doc = is_known or found is not None, found[1].doc if found else ""
            if found and isinstance(found[1].node, Function) and "nosignatures" not in options:
                shown += parameters_of(found[1].node)
            first = _FIRST_SENTENCE.match(doc)
            lines.append(f"* ``{shown}``" + (f" – {' '.join(first[0].split())}" if first else ""))
        return [*lines, ""] if is_known else []

    def _module_of(self, path: str) -> str:
        """Return the longest module at the start of a path."""
        if path.count(".") > _MOST_NAMES:
            return ""
        while path and not self.module(path):
            path = path.rpartition(".")[0]
        return path

    def module(self, name: str) -> Module | None:
        """Return a module by its name, if one of the directories has it."""
        if name not in self._modules:
            self._modules[name] = None
            self._examined += _CHARGE
            path = name.replace(".", "/")
            files = (root / f"{path}{end}" for root in self._roots for end in ("/__init__.py", ".py"))
            for file in (file for file in files if name and is_file(file)):
                with suppress(UnreadableSite, SyntaxError, ValueError, RecursionError, MemoryError):
                    text = read_config(file, self._bounds, _LARGEST)
                    text = text.replace("\r\n", "\n").replace("\r", "\n")
                    module = Module(name, ast.parse(text), text.split("\n"))
                    is_package = file.name == "__init__.py"
                    read_body(module, module.tree.body, module.objects, is_package)
                    self._modules[name] = module
                    break
        return self._modules[name]

    def resolve(
        self, path: str, depth: int = 0, seen: set[str] | None = None
    ) -> tuple[Module, Definition] | None:
        """Return the object at a path such as `package.Class.method`, through imports.

        `seen` are paths of modules that import all names; each is searched once.
        """
        place = self._module_of(path)
        module, names = self.module(place), path[len(place) + 1 :].split(".")
        if not module or depth > DEEPEST:
            return None
        if names[0] in module.imports and names[0] not in module.objects:
            source, original = module.imports[names[0]]
            return self.resolve(".".join(filter(None, [source, original, *names[1:]])), depth + 1, seen)
        if names[0] not in module.objects:
            known = set[str]() if seen is None else seen
            sources = [] if path in known else module.stars
            known.add(path)
            every = (self.resolve(".".join([source, *names]), depth + 1, known) for source in sources)
            return next(filter(None, every), None)
        found = module.objects.get(names[0])
        value = getattr(found.node, "value", None) if found and not found.doc else None
        if isinstance(value, ast.Name | ast.Attribute):  # another name of a function or class
            aliased = self.resolve(".".join([place, ast.unparse(value), *names[1:]]), depth + 1, seen)
            if aliased and isinstance(aliased[1].node, Function | ast.ClassDef):
                return aliased
        for name in names[1:]:
            owner = (module, found) if found else None
            place_and_member = self._members(*owner).get(name) if owner else None
            if place_and_member is None:
                return None
            module, found = place_and_member
        return (module, found) if found else None

    def _bases(self, module: Module, node: ast.AST, depth: int) -> Iterator[tuple[Module, Definition]]:
        bases = node.bases if isinstance(node, ast.ClassDef) and depth < DEEPEST else ()
        names = [ast.unparse(base.value if isinstance(base, ast.Subscript) else base) for base in bases]
        found = (self.resolve(f"{module.name}.{name}", depth + 1) for name in dict.fromkeys(names))
        classes = {id(one[1].node): one for one in found if one and isinstance(one[1].node, ast.ClassDef)}
        yield from classes.values()

    def _members(
        self, module: Module, owner: Definition, *, inherited: bool = True, depth: int = 0
    ) -> dict[str, tuple[Module, Definition]]:
        """Return the members of a class; those without a docstring have the one of a base class."""
        key = module.name, id(owner.node), inherited
        if not isinstance(owner.node, ast.ClassDef) or key in self._known_members:
            return self._known_members.get(key, {})
        self._known_members[key] = {}  # for a class that is its own base
        objects: dict[str, Definition] = {}
        read_body(module, owner.node.body, objects, False)
        read_attributes(module, owner.node, objects, self.inherits_docs)
        members = {name: (module, found) for name, found in objects.items()}
        fields: dict[str, Field] = {}
        for base_module, base in self._bases(module, owner.node, depth):
            above = self._members(base_module, base, depth=depth + 1)
            self._inherited += len(above)
            above_fields = self._fields.get((base_module.name, id(base.node)), {})
            self._inherited_fields += len(above_fields)
            fields |= above_fields if self._inherited_fields < _MOST_FIELDS else {}
            for name, (place, found) in above.items() if self._inherited < _MOST_INHERITED else ():
                is_class = isinstance(found.node, ast.ClassDef)
                if name in members and self.inherits_docs and not members[name][1].doc and not is_class:
                    members[name] = (members[name][0], replace(members[name][1], doc=found.doc))
                elif inherited:
                    members.setdefault(name, (place, found))
        for name, (place, found) in members.items() if self.inherits_docs else ():
            if not found.doc and name in vars(object) and name not in ("__init__", "__new__", "__doc__"):
                members[name] = place, replace(found, doc=vars(object)[name].__doc__ or "")
        if (stated := fields_of(owner.node, hides_factories=self.inherits_docs)) is not None:
            fields = self._fields[key[:2]] = fields | stated
            if "__init__" not in objects:
                constructor = constructor_of(fields.values())
                members["__init__"] = (module, Definition("__init__", constructor, ""))
        self._known_members[key] = members
        return members

    def _value_of(self, module: Module, name: str) -> tuple[Module, ast.AST | None]:
        """Return the value of a name in a module, or the function or class that it names."""
        if (key := (module.name, name)) not in self._values:
            self._examined += _CHARGE
            found = self.resolve(f"{module.name}.{name}")
            node = found[1].node if found else None
            value = node if isinstance(node, Function | ast.ClassDef) else getattr(node, "value", None)
            self._values[key] = (found[0] if found else module), value
        return self._values[key]

    def _alias(self, module: Module, name: ast.AST | None) -> str:
        """Return the type that a name stands for, such as `Callable[[int], str]`; "" if it is none."""
        if not isinstance(name, ast.Name | ast.Attribute):
            return ""
        key = module.name, ast.unparse(name)
        if key not in self._aliases:
            self._aliases[key] = ""  # for a type that contains itself
            place, value = self._value_of(module, key[1])
            parts = islice(ast.walk(value), _MOST_PARTS + 1) if value else ()
            if isinstance(value, ast.Subscript | ast.BinOp) and len(list(parts)) <= _MOST_PARTS:
                is_known, text = key[1].rpartition(".")[2] not in place.typing_only, key[1]
                with suppress(RecursionError):
                    text = annotation_of(value, partial(self._alias, place)) if is_known else text
                self._aliases[key] = text if len(text) <= _LONGEST_TYPE else ""
        return self._aliases[key]

    def _writer(self, module: Module, node: ast.AST) -> Writer:
        """Return what writes types: as they stand if names of any of them are known to type checkers only."""
        is_known = module.typing_only.isdisjoint(names_in_types(node))
        if module.has_texts and not is_known:
            return as_written
        return partial(annotation_of, alias_of=partial(self._alias, module) if is_known else _quoted)

    def _default(self, module: Module, value: ast.AST | None) -> str:
        """Return a default as Sphinx shows it: the value of a name, unless the configuration keeps it."""
        if not isinstance(value, ast.Name | ast.Attribute) or self._options.keeps_defaults:
            return source_of(value)
        name = ast.unparse(value)
        place, found = self._value_of(module, name)
        if isinstance(found, ast.ClassDef) or isinstance(getattr(builtins, name, None), type):
            return f"<class '{f'{place.name}.{found.name}' if isinstance(found, ast.ClassDef) else name}'>"
        with suppress(ValueError, TypeError, RecursionError):
            return repr(ast.literal_eval(found))  # type: ignore[arg-type]
        return f"<function {found.name}>" if isinstance(found, Function) else name

    def _module_lines(self, module: Module, options: Mapping[str, str], body: str) -> list[str]:
        doc = self._nested_text(self._doc(ast.get_docstring(module.tree) or ""), module.name, "")
        hidden = [f"{_INDENT}:no-index:"] if {"noindex", "no-index"} & set(options) else []
        lines = [f".. py:module:: {module.name}", *hidden, "", *doc.split("\n"), "", *body.split("\n"), ""]
        if "members" not in options:
            return lines
        names = exported(module)
        self._examined += len(names)
        members = dict[str, tuple[Module, Definition]]()
        for name in names or module.objects:
            known = module.objects.get(name)
            if member := (module, known) if known else self.resolve(f"{module.name}.{name}"):
                members[name] = member
        for name, member in self._chosen(members, options):
            lines += self._lines(member, name, module.name, options)
        return lines

    def _chosen(
        self, members: Mapping[str, tuple[Module, Definition]], options: Mapping[str, str]
    ) -> list[tuple[str, tuple[Module, Definition]]]:
        """Return the members that the options select, in their order."""
        self._examined += len(members)
        stated = _names(options.get("members", ""))
        members = {name: found for name, found in members.items() if ":meta private:" not in found[1].doc}
        excluded = _names(options.get("exclude-members", ""))
        private, special = options.get("private-members"), options.get("special-members")

        def is_chosen(name: str, member: Definition) -> bool:
            if name in excluded or stated:
                return name in stated and name not in excluded
            if self._options.is_separated and name in ("__init__", "__new__"):
                return True
            if re.fullmatch(r"__\w+__", name):
                return special is not None and (name in _names(special) if special else bool(member.doc))
            if name.startswith("_"):
                return private is not None and (not private or name in _names(private))
            return bool(member.doc) or "undoc-members" in options

        chosen = [(name, found) for name, found in members.items() if is_chosen(name, found[1])]
        order = options.get("member-order", self._options.order)
        return chosen if order == "bysource" else sorted(chosen, key=lambda item: item[0])

    def _lines(
        self,
        resolved: tuple[Module, Definition],
        name: str,
        module: str,
        options: Mapping[str, str],
        body: str = "",
        kind: str = "",
        depth: int = 0,
    ) -> list[str]:
        """Return the lines of an object and its members."""
        place, found = resolved
        self._examined += len(getattr(found.node, "decorator_list", ()))
        node, is_member = found.node, "." in name or depth > 0
        is_class, signatures = isinstance(node, ast.ClassDef), list[str]()
        has_constructor = is_class and not self._options.is_separated
        where, shown = self._constructor(place, found) if has_constructor else resolved
        function = shown.node
        kind, settings = kind_of(node, is_member, kind, self._writer(place, node))
        if isinstance(function, Function) and kind not in ("property", "attribute", "data"):
            overloads = shown.overloads if self._options.typehints != "none" else ()
            with_types = bool(overloads) or self._options.typehints in ("signature", "both")
            is_method = is_class or (is_member and "staticmethod" not in decorators_of(node))
            for each in overloads or (function,):
                write = self._writer(where, each) if with_types else None
                value_of = partial(self._default, where)
                signatures.append(signature_of(each, is_method, write, not is_class, value_of))
        signatures = [options["signature"]] if options.get("signature") else signatures or [""]
        first, *others = [f"{name}{signature}" for signature in signatures]
        head = [f".. py:{kind}:: {first}", *(f"{' ' * (len(kind) + 8)}{other}" for other in others)]
        shared = [f":{option}:" for option in ("no-index", "noindex") if option in options]
        head += [_INDENT + line for line in (f":module: {module}", *settings, *shared)]
        inner = self._body(found, function, options, where, kind)
        inner += ["", *(self._nested_text(body, module, name).split("\n") if body else ())]
        has_members = bool({"members", "inherited-members"} & set(options))  # the latter implies the former
        if isinstance(node, ast.ClassDef) and has_members and depth < DEEPEST:
            members = self._members(place, found, inherited="inherited-members" in options)
            nested = options if depth == 0 else {**options, "members": ""}
            for member, owner in self._chosen(members, nested):
                below = {key: value for key, value in options.items() if key != "signature"} | {"members": ""}
                inner += self._lines(owner, f"{name}.{member}", module, below, depth=depth + 1)
        return [*head, "", *(_INDENT + line if line.strip() else "" for line in inner), ""]

    def _nested_text(self, body: str, module: str, owner: str) -> str:
        """Return the content of a directive, with the autodoc directives in it."""
        pieces, position = [], 0
        if "auto" not in body or owner.count(".") > DEEPEST:
            return body
        for start, end, new in self.expand(body, module, owner):
            pieces += [body[position:start], new]
            position = end
        return "".join([*pieces, body[position:]])

    def _constructor(self, module: Module, found: Definition) -> tuple[Module, Definition]:
        """Return the method that creates an object of a class, or the class if none is found."""
        members = self._members(module, found)
        names = (name for name in ("__init__", "__new__") if name in members)
        return next((members[name] for name in names), (module, found))

    def _body(
        self, found: Definition, function: ast.AST, options: Mapping[str, str], module: Module, kind: str
    ) -> list[str]:
        """Return the bases, the docstring and the types of an object."""
        lines, doc = list[str](), found.doc
        is_class = isinstance(found.node, ast.ClassDef)
        if is_class and "show-inheritance" in options:
            bases = [annotation_of(base) for base in found.node.bases] or ["object"]  # type: ignore[attr-defined]
            lines += ["Bases: " + ", ".join(f"``{base}``" for base in bases), ""]
        if is_class and self._options.class_content in ("both", "init") and isinstance(function, Function):
            doc = f"{doc}\n\n{ast.get_docstring(function) or ''}".strip()
        text = self._doc(doc)
        has_types = self._options.typehints in ("description", "both") and isinstance(function, Function)
        if has_types and not isinstance(function, ast.ClassDef) and not is_property(found.node):
            # Sphinx does not evaluate the types of a constructor that stand in the fields of its class.
            write = as_written if is_class and module.has_texts else self._writer(module, function)
            fields = typed_fields(function, text, write, suppress_return=kind == "class")  # type: ignore[arg-type]
            return [*lines, *_with_fields(text.split("\n"), fields)]
        return [*lines, *text.split("\n")]

    def _doc(self, doc: str) -> str:
        doc = re.sub(r"^:meta [^\n]*\n?", "", doc, flags=re.MULTILINE)
        return as_fields(doc) if self._options.is_napoleon else doc


def _quoted(type: ast.AST | None) -> str:
    """Return a quoted type as it stands; "" for others."""
    return as_written(type) if isinstance(type, ast.Constant) else ""


def _with_fields(lines: list[str], fields: Iterable[str]) -> list[str]:
    """Return the lines of a docstring with fields after its own ones, or at the end."""
    end = max((index + 1 for index, line in enumerate(lines) if _DOC_FIELD.match(line)), default=len(lines))
    while end < len(lines) and lines[end][:1] in ("", " "):
        end += 1
    return [*lines[:end], "", *fields, "", *lines[end:]]


def content_of(text: str, start: int, indent: int) -> tuple[dict[str, str], str, int]:
    """Return the options and the content of a directive that is indented so far, and where they end."""
    options, body, end = dict[str, str](), list[str](), start
    last, stated_at = "", 0
    while end < len(text):
        stop = text.find("\n", end + 1)
        line = text[end + 1 : stop if stop >= 0 else None]
        if line.strip() and len(line) - len(line.lstrip()) <= indent:
            break
        depth = len(line) - len(line.lstrip())
        option = _OPTION.fullmatch(line.strip()) if not body else None
        if option:
            last, stated_at = option[1], depth
            options[last] = option[2]
        elif line.strip() and not body and last and depth > stated_at:  # the option goes on
            options[last] += f" {line.strip()}"
        else:
            body.append(line)
        end = min(end + 1 + len(line), len(text))
    while body and not body[-1].strip():
        end -= len(body.pop()) + 1
    return options, textwrap.dedent("\n".join(body)).strip("\n"), end


def _names(listed: str) -> list[str]:
    return [name.strip() for name in listed.split(",") if name.strip()]
