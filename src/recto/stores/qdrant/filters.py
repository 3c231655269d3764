"""Filters in a foreign collection's own words: which of its fields to compare with which spellings, as plain data."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal

from recto._util.names import MARKDOWN_SUFFIXES, MDX_SUFFIXES, filter_keys, page_key
from recto.stores.qdrant.dialects import RECTO, Dialect, module_of, value_at
from recto.types import Chunk, Filters, Hit

Stored = str | int
_ENDINGS = ("", "/", *MARKDOWN_SUFFIXES, *MDX_SUFFIXES)
_HOST = re.compile(r"^[^/?#]*://[^/?#]*")
_DOCS = re.compile(r"(?<![^/])docs(?:/docs)*(?![^/?])")


@dataclass(frozen=True, slots=True)
class FieldFilter:
    """Points whose field holds any of the values; engines that compare one type at a time must ask for each type apart."""

    field: str
    values: tuple[Stored, ...]


class Fallback(Enum):
    """The answer where no field can be compared: the store reads a bounded number of points and asks `matches`."""

    CLIENT_SIDE = "client-side"


CLIENT_SIDE: Final = Fallback.CLIENT_SIDE
Candidates = FieldFilter | Literal[Fallback.CLIENT_SIDE] | None
"""What to ask the engine for, that it cannot be asked, or that there is nothing to narrow."""


def module_candidates(
    dialect: Dialect, filters: Filters, known: Mapping[str, Iterable[Stored]] | None = None
) -> Candidates:
    """Translate the asked modules into all values that the module field may hold for them.

    `known` is what `stored_modules` made of the collection. An asked name that it lacks is not guessed at: what is stored for it may
    be a value that nobody thought of, and its points would be lost in silence.
    """
    if not filters.modules:
        return None
    names = filter_keys(filters.modules)
    if dialect == RECTO:
        return FieldFilter("module_keys", tuple(names))
    if (
        not dialect.module
        or "module" in dialect.partial
        or (known is not None and not all(name in known for name in names))
    ):
        return CLIENT_SIDE
    typed = [name.strip() for name in filters.modules]
    spelled = [
        form for name in typed for form in (name, name.lower(), name.upper(), name.title(), name.capitalize())
    ]
    stored = [value for name in names for value in (known or {}).get(name, ())]
    return FieldFilter(dialect.module, tuple(dict.fromkeys([*spelled, *stored])))


def stored_modules(
    dialect: Dialect, payloads: Sequence[Mapping[str, Any]], values: Iterable[Stored] = ()
) -> dict[str, tuple[Stored, ...]]:
    """Map the names that modules go by to the values that stand for them; `values` are all that a facet found in the field.

    A name that only some of a value's points go by is left out, because no value of the field would find just these.
    """
    shared: dict[Stored, set[str]] = {}
    loose: set[str] = set()
    for payload in payloads if dialect.module else ():
        value, keys = value_at(payload, dialect.module), set(dialect.read("", payload).module_keys)
        known = shared.setdefault(value, keys) if isinstance(value, str | int) else set()
        loose |= known ^ keys
        known &= keys
    for value in values:
        shared.setdefault(value, set(module_of(str(value), "")[1]))
    found: dict[str, tuple[Stored, ...]] = {}
    for value, keys in shared.items():
        found.update({key: (*found.get(key, ()), value) for key in sorted(keys - loose)})
    return found


def url_candidates(dialect: Dialect, filters: Filters, known: Iterable[str] = ()) -> Candidates:
    """Translate the asked page into all spellings of its address; `known` are addresses that the collection holds."""
    if filters.page_url is None:
        return None
    if dialect == RECTO:
        return FieldFilter("page_key", (page_key(filters.page_url),))
    if not dialect.page_url or "page_url" in dialect.partial:
        return CLIENT_SIDE
    asked = address_key(filters.page_url)
    stored = [address for address in known if address_key(address) == asked]
    return FieldFilter(
        dialect.page_url, tuple(dict.fromkeys([*_spellings(filters.page_url.strip()), *stored]))
    )


def address_key(url: str) -> str:
    """Return `page_key` with `docs/docs` as `docs`: pipelines over the same tree write either."""
    return _DOCS.sub("docs", page_key(url))


def matches(chunk: Chunk, filters: Filters) -> bool:
    """Whether a filter lets a chunk through: any of the modules by any of its names, and the page by any spelling."""
    if filters.modules and not set(filter_keys(filters.modules)) & set(chunk.module_keys):
        return False
    return filters.page_url is None or address_key(chunk.page_url) == address_key(filters.page_url)


def deduplicate(hits: Iterable[Hit]) -> list[Hit]:
    """Drop repetitions of a passage, as a second run with other ids leaves them; the best stays, in its place."""
    listed = list(hits)
    best: dict[tuple[str, int, str], int] = {}
    for place, hit in enumerate(listed):
        key = (hit.chunk.page_url, hit.chunk.chunk_index, hit.chunk.text)
        if key not in best or hit.score > listed[best[key]].score:
            best[key] = place
    return [listed[place] for place in sorted(best.values())]


def _spellings(url: str) -> list[str]:
    typed_host = _HOST.match(url)
    found = [url]
    for key in dict.fromkeys(
        (page_key(url), address_key(url), _DOCS.sub("docs/docs", address_key(url), count=1))
    ):
        path, mark, query = key.partition("?")
        for ending in _ENDINGS[:2] if _HOST.fullmatch(path) else _ENDINGS:  # a site's root is no file
            spelled = f"{path}{ending}{mark}{query}"
            found += [spelled, typed_host[0] + _HOST.sub("", spelled)] if typed_host else [spelled]
    return found
