"""What a configuration that is only read, never run, can say: literals, and the source text of all that would have to be run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

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
                return replace(found, environment=True) if self.environment and not found.environment else found
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
    keep = left.truth if mark == "||" else not left.missing if mark == "??" else None if left.truth is None else not left.truth
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
