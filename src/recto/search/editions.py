"""Choose the versions and locales that a search uses, in a book that has several of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from recto._util.languages import language_tag
from recto.protocols import Index
from recto.search.query import ALL_VERSIONS
from recto.types.index import Fingerprint
from recto.types.search import NO_FILTERS, Filters

_UNVERSIONED = ""
"""The version of pages that are part of all versions."""


def narrowed(filters: Filters, made: Fingerprint | None) -> Filters:
    """Return filters with the versions and locales that they stand for.

    Without a version, they are the preferred or the current ones, unless the filters name a page.
    """
    if filters.versions == (ALL_VERSIONS,):
        filters = replace(filters, versions=())
    elif made and made.versions and not filters.versions and filters.page_url is None:
        filters = replace(filters, versions=_default_versions(filters.preferred, made))
    if made and filters.versions and {*filters.versions} <= {name for name, _ in made.versions}:
        filters = replace(filters, versions=(*filters.versions, _UNVERSIONED))
    if made and made.locales and filters.page_url is None:
        tags = filters.preferred if filters.language is None else (filters.language,)
        if locales := next(filter(None, (_locales_of(tag, made.locales) for tag in tags)), ()):
            filters = replace(filters, locales=locales, language=None)
    return replace(filters, preferred=()) if filters.preferred else filters


def current_edition(index: Index) -> Filters:
    """Return the filters for the current versions of a book, in all its locales."""
    return narrowed(NO_FILTERS, index.info.fingerprint)


def other_versions(given: Filters, used: Filters, made: Fingerprint | None) -> tuple[str, ...]:
    """Return a note about the versions that were not searched, if the filters did not choose any."""
    if not made or given.versions or given.preferred or not used.versions:
        return ()
    names = [name for name in used.versions if name]
    others = [name for name, _ in made.versions if name not in names]
    return (f"Only version {', '.join(names)} was searched. The book also has: {', '.join(others)}.",)


def _default_versions(preferred: Sequence[str], made: Fingerprint) -> tuple[str, ...]:
    older = tuple(name for name, is_current in made.versions if not is_current and name in preferred)
    return older[:1] or tuple(name for name, is_current in made.versions if is_current)


def _locales_of(tag: str, locales: Sequence[str]) -> tuple[str, ...]:
    """Return the locale with a tag such as `pt-BR`, else all locales of its language."""
    tag = tag.lower().replace("_", "-")
    exact = tuple(one for one in locales if one.lower().replace("_", "-") == tag)
    return exact or tuple(one for one in locales if language_tag(one) == (language_tag(tag) or tag))
