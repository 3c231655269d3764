"""Pages of a website that are no pages of its book: lists of other pages, files, and the blog."""

from __future__ import annotations

import re

_FILE = re.compile(
    r"\.(?:png|jpe?g|gif|svg|webp|avif|ico|bmp|pdf|epub|mobi|zip|gz|tgz|bz2|xz|tar|7z|rar|exe|dmg|whl|jar|mp[34]|webm|mov|avi|wav|og[gv]|"
    r"css|m?js|map|json|jsonl|ya?ml|toml|xml|rss|atom|txt|md|mdx|rst|ipynb|py|csv|tsv|woff2?|ttf|otf|eot|wasm|bin|inv|docx?|xlsx?|pptx?)$",
    re.IGNORECASE,
)
_LISTS = re.compile(
    r"(?:(?:docs?|blog|[a-z]{2})/)?(?:tags?|search|_modules|_sources|_static|authors|archive)(?:/|$)"  # of a whole site
    r"|(?:.*/)?(?:search|genindex(?:-.*)?|py-modindex|modindex|print|404|toc)$"
)
_BLOG = re.compile(r"(?:[a-z]{2}/)?blog(?:/|$)")

FILES = "files that are no pages"
LISTS = "lists of other pages (tags, search, indexes)"
BLOG = "pages of the blog"


def reason(path: str) -> str:
    """Say what a page is, by its path in the book, if it is not read; nothing if it is."""
    path = path.partition("?")[0]
    if _FILE.search(path):
        return FILES
    if _LISTS.match(path):
        return LISTS
    return BLOG if _BLOG.match(path) else ""
