"""Read and filter the payloads of other pipelines: which field holds what, detected or set by the user."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from recto._util.text import (
    MARKDOWN_SUFFIXES,
    MDX_SUFFIXES,
    ROOT_MODULE,
    filter_keys,
    module_keys,
    nearest,
    page_key,
    short_name,
)
from recto.errors import ConfigurationError
from recto.stores import from_payload
from recto.types.search import HEADING_SEPARATOR, Chunk, Filters

NO_MODULE = "general"
"""What these pipelines call a page outside all modules."""

_ROOTS = frozenset({"docs", "doc", "documentation", "docusaurus-plugin-content-docs"})
_GENERIC = _ROOTS.union(
    "book build content current home i18n latest next pages site src stable website".split()  # noqa: SIM905
)
_VERSION = re.compile(r"v?\d+(?:\.[\dx]+)+|version-.*", re.IGNORECASE)
_NUMBERED = re.compile(r"(?:module|chapter|part|unit|week|lesson|ch)[-_ ]?\d", re.IGNORECASE)
_ONLY_NUMBERED = re.compile(r"(module|chapter|part|unit|week|lesson|ch)?[-_ ]?(\d{1,9})", re.IGNORECASE)
_PAGE_FILE = re.compile(r"^(.+)\.(?:mdx?|markdown|txt|pdf|html?|rst)$", re.IGNORECASE | re.DOTALL)
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
    parts = [_PAGE_FILE.sub(r"\1", part) for part in _split(address)]
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
    match = _ADDRESS.match(address.strip())
    if not match:
        return []
    host = "" if (match["scheme"] or "http").lower() in {"http", "https", "file"} else match["host"]
    parts = (unquote(part).strip() for part in re.split(r"[/\\]", f"{host}/{match['path']}"))
    return [part for part in parts if part and part.strip(".~") and not re.fullmatch(r"[A-Za-z]:", part)]


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
            content_hash=label(payload.get("content_hash"))
            or hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(),
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
        present = [
            f"{name} from {self.path(name)}" + (" (not in every point)" if name in self.partial else "")
            for name in ALIASES
            if self.path(name)
        ]
        missing = [name for name in ALIASES if not self.path(name)]
        fields = ", ".join(present) or "no field is known"
        return f"{self.name}: {fields}" + (f"; missing: {', '.join(missing)}" if missing else "")

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


SAMPLE = 64
"""How many points are read to detect a dialect."""

_HINT = (
    "Set RECTO_DIALECT to a JSON or TOML file like "
    '{"text": "body", "page_url": "meta.link", "page_title": "meta.title", "module": "chapter"}; '
    f"its keys are {', '.join(ALIASES)}, its values are payload fields. "
    'Its "modules" can give modules other names, such as {"module-2": "simulation"}. '
    "Leave it unset to have the fields detected."
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


def load_dialect(path: Path) -> Dialect:
    """Return the dialect that a mapping file describes."""
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
            f"RECTO_DIALECT is not a file that can be read: {path} ({reason})", hint=_HINT
        ) from error
    except (ValueError, RuntimeError) as error:  # RuntimeError: nested too deeply, or `~user` does not exist
        raise ConfigurationError(f"The dialect file {path} cannot be read: {error}", hint=_HINT) from error
    if not isinstance(data, dict):
        raise ConfigurationError(f"{path} does not map fields", hint=_HINT)
    return data


Stored = str | int
_ENDINGS = ("", "/", *MARKDOWN_SUFFIXES, *MDX_SUFFIXES)
_HOST = re.compile(r"^[^/?#]*://[^/?#]*")
_DOCS = re.compile(r"(?<![^/])docs(?:/docs)*(?![^/?])")


@dataclass(frozen=True, slots=True)
class FieldFilter:
    """Match points whose field has any of the values."""

    field: str
    values: tuple[Stored, ...]


CLIENT_SIDE = FieldFilter("", ())
"""No field can be compared: read a limited number of points and filter them with `matches`."""


def module_filter(
    dialect: Dialect, filters: Filters, stored: Mapping[str, Iterable[Stored]]
) -> FieldFilter | None:
    """Return the filter for the modules, with the stored values of their names; None without modules.

    `stored` is the result of `stored_modules`. If a name is not in it, filter on the client: the collection
    may store an unexpected value for it, and a filter on the server would miss these points.
    """
    if not filters.modules:
        return None
    names = filter_keys(filters.modules)
    if dialect == RECTO:
        return FieldFilter("module_keys", tuple(names))
    if not dialect.module or "module" in dialect.partial or not all(name in stored for name in names):
        return CLIENT_SIDE
    return FieldFilter(
        dialect.module, tuple(dict.fromkeys(value for name in names for value in stored[name]))
    )


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
        shared.setdefault(value, set(dialect.module_of(str(value), "")[1]))
    modules: dict[str, tuple[Stored, ...]] = {}
    for value, keys in shared.items():
        modules.update({key: (*modules.get(key, ()), value) for key in sorted(keys - ambiguous)})
    return modules


def url_filter(dialect: Dialect, filters: Filters) -> FieldFilter | None:
    """Return the filter for the page, with all spellings of its URL; None without a page."""
    if filters.page_url is None:
        return None
    if dialect == RECTO:
        return FieldFilter("page_key", (page_key(filters.page_url),))
    if not dialect.page_url or "page_url" in dialect.partial:
        return CLIENT_SIDE
    return FieldFilter(dialect.page_url, tuple(dict.fromkeys(_spellings(filters.page_url.strip()))))


def edition_filters(dialect: Dialect, filters: Filters) -> list[FieldFilter]:
    """Return the filters for the language, versions and locales; only Recto's own payloads have them."""
    languages = () if filters.language is None else (filters.language,)
    values = {"language": languages, "version": filters.versions, "locales": filters.locales}
    return [
        FieldFilter(field, given) if dialect == RECTO else CLIENT_SIDE
        for field, given in values.items()
        if given
    ]


def address_key(url: str) -> str:
    """Return `page_key` with `docs/docs` as `docs`, because pipelines write either."""
    return _DOCS.sub("docs", page_key(url))


def matches(chunk: Chunk, filters: Filters) -> bool:
    """Return whether a chunk matches the filters, by any name of its module and any spelling of its page."""
    if filters.modules and not set(filter_keys(filters.modules)) & set(chunk.module_keys):
        return False
    if not filters.in_edition(chunk):
        return False
    return filters.page_url is None or address_key(chunk.page_url) == address_key(filters.page_url)


def _spellings(url: str) -> list[str]:
    typed_host = _HOST.match(url)
    spellings = [url]
    keys = (page_key(url), address_key(url), _DOCS.sub("docs/docs", address_key(url), count=1))
    for key in dict.fromkeys(keys):
        path, mark, query = key.partition("?")
        for ending in _ENDINGS[:2] if _HOST.fullmatch(path) else _ENDINGS:  # a host has no file extension
            spelled = f"{path}{ending}{mark}{query}"
            spellings += [spelled, typed_host[0] + _HOST.sub("", spelled)] if typed_host else [spelled]
    return spellings
