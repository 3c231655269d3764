"""`include` and `literalinclude` of Sphinx and MyST: the files and the parts of them that a page includes."""

from __future__ import annotations

import re
import textwrap
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from recto._util.markdown import code_fences
from recto.book.parsing import MARKDOWN, format_of
from recto.book.sources.includes import Directive, Select, code_ranges, select_between, select_lines

OPTION = re.compile(r":(?P<name>[\w-]+):[ \t]*(?P<value>.*)")
_YAML_HEAD = re.compile(r"\A[ \t]*---\n(.*?)\n[ \t]*---\n", re.DOTALL)
_LITERAL = re.compile(
    r"^(?P<prefix>[ \t]*)(?P<marks>`{3,}|:{3,})\{(?P<kind>literalinclude|include)\}"
    r"[ \t]*(?P<path>[^\s`]+)[ \t]*\n"
    r"(?P<options>(?:[ \t]*:[\w-]+:[^\n]*\n|[ \t]*\n)*|[ \t]*---\n(?:[ \t]*[\w-]+:[^\n]*\n)*[ \t]*---\n)"
    r"[ \t]*(?P=marks)[ \t]*$",
    re.MULTILINE,
)
_RST_INCLUDE = re.compile(
    r"^(?P<prefix>[ \t]*)\.\. (?P<kind>literalinclude|include)::[ \t]+(?P<path>[^\s<]\S*)[ \t]*"
    r"(?P<options>(?:\n[ \t]+:[\w-]+:[^\n]*)*)$",
    re.MULTILINE,
)
_EMBEDDED = re.compile(
    r"^(?P<prefix>[ \t]*)(?:(?P<marks>`{3,}|:{3,})\{embed\}[ \t]*#(?P<label>[^\s`]+)[ \t]*\n"
    r"(?:[ \t]*:[\w-]+:[^\n]*\n){0,9}[ \t]*(?P=marks)|!\[\]\(#(?P<short>[^()\s]+)\))[ \t]*$",
    re.MULTILINE,
)
_LABEL = re.compile(
    r"^[ \t]*(?::(?:label|name):[ \t]*(?P<option>[^\s]+)|\((?P<target>[^()\n]+)\)=)[ \t]*$", re.MULTILINE
)
_MARKS = re.compile(r"[ \t]*(`{3,}|:{3,}|\+{3})")
_QUOTED = re.compile(r"^(['\"])(.*)\1$")
_EDGES = {"start-at": 0, "start-after": 1, "end-at": 1, "end-before": 0}
"""The marks that begin and end a part, and the lines between a mark and the edge."""
_LITERAL_BLOCK = re.compile(r"\.\. (?:code|code-block|sourcecode|parsed-literal)::.*|(?!\.\. ).*::[ \t]*")
_FAR = 2_000  # characters above a directive that are searched for what it is in
_DEEPEST = 20  # classes in classes


def embedded_rst(text: str) -> Callable[[int], bool]:
    """Return whether a position of a MyST page is in a fence of reStructuredText."""
    every = (pair for pair in code_fences(text) if pair[0]["info"] == "{eval-rst}")
    fences = [(opening.end(), closing.start() if closing else len(text)) for opening, closing in every]

    def in_rst(position: int) -> bool:
        index = bisect_right(fences, (position, len(text))) - 1
        return index >= 0 and position < fences[index][1]

    return in_rst


def is_literal(text: str, position: int, indent: int) -> bool:
    """Return whether the nearest line above that is indented less begins a literal block."""
    for line in reversed(text[max(position - _FAR, 0) : position].split("\n")):
        if line.strip() and len(line) - len(line.lstrip()) < indent:
            return _LITERAL_BLOCK.fullmatch(line.strip()) is not None
    return False


def with_options(text: str) -> str:
    """Return the text of a directive of MyST with its YAML head as options."""
    return _YAML_HEAD.sub(_as_options, text)


def _as_options(head: re.Match[str]) -> str:
    """Return the YAML head of a directive as options."""
    return "".join(f":{line.replace(':', ':  ', 1)}\n" for line in head[1].split("\n"))


def find_included(root: Path, text: str, file: Path) -> Sequence[Directive]:
    """Return the directives of a page that include a file."""
    directives = []
    is_page_rst = format_of(file.name) is not MARKDOWN
    matches = [(match, is_page_rst) for match in (_RST_INCLUDE if is_page_rst else _LITERAL).finditer(text)]
    if not is_page_rst and "{eval-rst}" in text:
        in_rst = embedded_rst(text)
        matches += [(match, True) for match in _RST_INCLUDE.finditer(text) if in_rst(match.start())]
    for match, is_rst in matches if "include" in text else ():
        stated = with_options(match["options"])
        options = {option["name"]: option["value"].strip() for option in OPTION.finditer(stated)}
        if not is_rst:  # its values are YAML
            options = {name: _QUOTED.sub(r"\2", value) for name, value in options.items()}
        is_code = match["kind"] == "literalinclude" or bool({"code", "literal"} & set(options))
        language = options.get("language") or options.get("code") or ""
        select = _selected(match["kind"], options)
        directives.append(
            Directive(
                *match.span(),
                match["path"].lstrip("/"),
                (root if match["path"].startswith("/") else file.parent,),
                select=partial(_rst_code, select, language) if is_rst and is_code else select,
                code=language if is_code and not is_rst else None,
                prefix=match["prefix"],
                nested=not is_code,
                otherwise="",
            )
        )
    return directives


def find_embedded(root: Path, text: str, file_of: Callable[[str], str]) -> Iterator[Directive]:
    """Yield the directives of a MyST page that show a labelled block; unknown labels are not resolved."""
    matches = list(_EMBEDDED.finditer(text))
    in_code = code_ranges(text if matches else "")
    for match in matches:
        label = match["label"] or match["short"]
        if match["label"] or not in_code(match.start()):
            name = file_of(label) or f"#{label}"
            select = partial(_labelled, label)
            yield Directive(
                *match.span(), name, (root,), select=select, prefix=match["prefix"], otherwise="", apart=True
            )


def labels_of(text: str) -> list[str]:
    """Return the labels of the directives and targets of a MyST page."""
    return [match["option"] or match["target"] for match in _LABEL.finditer(text)]


def _labelled(label: str, text: str) -> str | None:
    """Return the directive or paragraph of a MyST page that has a label, without the label."""
    match = next((match for match in _LABEL.finditer(text) if label in match.groups()), None)
    if match is None:
        return None
    lines, index = text.split("\n"), text.count("\n", 0, match.start())
    del lines[index]
    if match["option"]:
        index = next((above for above in range(index - 1, -1, -1) if _MARKS.match(lines[above])), index)
    marks = _MARKS.match(lines[index]) if index < len(lines) else None
    end = marks[1] if marks else ""
    below = range(index + 1, len(lines))
    last = next((line for line in below if lines[line].strip() == end), len(lines))
    return textwrap.dedent("\n".join(lines[index : last + 1]))


def _rst_code(select: Select | None, language: str, text: str) -> str | None:
    """Return a part of a file as a code block of reStructuredText."""
    part = select(text) if select else text
    if part is None:
        return None
    return f".. code-block:: {language}\n\n" + textwrap.indent(part.strip("\n"), "   ")


def _selected(kind: str, options: dict[str, str]) -> Select | None:
    if kind == "literalinclude":
        return partial(_code_part, options)
    if lines := options.get("lines"):
        return select_lines(lines, "-")
    if options.get("start-line") or options.get("end-line"):
        return partial(_between_lines, options.get("start-line"), options.get("end-line"))
    return select_between(options.get("start-after", ""), options.get("end-before", ""))


def _between_lines(start: str | None, end: str | None, text: str) -> str | None:
    """Return the lines from a number to another one, counted from zero; negative ones count from the end."""
    try:
        return "\n".join(text.split("\n")[int(start or 0) : int(end) if end else None])
    except ValueError:
        return None


def _code_part(options: dict[str, str], text: str) -> str | None:
    """Return the part of a file of code that options select; None if the file does not have it."""
    lines = (_python_object(name, text) if (name := options.get("pyobject")) else text).split("\n")
    for option, more in _EDGES.items():
        if not (mark := options.get(option)):
            continue
        first = int(option == "end-before")  # Sphinx does not search the first line for it
        index = next((index for index, line in enumerate(lines[first:], first) if mark in line), None)
        if index is None:
            return None
        lines = lines[index + more :] if option.startswith("start") else lines[: index + more]
    part = textwrap.dedent("\n".join(lines)).strip("\n")
    return (select_lines(options["lines"], "-")(part) if options.get("lines") else part) or None


def _python_object(name: str, text: str) -> str:
    """Return the code of a class or function such as `Tower.climb`, by indentation; "" if there is none.

    Parsing the file would take long for a hostile one, and fail for another version of Python.
    """
    code, inside = "", text
    for step in name.split(".", _DEEPEST):
        definition = rf"^([ \t]*)(?:async[ \t]+def|def|class)[ \t]+{re.escape(step)}\b.*\n?"
        heads = list(re.finditer(definition, inside, re.MULTILINE))
        if not heads:
            return ""
        head = min(heads, key=lambda head: len(head[1]))  # the outermost one
        outside = rf"^(?![ \t]{{{len(head[1]) + 1}}}|[ \t]*$|[ \t]*[)\]}}])"
        outer = re.compile(outside, re.MULTILINE).search(inside, head.end())
        start, end = head.start(), outer.start() if outer else len(inside)
        while inside[(line := inside.rfind("\n", 0, max(start - 1, 0)) + 1) : start].lstrip().startswith("@"):
            start = line
        code, inside = inside[start:end], inside[head.end() : end]
    return code
