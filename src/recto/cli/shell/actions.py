"""What each command does to a session."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from recto._util.text import nearest, page_key
from recto.cli.shell import show as reports
from recto.cli.shell.show import Look, wrapped
from recto.errors import InvalidArgument, PageMissing
from recto.search.query import ARGUMENTS, MAX_TOP_K, check_search
from recto.types import MODES, NO_FILTERS, Filters

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
    Command(
        "page",
        "N | ADDRESS#ANCHOR",
        "read the section of result N, a page, or a section of one",
        completes="page",
    ),
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
    raise InvalidArgument(
        f"There is no command ':{typed}'",
        hint=f"{hint} A question that begins with a colon is written with two.",
    )


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
    lines += [
        "",
        *wrapped(
            "Tab completes, the arrow keys bring back earlier lines, Ctrl-C cancels, Ctrl-D leaves.",
            look.width,
        ),
    ]
    return "\n".join(
        [*lines, *wrapped("A question that begins with a colon is written with two: ::memory.", look.width)]
    )


def about(command: Command, look: Look) -> str:
    """Return all that is to be said of a command."""
    return "\n".join(_about(command, look))


def _about(command: Command, look: Look) -> Iterator[str]:
    yield look.strong(f":{command.name} {command.usage}".rstrip())
    yield from wrapped(
        f"{command.summary[0].upper()}{command.summary[1:]}. {command.details}", look.width, "    "
    )


if TYPE_CHECKING:
    from recto.cli.shell.session import Reply, Session
    from recto.protocols import Index

_OFF = "off"


def _said(text: str) -> Reply:
    from recto.cli.shell.session import Reply

    return Reply(text)


def _module(session: Session, names: str) -> Reply:
    filters = session.view.filters
    if not names:
        return _said(reports.modules(session.retriever.modules(), filters.modules, session.look()))
    modules = () if names == _OFF else _known_modules(session.retriever.open(), names)
    session.view = replace(session.view, filters=replace(filters, modules=modules))
    return session.told(f"Searching only {', '.join(modules)}." if modules else "Searching all modules.")


def _known_modules(index: Index, names: str) -> tuple[str, ...]:
    def exists(name: str) -> bool:
        return bool(index.count(Filters(modules=(name,))))

    listed = names.split(",") if "," in names else [names] if exists(names) else names.split()
    wanted = tuple(dict.fromkeys(name.strip() for name in listed if name.strip()))
    for name in wanted:
        if not exists(name):
            known = index.modules()
            near = nearest(name, known)
            raise InvalidArgument(
                f"There is no module {name!r}",
                hint=(f"Did you mean '{near}'? " if near else "") + f"Modules: {', '.join(known)}.",
            )
    return wanted


def _url(session: Session, address: str) -> Reply:
    filters = session.view.filters
    if not address:
        return _said(f"Searching only {filters.page_url}." if filters.page_url else "Searching all pages.")
    page = None if address == _OFF else _address(session, address).partition("#")[0]
    session.view = replace(session.view, filters=replace(filters, page_url=page))
    return session.told(f"Searching only {page}." if page else "Searching all pages.")


def _address(session: Session, text: str) -> str:
    """Return the address, with its anchor, of a result's number, an address, or a part that only one has."""
    if text.isdecimal():
        return session.hit(text).chunk.link
    page, mark, anchor = text.partition("#")
    index = session.retriever.open()
    if index.count(Filters(page_url=page)):
        return text
    known = index.pages()
    part = page_key(page).strip("/")
    meant = [address for address in known if address.endswith(f"/{part}")] or [
        address for address in known if part in address
    ]
    if len(meant) == 1:
        return f"{meant[0]}{mark}{anchor}"
    near = nearest(page, known)
    hint = (
        f"It could be {', '.join(meant[:5])}."
        if meant
        else f"Did you mean '{near}'?"
        if near
        else "Tab completes addresses."
    )
    raise PageMissing(f"There is no page '{page}' in '{session.retriever.collection}'", hint=hint)


def _top(session: Session, number: str) -> Reply:
    if number:
        if not re.fullmatch(r"[0-9]{1,3}", number) or not 1 <= int(number) <= MAX_TOP_K:
            raise InvalidArgument(
                f":top must be between 1 and {MAX_TOP_K}", hint=f"{number[:40]!r} is not such a number."
            )
        session.view = replace(session.view, top_k=int(number))
    count = session.view.top_k
    return session.told(f"Showing {count} passage{'' if count == 1 else 's'}.")


def _mode(session: Session, mode: str) -> Reply:
    if mode:
        chosen = next((known for known in MODES if known == mode.lower()), None)
        if chosen is None:
            raise InvalidArgument(
                f":mode must be one of {', '.join(MODES)}", hint=f"{mode[:40]!r} is not one of them."
            )
        check_search(
            session.view.top_k,
            session.view.filters,
            session.view.min_score,
            replace(ARGUMENTS, min_score=":min"),
            chosen,
        )
        session.view = replace(session.view, mode=chosen)
    return session.told(f"Searching in {session.view.mode} mode.")


def _min(session: Session, score: str) -> Reply:
    if score:
        try:
            least = None if score == _OFF else float(score)
        except ValueError:
            raise InvalidArgument(
                f":min needs a score, not {score[:40]!r}", hint="It is a number, such as 0.7, or `off`."
            ) from None
        check_search(
            session.view.top_k,
            session.view.filters,
            least,
            replace(ARGUMENTS, min_score=":min"),
            session.view.mode,
        )
        session.view = replace(session.view, min_score=least)
    least = session.view.min_score
    return session.told(
        "Showing passages of any score."
        if least is None
        else f"Showing passages with a score of at least {least:g}."
    )


def _select(session: Session, argument: str) -> Reply:
    if not argument:
        return session.take_text()
    what, _, question = argument.partition(" ")
    if what.isdecimal():
        return session.select(session.hit(what).chunk.text, question.strip())
    address = _address(session, what)
    return session.select(
        session.retriever.page(address).markdown(address.partition("#")[2]), question.strip()
    )


def _again(session: Session, argument: str) -> Reply:
    _takes_nothing("again", argument)
    if session.asked is None:
        raise InvalidArgument("Nothing was asked yet", hint="Ask a question first.")
    return session.search(session.asked)


def _verbose(session: Session, switch: str) -> Reply:
    on = _switched("verbose", switch, now=session.view.verbose)
    session.view = replace(session.view, verbose=on)
    return session.told("Passages are shown whole." if on else "A few lines of each passage are shown.")


def _json(session: Session, switch: str) -> Reply:
    on = _switched("json", switch, now=session.view.as_json)
    session.view = replace(session.view, as_json=on)
    return session.told("Answers to questions are JSON." if on else "Answers are text.")


def _switched(name: str, switch: str, *, now: bool) -> bool:
    """Return what a switch is set to; without a word it is turned over."""
    if switch not in ("", "on", _OFF):
        raise InvalidArgument(
            f":{name} takes on or off, not {switch[:40]!r}", hint="Alone it changes from one to the other."
        )
    return switch == "on" if switch else not now


def _explain(session: Session, number: str) -> Reply:
    hit, answered, look = session.hit(number), session.answered(), session.look()
    asked, response = answered.asked, answered.response
    words, around = session.words(response), None
    if not asked.selection:
        from recto.evaluation.explain import explain

        around = explain(
            session.retriever, asked.question, len(response.hits), response.filters, mode=response.mode
        )
    return _said(reports.explained(int(number), hit, response, words, around, look))


def _open(session: Session, number: str) -> Reply:
    from recto.cli.output import in_line

    return _said(in_line(session.hit(number).chunk.link))


def _page(session: Session, address: str) -> Reply:
    if not address:
        raise InvalidArgument(":page needs a result's number or an address", hint="Such as `:page 1`.")
    full = _address(session, address)
    page = session.retriever.page(full)
    return _said(reports.page(page, full.partition("#")[2], session.look(), as_written=session.scripted))


def _stats(session: Session, argument: str) -> Reply:
    _takes_nothing("stats", argument)
    return _said(session.latency.text())


def _collection(session: Session, name: str) -> Reply:
    if name:
        other = session.retriever.with_collection(name)
        other.open()  # what cannot be searched is refused before anything changes
        session.switch(other)
        session.view = replace(session.view, filters=NO_FILTERS)
    return _said(reports.collection(session.retriever, session.look()))


def _help(session: Session, name: str) -> Reply:
    look = session.look()
    return _said(about(find_command(name.removeprefix(":")), look) if name else overview(look))


def _quit(_session: Session, argument: str) -> Reply:
    _takes_nothing("quit", argument)
    return replace(_said(""), ends=True)


def _takes_nothing(name: str, argument: str) -> None:
    if argument:
        raise InvalidArgument(f":{name} takes nothing behind it", hint=f"Write `:{name}` alone.")


ACTIONS: Mapping[str, Callable[[Session, str], Reply]] = {
    "module": _module,
    "url": _url,
    "top": _top,
    "mode": _mode,
    "min": _min,
    "select": _select,
    "again": _again,
    "verbose": _verbose,
    "json": _json,
    "explain": _explain,
    "open": _open,
    "page": _page,
    "stats": _stats,
    "collection": _collection,
    "help": _help,
    "quit": _quit,
}
