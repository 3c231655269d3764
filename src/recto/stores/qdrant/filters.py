"""Filters for collections of other pipelines: which payload field to compare, with which spellings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recto._util.text import MARKDOWN_SUFFIXES, MDX_SUFFIXES, filter_keys, page_key
from recto.stores.qdrant.dialects import RECTO, Dialect, value_at
from recto.types.search import Chunk, Filters, Hit

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
    dialect: Dialect, filters: Filters, stored: Mapping[str, Iterable[Stored]] | None = None
) -> FieldFilter | None:
    """Return the filter for the modules, with all values that their field may have; None without modules.

    `stored` is the result of `stored_modules`. If a name is not in it, filter on the client: the collection
    may store an unexpected value for it, and a filter on the server would miss these points.
    """
    if not filters.modules:
        return None
    names = filter_keys(filters.modules)
    if dialect == RECTO:
        return FieldFilter("module_keys", tuple(names))
    if not dialect.module or "module" in dialect.partial:
        return CLIENT_SIDE
    if stored is not None and not all(name in stored for name in names):
        return CLIENT_SIDE
    spellings = [
        form
        for name in map(str.strip, filters.modules)
        for form in (name, name.lower(), name.upper(), name.title(), name.capitalize())
    ]
    values = [value for name in names for value in (stored or {}).get(name, ())]
    return FieldFilter(dialect.module, tuple(dict.fromkeys([*spellings, *values])))


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


def address_key(url: str) -> str:
    """Return `page_key` with `docs/docs` as `docs`, because pipelines write either."""
    return _DOCS.sub("docs", page_key(url))


def matches(chunk: Chunk, filters: Filters) -> bool:
    """Return whether a chunk matches the filters, by any name of its module and any spelling of its page."""
    if filters.modules and not set(filter_keys(filters.modules)) & set(chunk.module_keys):
        return False
    return filters.page_url is None or address_key(chunk.page_url) == address_key(filters.page_url)


def deduplicate(hits: Iterable[Hit]) -> list[Hit]:
    """Drop copies of a chunk with other ids, which repeated runs of a pipeline leave; keep the best one."""
    best: dict[tuple[str, int, str], Hit] = {}
    for hit in hits:
        key = (hit.chunk.page_url, hit.chunk.chunk_index, hit.chunk.text)
        if key not in best or hit.score > best[key].score:
            best.pop(key, None)  # the better copy has its own position
            best[key] = hit
    return list(best.values())


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
