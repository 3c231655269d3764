"""Split the text of a JavaScript or TypeScript file into tokens; nothing is ever run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["name", "string", "template", "number", "regex", "mark", "end"]

_SPACE = re.compile(r"[\s\ufeff]+|//[^\n]*|/\*.*?(?:\*/|\Z)|\A#![^\n]*", re.DOTALL)
_NAME = re.compile(r"[^\W\d][\w$]*|[$#@][\w$]*")
_NUMBER = re.compile(r"0[xX][\da-fA-F_]+n?|0[bB][01_]+n?|0[oO][0-7_]+n?|(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d+)?n?")
_STRING = re.compile(r"'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"", re.DOTALL)
_REGEX = re.compile(r"/(?![/*])(?:[^/\\\n\[]|\\[^\n]|\[(?:[^\]\\\n]|\\[^\n])*\])+/[a-z]*")
_MARKS = re.compile(
    r"\.\.\.|=>|===|!==|==|!=|\?\?=|\|\|=|&&=|\?\?|\?\.(?!\d)|\|\||&&|\*\*=|\*\*|\+\+|--|<<=|>>=|[+\-*/%&|^]=|<=|>=|[^\s\w]"
)
_ESCAPE = re.compile(r"\\(?:u\{([\da-fA-F]{1,6})\}|u([\da-fA-F]{4})|x([\da-fA-F]{2})|(\r\n|.))", re.DOTALL)
_CONTROL = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0", "\n": "", "\r\n": "", "\u2028": "", "\u2029": ""}
_BEFORE_REGEX = frozenset({"return", "typeof", "case", "in", "of", "delete", "void", "throw", "new", "else", "do", "await", "yield"})


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
