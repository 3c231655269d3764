"""HTML by construction: a plain string is always text, and only what was built here is markup."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from urllib.parse import urlsplit

_REMOVED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
"""Control characters, those that turn the direction of what follows them, and what cannot be written as UTF-8 or has no place in HTML."""

_VOID = frozenset({"meta", "line", "circle", "rect"})

Value = str | int | float | bool | None


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def safe(text: str) -> Markup:
    """Return a text as HTML, so that nothing in it is read as a tag or an entity."""
    return text if isinstance(text, Markup) else Markup(escape(_REMOVED.sub("", text), quote=True))


def element(name: str, /, *children: str | None, **attributes: Value) -> Markup:
    """Return an element; `class_` and `aria_label` become `class` and `aria-label`, None and False are left out."""
    written = "".join(_attribute(key, value) for key, value in attributes.items() if value is not None and value is not False)
    if name in _VOID:
        return Markup(f"<{name}{written}>" if name == "meta" else f"<{name}{written}/>")
    return Markup(f"<{name}{written}>{''.join(safe(child) for child in children if child is not None)}</{name}>")


def joined(parts: Iterable[str | None], between: str = "\n") -> Markup:
    """Return several pieces, one after the other."""
    return Markup(safe(between).join(safe(part) for part in parts if part))


def place(address: str) -> Markup:
    """Return an address: a link if a browser can open it, else its text."""
    shown = element("span", address, class_="place")
    return element("a", shown, href=_REMOVED.sub("", address), rel="noopener noreferrer") if _is_web(address) else shown


def words(text: str) -> Markup:
    """Return what a person wrote, in the direction of its own script."""
    return element("bdi", text)


def number(value: float) -> str:
    """Return a measure or a score as it is printed everywhere."""
    return f"{value:.3f}".replace("-", "\N{MINUS SIGN}")


def signed(value: float) -> str:
    """Return a change, with its sign."""
    return f"{value:+.3f}".replace("-", "\N{MINUS SIGN}")


def counted(count: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _attribute(key: str, value: Value) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    return f' {name}="{safe(f"{value:.6g}" if isinstance(value, float) else str(value))}"'


def _is_web(address: str) -> bool:
    try:
        parts = urlsplit(_REMOVED.sub("", address))
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.netloc)
