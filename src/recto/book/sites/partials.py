"""Put imported partials where a page shows them: what `import X from './_x.mdx'` and `<X />` publish as part of the page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from recto.book.frontmatter import split_front_matter

_IMPORT = re.compile(r"^import\s+(\w+)\s+from\s+(['\"])([^'\"\n]+\.mdx?)\2;?[ \t]*$", re.MULTILINE)
_DEEPEST = 5
_LARGEST = 1 << 20  # characters that partials may add to a page

Load = Callable[[str, str], tuple[str, str] | None]
"""Takes the name of the importing file and what it imports; returns the imported file's name and text, or None."""


def with_partials(name: str, text: str, load: Load) -> tuple[str, tuple[int, ...]]:
    """Return a page's text with its partials in place, and the page's own line of each of its lines; none if it has no partials."""
    if not _IMPORT.search(text):
        return text, ()
    lines, origins = [], []
    for line, origin in _expanded(name, text, load, 0, [_LARGEST]):
        lines.append(line)
        origins.append(origin)
    expanded = "\n".join(lines)
    return (expanded, tuple(origins)) if expanded != text else (text, ())


def _expanded(name: str, text: str, load: Load, depth: int, left: list[int]) -> Iterator[tuple[str, int]]:
    partials = {found[1]: found[3] for found in _IMPORT.finditer(text)}
    for number, line in enumerate(text.split("\n"), 1):
        shown = _shown(line, partials)
        part = load(name, shown) if shown and depth < _DEEPEST else None
        if part is None:
            yield line, number
            continue
        inner, body = part[0], split_front_matter(part[1])[1]
        left[0] -= len(body)
        if left[0] < 0:
            yield line, number
            continue
        for inner_line, _ in _expanded(inner, body, load, depth + 1, left):
            yield inner_line, number


def _shown(line: str, partials: dict[str, str]) -> str:
    """Return the file that a line shows, if the line is nothing but its tag."""
    text = line.strip()
    if not text.startswith("<") or not text.endswith("/>"):
        return ""
    return partials.get(re.split(r"[\s/]", text[1:], maxsplit=1)[0], "")
