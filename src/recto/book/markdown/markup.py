"""The words of HTML and JSX: what stands between tags, what a tab is called; and the ids that tags state."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

_TAG = re.compile(r"<(/?)([A-Za-z][\w.:-]*(?<!:))?(?=[\s/>{])")  # no tag ends with a colon: that is an address
_SEEN = re.compile(r"\b(?:label|title|alt|summary|caption|header)=(?:\{\s*)?(?:\"([^\"]*)\"|'([^']*)')")
_VALUE = re.compile(r"\bvalue=(?:\{\s*)?(?:\"([^\"]*)\"|'([^']*)')")
_CHOICE = re.compile(r"\{[^{}]*\}")
_PROPERTY = re.compile(r"\b(label|value)\s*:\s*(?:\"([^\"]*)\"|'([^']*)')")
_ID = re.compile(r"\sid=(?:\{\s*)?(?:\"([^\"\s]+)\"|'([^'\s]+)'|([^\s\"'>{}/]+))")
_NAME = re.compile(r"\sname=(?:\"([^\"\s]+)\"|'([^'\s]+)')")
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_SPACES = re.compile(r"[ \t]{2,}")
_UNSEEN = ("script", "style", "template", "head")
_LONGEST_TAG = 4_000
_BUDGET = 1_000_000  # characters that may be searched in vain for the ends of tags
_QUOTES = re.compile(r"[\"'`{}>]")


def unescaped(text: str) -> str:
    """Write entities as the characters they stand for; one that would break the line, and what only looks like one, stays."""

    def character(entity: re.Match[str]) -> str:
        written = html.unescape(entity[0])
        return written.replace("\xa0", " ") if written.isprintable() or written == "\xa0" else entity[0]

    return _ENTITY.sub(character, text)


def tag_end(text: str, position: int) -> int | None:
    """Return where a tag ends, with quotes and braces in its attributes respected."""
    depth, quote = 0, ""
    limit = min(len(text), position + _LONGEST_TAG)
    while found := _QUOTES.search(text, position, limit):
        mark, position = found[0], found.end()
        if quote:
            quote = "" if mark == quote else quote
        elif mark in "\"'`":
            quote = mark
        elif mark == "{":
            depth += 1
        elif mark == "}":
            depth -= 1
        elif depth <= 0:
            return position
    return None


def without(text: str, opening: str, closing: str, *, to_the_end: bool = False) -> str:
    """Drop what stands between two marks but not the ends of lines in it; what is not closed stays, or goes to the end."""
    kept, position = [], 0
    folded = text.lower()
    while (start := folded.find(opening, position)) >= 0:
        end = folded.find(closing, start)
        if end < 0 and not to_the_end:
            break
        end = len(text) if end < 0 else end + len(closing)
        kept += [text[position:start], "\n" * text.count("\n", start, end)]
        position = end
    return "".join([*kept, text[position:]])


class Markup:
    """Reads the markup of one page in order; remembers the labels that a list of tabs gives to its tabs."""

    def __init__(self) -> None:
        self._labels: dict[str, str] = {}
        self._budget = _BUDGET

    def _tags(self, text: str) -> Iterator[tuple[re.Match[str], int]]:
        """Yield each tag and where it ends; on a page of broken tags, stop to look for ends at some point."""
        position = 0
        for found in _TAG.finditer(text):
            if found.start() < position or self._budget < 0:
                continue
            end = tag_end(text, found.end())
            if end is None:
                self._budget -= _LONGEST_TAG
            else:
                position = end
                yield found, end

    def words(self, text: str, *, components_only: bool = False) -> list[str]:
        """Return what is left of each line without tags and comments."""
        text = without(text, "<!--", "-->", to_the_end=True)
        for name in _UNSEEN:
            if f"<{name}" in text.lower():
                text = without(text, f"<{name}", f"</{name}>", to_the_end=True)
        kept, position = [], 0
        for found, end in self._tags(text):
            if components_only and not (found[2] or "X")[0].isupper():
                continue
            tag = text[found.start() : end]
            kept += [text[position : found.start()], " ", self._seen(tag, found[2] or ""), " ", "\n" * tag.count("\n")]
            position = end
        lines = unescaped("".join([*kept, text[position:]])).split("\n")
        if "<pre" in text.lower():
            return [line.rstrip() for line in lines]
        return [_SPACES.sub(" ", line).strip() for line in lines]

    def _seen(self, tag: str, name: str) -> str:
        """Return the text of a tag's attributes that a reader sees."""
        if name == "Tabs":
            for choice in _CHOICE.findall(tag[1:]):
                pairs = {found[1]: found[2] or found[3] or "" for found in _PROPERTY.finditer(choice)}
                if "value" in pairs:
                    self._labels[pairs["value"]] = pairs.get("label", pairs["value"])
            return ""
        if seen := _SEEN.search(tag):
            return seen[1] or seen[2] or ""
        if name == "TabItem" and (value := _VALUE.search(tag)):
            written = value[1] or value[2] or ""
            return self._labels.get(written, written)
        return ""

    def ids(self, text: str) -> list[tuple[int, str]]:
        """Return the ids that HTML tags state, each with the number of line ends before it; a component's `id` may mean anything."""
        found: list[tuple[int, str]] = []
        if "id=" not in text and "name=" not in text:
            return found
        line = counted = 0
        for tag, end in self._tags(text):
            if tag[1] or not tag[2] or not tag[2][0].islower():
                continue
            attributes = text[tag.end() : end]
            stated = _ID.search(attributes) or (_NAME.search(attributes) if tag[2] == "a" else None)
            if stated:
                line, counted = line + text.count("\n", counted, tag.start()), tag.start()
                found.append((line, next(filter(None, stated.groups()))))
        return found
