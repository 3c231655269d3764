"""Read the payloads of other pipelines: which field holds what, detected from a sample or set by the user."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

from recto._util.text import ROOT_MODULE, module_keys, nearest, short_name
from recto.errors import ConfigurationError
from recto.stores.points import from_payload
from recto.types import HEADING_SEPARATOR, Chunk

NO_MODULE = "general"
"""What these pipelines call a page outside all modules."""

_KEYWORDS = re.compile(
    r"(?<![a-z0-9])(?:(?P<ros2>ros-?2)|(?P<simulation>simulations?|digital-twins?|gazebo|unity)"
    r"|(?P<isaac>isaac|ai-robot-brain)|(?P<vla>vla|vision-language-action))(?![a-z0-9])"
)
_INTRO = re.compile(r"(?<![a-z0-9])intro(?:duction)?(?![a-z0-9])")
_BY_NUMBER = {1: "ros2", 2: "simulation", 3: "isaac", 4: "vla"}
"""The usual order of modules in these books; used only for modules that have a number but no name."""

_ROOTS = frozenset({"docs", "doc", "documentation", "docusaurus-plugin-content-docs"})
_GENERIC = _ROOTS.union(
    "book build content current home i18n latest next pages site src stable website".split()  # noqa: SIM905
)
_VERSION = re.compile(r"v?\d+(?:\.[\dx]+)+|version-.*", re.IGNORECASE)
_NUMBERED = re.compile(r"(?:module|chapter|part|unit|week|lesson|ch)[-_ ]?\d", re.IGNORECASE)
_ONLY_NUMBERED = re.compile(r"(module|chapter|part|unit|week|lesson|ch)?[-_ ]?(\d{1,9})", re.IGNORECASE)
_PAGE_FILE = re.compile(r"(.+)\.(?:mdx?|markdown|txt|pdf|html?|rst)", re.IGNORECASE | re.DOTALL)
_ADDRESS = re.compile(
    r"(?:(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<host>[^/?#]*))?(?P<path>[^?#]*)", re.IGNORECASE
)
_ABSOLUTE = re.compile(r"file://|[/\\~]|[a-z]:[/\\]", re.IGNORECASE)
_INDEX_PAGES = frozenset({"index", "readme"})


@lru_cache(maxsize=4096)  # a page has many chunks
def module_of(raw: str, address: str) -> tuple[str, tuple[str, ...]]:
    """Return a page's module and all names by which filters can refer to it; `raw` is the stored name."""
    directories = _module_directories(address)
    directory = directories[0] if directories else ""
    name = _from_name(raw) or _from_name(directory) or _from_number(raw) or _from_number(directory)
    name = name or (ROOT_MODULE if raw or address else NO_MODULE)
    short = "" if is_named(raw) else _short(directory)
    keys = (name, *(module_keys(raw) if raw else ()), short, *directories)
    return name, tuple(dict.fromkeys(key for key in (key.strip().lower() for key in keys) if key))


@lru_cache(maxsize=4096)
def is_named(raw: str) -> bool:
    """Return whether a module's name is more than a number or a word like "docs"."""
    return bool(_from_name(raw))


def page_name(address: str) -> str:
    """Return the last part of an address as a title, for pages without one."""
    parts = [_without_extension(part) for part in _split(address)]
    if len(parts) > 1 and parts[-1].lower() in _INDEX_PAGES:
        parts.pop()
    return re.sub(r"[-_]+", " ", parts[-1]).strip().capitalize() if parts else ""


def _module_directories(address: str) -> list[str]:
    """Return the directories of an address that name its module, the best one first."""
    *directories, page = _parts(address) or [""]
    if not directories:  # it may be the address of a module's own page
        name = _without_extension(page)
        return [name] if _keyword(name) or (name == page and _NUMBERED.match(page)) else []
    directories.sort(key=lambda part: not _NUMBERED.match(part))
    top = next((part for part in directories if _NUMBERED.match(part) or is_named(part)), directories[0])
    best = next((part for part in directories if _KEYWORDS.search(_slug(part))), top)
    return list(dict.fromkeys((best, top)))


def _from_name(raw: str) -> str:
    slug = _slug(raw)
    if not slug or slug in _GENERIC or _ONLY_NUMBERED.fullmatch(raw.strip()):
        return ""
    if _PAGE_FILE.fullmatch(raw.strip()):  # some pipelines store the file name for a page of the root
        return _keyword(raw) or ROOT_MODULE
    return _keyword(raw) or _short(raw)


def _keyword(text: str) -> str:
    """Return the module of the first keyword in a text; "introduction" counts only if it is the only one."""
    slug = _slug(text)
    found = _KEYWORDS.search(slug)
    return (found.lastgroup or "") if found else ROOT_MODULE if _INTRO.search(slug) else ""


def _from_number(raw: str) -> str:
    found = _ONLY_NUMBERED.fullmatch(raw.strip())
    if not found:
        return ""
    word, number = (found[1] or "module").lower(), int(found[2])
    known = _BY_NUMBER.get(number) if word == "module" else None  # the numbers of chapters vary too much
    return known or (raw.strip().lower() if found[1] else f"{word}-{number}")


def _short(name: str) -> str:
    text = name.strip().replace(":", " ")
    return short_name(re.sub(r"^ch(?=[-_ ]?\d)", "chapter", text, flags=re.IGNORECASE)).strip()


def _slug(text: str) -> str:
    return re.sub(r"[\W_]+", "-", text.lower()).strip("-")


def _parts(address: str) -> list[str]:
    """Return the parts of an address below the book's root, the page last.

    For a file outside a `docs` directory, the directories come in reverse order, because the nearest says
    most.
    """
    *directories, page = _split(address) or [""]
    roots = [position for position, part in enumerate(directories) if part.lower() in _ROOTS]
    directories = directories[roots[-1] + 1 :] if roots else directories
    if not roots and _ABSOLUTE.match(address.strip()) and _PAGE_FILE.fullmatch(page):
        directories.reverse()
    kept = [part for part in directories if part.lower() not in _GENERIC and not _VERSION.fullmatch(part)]
    return [*kept, page] if page.lower() not in _ROOTS else kept


def _split(address: str) -> list[str]:
    found = _ADDRESS.match(address.strip())
    if not found:
        return []
    host = "" if (found["scheme"] or "http").lower() in {"http", "https", "file"} else found["host"]
    parts = (unquote(part).strip() for part in re.split(r"[/\\]", f"{host}/{found['path']}"))
    return [part for part in parts if part and part.strip(".~") and not re.fullmatch(r"[A-Za-z]:", part)]


def _without_extension(part: str) -> str:
    found = _PAGE_FILE.fullmatch(part)
    return found[1] if found else part


T = TypeVar("T")
Reader = Callable[[str, Any], T | None]
"""Converts the value at a path to the type of a field, or returns None if it is not usable."""

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
"""The names of each canonical field in known pipelines, the most reliable first."""

_FILE_FIELDS = ("file_path", "source_file", "doc_path", "full_path", "source", "file_name", "filename")
_PREFIXES = ("", "metadata.", "source_metadata.")
_FILE_NAME = re.compile(r"[^/\\]+\.(?:mdx?|markdown|txt|pdf|html?|rst)", re.IGNORECASE)
_WHOLE_NUMBER = re.compile(r"\+?(\d{1,9})(?:\.0*)?")
_MAX_INDEX = 10**9  # a larger number is an id
_FALLBACKS: Mapping[str, str] = {
    "page_title": "the first heading or the address is shown",
    "module": "derived from the address",
    "total_chunks": "at least chunk_index + 1",
}


@dataclass(frozen=True, slots=True)
class Dialect:
    """The payload field of each canonical field: a dotted path, or an empty string if there is none.

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
        text = self._first(payload, "text", as_text) or ""
        headings = self._first(payload, "section", as_headings) or ()
        page_url = self._first(payload, "page_url", as_address)
        page_url = page_url or self._first(payload, "page_title", _as_file_name) or ""
        raw_module = self._first(payload, "module", as_module) or self._first(payload, "module", as_label)
        module, keys = module_of(raw_module or "", page_url)
        title = self._first(payload, "page_title", as_title)
        chunk_index = self._first(payload, "chunk_index", as_number) or 0
        return Chunk(
            id=str(id),
            text=text,
            page_url=page_url,
            page_title=title or next(iter(headings), "") or page_name(page_url),
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
        """Return the payload field of a canonical field, or an empty string."""
        return str(getattr(self, canonical))

    def describe(self) -> str:
        """Return a line that lists the fields, and those that are missing."""
        found = [
            f"{name} from {self.path(name)}" + (" (not in every point)" if name in self.partial else "")
            for name in ALIASES
            if self.path(name)
        ]
        missing = [
            name + (f" ({_FALLBACKS[name]})" if name in _FALLBACKS else "")
            for name in ALIASES
            if not self.path(name)
        ]
        known = ", ".join(found) or "no field is known"
        return f"{self.name}: {known}" + (f"; missing: {', '.join(missing)}" if missing else "")

    def _first(self, payload: Mapping[str, Any], canonical: str, reader: Reader[T]) -> T | None:
        own = self.path(canonical)
        found = reader(own, value_at(payload, own)) if own else None
        return _first_of(payload, ALIASES[canonical], reader) if found is None else found


RECTO = Dialect(
    "recto", "text", "page_url", "page_title", "module_name", "headings", "chunk_index", "total_chunks"
)

_RECTO_TYPES: Mapping[str, type] = {
    **dict.fromkeys(
        ("text", "page_url", "page_key", "page_title", "module_name", "anchor", "content_hash", "source"), str
    ),
    **dict.fromkeys(("chunk_index", "total_chunks", "start_line", "end_line"), int),
    **dict.fromkeys(("module_keys", "headings"), list),
}


def is_recto(payload: Mapping[str, Any]) -> bool:
    """Return whether a payload has the fields and types of `to_payload`."""
    if not all(isinstance(payload.get(name), kind) for name, kind in _RECTO_TYPES.items()):
        return False
    return all(
        isinstance(name, str)
        for name in (*payload["module_keys"], *payload["headings"], payload.get("book", ""))
    )


def value_at(payload: Mapping[str, Any], path: str) -> Any:
    """Return the value at a dotted path, or None."""
    value: Any = payload
    for part in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    return value


def as_text(path: str, value: Any) -> str | None:  # noqa: ARG001 - a `Reader`
    """Read the text of a chunk; some splitters store a list of lines."""
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        value = "\n".join(value)
    return value if isinstance(value, str) and value.strip() else None


def as_label(path: str, value: Any) -> str | None:  # noqa: ARG001 - a `Reader`
    """Read a short text, or a number: YAML turns a title like 2024 into one."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63:
        value = str(value)
    return (value.strip() or None) if isinstance(value, str) else None


def as_address(path: str, value: Any) -> str | None:
    """Read a page's address; `source` only if it is a path, not a constant like "website"."""
    label = as_label(path, value)
    return None if label and _is_source(path) and not re.search(r"[/\\]", label) else label


def as_title(path: str, value: Any) -> str | None:
    """Read a page's title; `source` only if it is a file name."""
    return _as_file_name(path, value) if _is_source(path) else as_label(path, value)


def as_module(path: str, value: Any) -> str | None:
    """Read a module's name; not a number or a word like "Docs", because the page's address says more."""
    label = as_label(path, value)
    return label if label and is_named(label) else None


def as_number(path: str, value: Any) -> int | None:  # noqa: ARG001 - a `Reader`
    """Read a whole number, also from a float or a string."""
    if isinstance(value, str):
        found = _WHOLE_NUMBER.fullmatch(value.strip())
        return int(found[1]) if found else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _MAX_INDEX:
        return None
    return int(value) if value == int(value) else None


def as_headings(path: str, value: Any) -> tuple[str, ...] | None:
    """Read headings from a list, or from a string with separators."""
    items = value.split(HEADING_SEPARATOR) if isinstance(value, str) else value
    items = items if isinstance(items, list) else [items]
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
    holders = [
        (prefix, holder)
        for prefix in _PREFIXES
        if isinstance(holder := payload.get(prefix[:-1]) if prefix else payload, Mapping)
    ]
    for alias in aliases:
        for prefix, holder in holders:
            if alias in holder and (value := reader(prefix + alias, holder[alias])) is not None:
                return value
    return None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


SAMPLE = 64
"""How many points are read to detect a dialect."""

_READERS: Mapping[str, Reader[Any]] = {
    "text": as_text,
    "page_url": as_address,
    "page_title": as_title,
    "module": as_module,
    "section": as_headings,
    "chunk_index": as_number,
    "total_chunks": as_number,
}

_KNOWN = (
    RECTO,
    Dialect("module", "text", "page_url", "page_title", "module_name", "", "chunk_index"),
    Dialect("url", "text", "url", "page_title", "", "", "chunk_index", "total_chunks"),
    Dialect("content", "content", "url", "title", "", "headings", "chunk_index", "metadata.total_chunks"),
    Dialect("nested-module", "content", "url", "title", "metadata.module", "", "chunk_index", "total_chunks"),
    Dialect("chapter", "text", "source_url", "title", "chapter", "section", "chunk_index"),
    Dialect("source-url", "content", "source_url", "title", "", "section", "chunk_index"),
    Dialect("position", "content", "source_url", "page_title", "chapter", "section_title", "position"),
    Dialect(
        *("source-file", "text", "source_file", "", "module_name", "section_heading"),
        *("chunk_index", "total_chunks"),
    ),
    Dialect(
        *("metadata", "content", "metadata.page_url", "metadata.page_title", "metadata.chapter_name", ""),
        *("metadata.chunk_id", "metadata.total_chunks"),
    ),
    Dialect("path", "text", "url_path", "", "", "heading", "chunk_index"),
    Dialect("file", "text", "source", "filename"),
)
KNOWN_DIALECTS: Mapping[str, Dialect] = {dialect.name: dialect for dialect in _KNOWN}
"""The dialects that RECTO_DIALECT can name; all others are detected, or mapped in a file."""

_HINT = (
    f"Set RECTO_DIALECT to one of {', '.join(KNOWN_DIALECTS)}, or to a JSON or TOML file like "
    '{"text": "body", "page_url": "meta.link", "page_title": "meta.title", "module": "chapter"}; '
    f"its keys are {', '.join(ALIASES)}, its values are payload fields. "
    "Leave it unset to have the dialect detected."
)


def detect(payloads: Sequence[Mapping[str, Any]]) -> Dialect:
    """Choose for each canonical field the alias that has a usable value in most of the payloads."""
    sample = payloads[:SAMPLE]
    if sample and all(is_recto(payload) for payload in sample):
        return RECTO
    chosen: dict[str, str] = {}
    partial: list[str] = []
    for canonical, reader in _READERS.items():
        counts = {
            path: sum(reader(path, value_at(payload, path)) is not None for payload in sample)
            for path in (prefix + alias for alias in ALIASES[canonical] for prefix in _PREFIXES)
        }
        best = max(counts, key=counts.__getitem__)  # of several, the first, which is the most reliable one
        if counts[best]:
            chosen[canonical] = best
            partial.extend([canonical] if counts[best] < len(sample) else [])
    return Dialect("detected", **chosen, partial=tuple(partial))


def load_dialect(name_or_path: str | Path) -> Dialect:
    """Return a known dialect by its name, or the one that a mapping file describes."""
    known = KNOWN_DIALECTS.get(str(name_or_path).strip().lower())
    if known:
        return known
    path = Path(name_or_path)
    mapping = _read_mapping(path)
    unknown = sorted(set(mapping) - set(ALIASES) - {"name"})
    if unknown:
        meant = nearest(unknown[0], ALIASES)
        raise ConfigurationError(
            f"{path}: unknown key {unknown[0]!r}" + (f", did you mean {meant!r}?" if meant else ""),
            hint=_HINT,
        )
    for key, value in mapping.items():
        if not isinstance(value, str) or not all(part.strip() for part in value.split(".")):
            raise ConfigurationError(f"{path}: {key!r} must name a payload field, not {value!r}", hint=_HINT)
    if not set(mapping) & set(ALIASES):
        raise ConfigurationError(f"{path} maps no field", hint=_HINT)
    return replace(Dialect(path.stem), **{key: value.strip() for key, value in mapping.items()})


def _read_mapping(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        text = path.expanduser().read_text("utf-8-sig")
        data = tomllib.loads(text) if path.suffix.lower() == ".toml" else json.loads(text)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigurationError(
            f"RECTO_DIALECT is neither a known dialect nor a file: {path} ({reason})", hint=_HINT
        ) from error
    except (ValueError, RuntimeError) as error:  # RuntimeError: nested too deeply, or `~user` does not exist
        raise ConfigurationError(f"The dialect file {path} cannot be read: {error}", hint=_HINT) from error
    if not isinstance(data, dict):
        raise ConfigurationError(f"{path} does not map fields", hint=_HINT)
    return data
