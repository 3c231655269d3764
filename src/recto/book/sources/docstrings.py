"""Docstrings in the styles of Google and NumPy, as Sphinx's Napoleon and mkdocstrings show them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping

_FIELDS = {
    **dict.fromkeys(("args", "arguments", "parameters", "keyword args", "keyword arguments"), "param"),
    **dict.fromkeys(("other parameters", "keyword args", "keyword arguments"), "param"),
    **dict.fromkeys(("raises", "raise", "except"), "raises"),
    "attributes": "ivar",
}
_RESULTS = {"returns": "returns", "return": "returns", "yields": "yields", "yield": "yields"}
_TITLES = frozenset({"example", "examples", "references", "methods", "warns", "receives"})
_ADMONITIONS = {
    "note": "note", "notes": "", "warning": "warning", "warnings": "warning", "tip": "tip", "todo": "todo",
    "see also": "seealso", "important": "important", "caution": "caution", "hint": "hint", "danger": "danger",
}  # fmt: skip
_LONGEST = 500  # characters of a line that may begin with a type
_SECTION = re.compile(r"(?P<name>[A-Za-z][A-Za-z ]{2,20}):?::?|(?P<plain>[A-Za-z][A-Za-z ]{2,20})")
_ITEM = re.compile(
    r"(?P<name>\*{0,2}[\w.]++)[ ]*+(?:\((?P<type>[^()]*+(?:\([^()]*+\)[^()]*+)*+)\)[ ]*+)?:"
    r"(?:[ ]++(?P<text>.*+)|$)"
)


def as_fields(doc: str) -> str:
    """Return a docstring with fields of reStructuredText instead of sections such as `Args:`."""
    return _replaced(doc, _converted)


def as_markdown(doc: str, types: Mapping[str, tuple[str, str]]) -> str:
    """Return a docstring with lists of Markdown for its sections; parameters have a type and default."""

    def lines(name: str, body: str, is_numpy: bool) -> Iterator[str]:
        if name in _ADMONITIONS:
            yield from (f'!!! {_ADMONITIONS[name] or "note"} "{name.capitalize()}"', "")
            yield from textwrap.indent(body, "    ").split("\n")
            return
        title = {"param": "Parameters", "ivar": "Attributes"}.get(_FIELDS.get(name, ""), name.capitalize())
        yield from (f"**{title}:**", "")
        if name in _TITLES:
            is_session = body.startswith(">>>") and "```" not in body
            yield from ("```pycon", *body.split("\n"), "```") if is_session else body.split("\n")
            return
        items = _numpy_items(body) if is_numpy else _google_items(body)
        for index, (item, stated, text) in enumerate(items):
            plain = item.replace("\\", "")  # of `*args`
            key = plain.lstrip("*") or ("return" if name in _RESULTS and not index else "")
            type, default = types.get(key, ("", ""))
            default = default if _FIELDS.get(name) == "param" else ""
            notes = ", ".join(filter(None, (f"`{stated}`" if stated else type, default)))
            head = " ".join(filter(None, (f"`{plain}`" if plain else "", f"({notes})" if notes else "")))
            first, *others = (f"{head}: {text}" if head and text else head or text).split("\n")
            yield from (f"- {first}", *(f"    {line}".rstrip() for line in others))

    return _replaced(doc, lines)


def _replaced(doc: str, write: Callable[[str, str, bool], Iterator[str]]) -> str:
    lines, index, written = doc.split("\n"), 0, list[str]()
    while index < len(lines):
        name, is_numpy = _section(lines, index)
        if not name:
            written.append(lines[index])
            index += 1
            continue
        start = index = index + 1 + is_numpy
        while index < len(lines) and _continues(lines, index, is_numpy):
            index += 1
        body = textwrap.dedent("\n".join(lines[start:index])).strip("\n")
        written += ["", *write(name, body, is_numpy), ""]
    return "\n".join(written)


def _section(lines: list[str], index: int) -> tuple[str, bool]:
    """Return the lower-case name of the section that a line begins, and whether it is underlined."""
    head = _SECTION.fullmatch(lines[index].rstrip())
    below = lines[index + 1].rstrip() if index + 1 < len(lines) else ""
    if head is None:
        return "", False
    name = (head["name"] or head["plain"]).lower()
    if name not in {*_FIELDS, *_RESULTS, *_TITLES, *_ADMONITIONS}:
        return "", False
    is_numpy = bool(re.fullmatch(r"-{3,}", below))
    is_google = bool(head["name"]) and (below.startswith((" ", "\t")) or not below)
    return (name, is_numpy) if is_numpy or is_google else ("", False)


def _continues(lines: list[str], index: int, is_numpy: bool) -> bool:
    line = lines[index]
    if is_numpy:
        return not _section(lines, index)[0]
    return not line.strip() or line.startswith((" ", "\t"))


def _converted(name: str, body: str, is_numpy: bool) -> Iterator[str]:
    """Yield the lines of a section."""
    if kind := _FIELDS.get(name):
        for item, type, text in _numpy_items(body) if is_numpy else _google_items(body):
            yield from _field(f"{kind} {item}", text)
            if type and kind != "raises":
                yield f":{'vartype' if kind == 'ivar' else 'type'} {item}: {type}"
    elif kind := _RESULTS.get(name):
        yield from _result(kind, body, is_numpy)
    elif admonition := _ADMONITIONS.get(name):
        yield from (f".. {admonition}::", "", *textwrap.indent(body, "   ").split("\n"))
    else:
        yield from (f".. rubric:: {name.capitalize()}", "", *body.split("\n"))


def _result(kind: str, body: str, is_numpy: bool) -> Iterator[str]:
    if is_numpy:
        for item, type, text in _numpy_items(body):
            yield from _field(kind, text or item)
            yield f":rtype: {type or item}"
        return
    first, _, rest = body.partition("\n")
    typed = re.match(r"([\w.\[\], |~`:]*[\w\]`])[ ]*+:[ ]++(.*)", first) if len(first) <= _LONGEST else None
    yield from _field(kind, f"{typed[2] if typed else first}\n{textwrap.dedent(rest)}".strip())
    if typed:
        yield f":rtype: {typed[1]}"


def _field(name: str, text: str) -> Iterator[str]:
    first, *others = text.split("\n")
    yield f":{name}: {first}"
    yield from (f"    {line}" if line.strip() else "" for line in others)


def _google_items(body: str) -> Iterator[tuple[str, str, str]]:
    """Yield the name, type and text of each item, whose further lines are indented."""
    for part in re.split(r"\n(?=\S)", body):
        first, _, rest = part.partition("\n")
        item = _ITEM.fullmatch(first)
        text = f"{item['text'] or '' if item else first}\n{textwrap.dedent(rest)}".strip()
        if item:
            yield item["name"].replace("*", "\\*"), item["type"] or "", text
        elif text:
            yield "", "", text


def _numpy_items(body: str) -> Iterator[tuple[str, str, str]]:
    for part in re.split(r"\n(?=\S)", body):
        first, _, rest = part.partition("\n")
        name, _, type = first.partition(" : ")
        yield name.strip().replace("*", "\\*"), type.strip(), textwrap.dedent(rest).strip()
