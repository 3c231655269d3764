"""Compare what Recto reads of a site with what the site's generator built of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

from selectolax.lexbor import LexborHTMLParser

from recto.book.parsing import read
from recto.protocols import Source

_NO_TITLE = "<no title>"  # Sphinx writes it for a page without a heading


class BuiltPage:
    """The ids and titles of an HTML page, the links in its navigation, and the page that comes next."""

    def __init__(self, file: Path, url: str) -> None:
        tree = LexborHTMLParser(file.read_text("utf-8"))
        self.ids = {node.attributes.get(name) for node in tree.css("[id], [name]") for name in ("id", "name")}
        following = tree.css_first("link[rel=next]")
        self.next = urljoin(url, following.attributes.get("href") or "") if following is not None else ""
        navigations = [
            [urljoin(url, link.attributes["href"] or "").partition("#")[0] for link in one.css("a[href]")]
            for one in tree.css("nav, aside")
        ]
        # Others than the one with the most links are tabs, or lead to the next page.
        self.links = max(navigations, key=len, default=[])
        for link in tree.css("h1 a"):
            link.decompose()
        nodes = (tree.css_first("h1"), tree.css_first("title"))
        self.titles = [" ".join(node.text().split()) if node is not None else "" for node in nodes]
        self.has_title = not self.titles[1].startswith(_NO_TITLE)

    def is_titled(self, title: str) -> bool:
        """Return whether the page has a title, in its heading or before the name of the site."""
        (heading, top), words = self.titles, " ".join(title.split())
        starts = tuple(words + mark for mark in (" |", " -", " —", " –", " ·"))
        return words in (heading.rstrip(" ¶#"), top) or top.startswith(starts)


@dataclass
class Comparison:
    """The pages of a book, and what of them is in the build."""

    pages: int = 0
    anchors: int = 0
    missing_pages: list[str] = field(default_factory=list)
    missing_anchors: list[str] = field(default_factory=list)
    other_titles: list[str] = field(default_factory=list)
    urls: list[str] = field(default_factory=list)
    listed: list[str] = field(default_factory=list)
    following: dict[str, str] = field(default_factory=dict)

    @property
    def in_order(self) -> bool:
        """Whether the pages come as the first page lists them, and before the ones that they link as next."""
        places = {url: place for place, url in enumerate(self.urls)}
        listed = [places[url] for url in dict.fromkeys(self.listed) if url in places]
        pairs = [(places[url], places[after]) for url, after in self.following.items() if after in places]
        return listed == sorted(listed) and all(place < after for place, after in pairs)


def compare(source: Source, build: Path, site_url: str) -> Comparison:
    """Compare the pages of a book with the files of a build."""
    result = Comparison()
    for page in source.pages():
        result.pages += 1
        result.urls.append(page.url)
        file = built_file(build, page.url.removeprefix(site_url))
        if file is None:
            result.missing_pages.append(f"{page.path}: {page.url}")
            continue
        built = BuiltPage(file, page.url)
        result.listed += built.links if result.pages == 1 else []
        result.following |= {page.url: built.next} if built.next else {}
        document = read(page)
        if built.has_title and not built.is_titled(document.title):
            result.other_titles.append(f"{page.path}: {document.title!r} {built.titles}")
        anchors = {anchor for section in document.sections for _, anchor in section.anchors}
        result.anchors += len(anchors)
        result.missing_anchors += [f"{page.path}#{anchor}" for anchor in sorted(anchors - built.ids)]
    return result


def built_file(build: Path, address: str) -> Path | None:
    """Return the file that a server would send for an address, or None."""
    path = unquote(urlsplit(address).path).lstrip("/")
    names = (path, f"{path.rstrip('/')}/index.html".lstrip("/"), f"{path}.html")
    return next((build / name for name in names if name and (build / name).is_file()), None)
