"""Parse Markdown and MDX into front matter and sections of blocks, each with its lines in the source.

As in CommonMark, an unclosed fence runs to the end of its container, and `# …` in it is not a heading.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from recto._util.markdown import MOST_LINES, code_fences
from recto.book.parsing.frontmatter import split_front_matter, stated
from recto.book.parsing.markdown.headings import LONGEST_HEADING, heading_texts, slugger, split_explicit_id
from recto.book.parsing.markdown.text import PageLines
from recto.types.book import AnchorStyle, Block, Document, Section

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_EMBEDDED_FILE = re.compile(r"data:[\w.+-]+/[\w.+-]+;base64,[A-Za-z0-9+/=]{64,}")
_HTML_HEADING = re.compile(r"<h([1-6])(?:\s[^<>]*)?>(.*?)</h\1>", re.DOTALL | re.IGNORECASE)
_CONTAINERS = {"bullet_list": "list", "ordered_list": "list", "blockquote": "group", "admonition": "group"}
_KINDS = {"fence": "code", "code_block": "code", "html_block": "markup", "mdx_tag": "markup", **_CONTAINERS}
_MOST_INDENTATION = 200_000  # a page with more is read as plain text, and so is one with more lines
_INDENTATION = re.compile(r"^[ \t>*+-]+", re.MULTILINE)  # and the marks of lists and quotations
_MOST_COLUMNS, _MOST_CELLS = 1_000, 150_000  # a page with more has generated tables, which stay text
_MOST_HEADING_TEXT = 50_000  # characters of all headings; further ones keep their markup and get no anchor
_DEEPEST = 60  # deeper nesting is treated as text


def parse(
    markdown: str,
    *,
    title: str = "",
    mdx: bool = False,
    anchors: AnchorStyle = "github",
    labels: Sequence[tuple[int, str]] = (),
) -> Document:
    """Parse a page; its title is `title` only if neither the front matter nor a top heading states one.

    `labels` are further anchors, with their lines.
    """
    source = markdown.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")
    source = _EMBEDDED_FILE.sub("data:…", source)
    if mdx and "mdx-code-block" in source:
        source = _unwrapped(source)
    if source.count("\n") > MOST_LINES or _indentation(source) > _MOST_INDENTATION:
        block = PageLines(source, mdx=False).block("text", 0, source.count("\n") + 1)
        return Document(title, (Section((title,), 1, "", 1, (block,)),) if block else ())
    front_matter, body, count = split_front_matter(source)
    source = "\n" * count + body  # so that line numbers still fit the file
    env: dict[str, Any] = {}
    tokens = _page_parser(mdx, _has_usual_tables(source)).parse(source, env)
    lines = PageLines(source, mdx)
    for token in tokens:
        lines.edit(token)
    lines.ids += labels
    headings = _headings(tokens, mdx, anchors, env.get("references", {}))
    first = next((heading.text for heading in headings.values() if heading.level == 1 and heading.opens), "")
    stated_title, label = ((stated(front_matter, key) or "").strip() for key in ("title", "sidebar_label"))
    titles = (first, stated_title) if anchors.startswith("docutils") else (stated_title, first)  # of Sphinx
    title = next(filter(None, (*titles, label)), "")[:LONGEST_HEADING] or title
    return Document(title, tuple(_Sections(lines, headings, title).read(tokens)), front_matter)


def _unwrapped(source: str) -> str:
    """Blank the fence lines of `mdx-code-block`s, whose content Docusaurus renders."""
    kept, position = [], 0
    for opening, closing in code_fences(source):
        if opening["info"] == "mdx-code-block" and closing:
            kept += [source[position : opening.start()], source[opening.end() : closing.start()]]
            position = closing.end()
    return "".join([*kept, source[position:]])


def _indentation(source: str) -> int:
    """Count the characters of indentation and of the marks of lists and quotations at the start of lines."""
    return sum(marks.end() - marks.start() for marks in _INDENTATION.finditer(source))


def _has_usual_tables(source: str) -> bool:
    cells = source.count("|")
    most = max(line.count("|") for line in source.split("\n")) if cells > _MOST_COLUMNS else cells
    return cells <= _MOST_CELLS and most <= _MOST_COLUMNS


@cache
def _page_parser(mdx: bool, tables: bool) -> MarkdownIt:
    from markdown_it import MarkdownIt

    from recto.book.parsing.markdown.blocks import containers_plugin, mdx_plugin

    parser = MarkdownIt("commonmark", {"maxNesting": _DEEPEST}).disable("inline")
    if tables:
        parser.enable("table")
    parser.use(containers_plugin)
    return parser.use(mdx_plugin) if mdx else parser


@dataclass(frozen=True, slots=True)
class _Heading:
    """A heading; only one that is not nested in a block `opens` a section."""

    text: str
    level: int
    anchor: str
    line: int
    opens: bool


def _headings(
    tokens: Sequence[Token], mdx: bool, style: AnchorStyle, references: dict[str, Any]
) -> dict[int, _Heading]:
    """Return the headings by the index of their tokens; duplicate anchors get the published numbers."""
    written = {
        index: split_explicit_id(tokens[index + 1].content, style)
        for index, token in enumerate(tokens)
        if token.type == "heading_open"
        and len(tokens[index + 1].content) <= LONGEST_HEADING
        # Below several lines, dashes are the end of a table of Pandoc.
        and not (style == "pandoc" and "\n" in tokens[index + 1].content)
    }
    slug = slugger(style, [explicit for _, explicit in written.values() if explicit])
    headings: dict[int, _Heading] = {}
    budget = _MOST_HEADING_TEXT
    for index, token in enumerate(tokens):
        line = token.map[0] + 1 if token.map else 1
        if index in written:
            raw, explicit = written[index]
            budget -= len(raw)
            text, anchor = raw, explicit
            is_myst_title = style == "myst" and token.tag == "h1" and not headings
            if budget >= 0:
                text, slugged = heading_texts(raw, mdx=mdx, style=style, references=references)
                is_counted = style == "pandoc" or not (explicit or is_myst_title)
                slugged = slug(explicit or slugged) if is_counted else ""
                anchor = explicit or slugged
            if is_myst_title or (mdx and token.tag == "h1" and style == "github"):
                anchor = ""  # Docusaurus counts it, but renders it without an id
            headings[index] = _Heading(text, int(token.tag[1]), anchor, line, token.level == 0)
        elif token.type == "html_block" and token.level == 0 and len(token.content) <= LONGEST_HEADING:
            html = _HTML_HEADING.fullmatch(token.content.strip())
            budget -= len(token.content) if html else 0
            if html and budget >= 0 and (text := " ".join(heading_texts(html[2])[0].split())):
                headings[index] = _Heading(text, int(html[1]), "", line, True)  # tags are searched for its id
    return headings


@dataclass(slots=True)
class _Sections:
    """Groups the tokens of a page into sections."""

    lines: PageLines
    headings: dict[int, _Heading]
    title: str
    path: list[tuple[int, str]] = field(default_factory=list)

    def read(self, tokens: Sequence[Token]) -> list[Section]:
        """Return the sections that have text.

        A heading without text appears in the heading paths below it, and its anchor belongs to the first
        section below it. If there is none, the heading becomes the text of its section and can be found.
        """
        sections, ends = list[Section](), list[int]()
        opened, blocks = Section((self.title,), 1, "", 1, ()), list[Block]()
        ids = dict(reversed(self.lines.ids))
        index = 0
        while index < len(tokens):
            heading = self.headings.get(index)
            after = _after(tokens, index)
            if heading and heading.opens:
                if not blocks and heading.level <= opened.level:
                    blocks = self._heading_block(opened)
                if blocks:
                    sections.append(replace(opened, blocks=tuple(blocks)))
                    ends.append(heading.line)
                opened, blocks = self._opened(heading, ids.get(heading.line, opened.anchor)), []
            elif tokens[index].type != "hr" and (block := self._block(tokens, index, after)):
                blocks.append(block)
            index = after
        if blocks := blocks or self._heading_block(opened):
            sections.append(replace(opened, blocks=tuple(blocks)))
        return self._with_anchors(sections, ends)

    def _heading_block(self, section: Section) -> list[Block]:
        """Return the heading of a section as its only block; the page title does not count."""
        block = self.lines.block("heading", section.line - 1, section.line)
        return [block] if block and len(section.headings) > 1 else []

    def _opened(self, heading: _Heading, otherwise: str) -> Section:
        """Return the section of a heading.

        An HTML heading has an anchor only if it states an id; `otherwise` is that id, or the anchor above it.
        """
        self.path = [(upper, text) for upper, text in self.path if upper < heading.level]
        if heading.level > 1 or heading.text != self.title:
            self.path.append((heading.level, heading.text))
        anchor = heading.anchor or (otherwise if heading.level > 1 else "")
        headings = (self.title, *(text for _, text in self.path))
        # The page title needs no anchor: the page URL opens it.
        return Section(headings, heading.level, anchor if self.path else "", heading.line, ())

    def _block(self, tokens: Sequence[Token], index: int, after: int) -> Block | None:
        """Return the block that begins at a token, with its nested blocks."""
        token = tokens[index]
        if token.map is None or token.nesting < 0:
            return None
        kind = token.type.removesuffix("_open")
        cuts: dict[int, set[int]] = {}
        for inner in tokens[index + 1 : after - 1] if kind in _CONTAINERS else ():
            if inner.map is not None and inner.nesting >= 0:
                cuts.setdefault(inner.level, set()).update((inner.map[0] + 1, inner.map[1] + 1))
        levels = tuple(tuple(sorted(cuts[level])) for level in sorted(cuts))
        return self.lines.block(_KINDS.get(kind, kind), token.map[0], token.map[1], levels)

    def _with_anchors(self, sections: list[Section], ends: list[int]) -> list[Section]:
        """Assign each anchor to the section that holds its line; `ends` are the lines where sections end."""
        every = [(heading.line, heading.anchor) for heading in self.headings.values() if heading.anchor]
        every = sorted(dict.fromkeys([*every, *self.lines.ids]), key=lambda anchor: anchor[0])
        position, complete = 0, list[Section]()
        for number, section in enumerate(sections):
            start = position
            while position < len(every) and (
                number == len(sections) - 1 or every[position][0] < ends[number]
            ):
                position += 1
            complete.append(replace(section, anchors=tuple(every[start:position])))
        return complete


def _after(tokens: Sequence[Token], index: int) -> int:
    """Return the index after a token and everything nested in it."""
    depth = 0
    while index < len(tokens):
        depth += tokens[index].nesting
        index += 1
        if depth <= 0:
            break
    return index
