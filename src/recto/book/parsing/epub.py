"""Split an EPUB into its pages: the documents of its spine, titled by its navigation; nothing is unpacked."""

from __future__ import annotations

import posixpath
import re
import stat
import zipfile
import zlib
from collections.abc import Iterator
from html import escape, unescape
from io import BytesIO
from typing import TYPE_CHECKING
from urllib.parse import unquote

from recto.types.book import Part, Volume

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_CONTAINER = "META-INF/container.xml"
_MOST_ENTRIES, _MOST_PAGES, _MOST_ENTRIES_OF_NAVIGATION = 20_000, 5_000, 20_000
_LARGEST_ENTRY, _LARGEST_TOTAL = 16 << 20, 256 << 20  # bytes, unpacked
_FONT_ALGORITHMS = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC")
_DOCUMENTS = ("application/xhtml+xml", "text/html", "application/x-dtbook+xml")
_EMPTY = re.compile(
    r"<(?!(?:area|base|br|col|embed|hr|img|input|link|meta|source|track|wbr)\b)([A-Za-z][\w:.-]*+)([^<>]*)/>"
)
_HEADING = re.compile(r"<h1\b[^<>]*>(.{0,1000}?)</h1>", re.DOTALL)
_TAG = re.compile(r"<[^<>]*>")
_ENCODING = re.compile(rb"<\?xml[^>]*encoding=[\"']([\w.-]+)")
_DAMAGED = "the EPUB is damaged"


def split_epub(data: bytes) -> Volume:
    """Return the pages of an EPUB; raise ValueError if it cannot be read, or must not be."""
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            return _Reader(archive).volume()
    except (zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, RuntimeError, EOFError, OSError) as error:
        raise ValueError(f"{_DAMAGED} ({error or type(error).__name__})") from error


class _Reader:
    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._total = 0
        entries = archive.infolist()
        if len(entries) > _MOST_ENTRIES:
            raise ValueError(f"it has more than {_MOST_ENTRIES} files")
        for entry in entries:
            name = entry.filename
            if name.startswith(("/", "\\")) or ".." in name.replace("\\", "/").split("/") or name[1:2] == ":":
                raise ValueError(f"a file in it has a path that leaves the book: {name[:100]!r}")
            if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError(f"{name[:100]!r} is compressed in a way that EPUBs do not use")
            if stat.S_ISLNK(entry.external_attr >> 16):
                raise ValueError(f"a file in it is a symbolic link: {name[:100]!r}")
        self._names = {entry.filename: entry for entry in entries}

    def volume(self) -> Volume:
        """Return the pages that the package lists."""
        self._refuse_encrypted()
        rootfile = next(_named(self._xml(_CONTAINER), "rootfile"), None)
        path = unquote(rootfile.get("full-path", "")) if rootfile is not None else ""
        package = self._xml(path)
        folder = posixpath.dirname(path)
        items = {item.get("id", ""): item for item in _named(package, "item")}
        titles = self._titles(items, folder)
        title = next((_words(element) for element in _named(package, "title")), "")
        parts: dict[str, Part] = {}
        section, groups = "", {above for _, above in titles.values()}
        for reference in list(_named(package, "itemref"))[:_MOST_PAGES]:
            item = items.get(reference.get("idref", ""))
            if item is None or item.get("media-type", "") not in _DOCUMENTS or "nav" in _properties(item):
                continue
            name = _inside(folder, item.get("href", ""))
            label, above = titles.get(name, ("", section))
            section = above or (label if label in groups else "")
            if name in self._names and name not in parts and reference.get("linear") != "no":
                parts[name] = Part(name, label, _titled(_body(self._text(name)), label), section)
        if not parts:
            raise ValueError("its spine lists no page that can be read")
        return Volume(" ".join(title.split())[:500], tuple(parts.values()))

    def _refuse_encrypted(self) -> None:
        """Raise an error for a book with digital rights management; fonts may be obfuscated."""
        if any(entry.flag_bits & 1 for entry in self._names.values()):
            raise ValueError("it is encrypted with a password")
        if "META-INF/encryption.xml" in self._names:
            for method in _named(self._xml("META-INF/encryption.xml"), "EncryptionMethod"):
                if method.get("Algorithm", "") not in _FONT_ALGORITHMS:
                    raise ValueError("it is encrypted (it has digital rights management)")

    def _titles(self, items: dict[str, Element], folder: str) -> dict[str, tuple[str, str]]:
        """Return the title of each page in the navigation, and the entry above it."""
        nav = next((item for item in items.values() if "nav" in _properties(item)), None)
        if nav is None:
            kinds = "application/x-dtbncx+xml"
            nav = next((item for item in items.values() if item.get("media-type") == kinds), None)
        path = _inside(folder, nav.get("href", "")) if nav is not None else ""
        if path not in self._names:
            return {}
        titles: dict[str, tuple[str, str]] = {}
        tree = self._xml(path)
        contents = next((nav for nav in _named(tree, "nav") if "toc" in _kind(nav)), tree)
        for label, target, above in list(_entries(contents))[:_MOST_ENTRIES_OF_NAVIGATION]:
            page = _inside(posixpath.dirname(path), target.partition("#")[0])
            titles.setdefault(page, (label, above))
        return titles

    def _xml(self, name: str) -> Element:
        """Parse an XML file; entities, which can be used to exhaust memory, are refused."""
        from xml.etree import ElementTree as ET

        text = self._text(name)
        if "<!ENTITY" in text.upper():
            raise ValueError(f"{name} defines XML entities, which are not read")
        try:
            return ET.fromstring(re.sub(r"^\s*<\?xml[^>]*\?>", "", text))  # noqa: S314 - no entities
        except (ET.ParseError, ValueError) as error:
            raise ValueError(f"{_DAMAGED}: {name} is not well-formed ({error})") from error

    def _text(self, name: str) -> str:
        """Return the text of a file, within limits whatever its size is stated to be."""
        entry = self._names.get(name)
        if entry is None:
            raise ValueError(f"{_DAMAGED}: it has no {name[:100] or 'package'}")
        with self._archive.open(entry) as file:
            data = file.read(_LARGEST_ENTRY + 1)
        self._total += len(data)
        if len(data) > _LARGEST_ENTRY or self._total > _LARGEST_TOTAL:
            raise ValueError(f"{name[:100]!r} is too large when it is unpacked")
        if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
            return data.decode("utf-16", "replace")
        data = data.removeprefix(b"\xef\xbb\xbf")
        stated = _ENCODING.match(data)
        try:
            return data.decode(stated[1].decode() if stated else "utf-8", "replace")
        except LookupError:
            return data.decode("utf-8", "replace")


def _named(tree: Element, name: str) -> Iterator[Element]:
    """Yield the elements of a name in any namespace."""
    return (element for element in tree.iter() if _local(element) == name)


def _body(document: str) -> str:
    """Return a page without its head, whose title is often the book's, and without XML's empty elements."""
    start = document.find("<head")
    end = document.find("</head>", start) if start >= 0 else -1
    return _EMPTY.sub(r"<\1\2></\1>", document[:start] + document[end:] if end >= 0 else document)


def _titled(document: str, label: str) -> str:
    """Put the title of the navigation above another top heading, so that it is the title of the page."""
    heading = _HEADING.search(document)
    if heading is None or not label or " ".join(unescape(_TAG.sub("", heading[1])).split()) == label:
        return document
    return f"{document[: heading.start()]}<h1>{escape(label)}</h1>{document[heading.start() :]}"


def _words(element: Element) -> str:
    return " ".join("".join(element.itertext()).split())


def _properties(item: Element) -> list[str]:
    return item.get("properties", "").split()


def _kind(nav: Element) -> str:
    return next((value for key, value in nav.attrib.items() if key.endswith("type")), "")


def _inside(folder: str, href: str) -> str:
    """Return the path of a file in the archive."""
    return posixpath.normpath(posixpath.join(folder, unquote(href))) if href else ""


def _entries(contents: Element) -> Iterator[tuple[str, str, str]]:
    """Yield the label and target of each entry of a navigation, and the outermost label above it."""
    stack = [(child, "") for child in reversed(list(contents))]
    while stack:
        element, above = stack.pop()
        outer = above
        if _local(element) in ("li", "navPoint"):
            label = next(
                (inner for inner in element.iter() if _local(inner) in ("a", "span", "navLabel")), None
            )
            link = next((inner for inner in element.iter() if _local(inner) in ("a", "content")), None)
            target = (link.get("href") or link.get("src") or "") if link is not None else ""
            words = _words(label)[:500] if label is not None else ""
            if words and target:
                yield words, target, above
            outer = above or words
        stack += [(child, outer) for child in reversed(list(element))]


def _local(element: Element) -> str:
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""
