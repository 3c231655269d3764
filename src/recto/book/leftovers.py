"""Markup of generators that no rule resolved: what is left of it in the text of chunks, by kind."""

from __future__ import annotations

import re
from collections import Counter

_FENCES = re.compile(r"^[ \t>]*(`{3,}|~{3,}).*?(?:^[ \t>]*\1|\Z)", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(?<!`)(`+)(?!`)[^\n]*?(?<!`)\1(?!`)|<code\b[^<>\n]*>[^\n]*?</code>")
_ROLES = {
    "{…}`…` (role)": re.compile(r"(?<![\w`/=:-])\{[a-z][\w:+-]*\}`[^`\n]+`"),
    ":…:`…` (role)": re.compile(r"(?<![\w`])(?::[a-z][\w+-]*){1,2}:`[^`\n]+`"),
}
_OTHERS = {
    "{{…}} (template)": re.compile(r"(?<!=)\{\{(?![<%])[^{}\n]+\}\}"),
    "{{<…>}} (shortcode)": re.compile(r"\{\{[<%][^{}\n]{0,1000}[%>]\}\}"),
    ":::{…} (directive)": re.compile(r"^[ \t>]*:{3,}[ \t]*\{", re.MULTILINE),
    ".. …:: (directive)": re.compile(r"^[ \t]*\.\. [a-z][\w:-]*::", re.MULTILINE),
    "<<< (snippet)": re.compile(r"^[ \t]*<<< \S", re.MULTILINE),
}
_MAY_HAVE = re.compile(r"\{|:`|:::|::\s|<<<")


def leftovers(text: str) -> Counter[str]:
    """Count the markup in a text that is not code."""
    if not _MAY_HAVE.search(text):
        return Counter()
    counts: Counter[str] = Counter()
    text = _FENCES.sub("", text)
    for kind, mark in _ROLES.items():  # their text looks like code
        text, counts[kind] = mark.subn("", text)
    text = _CODE.sub("", text)
    for kind, mark in _OTHERS.items():
        counts[kind] = len(mark.findall(text))
    return +counts


def describe_leftovers(counts: Counter[str]) -> str:
    """Return a sentence about markup that was not resolved, without a full stop."""
    kinds = ", ".join(f"{number:,} {kind}" for kind, number in counts.most_common())
    return f"Markup that was not resolved and is kept as text: {kinds}"
