"""Tell a page's content from what its website puts around it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from recto.book.html.tokens import words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from selectolax.lexbor import LexborHTMLParser, LexborNode

# The most telling first: those of one generator, then those that many share.
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
_DROPPED_TAGS = words("nav footer aside script style template svg noscript iframe form button object audio video canvas dialog map menu")
_DROPPED_ROLES = frozenset({"navigation", "search", "button", "contentinfo", "tablist", "doc-toc", "doc-backlink"})
_DROPPED_CLASSES = words(
    "breadcrumbs breadcrumb theme-doc-breadcrumbs pagination pagination-nav theme-doc-footer theme-edit-this-page theme-doc-toc-mobile "
    "theme-doc-version-badge theme-last-updated md-content__button md-source-file md-tags md-feedback headerlink hash-link header-anchor "
    "anchorjs-link toc table-of-contents toctree-wrapper tocbox on-this-page sphinxsidebar related related-pages rst-footer-buttons "
    "prev-next-area prev-next-footer edit-this-page edit-page-link last-updated last-update content-icon-container linenos linenodiv "
    "lineno lang line-numbers-wrapper gutter line-number copy copybtn copy-button clipboard clip-button md-clipboard sr-only "
    "skip-link skip-to-content footnote-backref MathJax MathJax_Preview MathJax_Display tabbed-labels nav-chapters nav-wrapper "
    "VPDocFooter backlinks view-this-page page-toc visually-hidden"
)
_DROPPED_PREFIXES = ("tocCollapsible", "breadcrumbsContainer", "codeBlockLineNumber", "lastUpdated", "tocMobile")
_KEPT_ASIDE = re.compile(r"admonition|aside|callout|alert|custom-block|note|tip|warning", re.IGNORECASE)
_UNSEEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_PANELS = frozenset({"tabpanel"})
_SITE_NAME = re.compile(r"\s+[|\u2013\u2014\u00b7\u00bb\u2022-]\s+")


def main_content(tree: LexborHTMLParser) -> LexborNode | None:
    """Return the element that holds the page's content."""
    for selector in _CONTENT:
        found = tree.css(selector)[:_CANDIDATES]
        if found:
            best = max(found, key=lambda node: len(node.text()))
            if best.text().strip():
                return best
    return _densest(tree.body) if tree.body is not None else None


def is_dropped(tag: str, attributes: Mapping[str, str | None]) -> bool:
    """Say whether an element is not content: navigation, controls, signs, or not to be seen."""
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
    if role in _PANELS:
        return False  # a tab that is not chosen is hidden, and still content
    return ("hidden" in attributes and attributes["hidden"] != "until-found") or bool(_UNSEEN.search(attributes.get("style") or ""))


def without_site_name(title: str) -> str:
    """Return a window's title without the name of the website behind it."""
    title = " ".join(title.split())
    ends = [found.start() for found in _SITE_NAME.finditer(title)]
    return title[: ends[-1]] if ends and ends[-1] > 0 else title


def _densest(body: LexborNode) -> LexborNode:
    """Return the innermost element that holds most of the text that is not in links."""
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
