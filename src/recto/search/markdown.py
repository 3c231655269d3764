"""Markdown for readers and models: without tags, addresses and half code blocks; or as plain text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any

from recto._util.markdown import FENCE_MARKS, SENTENCE_END


class _Pattern:
    """A regular expression that is compiled when it is first used, so that a search starts fast."""

    def __init__(self, pattern: str, flags: int = 0) -> None:
        self._pattern, self._flags = pattern, flags

    def __getattr__(self, name: str) -> Any:
        """Return a method of the compiled expression, and keep it."""
        method = self.__dict__[name] = getattr(re.compile(self._pattern, self._flags), name)
        return method


_FENCE = _Pattern(
    rf"^(?P<indent>[ \t>]*(?:(?:[-*+]|\d+[.)])[ \t]+)*)(?P<marks>{FENCE_MARKS})[ \t]*(?P<info>[^`\n]*)$"
)
_STRAY_MARKS = _Pattern(rf"(?:{FENCE_MARKS})[\w-]*")
_CODE_TITLE = _Pattern(r"\b(?:title|filename)=\"([^\"]+)\"|[ \t`~]\[([^\[\]]+?)(?: ~[\w:-]+~)?\]")
_SENTENCE_END = _Pattern(SENTENCE_END)
_MIN_SENTENCE, _MAX_SENTENCE = 20, 300  # characters; less is a label, and a query is not longer
_LONG = 160  # characters of an address that says nothing to a reader
_LONG_LINE = 20  # characters; shorter lines, such as a brace, occur in any tab
_CODE_SPAN = _Pattern(r"(?<![`\\])(`+)(?!`)(?:(?!\n[ \t]*\n)[\s\S])*?(?<!`)\1(?!`)")
_MASK = _Pattern("\ue000(\\d+)\ue001")
_TAG = _Pattern(
    r"(?<!\\)<(?:!--[\s\S]*?(?:-->|\Z)|!\[?[A-Za-z][^<>]*>|/?[A-Za-z][\w.:-]*(?:\s[^<>]*)?/?>|/?>)"
)
_COLOR = _Pattern(r"</?(?:span|font|b|u|i|a)\b[^<>]*>")
_ALT = _Pattern(r"\s(?:alt|label|text)=[\"']([^\"']+)[\"']")
_AUTOLINK = _Pattern(r"<((?:https?://|mailto:)[^<>\s]+|[\w.+-]+@[\w.-]+)>")
_ADDRESS = r"(?:[^()\s]|\([^()\s]*+\))*+"
_TARGET = rf"\((?:{_ADDRESS}|<[^<>\n]*+>{_ADDRESS})(?:\s++(?:\"[^\"]*+\"|'[^']*+'))?\s*+\)"
_LINK = _Pattern(rf"!?\[((?:[^\[\]]++|\[[^\[\]]*+\])*+)\](?:{_TARGET}|\[[^\[\]\n]*\])")
_LINK_END = _Pattern(rf"\]{_TARGET}|\]\([^()\s]*+(?=\s|\Z)")
_DEFINITION = _Pattern(
    r"^[ \t]{0,3}\[(?!\^)[^\[\]\n]+\]:[ \t]*+(?:<[^<>\n]*+>|[^\s<]\S*+)"
    r"(?:[ \t]++(?:\"[^\n]*\"|'[^\n]*'|\([^\n]*\)))?+[ \t]*+$\n?",
    re.MULTILINE,
)
_FOOTNOTE = _Pattern(r"\[\^[^\[\]\s]+\](:?)")
_ATTRIBUTES = _Pattern(
    r"[ \t]?\{:?[ \t]*+(?:[#.][\w-][^{}\n]*+|[\w-]++=(?:\"[^\"]*+\"|'[^']*+')[^{}\n]*+|data-preview[ \t]*+)\}"
)
_LONG_ADDRESS = _Pattern(
    r"data:[\w/+.-]+;base64,[\w+/=]*|https?://[^\s<>()\"'`]{160,}|[A-Za-z0-9+/=_-]{160,}"
)
_URL = _Pattern(r"https?://[^\s<>()]+")
_SEE_ALSO = _Pattern(
    r"[*\s]*(?:see also|(?:further|additional|more|related|useful|external) (?:information|reading|resources|"
    r"links|topics|documentation)|learn more|siehe auch|weiterführende links?|voir aussi|véase también|"
    r"ver também|veja também|另请参阅|参见|関連項目)[*\s:.]*$",
    re.IGNORECASE,
)
_RELEASE = _Pattern(  # such as "Name 1.2.0b1 (2020-12-18)" or "[1.2.0] November 11, 2025"
    r"(?:[^\W\d][\w.-]*+ )?\W?v?\d++(?:\.\d++){2}[\w.+-]*+[\W\d]*+(?:[^\W\d]{3,9}[\W\d]++)?"
)
_ITEM = _Pattern(r"[ \t]*(?:[-*+:]|\d{1,3}\.) ")
_MAX_LINK_ITEM = 120  # characters; a longer item says more than where to read on
_HEADING = _Pattern(r"^[ \t]{0,3}#{1,6}[ \t].*$", re.MULTILINE)
_SHORTCODE = _Pattern("(?<![\\w:/]):([a-z][a-z0-9_+-]*):(?![\\w:`\ue000])")
_ADMONITION = _Pattern(
    r"""^(?P<indent>[ \t>]*)(?::{3,}|/{3,}|(?P<classes>!!!|\?{3}\+?))[ \t]*(?P<kind>[A-Za-z][\w-]*+)?"""
    r"""(?(classes)(?:[ \t]++[\w-]++)*+)"""
    r"""(?:[ \t]*[\["](?P<title>[^\]"\n]*)[\]"]|[ \t]*\|[ \t]*(?P<piped>.*)|[ \t]+(?P<rest>[^\s{].*))?.*$""",
    re.MULTILINE,
)
_TAB = _Pattern(
    r"""^(?P<indent>[ \t]*)"""
    r"""(?:===[!+]?[ \t]+"(?P<title>.*)"|(?P<marks>/{3,})[ \t]*tab[ \t]*\|[ \t]*(?P<name>.*))$"""
)
_BOXES = _Pattern("[\u2500-\u259f]+")
_EMPHASIS = _Pattern(
    r"(?<![\w\\*])(\*{1,3}(?!\*)|_{1,3}|~~|==|\^\^)(?=\S)([^\n]{0,300}?[^\s\\])(?<![ \t]\*)\1"
    r"(?:(?<=[^*]\*\*)|(?!\w))"
)
_PYTHON_NAMES = {name for kind in (dict, int, type) for name in dir(kind) if name.startswith("__")}
_PYTHON_NAMES |= {"__all__", "__enter__", "__exit__", "__file__", "__getattr__", "__main__", "__post_init__"}
_LINE_START = _Pattern(r"^[ \t>]*(?:#{1,6}[ \t]+|[-*+][ \t]+(?:\[[ xX]\][ \t]+)?)?")
_RULE = _Pattern(r"(?:[ \t|:+=*_-]*+>)*+(?=.*?(?:[-=*_]{3}|-:?\|))[ \t|:+=*_-]*+")
_ESCAPE = _Pattern(r"\\([!-/:-@\[-`{-~])")
_BLANK_LINES = _Pattern(r"\n[ \t]*\n(?:[ \t]*\n)+")


def clean_markdown(text: str, hits: Sequence[str] = (), *, all_tabs: bool = False) -> str:
    """Return Markdown without tags, addresses and other marks that say nothing; code stays as it is.

    Code blocks are complete. Of several tabs, one is kept: the one with the most lines of the first of `hits`
    that is in a tab, or else the first.
    """
    hit_lines = [{line.strip() for line in hit.split("\n") if len(line) > _LONG_LINE} for hit in hits]
    lines = _choose_tabs(close_fences(text).split("\n"), hit_lines, all_tabs=all_tabs)
    parts = (
        _clean_code(part) if is_code else _clean_prose("\n".join(part)) for is_code, part in _parts(lines)
    )
    return str(_BLANK_LINES.sub("\n\n", "\n".join(parts)).strip("\n"))


@lru_cache(maxsize=1024)  # the same chunks are results of many queries
def plain_text(text: str) -> str:
    """Return what a reader of the page sees, without any markup; each line stays a line."""
    shown: list[str] = []
    for is_code, part in _parts(_choose_tabs(close_fences(text).split("\n"), (), all_tabs=True)):
        if is_code:
            shown += (title[1] or title[2] for title in _CODE_TITLE.finditer(part[0]))
            shown += _clean_code(part).split("\n")[1:-1]
        else:
            prose = _CODE_SPAN.sub(_span_by_line, _clean_prose("\n".join(part)))
            shown += map(_plain_line, prose.split("\n"))
    lines = (_BOXES.sub(" ", line).rstrip() for line in shown)
    return "\n".join(line for line in lines if line.strip() and not _RULE.fullmatch(line))


def first_sentence(text: str) -> str:
    """Return the first sentence of the prose in Markdown, or its first words if it is all code or a table."""
    lines = (
        line
        for is_code, part in _parts(close_fences(text).split("\n"))
        for line in ([] if is_code else _clean_prose("\n".join(part)).split("\n"))
        if not line.lstrip().startswith("|")
    )
    prose = " ".join(" ".join(map(_plain_line, lines)).split())
    sentences = (sentence for sentence in _SENTENCE_END.split(prose) if len(sentence) >= _MIN_SENTENCE)
    sentence = next(sentences, prose) or " ".join(text.split())
    start = sentence[:_MAX_SENTENCE]
    return sentence if start == sentence else start.rpartition(" ")[0] or start


@lru_cache(maxsize=1024)  # the same chunks are results of many queries
def is_link_list(text: str, headings: tuple[str, ...] = ()) -> bool:
    """Return whether most letters of the prose in Markdown are in texts of links, or in addresses.

    Other formats lose the marks of links: there, a short list below a heading such as "See also" is one.
    """
    lines = [line for line in text.split("\n") if line.strip()]
    if any(map(_SEE_ALSO.match, (*headings[-1:], *lines[:1]))):
        items = sum(_ITEM.match(line) is not None for line in lines)
        if 2 * items >= len(lines) and len(text) <= items * _MAX_LINK_ITEM:
            return True
    if "](" not in text and "][" not in text and "://" not in text:
        return False
    parts = _parts(close_fences(text).split("\n"))
    prose = _DEFINITION.sub("", "\n".join("\n".join(part) for is_code, part in parts if not is_code))
    prose = _HEADING.sub("", prose)
    links = [link[1] for link in _LINK.finditer(prose) if not link[0].startswith("!")]
    rest = _LINK.sub("", prose)
    links += _URL.findall(rest)
    rest = _TAG.sub("", _URL.sub("", rest))
    return sum(map(_letters, links)) > _letters(rest)


def is_release(heading: str) -> bool:
    """Return whether a heading is only the number of a release, with its name and its date if it has them."""
    return _RELEASE.fullmatch(heading) is not None


def _letters(text: str) -> int:
    return sum(map(str.isalnum, text))


def without_tags(text: str) -> str:
    """Return Markdown with complete code blocks and no tags, for a renderer that shows tags as text."""
    parts = _parts(close_fences(text).split("\n"))
    return "\n".join(
        "\n".join(part) if is_code else _edit("\n".join(part), _strip_tags) for is_code, part in parts
    )


def one_line(text: str) -> str:
    """Return a title or a heading, which is plain text except for shortcodes, on one line."""
    text = _SHORTCODE.sub(lambda name: _emoji(name) or ("" if "-" in name[1] else name[0]), text)
    return " ".join(text.split())


def close_fences(text: str) -> str:
    """Return Markdown whose code blocks all have both marks: a part of a block gets the one that it lacks."""
    lines = text.split("\n")
    blocks, opened = _code_blocks(lines)
    if opened is None:
        return text
    fence = _FENCE.match(lines[opened])
    first = next(number for number, block in enumerate(blocks) if block)
    bare = _FENCE.match(lines[first])
    if fence is None or bare is None:
        return text
    if first and not bare["info"].strip() and any(line.strip() for line in lines[:first]):
        # A block that begins in this text has a language; without one, this text begins in the block.
        return close_fences(f"{bare['indent']}{bare['marks']}\n{text}")
    if not any(line.strip() for line in lines[opened + 1 :]):
        return "\n".join(lines[:opened]).rstrip("\n")
    return f"{text}\n{' ' * len(fence['indent'])}{fence['marks']}"


def _code_blocks(lines: Sequence[str]) -> tuple[list[int], int | None]:
    """Return for each line the number of its code block, or 0, and the line of a fence that is not closed."""
    blocks: list[int] = []
    opened: tuple[int, str] | None = None
    count = 0
    for number, line in enumerate(lines):
        fence = _FENCE.match(line) if "```" in line or "~~~" in line else None
        if opened is None and fence:
            count += 1
            opened = number, fence["marks"]
            blocks.append(count)
            continue
        blocks.append(count if opened else 0)
        if opened and fence and fence["marks"].startswith(opened[1]) and not fence["info"].strip():
            opened = None
    return blocks, opened[0] if opened else None


def _parts(lines: Sequence[str]) -> Iterator[tuple[bool, list[str]]]:
    """Yield the code blocks of a text with complete fences, and the prose between them."""
    for block, numbered in groupby(zip(_code_blocks(lines)[0], lines, strict=True), key=itemgetter(0)):
        yield bool(block), [line for _, line in numbered]


def _choose_tabs(lines: Sequence[str], hit_lines: Sequence[set[str]], *, all_tabs: bool) -> list[str]:
    """Return the lines with one tab of each group, or all of them; a line with its title is before each."""
    kept: list[str] = []
    group: list[tuple[str, list[str]]] = []  # titles and lines of tabs that follow each other
    blocks, _ = _code_blocks(lines)
    number = 0
    while number < len(lines):
        marked = lines[number].lstrip().startswith(("===", "///"))
        tab = _TAB.match(lines[number]) if marked and not blocks[number] else None
        if tab:
            end, body = _tab_body(lines, number, tab)
            group.append(
                (tab["title"] or tab["name"] or "", _choose_tabs(body, hit_lines, all_tabs=all_tabs))
            )
            number = end
            continue
        if lines[number].strip() and group:
            kept += _shown_tabs(group, hit_lines, all_tabs=all_tabs)
            group = []
        kept.append(lines[number])
        number += 1
    return [*kept, *_shown_tabs(group, hit_lines, all_tabs=all_tabs)]


def _tab_body(lines: Sequence[str], first: int, tab: re.Match[str]) -> tuple[int, list[str]]:
    """Return where a tab ends, and its lines without their indentation."""
    end = first + 1
    if tab["marks"]:
        while end < len(lines) and lines[end].strip() != tab["marks"] and not _TAB.match(lines[end]):
            end += 1
        closed = end < len(lines) and lines[end].strip() == tab["marks"]
        return end + closed, list(lines[first + 1 : end])
    indent = len(tab["indent"]) + 1
    while end < len(lines) and (not lines[end].strip() or lines[end][:indent].isspace()):
        end += 1
    from textwrap import dedent

    return end, dedent("\n".join(lines[first + 1 : end])).split("\n")


def _shown_tabs(
    group: Sequence[tuple[str, list[str]]], hit_lines: Sequence[set[str]], *, all_tabs: bool
) -> Iterator[str]:
    filled = [tab for tab in group if any(line.strip() for line in tab[1])]
    if not all_tabs:
        shared = ([sum(line.strip() in lines for line in body) for _, body in filled] for lines in hit_lines)
        counts = next(filter(any, shared), [0])
        first = counts.index(max(counts))
        filled = filled[first : first + 1]
    for title, body in filled:
        yield from ("", f"{title.strip()}:", "", *body, "")


def _clean_code(block: Sequence[str]) -> str:
    """Return a code block; only a recorded terminal session has tags, which color its text."""
    fence, text = _FENCE.match(block[0]), "\n".join(block)
    return _COLOR.sub("", text) if fence and fence["info"].startswith("console") else text


def _clean_prose(text: str) -> str:
    """Return prose without tags, addresses, attributes, shortcodes and marks of admonitions."""
    return _edit(text, _strip_markup)


def _edit(text: str, edit: Callable[[str], str], code: Callable[[str], str] = str) -> str:
    """Edit prose but not the code spans in it, which `code` changes."""
    spans: list[str] = []

    def mask(span: re.Match[str]) -> str:
        spans.append(code(span[0]))
        return f"\ue000{len(spans) - 1}\ue001"

    masked = _CODE_SPAN.sub(mask, text.replace("\ue000", "").replace("\ue001", ""))
    return str(_MASK.sub(lambda mark: spans[int(mark[1])], edit(masked)))


def _strip_tags(text: str) -> str:
    return str(_TAG.sub(_tag_text, text)) if "<" in text else text


def _link_text(link: re.Match[str]) -> str:
    """Return the text of a link; brackets after a word, as in `map[string][]string`, are code."""
    before = link.string[max(link.start() - 1, 0) : link.start()]
    return link[0] if link[0].endswith("]") and re.fullmatch(r"[\w\]]", before) else link[1]


def _strip_markup(text: str) -> str:
    if "]:" in text:
        text = _DEFINITION.sub("", text)
    if "<" in text:
        text = _strip_tags(_AUTOLINK.sub(r"\1", text))
    for _ in range(3):  # an image in a link, and brackets in its text
        if "](" in text or "][" in text:
            text = _LINK.sub(_link_text, text)
    if "](" in text:
        text = _LINK_END.sub("", text)
    if "[^" in text:
        text = _FOOTNOTE.sub("", text)
    if "{" in text:
        text = _ATTRIBUTES.sub("", text)
    if ":" in text:
        text = _SHORTCODE.sub(_emoji, text)
    if any(mark in text for mark in (":::", "///", "!!!", "???")):
        text = _ADMONITION.sub(_admonition_title, text)
    return _without_long_addresses(text)


def _without_long_addresses(text: str) -> str:
    return str(_LONG_ADDRESS.sub("…", text)) if len(text) > _LONG or "base64" in text else text


def _tag_text(tag: re.Match[str]) -> str:
    """Return what a reader sees of a tag: the alternative text of an image, or a line break."""
    if tag[0].startswith("<!--"):
        return ""
    alt = _ALT.search(tag[0])
    return alt[1] if alt else " " if tag[0].lower().startswith(("<br", "<td", "<th", "<li", "<p")) else ""


def _emoji(shortcode: re.Match[str]) -> str:
    """Return the character of a shortcode; icons of a theme and unknown names are dropped."""
    import unicodedata

    try:
        return unicodedata.lookup(shortcode[1].replace("_", " "))
    except KeyError:
        return ""


def _admonition_title(mark: re.Match[str]) -> str:
    title = (mark["title"] or mark["piped"] or mark["rest"] or mark["kind"] or "").strip().strip('"')
    return f"{mark['indent']}{title[:1].upper()}{title[1:]}:" if title else mark["indent"].rstrip()


def _span_by_line(span: re.Match[str]) -> str:
    """Return a code span as one span on each of its lines."""
    return re.sub(r"\n[ \t>]*", rf"{span[1]}\g<0>{span[1]}", span[0])


def _plain_line(line: str) -> str:
    """Return a line of prose without marks of headings, lists, quotations, tables, emphasis and code."""
    return _edit(line, _strip_marks, lambda span: span.strip("`").strip())


def _strip_marks(line: str) -> str:
    if line.lstrip().startswith("|") or line.count("|") > 1:
        line = " ".join(cell.strip() for cell in line.replace("\\|", "\ue002").split("|")).replace(
            "\ue002", "|"
        )
    line = _STRAY_MARKS.sub("", _LINE_START.sub("", line, count=1))
    return str(_ESCAPE.sub(r"\1", _EMPHASIS.sub(_inner, _EMPHASIS.sub(_inner, line))))  # bold and italic


def _inner(emphasis: re.Match[str]) -> str:
    """Return the text of an emphasis; a name such as `__init__` is none, although Markdown says so."""
    return emphasis[0] if emphasis[0] in _PYTHON_NAMES else emphasis[2]
