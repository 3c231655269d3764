"""Read the payloads of other pipelines: which field holds what, detected from a sample or set by the user."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from recto._util.text import ROOT_MODULE, module_keys, nearest, short_name
from recto.errors import ConfigurationError
from recto.stores.points import from_payload
from recto.types.search import HEADING_SEPARATOR, Chunk

NO_MODULE = "general"
"""What these pipelines call a page outside all modules."""

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
def module_of(stored: str, address: str) -> tuple[str, tuple[str, ...]]:
    """Return a page's module and all names by which filters can refer to it; `stored` is the payload's name.

    A name says more than a number, so the directory of the page names the module if the payload has a number.
    """
    directory = _module_directory(address)
    name = _from_name(stored) or _from_name(directory) or _from_number(stored) or _from_number(directory)
    name = name or (ROOT_MODULE if stored or address else NO_MODULE)
    short = "" if is_named(stored) else _short(directory)
    keys = (name, *(module_keys(stored) if stored else ()), short, directory)
    return name, tuple(dict.fromkeys(key for key in (key.strip().lower() for key in keys) if key))


@lru_cache(maxsize=4096)
def is_named(stored: str) -> bool:
    """Return whether a module's name is more than a number or a word like "docs"."""
    return bool(_from_name(stored))


def page_name(address: str) -> str:
    """Return the last part of an address as a title, for pages without one."""
    parts = [_without_extension(part) for part in _split(address)]
    if len(parts) > 1 and parts[-1].lower() in _INDEX_PAGES:
        parts.pop()
    return re.sub(r"[-_]+", " ", parts[-1]).strip().capitalize() if parts else ""


def _module_directory(address: str) -> str:
    """Return the directory of an address that names its module, or an empty string."""
    *directories, page = _parts(address) or [""]
    if not directories:  # it may be the address of a module's own page
        return page if _NUMBERED.match(page) and not _PAGE_FILE.fullmatch(page) else ""
    numbered = [part for part in directories if _NUMBERED.match(part)]
    return next(
        (part for part in (*numbered, *directories) if part in numbered or is_named(part)), directories[0]
    )


def _from_name(name: str) -> str:
    slug = re.sub(r"[\W_]+", "-", name.lower()).strip("-")
    if not slug or slug in _GENERIC or _ONLY_NUMBERED.fullmatch(name.strip()):
        return ""
    # Some pipelines store the file name for a page of the root.
    return ROOT_MODULE if slug == "introduction" or _PAGE_FILE.fullmatch(name.strip()) else _short(name)


def _from_number(name: str) -> str:
    number = _ONLY_NUMBERED.fullmatch(name.strip())
    if not number:
        return ""
    return name.strip().lower() if number[1] else f"module-{int(number[2])}"


def _short(name: str) -> str:
    text = name.strip().replace(":", " ")
    return short_name(re.sub(r"^ch(?=[-_ ]?\d)", "chapter", text, flags=re.IGNORECASE)).strip()


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
_PATH = re.compile(r".*[/\\].*", re.DOTALL)
_SOURCES = {"page_url": (_PATH,), "page_title": (_FILE_NAME,), "file": (_PATH, _FILE_NAME)}
"""What the field `source` must look like to be used: it may also be a constant such as "website"."""
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
        text = self._first(payload, "text") or ""
        headings = self._first(payload, "section") or ()
        page_url = self._first(payload, "page_url") or self._first(payload, "page_title", file_name) or ""
        stored = self._first(payload, "module") or self._first(payload, "module", label) or ""
        module, keys = self.module_of(stored, page_url)
        title = self._first(payload, "page_title")
        chunk_index = self._first(payload, "chunk_index") or 0
        return Chunk(
            id=str(id),
            text=text,
            page_url=page_url,
            title=title or next(iter(headings), "") or page_name(page_url),
            module=module,
            module_keys=keys,
            headings=headings,
            anchor="",
            chunk_index=chunk_index,
            total_chunks=max(self._first(payload, "total_chunks") or 0, chunk_index + 1),
            start_line=0,
            end_line=0,
            content_hash=label(payload.get("content_hash")) or _digest(text),
            source=_first_of(payload, "file", _FILE_FIELDS, label) or page_url,
        )

    def module_of(self, stored: str, address: str) -> tuple[str, tuple[str, ...]]:
        """Return a page's module and all its names, with the names that `modules` gives."""
        name, keys = module_of(stored, address)
        alias = next((self.modules[key] for key in keys if key in self.modules), "")
        return (alias, tuple(dict.fromkeys((alias.lower(), *keys)))) if alias else (name, keys)

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

    def _first(self, payload: Mapping[str, Any], canonical: str, read: Reader | None = None) -> Any:
        """Return the value of a field: this dialect's own, else that of the first alias that has one."""
        own, read = self.path(canonical), read or _READERS[canonical]
        value = _read(canonical, own, value_at(payload, own), read) if own else None
        return _first_of(payload, canonical, ALIASES[canonical], read) if value is None else value


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


Reader = Callable[[Any], Any]
"""Converts a value to the type of a field, or returns None if it is not usable."""


def joined_text(value: Any) -> str | None:
    """Read the text of a chunk; some splitters store a list of lines."""
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        value = "\n".join(value)
    return value if isinstance(value, str) and value.strip() else None


def label(value: Any) -> str | None:
    """Read a short text, or a number: YAML turns a title like 2024 into one."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63:
        value = str(value)
    return (value.strip() or None) if isinstance(value, str) else None


def module_name(value: Any) -> str | None:
    """Read a module's name; not a number or a word like "Docs", because the page's address says more."""
    name = label(value)
    return name if name and is_named(name) else None


def file_name(value: Any) -> str | None:
    """Read the name of a file."""
    name = label(value)
    return name if name and _FILE_NAME.fullmatch(name) else None


def whole_number(value: Any) -> int | None:
    """Read a whole number, also from a float or a string."""
    if isinstance(value, str):
        number = _WHOLE_NUMBER.fullmatch(value.strip())
        return int(number[1]) if number else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _MAX_INDEX:
        return None
    return int(value) if value == int(value) else None


def headings_of(value: Any) -> tuple[str, ...] | None:
    """Read headings from a list, or from a string with separators."""
    items = value.split(HEADING_SEPARATOR) if isinstance(value, str) else value
    items = items if isinstance(items, list) else [items]
    named = (item.get("text") or item.get("title") if isinstance(item, Mapping) else item for item in items)
    return tuple(heading for item in named if (heading := label(item))) or None


_READERS: Mapping[str, Reader] = {
    "text": joined_text,
    "page_url": label,
    "page_title": label,
    "module": module_name,
    "section": headings_of,
    "chunk_index": whole_number,
    "total_chunks": whole_number,
}


def _read(canonical: str, path: str, value: Any, read: Reader) -> Any:
    if path.rpartition(".")[2] == "source" and canonical in _SOURCES:
        name = label(value) or ""
        if not any(form.fullmatch(name) for form in _SOURCES[canonical]):
            return None
    return read(value)


def _first_of(payload: Mapping[str, Any], canonical: str, aliases: tuple[str, ...], read: Reader) -> Any:
    paths = (prefix + alias for alias in aliases for prefix in _PREFIXES)
    values = (_read(canonical, path, value_at(payload, path), read) for path in paths)
    return next((value for value in values if value is not None), None)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


SAMPLE = 64
"""How many points are read to detect a dialect."""

_FIELDS = {
    "module": "text page_url page_title module_name - chunk_index",
    "url": "text url page_title - - chunk_index total_chunks",
    "content": "content url title - headings chunk_index metadata.total_chunks",
    "nested-module": "content url title metadata.module - chunk_index total_chunks",
    "chapter": "text source_url title chapter section chunk_index",
    "source-url": "content source_url title - section chunk_index",
    "position": "content source_url page_title chapter section_title position",
    "source-file": "text source_file - module_name section_heading chunk_index total_chunks",
    "metadata": "content metadata.page_url metadata.page_title metadata.chapter_name - metadata.chunk_id "
    "metadata.total_chunks",
    "path": "text url_path - - heading chunk_index",
    "file": "text source filename",
}
"""The payload fields of known dialects in the order of `ALIASES`; `-` if there is none."""


def _known(name: str, paths: str) -> Dialect:
    fields: dict[str, Any] = dict(zip(ALIASES, paths.split(), strict=False))
    return Dialect(name, **{field: path for field, path in fields.items() if path != "-"})


KNOWN_DIALECTS: Mapping[str, Dialect] = {"recto": RECTO} | {
    name: _known(name, paths) for name, paths in _FIELDS.items()
}
"""The dialects that RECTO_DIALECT can name; all others are detected, or mapped in a file."""

_HINT = (
    f"Set RECTO_DIALECT to one of {', '.join(KNOWN_DIALECTS)}, or to a JSON or TOML file like "
    '{"text": "body", "page_url": "meta.link", "page_title": "meta.title", "module": "chapter"}; '
    f"its keys are {', '.join(ALIASES)}, its values are payload fields. "
    'Its "modules" can give modules other names, such as {"module-2": "simulation"}. '
    "Leave it unset to have the dialect detected."
)


def detect(payloads: Sequence[Mapping[str, Any]]) -> Dialect:
    """Choose for each canonical field the alias that has a usable value in most of the payloads."""
    sample = payloads[:SAMPLE]
    if sample and all(is_recto(payload) for payload in sample):
        return RECTO
    chosen: dict[str, Any] = {}
    partial: list[str] = []
    for canonical, read in _READERS.items():
        counts = {
            path: sum(_read(canonical, path, value_at(payload, path), read) is not None for payload in sample)
            for path in (prefix + alias for alias in ALIASES[canonical] for prefix in _PREFIXES)
        }
        best = max(counts, key=counts.__getitem__)  # of several, the first, which is the most reliable one
        if counts[best]:
            chosen[canonical] = best
            partial.extend([canonical] if counts[best] < len(sample) else [])
    return Dialect("detected", **chosen, partial=tuple(partial))


def choose(configured: Dialect | None, payloads: Sequence[Mapping[str, Any]], *, own: bool) -> Dialect:
    """Return the dialect that the user set; if that names no fields, Recto's own, or the detected fields."""
    if configured is not None and any(configured.path(name) for name in ALIASES):
        return configured
    if own:
        return RECTO
    return replace(detect(payloads), modules=configured.modules if configured else {})


def load_dialect(name_or_path: str | Path) -> Dialect:
    """Return a known dialect by its name, or the one that a mapping file describes."""
    known = KNOWN_DIALECTS.get(str(name_or_path).strip().lower())
    if known:
        return known
    path = Path(name_or_path)
    mapping = _read_mapping(path)
    modules = mapping.pop("modules", {})
    if unknown := sorted(set(mapping) - set(ALIASES) - {"name"}):
        near = nearest(unknown[0], ALIASES)
        meant = f", did you mean {near!r}?" if near else ""
        raise ConfigurationError(f"{path}: unknown key {unknown[0]!r}{meant}", hint=_HINT)
    for key, value in mapping.items():
        if not isinstance(value, str) or not all(part.strip() for part in value.split(".")):
            raise ConfigurationError(f"{path}: {key!r} must name a payload field, not {value!r}", hint=_HINT)
    if not isinstance(modules, dict) or not all(
        isinstance(name, str) and name.strip() for name in (*modules, *modules.values())
    ):
        raise ConfigurationError(f"{path}: 'modules' must map names to names", hint=_HINT)
    if not modules and not set(mapping) & set(ALIASES):
        raise ConfigurationError(f"{path} maps no field", hint=_HINT)
    aliases = {stored.strip().lower(): name.strip() for stored, name in modules.items()}
    fields = {key: value.strip() for key, value in mapping.items()}
    return replace(Dialect(path.stem), **fields, modules=aliases)


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
