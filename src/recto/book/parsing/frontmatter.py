"""YAML: the front matter of pages, category files, and the configuration of MkDocs."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

_FRONT_MATTER = re.compile(
    r"\A\ufeff?---[ \t]*\r?\n(.*?)(?:^|\r?\n)---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE
)
PAGE_RELATIVE = "!relative"
"""What `!relative` without a value loads as: a path that is relative to the page."""


def split_front_matter(text: str) -> tuple[dict[str, Any], str, int]:
    """Return the front matter, the text after it, and its number of lines; broken YAML counts as empty."""
    found = _FRONT_MATTER.match(text)
    if found is None:
        return {}, text, 0
    return load_mapping(found[1]), text[found.end() :], found[0].count("\n")


def stated(values: dict[str, Any], key: str) -> str | None:
    """Return a value of the front matter as text; None if it is neither text nor a number."""
    value = values.get(key)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    return str(value)


def load_mapping(source: str) -> dict[str, Any]:
    """Load a YAML mapping; broken YAML, and YAML that is not a mapping, gives an empty one."""
    try:
        return load_yaml(source)
    except ValueError:
        return {}


def load_yaml(source: str) -> dict[str, Any]:
    """Load a YAML mapping and ignore unknown tags; raise ValueError if the YAML is broken."""
    import yaml

    try:
        values = yaml.load(source, Loader=_loader())  # noqa: S506 (a safe loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # also impossible dates and endless nesting
        raise ValueError(" ".join(str(error).split())[:200]) from error
    return {str(key): value for key, value in values.items()} if isinstance(values, dict) else {}


@cache
def _loader() -> Any:
    import yaml

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        pass

    def environment(loader: Any, node: Any) -> Any:
        """Load `!ENV [NAME, default]` as if no environment variable were set."""
        if isinstance(node, yaml.SequenceNode):
            values = loader.construct_sequence(node)
            return values[-1] if len(values) > 1 else None
        return None

    def relative(loader: Any, node: Any) -> str:
        value = loader.construct_scalar(node) if isinstance(node, yaml.ScalarNode) else ""
        return str(value or PAGE_RELATIVE)

    Loader.add_constructor("!ENV", environment)
    Loader.add_constructor("!relative", relative)
    Loader.add_multi_constructor("", lambda _loader, _suffix, _node: None)
    return Loader
