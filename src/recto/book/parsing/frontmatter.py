"""YAML: the front matter of pages, category files, and the configuration of MkDocs."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

_FRONT_MATTER = re.compile(
    r"\A\ufeff?---[ \t]*\r?\n(.*?)(?:^|\r?\n)---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE
)
PAGE_RELATIVE = "!relative"
"""What `!relative` without a value loads as: a path that is relative to the page."""
_LARGEST = 1 << 20  # characters
_MOST_NODES = 50_000
_DEEPEST = 50
_LONGEST_NUMBER = 50  # characters


def split_front_matter(text: str) -> tuple[dict[str, Any], str, int]:
    """Return the front matter, the text after it, and its number of lines; broken YAML counts as empty."""
    match = _FRONT_MATTER.match(text)
    if match is None:
        return {}, text, 0
    return load_mapping(match[1]), text[match.end() :], match[0].count("\n")


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
        _check_size(source)
        values = yaml.load(source, Loader=_loader())  # noqa: S506 (a safe loader)
    except (yaml.YAMLError, ValueError) as error:  # also impossible dates
        raise ValueError(" ".join(str(error).split())[:200]) from error
    return {str(key): value for key, value in values.items()} if isinstance(values, dict) else {}


def _check_size(source: str) -> None:
    """Raise ValueError for YAML that is too large or too deep to load, also after its aliases are expanded.

    The loader is recursive, and an alias or a merge key repeats everything below its anchor.
    """
    import yaml

    if len(source) > _LARGEST:
        raise ValueError(f"it has more than {_LARGEST} characters")
    sizes: dict[str, int] = {}  # of the nodes with an anchor, with everything below them
    total = 0
    open_nodes: list[tuple[str | None, int]] = []  # the anchor and what came before it
    for event in yaml.parse(source, Loader=_loader()):
        if isinstance(event, yaml.AliasEvent):
            total += sizes.get(event.anchor or "", 1)
        elif isinstance(event, yaml.ScalarEvent):
            total += 1
            if event.anchor:
                sizes[event.anchor] = 1
        elif isinstance(event, yaml.CollectionStartEvent):
            open_nodes.append((event.anchor, total))
            if event.anchor:
                sizes[event.anchor] = _MOST_NODES + 1  # an alias of a node in itself
            total += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_nodes.pop()
            if anchor:
                sizes[anchor] = total - before
        if total > _MOST_NODES:
            raise ValueError(f"it has more than {_MOST_NODES} values")
        if len(open_nodes) > _DEEPEST:
            raise ValueError(f"its values are more than {_DEEPEST} levels deep")


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

    def number(convert: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        """Load a number that is too long for arithmetic as text."""
        return lambda loader, node: node.value if len(node.value) > _LONGEST_NUMBER else convert(loader, node)

    Loader.add_constructor("tag:yaml.org,2002:int", number(Loader.construct_yaml_int))
    Loader.add_constructor("tag:yaml.org,2002:float", number(Loader.construct_yaml_float))
    Loader.add_constructor("!ENV", environment)
    Loader.add_constructor("!relative", relative)
    Loader.add_multi_constructor("", lambda _loader, _suffix, _node: None)
    return Loader
