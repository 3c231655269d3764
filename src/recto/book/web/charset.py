"""Turn the bytes of a page into text."""

from __future__ import annotations

import codecs
import re

_HEADER = re.compile(r"charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
_META = re.compile(rb"<meta[^>]{0,500}?charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.IGNORECASE)
_LOOKED_AT = 4096  # bytes; the standard asks for 1024
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_WEB = re.compile(
    r"utf-8|utf-16(?:-[lb]e)?|iso8859-\d+|cp125\d|cp874|cp932|cp949|koi8-[ru]|gb2312|gbk|gb18030|big5|euc_jp|euc_kr|shift_jis"
)
_ONE_IN = 100  # more wrong bytes than this, and it is no text


def decode(body: bytes, content_type: str) -> tuple[str, int]:
    """Return the text, and how many characters of it could not be read; UnicodeError if it is no text at all."""
    for mark, name in _MARKS:
        if body.startswith(mark):
            return _decoded(body[len(mark) :], name)
    stated = _HEADER.search(content_type)
    written = _META.search(body[:_LOOKED_AT])
    for name in (stated[1] if stated else "", written[1].decode("ascii") if written else ""):
        if known := _known(name):
            return _decoded(body, known)
    return _decoded(body, "utf-8")


def _known(name: str) -> str:
    """Return an encoding's name if pages are written in it; others are slow, or no encodings of text."""
    try:
        known = codecs.lookup(name).name if name else ""
    except LookupError:
        return ""
    # What calls itself Latin-1 or ASCII on the web has always been Windows' superset of it.
    return "cp1252" if known in ("iso8859-1", "ascii") else known if _WEB.fullmatch(known) else ""


def _decoded(body: bytes, name: str) -> tuple[str, int]:
    try:
        return body.decode(name), 0
    except UnicodeDecodeError:
        text = body.decode(name, "replace")
    wrong = text.count("\ufffd")
    if wrong * _ONE_IN > len(text):
        raise UnicodeError(f"it is not written in {name}")
    return text, wrong
