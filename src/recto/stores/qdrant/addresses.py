"""What the address of a page says, a URL or a path: its module, its title, and its other spellings."""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import unquote

from recto._util.text import (
    MARKDOWN_SUFFIXES,
    MDX_SUFFIXES,
    ROOT_MODULE,
    module_keys,
    page_key,
    short_name,
)

NO_MODULE = "general"
"""What other pipelines call a page outside all modules."""

_ROOTS = frozenset({"docs", "doc", "documentation", "docusaurus-plugin-content-docs"})
_GENERIC = _ROOTS | {
    *("book", "build", "content", "current", "home", "i18n", "latest"),
    *("next", "pages", "site", "src", "stable", "website"),
}
"""Directories that do not name a module."""
_VERSION = re.compile(r"v?\d+(?:\.[\dx]+)+|version-.*", re.IGNORECASE)
_NUMBERED = re.compile(r"(module|chapter|part|unit|week|lesson|ch)[-_ ]?\d", re.IGNORECASE)
_ONLY_NUMBERED = re.compile(r"(module|chapter|part|unit|week|lesson|ch)?[-_ ]?(\d{1,9})", re.IGNORECASE)
_PAGE_FILE = re.compile(r"(.+)\.(?:mdx?|markdown|txt|pdf|html?|rst)", re.IGNORECASE | re.DOTALL)
_ADDRESS = re.compile(
    r"(?:(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<host>[^/?#]*))?(?P<path>[^?#]*)", re.IGNORECASE
)
_ABSOLUTE = re.compile(r"file://|[/\\~]|[a-z]:[/\\]", re.IGNORECASE)
_HOST = re.compile(r"^[^/?#]*://[^/?#]*")
_DOCS = re.compile(r"(?<![^/])docs(?:/docs)*(?![^/?])")
_ENDINGS = ("", "/", *MARKDOWN_SUFFIXES, *MDX_SUFFIXES)


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
    parts = [match[1] if (match := _PAGE_FILE.fullmatch(part)) else part for part in _split(address)]
    if len(parts) > 1 and parts[-1].lower() in ("index", "readme"):
        parts.pop()
    return re.sub(r"[-_]+", " ", parts[-1]).strip().capitalize() if parts else ""


def address_key(url: str) -> str:
    """Return `page_key` with `docs/docs` as `docs`, because pipelines write either."""
    return _DOCS.sub("docs", page_key(url))


def spellings(url: str) -> tuple[str, ...]:
    """Return the ways to write the URL of a page that `address_key` does not distinguish."""
    typed_host = _HOST.match(url)
    ways = [url]
    keys = (page_key(url), address_key(url), _DOCS.sub("docs/docs", address_key(url), count=1))
    for key in dict.fromkeys(keys):
        path, mark, query = key.partition("?")
        for ending in _ENDINGS[:2] if _HOST.fullmatch(path) else _ENDINGS:  # a host has no file extension
            way = f"{path}{ending}{mark}{query}"
            ways += [way, typed_host[0] + _HOST.sub("", way)] if typed_host else [way]
    return tuple(dict.fromkeys(ways))


def _module_directory(address: str) -> str:
    """Return the directory of an address that names its module, or an empty string."""
    *directories, page = _parts(address) or [""]
    if not directories:  # it may be the address of a module's own page
        return page if _NUMBERED.match(page) and not _PAGE_FILE.fullmatch(page) else ""
    numbered = filter(_NUMBERED.match, directories)
    return next(numbered, None) or next(filter(is_named, directories), directories[0])


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
