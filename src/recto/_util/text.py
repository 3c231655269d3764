"""Normalise text, page addresses and module names, so that different spellings compare equal."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote, urlsplit

_LONGEST_COMPARED = 200  # characters of a misspelled name
_MAX_NAME = 80  # characters of a name in an error message
ROOT_MODULE = "intro"
"""The module of pages that are not in a module's directory."""
MARKDOWN_SUFFIXES = (".md", ".markdown", ".mdown", ".mkdn", ".mkd")
MDX_SUFFIXES = (".mdx",)
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_URL_SAFE = "/:?#[]@!$&'()*+,;=%-._~"
_URL_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_UMLAUTS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss", "æ": "ae", "ø": "oe", "ł": "l"})
_NUMBER_PREFIX = re.compile(
    r"^(?:(?:module|chapter|part|unit|week|lesson)[-_ ]?)?\d+[-_. ]+(?=\S)", re.IGNORECASE
)


def encodable(text: str) -> str:
    """Replace lone surrogates by `?`: UTF-8 cannot encode them."""
    return text.encode("utf-8", "replace").decode("utf-8")


def escape_controls(text: str, *, keep: str = "") -> str:
    """Escape characters that can start a new line or manipulate a terminal, except those to keep."""

    def escape(match: re.Match[str]) -> str:
        return match[0] if match[0] in keep else f"\\u{ord(match[0]):04x}"

    return _UNSAFE.sub(escape, text)


def to_json(data: Any) -> str:
    """Serialize data as indented JSON that cannot manipulate a terminal; NaN is an error."""
    import json

    text = json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False)
    return escape_controls(encodable(text), keep="\n")


def with_anchor(page: str, anchor: str) -> str:
    """Return `page#anchor`, or the page alone if there is no anchor."""
    return f"{page}#{anchor}" if anchor else page


def is_local(url: str) -> bool:
    """Return whether a page has no published address."""
    return url.startswith("local:")


def without_space(text: str) -> str:
    """Remove all white space, so that two copies of a text compare equal however they are wrapped."""
    return "".join(text.split())


def shortened(name: str) -> str:
    """Shorten a name that an error message repeats."""
    return name if len(name) <= _MAX_NAME else f"{name[:_MAX_NAME]}…"


def plural(count: int, noun: str, many: str = "") -> str:
    """Return a count with its noun, singular or plural; `many` is for nouns whose plural has no plain `s`."""
    return f"{count:,} {noun if count == 1 else many or f'{noun}s'}"


def page_key(url: str) -> str:
    """Return the normal form of a page's address, which is the same for all its usual spellings.

    It ignores a trailing slash, the file extension, the case of scheme and host, and the fragment. The case
    of the path matters.
    """
    try:
        parts = urlsplit(url.strip())
    except ValueError:  # not a valid URL, so it has only one spelling
        return url.strip()
    path = parts.path.rstrip("/")
    for suffix in (*MARKDOWN_SUFFIXES, *MDX_SUFFIXES):
        path = path.removesuffix(suffix)
    query = f"?{parts.query}" if parts.query else ""
    if not parts.scheme:
        return f"{path}{query}"
    return f"{parts.scheme.lower()}://{parts.netloc.lower()}{path}{query}"


def is_absolute_url(text: str) -> bool:
    """Return whether a text is an absolute URL without invalid characters."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return bool(
        _URL_SCHEME.fullmatch(parts.scheme)
        and parts.netloc
        and text.isprintable()
        and not re.search(r"\s", text)
    )


def absolute_url(address: str, fallback: str) -> str:
    """Return an absolute URL for a page's address, which may be a path, or for `fallback` if it is empty."""
    address = encodable(address).strip()
    path = address.replace("\\", "/")
    for url in (address, quote(path, safe=_URL_SAFE)):
        if is_absolute_url(url):
            return url
    return f"local://{quote(path.lstrip('/') or fallback, safe='/#-._~')}"


def short_name(directory: str) -> str:
    """Return a module's name without its number: `module-1-ros2` and `01-ros2` become `ros2`."""
    return _NUMBER_PREFIX.sub("", directory.strip()).lower() or directory.lower()


def module_keys(directory: str) -> tuple[str, ...]:
    """Return all names by which a filter can refer to a module, the canonical one first."""
    return tuple(dict.fromkeys((short_name(directory), directory.strip().lower())))


def slug(text: str) -> str:
    """Return a text as a name of lower-case letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:_MAX_NAME].strip("-")


def collection_slug(text: str) -> str:
    """Return a text as the name of a collection: letters with marks become ASCII letters."""
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFC", text.lower()).translate(_UMLAUTS))
    return slug("".join(letter for letter in plain if not unicodedata.combining(letter)))


def filter_keys(names: Iterable[str]) -> list[str]:
    """Return the module names of a filter in the form of `module_keys`."""
    return list(dict.fromkeys(name.strip().lower() for name in names))


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate that is most similar to a misspelled name, or None if none is similar."""
    import difflib

    by_folded_name = {candidate.lower(): candidate for candidate in candidates}
    misspelled = name.strip().lower()[:_LONGEST_COMPARED]
    matches = difflib.get_close_matches(misspelled, by_folded_name, n=1, cutoff=0.5)
    return by_folded_name[matches[0]] if matches else None
