"""A place in a list of tokens, and how to pass over what is only for the compiler."""

from __future__ import annotations

from collections.abc import Mapping

from recto.book.sites.javascript.tokens import Token

_TYPE_WORDS = frozenset({"typeof", "keyof", "readonly", "unique", "infer"})


class Cursor:
    """A place in a list of tokens."""

    def __init__(self, tokens: list[Token], matching: Mapping[int, int], at: int = 0) -> None:
        self.tokens = tokens
        self.matching = matching
        self.at = at

    @property
    def token(self) -> Token:
        """The token here."""
        return self.tokens[min(self.at, len(self.tokens) - 1)]

    def ahead(self, steps: int = 1) -> Token:
        """Return a token further on."""
        return self.tokens[min(self.at + steps, len(self.tokens) - 1)]

    def sees(self, *marks: str) -> bool:
        """Whether one of these marks or words stands here."""
        return self.token.kind in ("mark", "name") and self.token.value in marks

    def accept(self, mark: str) -> bool:
        """Go behind a mark if it stands here."""
        found = self.sees(mark)
        self.at += found
        return found

    def skip_group(self) -> None:
        """Go behind the bracket that closes the one that opens here."""
        self.at = self.matching.get(self.at, len(self.tokens) - 1) + 1

    @property
    def before(self) -> int:
        """Where the token before this place ends."""
        return self.tokens[max(0, min(self.at, len(self.tokens)) - 1)].end


def skip_type(cursor: Cursor, text: str) -> None:
    """Go behind a TypeScript type."""
    while True:
        while cursor.sees(*_TYPE_WORDS):
            cursor.at += 1
        if cursor.sees("(", "[", "{"):
            cursor.skip_group()
        elif cursor.token.kind in ("name", "string", "number", "template"):
            cursor.at += 1
        else:
            return
        while cursor.sees(".", "<", "[") and "\n" not in text[cursor.before : cursor.token.start]:
            if cursor.sees("<"):
                _skip_angles(cursor)
            elif cursor.sees("["):
                cursor.skip_group()
            else:
                cursor.at += 2
        if not (cursor.accept("|") or cursor.accept("&") or cursor.accept("=>")):
            return


def _skip_angles(cursor: Cursor) -> None:
    depth = 0
    while cursor.token.kind != "end":
        if cursor.sees("(", "[", "{"):
            cursor.skip_group()
            continue
        depth += cursor.token.value.count("<") - (cursor.token.value.count(">") if cursor.token.value != "=>" else 0)
        cursor.at += 1
        if depth <= 0:
            return
