"""The module of a page that others indexed: from what they called it, from its address, from its number as a last resort."""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import unquote

from recto.modules import ROOT_MODULE, module_keys, short_name

NO_MODULE = "general"
"""What such pipelines call a page that belongs to no module."""

_KEYWORDS = re.compile(
    r"(?<![a-z0-9])(?:(?P<ros2>ros-?2)|(?P<simulation>simulations?|digital-twins?|gazebo|unity)"
    r"|(?P<isaac>isaac|ai-robot-brain)|(?P<vla>vla|vision-language-action))(?![a-z0-9])"
)
_INTRO = re.compile(r"(?<![a-z0-9])intro(?:duction)?(?![a-z0-9])")
_BY_NUMBER = {1: "ros2", 2: "simulation", 3: "isaac", 4: "vla"}
"""The order in which most of these books teach. Some do not, so that only a module without any name is known by its number."""

_ROOTS = frozenset({"docs", "doc", "documentation", "docusaurus-plugin-content-docs"})
_GENERIC = _ROOTS | {"book", "build", "content", "current", "home", "i18n", "latest", "next", "pages", "site", "src", "stable", "website"}
_VERSION = re.compile(r"v?\d+(?:\.[\dx]+)+|version-.*", re.IGNORECASE)
_COUNTED = re.compile(r"(?:module|chapter|part|unit|week|lesson|ch)[-_ ]?\d", re.IGNORECASE)
_ONLY_COUNTED = re.compile(r"(module|chapter|part|unit|week|lesson|ch)?[-_ ]?(\d{1,9})", re.IGNORECASE)
_PAGE_FILE = re.compile(r"(.+)\.(?:mdx?|markdown|txt|pdf|html?|rst)", re.IGNORECASE | re.DOTALL)
_ADDRESS = re.compile(r"(?:(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<host>[^/?#]*))?(?P<path>[^?#]*)", re.IGNORECASE)
_ABSOLUTE = re.compile(r"file://|[/\\~]|[a-z]:[/\\]", re.IGNORECASE)
_INDEX_PAGES = frozenset({"index", "readme"})


@lru_cache(maxsize=4096)  # a page has many chunks
def module_of(raw: str, address: str) -> tuple[str, tuple[str, ...]]:
    """Return a page's module and all names that a filter may call it by; `raw` is what its payload calls it."""
    directories = _module_directories(address)
    directory = directories[0] if directories else ""
    name = _named(raw) or _named(directory) or _counted(raw) or _counted(directory)
    name = name or (ROOT_MODULE if raw or address else NO_MODULE)
    short = "" if is_named(raw) else _short(directory)
    keys = (name, *(module_keys(raw) if raw else ()), short, *directories)
    return name, tuple(dict.fromkeys(key for key in (key.strip().lower() for key in keys) if key))


@lru_cache(maxsize=4096)
def is_named(raw: str) -> bool:
    """Whether a module's name says more than a number or "docs"."""
    return bool(_named(raw))


def page_name(address: str) -> str:
    """Return the last part of an address as a person would write it: the title of a page that states none."""
    parts = [_without_extension(part) for part in _split(address)]
    if len(parts) > 1 and parts[-1].lower() in _INDEX_PAGES:
        parts.pop()
    return re.sub(r"[-_]+", " ", parts[-1]).strip().capitalize() if parts else ""


def _module_directories(address: str) -> list[str]:
    """Return the parts of an address or path that stand for the module, the telling one first; none for a page of the root."""
    *directories, page = _parts(address) or [""]
    if not directories:  # such an address may be that of a module's own page
        name = _without_extension(page)
        return [name] if _keyword(name) or (name == page and _COUNTED.match(page)) else []
    directories.sort(key=lambda part: not _COUNTED.match(part))
    top = next((part for part in directories if _COUNTED.match(part) or is_named(part)), directories[0])
    return list(dict.fromkeys((next((part for part in directories if _KEYWORDS.search(_slug(part))), top), top)))


def _named(raw: str) -> str:
    slug = _slug(raw)
    if not slug or slug in _GENERIC or _ONLY_COUNTED.fullmatch(raw.strip()):
        return ""
    if _PAGE_FILE.fullmatch(raw.strip()):  # some call a page of the root by its file
        return _keyword(raw) or ROOT_MODULE
    return _keyword(raw) or _short(raw)


def _keyword(text: str) -> str:
    """Return the module that a name's words give away; what comes first counts, an introduction to something is about that."""
    slug = _slug(text)
    found = _KEYWORDS.search(slug)
    return (found.lastgroup or "") if found else ROOT_MODULE if _INTRO.search(slug) else ""


def _counted(raw: str) -> str:
    found = _ONLY_COUNTED.fullmatch(raw.strip())
    if not found:
        return ""
    word, number = (found[1] or "module").lower(), int(found[2])
    known = _BY_NUMBER.get(number) if word == "module" else None  # chapters are counted from the preface in some books
    return known or (raw.strip().lower() if found[1] else f"{word}-{number}")


def _short(name: str) -> str:
    return short_name(re.sub(r"^ch(?=[-_ ]?\d)", "chapter", name.strip().replace(":", " "), flags=re.IGNORECASE)).strip()


def _slug(text: str) -> str:
    return re.sub(r"[\W_]+", "-", text.lower()).strip("-")


def _parts(address: str) -> list[str]:
    """Return the parts below the book's root, the page last; a file elsewhere on a disk is known best by what is nearest to it."""
    *directories, page = _split(address) or [""]
    roots = [place for place, part in enumerate(directories) if part.lower() in _ROOTS]
    directories = directories[roots[-1] + 1 :] if roots else directories
    if not roots and _ABSOLUTE.match(address.strip()) and _PAGE_FILE.fullmatch(page):
        directories.reverse()
    kept = [part for part in directories if part.lower() not in _GENERIC and not _VERSION.fullmatch(part)]
    return [*kept, page] if page.lower() not in _ROOTS else kept


def _split(address: str) -> list[str]:
    found = _ADDRESS.match(address.strip())
    if not found:
        return []
    host = "" if (found["scheme"] or "http").lower() in {"http", "https", "file"} else found["host"]
    parts = (unquote(part).strip() for part in re.split(r"[/\\]", f"{host}/{found['path']}"))
    return [part for part in parts if part and part.strip(".~") and not re.fullmatch(r"[A-Za-z]:", part)]


def _without_extension(part: str) -> str:
    found = _PAGE_FILE.fullmatch(part)
    return found[1] if found else part
