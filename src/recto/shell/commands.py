"""The table of commands: their names, what they take, what they do, and how a line is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from recto.errors import InvalidArgument
from recto.modules import nearest
from recto.shell.look import Look, wrapped

Completes = Literal["", "command", "module", "page", "collection", "switch", "mode"]


@dataclass(frozen=True, slots=True)
class Command:
    """One command: how it is written, and what kind of names come behind it."""

    name: str
    usage: str
    summary: str
    details: str = ""
    completes: Completes = ""


COMMANDS = (
    Command(
        "module",
        "[NAMES | off]",
        "search only these modules; alone: list the modules",
        "Names are separated by commas or spaces, short (ros2) or as the directory is called (module-1-ros2).",
        "module",
    ),
    Command(
        "url",
        "[ADDRESS | N | off]",
        "search only this page, or that of result N",
        "A part of an address is enough if no other page has it: `:url dds`.",
        "page",
    ),
    Command("top", "[N]", "how many passages to show, 1 to 100"),
    Command(
        "mode",
        "[hybrid | dense | lexical]",
        "rank by meaning (dense), by words (lexical), or by both (hybrid)",
        completes="mode",
    ),
    Command("min", "[SCORE | off]", "show only passages with at least this score"),
    Command(
        "select",
        "[N | ADDRESS#ANCHOR] [QUESTION]",
        "find what goes with a selected text",
        "Alone, it takes the text from the next lines, up to an empty one or a `.`; what is pasted in one piece may have empty lines. "
        "With N it is the passage of result N, with an address a page or a section of it. The line after that is a question about the "
        "text, or empty for none; a question behind N or the address is asked at once. Ctrl-C drops the selection.",
        "page",
    ),
    Command("again", "", "search for the same once more, with what is set now"),
    Command("verbose", "[on | off]", "show passages whole, not only a few lines", completes="switch"),
    Command("json", "[on | off]", "answer questions in JSON", completes="switch"),
    Command(
        "explain",
        "N",
        "say why result N is there",
        "Its scores, its ranks by meaning and by words, its lead, which words of the query it has, and the results around it.",
    ),
    Command("open", "N", "print the address of result N"),
    Command("page", "N | ADDRESS#ANCHOR", "read the section of result N, a page, or a section of one", completes="page"),
    Command("stats", "", "what the searches of this session took, step by step"),
    Command(
        "collection",
        "[NAME]",
        "search another collection; alone: tell about this one",
        "Filters are dropped, as another book has other modules and pages.",
        "collection",
    ),
    Command("help", "[COMMAND]", "list the commands, or tell more about one", completes="command"),
    Command("quit", "", "leave; Ctrl-D does the same"),
)
_BY_NAME = {command.name: command for command in COMMANDS}


def find_command(typed: str) -> Command:
    """Return the command of a name, or of the beginning of one if no other begins so."""
    name = typed.lower()
    begun = [command for command in COMMANDS if name and command.name.startswith(name)]
    if name in _BY_NAME or len(begun) == 1:
        return _BY_NAME.get(name) or begun[0]
    if begun:
        hint = f"It could be {', '.join(f':{command.name}' for command in begun)}."
    else:
        near = nearest(name, _BY_NAME)
        hint = f"Did you mean :{near}?" if near else ":help lists the commands."
    raise InvalidArgument(f"There is no command ':{typed}'", hint=f"{hint} A question that begins with a colon is written with two.")


def overview(look: Look) -> str:
    """Return the list of all commands."""
    usages = {command: f":{command.name} {command.usage}".rstrip() for command in COMMANDS}
    column = 28
    lines = ["Type a question, or one of these (the first letters do):", ""]
    for command, usage in usages.items():
        summary = list(wrapped(command.summary, look.width - column))
        if len(usage) > column - 4:
            lines.append(f"  {look.strong(usage)}")
        else:
            lines.append(f"  {look.strong(usage)}{' ' * (column - 2 - len(usage))}{summary.pop(0)}")
        lines += [" " * column + line for line in summary]
    lines += ["", *wrapped("Tab completes, the arrow keys bring back earlier lines, Ctrl-C cancels, Ctrl-D leaves.", look.width)]
    return "\n".join([*lines, *wrapped("A question that begins with a colon is written with two: ::memory.", look.width)])


def about(command: Command, look: Look) -> str:
    """Return all that is to be said of a command."""
    return "\n".join(_about(command, look))


def _about(command: Command, look: Look) -> Iterator[str]:
    yield look.strong(f":{command.name} {command.usage}".rstrip())
    yield from wrapped(f"{command.summary[0].upper()}{command.summary[1:]}. {command.details}", look.width, "    ")
