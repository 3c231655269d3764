"""Read the object that a JavaScript or TypeScript configuration file exports, as text: nothing is ever run.

Literals, names of the same file, JSON files beside it and expressions that only look at those are read, with no environment variable set.
All else is `Unknown` with its source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from recto.book.sites.javascript.cursor import Cursor, skip_type
from recto.book.sites.javascript.declarations import Declarations, pairs
from recto.book.sites.javascript.tokens import Token, tokenize
from recto.book.sites.javascript.values import UNDEFINED, Unknown, Value, combine, from_json, shown, unknown

Load = Callable[[str], Any]
"""Reads a JSON file that the configuration imports, by the path as it is written; raises LookupError if it cannot be had."""

_DEEPEST = 60
_LONGEST_SOURCE = 500
_MOST_VALUES = 100_000
_PRECEDENCE = {mark: level for level, marks in enumerate(("?? ||", "&&", "|", "^", "&", "== != === !==", "< > <= >= in instanceof", "<< >>", "+ -", "* / %", "**")) for mark in marks.split()}  # fmt: skip  # noqa: E501
_SKIPPED_WORDS = frozenset({"await", "typeof", "void", "delete", "new", "yield"})
_ENDS = frozenset({")", "]", "}", ",", ";", ":", "?"})
_CONSTANTS = {"true": True, "false": False, "null": None, "undefined": UNDEFINED}


class _TooMuch(Exception):
    """The text nests too deep, or says more than any configuration does."""


def read_exported(text: str, load: Load) -> Value:
    """Return what the file exports: `export default …` or `module.exports = …`, or what the function returns that is exported."""
    try:
        return _Reader(text, load).exported()
    except _TooMuch:
        return unknown(text)


class _Reader:
    def __init__(self, text: str, load: Load) -> None:
        self._text = text
        self._load = load
        self._tokens = tokenize(text)
        self._matching = pairs(self._tokens)
        self._scope = Declarations(self._tokens, self._matching)
        self._known: dict[str, Value] = {}
        self._depth = 0
        self._count = 0

    def _source(self, start: int, end: int) -> str:
        """Return how something is written, but not all of what goes on for pages."""
        return self._text[start : min(end, start + _LONGEST_SOURCE)]

    def exported(self) -> Value:
        """Return what the file exports."""
        start = self._scope.exported
        if start is None:
            return Value(UNDEFINED)
        cursor = Cursor(self._tokens, self._matching, start)
        body = self._scope.function_at(start)
        if body is None and cursor.token.kind == "name" and cursor.ahead().value in ("", ";", "export", "module"):
            name = cursor.token.value
            body = self._scope.functions.get(name)
            if body is None and name in self._scope.names:
                body = self._scope.function_at(self._scope.names[name])
        if body is not None:
            return self._returned(*body)
        if cursor.sees("defineConfig") and cursor.ahead().value == "(":
            cursor.at += 2
        return self._expression(cursor)

    def _returned(self, first: int, last: int) -> Value:
        """Return what a function's own `return`, or an arrow, gives."""
        returned = self._scope.enter(first, last)
        if returned is None:
            return unknown(self._source(self._tokens[first].start, self._tokens[last].start))
        return self._expression(Cursor(self._tokens, self._matching, returned))

    def _expression(self, cursor: Cursor) -> Value:
        self._depth += 1
        self._count += 1
        if self._depth > _DEEPEST or self._count > _MOST_VALUES:
            raise _TooMuch
        start = cursor.token.start
        value = self._operations(cursor)
        if cursor.accept("?"):
            then = self._expression(cursor)
            otherwise = self._expression(cursor) if cursor.accept(":") else Value(UNDEFINED)
            chosen = then if value.truth else otherwise
            value = unknown(self._source(start, cursor.before)) if value.truth is None else chosen.but(value.environment)
        elif cursor.token.value.endswith("=") and cursor.token.value not in _PRECEDENCE and cursor.token.kind == "mark":
            cursor.at += 1
            self._expression(cursor)
            value = unknown(self._source(start, cursor.before))
        self._depth -= 1
        return value

    def _operations(self, cursor: Cursor) -> Value:
        """Read a chain of binary operators by their precedence, without recursion."""
        start = cursor.token.start
        operands, marks = [self._unary(cursor)], list[str]()

        def reduce() -> None:
            right, left = operands.pop(), operands.pop()
            operands.append(combine(marks.pop(), left, right, self._source(start, cursor.before)))

        while cursor.token.kind in ("mark", "name") and cursor.token.value in _PRECEDENCE:
            mark = cursor.token.value
            while marks and _PRECEDENCE[marks[-1]] >= _PRECEDENCE[mark]:
                reduce()
            cursor.at += 1
            marks.append(mark)
            operands.append(self._unary(cursor))
        while marks:
            reduce()
        return operands[0]

    def _unary(self, cursor: Cursor) -> Value:
        start, marks = cursor.token.start, list[str]()
        while cursor.sees("!", "-", "+", "~", "++", "--", *_SKIPPED_WORDS):
            marks.append(cursor.token.value)
            cursor.at += 1
        value = self._postfix(cursor)
        source = self._source(start, cursor.before)
        for mark in reversed(marks):
            if mark == "!" and value.truth is not None:
                value = Value(not value.truth, value.environment)
            elif mark in "+-" and isinstance(value.data, float):
                value = Value(-value.data if mark == "-" else value.data, value.environment)
            else:
                value = unknown(source)
        return value

    def _postfix(self, cursor: Cursor) -> Value:
        """Read members, calls and casts behind a value."""
        start = cursor.token.start
        value = self._primary(cursor)
        while True:
            line_ends = "\n" in self._text[cursor.before : cursor.token.start]
            if cursor.sees(".", "?."):
                cursor.at += 1
                if cursor.sees("(", "["):
                    continue
                value = self._member(value, cursor.token.value, self._source(start, cursor.token.end))
                cursor.at += 1
            elif cursor.sees("[") and not line_ends:
                inner = Cursor(cursor.tokens, cursor.matching, cursor.at + 1)
                key = self._expression(inner).data
                cursor.skip_group()
                source = self._source(start, cursor.before)
                value = self._member(value, shown(key), source) if isinstance(key, str | float) else unknown(source)
            elif cursor.sees("("):
                value = self._call(cursor, start)
            elif cursor.token.kind == "template":
                cursor.at += 1
                value = unknown(self._source(start, cursor.before))
            elif cursor.sees("as", "satisfies") and not line_ends:
                cursor.at += 1
                skip_type(cursor, self._text)
            elif cursor.sees("!") and not line_ends and cursor.ahead().value in (",", ".", ")", "]", "}", ";", "["):
                cursor.at += 1
            elif cursor.sees("++", "--") and not line_ends:
                cursor.at += 1
                value = unknown(self._source(start, cursor.before))
            else:
                return value

    def _member(self, value: Value, key: str, source: str) -> Value:
        compact = "".join(source.split()).replace("?.", ".")
        if compact.startswith(("process.env.", "process.env[")):
            return Value("production") if key == "NODE_ENV" else Value(UNDEFINED, environment=True)
        found = value.get(key)
        return unknown(source) if isinstance(found.data, Unknown) else found

    def _call(self, cursor: Cursor, start: int) -> Value:
        """Read a call; only what names a file is understood."""
        callee = "".join(self._source(start, cursor.token.start).split())
        arguments = Cursor(cursor.tokens, cursor.matching, cursor.at + 1)
        cursor.skip_group()
        given: list[Value] = []
        if callee in ("require", "require.resolve", "path.join", "path.resolve"):
            while not arguments.sees(")") and arguments.at < cursor.at:
                given.append(self._expression(arguments))
                if not arguments.accept(","):
                    break
        words = [value.data for value in given if isinstance(value.data, str)]
        if words and len(words) == len(given):
            if callee == "require.resolve":
                return Value(words[0])
            if callee == "require":
                return self._json(words[0], self._source(start, cursor.before))
            return Value("/".join(words))
        return unknown(self._source(start, cursor.before))

    def _json(self, path: str, source: str) -> Value:
        if not path.startswith("."):
            return unknown(source)
        try:
            return from_json(self._load(path))
        except LookupError:
            return unknown(source)

    def _primary(self, cursor: Cursor) -> Value:
        token = cursor.token
        if cursor.sees("[") or cursor.sees("{"):
            return self._array(cursor) if token.value == "[" else self._object(cursor)
        if self._skips_function(cursor):
            return unknown(self._source(token.start, cursor.before))
        if cursor.sees("("):
            return self._parenthesis(cursor)
        if token.kind == "end" or (token.kind == "mark" and token.value in _ENDS):
            return unknown(token.value)
        cursor.at += 1
        return self._simple(token)

    def _simple(self, token: Token) -> Value:
        if token.kind == "string":
            return Value(token.value)
        if token.kind == "number":
            return _number(token.value)
        if token.kind == "template":
            return self._template(token)
        return self._name(token.value) if token.kind == "name" else unknown(token.value)

    def _skips_function(self, cursor: Cursor) -> bool:
        """Go behind a function, an arrow or a class."""
        end = self._scope.end_of_function(cursor.at) if cursor.tokens is self._tokens else None
        if end is None:
            return False
        cursor.at = end
        if cursor.ahead(-1).value == "=>":
            self._expression(cursor)
        return True

    def _parenthesis(self, cursor: Cursor) -> Value:
        start = cursor.token.start
        inner = Cursor(cursor.tokens, cursor.matching, cursor.at + 1)
        value = self._expression(inner)
        cursor.skip_group()
        return value if inner.sees(")") else unknown(self._source(start, cursor.before))

    def _array(self, cursor: Cursor) -> Value:
        end = cursor.matching.get(cursor.at, len(cursor.tokens) - 1)
        cursor.at += 1
        items: list[Value] = []
        rest, environment = "", False
        while cursor.at < end:
            if cursor.accept(","):
                continue
            spread, start, at = cursor.accept("..."), cursor.token.start, cursor.at
            value = self._expression(cursor)
            environment |= value.environment
            if not spread:
                items.append(value)
            elif isinstance(value.data, tuple) and not value.rest:
                items.extend(value.data)
                self._count += len(value.data)
            elif not value.missing and value.data is not False:
                rest = self._source(start, cursor.before)
            self._catch_up(cursor, at, end)
        cursor.at = end + 1
        return Value(tuple(items), environment, rest)

    def _object(self, cursor: Cursor) -> Value:
        end = cursor.matching.get(cursor.at, len(cursor.tokens) - 1)
        cursor.at += 1
        found: dict[str, Value] = {}
        rest = ""
        while cursor.at < end:
            if cursor.accept(","):
                continue
            at, start = cursor.at, cursor.token.start
            if cursor.accept("..."):
                spread = self._expression(cursor)
                if isinstance(spread.data, Mapping) and not spread.rest:
                    found |= spread.data
                    self._count += len(spread.data)
                elif spread.truth is not False:
                    rest = " ".join(self._source(start, cursor.before).split())
                    found = {key: unknown(rest) for key in found}
            else:
                key, value = self._property(cursor)
                if key is None:
                    rest = " ".join(self._source(start, cursor.before).split())
                else:
                    found[key] = value
            self._catch_up(cursor, at, end)
        cursor.at = end + 1
        return Value(found, rest=rest)

    def _catch_up(self, cursor: Cursor, at: int, end: int) -> None:
        """Go to the next comma of a list: what could not be read is passed over."""
        while cursor.at < end and not cursor.sees(","):
            if cursor.at in cursor.matching:
                cursor.skip_group()
            else:
                cursor.at += 1
        cursor.at = max(cursor.at, at + 1)

    def _property(self, cursor: Cursor) -> tuple[str | None, Value]:
        while cursor.sees("async", "get", "set", "*") and cursor.ahead().value not in (":", ",", "(", "}"):
            cursor.at += 1
        token = cursor.token
        key: str | None = (
            token.value if token.kind in ("name", "string") else shown(_number(token.value).data) if token.kind == "number" else None
        )
        if cursor.sees("["):
            inner = Cursor(cursor.tokens, cursor.matching, cursor.at + 1)
            computed = self._expression(inner).data
            key = computed if isinstance(computed, str) else None
            cursor.skip_group()
        else:
            cursor.at += 1
        if cursor.accept(":"):
            return key, self._expression(cursor)
        if cursor.sees("("):  # a method
            cursor.skip_group()
            return key, unknown(self._source(token.start, cursor.before))
        return key, self._name(token.value) if token.kind == "name" else unknown(token.value)

    def _template(self, token: Token) -> Value:
        text, environment = "", False
        for before, start, end in token.parts:
            text += before
            if start >= 0:
                tokens = tokenize(self._text, start, end)
                value = self._expression(Cursor(tokens, pairs(tokens)))
                if isinstance(value.data, Unknown | tuple | Mapping):
                    return unknown(self._source(token.start, token.end))
                text += shown(value.data)
                environment |= value.environment
        return Value(text, environment) if len(text) < _MOST_VALUES else unknown(text)

    def _name(self, name: str) -> Value:
        if name in _CONSTANTS:
            return Value(_CONSTANTS[name])
        if name == "__dirname":
            return Value(".")
        if name not in self._known:
            self._known[name] = unknown(name)  # until it is known, for names that lead to themselves
            self._known[name] = self._declared(name)
        return self._known[name]

    def _declared(self, name: str) -> Value:
        scope = self._scope
        if name in scope.changed:
            return unknown(name)
        if name in scope.imports:
            path, key = scope.imports[name]
            found = self._json(path, name)
            return found.get(key) if key else found
        if name not in scope.names:
            return unknown(name)
        value = self._expression(Cursor(self._tokens, self._matching, scope.names[name]))
        if name in scope.changed_members and isinstance(value.data, Mapping):
            changed = {key: unknown(f"{name}.{key} = …") for key in scope.changed_members[name]}
            value = Value({**value.data, **changed}, value.environment, value.rest)
        return unknown(name) if isinstance(value.data, Unknown) and not value.data.source else value


def _number(text: str) -> Value:
    digits = text.replace("_", "").removesuffix("n")
    try:
        return Value(float(int(digits, 0)) if digits[:2].lower() in ("0x", "0b", "0o") else float(digits))
    except (ValueError, OverflowError):
        return unknown(text)
