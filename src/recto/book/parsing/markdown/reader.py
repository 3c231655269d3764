"""Parse Markdown and MDX into front matter and sections of blocks, each with its lines in the source.

As in CommonMark, an unclosed fence runs to the end of its container, and `# …` in it is not a heading.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from recto.book.parsing.frontmatter import split_front_matter, stated
from recto.book.parsing.markdown.text import PageLines
from recto.book.parsing.slugs import Slugs, slugger, split_explicit_id
from recto.types import AnchorStyle, Block, Document, Section

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

_MARKUP = re.compile(r"[\\`*_\[\]<>&{}$!~:\n]")
_MATH = re.compile(r"(\$+)(?!\$)[^$]+(?<!\$)\1(?!\$)")
_FOOTNOTE = re.compile(r"\[\^[^\]\s]+\]")
_COMMENT = re.compile(r"\{(/\*.*?\*/)\}", re.DOTALL)
_ATTRIBUTE = r"\s+(?:[\w:.-]+(?:=(?:\"[^\"]*\"|'[^']*'|\{(?:[^{}]|\{[^{}]*\})*\}))?|\{\.\.\.[^{}]*\})"
_TAG = re.compile(rf"</?(?:[A-Za-z][\w.:-]*(?:{_ATTRIBUTE})*\s*/?)?>")
_DIRECTIVE = re.compile(r"(?<!:):[A-Za-z](?:[\w-]*[A-Za-z0-9])?(?![\w:-])(?:\[[^\[\]]*\])?(?:\{[^{}]*\})?")


def heading_texts(
    markdown: str, *, mdx: bool = False, alt: bool = True, references: dict[str, Any] | None = None
) -> tuple[str, str]:
    """Return the visible text of a heading, and the text for its anchor, with alt texts if `alt`."""
    if len(markdown) > _LONGEST_HEADING or not _MARKUP.search(markdown):
        return markdown.strip(), markdown
    shown, slugged = [], []
    for child in (
        _heading_parser(mdx).parseInline(markdown, {"references": references or {}})[0].children or ()
    ):
        if child.type in ("text", "code_inline", "math"):
            shown.append(child.content)
            # Docusaurus reads `:word` in a heading as a directive and omits it from the anchor.
            slugged.append(
                _DIRECTIVE.sub("", child.content) if mdx and child.type == "text" else child.content
            )
        elif child.type == "image":
            shown.append(child.content)
            slugged.append(child.content if alt else "")
        elif child.type in ("softbreak", "hardbreak"):
            shown.append(" ")
            slugged.append("\n")
        elif child.type == "comment":
            slugged.append(child.content)
    return "".join(shown).strip(), "".join(slugged)


def plain_text(markdown: str) -> str:
    """Return the text of a line without its markup."""
    return heading_texts(markdown)[0]


@cache
def _heading_parser(mdx: bool) -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark").enable("strikethrough")
    parser.inline.ruler.before("escape", "math", _rule(_MATH, "math"))
    parser.inline.ruler.before("link", "footnote", _rule(_FOOTNOTE, "footnote"))
    if mdx:
        parser.inline.ruler.before("escape", "comment", _rule(_COMMENT, "comment"))
        parser.inline.ruler.before("html_inline", "jsx", _rule(_TAG, "jsx"))
    return parser


def _rule(pattern: re.Pattern[str], kind: str) -> Callable[[StateInline, bool], bool]:
    """Make a rule that turns each match of a pattern into one token."""

    def rule(state: StateInline, silent: bool) -> bool:
        found = pattern.match(state.src, state.pos, state.posMax)
        if not found:
            return False
        if not silent:
            token = state.push(kind, "", 0)
            token.content = found[1] if kind == "comment" else found[0]
        state.pos = found.end()
        return True

    return rule


_EMBEDDED_FILE = re.compile(r"data:[\w.+-]+/[\w.+-]+;base64,[A-Za-z0-9+/=]{64,}")
_HTML_HEADING = re.compile(r"<h([1-6])(?:\s[^<>]*)?>(.*?)</h\1>", re.DOTALL | re.IGNORECASE)
_CONTAINERS = {"bullet_list": "list", "ordered_list": "list", "blockquote": "group", "admonition": "group"}
_KINDS = {"fence": "code", "code_block": "code", "html_block": "markup", "mdx_tag": "markup", **_CONTAINERS}
_LONGEST_HEADING = 2_000  # characters; anything longer is treated as text
_MOST_LINES = 200_000  # a page with more is generated, and is not parsed
_DEEPEST = 60  # deeper nesting is treated as text


def parse(markdown: str, *, title: str = "", mdx: bool = False, anchors: AnchorStyle = "github") -> Document:
    """Parse a page; its title is `title` only if neither the front matter nor a top heading states one."""
    source = markdown.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")
    source = _EMBEDDED_FILE.sub("data:…", source)
    if mdx:
        from recto.book.parsing.markdown.blocks import unwrapped

        source = unwrapped(source)
    if source.count("\n") > _MOST_LINES:
        return _unstructured(source, title)
    front_matter, body, count = split_front_matter(source)
    source = "\n" * count + body  # line numbers stay those of the file
    env: dict[str, Any] = {}
    tokens = _page_parser(mdx).parse(source, env)
    lines = PageLines(source, mdx)
    for token in tokens:
        lines.edit(token)
    headings = _Headings(mdx, anchors, env.get("references", {})).read(tokens)
    first = next((heading.text for heading in headings.values() if heading.level == 1 and heading.opens), "")
    stated_title, label = ((stated(front_matter, key) or "").strip() for key in ("title", "sidebar_label"))
    title = (stated_title or first or label)[:_LONGEST_HEADING] or title
    return Document(title, tuple(_Sections(lines, headings, title).read(tokens)), front_matter)


def _unstructured(source: str, title: str) -> Document:
    """Return a page as one block of text."""
    block = PageLines(source, mdx=False).block("text", 0, source.count("\n") + 1)
    return Document(title, (Section((title,), 1, "", 1, (block,)),) if block else ())


@cache
def _page_parser(mdx: bool) -> MarkdownIt:
    from markdown_it import MarkdownIt

    from recto.book.parsing.markdown.blocks import containers_plugin, mdx_plugin, paragraphs_plugin

    parser = MarkdownIt("commonmark", {"maxNesting": _DEEPEST}).enable("table").disable("inline")
    parser.use(containers_plugin).use(paragraphs_plugin)
    parser.block.ruler.at("reference", _reference)
    if mdx:
        parser.use(mdx_plugin)
    return parser


def _reference(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse link reference definitions, but not footnotes, which look like them and are text."""
    from markdown_it.rules_block import reference

    return not state.src.startswith("[^", state.bMarks[start] + state.tShift[start]) and reference(
        state, start, end, silent
    )


@dataclass(frozen=True, slots=True)
class _Heading:
    """A heading; only one that is not nested in a block `opens` a section."""

    text: str
    level: int
    anchor: str
    line: int
    opens: bool


class _Headings:
    """Reads the headings of a page in order, so that duplicate anchors get the published numbers."""

    def __init__(self, mdx: bool, style: AnchorStyle, references: dict[str, Any]) -> None:
        self._mdx, self._style, self._references = mdx, style, references

    def read(self, tokens: Sequence[Token]) -> dict[int, _Heading]:
        """Return the headings by the index of their tokens."""
        written = {
            index: split_explicit_id(tokens[index + 1].content, self._style)
            for index, token in enumerate(tokens)
            if token.type == "heading_open" and len(tokens[index + 1].content) <= _LONGEST_HEADING
        }
        slugs = slugger(self._style, [explicit for _, explicit in written.values() if explicit])
        found: dict[int, _Heading] = {}
        for index, token in enumerate(tokens):
            if index in written:
                found[index] = self._heading(token, *written[index], slugs)
            elif (
                token.type == "html_block"
                and token.level == 0
                and (html := self._html_heading(token.content))
            ):
                text = " ".join(plain_text(html[2]).split())
                if text:  # its id is collected with those of all tags
                    found[index] = _Heading(
                        text, int(html[1]), "", token.map[0] + 1 if token.map else 1, True
                    )
        return found

    @staticmethod
    def _html_heading(content: str) -> re.Match[str] | None:
        return _HTML_HEADING.fullmatch(content.strip()) if len(content) <= _LONGEST_HEADING else None

    def _heading(self, token: Token, raw: str, explicit: str, slugs: Slugs) -> _Heading:
        alt = self._style == "github"
        text, slugged = heading_texts(raw, mdx=self._mdx, alt=alt, references=self._references)
        anchor = explicit or slugs.slug(slugged)
        level = int(token.tag[1])
        if self._mdx and level == 1 and self._style == "github":
            anchor = ""  # Docusaurus counts it, but renders it without an id
        return _Heading(text, level, anchor, token.map[0] + 1 if token.map else 1, token.level == 0)


@dataclass(slots=True)
class _Sections:
    """Groups the tokens of a page into sections."""

    lines: PageLines
    headings: dict[int, _Heading]
    title: str
    path: list[tuple[int, str]] = field(default_factory=list)
    _ids: dict[int, str] = field(init=False)

    def __post_init__(self) -> None:
        self._ids = dict(reversed(self.lines.ids))

    def read(self, tokens: Sequence[Token]) -> list[Section]:
        """Return the sections that have text.

        A heading without text appears in the heading paths below it, and its anchor belongs to the first
        section below it. If there is none, the heading becomes the text of its section and can be found.
        """
        sections, ends = list[Section](), list[int]()
        opened, blocks = Section((self.title,), 1, "", 1, ()), list[Block]()
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
                opened, blocks = self._opened(heading, opened.anchor), []
            elif tokens[index].type != "hr" and (block := self._block(tokens, index, after)):
                blocks.append(block)
            index = after
        if blocks := blocks or self._heading_block(opened):
            sections.append(replace(opened, blocks=tuple(blocks)))
        return self._with_anchors(sections, ends)

    def _heading_block(self, section: Section) -> list[Block]:
        """Return the heading of a section as its only block; the page title does not count."""
        if len(section.headings) <= 1:
            return []
        block = self.lines.block("heading", section.line - 1, section.line)
        return [block] if block else []

    def _opened(self, heading: _Heading, before: str) -> Section:
        self.path = [(upper, text) for upper, text in self.path if upper < heading.level]
        if heading.level > 1 or heading.text != self.title:
            self.path.append((heading.level, heading.text))
        anchor = heading.anchor
        if not anchor and heading.level > 1:
            # An HTML heading has an anchor only if it states an id; otherwise use the one above it.
            anchor = self._ids.get(heading.line, before)
        # The page title needs no anchor: the page URL opens it.
        return Section(
            (self.title, *(text for _, text in self.path)),
            heading.level,
            anchor if self.path else "",
            heading.line,
            (),
        )

    def _block(self, tokens: Sequence[Token], index: int, after: int) -> Block | None:
        """Return the block that begins at a token, with its nested blocks."""
        token = tokens[index]
        if token.map is None or token.nesting < 0:
            return None
        kind = token.type.removesuffix("_open")
        cuts: dict[int, set[int]] = {}
        if kind in _CONTAINERS:
            for inner in tokens[index + 1 : after - 1]:
                if inner.map is not None and inner.nesting >= 0:
                    cuts.setdefault(inner.level, set()).update((inner.map[0] + 1, inner.map[1] + 1))
        first, last = token.map
        return self.lines.block(
            _KINDS.get(kind, kind), first, last, tuple(tuple(sorted(cuts[level])) for level in sorted(cuts))
        )

    def _with_anchors(self, sections: list[Section], ends: list[int]) -> list[Section]:
        """Assign each anchor to the section that holds its line; `ends` are the lines where sections end."""
        every = [(heading.line, heading.anchor) for heading in self.headings.values() if heading.anchor]
        every = sorted(dict.fromkeys([*every, *self.lines.ids]), key=lambda anchor: anchor[0])
        position, found = 0, list[Section]()
        for number, section in enumerate(sections):
            start = position
            while position < len(every) and (
                number == len(sections) - 1 or every[position][0] < ends[number]
            ):
                position += 1
            found.append(replace(section, anchors=tuple(every[start:position])))
        return found


def _after(tokens: Sequence[Token], index: int) -> int:
    """Return the index after a token and everything nested in it."""
    depth = 0
    while index < len(tokens):
        depth += tokens[index].nesting
        index += 1
        if depth <= 0:
            break
    return index
