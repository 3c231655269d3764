"""Signatures, types and decorators of parsed Python code, as Sphinx's autodoc shows them."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Any

Function = ast.FunctionDef | ast.AsyncFunctionDef
Writer = Callable[[ast.AST | None], str]
"""Returns a type as Sphinx shows it."""
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


def kind_of(node: ast.AST, is_member: bool, stated: str) -> tuple[str, list[str]]:
    """Return the directive of an object, and the lines of its options."""
    if isinstance(node, ast.ClassDef):
        bases = [ast.unparse(base) for base in node.bases]
        is_exception = stated == "exception" or (not stated and any(map(_EXCEPTION.search, bases)))
        return ("exception" if is_exception else "class"), []
    if isinstance(node, Function):
        names = {name.rpartition(".")[2] for name in decorators_of(node)}
        if is_property(node):
            settings = [f":type: {annotation_of(node.returns)}"] if node.returns else []
            return "property", [*settings, *([":abstractmethod:"] if "abstractmethod" in names else [])]
        options = ["async"] if isinstance(node, ast.AsyncFunctionDef) else []
        options += sorted(names & {"classmethod", "staticmethod", "abstractmethod", "final"})
        return (stated or ("method" if is_member else "function")), [f":{name}:" for name in options]
    settings = []
    if isinstance(node, ast.AnnAssign) and (text := annotation_of(node.annotation)):
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


def signature_of(function: Function, is_method: bool, write: Writer | None, with_return: bool) -> str:
    """Return the parameters of a function as autodoc shows them, with their types if they are written."""
    shown = list[str]()
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + list[Any](arguments.defaults)
    pairs = list(zip(positional, defaults, strict=True))
    for index, (argument, default) in enumerate(pairs):
        shown.append(_parameter(argument, default, write))
        if arguments.posonlyargs and index + 1 == len(arguments.posonlyargs):
            shown.append("/")
    shown = shown[1:] if is_method and positional else shown
    if arguments.vararg:
        shown.append("*" + _parameter(arguments.vararg, None, write))
    elif arguments.kwonlyargs:
        shown.append("*")
    keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    shown += [_parameter(argument, default, write) for argument, default in keywords]
    if arguments.kwarg:
        shown.append("**" + _parameter(arguments.kwarg, None, write))
    returned = f" -> {write(function.returns)}" if write and with_return and function.returns else ""
    return f"({', '.join(shown)}){returned}"


def constructor_of(owner: ast.ClassDef, attributes: Iterable[ast.AST]) -> Function:
    """Return the constructor of a data class with these attributes."""
    arguments = ast.arguments([], [ast.arg("self")], kwonlyargs=[], kw_defaults=[], defaults=[])
    is_keyword = any("kw_only=True" in ast.unparse(item) for item in owner.decorator_list)
    for node in attributes:
        type, name, value = (getattr(node, key, None) for key in ("annotation", "target", "value"))
        if not type or not isinstance(name, ast.Name) or (kind := annotation_of(type)).startswith("ClassVar"):
            continue
        is_keyword = is_keyword or kind == "KW_ONLY"
        options = dict[str | None, ast.expr]()
        if isinstance(value, ast.Call) and annotation_of(value.func) == "field":
            options = {item.arg: item.value for item in value.keywords}
            factory = options.get("default_factory")
            value = ast.Call(factory, [], []) if factory else options.get("default")
        if kind == "KW_ONLY" or getattr(options.get("init"), "value", True) is False:
            continue
        if is_keyword or getattr(options.get("kw_only"), "value", False) is True:
            arguments.kwonlyargs.append(ast.arg(name.id, type))
            arguments.kw_defaults.append(value)
        else:
            arguments.args.append(ast.arg(name.id, type))
            arguments.defaults += [value] if value else []
    return ast.FunctionDef("__init__", arguments, [], [])


def _parameter(argument: ast.arg, default: ast.expr | None, write: Writer | None) -> str:
    annotation = write(argument.annotation) if write else ""
    typed = f"{argument.arg}: {annotation}" if annotation else argument.arg
    if default is None:
        return typed
    return f"{typed}{' = ' if annotation else '='}{' '.join(ast.unparse(default).split())}"


def annotation_of(node: ast.AST | None) -> str:  # noqa: PLR0911 - a case per kind of node
    """Return a type as Sphinx shows it: names without their modules, and `X | None` for `Optional[X]`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            return annotation_of(ast.parse(node.value, mode="eval").body)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return node.value
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript):
        outer, inner = annotation_of(node.value), node.slice
        items = inner.elts if isinstance(inner, ast.Tuple) else [inner]
        texts = [annotation_of(item) for item in items]
        if outer in ("Optional", "Union"):
            return " | ".join([*texts, *(["None"] if outer == "Optional" else [])])
        return f"{outer}[{', '.join(texts)}]"
    if isinstance(node, ast.BinOp):
        return f"{annotation_of(node.left)} | {annotation_of(node.right)}"
    if isinstance(node, ast.List):
        return f"[{', '.join(map(annotation_of, node.elts))}]"
    return _as_written(node)


def writer_of(function: Function, unknown: AbstractSet[str]) -> Writer:
    """Return what writes the types of a function: as they stand if not all of their names are known."""
    arguments = function.args
    every = (
        *arguments.posonlyargs,
        *arguments.args,
        *arguments.kwonlyargs,
        arguments.vararg,
        arguments.kwarg,
    )
    types = [function.returns, *(argument.annotation for argument in every if argument)]
    names = {name.id for node in types if node for name in ast.walk(node) if isinstance(name, ast.Name)}
    return _as_written if names & unknown else annotation_of


def _as_written(node: ast.AST | None) -> str:
    return " ".join(ast.unparse(node).split()) if node else ""


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
    arguments = function.args
    stars = [
        (argument, mark) for argument, mark in ((arguments.vararg, "*"), (arguments.kwarg, "**")) if argument
    ]
    every = [(argument, "") for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    heads = _FIELD.findall(doc)
    documented = {re.split(r"[ *\\]", names)[-1] for kind, names in heads if kind != "type"}
    typed = {names.rpartition(" ")[2] for kind, names in heads if kind == "type" or " " in names.strip()}
    for argument, _ in (*every, *stars):
        if not argument.annotation:
            continue
        if argument.arg not in documented:
            yield f":param {argument.arg}:"
        if argument.arg not in typed:
            yield f":type {argument.arg}: {write(argument.annotation)}"
    if function.returns and not suppress_return and not re.search(r"^:rtype:", doc, re.MULTILINE):
        yield f":rtype: {write(function.returns)}"
