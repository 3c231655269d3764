"""Module names: the short name that people use, and every other name that means the same."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

MARKDOWN_SUFFIXES = (".md", ".markdown", ".mdown", ".mkdn", ".mkd")
MDX_SUFFIXES = (".mdx",)


def page_key(url: str) -> str:
    """Return the form in which two spellings of one page's address are equal.

    What people get wrong does not count: a trailing slash, the file's extension, the case of scheme and host, a
    fragment. The path's case does count.
    """
    try:
        parts = urlsplit(url.strip())
    except ValueError:  # not an address at all; it then equals only itself
        return url.strip()
    path = parts.path.rstrip("/")
    for suffix in (*MARKDOWN_SUFFIXES, *MDX_SUFFIXES):
        path = path.removesuffix(suffix)
    query = f"?{parts.query}" if parts.query else ""
    if not parts.scheme:
        return f"{path}{query}"
    return f"{parts.scheme.lower()}://{parts.netloc.lower()}{path}{query}"


ROOT_MODULE = "intro"
_PREFIX = re.compile(r"^(?:(?:module|chapter|part|unit|week|lesson)[-_ ]?)?\d+[-_. ]+(?=\S)", re.IGNORECASE)


def short_name(directory: str) -> str:
    """Drop what only numbers a module's directory: `module-1-ros2` and `01-ros2` are `ros2`."""
    return _PREFIX.sub("", directory.strip()).lower() or directory.lower()


def module_keys(directory: str) -> tuple[str, ...]:
    """Return all names that a filter may call a module by, the canonical one first."""
    return tuple(dict.fromkeys((short_name(directory), directory.strip().lower())))


def filter_keys(names: Iterable[str]) -> list[str]:
    """Return the names of a filter as `module_keys` spells them."""
    return list(dict.fromkeys(name.strip().lower() for name in names))


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that someone who typed `name` most likely meant."""
    import difflib

    folded = {candidate.lower(): candidate for candidate in known}
    found = difflib.get_close_matches(name.strip().lower(), folded, n=1, cutoff=0.5)
    return folded[found[0]] if found else None
