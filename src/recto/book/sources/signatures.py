"""Signatures, types and decorators of parsed Python code, as Sphinx's autodoc shows them."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

Function = ast.FunctionDef | ast.AsyncFunctionDef
Writer = Callable[[ast.AST | None], str]
"""Returns a type as Sphinx shows it."""
Field = tuple[ast.arg, ast.expr | None, bool]
"""A field of a class: its name and type, its default, and whether only its name can give it."""
_EXCEPTION = re.compile(r"(?:Exception|Error|Warning|Exit|Abort)$")
_FIELD = re.compile(r"^:(parameter|param|argument|arg|keyword|key|type)([^:\n]*):", re.MULTILINE)
_LONGEST_SUMMARY = 28  # characters
_PROPERTIES = ("property", "cached_property", "abstractproperty")


def decorators_of(node: ast.AST) -> list[str]:
    """Return the names of the decorators of a definition."""
    return [
        ast.unparse(item.func if isinstance(item, ast.Call) else item)
        for item in getattr(node, "decorator_list", ())
    ]


def is_property(node: ast.AST) -> bool:
    """Return whether a method is read as an attribute."""
    return any(name.rpartition(".")[2] in _PROPERTIES for name in decorators_of(node))


def kind_of(node: ast.AST, is_member: bool, stated: str, write: Writer) -> tuple[str, list[str]]:
    """Return the directive of an object, and the lines of its options."""
    if isinstance(node, ast.ClassDef):
        bases = [ast.unparse(base) for base in node.bases]
        is_exception = stated == "exception" or (not stated and any(map(_EXCEPTION.search, bases)))
        return ("exception" if is_exception else "class"), []
    if isinstance(node, Function):
        names = {name.rpartition(".")[2] for name in decorators_of(node)}
        if is_property(node):
            settings = [f":type: {write(node.returns)}"] if node.returns else []
            return "property", [*settings, *([":abstractmethod:"] if "abstractmethod" in names else [])]
        options = ["async"] if isinstance(node, ast.AsyncFunctionDef) else []
        options += sorted(names & {"classmethod", "staticmethod", "abstractmethod", "final"})
        return (stated or ("method" if is_member else "function")), [f":{name}:" for name in options]
    settings = []
    if isinstance(node, ast.AnnAssign) and (text := write(node.annotation)):
        settings.append(f":type: {text}")
    value = getattr(node, "value", None)
    with suppress(ValueError, TypeError, RecursionError):
        settings += [f":value: {ast.literal_eval(value)!r}"] if value is not None else []
    return ("attribute" if is_member else "data"), settings


def parameters_of(function: Function) -> str:
    """Return the names of the parameters, as many as a summary shows."""
    arguments = function.args
    names = [item.arg for item in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    names = names[names[:1] in (["self"], ["cls"]) :]
    while len(", ".join(names)) > _LONGEST_SUMMARY:
        names.pop()
    return f"({', '.join(names)})"


def fields_of(node: ast.ClassDef, *, hides_factories: bool) -> dict[str, Field] | None:
    """Return the fields of a data class or named tuple that its constructor takes; None for other classes."""
    names = {name.rpartition(".")[2] for name in (*decorators_of(node), *map(ast.unparse, node.bases))}
    stated = _keywords(*node.decorator_list)
    if not {"dataclass", "define", "frozen", "NamedTuple"} & names or stated.get("init") == "False":
        return None
    fields, is_named = dict[str, Field](), stated.get("kw_only") == "True"
    for item in node.body:
        kind = ast.unparse(item.annotation) if isinstance(item, ast.AnnAssign) else "ClassVar"
        if not isinstance(item, ast.AnnAssign) or not isinstance(item.target, ast.Name) or "ClassVar" in kind:
            continue
        if kind.endswith("KW_ONLY"):
            is_named = True
            continue
        options, default = _keywords(item.value), item.value
        if isinstance(default, ast.Call) and ast.unparse(default.func).endswith("field"):
            factory = options.get("default_factory") or options.get("factory")
            called = "<factory>" if hides_factories else f"{factory}()"
            text = called if factory else options.get("default")
            default = ast.Name(text) if text else None
        if options.get("init") != "False":
            by_name = is_named or options.get("kw_only") == "True"
            fields[item.target.id] = (ast.arg(item.target.id, item.annotation), default, by_name)
    return fields


def _keywords(*calls: ast.AST | None) -> dict[str | None, str]:
    keywords = (item for call in calls if isinstance(call, ast.Call) for item in call.keywords)
    return {item.arg: ast.unparse(item.value) for item in keywords}


def constructor_of(fields: Iterable[Field]) -> Function:
    """Return the constructor that takes fields."""
    every = list(fields)
    plain, named = ([item for item in every if item[2] == by_name] for by_name in (False, True))
    arguments = ast.arguments(
        [], [ast.arg("self"), *(item[0] for item in plain)], None, [item[0] for item in named],
        [item[1] for item in named], None, [item[1] for item in plain if item[1]],
    )  # fmt: skip
    return ast.FunctionDef("__init__", arguments, [], [])


def source_of(node: ast.AST | None) -> str:
    """Return the code of a node on one line."""
    return " ".join(ast.unparse(node).split()) if node else ""


def signature_of(
    function: Function, is_method: bool, write: Writer | None, with_return: bool, value_of: Writer = source_of
) -> str:
    """Return the parameters of a function as autodoc shows them, with their types if they are written."""
    shown = list[str]()
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + list[Any](arguments.defaults)
    pairs = list(zip(positional, defaults, strict=True))
    for index, (argument, default) in enumerate(pairs):
        shown.append(_parameter(argument, write, value_of(default)))
        if arguments.posonlyargs and index + 1 == len(arguments.posonlyargs):
            shown.append("/")
    shown = shown[1:] if is_method and positional else shown
    if arguments.vararg:
        shown.append("*" + _parameter(arguments.vararg, write))
    elif arguments.kwonlyargs:
        shown.append("*")
    keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    shown += [_parameter(argument, write, value_of(default)) for argument, default in keywords]
    if arguments.kwarg:
        shown.append("**" + _parameter(arguments.kwarg, write))
    returned = f" -> {write(function.returns)}" if write and with_return and function.returns else ""
    return f"({', '.join(shown)}){returned}"


def _parameter(argument: ast.arg, write: Writer | None, default: str = "") -> str:
    annotation = write(argument.annotation) if write else ""
    typed = f"{argument.arg}: {annotation}" if annotation else argument.arg
    return f"{typed}{' = ' if annotation else '='}{default}" if default else typed


def annotation_of(  # noqa: PLR0911 - a case per kind of node
    node: ast.AST | None, alias_of: Writer = lambda _: ""
) -> str:
    """Return a type as Sphinx shows it: names without their modules, and `X | None` for `Optional[X]`.

    `alias_of` returns the type that a name stands for ("" if it is none).
    """
    if text := alias_of(node):
        return text
    if (inner := unquoted(node)) is not node:
        return annotation_of(inner, alias_of)
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript):
        outer, inner = annotation_of(node.value, alias_of), node.slice
        items = inner.elts if isinstance(inner, ast.Tuple) else [inner]
        is_literal = outer == "Literal"
        texts = [ast.unparse(item) if is_literal else annotation_of(item, alias_of) for item in items]
        if outer in ("Optional", "Union"):
            return " | ".join([*texts, *(["None"] if outer == "Optional" else [])])
        return f"{outer}[{', '.join(texts)}]"
    if isinstance(node, ast.BinOp):
        return f"{annotation_of(node.left, alias_of)} | {annotation_of(node.right, alias_of)}"
    if isinstance(node, ast.List):
        return f"[{', '.join(annotation_of(item, alias_of) for item in node.elts)}]"
    return as_written(node)


def unquoted(node: ast.AST | None) -> ast.AST | None:
    """Return what the text of a quoted type says; other types as they are."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            return ast.parse(node.value, mode="eval").body
    return node


def names_in_types(node: ast.AST) -> set[str]:
    """Return the names in the types of a function or an attribute, also in quoted ones."""
    holders = [node, *(arguments_of(node) if isinstance(node, Function) else ())]
    types = [getattr(item, "annotation", getattr(item, "returns", None)) for item in holders]
    parts = [part for type in types if type for part in ast.walk(type)]
    texts = (unquoted(part) for part in parts if isinstance(part, ast.Constant))
    parts += [part for type in texts if type for part in ast.walk(type)]
    return {part.id for part in parts if isinstance(part, ast.Name)}


def arguments_of(function: Function) -> list[ast.arg]:
    """Return the parameters of a function."""
    group = function.args
    every = (*group.posonlyargs, *group.args, *group.kwonlyargs, group.vararg, group.kwarg)
    return [argument for argument in every if argument]


def as_written(node: ast.AST | None) -> str:
    """Return a type as it stands, without quotes."""
    is_quoted = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return " ".join(node.value.split()) if is_quoted else source_of(node)  # type: ignore[union-attr]


def described_type(node: ast.expr | None) -> tuple[ast.expr | None, str]:
    """Return a type without `Annotated[…]`, and the text of the `Doc("…")` in it ("" if there is none)."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Tuple):
        return node, ""
    if annotation_of(node.value) != "Annotated":
        return node, ""
    calls = [other for other in node.slice.elts[1:] if isinstance(other, ast.Call) and other.args]
    texts = [getattr(call.args[0], "value", "") for call in calls if annotation_of(call.func) == "Doc"]
    return node.slice.elts[0], next((inspect.cleandoc(text) for text in texts if isinstance(text, str)), "")


def typed_fields(function: Function, doc: str, write: Writer, *, suppress_return: bool) -> Iterator[str]:
    """Yield the fields for the types of a function's parameters and result."""
    heads = _FIELD.findall(doc)
    documented = {re.split(r"[ *\\]", names)[-1] for kind, names in heads if kind != "type"}
    typed = {names.rpartition(" ")[2] for kind, names in heads if kind == "type" or " " in names.strip()}
    for argument in arguments_of(function):
        if not argument.annotation:
            continue
        if argument.arg not in documented:
            yield f":param {argument.arg}:"
        if argument.arg not in typed:
            yield f":type {argument.arg}: {write(argument.annotation)}".replace("\\", r"\\")
    if function.returns and not suppress_return and not re.search(r"^:rtype:", doc, re.MULTILINE):
        yield f":rtype: {write(function.returns)}"
