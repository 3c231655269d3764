"""Payload dialects: which payload field holds what in collections of other pipelines, and how to filter them.

The names of known pipelines are data (`ALIASES`). A dialect names one payload field for each of Recto's
fields; it is detected from a sample of points, or set by the user in a mapping file.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from recto._util.text import filter_keys, nearest
from recto.errors import ConfigurationError
from recto.stores import filter_values, from_payload
from recto.stores.qdrant.addresses import (
    address_key,
    is_file_name,
    is_named,
    is_path,
    module_of,
    page_name,
    spellings,
)
from recto.types.search import HEADING_SEPARATOR, Chunk, Filters

ALIASES: Mapping[str, tuple[str, ...]] = {
    "text": ("text", "content", "text_content", "chunk_text", "page_content"),
    "page_url": (
        *("page_url", "url", "source_url", "url_path", "source_document"),
        *("source", "doc_path", "file_path", "source_file", "full_path"),
    ),
    "page_title": ("page_title", "title", "filename", "file_name", "source"),
    "module": ("module_name", "module", "module_id", "chapter", "chapter_name", "category"),
    "section": ("section", "section_title", "section_heading", "heading", "headings"),
    "chunk_index": ("chunk_index", "position", "chunk_id"),
    "total_chunks": ("total_chunks",),
}
"""The names of each of Recto's fields in known pipelines, the most reliable first."""
_FILE_ALIASES = ("file_path", "source_file", "doc_path", "full_path", "source", "file_name", "filename")
_PREFIXES = ("", "metadata.", "source_metadata.")  # an alias may also be inside one of these objects
_RECTO_TYPES: Mapping[str, type] = {
    **dict.fromkeys(
        ("text", "page_url", "page_key", "page_title", "module_name", "anchor", "content_hash", "source"), str
    ),
    **dict.fromkeys(("chunk_index", "total_chunks", "start_line", "end_line"), int),
    **dict.fromkeys(("module_keys", "headings"), list),
}
SAMPLE = 64
"""How many points are read to detect a dialect."""
_WHOLE_NUMBER = re.compile(r"\+?(\d{1,9})(?:\.0*)?")
_MAX_INDEX = 10**9  # a larger number is an id

Stored = str | int
"""A value of a module field."""
FieldFilters = Mapping[str, Sequence[Stored]]
"""The values that each payload field may have."""
Convert = Callable[[Any], Any]
"""Converts a value to the type of a field, or returns None if it is not usable."""


def is_recto(payload: Mapping[str, Any]) -> bool:
    """Return whether a payload has the fields and types of `to_payload`."""
    if not all(isinstance(payload.get(name), kind) for name, kind in _RECTO_TYPES.items()):
        return False
    texts = (*payload["module_keys"], *payload["headings"], payload.get("book", ""))
    return all(isinstance(text, str) for text in texts)


def _joined_text(value: Any) -> str | None:
    """Read the text of a chunk; some splitters store a list of lines."""
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        value = "\n".join(value)
    return value if isinstance(value, str) and value.strip() else None


def _label(value: Any) -> str | None:
    """Read a short text, or a number: YAML turns a title like 2024 into one."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63:
        value = str(value)
    return (value.strip() or None) if isinstance(value, str) else None


def _label_if(*tests: Callable[[str], bool]) -> Convert:
    """Return a function that reads a label for which one of the tests is true."""

    def convert(value: Any) -> str | None:
        label = _label(value)
        return label if label and any(test(label) for test in tests) else None

    return convert


def _whole_number(value: Any) -> int | None:
    """Read a whole number, also from a float or a string."""
    if isinstance(value, str):
        number = _WHOLE_NUMBER.fullmatch(value.strip())
        return int(number[1]) if number else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _MAX_INDEX:
        return None
    return int(value) if value == int(value) else None


def _headings(value: Any) -> tuple[str, ...] | None:
    """Read headings from a list, or from a string with separators."""
    items = value.split(HEADING_SEPARATOR) if isinstance(value, str) else value
    items = items if isinstance(items, list) else [items]
    named = (item.get("text") or item.get("title") if isinstance(item, Mapping) else item for item in items)
    return tuple(heading for item in named if (heading := _label(item))) or None


_CONVERT: Mapping[str, Convert] = {
    "text": _joined_text,
    "page_url": _label,
    "page_title": _label,
    "module": _label_if(is_named),  # of a number or a word like "Docs", the page's address says more
    "section": _headings,
    "chunk_index": _whole_number,
    "total_chunks": _whole_number,
}
_CONVERT_SOURCE: Mapping[str, Convert] = {
    "page_url": _label_if(is_path),
    "page_title": _label_if(is_file_name),
}
"""For the field `source`, which may also be a constant such as "website"."""


def _paths(aliases: Iterable[str]) -> Iterator[str]:
    return (prefix + alias for alias in aliases for prefix in _PREFIXES)


def value_at(payload: Mapping[str, Any], path: str) -> Any:
    """Return the value at a dotted path, or None."""
    value: Any = payload
    for part in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    return value


def _read(payload: Mapping[str, Any], path: str, canonical: str, convert: Convert | None = None) -> Any:
    """Return the usable value of one of Recto's fields at a path, or None."""
    value = value_at(payload, path)
    if path.rpartition(".")[2] == "source" and canonical in _CONVERT_SOURCE:
        value = _CONVERT_SOURCE[canonical](value)
    return (convert or _CONVERT[canonical])(value)


def _file(payload: Mapping[str, Any]) -> str | None:
    """Return the path or the name of a page's file."""
    of_source = _label_if(is_path, is_file_name)
    for path in _paths(_FILE_ALIASES):
        convert = of_source if path.endswith("source") else _label
        if name := convert(value_at(payload, path)):
            return str(name)
    return None


@dataclass(frozen=True, slots=True)
class Dialect:
    """The payload field of each of Recto's fields: a dotted path, or an empty string if there is none.

    `partial` lists the fields that some points do not have; a filter on them would miss these points.
    """

    name: str
    text: str = ""
    page_url: str = ""
    page_title: str = ""
    module: str = ""
    section: str = ""
    chunk_index: str = ""
    total_chunks: str = ""
    partial: tuple[str, ...] = ()

    def read(self, id: str | int, payload: Mapping[str, Any]) -> Chunk:
        """Read a payload: this dialect's fields first, then all known aliases, then defaults."""
        if is_recto(payload):
            return from_payload(str(id), dict(payload))

        def first(canonical: str, convert: Convert | None = None) -> Any:
            paths = filter(None, (self.path(canonical), *_paths(ALIASES[canonical])))
            values = (_read(payload, path, canonical, convert) for path in paths)
            return next((value for value in values if value is not None), None)

        text, headings, chunk_index = first("text") or "", first("section") or (), first("chunk_index") or 0
        page_url = first("page_url") or first("page_title", _label_if(is_file_name)) or ""
        module, keys = module_of(first("module") or first("module", _label) or "", page_url)
        return Chunk(
            id=str(id),
            text=text,
            page_url=page_url,
            title=first("page_title") or next(iter(headings), "") or page_name(page_url),
            module=module,
            module_keys=keys,
            headings=headings,
            anchor="",
            chunk_index=chunk_index,
            total_chunks=max(first("total_chunks") or 0, chunk_index + 1),
            start_line=0,
            end_line=0,
            content_hash=_label(payload.get("content_hash"))
            or hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(),
            source=_file(payload) or page_url,
        )

    def path(self, canonical: str) -> str:
        """Return the payload field of one of Recto's fields, or an empty string."""
        return str(getattr(self, canonical))

    def describe(self) -> str:
        """Return a line that lists the fields, and those that are missing."""
        present = [
            f"{name} from {self.path(name)}" + (" (not in every point)" if name in self.partial else "")
            for name in ALIASES
            if self.path(name)
        ]
        missing = [name for name in ALIASES if not self.path(name)]
        fields = ", ".join(present) or "no field is known"
        return f"{self.name}: {fields}" + (f"; missing: {', '.join(missing)}" if missing else "")


RECTO = Dialect(
    "recto", "text", "page_url", "page_title", "module_name", "headings", "chunk_index", "total_chunks"
)


def detect(payloads: Sequence[Mapping[str, Any]]) -> Dialect:
    """Choose for each field the alias that has a usable value in most of the payloads."""
    sample = payloads[:SAMPLE]
    if sample and all(is_recto(payload) for payload in sample):
        return RECTO
    chosen: dict[str, Any] = {}
    partial: list[str] = []
    for canonical, aliases in ALIASES.items():
        counts = {
            path: sum(_read(payload, path, canonical) is not None for payload in sample)
            for path in _paths(aliases)
        }
        best = max(counts, key=counts.__getitem__)  # of several, the first, which is the most reliable one
        if counts[best]:
            chosen[canonical] = best
            partial.extend([canonical] if counts[best] < len(sample) else [])
    return Dialect("detected", **chosen, partial=tuple(partial))


def load_dialect(path: Path) -> Dialect:
    """Return the dialect that a mapping file describes."""
    import tomllib

    try:
        text = path.expanduser().read_text("utf-8-sig")
        mapping = tomllib.loads(text) if path.suffix.lower() == ".toml" else json.loads(text)
        return _parse_mapping(mapping, path.stem)
    except (OSError, ValueError, RuntimeError) as error:
        # RuntimeError: it is nested too deeply, or a user's home in the path does not exist.
        raise ConfigurationError(
            f"The file {path} in RECTO_DIALECT cannot be used: {error}",
            hint="Write a JSON or TOML file like "
            '{"text": "body", "page_url": "meta.link", "page_title": "meta.title", "module": "chapter"}; '
            f"its keys are {', '.join(ALIASES)}, its values are payload fields. "
            "Leave RECTO_DIALECT unset to have the fields detected.",
        ) from error


def _parse_mapping(mapping: object, name: str) -> Dialect:
    """Check every entry of a mapping file; raise `ValueError` if one cannot be used."""
    if not isinstance(mapping, dict) or not set(mapping) - {"name"}:
        raise ValueError("it maps no field")
    if unknown := sorted(set(mapping) - {*ALIASES, "name"}):
        near = nearest(unknown[0], ALIASES)
        raise ValueError(f"unknown key {unknown[0]!r}" + (f", did you mean {near!r}?" if near else ""))
    for key, value in mapping.items():
        if not isinstance(value, str) or not all(part.strip() for part in value.split(".")):
            raise ValueError(f"{key!r} must name a payload field, not {value!r}")
    return replace(Dialect(name), **{key: value.strip() for key, value in mapping.items()})


def field_filters(
    dialect: Dialect, filters: Filters, stored: Mapping[str, Sequence[Stored]]
) -> FieldFilters | None:
    """Return the values that payload fields may have, or None if the client must filter with `matches`.

    `stored` is the result of `stored_modules`. If it does not have the name of a module, the collection may
    store an unexpected value for it, and a filter on the server would miss these points.
    """
    if dialect == RECTO:
        return filter_values(filters)
    if filters.language is not None or filters.versions or filters.locales:
        return None  # only Recto's own payloads have them
    fields: dict[str, Sequence[Stored]] = {}
    if filters.modules:
        names = filter_keys(filters.modules)
        if not dialect.module or "module" in dialect.partial or not all(name in stored for name in names):
            return None
        fields[dialect.module] = list(dict.fromkeys(value for name in names for value in stored[name]))
    if filters.page_url is not None:
        if not dialect.page_url or "page_url" in dialect.partial or dialect.page_url in fields:
            return None
        fields[dialect.page_url] = spellings(filters.page_url.strip())
    return fields


def stored_modules(
    dialect: Dialect, payloads: Sequence[Mapping[str, Any]], values: Iterable[Stored] = ()
) -> dict[str, tuple[Stored, ...]]:
    """Map the names of modules to the stored values of the module field; a facet has the `values`.

    A name that only some of the points with a value have is left out, because no value selects just these
    points.
    """
    shared: dict[Stored, set[str]] = {}
    ambiguous: set[str] = set()
    for payload in payloads if dialect.module else ():
        value, keys = value_at(payload, dialect.module), set(dialect.read("", payload).module_keys)
        others = shared.setdefault(value, keys) if isinstance(value, str | int) else set()
        ambiguous |= others ^ keys
        others &= keys
    for value in values:
        shared.setdefault(value, set(module_of(str(value), "")[1]))
    modules: dict[str, tuple[Stored, ...]] = {}
    for value, keys in shared.items():
        modules.update({key: (*modules.get(key, ()), value) for key in sorted(keys - ambiguous)})
    return modules


def matches(chunk: Chunk, filters: Filters) -> bool:
    """Return whether a chunk matches the filters, by any name of its module and any spelling of its page."""
    if filters.modules and not set(filter_keys(filters.modules)) & set(chunk.module_keys):
        return False
    if not filters.in_edition(chunk):
        return False
    return filters.page_url is None or address_key(chunk.page_url) == address_key(filters.page_url)
