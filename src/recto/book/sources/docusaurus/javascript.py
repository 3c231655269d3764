"""Evaluate the object that a JavaScript or TypeScript configuration file exports, without running it.

It reads literals, names declared in the same file, JSON files beside it, and expressions that only use those.
It assumes that no environment variable is set. Everything else becomes `Unknown`, with its source.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from time import thread_time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tree_sitter import Node, Parser, Query

Load = Callable[[str], Any]
"""Reads a JSON file by the path that the configuration imports; raises LookupError if it cannot be read."""

_MAX_SECONDS = 1.0  # of CPU time to parse a file; a valid one of the maximum size takes half of it
_PIECE = 1024  # bytes
_MAX_NODES_WITH_ERRORS = 10_000
_MAX_DEPTH = 100
_MAX_VALUES = 100_000
_MAX_TEXT = 100_000  # characters of a string; no option is longer
_MAX_SOURCE = 500  # bytes of an expression that are quoted
_SHOWN = 120
_ESCAPE = re.compile(r"\\(?:u\{([\da-fA-F]{1,6})\}|u([\da-fA-F]{4})|x([\da-fA-F]{2})|(\r\n|.))", re.DOTALL)
_LINE_ENDS = dict.fromkeys(("\n", "\r\n", "\u2028", "\u2029"), "")
_CONTROL = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0"} | _LINE_ENDS
_TRANSPARENT = ("parenthesized_expression", "as_expression", "satisfies_expression", "non_null_expression")
_FUNCTIONS = ("function_declaration", "function_expression", "arrow_function")
_ASSIGNED = (
    "[(assignment_expression left: (_) @target) (augmented_assignment_expression left: (_) @target)"
    " (update_expression argument: (_) @target)]"
)


class Undefined(Enum):
    """JavaScript's `undefined`."""

    UNDEFINED = "undefined"


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that only running the file could compute; `source` is how it is written."""

    source: str


UNDEFINED = Undefined.UNDEFINED
Data = str | float | bool | None | Undefined | Unknown | tuple["Value", ...] | Mapping[str, "Value"]
_CONSTANTS: dict[str, Data] = {"true": True, "false": False, "null": None, "undefined": UNDEFINED}


@dataclass(frozen=True, slots=True)
class Value:
    """An evaluated value.

    `environment` is set if the value depends on environment variables. `rest` is the source of a
    spread (`...x`) that could not be evaluated and may add any key or item.
    """

    data: Data
    environment: bool = False
    rest: str = ""

    def get(self, key: str, *more: str) -> Value:
        """Return the value under a path of keys: undefined if there is none, unknown if it may exist."""
        data, member = self.data, Value(UNDEFINED, self.environment)
        if isinstance(data, Unknown):
            return self
        if isinstance(data, Mapping):
            if key in data:
                member = data[key].depending(self.environment)
            elif self.rest:
                member = replace(member, data=Unknown(self.rest))
        elif isinstance(data, tuple) and key.isdecimal() and len(key) < 7 and not self.rest:
            member = data[int(key)] if int(key) < len(data) else member
        elif not self.missing:
            member = replace(member, data=Unknown(f"(…).{key}"))
        return member.get(*more) if more else member

    @property
    def missing(self) -> bool:
        """Whether the value is null or undefined."""
        return self.data is None or self.data is UNDEFINED

    @property
    def simple(self) -> bool:
        """Whether the value is known, and neither a list nor an object."""
        return not isinstance(self.data, Unknown | tuple | Mapping)

    @property
    def truth(self) -> bool | None:
        """Whether the value is truthy; None if that is unknown."""
        if isinstance(self.data, Unknown):
            return None
        return not (self.missing or self.data in ("", 0, False) or self.data != self.data)

    def depending(self, environment: bool) -> Value:
        """Return the value, marked as depending on the environment if `environment` is set."""
        return replace(self, environment=True) if environment and not self.environment else self

    @property
    def plain(self) -> Any:
        """Return Python values: unknown parts stay, undefined becomes None."""
        if isinstance(self.data, Mapping):
            return {key: value.plain for key, value in self.data.items()}
        if isinstance(self.data, tuple):
            return [value.plain for value in self.data]
        return None if self.data is UNDEFINED else self.data


def unknown(source: str) -> Value:
    """Return an unknown value with its source on one line, shortened."""
    line = " ".join(source[:_MAX_TEXT].split())
    return Value(Unknown(line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"))


def from_json(data: Any, depth: int = 0) -> Value:
    """Convert parsed JSON."""
    if depth > 40:
        return unknown("…")
    if isinstance(data, dict):
        return Value({str(key): from_json(value, depth + 1) for key, value in data.items()})
    if isinstance(data, list):
        return Value(tuple(from_json(item, depth + 1) for item in data))
    if isinstance(data, int) and not isinstance(data, bool):
        return Value(float(data)) if abs(data) < 1 << 53 else unknown(str(data)[:40])
    return Value(data)


def to_text(data: Data) -> str:
    """Return a simple value as JavaScript converts it to a string."""
    if isinstance(data, bool):
        return "true" if data else "false"
    if isinstance(data, float):
        return str(int(data)) if data.is_integer() and abs(data) < 1e21 else repr(data)
    return data if isinstance(data, str) else "undefined" if data is UNDEFINED else "null"


def read_exported(text: str, load: Load) -> Value:
    """Return what the file exports; an exported function counts as what it returns."""
    from tree_sitter import QueryCursor

    assigned = _grammar()[1]
    root = _parse(text.removeprefix("\ufeff").encode("utf-8", "replace"))
    if root is None:
        return unknown(text)
    evaluator = _Evaluator(load)
    exported = evaluator.declare(root)
    for target in QueryCursor(assigned).captures(root).get("target", ()):
        evaluator.note_change(target)
    if exported is None:
        return unknown(text) if root.has_error else Value(UNDEFINED)
    try:
        return evaluator.exported(exported)
    except _TooManyValuesError:
        return unknown(text)


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

    def __init__(self, load: Load) -> None:
        self._load = load
        self._names: dict[str, Node] = {}
        self._imports: dict[str, tuple[str, str]] = {}
        self._changed: set[str] = set()
        self._changed_members: dict[str, set[str]] = {}
        self._known: dict[str, Value] = {}
        self._depth = 0
        self._count = 0

    def declare(self, block: Node) -> Node | None:
        """Add the names that a block declares; return what it exports or returns, if it does."""
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
                    self._imports[_source(child).removeprefix("*").split()[-1]] = (path, "")

    def note_change(self, target: Node | None) -> None:
        """Record that a name, or one of its members, is assigned to."""
        member = None
        while target and target.type in ("member_expression", "subscript_expression"):
            member = _field(target, "property")  # none if the key is computed
            target = _field(target, "object")
        if member:
            self._changed_members.setdefault(_source(target), set()).add(_source(member))
        else:
            self._changed.add(_source(target))

    def exported(self, node: Node) -> Value:
        """Return an exported value, or the result of an exported function."""
        while node.type in _TRANSPARENT and (inner := _first(node)):
            node = inner
        if node.type == "call_expression" and _source(node).startswith("defineConfig("):
            arguments = _field(node, "arguments")
            node = (_first(arguments) if arguments else None) or node
        function = self._names.get(_source(node), node) if node.type == "identifier" else node
        if function.type not in _FUNCTIONS:
            return self._value(node)
        body = _field(function, "body")
        result = self.declare(body) if body and body.type == "statement_block" else body
        return self._value(result) if result else unknown(_source(function))

    def _value(self, node: Node | None) -> Value:
        """Evaluate an expression with the method for its type; None means that it cannot be evaluated."""
        if node is None or node.is_missing:
            return unknown("")
        self._count_values(1)
        if node.type in _CONSTANTS:
            return Value(_CONSTANTS[node.type])
        value = None
        if self._depth < _MAX_DEPTH:
            self._depth += 1
            try:
                evaluate = getattr(self, f"_eval_{node.type}", None)
                if node.type in _TRANSPARENT:
                    value = self._value(_first(node))
                elif evaluate is not None:
                    value = evaluate(node)
            finally:
                self._depth -= 1
        return unknown(_source(node)) if value is None else value

    def _child(self, node: Node, name: str) -> Value:
        return self._value(_field(node, name))

    def _count_values(self, number: int) -> None:
        self._count += number
        if self._count > _MAX_VALUES:
            raise _TooManyValuesError

    def _eval_string(self, node: Node) -> Value:
        return Value(_unquoted(node))

    def _eval_number(self, node: Node) -> Value | None:
        digits = _source(node).replace("_", "").removesuffix("n")
        try:
            return Value(float(int(digits, 0)) if digits[:2].lower() in ("0x", "0b", "0o") else float(digits))
        except (ValueError, OverflowError):
            return None

    def _eval_identifier(self, node: Node) -> Value:
        name = _source(node)
        if name == "__dirname":
            return Value(".")
        if name not in self._known:
            self._known[name] = unknown(name)  # for names that refer to themselves
            self._known[name] = self._declared(name) or unknown(name)
        return self._known[name]

    def _declared(self, name: str) -> Value | None:
        if name in self._imports and name not in self._changed:
            path, key = self._imports[name]
            imported = self._json(path) if path.endswith(".json") else None
            return imported.get(key) if imported and key else imported
        if name not in self._names or name in self._changed:
            return None
        value = self._value(self._names[name])
        if name in self._changed_members and isinstance(value.data, Mapping):
            changed = {key: unknown(f"{name}.{key} = …") for key in self._changed_members[name]}
            return replace(value, data={**value.data, **changed})
        return value

    def _json(self, path: str) -> Value | None:
        try:
            return from_json(self._load(path)) if path.startswith(".") else None
        except LookupError:
            return None

    def _eval_template_string(self, node: Node) -> Value | None:
        text, environment, position = "", False, node.start_byte + 1
        for part in _children(node):
            if part.type != "template_substitution":
                continue
            value = self._value(_first(part))
            if not value.simple:
                return None
            text += _slice(node, position, part.start_byte) + to_text(value.data)
            environment |= value.environment
            position = part.end_byte
        text += _slice(node, position, node.end_byte - 1)
        return Value(text, environment) if len(text) <= _MAX_TEXT else None

    def _eval_array(self, node: Node) -> Value:
        items: list[Value] = []
        rest, environment = "", False
        for child in _children(node):
            spread = child.type == "spread_element"
            value = self._value(_first(child) if spread else child)
            environment |= value.environment
            if not spread:
                items.append(value)
            elif isinstance(value.data, tuple) and not value.rest:
                self._count_values(len(value.data))
                items.extend(value.data)
            elif not value.missing and value.data is not False:
                rest = _source(next(_children(child), child))
        return Value(tuple(items), environment, rest)

    def _eval_object(self, node: Node) -> Value:
        members: dict[str, Value] = {}
        rest = ""
        for child in _children(node):
            if child.type == "spread_element":
                spread = self._value(_first(child))
                if isinstance(spread.data, Mapping) and not spread.rest:
                    self._count_values(len(spread.data))
                    members |= spread.data
                elif spread.truth is not False:
                    rest = " ".join(_source(child).split())
                    members = {key: unknown(rest) for key in members}
                continue
            key, value = self._property(child)
            if key is None:
                rest = " ".join(_source(child).split())
            else:
                members[key] = value
        return Value(members, rest=rest)

    def _property(self, node: Node) -> tuple[str | None, Value]:
        """Return a property's key, or None if it cannot be evaluated, and its value."""
        if node.type == "shorthand_property_identifier":
            return _source(node), self._eval_identifier(node)
        key = _field(node, "key") or _field(node, "name")
        if key is None:
            return None, unknown(_source(node))
        if key.type == "computed_property_name":
            data = self._value(_first(key)).data
            name = data if isinstance(data, str) else None
        elif key.type in ("string", "number"):
            name = to_text(self._value(key).data)
        else:
            name = _source(key)
        return name, self._child(node, "value") if node.type == "pair" else unknown(_source(node))

    def _eval_member_expression(self, node: Node) -> Value | None:
        return self._get(node, _source(_field(node, "property")))

    def _eval_subscript_expression(self, node: Node) -> Value | None:
        key = self._child(node, "index").data
        return self._get(node, to_text(key)) if isinstance(key, str | float) else None

    def _get(self, node: Node, key: str) -> Value | None:
        owner = _field(node, "object")
        if _compact(owner).replace("?.", ".") == "process.env":
            return Value("production") if key == "NODE_ENV" else Value(UNDEFINED, environment=True)
        member = self._value(owner).get(key)
        return None if isinstance(member.data, Unknown) else member

    def _eval_unary_expression(self, node: Node) -> Value | None:
        operator, value = _source(_field(node, "operator")), self._child(node, "argument")
        if operator == "!" and value.truth is not None:
            return Value(not value.truth, value.environment)
        if operator in ("+", "-") and isinstance(value.data, float):
            return replace(value, data=-value.data if operator == "-" else value.data)
        return None

    def _eval_binary_expression(self, node: Node) -> Value:
        """Evaluate a chain of operators such as `a + b + c` without recursion."""
        chain = [node]
        while (left := _field(chain[-1], "left")) and left.type == "binary_expression":
            chain.append(left)
        value = self._value(left)
        for part in reversed(chain):
            operator, right = _source(_field(part, "operator")), self._child(part, "right")
            value = _combined(operator, value, right) or unknown(_source(part))
        return value

    def _eval_ternary_expression(self, node: Node) -> Value | None:
        condition = self._child(node, "condition")
        if condition.truth is None:
            return None
        chosen = self._child(node, "consequence" if condition.truth else "alternative")
        return chosen.depending(condition.environment)

    def _eval_call_expression(self, node: Node) -> Value | None:
        """Evaluate the calls that name files."""
        callee, arguments = _compact(_field(node, "function")), _field(node, "arguments")
        if callee not in ("require", "require.resolve", "path.join", "path.resolve") or not arguments:
            return None
        given = [self._value(child).data for child in _children(arguments)]
        words = [data for data in given if isinstance(data, str)]
        if not words or len(words) < len(given):
            return None
        if callee == "require":
            return self._json(words[0])
        return Value(words[0] if callee == "require.resolve" else "/".join(words))


def _combined(operator: str, left: Value, right: Value) -> Value | None:
    """Apply a logical operator, a comparison or a concatenation; return None for any other."""
    if operator in ("&&", "||", "??"):
        if isinstance(left.data, Unknown):
            return None
        keep = not left.missing if operator == "??" else left.truth == (operator == "||")
        return left if keep else right.depending(left.environment)
    if not left.simple or not right.simple:
        return None
    environment, a, b = left.environment or right.environment, left.data, right.data
    if operator in ("===", "!==", "==", "!="):
        same = a == b and isinstance(a, bool) == isinstance(b, bool)
        same = same or (len(operator) == 2 and left.missing and right.missing)
        return Value(same == (operator[0] == "="), environment)
    joined = to_text(a) + to_text(b)
    is_text = operator == "+" and (isinstance(a, str) or isinstance(b, str))
    return Value(joined, environment) if is_text and len(joined) <= _MAX_TEXT else None


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
