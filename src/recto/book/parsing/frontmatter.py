"""The front matter of a page: YAML between two lines of dashes at its very beginning."""

from __future__ import annotations

import re
from typing import Any

_FRONT_MATTER = re.compile(
    r"\A\ufeff?---[ \t]*\r?\n(.*?)(?:^|\r?\n)---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE
)


def split_front_matter(text: str) -> tuple[dict[str, Any], str, int]:
    """Return what the front matter says, the text behind it, and how many lines it takes; YAML that cannot be read says nothing."""
    found = _FRONT_MATTER.match(text)
    if found is None:
        return {}, text, 0
    return load_mapping(found[1]), text[found.end() :], found[0].count("\n")


def load_mapping(source: str) -> dict[str, Any]:
    """Read the mapping that a piece of YAML holds; anything else, and YAML that is broken, is an empty one."""
    import yaml

    try:
        values = yaml.load(source, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 (both are safe)
    except (
        yaml.YAMLError,
        ValueError,
        RecursionError,
    ):  # dates that do not exist, numbers without end, nesting without end
        return {}
    return {str(key): value for key, value in values.items()} if isinstance(values, dict) else {}


def stated(values: dict[str, Any], key: str) -> str | None:
    """Return a text that the front matter states; a number counts as one."""
    value = values.get(key)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    return str(value)
