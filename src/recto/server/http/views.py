"""Convert Markdown to safe HTML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from html import escape
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import OptionsDict

from recto.book.parsing.markdown.blocks import containers_plugin
from recto.book.parsing.markdown.headings import split_explicit_id
from recto.search.markdown import without_tags

_MAX_RENDERED = 10_000  # characters; longer texts are shown as they are
_MAX_NESTING = 20
_SAFE_URL = re.compile(r"https?://|(?!//)[^:/?#]*(?:[/?#]|$)", re.IGNORECASE)
"""A web address, or one without scheme and host."""
_BARE_URL = re.compile(r"""(https?://[^\s<>()\[\]`*]*[^\s<>()\[\]`*.,;:!?'"])""")
_CODE_TITLE = re.compile(r"""\b(?:title|filename)=(?:"([^"]*)"|'([^']*)')""")
_ADMONITION = re.compile(r"(?::{3,}|/{3,}|!!!|\?{3}\+?|===[!+]?)[ \t]*(?P<kind>[\w-]*)[ \t|]*(?P<title>.*)")


_FIXED = {
    "stray": "",  # the end of an admonition that begins elsewhere
    "table_open": '<div class="table" tabindex="0" role="group" aria-label="Table"><table>',
    "table_close": "</table></div>",
    "th_open": '<th scope="col">',  # without a style for its alignment, which the policy forbids
    "td_open": "<td>",
}
"""What is the same for every token: the box of a table scrolls."""


def add_html(chunks: Iterable[dict[str, Any]]) -> None:
    """Add `html`, the rendered text, to views of chunks."""
    for chunk in chunks:
        chunk["html"] = render_markdown(chunk["text"])


@lru_cache(maxsize=1024)
def render_markdown(text: str) -> str:
    """Return Markdown as HTML in which nothing can run or load: no raw HTML, no images, only safe links."""
    text = without_tags(text) or text
    if len(text) <= _MAX_RENDERED:
        parser, env = _parser(), {"lines": text.split("\n")}
        tokens = parser.parse(text, env)
        if all(token.level < _MAX_NESTING - 1 for token in tokens):  # else the parser has left text out
            return str(parser.renderer.render(tokens, parser.options, env))
    return _code(text)


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": _MAX_NESTING}, renderer_cls=_SafeRenderer)
    parser.enable(["table", "strikethrough"]).disable("reference").use(containers_plugin)
    parser.validateLink = lambda url: _SAFE_URL.match(url) is not None  # type: ignore[method-assign]
    for name, html in _FIXED.items():
        parser.add_render_rule(name, lambda *_, html=html: html)
    parser.render("")  # compile the rules now: threads share the parser
    return parser


class _SafeRenderer(RendererHTML):
    """Renders the elements that the web page accepts; everything else is text."""

    def text(self, tokens: Sequence[Token], idx: int, *_: Any) -> str:
        """Return text, with links for the web addresses in it."""
        content = tokens[idx].content
        if "://" not in content or _in_link(tokens, idx):
            return escape(content)
        return "".join(
            f'<a href="{escape(part)}">{escape(part)}</a>' if number % 2 else escape(part)
            for number, part in enumerate(_BARE_URL.split(content))
        )

    def image(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Any) -> str:
        """Return the description of an image, as a link to it if it is on the web."""
        token = tokens[idx]
        words = self.renderInlineAsText(token.children, options, env) or "without description"
        shown = f'<span class="picture">Picture: {escape(words)}</span>'
        source = str(token.attrs["src"])
        if not source.startswith("http") or _in_link(tokens, idx):
            return shown
        return f'<a href="{escape(source)}">{shown}</a>'

    def link_open(self, tokens: Sequence[Token], idx: int, *_: Any) -> str:
        """Return the start of a link, without its title."""
        return f'<a href="{escape(str(tokens[idx].attrs["href"]))}">'

    def heading_open(self, tokens: Sequence[Token], idx: int, *_: Any) -> str:
        """Return the start of a heading, whose explicit id is not shown."""
        children = tokens[idx + 1].children
        if children and children[-1].type == "text":
            children[-1].content = split_explicit_id(children[-1].content)[0]
        return f"<{tokens[idx].tag}>"

    def fence(self, tokens: Sequence[Token], idx: int, *_: Any) -> str:
        """Return code with its title."""
        title = _CODE_TITLE.search(tokens[idx].info)
        return _code(tokens[idx].content, title[1] or title[2] if title else "")

    def code_block(self, tokens: Sequence[Token], idx: int, *_: Any) -> str:
        """Return indented code."""
        return _code(tokens[idx].content)

    def math(self, tokens: Sequence[Token], idx: int, _options: OptionsDict, env: Any) -> str:
        """Return math as it is written."""
        start, end = tokens[idx].map or (0, 0)
        return _code("\n".join(env["lines"][start:end]))

    def admonition_open(self, tokens: Sequence[Token], idx: int, _options: OptionsDict, env: Any) -> str:
        """Return the start of an admonition and its title."""
        match = _ADMONITION.search(env["lines"][(tokens[idx].map or (0,))[0]])
        title = match["title"].strip("[]\"' \t") or match["kind"].capitalize() if match else ""
        return f'<div class="aside" role="note"><p class="aside-title">{escape(title)}</p>'


def _in_link(tokens: Sequence[Token], idx: int) -> bool:
    return sum(token.nesting for token in tokens[:idx] if token.type in ("link_open", "link_close")) > 0


def _code(content: str, title: str = "") -> str:
    caption = f"<figcaption>{escape(title)}</figcaption>" if title else ""
    code = f'<pre tabindex="0"><code>{escape(content.removesuffix(chr(10)))}</code></pre>'
    return f'<figure class="code">{caption}{code}</figure>'
