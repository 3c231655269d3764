"""Rewrite MyST, Quarto and d2lbook as plain Markdown; each line stays a line, so line numbers still fit.

Directives become their title and content, roles and cross-references their words, labels become anchors.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter

from recto._util.markdown import MOST_LINES
from recto.book.parsing.directives import (
    CONTAINERS,
    DIRECTIVE_TITLES,
    REFERENCE_KINDS,
    VERSIONS,
    looks_like_code,
    reference_words,
    role_text,
)
from recto.book.parsing.frontmatter import split_front_matter
from recto.book.parsing.markdown.headings import docutils_id
from recto.book.parsing.objects import Scope, is_object, signature
from recto.book.parsing.rendered import TextBlock, list_table, sections, ticks
from recto.types.book import Document, Page, Section

MYST, QUARTO, D2L = "myst", "qmd", "d2l"
_MARKS = re.compile(r"(?P<before>[ \t>]*+)(?P<marks>`{3,}+|~{3,}+|:{3,}+)[ \t]*+(?P<info>[^\n]*+)")
_DIRECTIVE = re.compile(r"\{([A-Za-z][\w:+.-]*+)(?:[ \t]([^{}]*+))?\}[ \t]*+(.*+)")
_ATTRIBUTES = re.compile(r"\{([^{}]*)\}")
_OPTION = re.compile(r"\A[ \t>]*+:([\w-]++):(?:[ \t]++(.*+))?")
_CELL_LINE = re.compile(r"(?P<before>[ \t]*+)(?:#|//|--|%%|%)\|(?P<indent>[ \t]*+)(?P<text>.*+)")
_CELL_OPTION = re.compile(r"([\w.-]++):[ \t]*+(.*+)")
_BLOCK_SCALAR = re.compile(r"[|>][+-]?\d?")
_FALSE = re.compile(r"(?:echo|include)[ ]{0,9}[=:][ ]{0,9}(?:false|F|FALSE)\b")
_CELL_MAGIC = re.compile(r"[ \t]*(?:%%?(?:tab|load_ext|matplotlib|capture)\b|#@(?:tab|save)\b).*")
_TARGET = re.compile(r"[ \t>]*\(([^()\s][^()]*)\)=[ \t]*")
_MATH_LABEL = re.compile(r"(?<=\$\$)[ \t]*+\(([^)$\n]{1,500})\)[ \t]*+$")
_HEADING = re.compile(r"(?P<before>[ \t>]*+)#{1,6}[ \t]++(?P<text>(?:[ \t#]*+[^ \t#\n]++)*+)[ \t#]*+")
_HEADING_ATTRIBUTES = re.compile(r"(?<![ \t])[ \t]*+\{([#.:\-][^{}]*+|[\w-]++=[^{}]*+)\}[ \t]*+$")
_ID = re.compile(r"(?:^|\s)#([\w:.-]+)")
_CLASS = re.compile(r"(?:^|\s)\.?([A-Za-z][\w+#-]*)")
_TITLE = re.compile(r"\btitle=(?:\"([^\"]*)\"|'([^']*)')")
_INLINE = re.compile(  # a role, else inline code, in which nothing is a role
    r"(?:\{(?P<myst>[A-Za-z][\w:+.-]{0,40})(?:[ \t][^{}`\n]{0,200})?\}"
    r"|(?<![\w:]):(?P<rst>[A-Za-z][\w+.:-]{0,40}):)"
    r"(?P<ticks>`+)(?!`)(?P<text>[^`]{1,1000}?)(?P=ticks)(?!`)"
    r"|(?<!`)(?P<code>`+)(?!`).{1,1000}?(?<!`)(?P=code)(?!`)(?P<raw>\{=\w+\})?",
    re.DOTALL,
)
_REMOVED = re.compile(r"\bremove[-_](?:cell|input)\b")
_EMPTY_LINK = re.compile(r"(?<!!)\[\]\(([^()\s]{1,500})\)")
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
    r"\.content-hidden(?!.{0,500}when-format=\"?pdf)|\.content-visible.{0,500}when-format=\"?pdf|\.hidden\b"
)
_YAML_OPTION = re.compile(r"\A[ \t]*+([\w-]++):(?:[ \t]++(.*+))?")
_MOST_EMBEDDED = 300  # directives of reStructuredText on a page; each takes 5 ms
_LONGEST_HEADING, _LONGEST_INFO = 1_000, 1_000  # characters


_CODE = frozenset({"code", "code-block", "sourcecode", "code-cell", "ipython", "prompt", "doctest", "myst"})
_DROPPED = frozenset(
    {"toctree", "tableofcontents", "contents", "raw", "index", "bibliography", "footbibliography", "meta"}
    | {"highlight", "tags", "include", "literalinclude", "embed", "iframe", "only"}
)
_PATH_ARGUMENTS = frozenset({"figure", "image", "video", "tab-set", "grid", "div", "container", "math"})
_SHOWN_OPTIONS = frozenset({"alt", "caption", "filename", "fig-cap", "tbl-cap", "fig-alt", "lst-cap"})
_EQUATION = "equation-"  # Sphinx puts it before the labels of equations
_INVISIBLE_ROLES = frozenset({"label", "eqlabel", "width", "height"})


def read_extended_markdown(page: Page) -> Document:
    """Parse a page in MyST, Quarto or d2lbook."""
    from recto.book.parsing.markdown import parse

    embedded = _EmbeddedRst(dict(page.references))
    markdown, labels = plain_markdown(page.text, page.format, embedded)
    if page.format != QUARTO and not page.anchors.startswith("docutils"):  # not by Sphinx
        labels = [(line, docutils_id(name.removeprefix(_EQUATION))) for line, name in labels]
    labels = [label for label in labels if label[1]]
    if page.anchors == "myst":
        markdown, labels = _with_ids(markdown, labels)
    document = parse(markdown, title=page.title, anchors=page.anchors, labels=labels)
    return embedded.inserted(document) if embedded.blocks else document


def plain_markdown(
    text: str, format: str, embedded: _EmbeddedRst | None = None
) -> tuple[str, list[tuple[int, str]]]:
    """Return a page as plain Markdown with the same lines, and its labels with their line numbers.

    Fences of reStructuredText stay; what they render as is added to `embedded`.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    _, body, count = split_front_matter(text)
    if body.count("\n") > MOST_LINES:  # it is read as plain text
        return text, []
    rewriter = _Rewriter(format, count, embedded or _EmbeddedRst())
    for line in body.split("\n"):
        rewriter.add(line)
    rewriter.finish()
    return text[: len(text) - len(body)] + "\n".join(rewriter.lines), rewriter.labels


def _with_ids(markdown: str, labels: list[tuple[int, str]]) -> tuple[str, list[tuple[int, str]]]:
    """Return a page whose headings have their labels as ids, which replace the usual ones, and the others."""
    lines, others = markdown.split("\n"), list[tuple[int, str]]()
    for line, name in labels:
        written = lines[line - 1][:_LONGEST_HEADING]
        if _HEADING.fullmatch(written) and not written.endswith("}"):
            lines[line - 1] = f"{written} {{#{name}}}"
        else:
            others.append((line, name))
    return "\n".join(lines), others


@dataclass(slots=True)
class _EmbeddedRst:
    """The rendered `eval-rst` directives of a page, by the line of their fence."""

    references: Mapping[str, str] = field(default_factory=dict)
    scope: Scope = field(default_factory=Scope)
    blocks: dict[int, list[TextBlock]] = field(default_factory=dict)

    def render(self, line: int, text: str) -> bool:
        """Add the directive whose fence is on a line; return whether it has text."""
        from recto.book.parsing.rst import rst_blocks

        blocks = rst_blocks(text, self.scope, self.references)
        for block in blocks:
            block.source = (block.source[0] + line, block.source[1] + line)
        self.blocks |= {line: blocks} if blocks else {}
        return bool(blocks)

    def inserted(self, document: Document) -> Document:
        """Return the document with the blocks of each directive instead of its fence."""
        parts = tuple(part for section in document.sections for part in self._parts(section))
        return replace(document, sections=parts)

    def _parts(self, section: Section) -> Iterator[Section]:
        """Yield a section with the blocks of its directives; their headings begin sections of their own."""
        opened, anchors, level = replace(section, blocks=()), list(section.anchors), section.level
        for block in section.blocks:
            rendered = self.blocks.get(block.first) if block.text.startswith("```") else None
            if rendered is None:
                opened = replace(opened, blocks=(*opened.blocks, block))
            for inner in sections(rendered, section.headings[0]) if rendered else ():
                if len(inner.headings) > 1:
                    before = [anchor for anchor in anchors if anchor[0] < inner.line] if opened.blocks else []
                    if opened.blocks:
                        yield replace(opened, anchors=tuple(before))
                    anchors = anchors[len(before) :]
                    headings = (*section.headings, *inner.headings[1:])
                    opened = replace(inner, headings=headings, level=level + inner.level, blocks=())
                anchors = sorted(dict.fromkeys([*anchors, *inner.anchors]), key=itemgetter(0))
                opened = replace(opened, blocks=(*opened.blocks, *inner.blocks))
        yield replace(opened, anchors=tuple(anchors))


@dataclass(slots=True)
class _Opened:
    """An open fence: its marks, what happens to its lines, and whether options may still follow.

    `first` is the index of its first line. Of a `hidden` cell, only the captions are shown. `option` is the
    option of a cell that the next line may continue, and `indent` its indentation.
    """

    marks: str
    kind: str
    closing: str
    options: bool
    is_yaml: bool = False
    titled: bool = False
    first: int = 0
    hidden: bool = False
    option: str = ""
    indent: int = 0
    rows: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Rewriter:
    """Rewrites the lines of a page in order; prose is kept until its paragraph ends."""

    format: str
    offset: int
    embedded: _EmbeddedRst
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
        if not line.strip():
            self._put(line)
            return
        if top:
            top.options = False
        target = _TARGET.fullmatch(line) if self.format == MYST else None
        self.pending += [docutils_id(target[1])] if target else []
        starts = ("%", "+++") if self.format == MYST else ()
        is_mark = line.startswith(starts) or (self.format == D2L and _TABS.fullmatch(line))
        if target or is_mark:
            self._put("")
            return
        self.labels += [(self._number, name) for name in self.pending]
        self.pending.clear()
        if self.format == MYST and (label := _MATH_LABEL.search(line)):
            self._label(docutils_id(_EQUATION + label[1]))
            line = line[: label.start()]
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
        if top and (top.kind == "tabs" or not top.titled):
            if top.kind == "tabs" or not any(self.lines[top.first + 1 :]):
                line = f"{heading['before']}**{_HEADING_ATTRIBUTES.sub('', heading['text'])}**"
            top.titled = True
        self.prose.append(line)
        self._flush()

    def _closes(self, marks: re.Match[str], top: _Opened) -> bool:
        same = marks["marks"][0] == top.marks[0] and not marks["info"].strip()
        loose = self.format == QUARTO and top.marks[0] == ":"  # Pandoc does not compare the lengths
        return same and (loose or len(marks["marks"]) >= len(top.marks))

    def _close(self, top: _Opened) -> None:
        self.stack.pop()
        if top.hidden:
            self._flush()
            captions = [line.replace("# ", "", 1) for line in self.lines[top.first + 1 :]]
            self.lines[top.first :] = ["", *captions]
            top.closing = ""
        if top.kind == "table":
            self._flush()
            first = len(self.lines) - len(top.rows)
            self.lines[first:] = [self._inline(line, self._number) for line in list_table(top.rows)]
        elif top.kind == "rst":
            first, text = len(self.lines) - len(top.rows) - 1, "\n".join(top.rows)
            is_last = len(self.embedded.blocks) >= _MOST_EMBEDDED  # the source of further ones stays as code
            if is_last or self.embedded.render(self.offset + first + 1, text):
                self.lines[first] = f"{ticks(text, 3)}rst"
                top.closing = ticks(text, 3)
            else:
                self.lines[first:] = [""] * (len(top.rows) + 1)

    def _open(self, marks: re.Match[str]) -> None:
        before, info = marks["before"], marks["info"].strip()[:_LONGEST_INFO]
        directive = _DIRECTIVE.fullmatch(info) if self.format == MYST else None
        attributes = _ATTRIBUTES.search(info)
        if directive and directive[2] and directive[1].lower() not in CONTAINERS | _CODE | {"math"}:
            directive = None  # not of MyST
        if directive:
            if name := _ID.search(directive[2] or ""):
                self._label(docutils_id(name[1]))
            kind, line = self._directive(directive[1].lower(), directive[3].strip(), marks)
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
        opened = _Opened(marks["marks"], kind, closing, options, titled=titled, first=len(self.lines) - 1)
        opened.hidden = kind == "code" and self.format == QUARTO and bool(_FALSE.search(info))
        self.stack.append(opened)

    def _directive(  # noqa: PLR0911 - a table
        self, name: str, argument: str, marks: re.Match[str]
    ) -> tuple[str, str]:
        """Return how the lines of a MyST directive are treated, and its first line."""
        base = name.removeprefix("prf:").removeprefix("proof:")
        fence = "`" * max(3, len(marks["marks"])) if marks["marks"][0] == ":" else marks["marks"]
        if base in _CODE or base == "mermaid":
            language = "mermaid" if base == "mermaid" else argument.split(" ", maxsplit=1)[0]
            return "code", f"{fence}{'python' if language.startswith('ipython') else language}"
        if base in _DROPPED or base.startswith("auto"):
            if base == "raw":  # a target before it has no element on the page
                self.pending.clear()
            return "drop", ""
        if base == "math":
            return "math", "$$"
        if base == "eval-rst":
            return ("code", f"{fence}rst") if marks["before"] else ("rst", "```rst")
        if base in ("module", "currentmodule"):
            self.embedded.scope.module = "" if argument == "None" else argument
            return "drop", ""
        if is_object(name):
            shown = signature(name, argument, {}, self.embedded.scope)
            self.labels += [(self._number, anchor) for anchor in shown.anchors]
            return "directive", f"`{shown.text}`"
        if base not in CONTAINERS and marks["marks"][0] != ":" and looks_like_code(name, ""):
            return "code", fence
        argument = self._inline(argument, self._number).strip()
        if base == "list-table":
            return "table", f"**{argument}**" if argument else ""
        if base in ("solution", "solution-start"):  # its argument is the label of the exercise
            return "directive", "**Solution to Exercise**"
        if words := DIRECTIVE_TITLES.get(base):
            colon = "" if base in VERSIONS else ":"
            return (
                ("directive", f"**{words}{colon} {argument}**") if argument else ("callout", f"**{words}**")
            )
        return "directive", f"**{argument}**" if argument and base not in _PATH_ARGUMENTS else ""

    def _division(self, attributes: str) -> tuple[str, str]:
        """Return how the lines of a div are treated, and its first line."""
        if name := _ID.search(attributes):
            self._label(name[1])
        if _HIDDEN.search(attributes):
            return "drop", ""
        callout, theorem = _CALLOUT.search(attributes), _THEOREM.search(attributes)
        if callout or theorem:
            words = callout[1].capitalize() if callout else REFERENCE_KINDS[theorem[1]] if theorem else ""
            title = _TITLE.search(attributes)
            return "callout", f"**{words}: {title[1] or title[2]}**" if title else f"**{words}**"
        return ("tabs" if "panel-tabset" in attributes else "directive"), ""

    def _option_line(self, line: str, top: _Opened) -> str | None:
        """Return what is shown of an option of a directive or a cell; None if the line is not an option."""
        is_cell = top.kind in ("code", "math")
        if line.strip() == "---" and self.format == MYST:
            top.is_yaml = top.options = not top.is_yaml
            return ""
        if is_cell and not top.is_yaml and (cell := _CELL_LINE.fullmatch(line)):
            return self._cell_line(cell, top)
        if top.kind == "code" and (top.is_yaml or line.lstrip().startswith(":tags:")):
            top.hidden = top.hidden or _REMOVED.search(line) is not None
        option = (
            None if is_cell and top.is_yaml else (_YAML_OPTION if top.is_yaml else _OPTION).fullmatch(line)
        )
        if is_cell and self.format != MYST:
            option = None
        if option:
            shown = self._option(option[1], option[2], _EQUATION * (top.kind == "math"))
            return f"# {shown}" if shown and is_cell else shown
        if top.is_yaml or (is_cell and _CELL_MAGIC.fullmatch(line)):
            return ""
        top.options = False
        return None

    def _cell_line(self, line: re.Match[str], top: _Opened) -> str:
        """Return what is shown of a line such as `#| fig-cap: A lamp`, or of a line that continues one."""
        indent, text = len(line["indent"].expandtabs()), line["text"]
        option = None if top.option and indent > top.indent else _CELL_OPTION.fullmatch(text)
        if option:
            top.option, top.indent = option[1].replace(".", "-"), indent
            top.hidden = top.hidden or (self.format == QUARTO and bool(_FALSE.match(text)))
            text = "" if _BLOCK_SCALAR.fullmatch(option[2].strip()) else option[2]
            shown = self._option(top.option, text, _EQUATION * (top.kind == "math"))
        else:
            shown = text.strip().strip("\"'") if top.option in _SHOWN_OPTIONS else ""
        return f"{line['before']}# {shown}" if shown else ""

    def _option(self, name: str, stated: str | None, prefix: str = "") -> str:
        """Note a label; return the value of an option that is shown, else ""."""
        value = (stated or "").strip().strip("\"'")
        if name in ("name", "label") and value:  # the label of an exercise or a proof is its id as it is
            as_written = self.format == QUARTO or (name == "label" and not prefix)
            self._label(value if as_written else docutils_id(prefix + value))
        return value if name in _SHOWN_OPTIONS else ""

    def _verbatim(self, line: str, top: _Opened) -> str:
        """Return a line of a fence that is not prose."""
        if top.hidden:
            return ""
        if top.kind == "drop":
            return ""
        if top.kind in ("table", "rst"):
            line = "" if top.kind == "table" and _OPTION.fullmatch(line) else line
            top.rows.append(line)
        return line

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
            words = role_text(name, match["text"], self.embedded.references)
            return words + "\n" * (match[0].count("\n") - words.count("\n"))

        resolved = _INLINE.sub(resolve, text) if "`" in text else text
        if "[](" in resolved and self.format == MYST:
            resolved = _EMPTY_LINK.sub(self._link, resolved)
        if self.format == D2L:
            resolved = _SLIDES.sub(r"\1\2\1", resolved)
        if self.format != QUARTO:
            return resolved
        return "\n".join(self._quarto(line, start + index) for index, line in enumerate(resolved.split("\n")))

    def _link(self, link: re.Match[str]) -> str:
        """Return a link without a text with the words that a reader sees."""
        return f"[{self.embedded.references.get(f'link {link[1]}', '')}]({link[1]})"

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
