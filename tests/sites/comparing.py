"""Compare what Recto reads of a site with what the site's generator built of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

from recto.book.parsing.formats import read
from recto.protocols import Source

_HEADINGS = ("h1", "title")
_NO_TITLE = "<no title>"  # Sphinx writes it for a page without a heading


class BuiltPage(HTMLParser):
    """The ids and titles of an HTML page, the links in its navigation, and the page that comes next."""

    def __init__(self, file: Path, url: str = "") -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.titles: dict[str, list[str]] = {"h1": [], "title": []}
        self._links: list[list[str]] = [[]]
        self.next = ""
        self._url = url
        self._open: list[str] = []
        self._navigation = self._hidden = 0
        self.feed(file.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids |= {value for name in ("id", "name") if (value := given.get(name))}
        if tag == "link" and given.get("rel") == "next":
            self.next = urljoin(self._url, given.get("href"))
        if tag in _HEADINGS and not self.titles[tag]:
            self._open.append(tag)
            self.titles[tag].append("")
        if tag in ("nav", "aside"):
            self._links += [] if self._navigation else [[]]
            self._navigation += 1
        if self._open and tag == "a":
            self._hidden += 1
        if tag == "a" and self._navigation and (href := given.get("href")):
            self._links[-1].append(urljoin(self._url, href).partition("#")[0])

    def handle_endtag(self, tag: str) -> None:
        if self._open and tag == self._open[-1]:
            self._open.pop()
            self._hidden = 0
        if tag in ("nav", "aside"):
            self._navigation -= 1
        if tag == "a" and self._hidden:
            self._hidden -= 1

    def handle_data(self, data: str) -> None:
        if self._open and not self._hidden:
            self.titles[self._open[-1]][0] += data

    @property
    def links(self) -> list[str]:
        """The links of the navigation with the most links; others are tabs, or lead to the next page."""
        return max(self._links, key=len)

    @property
    def has_title(self) -> bool:
        """Whether the generator found a title."""
        return not "".join(self.titles["title"]).startswith(_NO_TITLE)

    def is_titled(self, title: str) -> bool:
        """Return whether the page has a title, in its heading or before the name of the site."""
        heading, top = (" ".join("".join(self.titles[tag]).split()) for tag in _HEADINGS)
        words = " ".join(title.split())
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
