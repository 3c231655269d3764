"""Read the files that suites are kept in: JSON, JSON Lines and CSV, each entry with its place in the file."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recto.errors import InvalidArgument

SHAPE = 'A suite looks like {"queries": [{"query": "What is ROS 2?", "expect": {"module": "ros2"}}]}; "page" may stand beside "module".'
_LARGEST = 64 * 1024 * 1024
_LISTED = ("module", "page")
_COLUMNS = ("id", "query", *_LISTED, "passage", "nothing", "tags", "drafted", "filter_module", "filter_url", "note")
_TRUE, _FALSE = {"true", "yes", "1"}, {"", "false", "no", "0"}


@dataclass(frozen=True, slots=True)
class Raw:
    """What a file holds, not yet understood: what is said of the whole suite, and the entries with their places."""

    origin: str
    header: dict[str, Any]
    entries: list[tuple[str, Any]] = field(default_factory=list)


def read_raw(path: Path) -> Raw:
    """Read a suite's file by what its name ends with: `.jsonl`, `.csv`, and JSON for anything else."""
    try:
        with path.open("rb") as stream:
            data = stream.read(_LARGEST + 1)
    except (OSError, ValueError) as error:  # a name with a NUL in it is a ValueError
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise InvalidArgument(f"The suite {path} cannot be read: {reason}", hint="Check the path.") from error
    if len(data) > _LARGEST:
        raise InvalidArgument(f"The suite {path} is larger than {_LARGEST >> 20} MiB", hint="Split it into several suites.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidArgument(f"The suite {path} is not UTF-8 text: line {line}", hint="Save it as UTF-8.") from error
    kind = path.suffix.lower()
    return (_lines if kind in {".jsonl", ".ndjson"} else _table if kind == ".csv" else read_json)(text, str(path))


def read_json(text: str, origin: str) -> Raw:
    """Read one JSON object with the list `queries`."""
    data = _parsed(text, origin)
    entries = data.get("queries") if isinstance(data, dict) else None
    if not isinstance(entries, list) or not entries:
        raise InvalidArgument(f"{origin}: there are no queries in it", hint=SHAPE)
    header = {key: value for key, value in data.items() if key != "queries"}
    return Raw(origin, header, [(f"{origin}, query {number}", entry) for number, entry in enumerate(entries, 1)])


def _lines(text: str, origin: str) -> Raw:
    """Read an entry from every line; a first line without a query speaks of the whole suite."""
    raw = Raw(origin, {})
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        place = f"{origin}, line {number}"
        entry = _parsed(line, origin, number)
        if not raw.entries and not raw.header and isinstance(entry, dict) and not {"query", "expect", "question"} & set(entry):
            raw.header.update(entry)
        else:
            raw.entries.append((place, entry))
    if not raw.entries:
        raise InvalidArgument(f"{origin}: there are no queries in it", hint=SHAPE)
    return raw


def _table(text: str, origin: str) -> Raw:
    """Read an entry from every row; the first row names the columns, several modules or pages are separated by `|`."""
    hint = f"The first row names the columns: {', '.join(_COLUMNS)}."
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        columns = [name.strip().lower() for name in next(reader, [])]
        if unknown := [name for name in columns if name not in _COLUMNS]:
            raise InvalidArgument(f"{origin}, line 1: there is no column {unknown[0]!r}", hint=hint)
        if "query" not in columns or len(set(columns)) < len(columns):
            raise InvalidArgument(f'{origin}, line 1: it needs a column "query", and each column once', hint=hint)
        entries = list(_rows(reader, columns, origin))
    except csv.Error as error:
        raise InvalidArgument(f"{origin}, line {reader.line_num}: {error}", hint=hint) from error
    if not entries:
        raise InvalidArgument(f"{origin}: there are no queries in it", hint=hint)
    return Raw(origin, {}, entries)


def _rows(reader: Any, columns: list[str], origin: str) -> Iterator[tuple[str, Any]]:
    first = reader.line_num + 1
    for row in reader:
        place, first = f"{origin}, line {first}", reader.line_num + 1
        if not any(cell.strip() for cell in row):
            continue
        if len(row) > len(columns):
            raise InvalidArgument(f"{place}: it has more cells than there are columns", hint="Put cells with commas in double quotes.")
        yield place, _entry({name: cell.strip() for name, cell in zip(columns, row, strict=False) if cell.strip()}, place)


def _entry(cells: dict[str, str], place: str) -> dict[str, Any]:
    entry: dict[str, Any] = {name: cells[name] for name in ("id", "query", "note") if name in cells}
    entry["expect"] = {name: _listed(cells[name]) for name in _LISTED if name in cells}
    if "passage" in cells:
        entry["expect"]["passage"] = cells["passage"]
    if _flag(cells.get("nothing", ""), place, "nothing"):
        entry["expect"]["nothing"] = True
    if _flag(cells.get("drafted", ""), place, "drafted"):
        entry["drafted"] = True
    if "tags" in cells:
        entry["tags"] = [tag for part in cells["tags"].split("|") for tag in (word.strip() for word in part.split(",")) if tag]
    filters = {"module": _listed(cells["filter_module"])} if "filter_module" in cells else {}
    if "filter_url" in cells:
        filters["url"] = [cells["filter_url"]]
    return entry | ({"filters": filters} if filters else {})


def _listed(cell: str) -> list[str]:
    return [name.strip() for name in cell.split("|") if name.strip()]


def _flag(cell: str, place: str, name: str) -> bool:
    if cell.lower() in _TRUE | _FALSE:
        return cell.lower() in _TRUE
    raise InvalidArgument(f'{place}: "{name}" is {cell[:40]!r}', hint="Write true or false.")


def _parsed(text: str, origin: str, line: int | None = None) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        raise InvalidArgument(f"{origin}, line {line or error.lineno}, column {error.colno}: {error.msg}", hint=SHAPE) from error
    except RecursionError as error:
        raise InvalidArgument(f"{origin}: nested too deeply", hint=SHAPE) from error
    except ValueError as error:  # a number without end, or a key that is there twice
        raise InvalidArgument(f"{origin}{f', line {line}' if line else ''}: {error}", hint=SHAPE) from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f'"{twice}" is there twice in one entry')
    return found
