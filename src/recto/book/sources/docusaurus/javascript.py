"""Read the object that a JavaScript or TypeScript configuration file exports, as text: nothing is ever run.

Literals, names of the same file, JSON files beside it and expressions that only look at those are read, with no environment variable set.
All else is `Unknown` with its source.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Literal

Kind = Literal["name", "string", "template", "number", "regex", "mark", "end"]

_SPACE = re.compile(r"[\s\ufeff]+|//[^\n]*|/\*.*?(?:\*/|\Z)|\A#![^\n]*", re.DOTALL)
_NAME = re.compile(r"[^\W\d][\w$]*|[$#@][\w$]*")
_NUMBER = re.compile(
    r"0[xX][\da-fA-F_]+n?|0[bB][01_]+n?|0[oO][0-7_]+n?|(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d+)?n?"
)
_STRING = re.compile(r"'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"", re.DOTALL)
_REGEX = re.compile(r"/(?![/*])(?:[^/\\\n\[]|\\[^\n]|\[(?:[^\]\\\n]|\\[^\n])*\])+/[a-z]*")
_MARKS = re.compile(
    r"\.\.\.|=>|===|!==|==|!=|\?\?=|\|\|=|&&=|\?\?|\?\.(?!\d)|\|\||&&|\*\*=|\*\*|\+\+|--|<<=|>>=|[+\-*/%&|^]=|<=|>=|[^\s\w]"
)
_ESCAPE = re.compile(r"\\(?:u\{([\da-fA-F]{1,6})\}|u([\da-fA-F]{4})|x([\da-fA-F]{2})|(\r\n|.))", re.DOTALL)
_CONTROL = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "b": "\b",
    "f": "\f",
    "v": "\v",
    "0": "\0",
    "\n": "",
    "\r\n": "",
    "\u2028": "",
    "\u2029": "",
}
_BEFORE_REGEX = frozenset(
    {"return", "typeof", "case", "in", "of", "delete", "void", "throw", "new", "else", "do", "await", "yield"}
)


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the text; `value` is a name, a mark or what a string says; a template keeps its parts."""

    kind: Kind
    value: str
    start: int
    end: int
    parts: tuple[tuple[str, int, int], ...] = ()
    """Of a template: the text before each `${…}` and where the expression within it stands; the last text has none (-1)."""


def tokenize(text: str, start: int = 0, end: int | None = None) -> list[Token]:
    """Return the tokens of a stretch of text and one that ends it; any text gives tokens."""
    end = len(text) if end is None else end
    tokens: list[Token] = []
    while True:
        while space := _SPACE.match(text, start, end):
            start = space.end()
        if start >= end:
            break
        token = _token(text, start, end, tokens[-1] if tokens else None)
        tokens.append(token)
        start = token.end
    return [*tokens, Token("end", "", end, end)]


def _token(text: str, start: int, end: int, before: Token | None) -> Token:
    mark = text[start]
    if found := _NAME.match(text, start, end):
        return Token("name", found[0], start, found.end())
    if found := _NUMBER.match(text, start, end):
        return Token("number", found[0], start, found.end())
    if mark in "'\"" and (found := _STRING.match(text, start, end)):
        return Token("string", unescape(found[0][1:-1]), start, found.end())
    if mark == "`":
        return _template(text, start, end)
    if mark == "/" and _regex_may_follow(before) and (found := _REGEX.match(text, start, end)):
        return Token("regex", found[0], start, found.end())
    found = _MARKS.match(text, start, end)
    return Token("mark", found[0], start, found.end()) if found else Token("mark", mark, start, start + 1)


def _regex_may_follow(before: Token | None) -> bool:
    """A slash divides what stands before it; where nothing does, it begins a regular expression."""
    if before is None:
        return True
    if before.kind == "mark":
        return before.value not in (")", "]", "}")
    return before.kind == "name" and before.value in _BEFORE_REGEX


def _template(text: str, start: int, end: int) -> Token:
    """Read a template literal with the places of its expressions; one that is not closed goes to the end."""
    parts: list[tuple[str, int, int]] = []
    position = begun = start + 1
    while position < end and text[position] != "`":
        if text[position] == "\\":
            position += 2
        elif text.startswith("${", position, end):
            close = _closing_brace(text, position + 2, end)
            parts.append((unescape(text[begun:position]), position + 2, close))
            position = begun = min(close + 1, end)
        else:
            position += 1
    position = min(position, end)
    parts.append((unescape(text[begun:position]), -1, -1))
    return Token("template", parts[0][0], start, min(position + 1, end), tuple(parts))


def _closing_brace(text: str, position: int, end: int) -> int:
    """Find the brace that ends an expression in a template; a template within it is passed over without its own expressions."""
    depth = 0
    while position < end:
        mark = text[position]
        if mark in "'\"`":
            closed = text.find(mark, position + 1, end)
            position = closed if closed >= 0 else end
        elif mark == "}" and not depth:
            return position
        depth += (mark == "{") - (mark == "}")
        position += 1
    return end


def unescape(text: str) -> str:
    """Return what a string's source says."""
    return _ESCAPE.sub(_escaped, text) if "\\" in text else text


def _escaped(found: re.Match[str]) -> str:
    code = found[1] or found[2] or found[3]
    if code:
        number = int(code, 16)
        return chr(number) if number < 0x110000 and not 0xD800 <= number < 0xE000 else "\ufffd"
    return _CONTROL.get(found[4], found[4])


_TYPE_WORDS = frozenset({"typeof", "keyof", "readonly", "unique", "infer"})


class Cursor:
    """A place in a list of tokens."""

    def __init__(self, tokens: list[Token], matching: Mapping[int, int], at: int = 0) -> None:
        self.tokens = tokens
        self.matching = matching
        self.at = at

    @property
    def token(self) -> Token:
        """The token here."""
        return self.tokens[min(self.at, len(self.tokens) - 1)]

    def ahead(self, steps: int = 1) -> Token:
        """Return a token further on."""
        return self.tokens[min(self.at + steps, len(self.tokens) - 1)]

    def sees(self, *marks: str) -> bool:
        """Whether one of these marks or words stands here."""
        return self.token.kind in ("mark", "name") and self.token.value in marks

    def accept(self, mark: str) -> bool:
        """Go behind a mark if it stands here."""
        found = self.sees(mark)
        self.at += found
        return found

    def skip_group(self) -> None:
        """Go behind the bracket that closes the one that opens here."""
        self.at = self.matching.get(self.at, len(self.tokens) - 1) + 1

    @property
    def before(self) -> int:
        """Where the token before this place ends."""
        return self.tokens[max(0, min(self.at, len(self.tokens)) - 1)].end


def skip_type(cursor: Cursor, text: str) -> None:
    """Go behind a TypeScript type."""
    while True:
        while cursor.sees(*_TYPE_WORDS):
            cursor.at += 1
        if cursor.sees("(", "[", "{"):
            cursor.skip_group()
        elif cursor.token.kind in ("name", "string", "number", "template"):
            cursor.at += 1
        else:
            return
        while cursor.sees(".", "<", "[") and "\n" not in text[cursor.before : cursor.token.start]:
            if cursor.sees("<"):
                _skip_angles(cursor)
            elif cursor.sees("["):
                cursor.skip_group()
            else:
                cursor.at += 2
        if not (cursor.accept("|") or cursor.accept("&") or cursor.accept("=>")):
            return


def _skip_angles(cursor: Cursor) -> None:
    depth = 0
    while cursor.token.kind != "end":
        if cursor.sees("(", "[", "{"):
            cursor.skip_group()
            continue
        depth += cursor.token.value.count("<") - (
            cursor.token.value.count(">") if cursor.token.value != "=>" else 0
        )
        cursor.at += 1
        if depth <= 0:
            return


_LONGEST = 100_000  # characters of a string and of an expression's source; beyond it nothing is an address
_SHOWN = 120


class Undefined(Enum):
    """JavaScript's `undefined`."""

    UNDEFINED = "undefined"


@dataclass(frozen=True, slots=True)
class Unknown:
    """What only running the file would tell; `source` is how it is written."""

    source: str


UNDEFINED = Undefined.UNDEFINED
Data = str | float | bool | None | Undefined | Unknown | tuple["Value", ...] | Mapping[str, "Value"]


@dataclass(frozen=True, slots=True)
class Value:
    """A value that was read.

    `environment` says that it depends on environment variables, which all count as not set; `rest` is the source of a spread (`...x`)
    that could not be read, and so may add anything.
    """

    data: Data
    environment: bool = False
    rest: str = ""

    def get(self, *keys: str) -> Value:
        """Return what stands under a path of keys: undefined if nothing does, unknown if that cannot be told."""
        value = self
        for key in keys:
            value = value._member(key)
        return value

    def _member(self, key: str) -> Value:
        if isinstance(self.data, Mapping):
            if key in self.data:
                found = self.data[key]
                return (
                    replace(found, environment=True) if self.environment and not found.environment else found
                )
            return Value(Unknown(self.rest) if self.rest else UNDEFINED, self.environment)
        if isinstance(self.data, tuple) and key.isdecimal() and len(key) < 7 and not self.rest:
            return self.data[int(key)] if int(key) < len(self.data) else Value(UNDEFINED, self.environment)
        if isinstance(self.data, Unknown):
            return self
        return Value(UNDEFINED if self.data in (None, UNDEFINED) else Unknown(f"(…).{key}"), self.environment)

    @property
    def missing(self) -> bool:
        """Whether nothing was said: null or undefined."""
        return self.data is None or self.data is UNDEFINED

    @property
    def truth(self) -> bool | None:
        """Whether it counts as true; None if that cannot be told."""
        if isinstance(self.data, Unknown):
            return None
        return not (self.missing or self.data in ("", 0, False) or self.data != self.data)

    def but(self, environment: bool) -> Value:
        """Return it as one that may depend on the environment."""
        return replace(self, environment=self.environment or environment)

    @property
    def plain(self) -> Any:
        """Return it as Python has it: unknown parts stay, undefined is None."""
        if isinstance(self.data, Mapping):
            return {key: value.plain for key, value in self.data.items()}
        if isinstance(self.data, tuple):
            return [value.plain for value in self.data]
        return None if self.data is UNDEFINED else self.data


def unknown(source: str) -> Value:
    """Return a value of which only the source is known, in one line and not at length."""
    line = " ".join(source[:_LONGEST].split())
    return Value(Unknown(line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"))


def from_json(data: Any, depth: int = 0) -> Value:
    """Turn the values of a JSON file into those of a configuration."""
    if depth > 40:
        return unknown("…")
    if isinstance(data, dict):
        return Value({str(key): from_json(value, depth + 1) for key, value in data.items()})
    if isinstance(data, list):
        return Value(tuple(from_json(item, depth + 1) for item in data))
    if isinstance(data, int) and not isinstance(data, bool):
        return Value(float(data)) if abs(data) < 1 << 53 else unknown(str(data)[:40])
    return Value(data) if isinstance(data, str | float | bool | None) else unknown(str(data))


def combine(mark: str, left: Value, right: Value, source: str) -> Value:
    """Apply a binary operator that only looks at its operands; any other one is unknown."""
    if mark in ("&&", "||", "??"):
        return _either(mark, left, right, source)
    environment = left.environment or right.environment
    a, b = left.data, right.data
    if not _simple(a) or not _simple(b):
        return unknown(source)
    if mark in ("===", "!==", "==", "!="):
        same = a == b and isinstance(a, bool) == isinstance(b, bool)
        if len(mark) == 2 and left.missing and right.missing:
            same = True
        return Value(same == (mark[0] == "="), environment)
    if mark == "+" and (isinstance(a, str) or isinstance(b, str)):
        joined = shown(a) + shown(b)
        return Value(joined, environment) if len(joined) <= _LONGEST else unknown(source)
    return unknown(source)


def _either(mark: str, left: Value, right: Value, source: str) -> Value:
    keep = (
        left.truth
        if mark == "||"
        else not left.missing
        if mark == "??"
        else None
        if left.truth is None
        else not left.truth
    )
    if keep is None or isinstance(left.data, Unknown):
        return unknown(source)
    return left if keep else right.but(left.environment)


def _simple(data: Data) -> bool:
    return not isinstance(data, Unknown | tuple | Mapping)


def shown(data: Data) -> str:
    """Return a simple value as JavaScript writes it into a string."""
    if isinstance(data, bool):
        return "true" if data else "false"
    if isinstance(data, float):
        return str(int(data)) if data.is_integer() and abs(data) < 1e21 else repr(data)
    return data if isinstance(data, str) else "undefined" if data is UNDEFINED else "null"


_CLOSING = {")": "(", "]": "[", "}": "{"}
_OPENING = frozenset(_CLOSING.values())
_DECLARES = frozenset({"const", "let", "var"})
_FAR = 200  # tokens; the head of a function, a class or an import is shorter
_ASSIGNS = frozenset({"=", "+=", "||=", "&&=", "??=", "-=", "*=", "/="})


def pairs(tokens: Sequence[Token]) -> dict[int, int]:
    """Map the index of each opening bracket to that of the one that closes it; one that is never closed goes to the end."""
    matching: dict[int, int] = {}
    opened: list[int] = []
    for index, token in enumerate(tokens):
        if token.kind != "mark":
            continue
        if token.value in _OPENING:
            opened.append(index)
        elif opened and _CLOSING.get(token.value) == tokens[opened[-1]].value:
            matching[opened.pop()] = index
    return matching | dict.fromkeys(opened, len(tokens) - 1)


class Declarations:
    """The names of a file, by the places of their tokens."""

    def __init__(self, tokens: Sequence[Token], matching: Mapping[int, int]) -> None:
        self._tokens = tokens
        self._matching = matching
        self.names: dict[str, int] = {}
        self.imports: dict[str, tuple[str, str]] = {}
        self.functions: dict[str, tuple[int, int]] = {}
        self.changed: set[str] = set()
        self.changed_members: dict[str, set[str]] = {}
        self.exported: int | None = None
        for index in self._outermost(0, len(tokens) - 1):
            self._statement(index)
        self._find_changes()

    def enter(self, first: int, last: int) -> int | None:
        """Add the names of a function's body; return the place of what the function returns."""
        if self._value(first - 1) == "=>":
            return first
        returned = None
        for index in self._outermost(first, last):
            self._declaration(index)
            if self._value(index) == "return" and returned is None:
                returned = index + 1
        self._find_changes()
        return returned

    def function_at(self, index: int) -> tuple[int, int] | None:
        """Return the first and last place of the body, if a function or an arrow stands here."""
        body = self._body(index)
        if body is None:
            return None
        if self._value(body) == "{":
            return body + 1, self._matching.get(body, len(self._tokens) - 1)
        return body, len(self._tokens) - 1

    def end_of_function(self, index: int) -> int | None:
        """Return the place behind a function or a class that stands here, or behind the mark of an arrow without braces."""
        if self._is(index, "class"):
            index = self._next(index, "{", ";")
            return self._matching.get(index, index) + 1
        body = self._body(index)
        if body is None:
            return None
        return self._matching.get(body, body) + 1 if self._value(body) == "{" else body

    def _body(self, index: int) -> int | None:
        """Return where the body of a function begins: at its brace, or behind the mark of an arrow."""
        if self._is(index, "async") and self._value(index + 1) != "=>":
            index += 1
        if self._is(index, "function"):
            index = self._next(index, "(", ";")
            return self._brace(self._matching.get(index, index) + 1)
        if self._value(index) == "(" and index in self._matching:
            index = self._matching[index] + 1
            if self._value(index) == ":":  # the type of what it returns
                index = self._behind_return_type(index)
        elif self._tokens[min(index, len(self._tokens) - 1)].kind == "name":
            index += 1
        else:
            return None
        return index + 1 if self._value(index) == "=>" else None

    def _behind_return_type(self, index: int) -> int:
        for place in range(index, min(index + 20, len(self._tokens))):
            if self._value(place) in ("=>", ",", ";", "?", "{", ")"):
                return place
        return index

    def _brace(self, index: int) -> int | None:
        for place in range(index, min(index + 40, len(self._tokens))):
            if self._value(place) == "{" and self._value(place - 1) not in (":", "<", "|", "&"):
                return place
        return None

    def _next(self, index: int, *marks: str) -> int:
        """Return where one of the marks comes next, if it comes soon."""
        return next(
            (
                place
                for place in range(index, min(index + _FAR, len(self._tokens)))
                if self._value(place) in marks
            ),
            index,
        )

    def _outermost(self, first: int, last: int) -> Iterator[int]:
        """Yield the places that are in no bracket."""
        index = first
        while index < last:
            yield index
            index = self._matching.get(index, index) + 1

    def _value(self, index: int) -> str:
        token = self._tokens[index] if 0 <= index < len(self._tokens) else self._tokens[-1]
        return token.value if token.kind in ("mark", "name") else ""

    def _is(self, index: int, word: str) -> bool:
        return self._value(index) == word and self._value(index - 1) != "."

    def _statement(self, index: int) -> None:
        self._declaration(index)
        if self._is(index, "import"):
            self._import(index + 1)
        elif self._is(index, "export") and self._value(index + 1) == "default":
            self.exported = index + 2
        elif self._is(index, "module") and [self._value(index + step) for step in (1, 2, 3)] == [
            ".",
            "exports",
            "=",
        ]:
            self.exported = index + 4
        elif self._is(index, "function") and self._tokens[index + 1].kind == "name":
            begin = index - 1 if self._value(index - 1) == "async" else index
            body = self.function_at(begin)
            if body:
                self.functions[self._tokens[index + 1].value] = body

    def _declaration(self, index: int) -> None:
        if self._value(index) not in _DECLARES or self._value(index - 1) == ".":
            return
        for place in self._outermost(index + 1, len(self._tokens) - 1):
            token = self._tokens[place]
            if self._value(place) in (";", "const", "let", "var", "import", "export", "function", "return"):
                return
            if token.kind == "name" and place - 1 != index and self._value(place - 1) != ",":
                continue
            if token.kind == "name":
                start = self._initializer(place + 1)
                if start is not None:
                    self.names[token.value] = start

    def _initializer(self, index: int) -> int | None:
        """Return where the value begins that a name is declared with, behind its type."""
        if self._value(index) == "=":
            return index + 1
        if self._value(index) == ":":
            for place in self._outermost(index + 1, min(index + 60, len(self._tokens) - 1)):
                if self._value(place) == "=":
                    return place + 1
                if self._value(place) in (";", "const", "let", "var"):
                    return None
        return None

    def _import(self, index: int) -> None:
        """Note the names of an import of a JSON file."""
        places = range(index, min(index + _FAR, len(self._tokens)))
        end = next(
            (
                place
                for place in places
                if self._tokens[place].kind == "string" or self._value(place) in (";", "(")
            ),
            index,
        )
        path = self._tokens[end].value
        if not path.endswith(".json"):
            return
        within = False
        for place in range(index, end):
            token = self._tokens[place]
            within = self._value(place) == "{" or (within and self._value(place) != "}")
            if token.kind == "name" and token.value not in ("from", "as", "type"):
                renamed = self._value(place + 1) == "as"
                name = self._tokens[place + 2].value if renamed else token.value
                if self._value(place - 1) != "as" or not within:
                    self.imports[name] = (path, token.value if within and token.value != "default" else "")

    def _find_changes(self) -> None:
        """Note what is assigned to after it was declared, and members that are."""
        declared = set(self.names.values())
        for index, token in enumerate(self._tokens[:-1]):
            if token.kind != "name" or self._value(index - 1) in (".", "?.", *_DECLARES):
                continue
            if self._value(index + 1) in _ASSIGNS and index + 2 not in declared:
                self.changed.add(token.value)
            elif self._value(index + 1) == "." and self._value(index + 3) in _ASSIGNS:
                self.changed_members.setdefault(token.value, set()).add(self._tokens[index + 2].value)


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
        if (
            body is None
            and cursor.token.kind == "name"
            and cursor.ahead().value in ("", ";", "export", "module")
        ):
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
            value = (
                unknown(self._source(start, cursor.before))
                if value.truth is None
                else chosen.but(value.environment)
            )
        elif (
            cursor.token.value.endswith("=")
            and cursor.token.value not in _PRECEDENCE
            and cursor.token.kind == "mark"
        ):
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
                value = (
                    self._member(value, shown(key), source)
                    if isinstance(key, str | float)
                    else unknown(source)
                )
            elif cursor.sees("("):
                value = self._call(cursor, start)
            elif cursor.token.kind == "template":
                cursor.at += 1
                value = unknown(self._source(start, cursor.before))
            elif cursor.sees("as", "satisfies") and not line_ends:
                cursor.at += 1
                skip_type(cursor, self._text)
            elif (
                cursor.sees("!")
                and not line_ends
                and cursor.ahead().value in (",", ".", ")", "]", "}", ";", "[")
            ):
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
            token.value
            if token.kind in ("name", "string")
            else shown(_number(token.value).data)
            if token.kind == "number"
            else None
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
