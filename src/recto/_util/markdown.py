"""What all modules that read Markdown agree on: code fences, headings, and where a sentence ends."""

from __future__ import annotations

import re
from collections.abc import Iterator

FENCE_MARKS = r"`{3,}|~{3,}"
SENTENCE_END = r"(?<=[.!?…])[\"'”’)\]]*\s+|[。！？｡؟۔।॥።။។][\"'”’」』）)\]]*\s*"
"""In scripts without spaces, a sentence may end without white space after it."""
FENCE_START = re.compile(rf"[ ]{{0,3}}({FENCE_MARKS})")
"""The marks at the start of a line that opens a fence, outside of lists and quotes."""
MOST_LINES = 15_000  # no page that a person writes has more; each line costs time
_FENCE = re.compile(r"^[ \t>]*+(?P<marks>`{3,}+|~{3,}+)[ \t]*+(?P<info>[^`\s]*+)[^`\n]*+$", re.MULTILINE)
_HEADING_ID = re.compile(r"(?<!\s)\s*+\{[\s:/*]*+#[^{}]*+\}\s*+$")
_LINK = re.compile(r"\[([^\[\]]*+)\](?:\([^)\[]*+\)|\[[^\[\]]*+\])")
_MARKUP = re.compile(r"[`*\\]|~~")
_TAG = re.compile(r"</?[A-Za-z][^<>]*+>")
_TAG_START = re.compile(r"<(?=[A-Za-z/!])(?!https?:|mailto:)")
_WHOLE_FENCE = re.compile(rf"^[ \t>]*({FENCE_MARKS}).*?(?:^[ \t>]*\1|\Z)", re.MULTILINE | re.DOTALL)


def code_fences(text: str) -> Iterator[tuple[re.Match[str], re.Match[str] | None]]:
    """Yield the opening and the closing line of each fence; an unclosed one has no closing line."""
    opened: re.Match[str] | None = None
    for line in _FENCE.finditer(text):
        if opened is None:
            opened = line
        elif line["marks"].startswith(opened["marks"]) and not line[0].strip(" \t>`~"):
            yield opened, line
            opened = None
    if opened is not None:
        yield opened, None


def without_fences(text: str) -> str:
    """Return a text with empty lines instead of its fences; a chunk may begin or end within one."""
    return _WHOLE_FENCE.sub(lambda fence: "\n" * fence[0].count("\n"), text)


def escaped_tags(text: str) -> str:
    """Return text whose words in angle brackets are no tags of Markdown."""
    return _TAG_START.sub(r"\\<", text)


def heading_key(heading: str) -> str:
    """Return a heading without markup and case, for comparison."""
    text = _LINK.sub(r"\1", _HEADING_ID.sub("", heading))
    text = (_TAG.sub("", text).strip(" `") and _TAG.sub("", text)) or text  # a heading may be just `<Tag>`
    return " ".join(_MARKUP.sub("", text).casefold().split())
