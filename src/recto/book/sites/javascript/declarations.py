"""Find what a JavaScript file declares, imports, changes and exports, by its tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from recto.book.sites.javascript.tokens import Token

_CLOSING = {")": "(", "]": "[", "}": "{"}
_OPENING = frozenset(_CLOSING.values())
_DECLARES = frozenset({"const", "let", "var"})
_FAR = 200  # tokens; the head of a function, a class or an import is shorter
_ASSIGNS = frozenset({"=", "+=", "||=", "&&=", "??=", "-=", "*=", "/="})


def pairs(tokens: Sequence[Token]) -> dict[int, int]:
    """Map the index of each opening bracket to that of the one that closes it; one that is never closed goes to the end."""
    matching: dict[int, int] = {}
    opened: list[int] = []
    for index, token in enumerate(tokens):
        if token.kind != "mark":
            continue
        if token.value in _OPENING:
            opened.append(index)
        elif opened and _CLOSING.get(token.value) == tokens[opened[-1]].value:
            matching[opened.pop()] = index
    return matching | dict.fromkeys(opened, len(tokens) - 1)


class Declarations:
    """The names of a file, by the places of their tokens."""

    def __init__(self, tokens: Sequence[Token], matching: Mapping[int, int]) -> None:
        self._tokens = tokens
        self._matching = matching
        self.names: dict[str, int] = {}
        self.imports: dict[str, tuple[str, str]] = {}
        self.functions: dict[str, tuple[int, int]] = {}
        self.changed: set[str] = set()
        self.changed_members: dict[str, set[str]] = {}
        self.exported: int | None = None
        for index in self._outermost(0, len(tokens) - 1):
            self._statement(index)
        self._find_changes()

    def enter(self, first: int, last: int) -> int | None:
        """Add the names of a function's body; return the place of what the function returns."""
        if self._value(first - 1) == "=>":
            return first
        returned = None
        for index in self._outermost(first, last):
            self._declaration(index)
            if self._value(index) == "return" and returned is None:
                returned = index + 1
        self._find_changes()
        return returned

    def function_at(self, index: int) -> tuple[int, int] | None:
        """Return the first and last place of the body, if a function or an arrow stands here."""
        body = self._body(index)
        if body is None:
            return None
        if self._value(body) == "{":
            return body + 1, self._matching.get(body, len(self._tokens) - 1)
        return body, len(self._tokens) - 1

    def end_of_function(self, index: int) -> int | None:
        """Return the place behind a function or a class that stands here, or behind the mark of an arrow without braces."""
        if self._is(index, "class"):
            index = self._next(index, "{", ";")
            return self._matching.get(index, index) + 1
        body = self._body(index)
        if body is None:
            return None
        return self._matching.get(body, body) + 1 if self._value(body) == "{" else body

    def _body(self, index: int) -> int | None:
        """Return where the body of a function begins: at its brace, or behind the mark of an arrow."""
        if self._is(index, "async") and self._value(index + 1) != "=>":
            index += 1
        if self._is(index, "function"):
            index = self._next(index, "(", ";")
            return self._brace(self._matching.get(index, index) + 1)
        if self._value(index) == "(" and index in self._matching:
            index = self._matching[index] + 1
            if self._value(index) == ":":  # the type of what it returns
                index = self._behind_return_type(index)
        elif self._tokens[min(index, len(self._tokens) - 1)].kind == "name":
            index += 1
        else:
            return None
        return index + 1 if self._value(index) == "=>" else None

    def _behind_return_type(self, index: int) -> int:
        for place in range(index, min(index + 20, len(self._tokens))):
            if self._value(place) in ("=>", ",", ";", "?", "{", ")"):
                return place
        return index

    def _brace(self, index: int) -> int | None:
        for place in range(index, min(index + 40, len(self._tokens))):
            if self._value(place) == "{" and self._value(place - 1) not in (":", "<", "|", "&"):
                return place
        return None

    def _next(self, index: int, *marks: str) -> int:
        """Return where one of the marks comes next, if it comes soon."""
        return next((place for place in range(index, min(index + _FAR, len(self._tokens))) if self._value(place) in marks), index)

    def _outermost(self, first: int, last: int) -> Iterator[int]:
        """Yield the places that are in no bracket."""
        index = first
        while index < last:
            yield index
            index = self._matching.get(index, index) + 1

    def _value(self, index: int) -> str:
        token = self._tokens[index] if 0 <= index < len(self._tokens) else self._tokens[-1]
        return token.value if token.kind in ("mark", "name") else ""

    def _is(self, index: int, word: str) -> bool:
        return self._value(index) == word and self._value(index - 1) != "."

    def _statement(self, index: int) -> None:
        self._declaration(index)
        if self._is(index, "import"):
            self._import(index + 1)
        elif self._is(index, "export") and self._value(index + 1) == "default":
            self.exported = index + 2
        elif self._is(index, "module") and [self._value(index + step) for step in (1, 2, 3)] == [".", "exports", "="]:
            self.exported = index + 4
        elif self._is(index, "function") and self._tokens[index + 1].kind == "name":
            begin = index - 1 if self._value(index - 1) == "async" else index
            body = self.function_at(begin)
            if body:
                self.functions[self._tokens[index + 1].value] = body

    def _declaration(self, index: int) -> None:
        if self._value(index) not in _DECLARES or self._value(index - 1) == ".":
            return
        for place in self._outermost(index + 1, len(self._tokens) - 1):
            token = self._tokens[place]
            if self._value(place) in (";", "const", "let", "var", "import", "export", "function", "return"):
                return
            if token.kind == "name" and place - 1 != index and self._value(place - 1) != ",":
                continue
            if token.kind == "name":
                start = self._initializer(place + 1)
                if start is not None:
                    self.names[token.value] = start

    def _initializer(self, index: int) -> int | None:
        """Return where the value begins that a name is declared with, behind its type."""
        if self._value(index) == "=":
            return index + 1
        if self._value(index) == ":":
            for place in self._outermost(index + 1, min(index + 60, len(self._tokens) - 1)):
                if self._value(place) == "=":
                    return place + 1
                if self._value(place) in (";", "const", "let", "var"):
                    return None
        return None

    def _import(self, index: int) -> None:
        """Note the names of an import of a JSON file."""
        places = range(index, min(index + _FAR, len(self._tokens)))
        end = next((place for place in places if self._tokens[place].kind == "string" or self._value(place) in (";", "(")), index)
        path = self._tokens[end].value
        if not path.endswith(".json"):
            return
        within = False
        for place in range(index, end):
            token = self._tokens[place]
            within = self._value(place) == "{" or (within and self._value(place) != "}")
            if token.kind == "name" and token.value not in ("from", "as", "type"):
                renamed = self._value(place + 1) == "as"
                name = self._tokens[place + 2].value if renamed else token.value
                if self._value(place - 1) != "as" or not within:
                    self.imports[name] = (path, token.value if within and token.value != "default" else "")

    def _find_changes(self) -> None:
        """Note what is assigned to after it was declared, and members that are."""
        declared = set(self.names.values())
        for index, token in enumerate(self._tokens[:-1]):
            if token.kind != "name" or self._value(index - 1) in (".", "?.", *_DECLARES):
                continue
            if self._value(index + 1) in _ASSIGNS and index + 2 not in declared:
                self.changed.add(token.value)
            elif self._value(index + 1) == "." and self._value(index + 3) in _ASSIGNS:
                self.changed_members.setdefault(token.value, set()).add(self._tokens[index + 2].value)
