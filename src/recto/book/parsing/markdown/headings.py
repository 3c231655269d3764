"""Headings: their visible text, and their anchors as the generators of sites make them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from recto.types.book import AnchorStyle

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline

LONGEST_HEADING = 500  # characters; anything longer is treated as text
_MARKUP = re.compile(r"[\\`*_\[\]<>&{}$!~:\n]")
_MATH = re.compile(r"(\${1,9}+)(?!\$)[^$]{1,500}+\1(?!\$)")
_FOOTNOTE = re.compile(r"\[\^[^\]\s]{1,500}+\]")
_COMMENT = re.compile(r"\{(/\*.{0,500}?\*/)\}", re.DOTALL)
_ATTRIBUTE = (
    r"\s++(?:[\w:.-]++(?:=(?:\"[^\"]*+\"|'[^']*+'|\{(?:[^{}]++|\{[^{}]*+\})*+\}))?|\{\.\.\.[^{}]*+\})"
)
_TAG = re.compile(rf"</?(?:[A-Za-z][\w.:-]*+(?:{_ATTRIBUTE})*+\s*+/?)?>")
_BADGE = re.compile(r"<Badge\s[^<>]{0,500}?\btext=[\"']([^\"'<>]*+)[\"']")
_DIRECTIVE = re.compile(r"(?<!:):[A-Za-z](?:[\w-]*[A-Za-z0-9])?(?![\w:-])(?:\[[^\[\]]*\])?(?:\{[^{}]*\})?")
_ICON = re.compile(r"(?<![\w:]):[+a-z-][\w+-]{0,60}+:(?![\w:])")
_REFERENCE = re.compile(r"`[^`\n]*+`|(?<![\w\]\\`!])\[((?:[^\[\]`]++|`[^\[\]`]*+`)++)\]\[[^\[\]]*+\]")
_EXPLICIT = re.compile(
    r"\{ ?#([^\s{}]{1,500}+) ?\}|\{/\*\s{0,500}+#([^\s{}*]{1,500}+)[^{}]{0,500}\*/\}|"
    r"<!--\s{0,500}+#([^\s<>]{1,500}?)(?:\s[^<>]{0,500})?-->"
)
SHORTCODE = re.compile(r"<!--\s*md:(?:setting|option)\s+(?:[^\s<>]*[.:*])?([^\s<>.:*]+)\s*-->")
"""A comment that a hook of Material for MkDocs replaces by the name of a setting or an option."""
_ATTRIBUTES = re.compile(r"\{:?[ ]{0,500}+([^}\n ][^}\n]{0,500}+)\}")
_NAMED = re.compile(r"(?:\s*+(?:[#.][^\s{}=\"']++|[\w-]++=(?:\"[^\"\n]*+\"|'[^'\n]*+'|[^\s\"'{}=]++)))++\s*+")
_ATTRIBUTE_ID = re.compile(r"(?:^|\s)(?:#|id=[\"']?)([^\s\"'}]+)")
_NUMBERED = re.compile(r"(.*)_([0-9]+)", re.DOTALL)
# Letters in circles and squares count as letters.
_CIRCLED = ((0x24B6, 0x24E9), (0x1F130, 0x1F149), (0x1F150, 0x1F169), (0x1F170, 0x1F189))

Slug = Callable[[str], str]
"""Returns the anchor of the next heading of a page that has no explicit id."""


def heading_texts(
    markdown: str,
    *,
    mdx: bool = False,
    style: AnchorStyle = "github",
    references: dict[str, Any] | None = None,
) -> tuple[str, str]:
    """Return the visible text of a heading, and the text for its anchor."""
    if len(markdown) > LONGEST_HEADING or not _MARKUP.search(markdown):
        return markdown.strip(), markdown
    if is_mkdocs := style == "python-markdown":  # references to documented code are links, too
        markdown = _REFERENCE.sub(lambda found: f"[{found[1]}](#)" if found[1] else found[0], markdown)
    visible, slugged = [], []
    (inline,) = _heading_parser(mdx).parseInline(markdown, {"references": references or {}})
    for child in inline.children or ():
        if is_mkdocs and child.type == "text":
            child.content = _ICON.sub("", child.content)
        if child.type in ("text", "code_inline", "math", "image"):
            visible.append(child.content)
            if child.type == "text" and mdx:
                # Docusaurus reads `:word` in a heading as a directive and omits it from the anchor.
                slugged.append(_DIRECTIVE.sub("", child.content))
            elif child.type != "image" or style == "github":
                slugged.append(child.content)
        elif child.type in ("softbreak", "hardbreak"):
            visible.append(" ")
            slugged.append("\n")
        elif badge := _BADGE.match(child.content):
            visible.append(badge[1])
        elif child.type == "comment":
            slugged.append(child.content)
    return "".join(visible).strip(), "".join(slugged)


@cache
def _heading_parser(mdx: bool) -> MarkdownIt:
    from markdown_it import MarkdownIt

    def rule(kind: str, pattern: re.Pattern[str], before: str) -> None:
        """Turn each match of a pattern into one token."""

        def match(state: StateInline, silent: bool) -> bool:
            matched = pattern.match(state.src, state.pos, state.posMax)
            if not matched:
                return False
            if not silent:
                state.push(kind, "", 0).content = matched[1] if kind == "comment" else matched[0]
            state.pos = matched.end()
            return True

        parser.inline.ruler.before(before, kind, match)

    parser = MarkdownIt("commonmark").enable("strikethrough")
    rule("math", _MATH, "escape")
    rule("footnote", _FOOTNOTE, "link")
    if mdx:
        rule("comment", _COMMENT, "escape")
        rule("jsx", _TAG, "html_inline")
    return parser


def split_explicit_id(heading: str, style: AnchorStyle = "github") -> tuple[str, str]:
    """Split a heading into its text and explicit id: `{#id}`, `{/* #id */}`, `<!-- #id -->`, `{: #id}`.

    The text may be a shortcode of Material for MkDocs: `<!-- md:setting config.id -->`.
    """
    text = heading.rstrip()
    if shortcode := SHORTCODE.fullmatch(text):
        return f"`{shortcode[1]}`", text.split()[-2]
    if style == "python-markdown" or text.endswith("}"):
        start = text.rfind("{")
        attributes = _ATTRIBUTES.fullmatch(text, start) if start > 0 and text[start - 1] == " " else None
        is_named = style in ("hugo", "github-trimmed") and attributes and _NAMED.fullmatch(attributes[1])
        if attributes and (style == "python-markdown" or is_named or text.startswith("{:", start)):
            stated = _ATTRIBUTE_ID.search(attributes[1])
            return text[:start].rstrip(), stated[1] if stated else ""
    start = max(text.rfind("{"), text.rfind("<!--"))
    explicit = _EXPLICIT.fullmatch(text, start) if start >= 0 else None
    return (text[:start].rstrip(), explicit[1] or explicit[2] or explicit[3]) if explicit else (heading, "")


def slugger(style: AnchorStyle, explicit: Iterable[str] = ()) -> Slug:
    """Return the slugger of a page; `explicit` are the ids that its headings state."""
    if style == "python-markdown":
        return _python_markdown_slugger(explicit)
    if style.startswith("docutils"):
        return _docutils_slugger(explicit, style == "docutils-smartquotes")
    return _numbering_slugger(_BASES[style])


def _numbering_slugger(base_of: Slug) -> Slug:
    """Make anchors that are numbered if they repeat; explicit ids count only if it is called with them."""
    seen: dict[str, int] = {}

    def slug(heading: str) -> str:
        anchor = base = base_of(heading)
        while anchor in seen:
            seen[base] += 1
            anchor = f"{base}-{seen[base]}"
        seen[anchor] = 0
        return anchor

    return slug


def _github(heading: str) -> str:  # white space at its ends counts, as in Docusaurus
    return "".join(_kept(mark) for mark in heading.lower())


def _vitepress(heading: str, *, cased: bool = False) -> str:
    heading = re.sub(r":[a-z][a-z0-9_+-]*:", "", heading)  # an emoji is not in the anchor
    text = re.sub(r"[\u0300-\u036f\x00-\x1f]", "", unicodedata.normalize("NFKD", heading))
    text = _SPECIAL.sub("-", text)
    return re.sub(r"^(?=[0-9])", "_", text if cased else text.strip("-").lower())


def _pandoc(heading: str) -> str:
    heading = _DASHES.sub("", heading)
    kept = "".join(mark for mark in heading.lower() if mark.isalnum() or mark in "_-." or mark.isspace())
    kept = "-".join(kept.split())
    return kept[next((index for index, mark in enumerate(kept) if mark.isalpha()), len(kept)) :] or "section"


def _blackfriday(heading: str) -> str:
    kept = "".join(mark if unicodedata.category(mark)[0] in "LN" else " " for mark in heading.lower())
    return "-".join(kept.split()) or "heading"


def _myst(heading: str) -> str:
    text = re.sub(r"['‘’\"“”]", "", " ".join(heading.split())).lower()
    text = re.sub(r"^(?=[0-9-])", "id-", re.sub(r"[^a-z0-9-]", "-", text))
    return re.sub(r"-{2,}", "-", text).strip("-")


_DASHES = re.compile(r"(?<=\w)-{2,3}(?=\w)|(?<=\s)-{2,3}(?=\s)")  # that become typographic
_SPECIAL = re.compile(r"[\s~`!@#$%^&*()\-_+=\[\]{}|\\;:\"'“”‘’<>,.?/]+")
_BASES: dict[str, Slug] = {
    "github": _github,
    "github-trimmed": lambda heading: _github(heading.strip()),
    "hugo": lambda heading: _github(re.sub(r"(?<=\s)-{2,3}(?=\s)", "", heading.strip())),  # dashes
    "astro": lambda heading: _github(heading).removesuffix("-"),
    "vitepress": _vitepress,
    "vitepress-cased": partial(_vitepress, cased=True),
    "myst": _myst,
    "pandoc": _pandoc,
    "blackfriday": _blackfriday,
}


def _docutils_slugger(explicit: Iterable[str], smart_quotes: bool) -> Slug:
    """Make anchors as docutils does, for Sphinx; a duplicate or an empty one becomes `id1`, `id2`.

    Typographic quotes, which MyST makes before it makes the anchors, leave no hyphen.
    """
    seen = set(explicit)
    number = 0

    def slug(heading: str) -> str:
        nonlocal number
        anchor = docutils_id(re.sub("['\"]", "", heading) if smart_quotes else heading)
        while not anchor or anchor in seen:
            number += 1
            anchor = f"id{number}"
        seen.add(anchor)
        return anchor

    return slug


def docutils_id(name: str) -> str:
    """Return the id that docutils makes of a label or a heading; "" if it has no letters of ASCII."""
    text = unicodedata.normalize("NFKD", name.lower().translate(_LETTERS))
    text = re.sub(r"[^a-z0-9]+", "-", " ".join(text.encode("ascii", "ignore").decode("ascii").split()))
    return re.sub(r"^[-0-9]+|-+$", "", text)


_LETTERS = str.maketrans(
    {"ß": "sz", "æ": "ae", "œ": "oe", "ø": "o", "đ": "d", "ħ": "h", "ı": "i", "ł": "l", "ŧ": "t"}
)


def _python_markdown_slugger(explicit: Iterable[str]) -> Slug:
    """Make anchors as Python-Markdown's table of contents does, for MkDocs."""
    seen = set(explicit)
    numbers: dict[str, int] = {}

    def slug(heading: str) -> str:
        ascii_only = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode("ascii")
        anchor = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", ascii_only).strip().lower())
        if anchor in seen or not anchor:
            numbered = _NUMBERED.fullmatch(anchor)
            base, number = (numbered[1], int(numbered[2])) if numbered else (anchor, 0)
            # Continue where the last search ended, so that many equal headings do not take quadratic time.
            number = numbers.get(anchor, number) + 1
            while f"{base}_{number}" in seen:
                number += 1
            numbers[anchor] = number
            anchor = f"{base}_{number}"
        seen.add(anchor)
        return anchor

    return slug


def _kept(mark: str) -> str:
    """Return what GitHub makes of a character: letters, digits, marks and connectors stay."""
    if mark == " ":
        return "-"
    if mark == "-" or (mark.isascii() and mark.isalnum()):
        return mark
    category = unicodedata.category(mark)
    if category[0] in "LM" or category in ("Nd", "Nl", "Pc"):
        return mark
    return mark if any(first <= ord(mark) <= last for first, last in _CIRCLED) else ""
