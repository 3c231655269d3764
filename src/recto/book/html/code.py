"""The code of a page: its text to the letter, its language, and a fence around it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from recto.book.html.content import is_dropped

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

_LANGUAGE = re.compile(r"(?:^|\s)(?:language|lang|highlight|highlight-source)-([\w+#.-]+)")
_NO_LANGUAGE = frozenset({"default", "none", "notranslate", "plaintext"})


def exact_text(node: LexborNode) -> str:
    """Return the text of code, with its line breaks, however they are made, and without numbers of lines."""
    parts: list[str] = []
    stack: list[tuple[LexborNode, bool]] = [(child, False) for child in reversed(list(node.iter(include_text=True)))]
    while stack:
        child, left = stack.pop()
        tag = child.tag or ""
        if left:
            if parts and not parts[-1].endswith("\n"):
                parts.append("\n")
        elif tag == "-text":
            parts.append((child.text() or "").replace("\r\n", "\n").replace("\u200b", ""))
        elif tag == "br":
            parts.append("\n")
        elif not tag.startswith("-") and not is_dropped(tag, child.attributes):
            if tag in ("div", "li", "p"):
                stack.append((child, True))
            stack.extend((grandchild, False) for grandchild in reversed(list(child.iter(include_text=True))))
    return "".join(parts)


def language(node: LexborNode) -> str:
    """Return the language of code, as the class of an element within it or around it says."""
    inner = node.css_first("x-code")
    places = [inner, node]
    for _ in range(7):  # numbered lines put a table around it
        places.append(places[-1].parent if places[-1] is not None else None)
    for place in places:
        found = _LANGUAGE.search(place.attributes.get("class") or "") if place is not None else None
        if found and found[1] not in _NO_LANGUAGE:
            return found[1]
    return "mermaid" if "mermaid" in (node.attributes.get("class") or "").split() else ""


def fence(text: str, shortest: int) -> str:
    """Return a row of backticks that is longer than any within the text."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    return "`" * max(shortest, longest + 1)
