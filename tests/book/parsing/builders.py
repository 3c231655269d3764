"""Make small EPUB and PDF files, and pages for readers."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from io import BytesIO

from recto.types.book import Page

CONTAINER = (
    '<?xml version="1.0"?><container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
    '<rootfile full-path="OEBPS/book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>'
)
Line = tuple[float, float, float, str, str]
"""x, y from the bottom, font size, font (F1 is Helvetica, F2 Courier) and text."""


def page_of(text: str, format: str, title: str = "Untitled") -> Page:
    return Page("page", "local://page", title, "intro", ("intro",), text, "", format=format)


def epub(pages: Mapping[str, str], navigation: str, extra: Mapping[str, str | bytes] | None = None) -> bytes:
    """Return an EPUB with these XHTML bodies, in order, and a navigation document."""
    xhtml = 'media-type="application/xhtml+xml"'
    items = "".join(f'<item id="i{n}" href="{name}" {xhtml}/>' for n, name in enumerate(pages))
    spine = "".join(f'<itemref idref="i{n}"/>' for n in range(len(pages)))
    package = (
        '<package xmlns="http://www.idpf.org/2007/opf" version="3.0">'
        '<metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>A small\n book</dc:title></metadata>'
        f'<manifest><item id="nav" href="nav.xhtml" properties="nav" {xhtml}/>{items}'
        f'</manifest><spine><itemref idref="nav"/>{spine}</spine></package>'
    )
    nav = (
        '<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops"><body>'
        f'<nav epub:type="toc"><ol>{navigation}</ol></nav></body></html>'
    )
    files = {"mimetype": "application/epub+zip", "META-INF/container.xml": CONTAINER}
    files |= {"OEBPS/book.opf": package, "OEBPS/nav.xhtml": nav}
    html = '<?xml version="1.0" encoding="utf-8"?><html xmlns="http://www.w3.org/1999/xhtml">'
    head = f"{html}<head><title>A small book</title></head>"
    files |= {f"OEBPS/{name}": f"{head}<body>{body}</body></html>" for name, body in pages.items()}
    return zipped({**files, **(extra or {})})


def zipped(files: Mapping[str, str | bytes]) -> bytes:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def pdf(pages: Sequence[Sequence[Line]], outline: Sequence[tuple[int, str, int, float]] = ()) -> bytes:
    """Return a PDF; an entry of the outline has a level from zero, a title, a page from zero and a height."""
    objects: list[bytes] = [b""] * 4
    objects[2] = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>"
    objects[3] = b"<</Type/Font/Subtype/Type1/BaseFont/Courier/Encoding/WinAnsiEncoding>>"
    numbers = []
    for page in pages:
        line = "BT /{3} {2} Tf 1 0 0 1 {0} {1} Tm ({4}) Tj ET"
        parts = [line.format(*one[:4], _escaped(one[4])) for one in page]
        stream = "\n".join(parts).encode("cp1252")
        objects.append(b"<</Length %d>>stream\n%s\nendstream" % (len(stream), stream))
        objects.append(
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents %d 0 R"
            b"/Resources<</Font<</F1 3 0 R/F2 4 0 R>>>>>>" % len(objects)
        )
        numbers.append(len(objects))
    kids = b" ".join(b"%d 0 R" % number for number in numbers)
    objects[1] = b"<</Type/Pages/Count %d/Kids[%s]>>" % (len(numbers), kids)
    catalog = b"<</Type/Catalog/Pages 2 0 R"
    if outline:
        first = len(objects) + 1
        catalog += b"/Outlines %d 0 R" % first
        objects.append(b"")
        objects += _outline(outline, first, numbers)
        tops = [index for index, entry in enumerate(outline) if entry[0] == 0]
        objects[first - 1] = b"<</First %d 0 R/Last %d 0 R>>" % (first + 1 + tops[0], first + 1 + tops[-1])
    objects[0] = catalog + b">>"
    return _written(objects)


def _outline(outline: Sequence[tuple[int, str, int, float]], first: int, pages: Sequence[int]) -> list[bytes]:
    """Return the objects of outline entries, linked to each other."""
    written = []
    for index, (level, title, page, top) in enumerate(outline):
        number = first + 1 + index
        later = [other for other in range(index + 1, len(outline)) if outline[other][0] <= level]
        stop = later[0] if later else len(outline)
        children = [other for other in range(index + 1, stop) if outline[other][0] == level + 1]
        above = [other for other in range(index) if outline[other][0] < level]
        entry = f"<</Title({_escaped(title)})/Dest[{pages[page]} 0 R/XYZ 0 {top} 0]"
        entry += f"/Parent {first + 1 + above[-1] if above else first} 0 R"
        if later and outline[later[0]][0] == level:
            entry += f"/Next {first + 1 + later[0]} 0 R"
        if children:
            entry += f"/First {number + children[0] - index} 0 R/Last {number + children[-1] - index} 0 R"
        written.append(f"{entry}>>".encode("cp1252"))
    return written


def _written(objects: Sequence[bytes]) -> bytes:
    data, offsets = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        offsets.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    return data + (
        b"xref\n0 %d\n0000000000 65535 f \n%strailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF"
        % (len(objects) + 1, table, len(objects) + 1, len(data))
    )


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")


def column(
    lines: Sequence[str], x: float = 72, top: float = 700, size: float = 10, font: str = "F1"
) -> list[Line]:
    """Return lines of text below each other."""
    return [(x, top - 12 * index, size, font, text) for index, text in enumerate(lines) if text]
