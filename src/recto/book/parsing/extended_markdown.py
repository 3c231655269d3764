"""Rewrite MyST, Quarto and d2lbook as plain Markdown; each line stays a line, so line numbers still fit.

Directives become their title and content, roles and cross-references their words, labels become anchors.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass, field

from recto.book.parsing.frontmatter import split_front_matter
from recto.book.parsing.markdown.headings import docutils_id
from recto.book.parsing.rendered import table
from recto.types.book import Document, Page

MYST, QUARTO, D2L = "myst", "qmd", "d2l"
_MARKS = re.compile(r"(?P<before>[ \t>]*)(?P<marks>`{3,}|~{3,}|:{3,})[ \t]*(?P<info>[^\n]*)")
_DIRECTIVE = re.compile(r"\{([A-Za-z][\w:+.-]*)\}[ \t]*(.*)")
_ATTRIBUTES = re.compile(r"\{([^{}]*)\}")
_OPTION = re.compile(r"[ \t>]*:([\w-]+):(?:[ \t]+(.*))?")
_CELL_OPTION = re.compile(r"[ \t]*(?:#|//|--|%%|%)\|[ \t]*([\w-]+):[ \t]*(.*)")
_CELL_MAGIC = re.compile(r"[ \t]*(?:%%?(?:tab|load_ext|matplotlib|capture)\b|#@(?:tab|save)\b).*")
_TARGET = re.compile(r"[ \t>]*\(([^()\s][^()]*)\)=[ \t]*")
_HEADING = re.compile(r"(?P<before>[ \t>]*)#{1,6}[ \t]+(?P<text>.*?)[ \t#]*")
_HEADING_ATTRIBUTES = re.compile(r"[ \t]*\{([#.:\-][^{}]*|[\w-]+=[^{}]*)\}[ \t]*$")
_ID = re.compile(r"(?:^|\s)#([\w:.-]+)")
_CLASS = re.compile(r"(?:^|\s)\.?([A-Za-z][\w+#-]*)")
_TITLE = re.compile(r"\btitle=(?:\"([^\"]*)\"|'([^']*)')")
_INLINE = re.compile(  # a role, else inline code, in which nothing is a role
    r"(?:\{(?P<myst>[A-Za-z][\w:+.-]{0,40})\}|(?<![\w:]):(?P<rst>[A-Za-z][\w+.:-]{0,40}):)"
    r"(?P<ticks>`+)(?!`)(?P<text>[^`]{1,2000}?)(?P=ticks)(?!`)"
    r"|(?<!`)(?P<code>`+)(?!`).{1,2000}?(?<!`)(?P=code)(?!`)(?P<raw>\{=\w+\})?",
    re.DOTALL,
)
_REFERENCE = re.compile(
    r"(?<![\w@\\])-?@(fig|tbl|tab|sec|eq|lst|thm|lem|cor|prp|def|exm|exr|nte|tip)-([\w:.-]*\w)"
)
_SHORTCODE = re.compile(r"(?<!\{)\{\{<[ \t]*(/?[\w-]+)([^{}]{0,500})>\}\}(?!\})")
_SPAN = re.compile(r"(?<!!)\[([^\[\]]*)\](?:\{[.#][^{}]*\})")
_ATTACHED = re.compile(
    r"(?<=\))\{([^{}]*)\}|(?<=\$\$)[ \t]*\{(#[^{}]*)\}|(?<=\S)[ \t]+\{(#[\w:.-]+)[^{}]*\}[ \t]*$"
)
_SLIDES = re.compile(r"[\[(](\*\*|~~)([^*~\n]{1,500}?)\1[\])]")
_TABS = re.compile(r"[ \t]*:(?:begin_tab|end_tab|bibliography|settoc)[:`].*")
_CALLOUT = re.compile(r"\bcallout-(\w+)")
_THEOREM = re.compile(r"#(thm|lem|cor|prp|def|exm|exr)-")
_HIDDEN = re.compile(
    r"\.content-hidden(?!.*when-format=\"?pdf)|\.content-visible.*when-format=\"?pdf|\.hidden\b"
)
_RST_DIRECTIVE = re.compile(r"[ \t]*(?:\.\. (?:([\w:-]+)::)?[ \t]*(.*)|:[\w-]+:.*)")
_YAML_OPTION = re.compile(r"[ \t]*([\w-]+):(?:[ \t]+(.*))?")
_LONGEST_HEADING, _LONGEST_INFO = 1_000, 1_000  # characters
_WORD_BREAK = re.compile(r"[-_:/.\s]+")

_KINDS = {
    "fig": "Figure", "img": "Figure", "tbl": "Table", "tab": "Table", "table": "Table", "sec": "Section",
    "subsec": "Section", "section": "Section", "chap": "Chapter", "chapter": "Chapter", "eq": "Equation",
    "lst": "Listing", "thm": "Theorem", "lem": "Lemma", "cor": "Corollary", "prp": "Proposition",
    "def": "Definition", "exm": "Example", "exr": "Exercise",
}  # fmt: skip
_CODE = frozenset({"code", "code-block", "sourcecode", "code-cell", "ipython", "prompt", "doctest"})
_DROPPED = frozenset(
    {"toctree", "tableofcontents", "contents", "raw", "index", "bibliography", "footbibliography", "meta"}
    | {"highlight", "currentmodule", "tags", "include", "literalinclude", "embed", "iframe", "only"}
)
_ADMONITIONS = frozenset(
    {"note", "warning", "tip", "hint", "important", "caution", "danger", "attention", "error", "seealso"}
    | {"todo", "exercise", "solution", "theorem", "proof", "definition", "lemma", "corollary", "example"}
    | {"proposition", "remark", "algorithm", "axiom", "conjecture", "criterion", "observation", "property"}
)
VERSIONS = {
    "versionadded": "Added in version",
    "version-added": "Added in version",
    "versionchanged": "Changed in version",
    "deprecated": "Deprecated since version",
    "versionremoved": "Removed in version",
}
DIRECTIVE_TITLES = {**{name: name.capitalize() for name in _ADMONITIONS}, **VERSIONS, "seealso": "See also"}
"""The words that a directive shows before its argument."""
_FIRST_LINES = {"math": ("math", "$$"), "eval-rst": ("rst", "")}
_PATH_ARGUMENTS = frozenset({"figure", "image", "video", "tab-set", "grid", "div", "container", "math"})
_SHOWN_OPTIONS = frozenset({"alt", "caption", "fig-cap", "tbl-cap", "fig-alt", "lst-cap"})
_EQUATION = "equation-"  # Sphinx puts it before the labels of equations
_NAME_OPTIONS = frozenset({"name", "label"})
_CODE_ROLES = frozenset(
    {"class", "func", "meth", "mod", "attr", "exc", "data", "obj", "const", "file", "command", "code", "samp"}
    | {"envvar", "option", "program", "literal", "function", "type", "macro", "member", "kbd", "pep8", "cls"}
)
_ICON_ROLE = re.compile(r"octicon|fa[bsr]?|material-\w+")
_INVISIBLE_ROLES = frozenset({"label", "eqlabel", "width", "height"})


def read_extended_markdown(page: Page) -> Document:
    """Parse a page in MyST, Quarto or d2lbook."""
    from recto.book.parsing.markdown import parse

    markdown, labels = plain_markdown(page.text, page.format)
    if page.format != QUARTO and page.anchors != "docutils":  # not by Sphinx
        labels = [(line, docutils_id(name.removeprefix(_EQUATION))) for line, name in labels]
    labels = [label for label in labels if label[1]]
    return parse(markdown, title=page.title, anchors=page.anchors, labels=labels)


def plain_markdown(text: str, format: str) -> tuple[str, list[tuple[int, str]]]:
    """Return a page as plain Markdown with the same lines, and its labels with their line numbers."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    _, body, count = split_front_matter(text)
    rewriter = _Rewriter(format, offset=count)
    for line in body.split("\n"):
        rewriter.add(line)
    rewriter.finish()
    return text[: len(text) - len(body)] + "\n".join(rewriter.lines), rewriter.labels


def reference_words(target: str) -> str:
    """Return a label as words: `sec_linear-algebra` is "Section linear algebra"."""
    first, *rest = [word for word in _WORD_BREAK.split(target.rpartition("#")[2]) if word] or [""]
    return " ".join((_KINDS.get(first.lower(), first) if rest else first, *rest))


def role_text(name: str, text: str) -> str:  # noqa: PLR0911 - a table
    """Return the words of a role such as `ref` or `py:class`."""
    last = name.rpartition(":")[2].lower()
    if last == "math":
        return f"${text}$"
    if _ICON_ROLE.fullmatch(last):
        return ""
    if last in ("pep", "rfc"):
        return f"{last.upper()} {text}"
    if name.startswith(("cite", "footcite")):
        return f"[{text}]"
    stated = text[:-1].rpartition("<")[0].strip() if text.endswith(">") else ""
    if last in _CODE_ROLES or name.startswith(("py:", "c:", "cpp:", "js:", "rst:")):
        name = stated or text.lstrip("!")
        name = name.rpartition(".")[2] if name.startswith("~") else name
        return f"`{name.lstrip('~')}`"
    if stated:
        return stated.replace("%s", "").strip()
    if last in ("ref", "numref", "eq", "eqref", "doc", "any", "prf", "nb", "secref"):
        path = text.rpartition("/")[2] if last == "doc" else text
        return reference_words(path)
    return text


@dataclass(slots=True)
class _Opened:
    """An open fence: its marks, what happens to its lines, and whether options may still follow."""

    marks: str
    kind: str
    closing: str
    options: bool
    is_yaml: bool = False
    titled: bool = False
    rows: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Rewriter:
    """Rewrites the lines of a page in order; prose is kept until its paragraph ends."""

    format: str
    offset: int
    lines: list[str] = field(default_factory=list)
    labels: list[tuple[int, str]] = field(default_factory=list)
    stack: list[_Opened] = field(default_factory=list)
    prose: list[str] = field(default_factory=list)
    pending: list[str] = field(default_factory=list)

    def add(self, line: str) -> None:
        """Rewrite the next line."""
        top = self.stack[-1] if self.stack else None
        marks = _MARKS.fullmatch(line)
        if marks and top and self._closes(marks, top):
            self._close(top)
            self._put(top.closing)
        elif top and top.options and (shown := self._option_line(line, top)) is not None:
            self._put(shown)
        elif top and top.kind not in ("directive", "tabs"):
            self._put(self._verbatim(line, top))
        elif marks:
            self._open(marks)
        else:
            self._text(line, top)

    def finish(self) -> None:
        """Close what is still open."""
        while self.stack:
            self._close(self.stack[-1])
        self._flush()

    @property
    def _number(self) -> int:
        return self.offset + len(self.lines) + len(self.prose) + 1

    def _label(self, name: str) -> None:
        if name.strip():
            self.labels.append((self._number, name.strip()))

    def _put(self, line: str) -> None:
        """Add a line that is not prose."""
        self._flush()
        self.lines.append(line)

    def _flush(self) -> None:
        """Resolve the roles of the collected prose; they may span lines."""
        if self.prose:
            text = "\n".join(self.prose)
            start = self.offset + len(self.lines) + 1
            self.prose.clear()
            self.lines += self._inline(text, start).split("\n")

    def _text(self, line: str, top: _Opened | None) -> None:
        if line.strip() and top:
            top.options = False
        target = _TARGET.fullmatch(line) if self.format == MYST else None
        self.pending += [docutils_id(target[1])] if target else []
        is_mark = (
            line.startswith(("%", "+++"))
            if self.format == MYST
            else self.format == D2L and _TABS.fullmatch(line)
        )
        if target or is_mark or not line.strip():
            self._put("" if target or is_mark else line)
            return
        self.labels += [(self._number, name) for name in self.pending]
        self.pending.clear()
        if len(line) <= _LONGEST_HEADING and (heading := _HEADING.fullmatch(line)):
            self._flush()
            self._heading(line, heading, top)
        else:
            self.prose.append(line)

    def _heading(self, line: str, heading: re.Match[str], top: _Opened | None) -> None:
        """Rewrite a heading; in a callout it is the title, and among tabs it names one."""
        attributes = _HEADING_ATTRIBUTES.search(line)
        if attributes and self.format != MYST:
            name = _ID.search(attributes[1])
            line = line[: attributes.start()] + (f" {{#{name[1]}}}" if name else "")
            heading = _HEADING.fullmatch(line) or heading
        if top and self.format == QUARTO and (top.kind == "tabs" or not top.titled):
            top.titled = True
            line = f"{heading['before']}**{_HEADING_ATTRIBUTES.sub('', heading['text'])}**"
        self.prose.append(line)
        self._flush()

    def _closes(self, marks: re.Match[str], top: _Opened) -> bool:
        same = marks["marks"][0] == top.marks[0] and not marks["info"].strip()
        loose = self.format == QUARTO and top.marks[0] == ":"  # Pandoc does not compare the lengths
        return same and (loose or len(marks["marks"]) >= len(top.marks))

    def _close(self, top: _Opened) -> None:
        self.stack.pop()
        if top.kind == "table":
            self._flush()
            first = len(self.lines) - len(top.rows)
            self.lines[first:] = [self._inline(line, self._number) for line in _list_table(top.rows)]

    def _open(self, marks: re.Match[str]) -> None:
        before, info = marks["before"], marks["info"].strip()[:_LONGEST_INFO]
        directive = _DIRECTIVE.fullmatch(info) if self.format == MYST else None
        attributes = _ATTRIBUTES.search(info)
        if directive:
            kind, line = self._directive(directive[1].lower(), directive[2].strip(), marks)
        elif marks["marks"][0] == ":":
            if not info:  # a closing line without an opening one
                self._put("")
                return
            kind, line = self._division(attributes[1] if attributes else "." + info)
        elif info.startswith("{{"):  # an escaped cell, which is shown as written
            kind, line = "code", f"{marks['marks']}{info[1:].replace('}}', '}')}"
        elif attributes and info.startswith("{"):
            language = _CLASS.search(attributes[1])
            kind, line = "code", f"{marks['marks']}{language[1] if language else ''}"
            if attributes[1].startswith("="):
                kind, line = "drop", ""
            if name := _ID.search(attributes[1]):
                self._label(name[1])
        else:
            kind, line = "code", f"{marks['marks']}{info}"
        self._put(before + line if line else "")
        has_options = directive is not None or (kind == "code" and self.format != MYST)
        options = has_options and kind not in ("drop", "rst", "table")
        fence = _MARKS.fullmatch(line) if kind == "code" else None
        closing = before + ("$$" if kind == "math" else fence["marks"] if fence else "")
        titled, kind = kind != "callout", "directive" if kind == "callout" else kind
        self.stack.append(_Opened(marks["marks"], kind, closing, options, titled=titled))

    def _directive(self, name: str, argument: str, marks: re.Match[str]) -> tuple[str, str]:
        """Return how the lines of a MyST directive are treated, and its first line."""
        base = name.rpartition(":")[2]
        if base in _CODE or base == "mermaid":
            language = "mermaid" if base == "mermaid" else argument.split(" ", maxsplit=1)[0]
            fence = "`" * max(3, len(marks["marks"])) if marks["marks"][0] == ":" else marks["marks"]
            return "code", f"{fence}{'python' if language.startswith('ipython') else language}"
        if base in _DROPPED or base.startswith("auto"):
            if base == "raw":  # a target before it has no element on the page
                self.pending.clear()
            return "drop", ""
        if base in _FIRST_LINES:
            return _FIRST_LINES[base]
        argument = self._inline(argument, self._number).strip()
        if base == "list-table":
            return "table", f"**{argument}**" if argument else ""
        if words := DIRECTIVE_TITLES.get(base):
            colon = ":" if argument and base not in VERSIONS else ""
            return "directive", f"**{f'{words}{colon} {argument}'.rstrip()}**"
        return "directive", f"**{argument}**" if argument and base not in _PATH_ARGUMENTS else ""

    def _division(self, attributes: str) -> tuple[str, str]:
        """Return how the lines of a div are treated, and its first line."""
        if name := _ID.search(attributes):
            self._label(name[1])
        if _HIDDEN.search(attributes):
            return "drop", ""
        callout, theorem = _CALLOUT.search(attributes), _THEOREM.search(attributes)
        if callout or theorem:
            words = callout[1].capitalize() if callout else _KINDS[theorem[1]] if theorem else ""
            title = _TITLE.search(attributes)
            return "callout", f"**{words}: {title[1] or title[2]}**" if title else f"**{words}**"
        return ("tabs" if "panel-tabset" in attributes else "directive"), ""

    def _option_line(self, line: str, top: _Opened) -> str | None:
        """Return what is shown of an option of a directive or a cell; None if the line is not an option."""
        is_cell = top.kind in ("code", "math")
        if line.strip() == "---" and self.format == MYST:
            top.is_yaml = top.options = not top.is_yaml
            return ""
        option = (
            None if is_cell and top.is_yaml else (_YAML_OPTION if top.is_yaml else _OPTION).fullmatch(line)
        )
        if is_cell and not top.is_yaml:
            option = _CELL_OPTION.fullmatch(line) or (option if self.format == MYST else None)
        if option:
            shown = self._option(option[1], option[2], _EQUATION * (top.kind == "math"))
            return f"# {shown}" if shown and is_cell else shown
        if top.is_yaml or (is_cell and _CELL_MAGIC.fullmatch(line)):
            return ""
        top.options = False
        return None

    def _option(self, name: str, stated: str | None, prefix: str = "") -> str:
        """Note a label; return the value of an option that is shown, else ""."""
        value = (stated or "").strip().strip("\"'")
        if name in _NAME_OPTIONS and value:  # the label of an exercise or a proof is its id as it is
            as_written = self.format == QUARTO or (name == "label" and not prefix)
            self._label(value if as_written else docutils_id(prefix + value))
        return value if name in _SHOWN_OPTIONS else ""

    def _verbatim(self, line: str, top: _Opened) -> str:
        """Return a line of a fence that is not prose."""
        if top.kind in ("drop", "rst"):
            return self._rst(line) if top.kind == "rst" else ""
        if top.kind == "table":
            line = "" if _OPTION.fullmatch(line) else line
            top.rows.append(line)
        return line

    def _rst(self, line: str) -> str:
        """Return the words of a line of reStructuredText."""
        if directive := _RST_DIRECTIVE.fullmatch(line):
            words = DIRECTIVE_TITLES.get(directive[1] or "")
            line = f"**{words}** {directive[2]}" if words else ""
        return self._inline(line.strip(), self._number)

    def _inline(self, text: str, start: int) -> str:
        """Resolve the roles, shortcodes and references of prose; the number of lines stays the same."""
        ends = [index for index, mark in enumerate(text) if mark == "\n"] if ":" in text else []

        def resolve(match: re.Match[str]) -> str:
            name = match["myst"] or match["rst"]
            if not name:
                return "" if match["raw"] else match[0]
            if match["rst"] and self.format == QUARTO:
                return match[0]
            if name in _INVISIBLE_ROLES:
                if name in ("label", "eqlabel"):
                    label = docutils_id(_EQUATION * (name == "eqlabel") + match["text"])
                    self.labels.append((start + bisect_left(ends, match.start()), label))
                return ""
            words = role_text(name, match["text"])
            return words + "\n" * (match[0].count("\n") - words.count("\n"))

        resolved = _INLINE.sub(resolve, text) if "`" in text else text
        if self.format == D2L:
            resolved = _SLIDES.sub(r"\1\2\1", resolved)
        if self.format != QUARTO:
            return resolved
        return "\n".join(self._quarto(line, start + index) for index, line in enumerate(resolved.split("\n")))

    def _quarto(self, line: str, number: int) -> str:
        """Resolve shortcodes, references, spans and attributes of a line."""

        def attached(match: re.Match[str]) -> str:
            if name := _ID.search(match[1] or match[2] or match[3]):
                self.labels.append((number, name[1]))
            return ""

        if "{" in line:
            line = _SHORTCODE.sub(lambda code: code[2].strip() if code[1] == "kbd" else "", line)
            line = _SPAN.sub(r"\1", line)
            line = line if line.lstrip(" >").startswith("#") else _ATTACHED.sub(attached, line)
        return _REFERENCE.sub(lambda reference: reference_words(f"{reference[1]}-{reference[2]}"), line)


def _list_table(rows: list[str]) -> list[str]:
    """Return the rows of a list table as a Markdown table with the same number of lines."""
    cells: list[list[str]] = []
    for line in rows:
        row = re.match(r"[ \t]*[*-][ \t]+-(?:[ \t]+|$)(.*)", line)
        cell = re.match(r"[ \t]+-(?:[ \t]+|$)(.*)", line)
        if row:
            cells.append([row[1].strip()])
        elif cell and cells:
            cells[-1].append(cell[1].strip())
        elif line.strip() and cells:
            cells[-1][-1] = f"{cells[-1][-1]} {line.strip()}".strip()
    if not cells:
        return rows
    lines = table([[cell.replace("|", "\\|") for cell in row] for row in cells])
    return [*[""] * (len(rows) - len(lines)), *lines] if len(lines) <= len(rows) else rows
