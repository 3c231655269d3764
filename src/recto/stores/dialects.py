"""Which field of a foreign payload holds what, and how such a payload becomes a chunk."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from recto.stores.dialect_modules import is_named, module_of, page_name
from recto.stores.payload import from_payload
from recto.types import HEADING_SEPARATOR, Chunk

T = TypeVar("T")
Reader = Callable[[str, Any], T | None]
"""Gives the value at a path in its canonical type, or `None` if it is of no use."""

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
"""The names under which each canonical field was seen, in the order in which they are believed."""

_FILE_FIELDS = ("file_path", "source_file", "doc_path", "full_path", "source", "file_name", "filename")
_PLACES = ("", "metadata.", "source_metadata.")
_FILE_NAME = re.compile(r"[^/\\]+\.(?:mdx?|markdown|txt|pdf|html?|rst)", re.IGNORECASE)
_WHOLE_NUMBER = re.compile(r"\+?(\d{1,9})(?:\.0*)?")
_LARGEST_INDEX = 10**9  # a larger "index" is an id
_ABSENT: Mapping[str, str] = {
    "page_title": "the first heading or the address is shown",
    "module": "derived from the address",
    "total_chunks": "at least chunk_index + 1",
}


@dataclass(frozen=True, slots=True)
class Dialect:
    """The payload field that holds each canonical field: a dotted path, or nothing where none does.

    `partial` names the fields that not every point has: they are good to read, but a filter on them would lose points.
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
        """Read any payload: this dialect's fields first, then every known alias; what nobody stored is filled in."""
        if is_recto(payload):
            return from_payload(str(id), dict(payload))
        text = self._first(payload, "text", as_text) or ""
        headings = self._first(payload, "section", as_headings) or ()
        page_url = self._first(payload, "page_url", as_address) or self._first(payload, "page_title", _as_file_name) or ""
        raw_module = self._first(payload, "module", as_module) or self._first(payload, "module", as_label) or ""
        module, keys = module_of(raw_module, page_url)
        chunk_index = self._first(payload, "chunk_index", as_number) or 0
        return Chunk(
            id=str(id),
            text=text,
            page_url=page_url,
            page_title=self._first(payload, "page_title", as_title) or next(iter(headings), "") or page_name(page_url),
            module_name=module,
            module_keys=keys,
            headings=headings,
            anchor="",
            chunk_index=chunk_index,
            total_chunks=max(self._first(payload, "total_chunks", as_number) or 0, chunk_index + 1),
            start_line=0,
            end_line=0,
            content_hash=as_label("", payload.get("content_hash")) or _digest(text),
            source=_first_of(payload, _FILE_FIELDS, _as_file) or page_url,
        )

    def path(self, canonical: str) -> str:
        """Return where a canonical field is, or nothing."""
        return str(getattr(self, canonical))

    def describe(self) -> str:
        """Say for people which field holds what, and what no field holds."""
        found = [
            f"{name} from {self.path(name)}" + (" (not in every point)" if name in self.partial else "")
            for name in ALIASES
            if self.path(name)
        ]
        missing = [name + (f" ({_ABSENT[name]})" if name in _ABSENT else "") for name in ALIASES if not self.path(name)]
        parts = [", ".join(found) or "no field is known", *([f"missing: {', '.join(missing)}"] if missing else [])]
        return f"{self.name}: {'; '.join(parts)}"

    def _first(self, payload: Mapping[str, Any], canonical: str, reader: Reader[T]) -> T | None:
        own = self.path(canonical)
        found = reader(own, value_at(payload, own)) if own else None
        return _first_of(payload, ALIASES[canonical], reader) if found is None else found


RECTO = Dialect("recto", "text", "page_url", "page_title", "module_name", "headings", "chunk_index", "total_chunks")

_RECTO_TYPES: Mapping[str, type] = {
    **dict.fromkeys(("text", "page_url", "page_key", "page_title", "module_name", "anchor", "content_hash", "source"), str),
    **dict.fromkeys(("chunk_index", "total_chunks", "start_line", "end_line"), int),
    **dict.fromkeys(("module_keys", "headings"), list),
}


def is_recto(payload: Mapping[str, Any]) -> bool:
    """Whether a payload is one that `to_payload` wrote, whole and with its types."""
    if not all(isinstance(payload.get(name), kind) for name, kind in _RECTO_TYPES.items()):
        return False
    return all(isinstance(name, str) for name in (*payload["module_keys"], *payload["headings"], payload.get("book", "")))


def value_at(payload: Mapping[str, Any], path: str) -> Any:
    """Return what is stored at a dotted path, or `None`."""
    value: Any = payload
    for part in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    return value


def paths_of(canonical: str) -> list[str]:
    """Return where a field may be found: under each alias in the payload itself, then in its nested metadata."""
    return [place + alias for alias in ALIASES[canonical] for place in _PLACES]


def as_text(path: str, value: Any) -> str | None:  # noqa: ARG001 - a `Reader`
    """Read a passage, as written; some splitters store it as a list of lines."""
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        value = "\n".join(value)
    return value if isinstance(value, str) and value.strip() else None


def as_label(path: str, value: Any) -> str | None:  # noqa: ARG001 - a `Reader`
    """Read a short text; a number, as YAML makes of a title like 2024, is one too."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63:
        value = str(value)
    return (value.strip() or None) if isinstance(value, str) else None


def as_address(path: str, value: Any) -> str | None:
    """Read a page's address; `source` is one only where it is a path, elsewhere it is a file name or a constant like "website"."""
    label = as_label(path, value)
    return None if label and _is_source(path) and not re.search(r"[/\\]", label) else label


def as_title(path: str, value: Any) -> str | None:
    """Read a page's title; `source` is one only where it is a file name."""
    return _as_file_name(path, value) if _is_source(path) else as_label(path, value)


def as_module(path: str, value: Any) -> str | None:
    """Read a module that has a name: a number alone or a word like "Docs" says less than the page's address."""
    label = as_label(path, value)
    return label if label and is_named(label) else None


def as_number(path: str, value: Any) -> int | None:  # noqa: ARG001 - a `Reader`
    """Read a whole number that counts something, also from a float or a string."""
    if isinstance(value, str):
        found = _WHOLE_NUMBER.fullmatch(value.strip())
        return int(found[1]) if found else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _LARGEST_INDEX:
        return None
    return int(value) if value == int(value) else None


def as_headings(path: str, value: Any) -> tuple[str, ...] | None:
    """Read headings from a list, or from one line that may hold a path of them."""
    items = value if isinstance(value, list) else value.split(HEADING_SEPARATOR) if isinstance(value, str) else [value]
    named = (item.get("text") or item.get("title") if isinstance(item, Mapping) else item for item in items)
    return tuple(label for item in named if (label := as_label(path, item))) or None


def _as_file_name(path: str, value: Any) -> str | None:
    label = as_label(path, value)
    return label if label and _FILE_NAME.fullmatch(label) else None


def _as_file(path: str, value: Any) -> str | None:
    return as_address(path, value) or _as_file_name(path, value)


def _is_source(path: str) -> bool:
    return path.rpartition(".")[2] == "source"


def _first_of(payload: Mapping[str, Any], aliases: tuple[str, ...], reader: Reader[T]) -> T | None:
    places = [(place, holder) for place in _PLACES if isinstance(holder := payload.get(place[:-1]) if place else payload, Mapping)]
    for alias in aliases:
        for place, holder in places:
            if alias in holder and (value := reader(place + alias, holder[alias])) is not None:
                return value
    return None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
