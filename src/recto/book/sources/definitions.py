"""The definitions of a parsed Python module or class, with the texts that document them."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from recto.book.sources.signatures import Function, decorators_of, described_type


@dataclass(frozen=True, slots=True)
class Definition:
    """A definition in a module: its name there, its node, and the text that documents it ("" if none)."""

    name: str
    node: ast.AST
    doc: str
    overloads: tuple[Function, ...] = ()


@dataclass(slots=True)
class Module:
    """A parsed file: its objects, and where each imported name comes from."""

    name: str
    tree: ast.Module
    lines: list[str]
    objects: dict[str, Definition] = field(default_factory=dict)
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    typing_only: set[str] = field(default_factory=set)

    @property
    def has_texts(self) -> bool:
        """Whether its types are texts when the code runs."""
        return self.imports.get("annotations", ("",))[0] == "__future__"


def read_body(
    module: Module, body: Sequence[ast.stmt], objects: dict[str, Definition], is_package: bool
) -> None:
    """Note the definitions and the imports of a module or class, also those in `if` and `try`."""
    for index, node in enumerate(body):
        if isinstance(node, Function | ast.ClassDef):
            before = objects.get(node.name)
            overloads = before.overloads if before else ()
            decorators = decorators_of(node)
            if isinstance(node, Function) and any(re.search(r"\boverload$", name) for name in decorators):
                overloads = (*overloads, node)
            elif any(name.endswith((".setter", ".deleter", ".getter")) for name in decorators):
                continue
            objects[node.name] = Definition(node.name, node, ast.get_docstring(node) or "", overloads)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            doc = _comment(module, body, index)
            for target in targets:
                known = objects.get(target.id) if isinstance(target, ast.Name) else None
                is_changed = (
                    known and isinstance(known.node, ast.ClassDef) and isinstance(node.value, ast.Call)
                )
                if isinstance(target, ast.Name) and not is_changed:  # such as `Lamp = decorated(Lamp)`
                    objects[target.id] = Definition(target.id, node, doc)
        elif isinstance(node, ast.ImportFrom):
            base = module.name.split(".")
            base = base[: len(base) - node.level + is_package] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            module.imports |= {name.asname or name.name: (source, name.name) for name in node.names}
            module.stars += [source for name in node.names if name.name == "*"]
        elif isinstance(node, ast.Import):
            module.imports |= {name.asname: (name.name, "") for name in node.names if name.asname}
        elif isinstance(node, ast.If | ast.Try):
            handlers = [handler.body for handler in node.handlers] if isinstance(node, ast.Try) else []
            for part in (node.body, *handlers, node.orelse):
                read_body(module, part, objects, is_package)
            if isinstance(node, ast.If) and "TYPE_CHECKING" in (
                getattr(node.test, "id", ""),
                getattr(node.test, "attr", ""),
            ):
                inner = [item for part in node.body for item in ast.walk(part)]
                module.typing_only |= {
                    item.asname or item.name for item in inner if isinstance(item, ast.alias)
                }
                module.typing_only |= {
                    ast.unparse(item.target) for item in inner if isinstance(item, ast.AnnAssign)
                }


def read_attributes(
    module: Module, owner: ast.ClassDef, objects: dict[str, Definition], is_bare: bool
) -> None:
    """Note the attributes that a constructor sets; `is_bare` for documented ones only, without values."""
    for method in owner.body:
        body = method.body if isinstance(method, Function) and method.name == "__init__" else []
        for index, node in enumerate(body):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            target = targets[0]
            if not isinstance(node, ast.Assign | ast.AnnAssign) or not isinstance(target, ast.Attribute):
                continue
            doc, known = _comment(module, body, index), objects.get(target.attr)
            is_of_self = isinstance(target.value, ast.Name) and target.value.id == "self"
            if not is_of_self or (is_bare and not doc) or (known and (known.doc or not doc)):
                continue
            shown: ast.AST = node
            if is_bare and isinstance(node, ast.AnnAssign):
                shown = ast.AnnAssign(target, node.annotation, None, 0)
            elif is_bare:
                bare = ast.Assign([target], ast.Name("..."), lineno=0)
                shown = known.node if known and isinstance(known.node, ast.AnnAssign) else bare
            objects[target.attr] = Definition(target.attr, shown, doc)


def _comment(module: Module, body: Sequence[ast.stmt], index: int) -> str:
    """Return the documentation of an assignment: in its type, a text after it, its `doc=`, or `#:`."""
    node, after = body[index], body[index + 1] if index + 1 < len(body) else None
    if text := described_type(getattr(node, "annotation", None))[1]:
        return text
    call = getattr(node, "value", None)
    stated = [item.value for item in call.keywords if item.arg == "doc"] if isinstance(call, ast.Call) else []
    for item in (after.value if isinstance(after, ast.Expr) else None, *stated):
        if isinstance(item, ast.Constant) and isinstance(item.value, str):
            return inspect.cleandoc(item.value)
    if (after and after.lineno == node.end_lineno) or (index and body[index - 1].end_lineno == node.lineno):
        return ""  # the comments of a line with several statements belong to none of them
    line = module.lines[node.end_lineno - 1] if node.end_lineno else ""
    if (mark := re.search(r"#:[ ]?(.*)$", line)) is not None:
        return mark[1]
    comments, number = list[str](), node.lineno - 2
    while number >= 0 and (mark := re.match(r"[ \t]*#:[ ]?(.*)$", module.lines[number])):
        comments.insert(0, mark[1])
        number -= 1
    return "\n".join(comments)


def exported(module: Module) -> list[str]:
    """Return the names in `__all__`; [] if it is not a literal."""
    node = module.objects.get("__all__")
    value = getattr(node.node, "value", None) if node else None
    with suppress(ValueError, TypeError):
        names = ast.literal_eval(value) if value is not None else []
        return [name for name in names if isinstance(name, str) and name.isidentifier()]
    return []
