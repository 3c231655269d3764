"""Attributes and inline markup of AsciiDoc; each step takes time in proportion to the text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from html import unescape

from recto._util.markdown import escaped_tags

LONGEST_TITLE = 200  # characters that a reference without a text shows
_LONGEST_VALUE = 4_000  # characters of an attribute; definitions that repeat others grow exponentially
_MOST_ADDED = 1 << 20  # characters that the attributes of a page may add to it
INTRINSIC = {
    "amp": "&", "apos": "'", "asterisk": "*", "backslash": "\\", "backtick": "`", "blank": "", "brvbar": "¦",
    "caret": "^", "cpp": "C++", "cxx": "C++", "deg": "°", "empty": "", "endsb": "]", "gt": ">", "ldquo": "“",
    "lsquo": "‘", "lt": "<", "nbsp": "\xa0", "plus": "+", "pp": "++", "quot": '"', "rdquo": "”", "rsquo": "’",
    "sp": " ", "startsb": "[", "tilde": "~", "two-colons": "::", "two-semicolons": ";;", "vbar": "|",
    "wj": "\u2060", "zwsp": "\u200b",
    "asciidoctor": "", "backend": "html5", "backend-html5": "", "basebackend": "html", "filetype": "html",
    "basebackend-html": "", "outfilesuffix": ".html", "filetype-html": "", "sectids": "",
    "appendix-caption": "Appendix", "example-caption": "Example", "figure-caption": "Figure",
    "table-caption": "Table",
}  # fmt: skip
ENTRY = re.compile(r":(?P<unset>!?)(?P<name>\w[\w-]*)(?P<off>!?):(?:[ \t]++(?P<value>.*+))?")
_REFERENCE = re.compile(
    r"(?P<escape>\\?)\{(?:(?P<set>set|counter2?):)?(?P<name>\w[\w-]*+)(?::(?P<value>[^{}\n]*+))?\}"
)
_PASS = re.compile(r"pass:[a-z,]*\[(.*)\]")
_PASSED = re.compile(  # text in which nothing else is replaced; each kind ends at its next mark
    r"(?<!\\)(?:`\+(?P<code>[^`\n]++(?:\n[^`\n]++)*+)(?<=\+)`|\+\+\+(?P<triple>(?:[^+]++|\+(?!\+\+))*+)\+\+\+"
    r"|(?<!\+)\+\+(?P<double>(?:[^+]++|\+(?!\+))*+)\+\+"
    r"|(?<![\w;:+])\+(?=[^\s+])(?P<single>(?:[^+]++|(?<=\w)\+(?=\w))++)(?<!\s)\+(?![\w+]))"
)
_PART = re.compile(r"((?:[^,\"]++|\"[^\"]*+\"|\")++)(?:,|$)|,")
_ROLE = r"(?:\[(?P<role>[^\[\]\n]{0,200})\])?"


def _constrained(mark: str, before: str = r"\w;:}", after: str = r"\w") -> re.Pattern[str]:
    """Return the pattern of marks at the edges of words; inside, a mark is between word characters."""
    mark = re.escape(mark)
    inside = rf"(?:[^{mark}]++|(?<=\w){mark}(?=\w))++"
    return re.compile(
        rf"(?<![{before}\\]){_ROLE}{mark}(?=[^\s{mark}])(?P<text>{inside})(?<!\s){mark}(?![{after}])"
    )


def _unconstrained(mark: str) -> re.Pattern[str]:
    mark = re.escape(mark)
    inside = rf"[^{mark}]++(?:{mark}(?!{mark})[^{mark}]++)*+"
    return re.compile(rf"(?<!\\){_ROLE}{mark}{mark}(?P<text>{inside}){mark}{mark}")


_STRONG, _EMPHASIS, _CODE = "\x0e", "\x0f", "\x10"  # become Markdown's marks when all is replaced
_CURVED = r"(?=\S)(?P<role>)(?P<text>[^`\"]++(?:`(?!\")[^`\"]*+`[^`\"]*+)*+)"
_QUOTES = (
    ("*", _unconstrained("*"), _STRONG, _STRONG),
    ("*", _constrained("*"), _STRONG, _STRONG),
    ('"`', re.compile(rf"(?<![\w\\])\"`{_CURVED}`\"(?!\w)"), "“", "”"),
    ("'`", re.compile(r"(?<![\w\\])'`(?=\S)(?P<role>)(?P<text>[^`]++)`'(?!\w)"), "‘", "’"),
    ("`", _unconstrained("`"), _CODE, _CODE),
    ("`", _constrained("`", r"\w;:\"'`}", r"\w\"'`"), _CODE, _CODE),
    ("_", _unconstrained("_"), _EMPHASIS, _EMPHASIS),
    ("_", _constrained("_"), _EMPHASIS, _EMPHASIS),
    ("#", _unconstrained("#"), "", ""),
    ("#", _constrained("#", r"\w&;:}"), "", ""),
    ("^", re.compile(rf"(?<!\\){_ROLE}\^(?P<text>[^\s^]++)\^"), "", ""),
    ("~", re.compile(rf"(?<!\\){_ROLE}~(?P<text>[^\s~]++)~"), "", ""),
)
_CONTENT = r"\[(?P<content>[^\]]*+(?:(?<=\\)\][^\]]*+)*+)(?:\]|\Z)"  # ends at a bracket that is not escaped
_PASS_MACRO = re.compile(rf"(?<![\\\w])(?:(?P<math>stem|latexmath|asciimath)|pass):[a-z,]{{0,20}}{_CONTENT}")
_URL = r"(?:[^\s\[\]<>:\x02]++|:(?!//))*+"
_MACRO = re.compile(
    rf"(?P<escape>\\?)(?:(?P<url>(?:link:|\b)(?:https?|ftp|irc)://{_URL}(?:://{_URL}){{0,2}}+)|(?<!\w)(?P<name>"
    r"link|xref|mailto|icon|kbd|btn|menu|footnote|footnoteref|indexterm2?|anchor):(?!:)"
    rf"(?P<target>[^\s\[\]]{{0,300}}+(?: [^\s\[\]]{{1,30}}+){{0,3}}+)){_CONTENT}"
)
_IMAGE = re.compile(rf"(?<![\w\\])image:(?!:)[^\s\[\]]{{0,300}}+{_CONTENT}")
_ANCHOR = re.compile(
    r"\\?(?:\[\[\[(?P<entry>[^\[\],]{1,300})(?:,(?P<label>[^\[\]]{0,300}))?\]\]\]"
    r"|\[\[(?P<id>[\w:][\w:.-]*+)(?:,[^\[\]]{0,300})?\]\])"
)
_XREF = re.compile(r"\\?<<(?P<target>[\w#/.:{][^<>,\n]{0,500})(?:,\s*+(?P<text>[^<>]*+))?>>")
_NESTED = r"[^()]*+(?:\([^()]*+\)[^()]*+)*+"
_TERM = re.compile(rf"\(\(\({_NESTED}\)\)\)|\(\((?=[^()])(?P<term>{_NESTED})\)\)")
_ESCAPED = re.compile(r"\\(?=[*_`#^~+<\[{]|(?:https?|link|xref|image|include)[:])")
_BREAK = re.compile(r" \+$", re.MULTILINE)
_ENTITY = re.compile(r"&(?:[a-zA-Z]{2,8}\d{0,2}|#\d{2,6}|#x[\da-fA-F]{2,5});")
_TAG = re.compile(r"<[^<>]*>")
_NAMED = re.compile(r"^[\w-]+=|,\s*[\w-]+=")
_NOT_SHOWN = frozenset({"icon", "indexterm", "anchor", "footnoteref"})


class Attributes:
    """The attributes of a page, and how much text their references have added."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values = {**INTRINSIC, **values}
        self._left = _MOST_ADDED

    def enter(self, entry: re.Match[str]) -> None:
        """Set or unset the attribute of an entry; its value is final, so that no two refer to each other."""
        name, value = entry["name"].lower(), (entry["value"] or "").strip()
        if entry["unset"] or entry["off"]:
            self.values.pop(name, None)
            return
        if passed := _PASS.fullmatch(value):
            value = passed[1]
        if name == "leveloffset" and value[:1] in ("+", "-"):
            value = str(self.offset + number_of(value))
        self.values[name] = self.resolve(value)[:_LONGEST_VALUE]

    @property
    def offset(self) -> int:
        """The number of levels that headings are moved down."""
        return number_of(self.values.get("leveloffset", ""))

    def resolve(self, text: str) -> str:
        """Replace references to attributes; unknown ones stay."""
        return _REFERENCE.sub(self._value, text) if "{" in text else text

    def _value(self, found: re.Match[str]) -> str:
        name = found["name"].lower()
        if found["escape"]:
            return found[0][1:]
        if found["set"] == "set":
            self.values[name] = (found["value"] or "")[:_LONGEST_VALUE]
            return ""
        if found["set"]:
            before = self.values.get(f" {name}", found["value"] or "0")
            self.values[name] = self.values[f" {name}"] = str(number_of(before) + 1)
            return self.values[name] if found["set"] == "counter" else ""
        value = self.values.get(name)
        if value is None or found["value"] is not None or self._left < len(value):
            return found[0]
        self._left -= len(value)
        return value


def attribute_list(content: str) -> dict[str, str]:
    """Return the attributes of a block or a macro; those without a name are numbered from "0"."""
    found = {}
    for index, part in enumerate(_PART.findall(content[:_LONGEST_VALUE])):
        name, equals, value = part.partition("=")
        named = bool(equals) and re.fullmatch(r"[\w.:-]+", name.strip())
        found[name.strip() if named else str(index)] = (value if named else part).strip().strip("\"'")
    return found


def without_tags(text: str) -> str:
    """Return the text of a piece of HTML."""
    for name in ("script", "style"):
        last = text.rfind(f"</{name}>")  # no search for a missing end
        text = (
            re.sub(rf"(?s)<{name}\b.*?(?:</{name}>|\Z)", "", text[: last + 9]) + text[last + 9 :]
            if last > 0
            else text
        )
    return _TAG.sub("", text)


def number_of(text: str) -> int:
    """Return a small whole number; 0 for any other text."""
    return int(text) if re.fullmatch(r"[+-]?\d{1,6}", text.strip(), re.ASCII) else 0


class Inline:
    """Turns inline markup into words with Markdown's marks; `anchors` collects the anchors that it finds."""

    def __init__(self, attributes: Attributes) -> None:
        self._attributes = attributes
        self.anchors: list[str] = []

    def words(self, text: str) -> str:
        """Return text without marks, such as that of a heading, on one line."""
        shown = self._replaced(text)
        return " ".join(re.sub(f"[{_STRONG}{_EMPHASIS}{_CODE}]", "", shown).split())

    def text(self, text: str) -> str:
        """Return text with Markdown's marks."""
        parts = self._replaced(text).split(_CODE)  # each second one is code
        parts[::2] = map(escaped_tags, parts[::2])
        return "`".join(parts).replace(_STRONG, "**").replace(_EMPHASIS, "*")

    def _replaced(self, text: str) -> str:
        kept: list[str] = []

        def keep(found: re.Match[str]) -> str:
            kept.append(_passed_text(found))
            return f"\x02{len(kept) - 1}\x03"

        text = _to_last_bracket(_PASS_MACRO, keep, text) if "[" in text else text
        text = _PASSED.sub(keep, text) if "+" in text else text
        for mark, pattern, before, after in _QUOTES:
            if mark in text:
                text = pattern.sub(self._quoted(before, after), text)
        text = self._attributes.resolve(text).replace("`'", "’")
        if "[" in text:
            if "image:" in text:  # the text of a link may be an image
                text = _to_last_bracket(_IMAGE, _alternative, text)
            text = _to_last_bracket(_MACRO, self._macro, text)
            text = _ANCHOR.sub(self._anchor, text)
        if "<<" in text:
            text = _XREF.sub(_reference, text)
        if "((" in text:
            text = _TERM.sub(lambda found: found["term"] or "", text)
        text = _BREAK.sub("", text) if " +" in text else text
        text = _ESCAPED.sub("", text) if "\\" in text else text
        text = _ENTITY.sub(lambda found: unescape(found[0]), text) if "&" in text else text
        return re.sub(r"\x02(\d{1,9})\x03", lambda found: kept[int(found[1])], text) if kept else text

    def _quoted(self, before: str, after: str) -> Callable[[re.Match[str]], str]:
        def replaced(found: re.Match[str]) -> str:
            role = found["role"] or ""
            if "#" in role:
                self.anchors.append(re.split(r"[.%,]", role.partition("#")[2])[0])
            return f"{before}{found['text']}{after}"

        return replaced

    def _anchor(self, found: re.Match[str]) -> str:
        if found[0][0] == "\\":
            return found[0][1:]
        self.anchors.append(found["id"] or found["entry"])
        return f"[{found['label'] or found['entry']}]" if found["entry"] else ""

    def _macro(self, found: re.Match[str]) -> str:
        name, target, content = found["name"], found["target"], found["content"].replace("\\]", "]")
        if found["escape"]:
            return found[0][1:]
        if name == "anchor":
            self.anchors.append(target)
        if found["url"]:
            target = found["url"].removeprefix("link:")
            hidden = "hide-uri-scheme" in self._attributes.values
            shown = target.partition("://")[2] if hidden else target
        elif name == "menu":
            shown = " › ".join(part.strip() for part in (target, *content.split(">")) if part.strip())
            content = ""
        elif name == "footnote":
            return f" [{content}]" if content else ""
        else:
            shown = f"\x04{target}\x05" if name == "xref" else target
        return "" if name in _NOT_SHOWN else _label(content) or shown


def _passed_text(found: re.Match[str]) -> str:
    groups = found.groupdict()
    if "content" in groups:
        content = found["content"].replace("\\]", "]")
        return f"${content}$" if found["math"] else unescape(without_tags(content))
    if found["code"] is not None:
        return f"{_CODE}{found['code'][:-1]}{_CODE}"
    return (
        unescape(without_tags(found["triple"]))
        if found["triple"] is not None
        else found["double"] or found["single"] or ""
    )


def _to_last_bracket(pattern: re.Pattern[str], new: Callable[[re.Match[str]], str], text: str) -> str:
    """Replace macros; behind the last bracket none is complete, and no search for their end is needed."""
    last = text.rfind("]")
    while last > 0 and text[last - 1] == "\\":
        last = text.rfind("]", 0, last)
    return pattern.sub(new, text[: last + 1]) + text[last + 1 :]


def _label(content: str) -> str:
    """Return the text of a link without its attributes."""
    content = content.strip()
    if _NAMED.search(content):
        quoted = re.match(r'"([^"]*)"', content)
        content = (
            quoted[1] if quoted else "" if "=" in content.partition(",")[0] else content.partition(",")[0]
        )
    return content.removesuffix("^").strip() if "\n" not in content else content.removesuffix("^")


def _alternative(found: re.Match[str]) -> str:
    """Return the text that stands for an image."""
    return _label(found["content"]).partition(",")[0]


def _reference(found: re.Match[str]) -> str:
    if found[0][0] == "\\":
        return found[0][1:]
    return found["text"] or f"\x04{found['target'].strip()}\x05"


class References:
    """The ids of a page with the texts that refer to them, and the numbers of its figures and tables."""

    def __init__(self, attributes: Attributes) -> None:
        self._values = attributes.values
        self.titles: dict[str, str] = {}

    def add(self, name: str, title: str) -> None:
        """Add an id; the first text that it has stays."""
        self.titles[name] = self.titles.get(name) or title[:LONGEST_TITLE]

    def linked(self, line: str) -> str:
        """Replace references without a text by the titles of their targets."""
        return re.sub(r"\x04([^\x04\x05]*+)\x05", self._title, line) if "\x04" in line else line

    def _title(self, found: re.Match[str]) -> str:
        name = found[1].removeprefix("#")
        return self.titles.get(name) or (found[1] if "." in name else f"[{name}]")

    def label(self, kind: str) -> str:
        """Return the label of the next block of a kind, such as `Table 1`; "" if it has none."""
        caption = self._values.get(f"{kind}-caption", "")
        number = number_of(self._values.get(f"{kind}-number", "0")) + 1
        self._values |= {f"{kind}-number": str(number)} if caption else {}
        shown = chr(64 + min(number, 26)) if kind == "appendix" else str(number)
        return f"{caption} {shown}" if caption else ""

    def unique(self, name: str) -> str:
        """Return an id that nothing else has."""
        separator, number, candidate = self._values.get("idseparator", "_")[:1], 2, name
        if name in self.titles:
            number = max(number, number_of(self.titles.get(f" {name}", "")))
            while (candidate := f"{name}{separator}{number}") in self.titles:
                number += 1
            self.titles[f" {name}"] = str(number)  # the next search begins here
        return candidate


def title_id(title: str, values: Mapping[str, str]) -> str:
    """Return the id of a heading as Asciidoctor makes it."""
    prefix, separator = values.get("idprefix", "_"), values.get("idseparator", "_")[:1]
    text = re.sub(r"(?<=\w)--(?=\w)|(?:^| )--(?: |$)|\.\.\.", "", title.lower())
    text = prefix + re.sub(r"[^\w .-]", "", text)
    if not separator:
        return text.replace(" ", "")
    also = "" if separator in "-." else re.escape(separator)
    text = re.sub(rf"[ .\-{also}]+", separator, text).removesuffix(separator)
    return text if prefix else text.removeprefix(separator)
