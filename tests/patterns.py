"""Find the regular expressions of a package, and write input that makes them slow."""

from __future__ import annotations

import ast
import gc
import importlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf
from pathlib import Path
from re import _constants as op
from re import _parser
from time import process_time
from typing import Any

from tests.test_layers import tree

ANCHORED = frozenset({"match", "fullmatch"})
METHODS = ANCHORED | {"compile", "search", "sub", "subn", "split", "findall", "finditer"}


@dataclass(frozen=True)
class Use:
    """A regular expression, where it is, and whether it is tried at every position of a text."""

    place: str
    pattern: str | bytes
    flags: int
    scans: bool
    whole: bool = False

    def __str__(self) -> str:
        return self.place


# --- collection -------------------------------------------------------------------------------------------


class UnknownPatternError(AssertionError):
    """A pattern is built from local values and has no samples."""


def uses(module: str, paths: Mapping[str, Path], built: Mapping[str, Sequence[str]]) -> Iterator[Use]:
    """Yield the regular expressions of a module; `built` has samples of those made from local values.

    `paths` has all modules of the package.
    """
    methods = _methods(tuple(paths.items()))
    for call, function, constant in _calls(tree(paths[module])):
        method = call.func.attr if isinstance(call.func, ast.Attribute) else "compile"
        used = methods[module, constant] - {""} if method == "compile" else {method}
        place = f"{module}:{constant or function}"
        for pattern, flags in _values(call, module, place, built):
            yield Use(place, pattern, flags, bool(used - ANCHORED) or not used, used == {"fullmatch"})


def _calls(module: ast.Module) -> Iterator[tuple[ast.Call, str, str]]:
    """Yield the calls that compile a pattern, with their function, and the constant that keeps it."""
    compilers = {"_Pattern"}

    def visit(node: ast.AST, function: str, constant: str) -> Iterator[tuple[ast.Call, str, str]]:
        children = ast.iter_child_nodes(node)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function, constant = node.name, ""
        elif isinstance(node, ast.Assign | ast.AnnAssign) and not function:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            constant = target.id if isinstance(target, ast.Name) else ""
            if node.value is not None and ast.unparse(node.value) == "cache(re.compile)":
                compilers.add(constant)
                return
        elif isinstance(node, ast.Call) and (_is_method(node.func) or _named(node.func) in compilers):
            yield node, function, constant
            children = iter([*node.args, *node.keywords])
        elif _is_method(node) or _renames(node):
            raise AssertionError(
                "write `import re` and `re.compile(…)`, so that this test finds the patterns"
            )
        for child in children:
            yield from visit(child, function, constant)

    yield from visit(module, "", "")


def _is_method(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and _named(node.value) == "re" and node.attr in METHODS


def _named(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _renames(node: ast.AST) -> bool:
    """Return whether a name other than `re` is given to the module or to its functions."""
    if isinstance(node, ast.Import):
        return any(name.name == "re" and name.asname for name in node.names)
    return isinstance(node, ast.ImportFrom) and node.module == "re"


@cache
def _methods(paths: tuple[tuple[str, Path], ...]) -> defaultdict[tuple[str, str], set[str]]:
    """Return the methods that are called on each constant; one that is passed on counts as searched."""
    methods = defaultdict[tuple[str, str], set[str]](set)
    for module, path in paths:
        nodes = list(ast.walk(tree(path)))
        origins = {
            name.asname or name.name: (node.module or "", name.name)
            for node in nodes
            if isinstance(node, ast.ImportFrom)
            for name in node.names
        }
        called = dict[int, str]()
        for node in nodes:  # a call comes before its parts
            if isinstance(node, ast.Call) and len(node.args) > 1 and isinstance(node.func, ast.Attribute):
                called[id(node.func)] = "search"  # at several positions
            elif isinstance(node, ast.Attribute):
                if node.attr in METHODS:
                    called[id(node.value)] = (
                        called.get(id(node), node.attr) if node.attr in ANCHORED else "search"
                    )
                if (used := called.get(id(node))) or isinstance(node.ctx, ast.Load):
                    methods[module, node.attr].add(used or "")
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                methods[origins.get(node.id, (module, node.id))].add(called.get(id(node), "search"))
    return methods


def _values(
    call: ast.Call, module: str, place: str, built: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str | bytes, int]]:
    try:
        names = vars(importlib.import_module(module))
    except (ImportError, SystemExit):  # a framework that is not installed
        names = {"re": re}
    method = call.func.attr if isinstance(call.func, ast.Attribute) else "compile"
    position = 1 if method == "compile" else {"sub": 4, "subn": 4, "split": 3}.get(method, 2)
    stated = [key.value for key in call.keywords if key.arg == "flags"] + call.args[position:]
    try:
        pattern, flags = (_evaluate(part, names) for part in (call.args[0], *stated[:1], ast.Constant(0))[:2])
    except NameError as error:
        if place in built:
            yield from ((pattern, 0) for pattern in built[place])
            return
        raise UnknownPatternError(
            f"{place} builds a pattern from local values: make it a constant, or add samples to BUILT"
        ) from error
    if isinstance(pattern, re.Pattern):
        pattern, flags = pattern.pattern, pattern.flags
    yield pattern, int(flags)


def _evaluate(node: ast.expr, names: dict[str, Any]) -> Any:
    return eval(compile(ast.Expression(ast.fix_missing_locations(node)), "", "eval"), names)


# --- hostile input ----------------------------------------------------------------------------------------

_LONG = 200  # repetitions with fewer are bounded
_PROBES = "aA0_ \t\n-.,:!<é字\x00"
_MOST_PUMPS = 12


def _characters(node: Any) -> Iterator[str]:
    """Yield the characters that a syntax tree names, with those next to its ranges."""
    for code, value in node:
        if code in (op.LITERAL, op.NOT_LITERAL):
            yield chr(value)
        elif code is op.RANGE:
            yield from (chr(value[0]), chr(value[1]))
        elif code is op.IN:
            yield from _characters(value)
        else:
            for part in _parts(code, value):
                yield from _characters(part)


def _parts(code: Any, value: Any) -> list[Any]:
    if code is op.BRANCH:
        return list(value[1])
    if code is op.SUBPATTERN:
        return [value[3]]
    if code in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
        return [value[2]]
    if code in (op.ASSERT, op.ASSERT_NOT):
        return [value[1]]
    if code is op.ATOMIC_GROUP:
        return [value]
    return [part for part in value[1:] if part] if code is op.GROUPREF_EXISTS else []


_CATEGORIES: dict[Any, Callable[[str], bool]] = {
    op.CATEGORY_DIGIT: str.isdigit,
    op.CATEGORY_SPACE: str.isspace,
    op.CATEGORY_WORD: lambda character: character.isalnum() or character == "_",
}
_OPPOSITES = {
    op.CATEGORY_NOT_DIGIT: op.CATEGORY_DIGIT,
    op.CATEGORY_NOT_SPACE: op.CATEGORY_SPACE,
    op.CATEGORY_NOT_WORD: op.CATEGORY_WORD,
}


def _accepts(code: Any, value: Any, character: str) -> bool:
    if code in (op.LITERAL, op.NOT_LITERAL):
        return (chr(value) == character) == (code is op.LITERAL)
    if code is op.ANY:
        return character != "\n"
    if code is op.RANGE:
        return bool(value[0] <= ord(character) <= value[1])
    if code is op.CATEGORY:
        opposite = _OPPOSITES.get(value)
        return bool(_CATEGORIES[value if opposite is None else opposite](character)) == (opposite is None)
    negated = bool(value) and value[0][0] is op.NEGATE
    return any(_accepts(kind, item, character) for kind, item in value[negated:]) != negated


_SINGLE = frozenset({op.LITERAL, op.NOT_LITERAL, op.ANY, op.IN})


class _Attack:
    """Hostile input for one pattern."""

    def __init__(self, pattern: str | bytes, flags: int) -> None:
        self.tree = _parser.parse(pattern, flags & ~re.DEBUG)
        self.groups: dict[int, str] = {}
        singles = list(self._singles(self.tree))
        classes: dict[tuple[bool, ...], str] = {}
        for character in dict.fromkeys([*_characters(self.tree), *_PROBES]):
            if not isinstance(pattern, bytes) or ord(character) < 256:
                key = tuple(_accepts(code, value, character) for code, value in singles)
                classes.setdefault(key, character)
        self.alphabet = list(classes.values())

    def _singles(self, nodes: Any) -> Iterator[tuple[Any, Any]]:
        for code, value in nodes:
            if code in _SINGLE:
                yield code, value
            for part in _parts(code, value):
                yield from self._singles(part)

    def sample(self, nodes: Any, choice: int) -> str:
        """Return a short text that the nodes match, as far as that can be told without their context."""
        return "".join(self._sample(code, value, choice) for code, value in nodes)

    def _sample(self, code: Any, value: Any, choice: int) -> str:
        if code in _SINGLE:
            accepted = [character for character in self.alphabet if _accepts(code, value, character)]
            return accepted[choice % len(accepted)] if accepted else ""
        if code in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
            times = min(max(int(value[0]), choice % 2), int(value[1]), 20)
            return self.sample(value[2], choice) * times
        if code is op.BRANCH:
            return self.sample(value[1][choice % len(value[1])], choice)
        if code is op.SUBPATTERN:
            text = self.sample(value[3], choice)
            self.groups[value[0]] = text
            return text
        if code is op.GROUPREF:
            return self.groups.get(value, "")
        return self.sample(value, choice) if code is op.ATOMIC_GROUP else ""

    def repetitions(self, nodes: Any, before: str, after: str, choice: int) -> Iterator[tuple[str, Any, str]]:
        """Yield the unbounded repetitions: the text that leads to each, its body, the text behind it."""
        for index, (code, value) in enumerate(nodes):
            rest = self.sample(nodes[index + 1 :], choice) + after
            if code in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT) and value[1] > _LONG:
                yield before, value[2], rest
            for part in _parts(code, value):
                yield from self.repetitions(part, before, rest, choice)
            before += self._sample(code, value, choice)

    def pumps(self, body: Any) -> list[str]:
        if len(body) == 1 and body[0][0] in _SINGLE:
            ((code, value),) = body
            return [character for character in self.alphabet if _accepts(code, value, character)]
        return [self.sample(body, choice) for choice in range(6)]

    def texts(self, scans: bool) -> Iterator[tuple[str, str, str]]:
        """Yield prefix, repeated part and suffix."""
        endings = ["", "\x00", "\n", "!"]
        for choice in range(4):
            for before, body, rest in self.repetitions(self.tree, "", "", choice):
                suffixes = [*endings, f"{rest[:-1]}\x00", *([] if choice else [f" {rest}\x00"])]
                for pump in self.pumps(body)[:_MOST_PUMPS]:
                    yield from ((before, pump, suffix) for suffix in suffixes)
                    if scans:
                        for unit in (before + pump, before + pump + rest[:-1], f"{before}{pump}\n"):
                            yield from (("", unit, suffix) for suffix in endings[:2])
                if scans:
                    yield from (
                        ("", unit, suffix) for unit in (before, f"{before}\n") for suffix in endings[:2]
                    )
        yield from (("", character, ending) for character in self.alphabet for ending in endings)


# --- measurement ------------------------------------------------------------------------------------------

_STEPS = (12, 24, 96, 400, 1_600)
_FULL = 8_000  # characters with which quadratic time shows
_CLEAR = 0.002  # seconds; four times of less cannot be told from chance
_ENOUGH = 1.0  # seconds; longer input would show the same growth
_BEYOND_BOUNDS = 8_000  # repetitions; the bounds in patterns are 1000, and the growth is quadratic below them
_EXPLODES = 60  # cubic growth for four times the input
_MOST_TIMES = 6  # four times the input
_CERTAIN = 10  # times; a busy machine alone does not make the least of ten measurements so much longer
_MORE = 100  # measurements before a pattern is called slow, so that a busy machine does not decide


def slow_input(use: Use) -> str:
    """Return a description of input for which four times the length takes more than six times as long."""
    compiled = re.compile(use.pattern, use.flags)
    attacks = dict.fromkeys(_Attack(use.pattern, use.flags).texts(use.scans))
    linear = set[tuple[str, str]]()  # measured with another ending
    gc.disable()
    try:
        for before, pump, after in attacks:
            if not pump or (before, pump) in linear:
                continue
            growth = _growth(compiled, use, before, pump, after)
            if growth > _MOST_TIMES:
                attack = f"{before!r} + {pump!r} * n + {after!r}"
                return f"{use.place}: {attack}: 4 times the input takes {growth:.0f} times as long"
            if growth:
                linear.add((before, pump))
    finally:
        gc.enable()
    return ""


def _growth(compiled: re.Pattern[Any], use: Use, before: str, pump: str, after: str) -> float:
    """Return the growth of the time for four times the input; 0 if the time is too short to tell."""

    def seconds(count: int) -> float:
        return _seconds(compiled, use, before + pump * count + after)

    def measure(count: int) -> tuple[float, float]:
        # Other processes make a measurement longer, never shorter: the least of several counts.
        # They may be busy for a second, so what looks slow is measured for longer, short and long input in turn.
        short = long = inf
        for done in range(_MORE if count >= _BEYOND_BOUNDS else 2):
            short, long = min(short, seconds(count // 4)), min(long, seconds(count // 4 * 4))
            is_slow = long > _ENOUGH or (done >= 9 and long > _CERTAIN * short)
            if done and (is_slow or long <= _MOST_TIMES * short):
                break
        return max(short, 1e-6), long

    count = next((n for n in (*_STEPS, max(_FULL // len(pump), 400)) if seconds(n) > _CLEAR), 0)
    while count:
        short, long = measure(count)
        growth = long / short
        exponential = count < _STEPS[-2] and growth > _EXPLODES
        if growth <= _MOST_TIMES or exponential or long > _ENOUGH or count >= _BEYOND_BOUNDS:
            return growth
        count *= 2  # a bounded repetition grows like an unbounded one until its bound
    return 0


def _seconds(compiled: re.Pattern[Any], use: Use, text: str) -> float:
    subject: Any = text.encode("latin-1", "replace") if isinstance(use.pattern, bytes) else text
    began = process_time()
    if use.scans:
        for _ in compiled.finditer(subject):
            pass
    elif use.whole:
        compiled.fullmatch(subject)
    else:
        compiled.match(subject)
    return process_time() - began
