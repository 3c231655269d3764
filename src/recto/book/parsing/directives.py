"""The directives and roles of reStructuredText and MyST: which hold text, and the words that they show."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from recto.book.parsing.objects import is_object

_WORD_BREAK = re.compile(r"[-_:/.\s]+")
REFERENCE_KINDS = {
    "fig": "Figure", "img": "Figure", "tbl": "Table", "tab": "Table", "table": "Table", "sec": "Section",
    "subsec": "Section", "section": "Section", "chap": "Chapter", "chapter": "Chapter", "eq": "Equation",
    "lst": "Listing", "thm": "Theorem", "lem": "Lemma", "cor": "Corollary", "prp": "Proposition",
    "def": "Definition", "exm": "Example", "exr": "Exercise",
}  # fmt: skip
_ADMONITIONS = frozenset(
    {"note", "warning", "tip", "hint", "important", "caution", "danger", "attention", "error", "seealso"}
    | {"todo", "exercise", "solution", "theorem", "proof", "definition", "lemma", "corollary", "example"}
    | {"proposition", "remark", "algorithm", "axiom", "conjecture", "criterion", "observation", "property"}
)
_CHANGES = ("added in", "changed in", "deprecated since", "removed in")
VERSIONS = {
    f"version{dash}{words.split()[0]}": f"{words.capitalize()} version"
    for words in _CHANGES
    for dash in ("", "-")
}
VERSIONS["deprecated"] = VERSIONS["version-deprecated"]
DIRECTIVE_TITLES = {**{name: name.capitalize() for name in _ADMONITIONS}, **VERSIONS, "seealso": "See also"}
"""The words that a directive shows before its argument."""
CONTAINERS = frozenset(
    _ADMONITIONS
    | VERSIONS.keys()
    | {"acks", "admonition", "aside", "availability", "blockquote", "button-link", "button-ref"}
    | {"card", "card-carousel", "carousel", "centered", "class", "collapse", "compound", "container"}
    | {"cssclass", "csv-table", "deprecated-removed", "describe", "details", "div", "dropdown"}
    | {"epigraph", "exercise-start", "figure", "figure-md", "glossary", "grid", "grid-item"}
    | {"grid-item-card", "group-tab", "highlights", "hlist", "image", "impl-detail", "line-block"}
    | {"link-button", "list-table", "margin", "only", "panels", "pull-quote", "question", "rst-class"}
    | {"rubric", "sidebar", "solution-start", "subfigure", "tab", "tab-item", "tab-set"}
    | {"tab-set-code", "tabbed", "table", "tabs", "toggle", "topic"}
)  # fmt: skip
"""Directives that hold marked-up text."""
CODE = frozenset(
    {"code", "code-block", "sourcecode", "prompt", "doctest", "testcode", "productionlist"}
    | {"ipython", "jupyter-execute", "parsed-literal", "mermaid", "graphviz", "console"}
)
DROPPED = frozenset(
    {"toctree", "contents", "raw", "include", "literalinclude", "index", "bibliography", "meta", "highlight"}
    | {"role", "default-role", "sectnum", "title"}
    | {f"{domain}:namespace{end}" for domain in ("c", "cpp") for end in ("", "-push", "-pop")}
    | {"header", "footer", "testsetup", "testcleanup", "plot", "tags", "sectionauthor", "codeauthor"}
    | {"rst-class", "cssclass", "restructuredtext-test-directive", "date", "image", "video", "youtube"}
    | {"tabularcolumns"}
)
MODULES = ("module", "currentmodule", "py:module", "py:currentmodule")
OF_DOCUTILS = frozenset(
    {"list-table", "csv-table", "table", "figure", "replace", "unicode", "rubric", "epigraph", "note"}
    | {"warning", "tip", "hint", "important", "caution", "danger", "attention", "error", "admonition"}
    | {"topic", "sidebar", "line-block", "pull-quote", "highlights", "compound", "container", "target-notes"}
)
"""Directives of docutils itself that do what they do in Sphinx."""
_KNOWN = (
    CODE
    | DROPPED
    | OF_DOCUTILS
    | CONTAINERS
    | DIRECTIVE_TITLES.keys()
    | frozenset(
        {*MODULES, "code-cell", "eval-rst", "exercise-end", "math", "moduleauthor", "myst", "program"}
        | {"solution-end", "tableofcontents", "testoutput", "todolist"}
    )
)
"""These and others that show nothing, or what they hold."""
_MARKUP = re.compile(
    r"^[ \t]*\.\. [\w:-]+::|(?<![a-z:])(?>[a-z:]*?:[a-z])[a-z:]*+(?<=:)`|^[ \t]*:(?:param|returns?|type)\b",
    re.MULTILINE,
)
_CODE_LINE = re.compile(
    r"^[ \t]*(?:[@$#]|>>>|import |from \S+ import |\w+ = |(?:async )?(?:def|class) .*:$)|[;{}]$", re.MULTILINE
)
_CODE_ROLES = frozenset(
    {"class", "func", "meth", "mod", "attr", "exc", "data", "obj", "const", "file", "command", "code", "samp"}
    | {"envvar", "option", "program", "literal", "function", "type", "macro", "member", "kbd", "pep8", "cls"}
)
_ICON_ROLE = re.compile(r"octicon|fa[bsr]?|material-\w+")
_NO_REFERENCES: Mapping[str, str] = MappingProxyType({})


def reference_words(target: str) -> str:
    """Return a label as words: `sec_linear-algebra` is "Section linear algebra"."""
    first, *rest = [word for word in _WORD_BREAK.split(target.rpartition("#")[2]) if word] or [""]
    return " ".join((REFERENCE_KINDS.get(first.lower(), first) if rest else first, *rest))


def looks_like_code(directive: str, content: str) -> bool:
    """Return whether an unknown directive such as `click:example` holds code instead of marked-up text."""
    if _MARKUP.search(content):
        return False
    return ":" in directive or _CODE_LINE.search(content) is not None


def is_computed(name: str, content: str, is_mark: bool = False) -> bool:
    """Return whether code makes what a directive shows: an unknown one that holds no marked-up text.

    `is_mark` if it has an argument alone, such as the name of an object that a project describes.
    """
    if name in _KNOWN or is_object(name) or name.startswith(("auto", "prf:", "proof:")):
        return name in ("bibliography", "plot")
    return looks_like_code(name, content) if content.strip() else not is_mark


def role_text(  # noqa: PLR0911 - a table
    name: str, text: str, references: Mapping[str, str] = _NO_REFERENCES
) -> str:
    """Return the words of a role such as `ref` or `py:class`; `references` has those that a site knows."""
    if words := references.get(f"{name.lower()} {' '.join(text.split())}"):
        return words
    last = name.rpartition(":")[2].lower()
    if last == "math":
        return f"${text}$"
    if _ICON_ROLE.fullmatch(last):
        return ""
    if name.startswith(("cite", "footcite")):
        return f"[{text}]"
    stated = text[:-1].rpartition("<")[0].strip() if text.endswith(">") else ""
    if last in ("pep", "rfc", "cve", "cwe"):
        return stated or f"{last.upper()} {text}"
    if last in _CODE_ROLES or name.startswith(("py:", "c:", "cpp:", "js:", "rst:")):
        name = stated or text.lstrip("!")
        name = name.rpartition(".")[2] if name.startswith("~") else name
        return f"`{name.lstrip('~')}`"
    if stated:
        return stated.replace("%s", "").strip()
    if last in ("ref", "numref", "eq", "eqref", "doc", "any", "prf", "nb", "secref"):
        path = text.rpartition("/")[2] if last == "doc" else text
        return reference_words(path)
    return text
