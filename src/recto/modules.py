"""Module names: the short name that people use, and every other name that means the same."""

from __future__ import annotations

import re
from collections.abc import Iterable

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
