"""Payload dialects: which payload field holds what in collections of other pipelines.

The names of known pipelines are data (`ALIASES`). A dialect names one payload field for each of Recto's
fields; it is detected from a sample of points, or set by the user in a mapping file.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from recto._util.text import nearest
from recto.errors import ConfigurationError
from recto.stores import from_payload
from recto.stores.qdrant.addresses import is_named, module_of, page_name
from recto.types.search import HEADING_SEPARATOR, Chunk

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
_PATH = re.compile(r"\A[^/\\]*+[/\\].*", re.DOTALL)
_FILE_NAME = re.compile(r"\A[^/\\]+\.(?:mdx?|markdown|txt|pdf|html?|rst)", re.IGNORECASE)
_SOURCES = {"page_url": (_PATH,), "page_title": (_FILE_NAME,), "file": (_PATH, _FILE_NAME)}
"""What a value of `source` must look like to be used: it may also be a constant such as "website"."""
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


def _module_name(value: Any) -> str | None:
    """Read a module's name; not a number or a word like "Docs", because the page's address says more."""
    name = _label(value)
    return name if name and is_named(name) else None


def _file_name(value: Any) -> str | None:
    name = _label(value)
    return name if name and _FILE_NAME.fullmatch(name) else None


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


Convert = Callable[[Any], Any]
"""Converts a value to the type of a field, or returns None if it is not usable."""
_CONVERT: Mapping[str, Convert] = {
    "text": _joined_text,
    "page_url": _label,
    "page_title": _label,
    "module": _module_name,
    "section": _headings,
    "chunk_index": _whole_number,
    "total_chunks": _whole_number,
}


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


def _read(payload: Mapping[str, Any], path: str, canonical: str, convert: Convert) -> Any:
    """Return the usable value at a path, or None."""
    value = value_at(payload, path)
    if path.rpartition(".")[2] == "source" and canonical in _SOURCES:
        name = _label(value) or ""
        if not any(form.fullmatch(name) for form in _SOURCES[canonical]):
            return None
    return convert(value)


def _first(payload: Mapping[str, Any], paths: Iterable[str], canonical: str, convert: Convert) -> Any:
    values = (_read(payload, path, canonical, convert) for path in paths)
    return next((value for value in values if value is not None), None)


@dataclass(frozen=True, slots=True)
class Dialect:
    """The payload field of each of Recto's fields: a dotted path, or an empty string if there is none.

    `partial` lists the fields that some points do not have; a filter on them would miss these points.
    `modules` are other names for modules, by the names that the collection has for them.
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
    modules: Mapping[str, str] = field(default_factory=dict)

    def read(self, id: str | int, payload: Mapping[str, Any]) -> Chunk:
        """Read a payload: this dialect's fields first, then all known aliases, then defaults."""
        if is_recto(payload):
            return from_payload(str(id), dict(payload))

        def first(canonical: str, convert: Convert | None = None) -> Any:
            paths = (self.path(canonical), *_paths(ALIASES[canonical]))
            return _first(payload, filter(None, paths), canonical, convert or _CONVERT[canonical])

        text, headings, chunk_index = first("text") or "", first("section") or (), first("chunk_index") or 0
        page_url = first("page_url") or first("page_title", _file_name) or ""
        module, keys = self.module_of(first("module") or first("module", _label) or "", page_url)
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
            source=_first(payload, _paths(_FILE_ALIASES), "file", _label) or page_url,
        )

    def module_of(self, stored: str, address: str) -> tuple[str, tuple[str, ...]]:
        """Return a page's module and all its names, with the names that `modules` gives."""
        name, keys = module_of(stored, address)
        alias = next((self.modules[key] for key in keys if key in self.modules), "")
        return (alias, tuple(dict.fromkeys((alias.lower(), *keys)))) if alias else (name, keys)

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
    for canonical, convert in _CONVERT.items():
        counts = {
            path: sum(_read(payload, path, canonical, convert) is not None for payload in sample)
            for path in _paths(ALIASES[canonical])
        }
        best = max(counts, key=counts.__getitem__)  # of several, the first, which is the most reliable one
        if counts[best]:
            chosen[canonical] = best
            partial.extend([canonical] if counts[best] < len(sample) else [])
    return Dialect("detected", **chosen, partial=tuple(partial))


def choose(configured: Dialect | None, payloads: Sequence[Mapping[str, Any]], *, is_own: bool) -> Dialect:
    """Return the dialect that the user set; if that names no fields, Recto's own, or the detected fields."""
    if configured is not None and any(configured.path(name) for name in ALIASES):
        return configured
    if is_own:
        return RECTO
    return replace(detect(payloads), modules=configured.modules if configured else {})


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
            'Its "modules" can give modules other names, such as {"module-2": "simulation"}. '
            "Leave RECTO_DIALECT unset to have the fields detected.",
        ) from error


def _parse_mapping(mapping: object, name: str) -> Dialect:
    """Check every entry of a mapping file; raise `ValueError` if one cannot be used."""
    if not isinstance(mapping, dict) or not set(mapping) - {"name"}:
        raise ValueError("it maps no field")
    modules = mapping.pop("modules", {})
    if unknown := sorted(set(mapping) - {*ALIASES, "name"}):
        near = nearest(unknown[0], ALIASES)
        raise ValueError(f"unknown key {unknown[0]!r}" + (f", did you mean {near!r}?" if near else ""))
    for key, value in mapping.items():
        if not isinstance(value, str) or not all(part.strip() for part in value.split(".")):
            raise ValueError(f"{key!r} must name a payload field, not {value!r}")
    if not isinstance(modules, dict) or not all(
        isinstance(module, str) and module.strip() for module in (*modules, *modules.values())
    ):
        raise ValueError("'modules' must map names to names")
    fields = {key: value.strip() for key, value in mapping.items()}
    lowered = {stored.strip().lower(): module.strip() for stored, module in modules.items()}
    return replace(Dialect(name), **fields, modules=lowered)
