"""File name patterns: the globs of Docusaurus and `recto.toml`, the `.gitignore` patterns of MkDocs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

_LONGEST = 2_000  # characters of a pattern; the rest is ignored
Matches = Callable[[str], bool]


def any_of(patterns: Iterable[str]) -> Matches:
    """Return a function that tells whether a relative path matches one of the globs."""
    found = [glob(pattern.removeprefix("./")) for pattern in patterns]
    return lambda name: any(pattern.fullmatch(name) for pattern in found)


def glob(pattern: str) -> re.Pattern[str]:
    """Translate a glob with `**`, `*`, `?`, `[…]` and `{a,b}` into a regular expression."""
    pattern = re.sub(r"(?:\*\*/)+", "**/", pattern[:_LONGEST])
    source, index, depth = "", 0, 0
    while index < len(pattern):
        mark = pattern[index]
        if pattern.startswith("**/", index):
            source, index = source + "(?:.*/)?", index + 3
        elif pattern.startswith("**", index):
            source, index = source + ".*", index + 2
        elif mark == "[" and (group := _group(pattern, index)):
            source, index = source + group[0], group[1]
        elif mark == "{" and "}" in pattern[index:]:
            source, index, depth = source + "(?:", index + 1, depth + 1
        elif mark == "}" and depth:
            source, index, depth = source + ")", index + 1, depth - 1
        else:
            source, index = source + ("|" if mark == "," and depth else _translated(mark)), index + 1
    return re.compile(source + ")" * depth, re.DOTALL)


def _translated(mark: str) -> str:
    return {"*": "[^/]*", "?": "[^/]"}.get(mark, re.escape(mark))


def _group(pattern: str, index: int) -> tuple[str, int] | None:
    """Translate a character set such as `[!a-z]`; return it and where it ends."""
    end = pattern.find("]", index + 2)
    if end < 0:
        return None
    inner = pattern[index + 1 : end]
    negated, inner = inner[0] in "!^", inner[1:] if inner[0] in "!^" else inner
    escaped = (
        inner.replace("\\", "\\\\")
        .replace("[", "\\[")
        .replace("&&", "&\\&")
        .replace("||", "|\\|")
        .replace("~~", "~\\~")
    )
    try:
        re.compile(f"[{escaped}]")
    except re.error:
        return None
    return f"[{'^' if negated else ''}{escaped}]", end + 1


def ignored(lines: Iterable[str]) -> Matches:
    """Return a function that tells whether the lines of a `.gitignore` ignore a file."""
    rules = [rule for line in lines if (rule := _rule(line))]

    def matches(name: str) -> bool:
        parts = name.split("/")
        folders = ["/".join(parts[:end]) for end in range(1, len(parts))]
        for negated, folders_only, pattern in reversed(rules):
            if any(map(pattern.fullmatch, folders)) or (not folders_only and pattern.fullmatch(name)):
                return not negated
        return False

    return matches


def _rule(line: str) -> tuple[bool, bool, re.Pattern[str]] | None:
    line = line.strip()
    if not line or line.startswith("#"):
        return None
    negated = line.startswith("!")
    line = line.removeprefix("!").removeprefix("\\")
    folders_only = line.endswith("/")
    line = line.rstrip("/")
    anchored = "/" in line
    line = line.lstrip("/").replace("{", "[{]").replace("}", "[}]")  # braces have no meaning there
    return negated, folders_only, glob(line if anchored else f"**/{line}")
