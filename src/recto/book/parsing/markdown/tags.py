"""Tags of HTML and JSX: where they end, the text that a reader sees of them, and their ids."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

from recto.book.parsing.markdown.headings import SHORTCODE

LONGEST_TAG = 20_000  # characters; beyond, a `<` is taken as text
_BUDGET = 4_000_000  # characters that may be searched for tag ends that do not exist
_QUOTES = re.compile(r"[\"'`{}>]")
_TAG = re.compile(r"<(/?)([A-Za-z][\w.:-]*(?<!:))?(?=[\s/>{])")
_SEEN = re.compile(r"\b(?:label|title|text|alt|summary|caption|header)=(?:\{\s*)?(?:\"([^\"]*)\"|'([^']*)')")
_NAMED = re.compile(r"\b(number|file-?[nN]ame)=\"([^\"]+)\"")
_STRING = re.compile(r"(?:(?<![\w-])([\w-]++)\s*+[=:]\s*+(?:\{\s*+)?)?(?:\"([^\"]*)\"|'([^']*)'|`([^`]*)`)")
_TECHNICAL = re.compile(r"\w*[cC]lass\w*|code|d|href|id|key|path|src|style|to|url")
_WORD = re.compile(r"[^\W\d_]{2}")
_INLINE_TAG = re.compile(r"</?[a-z][^<>\n]*>")
_EAST_ASIAN = re.compile(r"[\u3040-\u9fff\uac00-\ud7a3]{4}")
_VALUE = re.compile(r"\bvalue=(?:\{\s*)?(?:\"([^\"]*)\"|'([^']*)')")
_CHOICE = re.compile(r"\{[^{}]*\}")
_PROPERTY = re.compile(r"\b(label|value)\s*:\s*(?:\"([^\"]*)\"|'([^']*)')")
_ID = re.compile(r"\sid=(?:\{\s*)?(?:\"([^\"\s]+)\"|'([^'\s]+)'|([^\s\"'>{}/]+))")
_NAME = re.compile(r"\sname=(?:\"([^\"\s]+)\"|'([^'\s]+)')")
_SPACES = re.compile(r"[ \t]{2,}")
_HIDDEN = re.compile(r"<(script|style|template|head|svg)(?=[\s>/])", re.IGNORECASE)
_HIDDEN_END = re.compile(r"</(script|style|template|head|svg)>", re.IGNORECASE)
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")


def tag_end(text: str, position: int) -> int | None:
    """Return where a tag ends; quotes and braces in its attributes may hold a `>`."""
    depth, quote = 0, ""
    limit = min(len(text), position + LONGEST_TAG)
    while match := _QUOTES.search(text, position, limit):
        mark, position = match[0], match.end()
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
    """Drop the text between two marks but keep its line ends; unclosed text stays unless `to_the_end`."""
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


def _without_hidden(text: str) -> str:
    """Drop elements that show no text, such as `<style>`, but keep their line ends."""
    kept, position = list[str](), 0
    while element := _HIDDEN.search(text, position):
        start, after = element.start(), tag_end(text, element.end())
        if after is None or text[after - 2] != "/":  # not `<svg />`
            name, closings = element[1].lower(), _HIDDEN_END.finditer(text, start)
            after = next((one.end() for one in closings if one[1].lower() == name), len(text))
        kept += [text[position:start], "\n" * text.count("\n", start, after)]
        position = after
    return "".join([*kept, text[position:]])


def sentences(code: str, label: str = "") -> str:
    """Return the sentences in the strings of JSX or data, except the `label`, on their lines."""
    found: list[str] = []
    position = 0
    for string in _STRING.finditer(code):
        start, end = string.start(string.lastindex or 0), string.end() - 1
        if code[start - 2] == "(" or _TECHNICAL.fullmatch(string[1] or ""):  # an argument of a function
            continue
        text = _INLINE_TAG.sub("", code[start:end])
        if text != label and _is_sentence(text):
            found += ["\n" * code.count("\n", position, start) or " ", text]
            position = end
    return "".join([*found, "\n" * code.count("\n", position)])


def _is_sentence(text: str) -> bool:
    """Return whether a string is text for readers, not code, a name or an address."""
    if text.startswith(("http://", "https://")) or any(mark in text for mark in ("=>", "{", "}", "</")):
        return False
    return sum(bool(_WORD.search(word)) for word in text.split()) > 2 or bool(_EAST_ASIAN.search(text))


class TagReader:
    """Reads the tags of one page in order and remembers the labels of its tabs."""

    def __init__(self) -> None:
        self._labels: dict[str, str] = {}
        self._budget = _BUDGET

    def _tags(self, text: str) -> Iterator[tuple[re.Match[str], int]]:
        """Yield each tag and where it ends; give up on a page with too many broken tags."""
        position = 0
        for tag in _TAG.finditer(text):
            if tag.start() < position or self._budget < 0:
                continue
            end = tag_end(text, tag.end())
            if end is None:
                self._budget -= LONGEST_TAG
            else:
                position = end
                yield tag, end

    def words(self, text: str, *, components_only: bool = False) -> list[str]:
        """Return the text of each line without tags and comments."""
        text = without(SHORTCODE.sub(r"`\1`", text), "<!--", "-->", to_the_end=True)
        text = _without_hidden(text) if _HIDDEN.search(text) else text
        kept, position = [], 0
        for match, end in self._tags(text):
            if components_only and not (match[2] or "X")[0].isupper():
                continue
            tag, name = text[match.start() : end], "" if match[1] else match[2] or ""
            kept += [text[position : match.start()], self._visible(tag, name)]
            position = end
        lines = unescaped("".join([*kept, text[position:]])).split("\n")
        if "<pre" in text.lower():
            return [line.rstrip() for line in lines]
        return [_SPACES.sub(" ", line).strip() for line in lines]

    def _visible(self, tag: str, name: str) -> str:
        """Return the visible text of a tag with as many lines: its label, and sentences of a component."""
        label = self._label(tag, name)
        if not name[:1].isupper() or name == "Tabs":
            return f" {label} " + "\n" * tag.count("\n")
        named = (f"{name} {value}" if key == "number" else value for key, value in _NAMED.findall(tag))
        return f" {': '.join(filter(None, (*named, label)))} {sentences(tag, label)}"

    def _label(self, tag: str, name: str) -> str:
        """Return the visible label of a tag."""
        if name == "Tabs":
            for choice in _CHOICE.findall(tag[1:]):
                pairs = {match[1]: match[2] or match[3] or "" for match in _PROPERTY.finditer(choice)}
                if "value" in pairs:
                    self._labels[pairs["value"]] = pairs.get("label", pairs["value"])
            return ""
        if seen := _SEEN.search(tag):
            return seen[1] or seen[2] or ""
        if name == "TabItem" and (value := _VALUE.search(tag)):
            written = value[1] or value[2] or ""
            return self._labels.get(written, written)
        return ""

    def silent(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield the components without content whose tags have no text, with their positions."""
        for tag, end in self._tags(text):
            name = "" if tag[1] else tag[2] or ""
            alone = text[end - 2] == "/" or text.startswith(f"</{name}>", end)
            if name[:1].isupper() and alone and not self._visible(text[tag.start() : end], name).strip():
                yield tag.start(), name

    def ids(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield the ids of HTML tags (not components) with their line numbers, from zero."""
        if "id=" not in text and "name=" not in text:
            return
        line = counted = 0
        for tag, end in self._tags(text):
            if tag[1] or not tag[2] or not tag[2][0].islower():
                continue
            attributes = text[tag.end() : end]
            stated = _ID.search(attributes) or (_NAME.search(attributes) if tag[2] == "a" else None)
            if stated:
                line, counted = line + text.count("\n", counted, tag.start()), tag.start()
                yield line, next(filter(None, stated.groups()))


def unescaped(text: str) -> str:
    """Replace HTML entities by their characters, except those that would break the line."""

    def character(entity: re.Match[str]) -> str:
        written = html.unescape(entity[0])
        return written.replace("\xa0", " ") if written.isprintable() or written == "\xa0" else entity[0]

    return _ENTITY.sub(character, text) if "&" in text else text
