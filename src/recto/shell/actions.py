"""What each command does to a session."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from recto.addresses import page_key
from recto.errors import InvalidArgument, PageMissing
from recto.limits import ARGUMENTS, MAX_TOP_K, check_search
from recto.modules import nearest
from recto.shell import commands, reports
from recto.types import MODES, NO_FILTERS, Filters

if TYPE_CHECKING:
    from recto.protocols import Index
    from recto.shell.session import Reply, Session

_OFF = "off"


def _said(text: str) -> Reply:
    from recto.shell.session import Reply

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
                f"There is no module {name!r}", hint=(f"Did you mean '{near}'? " if near else "") + f"Modules: {', '.join(known)}."
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
    meant = [address for address in known if address.endswith(f"/{part}")] or [address for address in known if part in address]
    if len(meant) == 1:
        return f"{meant[0]}{mark}{anchor}"
    near = nearest(page, known)
    hint = f"It could be {', '.join(meant[:5])}." if meant else f"Did you mean '{near}'?" if near else "Tab completes addresses."
    raise PageMissing(f"There is no page '{page}' in '{session.retriever.collection}'", hint=hint)


def _top(session: Session, number: str) -> Reply:
    if number:
        if not re.fullmatch(r"[0-9]{1,3}", number) or not 1 <= int(number) <= MAX_TOP_K:
            raise InvalidArgument(f":top must be between 1 and {MAX_TOP_K}", hint=f"{number[:40]!r} is not such a number.")
        session.view = replace(session.view, top_k=int(number))
    count = session.view.top_k
    return session.told(f"Showing {count} passage{'' if count == 1 else 's'}.")


def _mode(session: Session, mode: str) -> Reply:
    if mode:
        chosen = next((known for known in MODES if known == mode.lower()), None)
        if chosen is None:
            raise InvalidArgument(f":mode must be one of {', '.join(MODES)}", hint=f"{mode[:40]!r} is not one of them.")
        check_search(session.view.top_k, session.view.filters, session.view.min_score, replace(ARGUMENTS, min_score=":min"), chosen)
        session.view = replace(session.view, mode=chosen)
    return session.told(f"Searching in {session.view.mode} mode.")


def _min(session: Session, score: str) -> Reply:
    if score:
        try:
            least = None if score == _OFF else float(score)
        except ValueError:
            raise InvalidArgument(f":min needs a score, not {score[:40]!r}", hint="It is a number, such as 0.7, or `off`.") from None
        check_search(session.view.top_k, session.view.filters, least, replace(ARGUMENTS, min_score=":min"), session.view.mode)
        session.view = replace(session.view, min_score=least)
    least = session.view.min_score
    return session.told("Showing passages of any score." if least is None else f"Showing passages with a score of at least {least:g}.")


def _select(session: Session, argument: str) -> Reply:
    if not argument:
        return session.take_text()
    what, _, question = argument.partition(" ")
    if what.isdecimal():
        return session.select(session.hit(what).chunk.text, question.strip())
    address = _address(session, what)
    return session.select(session.retriever.page(address).markdown(address.partition("#")[2]), question.strip())


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
        raise InvalidArgument(f":{name} takes on or off, not {switch[:40]!r}", hint="Alone it changes from one to the other.")
    return switch == "on" if switch else not now


def _explain(session: Session, number: str) -> Reply:
    hit, answered, look = session.hit(number), session.answered(), session.look()
    asked, response = answered.asked, answered.response
    words, around = session.words(response), None
    if not asked.selection:
        from recto.evaluation.explain import explain

        around = explain(session.retriever, asked.question, len(response.hits), response.filters, mode=response.mode)
    return _said(reports.explained(int(number), hit, response, words, around, look))


def _open(session: Session, number: str) -> Reply:
    from recto.cli.render import in_line

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
        other = session.retriever.beside(name)
        other.open()  # what cannot be searched is refused before anything changes
        session.switch(other)
        session.view = replace(session.view, filters=NO_FILTERS)
    return _said(reports.collection(session.retriever, session.look()))


def _help(session: Session, name: str) -> Reply:
    look = session.look()
    return _said(commands.about(commands.find_command(name.removeprefix(":")), look) if name else commands.overview(look))


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
