"""The literals that a Python file such as `conf.py` assigns to names; the file is parsed, never run."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

_LARGEST = 1 << 20  # characters or items of a value


def read_literals(source: str) -> dict[str, Any]:
    """Return the names that a Python file assigns literals to, as far as they are literal; nothing is run."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    values: dict[str, Any] = {}
    waiting: list[tuple[ast.stmt, bool]] = [(node, False) for node in reversed(tree.body)]
    while waiting:
        node, is_conditional = waiting.pop()
        if isinstance(node, ast.If | ast.Try):
            handlers = [handler.body for handler in node.handlers] if isinstance(node, ast.Try) else []
            parts = (node.body, *handlers, node.orelse)
            waiting += [(inner, True) for part in reversed(parts) for inner in reversed(part)]
        with suppress(ValueError, TypeError, RecursionError, MemoryError):  # it is not a literal
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                value = _literal(node.value, values)
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = [target.id for target in targets if isinstance(target, ast.Name)]
                values |= {name: value for name in names if not is_conditional or name not in values}
            else:
                _extend(node, values)
    return values


def _extend(node: ast.stmt, values: Mapping[str, Any]) -> None:
    """Extend a list of texts as `+=`, `extend` and `append` do."""
    call = node.value if isinstance(node, ast.Expr) else None
    target: ast.expr
    if isinstance(node, ast.AugAssign):
        target, value = node.target, node.value
    elif isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and len(call.args) == 1:
        target, value = call.func.value, call.args[0]
        value = ast.List([value]) if call.func.attr == "append" else value
    else:
        return
    known = values.get(target.id) if isinstance(target, ast.Name) else None
    added = _literal(value, values) if isinstance(known, list) else None
    if isinstance(known, list) and isinstance(added, list | tuple) and len(known) + len(added) <= _LARGEST:
        known += [item for item in added if isinstance(item, str)]


def _literal(node: ast.expr, names: Mapping[str, Any]) -> Any:  # noqa: PLR0911 - a case per kind of node
    """Return the value of a literal; what is not literal in a list or dictionary is left out."""

    def known(nodes: Iterable[ast.expr | None]) -> Iterator[Any]:
        for item in nodes:
            with suppress(ValueError, TypeError):
                yield _literal(item, names) if item is not None else None

    if isinstance(node, ast.List):
        return list(known(node.elts))
    if isinstance(node, ast.Dict):
        pairs = (ast.Tuple([key, value]) for key, value in zip(node.keys, node.values, strict=True) if key)
        return dict(pair for pair in known(pairs) if isinstance(pair[0], str))
    if isinstance(node, ast.Tuple):
        return tuple(_literal(item, names) for item in node.elts)
    if isinstance(node, ast.Name) and node.id in names:
        return names[node.id]
    if isinstance(node, ast.JoinedStr):
        parts = (part.value if isinstance(part, ast.FormattedValue) else part for part in node.values)
        values = [_literal(part, names) for part in parts]
        if not all(isinstance(value, str | int | float) for value in values):
            raise ValueError("a list in a text, which can be exponentially longer than the list")
        return _short("".join(map(str, values)))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        sides = list(known([node.left, node.right]))
        if not sides or (len(sides) == 1 and not isinstance(sides[0], list)):
            raise ValueError("half of a text")
        return _short(sides[0] + sides[-1] if len(sides) > 1 else sides[0])
    return ast.literal_eval(node)


def _short(value: Any) -> Any:
    """Return a value; raise `ValueError` if it is longer than a file, as repeated doubling makes it."""
    if isinstance(value, str | list | tuple) and len(value) > _LARGEST:
        raise ValueError("the value is too long")
    return value
