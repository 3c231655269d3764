"""Where Docusaurus publishes a page: its rules for slugs, number prefixes and slashes."""

from __future__ import annotations

import posixpath
import re
from typing import Any
from urllib.parse import quote

from recto.book.frontmatter import stated

_DATE_OR_VERSION = re.compile(r"[0-9]+[-_.][0-9]+")
_NUMBERED = re.compile(r"[0-9]+\s*[-_.]+\s*([^-_.\s].*)", re.DOTALL)
_NOT_ENCODED = ";/?:@&=+$,#-_.!~*'()"  # as encodeURI


def without_number(name: str) -> str:
    """Drop a number that only orders a file or directory; dates and versions stay."""
    if _DATE_OR_VERSION.match(name):
        return name
    found = _NUMBERED.fullmatch(name)
    return found[1] if found else name


def number_of(name: str) -> float | None:
    """Return the number that orders a file or directory, if its name begins with one."""
    return None if without_number(name) == name else float(re.split(r"\D", name, maxsplit=1)[0])


def slug(name: str, front_matter: dict[str, Any], *, numbered: bool = True) -> str:
    """Return the path of a page below that of its docs, with a slash before it."""
    own = stated(front_matter, "slug")
    if own and own.startswith("/"):
        return own
    numbered = numbered and front_matter.get("parse_number_prefixes") is not False
    directory, file = posixpath.split(name)
    stem = file.rpartition(".")[0]
    parts = [without_number(part) if numbered else part for part in directory.split("/")] if directory else []
    folder = "/".join(["", *parts, ""])
    if not own and stem.lower() in ("index", "readme", directory.rpartition("/")[2].lower() or "."):
        return folder
    return _resolved(own or stated(front_matter, "id") or (without_number(stem) if numbered else stem), folder)


def _resolved(path: str, folder: str) -> str:
    """Resolve a relative path as a browser does; it never leaves the root."""
    parts: list[str] = []
    pieces = [*folder.strip("/").split("/"), *path.split("/")]
    for piece in pieces:
        if piece == "..":
            parts[-1:] = []
        elif piece not in (".", ""):
            parts.append(piece)
    slash = "/" if parts and pieces[-1] in (".", "..", "") else ""
    return f"/{'/'.join(parts)}{slash}"


def join(*parts: str) -> str:
    """Join parts of an address's path with single slashes."""
    return re.sub(r"/+", "/", "/".join(("", *(part for part in parts if part))))


def with_slash(path: str, base: str, trailing: bool | None) -> str:
    """Apply the site's rule for a slash at the end; the site's own root keeps it."""
    if trailing is None or path in ("/", base):
        return path
    return path if trailing and path.endswith("/") else f"{path}/" if trailing else path.removesuffix("/")


def encoded(path: str) -> str:
    """Return a path as a browser writes it."""
    return quote(path, safe=_NOT_ENCODED)
