"""Filters on a server: which payload fields to compare, or whether the client must filter itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from qdrant_client import models

from recto._util.text import filter_keys
from recto.stores import filter_values
from recto.stores.qdrant.addresses import address_key, spellings
from recto.stores.qdrant.dialects import RECTO, Dialect, value_at
from recto.types.search import Chunk, Filters

Stored = str | int
"""A value of a module field."""
FieldFilters = Mapping[str, Sequence[Stored]]
"""The values that each payload field may have."""


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
        shared.setdefault(value, set(dialect.module_of(str(value), "")[1]))
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


def to_server_filter(fields: FieldFilters) -> models.Filter | None:
    """Return the server's filter; a condition compares either strings or numbers."""

    def any_of(field: str, values: Sequence[Stored]) -> models.Filter:
        words = [value for value in values if isinstance(value, str)]
        numbers = [value for value in values if isinstance(value, int)]
        either = [models.MatchAny(any=words)] if words or not numbers else []
        either += [models.MatchAny(any=numbers)] if numbers else []
        return models.Filter(should=[models.FieldCondition(key=field, match=match) for match in either])

    return models.Filter(must=[any_of(*condition) for condition in fields.items()]) if fields else None
