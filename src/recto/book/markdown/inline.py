"""The plain text of a heading: what a reader sees, and what its anchor is made of."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline

_MARKUP = re.compile(r"[\\`*_\[\]<>&{}$!~:\n]")
_LONGEST = 2_000  # characters; nobody writes such a heading, and marks in it would cost a lot to match
_MATH = re.compile(r"(\$+)(?!\$)[^$]+(?<!\$)\1(?!\$)")
_FOOTNOTE = re.compile(r"\[\^[^\]\s]+\]")
_COMMENT = re.compile(r"\{(/\*.*?\*/)\}", re.DOTALL)
_ATTRIBUTE = r"\s+(?:[\w:.-]+(?:=(?:\"[^\"]*\"|'[^']*'|\{(?:[^{}]|\{[^{}]*\})*\}))?|\{\.\.\.[^{}]*\})"
_TAG = re.compile(rf"</?(?:[A-Za-z][\w.:-]*(?:{_ATTRIBUTE})*\s*/?)?>")
_DIRECTIVE = re.compile(r"(?<!:):[A-Za-z](?:[\w-]*[A-Za-z0-9])?(?![\w:-])(?:\[[^\[\]]*\])?(?:\{[^{}]*\})?")


def heading_texts(markdown: str, *, mdx: bool = False, alt: bool = True, references: dict[str, Any] | None = None) -> tuple[str, str]:
    """Return a heading as it is read and as its anchor is made from; the second has the texts of images if `alt`."""
    if len(markdown) > _LONGEST or not _MARKUP.search(markdown):
        return markdown.strip(), markdown
    shown, slugged = [], []
    for child in _parser(mdx).parseInline(markdown, {"references": references or {}})[0].children or ():
        if child.type in ("text", "code_inline", "math"):
            shown.append(child.content)
            # Docusaurus reads `:word` in a heading as a directive, and leaves it out of the anchor.
            slugged.append(_DIRECTIVE.sub("", child.content) if mdx and child.type == "text" else child.content)
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
def _parser(mdx: bool) -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark").enable("strikethrough")
    parser.inline.ruler.before("escape", "math", _rule(_MATH, "math"))
    parser.inline.ruler.before("link", "footnote", _rule(_FOOTNOTE, "footnote"))
    if mdx:
        parser.inline.ruler.before("escape", "comment", _rule(_COMMENT, "comment"))
        parser.inline.ruler.before("html_inline", "jsx", _rule(_TAG, "jsx"))
    return parser


def _rule(pattern: re.Pattern[str], kind: str) -> Callable[[StateInline, bool], bool]:
    """Make a rule that takes what a pattern matches as one token."""

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
