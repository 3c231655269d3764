"""A suite: questions with expectations that are bound to the book, never to chunks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from recto.errors import InvalidArgument, InvalidQuery
from recto.limits import check_query

_SHAPE = 'A suite looks like {"queries": [{"query": "What is ROS 2?", "expect": {"module": "ros2"}}]}; "page" may stand beside "module".'


@dataclass(frozen=True, slots=True)
class Expectation:
    """A question, and the modules or pages of which one must come first."""

    query: str
    modules: tuple[str, ...] = ()
    pages: tuple[str, ...] = ()

    @property
    def expected(self) -> str:
        """What is expected, in a report's words."""
        return " or ".join(self.modules or self.pages)


@dataclass(frozen=True, slots=True)
class Suite:
    """Named expectations in order."""

    name: str
    expectations: tuple[Expectation, ...]


def documented_suite() -> Suite:
    """Return the five queries of the query contract."""
    return _parse(files("recto.evaluation").joinpath("documented.json").read_text("utf-8"), "documented.json")


def load_suite(path: Path) -> Suite:
    """Read a suite's JSON file."""
    try:
        text = path.read_text("utf-8-sig")
    except OSError as error:
        raise InvalidArgument(f"The suite {path} cannot be read: {error.strerror or error}", hint="Check the path.") from error
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"The suite {path} is not UTF-8 text", hint=_SHAPE) from error
    return _parse(text, str(path))


def _parse(text: str, origin: str) -> Suite:
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidArgument(f"{origin}, line {error.lineno}, column {error.colno}: {error.msg}", hint=_SHAPE) from error
    except RecursionError as error:
        raise InvalidArgument(f"{origin}: nested too deeply", hint=_SHAPE) from error
    except ValueError as error:  # a number without end
        raise InvalidArgument(f"{origin}: {error}", hint=_SHAPE) from error
    entries = data.get("queries") if isinstance(data, dict) else None
    if not isinstance(entries, list) or not entries:
        raise InvalidArgument(f"{origin}: there are no queries in it", hint=_SHAPE)
    name = data.get("name")
    expectations = tuple(_expectation(entry, f"{origin}, query {number}") for number, entry in enumerate(entries, 1))
    return Suite(name if isinstance(name, str) else Path(origin).stem, expectations)


def _expectation(entry: Any, place: str) -> Expectation:
    if not isinstance(entry, dict) or not isinstance(entry.get("expect"), dict):
        raise InvalidArgument(f'{place}: it needs a "query" and an "expect"', hint=_SHAPE)
    try:
        query = check_query(entry.get("query", ""))
    except InvalidQuery as error:
        raise InvalidArgument(f"{place}: {error.message}", hint=_SHAPE) from error
    modules, pages = (_names(entry["expect"].get(key), place, key) for key in ("module", "page"))
    if not modules and not pages:
        raise InvalidArgument(f'{place}: it expects neither a "module" nor a "page"', hint=_SHAPE)
    return Expectation(query, modules, pages)


def _names(value: Any, place: str, key: str) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(names, list) or not all(isinstance(name, str) and name.strip() for name in names):
        raise InvalidArgument(f'{place}: "{key}" must be a name or a list of names', hint=_SHAPE)
    return tuple(name.strip() for name in names)
