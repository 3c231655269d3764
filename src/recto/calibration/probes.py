"""Questions that a book asks about itself: the headings and first sentences of its sections."""

from __future__ import annotations

import re

from recto.limits import MAX_QUERY
from recto.types import Chunk

_FENCE = re.compile(r"^(```+|~~~+)[^\n]*\n.*?^\1", re.MULTILINE | re.DOTALL)
_MARKS = re.compile(r"^[ \t]*(?:#{1,6} |[-*+] |\d+[.)] |>|:::.*$|\|.*$|```.*$|~~~.*$|!\[.*$)", re.MULTILINE)
_LINK = re.compile(r"!?\[([^\]\n]*)\]\([^)\n]*\)")
_ENDS = re.compile(r"(?<=[.!?])[\"')\]*_]*\s+(?=[\"'(*_]*[A-Z0-9])")
_SHORTEST = 20  # characters; less is a label, not a sentence
_LONGEST = 300


def first_sentence(text: str) -> str:
    """Return the first sentence of a passage's prose, without its markup; the first words where it is all code or a table."""
    prose = " ".join(_LINK.sub(r"\1", _MARKS.sub("", _FENCE.sub("", text))).split())
    for sentence in _ENDS.split(prose):
        if len(sentence) >= _SHORTEST:
            return _cut(sentence.replace("`", "").replace("**", ""))
    return _cut(prose or " ".join(text.split()))


def heading_question(chunk: Chunk) -> str:
    """Return the path of headings that leads to a passage, or its page's title where it has none."""
    return (chunk.heading_path or chunk.page_title)[:MAX_QUERY].strip()


def _cut(sentence: str) -> str:
    return sentence if len(sentence) <= _LONGEST else sentence[:_LONGEST].rpartition(" ")[0] or sentence[:_LONGEST]
