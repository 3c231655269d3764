"""Described objects of Sphinx's domains, such as `py:method`: their signatures, anchors and fields."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

_PYTHON = {
    "class": "class ", "exception": "exception ", "staticmethod": "static ", "classmethod": "classmethod ",
    "property": "property ", "decorator": "@", "decoratormethod": "@", "type": "type ",
} | dict.fromkeys(("function", "method", "attribute", "data"), "")  # fmt: skip
"""The kinds of Python objects, with the words before their names."""
_MODIFIERS = {"abstract": "abstract", "abstractmethod": "abstract", "async": "async"} | {
    name: name for name in ("final", "classmethod", "staticmethod")
}
_OPTIONS = ("option", "cmdoption")
_TYPES = frozenset({"class", "struct", "union", "enum", "enumerator", "concept", "enum-class", "enum-struct"})
"""The kinds of objects in C, C++ and JavaScript that have their kind before the name."""
_KIND = re.compile(
    r"(?P<python>(?:py:)?(?:"
    + "|".join(_PYTHON)
    + r"))|(?:rst:)?(?P<standard>envvar|confval|directive:option|directive|role|option|cmdoption)|"
    r"(?:(?:c|cpp|js|rst):)?(?:function|class|method|attribute|data|type|macro|member|var|struct|enum|"
    r"enumerator|enum-class|enum-struct|concept|union|module|directive|role|alias|option|describe|object|opcode|cmdoption|program|setting|"
    r"coroutinefunction|coroutinemethod|abstractmethod|awaitablefunction|pdbcommand)"
)
_FIELDS = {
    **dict.fromkeys(("param", "parameter", "arg", "argument", "key", "keyword"), "Parameters"),
    **dict.fromkeys(("var", "ivar", "cvar"), "Variables"),
    **dict.fromkeys(("raises", "raise", "except", "exception"), "Raises"),
    **dict.fromkeys(("returns", "return"), "Returns"),
    **dict.fromkeys(("yields", "yield"), "Yields"),
    "rtype": "Return type",
}
"""The names of fields, with the words that Sphinx shows for them."""
_WITHOUT_NAMES = ("Returns", "Yields", "Return type")


@dataclass(slots=True)
class Scope:
    """What names of objects belong to: a module and its classes, a program, a directive of docutils."""

    module: str = ""
    program: str = ""
    directive: str = ""
    classes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Signature:
    """A signature as Sphinx shows it, its anchors, and the name that objects below it have before theirs."""

    text: str
    anchors: list[str]
    name: str = ""


def is_object(directive: str) -> bool:
    """Return whether a directive describes an object."""
    return _KIND.fullmatch(directive) is not None


def signature(directive: str, written: str, options: Mapping[str, str], scope: Scope) -> Signature:
    """Return a written signature with its words and anchor."""
    kind = _KIND.fullmatch(directive)
    name = re.split(r"[(\s=:\[]", written)[0]
    hidden = {"noindex", "no-index"} & set(options)
    if not kind or not kind["python"]:
        standard = kind["standard"] if kind and not hidden else None
        if standard in _OPTIONS:
            return Signature(written, list(_option_anchors(written, scope.program)))
        if standard == "directive:option":
            above = f"directive-option-{scope.directive}-{name}"
            typed = f": {options['type']}" if options.get("type") else ":"
            return Signature(f":{written.strip(':')}{typed}", [sphinx_id(above)])
        if ":" in directive and not standard:
            return Signature(_with_kind(directive.partition(":")[2], written), [])
        if standard == "directive":
            written = re.sub(r"^\.\. |::(?=\s|$)", "", written)
            name = written.split(" ")[0]
        shown = {"directive": f".. {written}", "role": f":{written}:"}.get(standard or "", written)
        anchors = [sphinx_id(f"{standard}-{name if standard != 'role' else written}")] if standard else []
        if standard == "directive" and not scope.directive:  # the first of several names
            scope.directive = name
        return Signature(shown, anchors)
    key = kind["python"].removeprefix("py:")
    above = ".".join(scope.classes)
    inside = bool(above) and name.startswith(f"{above}.")
    whole = name if inside or not above else f"{above}.{name}"
    module = options.get("module", scope.module)
    full = f"{module}.{whole}" if module else whole
    visible = whole.removeprefix(f"{above}.") if above else name if "." in name else full
    words = [_MODIFIERS[option] for option in options if option in _MODIFIERS]
    words = [f"{word}method" if (key, word) == ("method", "abstract") else word for word in words]
    before = "".join(f"{word} " for word in words) + _PYTHON[key]
    stated = ((": ", options.get("type")), (" = ", options.get("value")))
    after = "".join(f"{mark}{value}" for mark, value in stated if value)
    text = f"{before}{visible}{written[len(name) :]}{after}"
    rest = written[len(name) :].strip()
    is_valid = not rest or (rest[0] in "([" and (rest[-1] in ")]" or "->" in rest))
    owner = whole if key in ("class", "exception") else whole.rpartition(".")[0]
    return Signature(text, [sphinx_id(full)] if is_valid and not hidden else [], owner)


def _with_kind(kind: str, written: str) -> str:
    """Return a signature of C, C++ or JavaScript with the words that Sphinx shows before the name."""
    template, mark, declared = (
        written.rpartition("> ") if written.startswith("template") else ("", "", written)
    )
    if kind == "type":
        kind = "using" if " = " in declared else "typedef" if " " in declared else "type"
    elif kind not in _TYPES:
        return written
    return f"{template}{mark}{kind.replace('-', ' ')} {declared}"


def _option_anchors(written: str, program: str) -> Iterator[str]:
    """Yield the anchors of the names of an option, such as `-o FILE, --output FILE`."""
    for name in (part.split(" ")[0].split("=")[0].split("[")[0] for part in written.split(", ")):
        parts = ["cmdoption", program, "" if name.startswith(("-", "/")) else "arg", name]
        yield sphinx_id("-".join(filter(None, parts)))


def sphinx_id(name: str) -> str:
    """Return the id that Sphinx makes of an object's name: as docutils does, but case, dots and `_` stay."""
    text = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode("ascii")
    return re.sub(r"^[-0-9._]+|-+$", "", re.sub(r"[^a-zA-Z0-9._]+", "-", " ".join(text.split())))


def describes_object(names: Iterable[str]) -> bool:
    """Return whether fields of these names describe an object, such as `param speed`."""
    return any(name.partition(" ")[0] in _FIELDS for name in names)


def short_names(types: str) -> str:
    """Return types with the last part of the names that have a tilde, such as `~typing.Callable`."""
    return re.sub(r"~(?:\w+\.)*+", "", types)


def group_fields(fields: Sequence[tuple[str, str]]) -> list[tuple[str, list[tuple[str, int]]]]:
    """Return the fields of an object as Sphinx groups them: the group's words, and its members.

    Each field is its written name, such as `param int speed`, and its body on one line. A member is the text
    before the body, and the index of the field.
    """
    types = {
        name: body
        for kind, name, body in ((*written.partition(" ")[::2], body) for written, body in fields)
        if kind in ("type", "vartype", "kwtype")
    }
    groups: dict[str, list[tuple[str, int]]] = {}
    for index, (written, _) in enumerate(fields):
        kind, _, argument = written.partition(" ")
        if kind in ("type", "vartype", "kwtype"):
            continue
        words = _FIELDS.get(kind)
        if words is None or (words in _WITHOUT_NAMES) == bool(argument):
            groups.setdefault(written[:1].upper() + written[1:], []).append(("", index))
            continue
        stated, _, name = argument.strip().rpartition(" ")
        stated = short_names(stated or types.get(name, ""))
        member = argument.strip() if words == "Raises" else name + (f" ({stated})" if stated else "")
        groups.setdefault(words, []).append(("" if words in _WITHOUT_NAMES else member, index))
    return list(groups.items())
