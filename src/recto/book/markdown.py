"""Parse a page into front matter and sections of blocks, each with its lines in the source."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from recto.book.document import Block, Document, Section
from recto.book.slugs import Slugger, split_explicit_id

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_TAG = re.compile(r"<[^<>]+>")
_EMBEDDED_FILE = re.compile(r"data:[\w.+-]+/[\w.+-]+;base64,[A-Za-z0-9+/=]{64,}")
_LABEL = re.compile(r"<TabItem\b[^>]*?\blabel=(?:\"([^\"]*)\"|'([^']*)')")
_DROPPED = frozenset({"front_matter", "mdx_esm", "mdx_comment", "hr"})
_CONTAINERS = {"bullet_list": "list", "ordered_list": "list", "blockquote": "group", "container_admonition": "group", "admonition": "group"}


def parse(markdown: str, *, title: str = "", mdx: bool = False) -> Document:
    """Parse a page; its title is that of the front matter, else its first top heading, else `title`."""
    source = markdown.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    source = _EMBEDDED_FILE.sub("data:…", source)
    tokens = _parser(mdx).parse(source)
    lines = source.split("\n")
    front_matter = _front_matter(tokens)
    title = _stated_title(front_matter) or _first_heading(tokens) or title
    return Document(front_matter, title, tuple(_sections(tokens, lines, title)))


@cache
def _parser(mdx: bool) -> MarkdownIt:
    from markdown_it import MarkdownIt
    from mdit_py_plugins.admon import admon_plugin
    from mdit_py_plugins.container import container_plugin
    from mdit_py_plugins.front_matter import front_matter_plugin

    from recto.book.mdx import mdx_plugin

    parser = MarkdownIt("commonmark").enable("table").disable("inline")
    parser.use(front_matter_plugin).use(admon_plugin)
    parser.use(container_plugin, "admonition", validate=lambda params, _: bool(params.strip()))
    if mdx:
        parser.use(mdx_plugin)
    return parser


@cache
def _inline_parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark")


def plain_text(markdown: str) -> str:
    """Return the text of a line without its markup."""
    children = _inline_parser().parseInline(markdown)[0].children or []
    return "".join(child.content for child in children if child.type in ("text", "code_inline")).strip()


def _front_matter(tokens: Sequence[Token]) -> dict[str, Any]:
    if not tokens or tokens[0].type != "front_matter":
        return {}
    import yaml

    try:
        values = yaml.safe_load(tokens[0].content)
    except (yaml.YAMLError, ValueError, RecursionError):  # dates that do not exist, numbers without end, nesting without end
        return {}
    return values if isinstance(values, dict) else {}


def _stated_title(front_matter: dict[str, Any]) -> str:
    for key in ("title", "sidebar_label"):
        value = front_matter.get(key)
        if isinstance(value, str | int | float) and str(value).strip():
            return str(value).strip()
    return ""


def _first_heading(tokens: Sequence[Token]) -> str:
    for index, token in enumerate(tokens):
        if token.type == "heading_open" and token.level == 0 and token.tag == "h1":
            return plain_text(split_explicit_id(tokens[index + 1].content)[0])
    return ""


def _sections(tokens: Sequence[Token], lines: list[str], title: str) -> list[Section]:
    sections: list[Section] = []
    slugger = Slugger()
    path: list[tuple[int, str]] = []
    opened = Section((title,), 1, "", 1, ())
    blocks: list[Block] = []
    index = 0
    while index < len(tokens):
        token = tokens[index]
        if token.type == "heading_open":
            sections.append(_closed(opened, blocks))
            blocks = []
            level = int(token.tag[1])
            raw, explicit = split_explicit_id(tokens[index + 1].content)
            heading = plain_text(raw)
            anchor = explicit or slugger.slug(heading)
            path = [(upper, text) for upper, text in path if upper < level]
            if level > 1 or heading != title:
                path.append((level, heading))
            line = token.map[0] + 1 if token.map else opened.line
            # The page's own title needs no anchor: its address is the page's.
            opened = Section((title, *(text for _, text in path)), level, anchor if path else "", line, ())
        elif token.nesting >= 0 and token.type not in _DROPPED:
            blocks.extend(_blocks(tokens, index, lines))
        index = _after(tokens, index)
    sections.append(_closed(opened, blocks))
    return [section for section in sections if section.blocks]


def _closed(section: Section, blocks: list[Block]) -> Section:
    return Section(section.headings, section.level, section.anchor, section.line, tuple(blocks))


def _after(tokens: Sequence[Token], index: int) -> int:
    """Return the index behind a token and all that is nested in it."""
    depth = 0
    while index < len(tokens):
        depth += tokens[index].nesting
        index += 1
        if depth <= 0:
            break
    return index


def _blocks(tokens: Sequence[Token], index: int, lines: list[str]) -> list[Block]:
    """Return the block that begins at a token, or none if it holds no text."""
    token = tokens[index]
    if token.map is None:
        return []
    kind = token.type.removesuffix("_open")
    if kind in ("html_block", "mdx_tag"):
        return _markup(token)
    first, last = _trimmed(lines, *token.map)
    if kind == "container_admonition" and token.map[1] < len(lines) and lines[token.map[1]].strip().startswith(":::"):
        last = token.map[1] + 1  # the parser leaves the closing line out
    text = "\n".join(lines[first:last])
    if not text.strip():
        return []
    children = tuple(_children(tokens, index, lines)) if kind in _CONTAINERS else ()
    kind = _CONTAINERS.get(kind, "code" if kind in ("fence", "code_block") else kind)
    return [Block(kind, text, first + 1, last, children)]


def _children(tokens: Sequence[Token], index: int, lines: list[str]) -> list[Block]:
    """Return the parts at which a container may be divided: items of a list, blocks of an admonition."""
    end, index, found = _after(tokens, index) - 1, index + 1, list[Block]()
    while index < end:
        token = tokens[index]
        if token.map is not None and token.nesting >= 0:
            first, last = _trimmed(lines, *token.map)
            if first < last:
                found.append(Block(token.type.removesuffix("_open"), "\n".join(lines[first:last]), first + 1, last))
        index = _after(tokens, index)
    return found


def _markup(token: Token) -> list[Block]:
    """Keep the words of HTML and JSX: a tab's label, and what stands between tags."""
    if token.map is None:
        return []
    if label := _LABEL.search(token.content):
        text = label[1] or label[2] or ""
    else:
        text = html.unescape(_TAG.sub(" ", _without_comments(token.content)))
        text = "\n".join(line.strip() for line in text.splitlines() if line.strip())
    return [Block("markup", text, token.map[0] + 1, token.map[1])] if text else []


def _without_comments(text: str) -> str:
    """Drop HTML comments; one that is not closed goes to the end."""
    kept = []
    position = 0
    while (start := text.find("<!--", position)) >= 0:
        kept.append(text[position:start])
        end = text.find("-->", start)
        if end < 0:
            return " ".join(kept)
        position = end + 3
    return " ".join([*kept, text[position:]])


def _trimmed(lines: list[str], first: int, last: int) -> tuple[int, int]:
    """Leave out blank lines at both ends."""
    last = min(last, len(lines))
    while last > first and not lines[last - 1].strip():
        last -= 1
    while first < last and not lines[first].strip():
        first += 1
    return first, last
