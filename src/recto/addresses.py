"""Page addresses: compare them the way people type them."""

from __future__ import annotations

from urllib.parse import urlsplit

_EXTENSIONS = (".md", ".mdx", ".markdown")


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
    for extension in _EXTENSIONS:
        path = path.removesuffix(extension)
    query = f"?{parts.query}" if parts.query else ""
    if not parts.scheme:
        return f"{path}{query}"
    return f"{parts.scheme.lower()}://{parts.netloc.lower()}{path}{query}"
