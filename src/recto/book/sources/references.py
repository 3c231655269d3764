"""The words that Sphinx shows for references without a text: titles of pages and of labelled sections."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from posixpath import dirname, join, normpath

from recto.book.parsing.directives import reference_words, role_text
from recto.book.parsing.frontmatter import split_front_matter, stated
from recto.book.parsing.markdown.headings import heading_texts
from recto.book.sources.includes import code_ranges

_ROLE = re.compile(
    r"(?::(?P<rst>[A-Za-z][\w:+.-]{0,40}):|\{(?P<myst>[A-Za-z][\w:+.-]{0,40})\})`(?P<text>[^`<>]{1,500})`"
    r"|(?<!!)\[\]\((?P<link>[^()\s]{1,500})\)"
    r"|(?<![^\s'\"(\[{</-])`(?=\S)(?P<plain>[^`]{1,500})`(?![`_])"
)
_UNDERLINE = r"(?:={3,}|-{3,}|~{3,}|\^{3,}|\*{3,}|#{3,}|\"{3,}|\+{3,}|'{3,}|`{3,}|:{3,}|\.{3,}|_{3,})"
_TITLE = rf"(?:{_UNDERLINE}[ \t]*\n)?[ \t]*(?P<rst>\S[^\n]*)\n{_UNDERLINE}[ \t]*$"
_PAGE_TITLE = re.compile(rf"^# +(?P<atx>[^\n]+)|^(?![ \t]*(?:\.\.|:[\w-]+:)[ \t\w]*$){_TITLE}", re.MULTILINE)
_MARKDOWN = re.compile(r"\A---\n|^#{1,6} |^(?:`{3,}|:{3,})\{", re.MULTILINE)
_LABEL = re.compile(
    r"^[ \t]*(?:\.\. _(?P<rst>`[^`\n]+`|(?:\\.|[^:`\\\n])+):|\((?P<myst>[^()\n]+)\)=)[ \t]*\n", re.MULTILINE
)
_LABELLED = re.compile(
    rf"^(?:[ \t]*+\n|[ \t]*+\.\. (?:_[^\n]*+|index::[^\n]*+(?:\n[ \t]++\S[^\n]*+){{0,20}}+)\n"
    rf"|\([^()\n]++\)=[ \t]*+\n){{0,20}}"
    rf"(?:#{{1,6}} +(?P<atx>[^\n]+)|{_TITLE}|"
    r"[ \t]*+\.\. figure::[^\n]*+\n(?:[ \t]++:[^\n]*+\n)*+[ \t]*+\n[ \t]++(?P<caption>[^\n]+))",
    re.MULTILINE,
)
_ROLE_MARKUP = re.compile(r":([A-Za-z][\w:+.-]{0,40}):`([^`]{1,500})`")
_DOCUMENT_SUFFIX = re.compile(r"\.(?:md|rst|ipynb)(#[^#]*)?$")
_GENERATED = {"genindex": "Index", "modindex": "Module Index", "search": "Search Page"}
_MOST_REFERENCES = 5_000  # on a page


def page_title(text: str) -> str:
    """Return the first heading of a page in Markdown or reStructuredText, else its stated title."""
    front_matter, body, _ = split_front_matter(text)
    in_code, is_markdown = code_ranges(body), _MARKDOWN.search(text)  # there, a fence looks like an underline
    found = (heading for heading in _PAGE_TITLE.finditer(body) if heading["atx"] or not is_markdown)
    heading = next((heading for heading in found if not in_code(heading.start())), None)
    return _words(heading["atx"] or heading["rst"]) if heading else stated(front_matter, "title") or ""


def _words(title: str) -> str:
    """Return a title without its markup."""
    title = _ROLE_MARKUP.sub(lambda role: role_text(role[1], role[2]), title.strip())
    return heading_texts(title.replace("\\ ", "").replace("``", "`"))[0]


def normal_label(label: str) -> str:
    """Return a label as Sphinx compares it."""
    return " ".join(label.replace("\\", "").strip("`").lower().split())


class References:
    """The titles of the pages and labels of a site."""

    def __init__(self, load: Callable[[str], str], roles: Mapping[str, str], default: str = "") -> None:
        """Take a function that returns the text of a document ("" if there is none), and roles.

        `default` is the role of texts without one.
        """
        self._load, self._roles, self._default = load, roles, default
        self._titles: dict[str, str] = {}
        self._labels: dict[str, str] = dict(_GENERATED)
        self._waiting: Sequence[str] = ()

    def index(self, documents: Sequence[str]) -> None:
        """Name the documents whose labels can be referred to; they are read when a label is needed."""
        self._waiting = documents

    def words(self, document: str, text: str) -> Iterator[tuple[str, str]]:
        """Yield the roles of a page that need words, such as `ref my-label`, with their words."""
        seen = set[str]()
        for role in _ROLE.finditer(text):
            name = "" if role["plain"] else (role["rst"] or role["myst"] or "link").lower()
            target = " ".join((role["plain"] or role["text"] or role["link"]).split())
            key = f"{name} {target}"
            if (
                key not in seen
                and len(seen) < _MOST_REFERENCES
                and (words := self._words(name, target, document))
            ):
                seen.add(key)
                yield key, words

    def _words(self, name: str, target: str, document: str) -> str:
        """Return the words of a role; those of the default one name an object if `any` finds no title."""
        role = name or self._default
        words = self._resolved(role, target, document)
        return words if words or name or not role else role_text("obj" if role == "any" else role, target)

    def _resolved(self, name: str, target: str, document: str) -> str:
        kind = name.removeprefix("std:")
        words = ""
        if kind == "link":
            kind, target = "any", _DOCUMENT_SUFFIX.sub(r"\1", target)
            if "#" in target:
                return self._label(target.partition("#")[2]) or reference_words(target)
        if kind in ("doc", "any"):
            path = target[1:] if target.startswith("/") else normpath(join(dirname(document), target))
            words = self._title(path)
        if kind in ("ref", "any") and not words:
            words = self._label(target)
        if kind in self._roles:
            words = self._roles[kind].replace("%s", target)
        return words

    def _title(self, document: str) -> str:
        if document not in self._titles:
            self._titles[document] = page_title(self._load(document))
        return self._titles[document]

    def _label(self, label: str) -> str:
        for document in self._waiting:
            self._labels |= dict(_labels(self._load(document)))
        self._waiting = ()
        return self._labels.get(normal_label(label), "")


def _labels(text: str) -> Iterator[tuple[str, str]]:
    """Yield the labels of a page that stand before a heading or a figure, with its title."""
    for label in _LABEL.finditer(text):
        if labelled := _LABELLED.match(text, label.end()):
            title = labelled["atx"] or labelled["rst"] or labelled["caption"]
            yield normal_label(label["rst"] or label["myst"]), _words(title)
