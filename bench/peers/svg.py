"""Build SVG from elements whose text is always escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

_VOID = frozenset({"line", "circle", "rect"})


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def element(name: str, /, *children: str, **attributes: str | float) -> Markup:
    """Return an element; `class_` becomes `class`."""
    written = "".join(
        f' {key.rstrip("_")}="{escape(f"{value:.6g}" if isinstance(value, float) else str(value))}"'
        for key, value in attributes.items()
    )
    if name in _VOID:
        return Markup(f"<{name}{written}/>")
    return Markup(f"<{name}{written}>{joined(children, '')}</{name}>")


def joined(parts: Iterable[str], between: str = "\n") -> Markup:
    """Return several pieces, one after the other; plain text is escaped."""
    return Markup(between.join(part if isinstance(part, Markup) else escape(part) for part in parts))
