"""How alike two texts are by their words, whatever became of their markup and white space."""

from __future__ import annotations

import html
import re
from collections import Counter

_WORD = re.compile(r"\w+")


def words(text: str) -> Counter[str]:
    """Count the words of a text; entities count as what they stand for."""
    return Counter(_WORD.findall((html.unescape(text) if "&" in text else text).lower()))


def contained(part: Counter[str], whole: Counter[str]) -> float:
    """Return the share of a text's different words that another text has, too."""
    return len(part.keys() & whole.keys()) / len(part) if part else 1.0


def similar(one: str, other: str) -> float:
    """Return the share of words that two texts have in common, of all that either has."""
    left, right = words(one), words(other)
    either = (left | right).total()
    return (left & right).total() / either if either else 1.0
