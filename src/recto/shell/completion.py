"""What could come next in a line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from recto.errors import InvalidArgument
from recto.shell.commands import COMMANDS, find_command
from recto.types import MODES

_MOST = 50


class Known(Protocol):
    """The names that are known."""

    modules: tuple[str, ...]
    pages: tuple[str, ...]
    collections: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A text that can stand where the last `replaces` characters are, and what it is."""

    text: str
    replaces: int
    about: str = ""


def candidates(line: str, known: Known) -> Iterator[Candidate]:
    """Yield what can be completed at the end of a line: commands, and the names that belong behind one."""
    if not line.startswith(":") or line.startswith("::"):
        return
    typed, space, argument = line[1:].partition(" ")
    if not space:
        yield from (Candidate(f":{one.name}", len(line), one.summary) for one in COMMANDS if one.name.startswith(typed.lower()))
        return
    try:
        command = find_command(typed)
    except InvalidArgument:  # it is being typed; Enter will tell
        return
    word = re.split(r"[,\s]", argument)[-1]
    if command.completes == "module":
        chosen = set(re.split(r"[,\s]+", argument[: len(argument) - len(word)]))
        yield from _beginning(word, [name for name in (*known.modules, "off") if name not in chosen])
    elif word != argument:
        return  # the others take one name
    elif command.completes == "page":
        yield from _containing(word, known.pages)
    elif command.completes == "collection":
        yield from _beginning(word, known.collections)
    elif command.completes == "switch":
        yield from _beginning(word, ("on", "off"))
    elif command.completes == "mode":
        yield from _beginning(word, MODES)
    elif command.completes == "command":
        yield from _beginning(word, [one.name for one in COMMANDS])


def _beginning(word: str, names: Iterable[str]) -> Iterator[Candidate]:
    yield from (Candidate(name, len(word)) for name in names if name.lower().startswith(word.lower()))


def _containing(word: str, names: Iterable[str]) -> Iterator[Candidate]:
    """Yield addresses that have a word anywhere: their beginnings are all the same."""
    found = [name for name in names if word.lower() in name.lower()]
    yield from (Candidate(name, len(word)) for name in found[:_MOST])
