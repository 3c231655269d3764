"""Check that the links of a book resolve to its chunks: `python -m bench.links PATH`.

Every Markdown link with an anchor that stays within the book is resolved to a page. A chunk of that page must
have the anchor.
"""

from __future__ import annotations

import argparse
import posixpath
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

from markdown_it import MarkdownIt

from recto._util.text import nearest, page_key
from recto.book.chunking import ChunkSize, chunk_page
from recto.book.parsing import read
from recto.book.parsing.frontmatter import split_front_matter
from recto.book.sources.options import SiteOptions
from recto.book.sources.tree import open_book
from recto.types.book import Page

_ELSEWHERE = "not a page of this book"


@dataclass(frozen=True, slots=True)
class Link:
    """A link with an anchor, and the problem if it does not resolve."""

    page: str
    href: str
    problem: str = ""


class Book:
    """The pages of a book by path and URL, and the anchors of their chunks."""

    def __init__(self, pages: list[Page]) -> None:
        self._by_path = {page.path: page for page in pages}
        self._by_address = {page_key(page.url): page for page in pages}
        self._anchors: dict[str, set[str]] = {}

    def links(self) -> Iterator[Link]:
        """Yield every link with an anchor that stays on the site."""
        for page in self._by_path.values():
            for href in _hrefs(page):
                parts = urlsplit(href)
                if (
                    parts.fragment
                    and parts.scheme in ("", urlsplit(page.url).scheme)
                    and parts.netloc in ("", urlsplit(page.url).netloc)
                ):
                    yield Link(
                        page.path, href, self._problem(page, parts.path, unquote(parts.fragment), href)
                    )

    def _problem(self, page: Page, path: str, anchor: str, href: str) -> str:
        target = self._target(page, unquote(path), href)
        if target is None:
            return _ELSEWHERE
        anchors = self.anchors(target)
        if anchor in anchors:
            return ""
        guess = nearest(anchor, anchors)
        return f"no such anchor on {target.path}" + (f", the nearest is #{guess}" if guess else "")

    def _target(self, page: Page, path: str, href: str) -> Page | None:
        if not path:
            return page
        if path.endswith((".md", ".mdx")):
            below = path.removeprefix("@site").lstrip("/")
            relative = posixpath.normpath(posixpath.join(posixpath.dirname(page.path), path))
            names = (below, below.partition("/")[2]) if path.startswith(("/", "@site")) else (relative,)
            return next((self._by_path[name] for name in names if name in self._by_path), None)
        return self._by_address.get(page_key(urljoin(page.url, href)))

    def anchors(self, page: Page) -> set[str]:
        """Return the anchors of a page's chunks."""
        if page.path not in self._anchors:
            inputs = chunk_page(page, read(page), "bench", lambda text: len(text) // 4 + 1, 512, ChunkSize())
            chunks = [one.chunk for one in inputs]
            self._anchors[page.path] = {
                anchor for chunk in chunks for anchor in (*chunk.anchors, chunk.anchor) if anchor
            }
        return self._anchors[page.path]


def _hrefs(page: Page) -> Iterator[str]:
    """Yield the link targets in a page's file, except those in code and in partials."""
    shown = Counter(page.lines)
    own = (
        [line for line, origin in zip(page.text.split("\n"), page.lines, strict=True) if shown[origin] == 1]
        if page.lines
        else []
    )
    text = "\n".join(own) if own else page.text
    for token in MarkdownIt("commonmark").enable("table").parse(split_front_matter(text)[1]):
        for child in token.children or ():
            href = child.attrs.get("href") if child.type == "link_open" else None
            if isinstance(href, str):
                yield href


def main() -> None:
    """Print how many links resolve to a chunk, and those that do not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--site-url", default="")
    parser.add_argument("--at-least", type=float, default=0.0, metavar="RATIO", help="fail below this ratio")
    options = parser.parse_args()
    source = open_book(options.path, SiteOptions(url=options.site_url))
    links = list(Book(list(source.pages())).links())
    elsewhere = [link for link in links if link.problem == _ELSEWHERE]
    within = [link for link in links if link.problem != _ELSEWHERE]
    found = sum(not link.problem for link in within)
    for link in [*elsewhere, *within]:
        if link.problem:
            print(f"{link.page}: {link.href}: {link.problem}")
    ratio = found / len(within) if within else 1.0
    print(
        f"{found} of {len(within)} links with an anchor resolve to a chunk ({ratio:.1%}); "
        f"{len(elsewhere)} are not links to this book"
    )
    sys.exit(ratio < options.at_least)


if __name__ == "__main__":
    main()
