"""Evaluate the object that a JavaScript or TypeScript configuration file exports, without running it.

It reads literals, names declared in the same file or in files beside it that it imports, JSON files, and
expressions that only use those.
It assumes that no environment variable is set. Everything else becomes `Unknown`, with its source.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from time import thread_time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tree_sitter import Node, Parser, Query

Load = Callable[[str], str]
"""Returns the text of a file by the path that a configuration imports; raises LookupError otherwise."""

_Exports = dict[str, dict[str, Any]]
"""What each imported file exports by name, "" for its default; nothing while it is evaluated."""

_MAX_SECONDS = 0.5  # of CPU time to parse a file; a valid one of the maximum size takes a quarter of it
_PIECE = 1024  # bytes
_MAX_NODES_WITH_ERRORS = 10_000
_MAX_DEPTH = 100
_MAX_VALUES = 100_000
_MAX_FILES = 8  # that are imported; each may take the time to parse a file
_MAX_TEXT = 100_000  # characters of a string; no option is longer
_MAX_SOURCE = 500  # bytes of an expression that are quoted
_SHOWN = 120
_ESCAPE = re.compile(r"\\(?:u\{([\da-fA-F]{1,6})\}|u([\da-fA-F]{4})|x([\da-fA-F]{2})|(\r\n|.))", re.DOTALL)
_LINE_ENDS = dict.fromkeys(("\n", "\r\n", "\u2028", "\u2029"), "")
_CONTROL = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0"} | _LINE_ENDS
_TRANSPARENT = ("parenthesized_expression", "as_expression", "satisfies_expression", "non_null_expression")
_FUNCTIONS = ("function_declaration", "function_expression", "arrow_function")
_DECLARATIONS = {"lexical_declaration", "variable_declaration", "return_statement"}
_ASSIGNED = (
    "[(assignment_expression left: (_) @target) (augmented_assignment_expression left: (_) @target)"
    " (update_expression argument: (_) @target)]"
)


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that only running the file could compute; `source` is how it is written, `code` is longer."""

    source: str
    code: str = field(default="", compare=False, repr=False)


_CONSTANTS: dict[str, Any] = {"true": True, "false": False, "null": None, "undefined": None}
_ENDS = ("", ".js", ".ts", ".mjs", ".mts", ".cjs", "/index.js", "/index.ts")
"""What an import may leave out of the name of a file."""
_ALL = "*"
"""The key of an import of everything that a file exports."""
_SPREAD = "..."
"""The key of a spread (`...x`) that could not be evaluated and may add any other key."""


def get(value: Any, *path: str) -> Any:
    """Return the value under a path of keys: None if there is none, unknown if there may be one."""
    for key in path:
        if isinstance(value, dict):
            value = value[key] if key in value else value.get(_SPREAD)
        elif isinstance(value, list):
            index = int(key) if key.isdecimal() and len(key) < 7 else len(value)
            unclear = (item for item in value[:index] if isinstance(item, Unknown))  # it may be a spread
            value = next(unclear, value[index] if index < len(value) else None)
        elif value is not None and not isinstance(value, Unknown):
            value = Unknown(f"(…).{key}")
    return value


def truth(value: Any) -> bool | None:
    """Return whether a value is truthy; None if that is unknown."""
    if isinstance(value, Unknown):
        return None
    return not (value is None or value in ("", 0, False))


def _is_simple(value: Any) -> bool:
    """Return whether a value is known, and neither a list nor an object."""
    return not isinstance(value, Unknown | list | dict)


def _unknown(source: str) -> Unknown:
    """Return an unknown value with its source on one line, shortened."""
    line = " ".join(source[:_MAX_TEXT].split())
    return Unknown(line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…", line)


def to_text(value: str | float | bool | None) -> str:
    """Return a simple value as JavaScript converts it to a string."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e21 else repr(value)
    return "undefined" if value is None else value


def read_json(text: str) -> Any:
    """Return the value of a JSON file, within the same limits as of a configuration."""
    return read_exported(f"export default {text}")


def _no_files(path: str) -> str:
    raise LookupError(path)


def read_exported(text: str, load: Load = _no_files, variable: Any = None, *, calls: bool = False) -> Any:
    """Return what a file exports; `variable` is the value of each environment variable, none by default.

    With `calls`, a call counts as its first argument if that is an object: `plugin({…})` is `{…}`; else as
    what the function returns if it only declares names before.

    Values are strings, floats, booleans, None, lists, dictionaries and `Unknown`. An exported function counts
    as what it returns.
    """
    root = _parse(text.removeprefix("\ufeff").encode("utf-8", "replace"))
    if root is None:
        return _unknown(text)
    evaluator = _Evaluator(load, {}, variable, calls=calls)
    exported = evaluator.declare(root)
    if exported is None:
        return _unknown(text) if root.has_error else None
    try:
        return evaluator.exported(exported)
    except _TooManyValuesError:
        return _unknown(text)


def _parse(source: bytes) -> Node | None:
    """Parse a file; return None if that takes too long, or if it has errors and is long.

    The parser needs quadratic time to recover from many errors. So it gets the source in small pieces, and no
    more of it when the time is up. Searching a tree with many errors takes quadratic time, too.
    """
    end = thread_time() + _MAX_SECONDS
    complete = parsing = True

    def read(offset: int, _point: object) -> bytes:
        nonlocal complete
        complete = complete and not (parsing and thread_time() > end)
        return source[offset : offset + _PIECE] if complete else b""

    root = _grammar()[0].parse(read).root_node
    parsing = False  # the text of a node is read when it is asked for
    usable = complete and not (root.has_error and root.descendant_count > _MAX_NODES_WITH_ERRORS)
    return root if usable else None


@cache
def _grammar() -> tuple[Parser, Query]:
    """Return the parser of TypeScript, and the query for what a file assigns to."""
    import tree_sitter_typescript
    from tree_sitter import Language, Parser, Query

    language = Language(tree_sitter_typescript.language_typescript())
    return Parser(language), Query(language, _ASSIGNED)


class _TooManyValuesError(Exception):
    """The file describes more values than any configuration has."""


class _Evaluator:
    """The names that a file declares, and the values of its expressions; each name is evaluated once."""

    def __init__(self, load: Load, files: _Exports, variable: Any, folder: str = "", *, calls: bool) -> None:
        self._load, self._files, self._folder = load, files, folder
        self._variable = variable
        self._calls = calls
        self._names: dict[str, Node] = {}
        self._imports: dict[str, tuple[str, str]] = {}
        self._changed: set[str] = set()
        self._changed_members: dict[str, set[str]] = {}
        self._values: dict[str, Any] = {}
        self._depth = 0
        self._count = 0

    def declare(self, block: Node) -> Node | None:
        """Add the names that a block declares; return what it exports or returns, if it does."""
        from tree_sitter import QueryCursor

        if block.parent is None:
            for target in QueryCursor(_grammar()[1]).captures(block).get("target", ()):
                self._note_change(target)
        result: Node | None = None
        for node in block.named_children:
            if node.type == "export_statement":
                declared = _field(node, "value") or _field(node, "declaration")
                if declared and any(child.type == "default" for child in node.children):
                    result = declared
                elif declared:
                    self._add(declared)
            elif node.type == "expression_statement":
                assigned = _first(node)
                is_export = assigned and _compact(_field(assigned, "left")) == "module.exports"
                if assigned and is_export and assigned.type == "assignment_expression":
                    result = _field(assigned, "right")
            elif node.type == "return_statement":
                return _first(node)
            else:
                self._add(node)
        return result

    def _add(self, node: Node) -> None:
        if node.type in ("lexical_declaration", "variable_declaration"):
            for declarator in _children(node):
                name, value = _field(declarator, "name"), _field(declarator, "value")
                if name and value and name.type == "identifier":
                    self._names[_source(name)] = value
        elif node.type == "function_declaration":
            self._names[_source(_field(node, "name"))] = node
        elif node.type == "import_statement":
            path = _unquoted(_field(node, "source"))
            for child in (part for clause in _children(node) for part in _children(clause)):
                if child.type == "named_imports":
                    for item in _children(child):
                        key = _source(_field(item, "name"))
                        alias = _source(_field(item, "alias")) or key
                        self._imports[alias] = (path, "" if key == "default" else key)
                elif child.type in ("identifier", "namespace_import"):
                    key = _ALL if child.type == "namespace_import" else ""
                    self._imports[_source(child).removeprefix("*").split()[-1]] = (path, key)

    def _note_change(self, target: Node | None) -> None:
        """Record that a name, or one of its members, is assigned to."""
        member = None
        while target and target.type in ("member_expression", "subscript_expression"):
            member = _field(target, "property")  # none if the key is computed
            target = _field(target, "object")
        if member:
            self._changed_members.setdefault(_source(target), set()).add(_source(member))
        else:
            self._changed.add(_source(target))

    def exported(self, node: Node) -> Any:
        """Return an exported value, or the result of an exported function."""
        while node.type in _TRANSPARENT and (inner := _first(node)):
            node = inner
        if node.type == "call_expression" and _source(node).startswith("define"):
            arguments = _field(node, "arguments")
            node = (_first(arguments) if arguments else None) or node
        function = self._names.get(_source(node), node) if node.type == "identifier" else node
        if function.type not in _FUNCTIONS:
            return self._value(node)
        body = _field(function, "body")
        result = self.declare(body) if body and body.type == "statement_block" else body
        return self._value(result) if result else _unknown(_source(function))

    def _value(self, node: Node | None) -> Any:
        """Evaluate an expression with the method for its type, if there is one."""
        if node is None or node.is_missing:
            return Unknown("")
        self._count_values(1)
        if node.type in _CONSTANTS:
            return _CONSTANTS[node.type]
        evaluate = getattr(self, f"_eval_{node.type}", None)
        if self._depth >= _MAX_DEPTH or (evaluate is None and node.type not in _TRANSPARENT):
            return _unknown(_source(node))
        self._depth += 1
        try:
            return evaluate(node) if evaluate else self._value(_first(node))
        finally:
            self._depth -= 1

    def _child(self, node: Node, name: str) -> Any:
        return self._value(_field(node, name))

    def _count_values(self, number: int) -> None:
        self._count += number
        if self._count > _MAX_VALUES:
            raise _TooManyValuesError

    def _eval_string(self, node: Node) -> str:
        return _unquoted(node)

    def _eval_number(self, node: Node) -> Any:
        digits = _source(node).replace("_", "").removesuffix("n")
        try:
            return float(int(digits, 0)) if digits[:2].lower() in ("0x", "0b", "0o") else float(digits)
        except (ValueError, OverflowError):
            return _unknown(digits)

    def _eval_identifier(self, node: Node) -> Any:
        name = _source(node)
        if name == "__dirname":
            return "."
        if name not in self._values:
            self._values[name] = Unknown(name)  # for names that refer to themselves
            self._values[name] = self._declared(name)
        return self._values[name]

    def _declared(self, name: str) -> Any:
        if name in self._changed:
            return Unknown(name)
        if name in self._imports:
            return self._imported(*self._imports[name], name)
        if name not in self._names:
            return Unknown(name)
        value = self._value(self._names[name])
        if name in self._changed_members and isinstance(value, dict):
            changed = {key: Unknown(f"{name}.{key} = …") for key in self._changed_members[name]}
            return {**value, **changed}
        return value

    def _imported(self, path: str, key: str, source: str) -> Any:
        """Return what a file exports under a name, or its default; unknown if the file cannot be read."""
        for name in (f"{self._folder}{path}{end}" for end in _ENDS) if path.startswith(".") else ():
            with suppress(LookupError):
                text = self._load(name)
                exports = {"": read_json(text)} if name.endswith(".json") else self._exports(name, text)
                if key == _ALL and not name.endswith(".json"):
                    return exports
                default = exports.get("", _unknown(source))
                return exports[key] if key in exports else get(default, *filter(None, [key.strip(_ALL)]))
        return _unknown(source)

    def _exports(self, path: str, text: str) -> dict[str, Any]:
        """Return what a script exports."""
        if path not in self._files and len(self._files) < _MAX_FILES:
            exports = self._files[path] = {}
            if root := _parse(text.encode("utf-8", "replace")):
                folder = path[: path.rfind("/") + 1]
                inner = _Evaluator(self._load, self._files, self._variable, folder, calls=self._calls)
                exported = inner.declare(root)
                exports.update({name: inner._declared(name) for name in inner._names})
                exports[""] = inner.exported(exported) if exported else _unknown(path)
        return self._files.get(path, {})

    def _eval_template_string(self, node: Node) -> Any:
        text, position = "", node.start_byte + 1
        for part in _children(node):
            if part.type != "template_substitution":
                continue
            value = self._value(_first(part))
            if not _is_simple(value):
                return _unknown(_source(node))
            text += _slice(node, position, part.start_byte) + to_text(value)
            position = part.end_byte
        text += _slice(node, position, node.end_byte - 1)
        return text if len(text) <= _MAX_TEXT else _unknown(text)

    def _eval_array(self, node: Node) -> list[Any]:
        items: list[Any] = []
        for child in _children(node):
            if child.type != "spread_element":
                items.append(self._value(child))
                continue
            spread = self._value(_first(child))
            if isinstance(spread, list):
                self._count_values(len(spread))
                items += spread
            elif truth(spread) is not False:
                items.append(_unknown(_source(child).removeprefix("...")))
        return items

    def _eval_object(self, node: Node) -> dict[str, Any]:
        members: dict[str, Any] = {}
        for child in _children(node):
            if child.type == "spread_element":
                spread = self._value(_first(child))
                if isinstance(spread, dict) and _SPREAD not in spread:
                    self._count_values(len(spread))
                    members |= spread
                elif truth(spread) is not False:  # it may replace any member
                    members = dict.fromkeys((*members, _SPREAD), _unknown(_source(child)))
                continue
            key, value = self._property(child)
            members[key] = value
        return members

    def _property(self, node: Node) -> tuple[str, Any]:
        """Return a property's key, which stands for all keys if it cannot be evaluated, and its value."""
        if node.type == "shorthand_property_identifier":
            return _source(node), self._eval_identifier(node)
        key = _field(node, "key") or _field(node, "name")
        if key is None:
            return _SPREAD, _unknown(_source(node))
        name = _source(key)
        if key.type in ("computed_property_name", "string", "number"):
            written = self._value(_first(key) if key.type == "computed_property_name" else key)
            if not isinstance(written, str | float):
                return _SPREAD, _unknown(_source(node))
            name = to_text(written)
        return name, self._child(node, "value") if node.type == "pair" else _unknown(_source(node))

    def _eval_member_expression(self, node: Node) -> Any:
        return self._member(node, _source(_field(node, "property")))

    def _eval_subscript_expression(self, node: Node) -> Any:
        key = self._child(node, "index")
        return self._member(node, to_text(key)) if isinstance(key, str | float) else _unknown(_source(node))

    def _member(self, node: Node, key: str) -> Any:
        owner = _field(node, "object")
        if _compact(owner).replace("?.", ".") == "process.env":
            return "production" if key == "NODE_ENV" else self._variable
        member = get(self._value(owner), key)
        return _unknown(_source(node)) if isinstance(member, Unknown) else member

    def _eval_unary_expression(self, node: Node) -> Any:
        operator, value = _source(_field(node, "operator")), self._child(node, "argument")
        if operator == "!" and truth(value) is not None:
            return not truth(value)
        if operator in ("+", "-") and isinstance(value, float):
            return -value if operator == "-" else value
        return _unknown(_source(node))

    def _eval_binary_expression(self, node: Node) -> Any:
        operator, left = _source(_field(node, "operator")), self._child(node, "left")
        if operator in ("&&", "||", "??"):
            if isinstance(left, Unknown):
                return _unknown(_source(node))
            keep = left is not None if operator == "??" else truth(left) == (operator == "||")
            return left if keep else self._child(node, "right")
        right = self._child(node, "right")
        if _is_simple(left) and _is_simple(right):
            if operator in ("===", "!==", "==", "!="):
                same = left == right and isinstance(left, bool) == isinstance(right, bool)
                return same == (operator[0] == "=")
            if operator == "+" and (isinstance(left, str) or isinstance(right, str)):
                joined = to_text(left) + to_text(right)
                return joined if len(joined) <= _MAX_TEXT else _unknown(_source(node))
        return _unknown(_source(node))

    def _eval_ternary_expression(self, node: Node) -> Any:
        condition = truth(self._child(node, "condition"))
        if condition is None:
            return _unknown(_source(node))
        return self._child(node, "consequence" if condition else "alternative")

    def _eval_call_expression(self, node: Node) -> Any:
        """Evaluate calls that name files, and with `calls` those of functions that only return a value."""
        callee, arguments = _compact(_field(node, "function")), _field(node, "arguments")
        if callee in ("require", "require.resolve", "path.join", "path.resolve") and arguments:
            values = [self._value(child) for child in _children(arguments)]
            words = [value for value in values if isinstance(value, str)]
            if words and len(words) == len(values):
                if callee == "require":
                    return self._imported(words[0], "", _source(node))
                return words[0] if callee == "require.resolve" else "/".join(words)
        if self._calls and arguments and isinstance(first := self._value(_first(arguments)), dict):
            return first
        function = self._names.get(callee) if self._calls and callee not in self._changed else None
        body = _field(function, "body") if function and function.type in _FUNCTIONS else None
        if function and body and {child.type for child in _children(body)} <= _DECLARATIONS:
            return self.exported(function)
        return _unknown(_source(node))


def _children(node: Node) -> Iterator[Node]:
    return (child for child in node.named_children if child.type != "comment")


def _first(node: Node) -> Node | None:
    return next(_children(node), None)


def _field(node: Node, name: str) -> Node | None:
    return node.child_by_field_name(name)


def _source(node: Node | None) -> str:
    """Return how a node is written, cut if it is long."""
    return (node.text or b"")[:_MAX_SOURCE].decode("utf-8", "replace") if node else ""


def _compact(node: Node | None) -> str:
    return "".join(_source(node).split())


def _slice(node: Node, start: int, end: int) -> str:
    """Return what a string or template says between two bytes of the file."""
    text = (node.text or b"")[start - node.start_byte : end - node.start_byte].decode("utf-8", "replace")
    return _ESCAPE.sub(_escaped, text) if "\\" in text else text


def _unquoted(node: Node | None) -> str:
    return _slice(node, node.start_byte + 1, node.end_byte - 1) if node else ""


def _escaped(match: re.Match[str]) -> str:
    code = match[1] or match[2] or match[3]
    if code:
        number = int(code, 16)
        return chr(number) if number < 0x110000 and not 0xD800 <= number < 0xE000 else "\ufffd"
    return _CONTROL.get(match[4], match[4])
