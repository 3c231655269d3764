"""Tokenize HTML, read the head of a page, simplify the page for the parser, and find its main content."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from html import escape, unescape
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser, LexborNode


def words(text: str) -> frozenset[str]:
    """Return the words of a text as a set."""
    return frozenset(text.split())


_NAME = re.compile(r"[A-Za-z][^\s/>]*")
_ATTRIBUTE = re.compile(r"""[\s/]*(=?[^\s/>=]*)(?:\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>]*)))?""")
_RAW = words("script style iframe noframes noembed xmp textarea title plaintext")
_KEPT = words(
    "lang id class name role hidden style type encoding display href rel content property http-equiv colspan "
    "start aria-hidden"
)
_LONGEST_VALUE = 2000  # characters; embedded pictures and data are not needed

_VOID = frozenset({"br", "hr", "wbr"})
_OMITTED = words(
    "area b base basefont bgsound big body col em embed font frame frameset head html i img input keygen "
    "link meta nobr optgroup option param picture s select small source strike strong track tt u"
)
_SIBLINGS = words("p li dt dd tr td th tbody thead tfoot")
_RENAMED = {"a": "x-link", "code": "x-code"}
_DEEPEST = 300
_MOST = 200_000  # elements; far more than any hand-written page has


class Tag(NamedTuple):
    """A start tag with the attributes that Recto uses; `raw` is the content of a tag such as `script`."""

    name: str
    attributes: Mapping[str, str] = {}
    raw: str = ""


class End(NamedTuple):
    """An end tag."""

    name: str


def tokens(html: str) -> Iterator[Tag | End | str]:
    """Yield tags and the text between them, with entities as written and without comments."""
    position, length = 0, len(html)
    while position < length:
        start = html.find("<", position)
        if start < 0:
            yield html[position:]
            return
        if start > position:
            yield html[position:start]
        following = html[start + 1 : start + 2]
        if name := _NAME.match(html, start + 1):
            tag, position = _tag(html, name)
            yield tag
        elif following == "/" and (name := _NAME.match(html, start + 2)):
            yield End(name[0].lower())
            position = _after(html, ">", name.end())
        elif html.startswith("<!--", start):
            position = _after(html, "-->", start + 4)
        elif following in ("!", "?", "/"):
            position = _after(html, ">", start + 1)
        else:
            yield "&lt;"
            position = start + 1


def _after(html: str, mark: str, position: int) -> int:
    """Return the position after the next mark, or the end."""
    start = html.find(mark, position)
    return len(html) if start < 0 else start + len(mark)


def _tag(html: str, opening: re.Match[str]) -> tuple[Tag, int]:
    """Read a start tag; return it and the position after it."""
    name, position = opening[0].lower(), opening.end()
    attributes: dict[str, str] = {}
    while (pair := _ATTRIBUTE.match(html, position)) and pair.end() > position:
        position = pair.end()
        key = pair[1].lower()
        if key in _KEPT and key not in attributes:
            value = pair[2] or pair[3] or pair[4] or ""
            attributes[key] = unescape(value) if len(value) <= _LONGEST_VALUE else ""
    position = min(position + 1, len(html))  # after the >
    if name not in _RAW:
        return Tag(name, attributes), position
    closing = re.compile(f"</{name}(?=[\\s/>])", re.IGNORECASE).search(html, position)
    end = closing.start() if closing else len(html)
    return Tag(name, attributes, html[position:end]), end


_REFRESH = re.compile(r"^\s*[\d.]+\s*[;,]\s*(?:url\s*=\s*)?[\"']?([^\"']+)", re.IGNORECASE)
_OPEN_GRAPH = {"og:title": "og_title", "og:site_name": "site_name"}
_MOST_LINKS = 20_000
_LISTING = re.compile(r"\bgeneratedIndexPage")


@dataclass(frozen=True, slots=True)
class Head:
    """The metadata and links of a page; URLs are as written, relative to `base` or to the page."""

    title: str = ""
    og_title: str = ""
    site_name: str = ""
    canonical: str = ""
    base: str = ""
    refresh: str = ""
    lang: str = ""
    robots: frozenset[str] = frozenset()
    listing: bool = False
    links: tuple[str, ...] = ()


@lru_cache(maxsize=1)  # the source and the reader of a page ask for it
def read_head(html: str) -> Head:
    """Read the metadata and links of a page; the first of two values counts."""
    values: dict[str, str] = {}
    robots: set[str] = set()
    links: dict[str, None] = {}
    listing = False
    for tag in tokens(html):
        if not isinstance(tag, Tag):
            continue
        key, value, said = "", "", tag.attributes
        rel, href = said.get("rel", "").lower(), said.get("href", "").strip()
        content = said.get("content", "")
        if tag.name == "a" and "href" in said and "nofollow" not in rel and len(links) < _MOST_LINKS:
            links[href] = None
        elif tag.name == "title":
            key, value = "title", " ".join(unescape(tag.raw).split())
        elif tag.name == "html":
            key, value = "lang", said.get("lang", "").strip()
        elif tag.name == "base":
            key, value = "base", href
        elif tag.name == "link" and "canonical" in rel.split():
            key, value = "canonical", href
        elif tag.name == "meta":
            if said.get("name", "").lower() in ("robots", "recto"):
                robots.update(word.strip() for word in content.lower().split(","))
            if said.get("property", "").lower() in _OPEN_GRAPH:
                key, value = _OPEN_GRAPH[said["property"].lower()], " ".join(content.split())
            elif said.get("http-equiv", "").lower() == "refresh" and (address := _REFRESH.match(content)):
                key, value = "refresh", address[1].strip()
        if value:
            values.setdefault(key, value)
        listing = listing or bool(_LISTING.search(said.get("class", "")))
    return Head(**values, robots=frozenset(robots), listing=listing, links=tuple(links))


def simplify(html: str) -> str:
    """Simplify a page: drop emphasis, images, scripts and deep nesting.

    A parser that follows the standard takes hours and gigabytes for a hostile page: it compares each
    attribute with all others of its tag, each tag with all open ones, and reopens emphasis in each paragraph.
    """
    written: list[str] = []
    opened: list[str] = []
    skipped: Counter[str] = Counter()
    count = 0
    for token in tokens(html):
        if isinstance(token, str):
            written.append(token)
            continue
        name = _RENAMED.get(token.name, token.name)
        if count >= _MOST:
            written.append(" ")  # keep the text of the rest
        elif isinstance(token, End):
            if name == "br" or not (name in _OMITTED or name in _RAW or name in _VOID):
                _close(name, written, opened, skipped)
        elif name in _RAW:
            if token.attributes.get("type", "").startswith("math/tex"):
                display = "block" if "display" in token.attributes["type"] else ""
                written.append(f'<x-tex display="{display}">{escape(token.raw)}</x-tex>')
        elif name in _VOID:
            written.append(f"<{name}>")
        elif name not in _OMITTED:
            count += 1
            if not name.replace("-", "").replace(":", "").isalnum():
                continue
            if name not in _SIBLINGS and len(opened) >= _DEEPEST:
                skipped[name] += 1
                written.append(" ")
                continue
            if name not in _SIBLINGS:
                opened.append(name)
            values = "".join(f' {key}="{escape(value)}"' for key, value in token.attributes.items())
            written.append(f"<{name}{values}>")
    return "".join(written)


def _close(name: str, written: list[str], opened: list[str], skipped: Counter[str]) -> None:
    """Write an end tag, unless there is nothing to close."""
    if skipped[name]:
        skipped[name] -= 1
        return
    if name not in _SIBLINGS:
        depth = next((depth for depth in range(len(opened) - 1, -1, -1) if opened[depth] == name), None)
        if depth is None:
            return
        del opened[depth:]
    written.append(f"</{name}>")


# Selectors of single generators first, then general ones.
_CONTENT = (
    "article .theme-doc-markdown",  # Docusaurus
    "article .markdown",
    "article.md-content__inner",  # Material for MkDocs
    "article.bd-article",  # Sphinx: pydata, furo, Read the Docs, alabaster
    ".vp-doc",  # VitePress
    "#content main",  # mdBook
    ".sl-markdown-content",  # Starlight
    "div.body",
    "[role=main]",
    "div.document",
    "main article",
    "main .content",
    "main",
    "article",
)
_CANDIDATES = 5
_DROPPED_TAGS = words(
    "nav footer aside script style template svg noscript iframe form button object audio video canvas dialog "
    "map menu"
)
_DROPPED_ROLES = words("navigation search button contentinfo tablist doc-toc doc-backlink")
_DROPPED_CLASSES = words(
    "breadcrumbs breadcrumb theme-doc-breadcrumbs pagination pagination-nav theme-doc-footer "
    "theme-edit-this-page theme-doc-toc-mobile theme-doc-version-badge theme-last-updated "
    "md-content__button md-source-file md-tags md-feedback headerlink hash-link header-anchor "
    "anchorjs-link toc table-of-contents toctree-wrapper tocbox on-this-page sphinxsidebar related "
    "related-pages rst-footer-buttons prev-next-area prev-next-footer edit-this-page edit-page-link "
    "last-updated last-update content-icon-container linenos linenodiv lineno lang line-numbers-wrapper "
    "gutter line-number copy copybtn copy-button clipboard clip-button md-clipboard sr-only skip-link "
    "skip-to-content footnote-backref MathJax MathJax_Preview MathJax_Display tabbed-labels nav-chapters "
    "nav-wrapper VPDocFooter backlinks view-this-page page-toc visually-hidden"
)
_DROPPED_PREFIXES = (
    "tocCollapsible",
    "breadcrumbsContainer",
    "codeBlockLineNumber",
    "lastUpdated",
    "tocMobile",
)
_KEPT_ASIDE = re.compile(r"admonition|aside|callout|alert|custom-block|note|tip|warning", re.IGNORECASE)
_HIDDEN_STYLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_SITE_NAME = re.compile(r"(?<!\s)\s++[|\u2013\u2014\u00b7\u00bb\u2022-]\s++")


def main_content(tree: LexborHTMLParser) -> LexborNode | None:
    """Return the element that holds the content of a page."""
    for selector in _CONTENT:
        candidates = tree.css(selector)[:_CANDIDATES]
        if candidates:
            best = max(candidates, key=lambda node: len(node.text()))
            if best.text().strip():
                return best
    return _densest(tree.body) if tree.body is not None else None


def is_dropped(tag: str, attributes: Mapping[str, str | None]) -> bool:
    """Return whether an element is not content: navigation, a control, or hidden."""
    if not attributes:
        return tag in _DROPPED_TAGS
    role = attributes.get("role") or ""
    names = (attributes.get("class") or "").split()
    if tag in _DROPPED_TAGS and not (tag == "aside" and _KEPT_ASIDE.search(" ".join(names))):
        return True
    if role in _DROPPED_ROLES or attributes.get("aria-hidden") == "true":
        return True
    contents = "contents" in names and ("topic" in names or "local" in names)  # as docutils makes it
    if contents or any(name in _DROPPED_CLASSES or name.startswith(_DROPPED_PREFIXES) for name in names):
        return True
    if role == "tabpanel":
        return False  # an inactive tab is hidden but still content
    return ("hidden" in attributes and attributes["hidden"] != "until-found") or bool(
        _HIDDEN_STYLE.search(attributes.get("style") or "")
    )


def split_site_name(title: str) -> tuple[str, str]:
    """Return a page title without the name of the website at its end, and that name, or ""."""
    title = " ".join(title.split())
    last = next(reversed([*_SITE_NAME.finditer(title)]), None)
    return (title[: last.start()], title[last.end() :]) if last and last.start() > 0 else (title, "")


def _densest(body: LexborNode) -> LexborNode:
    """Return the innermost element that holds most of the text outside links."""
    sizes: dict[int, int] = {}
    stack: list[tuple[LexborNode, bool, bool]] = [(body, False, False)]
    while stack:
        node, linked, done = stack.pop()
        if done:
            sizes[node.mem_id] = sum(sizes.get(child.mem_id, 0) for child in node.iter(include_text=True))
            continue
        tag = node.tag or ""
        if tag == "-text":
            sizes[node.mem_id] = 0 if linked else len((node.text() or "").strip())
        elif not tag.startswith("-") and not is_dropped(tag, node.attributes):
            stack.append((node, linked, True))
            stack.extend((child, linked or tag == "x-link", False) for child in node.iter(include_text=True))
    best = body
    while True:
        children = [child for child in best.iter() if sizes.get(child.mem_id, 0) > sizes[best.mem_id] * 0.8]
        if not children or children[0].tag in ("p", "pre", "ul", "ol", "table", "blockquote"):
            return best
        best = children[0]
