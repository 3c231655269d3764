"""The commands of the shell: what they are called, what they do, and what they print."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from recto._util.text import filter_keys, nearest, page_key, plural, with_anchor
from recto.cli.output import one_line, printable
from recto.cli.render import INDENT, Style, Words, cut, title_of, wrap, wrap_markdown, wrap_message
from recto.errors import InvalidArgument, PageMissing
from recto.search.display import matched_query_words
from recto.search.query import ARGUMENTS, MAX_TOP_K, check_search
from recto.types import MODES, NO_FILTERS, Filters, Hit, Mode, SearchResponse

if TYPE_CHECKING:
    from recto.cli.shell.session import ShellReply, ShellSession
    from recto.evaluation.explain import Explanation
    from recto.protocols import Index
    from recto.search.pages import BookPage

Action = Callable[["ShellSession", str], "ShellReply"]
Completes = Literal["", "command", "module", "page", "collection", "switch", "mode"]

_OFF = "off"
_HELP_COLUMN = 28
_NEIGHBORS = 2  # results that are shown before and after an explained one


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """A command, its help, and what the Tab key completes after it."""

    name: str
    usage: str
    summary: str
    details: str
    completes: Completes
    run: Action


COMMANDS: list[ShellCommand] = []
"""All commands, in the order of their help."""


def _command(
    name: str, usage: str, summary: str, details: str = "", *, completes: Completes = ""
) -> Callable[[Action], Action]:
    """Add a function to the commands."""

    def add(run: Action) -> Action:
        COMMANDS.append(ShellCommand(name, usage, summary, details, completes, run))
        return run

    return add


def find_command(typed: str) -> ShellCommand:
    """Return the command with a name, or with a unique beginning of its name."""
    name = typed.lower()
    matching = [command for command in COMMANDS if name and command.name.startswith(name)]
    exact = [command for command in matching if command.name == name]
    if exact or len(matching) == 1:
        return (exact or matching)[0]
    if matching:
        hint = f"It could be {', '.join(f':{command.name}' for command in matching)}."
    else:
        near = nearest(name, [command.name for command in COMMANDS])
        hint = f"Did you mean :{near}?" if near else ":help lists the commands."
    raise InvalidArgument(
        f"There is no command ':{typed}'", hint=f"{hint} A query that begins with a colon needs two."
    )


def _reply(text: str) -> ShellReply:
    from recto.cli.shell.session import ShellReply

    return ShellReply(text)


def _change(session: ShellSession, text: str, **settings: object) -> ShellReply:
    """Change settings, and confirm it to a person."""
    session.settings = replace(session.settings, **settings)  # type: ignore[arg-type]
    return session.message(text)


@_command(
    "module",
    "[NAMES | off]",
    "search only these modules; without names: list the modules",
    "Separate names by commas or spaces. Use short names (ros2) or directory names (module-1-ros2).",
    completes="module",
)
def _module(session: ShellSession, names: str) -> ShellReply:
    filters = session.settings.filters
    if not names:
        return _reply(_list_modules(session))
    modules = () if names == _OFF else _known_modules(session.retriever.open(), names)
    text = f"Searching only {', '.join(modules)}." if modules else "Searching all modules."
    return _change(session, text, filters=replace(filters, modules=modules))


def _list_modules(session: ShellSession) -> str:
    """List the modules, and mark those that are searched."""
    chosen, style = session.settings.filters.modules, session.style()
    keys, lines = filter_keys(chosen), []
    for module in session.retriever.modules():
        title = "" if module.title == module.name else f", {module.title}"
        row = one_line(f"{module.name}: {plural(module.chunks, 'chunk')}{title}")
        lines.append(style.bold(f"* {row}") if module.name in keys else f"  {row}")
    only = f"only {', '.join(chosen)}" if chosen else "all of them; `:module NAMES` selects some"
    return "\n".join([*lines, *wrap_message(f"Searching {only}.", style.width)])


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


@_command(
    "url",
    "[URL | N | off]",
    "search only this page, or the page of result N",
    "A part of a URL is enough if no other page has it: `:url dds`.",
    completes="page",
)
def _url(session: ShellSession, address: str) -> ShellReply:
    filters = session.settings.filters
    page = filters.page_url
    if address:
        page = None if address == _OFF else _find_url(session, address).partition("#")[0]
    text = f"Searching only {page}." if page else "Searching all pages."
    if not address:
        return _reply(one_line(text))
    return _change(session, text, filters=replace(filters, page_url=page))


def _find_url(session: ShellSession, text: str) -> str:
    """Return the URL for the number of a result, a URL, or a unique part of one."""
    if text.isdecimal():
        return session.hit(text).chunk.link
    page, mark, anchor = text.partition("#")
    index = session.retriever.open()
    if index.count(Filters(page_url=page)):
        return text
    known = index.pages()
    part = page_key(page).strip("/")
    matching = [url for url in known if url.endswith(f"/{part}")] or [url for url in known if part in url]
    if len(matching) == 1:
        return f"{matching[0]}{mark}{anchor}"
    near = nearest(page, known)
    if matching:
        hint = f"It could be {', '.join(matching[:5])}."
    else:
        hint = f"Did you mean '{near}'?" if near else "Tab completes URLs."
    raise PageMissing(f"There is no page '{page}' in '{session.retriever.collection}'", hint=hint)


@_command("top", "[N]", "number of results, 1 to 100")
def _top(session: ShellSession, number: str) -> ShellReply:
    top_k = session.settings.top_k
    if number:
        if not re.fullmatch(r"[0-9]{1,3}", number) or not 1 <= int(number) <= MAX_TOP_K:
            raise InvalidArgument(
                f":top must be between 1 and {MAX_TOP_K}", hint=f"{number[:40]!r} is not a valid number."
            )
        top_k = int(number)
    return _change(session, f"Showing {plural(top_k, 'result')}.", top_k=top_k)


def _check(session: ShellSession, min_score: float | None, mode: Mode) -> None:
    names = replace(ARGUMENTS, min_score=":min")
    check_search(session.settings.top_k, session.settings.filters, min_score, names, mode)


@_command(
    "mode",
    "[hybrid | dense | lexical]",
    "rank by vector similarity (dense), by BM25 (lexical), or by both (hybrid)",
    completes="mode",
)
def _mode(session: ShellSession, name: str) -> ShellReply:
    mode = session.settings.mode
    if name:
        chosen = next((known for known in MODES if known == name.lower()), None)
        if chosen is None:
            raise InvalidArgument(
                f":mode must be one of {', '.join(MODES)}", hint=f"{name[:40]!r} is not a mode."
            )
        _check(session, session.settings.min_score, chosen)
        mode = chosen
    return _change(session, f"Searching in {mode} mode.", mode=mode)


@_command("min", "[SCORE | off]", "drop results with a lower score")
def _min(session: ShellSession, score: str) -> ShellReply:
    least = session.settings.min_score
    if score:
        try:
            least = None if score == _OFF else float(score)
        except ValueError:
            raise InvalidArgument(
                f":min needs a score, not {score[:40]!r}", hint="It is a number, such as 0.7, or `off`."
            ) from None
        _check(session, least, session.settings.mode)
    text = "any score" if least is None else f"a score of at least {least:g}"
    return _change(session, f"Showing results with {text}.", min_score=least)


@_command(
    "select",
    "[N | URL#ANCHOR] [QUESTION]",
    "find chunks that are related to a selected text",
    "Alone, it takes the text from the next lines, up to an empty line or a `.`; text that is pasted in one "
    "piece can have empty lines. With N, it takes the chunk of result N; with a URL, a page or a section. "
    "The next line is a question about the text, or empty. A question on the same line is asked at once. "
    "Ctrl-C drops the selection.",
    completes="page",
)
def _select(session: ShellSession, argument: str) -> ShellReply:
    if not argument:
        return session.start_paste()
    what, _, question = argument.partition(" ")
    if what.isdecimal():
        return session.select(session.hit(what).chunk.text, question.strip())
    url = _find_url(session, what)
    text = session.retriever.page(url).markdown(url.partition("#")[2])
    return session.select(text, question.strip())


@_command("again", "", "repeat the last search with the current settings")
def _again(session: ShellSession, argument: str) -> ShellReply:
    _no_argument("again", argument)
    if session.query is None:
        raise InvalidArgument("There was no search yet", hint="Type a query first.")
    return session.search(session.query)


@_command("verbose", "[on | off]", "show complete chunks instead of snippets", completes="switch")
def _verbose(session: ShellSession, switch: str) -> ShellReply:
    on = _switched("verbose", switch, now=session.settings.verbose)
    return _change(session, "Showing complete chunks." if on else "Showing snippets.", verbose=on)


@_command("json", "[on | off]", "print results as JSON", completes="switch")
def _json(session: ShellSession, switch: str) -> ShellReply:
    on = _switched("json", switch, now=session.settings.as_json)
    return _change(session, "Printing results as JSON." if on else "Printing results as text.", as_json=on)


def _switched(name: str, switch: str, *, now: bool) -> bool:
    """Return the new value of a switch; without an argument, it is toggled."""
    if switch not in ("", "on", _OFF):
        raise InvalidArgument(
            f":{name} takes on or off, not {switch[:40]!r}", hint=f"`:{name}` alone toggles it."
        )
    return switch == "on" if switch else not now


@_command(
    "explain",
    "N",
    "explain the rank of result N",
    "Shows its scores, its margin over the next result, the query words that it contains, and the results "
    "around it.",
)
def _explain(session: ShellSession, number: str) -> ShellReply:
    hit, result = session.hit(number), session.result()
    query, response = result.query, result.response
    around = None
    if not query.selection:
        from recto.evaluation.explain import explain

        around = explain(
            session.retriever, query.question, len(response.hits), response.filters, mode=response.mode
        )
    lines = _explanation(int(number), hit, response, session.words(response), around, session.style())
    return _reply("\n".join(lines))


def _explanation(
    number: int, hit: Hit, response: SearchResponse, words: Words, around: Explanation | None, style: Style
) -> Iterator[str]:
    """Yield why a hit has its rank; `around` has the results near it, except for a selected text."""
    for line in wrap_message(f"Result {number}: {_path(hit)}", style.width):
        yield style.bold(line)
    yield INDENT + style.cyan(one_line(hit.chunk.link))
    facts = [
        _score_text(hit, response, around),
        _rank_text(number, response, around),
        _words_text(hit, words),
    ]
    if response.selection is not None:
        facts.append(
            "It is related to the selected text. Chunks that contain that text are left out, and one page "
            "has at most half of the results."
        )
    for fact in filter(None, facts):
        first, *rest = wrap(fact, style.width - 2)
        yield f"- {first}"
        yield from (f"  {line}" for line in rest)
    if around is not None:
        yield ""
        yield from _neighbors(hit, around, style)


def _score_text(hit: Hit, response: SearchResponse, around: Explanation | None) -> str:
    parts = [("cosine", hit.dense), ("lexical", hit.lexical)] if response.mode != "dense" else []
    known = ", ".join(f"{name} {value:.3f}" for name, value in parts if value is not None)
    text = f"Its {response.mode} score is {hit.score:.3f}{f' ({known})' if known else ''}."
    floor = response.noise_floor
    if floor is None:
        return f"{text} The noise floor of this search is not known."
    side = "above" if hit.score >= floor else "below"
    text += f" That is {abs(hit.score - floor):.3f} {side} the noise floor ({floor:.3f})."
    if around is not None and around.auroc is not None:
        text += f" The AUROC of the noise floor is {around.auroc:.3f}."
    return text


def _rank_text(number: int, response: SearchResponse, around: Explanation | None) -> str:
    scores = [hit.score for hit in response.hits]
    next_scores = scores[number:] or [ranked.hit.score for ranked in (around.near_misses if around else ())]
    text = f"It is at rank {number}" + (f" among {plural(around.candidates, 'chunk')}" if around else "")
    if number > 1:
        text += f", {scores[0] - scores[number - 1]:.3f} below the first"
    if next_scores:
        text += f", {scores[number - 1] - next_scores[0]:.3f} above the next"
    return f"{text}."


def _words_text(hit: Hit, words: Words) -> str:
    headings, text = (
        matched_query_words(hit.chunk.heading_path, words),
        matched_query_words(hit.chunk.text, words),
    )
    absent = [word.word for word in words if word.word not in (*headings, *text)]
    groups = ((headings, "in its headings"), (text, "in its text"), (absent, "not in it"))
    parts = [f"{', '.join(found)} {where}" for found, where in groups if found]
    return one_line(f"Words of the query: {'; '.join(parts)}.") if parts else ""


def _neighbors(hit: Hit, around: Explanation, style: Style) -> Iterator[str]:
    """Yield the results near a hit, including the first that were not shown."""
    ranks = (*around.shown, *around.near_misses)
    here = next((index for index, ranked in enumerate(ranks) if ranked.hit.chunk.id == hit.chunk.id), None)
    if here is None:
        text = "The book was indexed again, and this chunk is no longer a result. Use :again."
        yield from wrap(text, style.width)
        return
    for index in range(max(0, here - _NEIGHBORS), min(len(ranks), here + _NEIGHBORS + 1)):
        if index == around.top_k:
            yield style.dim(f"    --- end of the top {around.top_k} ---")
        ranked = ranks[index]
        start = f"{'>' if index == here else ' '} {ranked.rank:>3}  {ranked.hit.score:.3f}  "
        path = cut(_path(ranked.hit), style.width - len(start))
        yield start + (style.bold(path) if index == here else path)


def _path(hit: Hit) -> str:
    return one_line(" > ".join((title_of(hit), *hit.chunk.headings[1:])))


@_command("open", "N", "print the URL of result N")
def _open(session: ShellSession, number: str) -> ShellReply:
    return _reply(one_line(session.hit(number).chunk.link))


@_command(
    "page",
    "N | URL#ANCHOR",
    "show the section of result N, or a page or section by its URL",
    completes="page",
)
def _page(session: ShellSession, argument: str) -> ShellReply:
    if not argument:
        raise InvalidArgument(":page needs the number of a result or a URL", hint="Such as `:page 1`.")
    url, style = _find_url(session, argument), session.style()
    page: BookPage = session.retriever.page(url)
    anchor = url.partition("#")[2]
    text = page.markdown(anchor)
    body: Sequence[str] = [printable(text)] if session.scripted else [*wrap_markdown(text, style.width)]
    link = one_line(with_anchor(page.url, anchor))
    return _reply("\n".join([style.cyan(link), "", *body]))


@_command("stats", "", "show the latency of the searches")
def _stats(session: ShellSession, argument: str) -> ShellReply:
    _no_argument("stats", argument)
    return _reply(session.latency.text())


@_command(
    "collection",
    "[NAME]",
    "search another collection; without a name: describe the current one",
    "This removes the filters, because another book has other modules and pages.",
    completes="collection",
)
def _collection(session: ShellSession, name: str) -> ShellReply:
    if name:
        other = session.retriever.with_collection(name)
        other.open()  # raises before anything changes
        session.switch(other)
        session.settings = replace(session.settings, filters=NO_FILTERS)
    retriever, width = session.retriever, session.style().width
    info = retriever.open().info
    lines = [f"Searching '{retriever.collection}': {plural(info.chunks, 'chunk')}, {info.generation}."]
    if made := info.fingerprint:
        indexed = f"indexed at {made.created_at} with {made.embedder.model}"
        lines.append(f"{made.source}, {plural(made.pages, 'page')}, {indexed}.")
    else:
        lines.append("Another pipeline made it, so its model cannot be verified.")
    if info.noise_floor is None:
        lines.append("Its noise floor was not measured; run `recto calibrate`.")
    else:
        lines.append(f"Its noise floor is a cosine of {info.noise_floor:.3f}.")
    others = sorted({*retriever.store.collections(), *retriever.store.aliases()} - {retriever.collection})
    if others:
        lines.append(f"Other collections: {', '.join(others)}.")
    return _reply("\n".join(part for line in lines for part in wrap_message(line, width)))


@_command("help", "[COMMAND]", "list the commands, or describe a command", completes="command")
def _help(session: ShellSession, name: str) -> ShellReply:
    style = session.style()
    lines = _about(find_command(name.removeprefix(":")), style) if name else _overview(style)
    return _reply("\n".join(lines))


def _overview(style: Style) -> Iterator[str]:
    yield from ("Type a query, or a command. The first letters of a command are enough.", "")
    for command in COMMANDS:
        usage = f":{command.name} {command.usage}".rstrip()
        summary = list(wrap(command.summary, style.width - _HELP_COLUMN))
        if len(usage) > _HELP_COLUMN - 4:
            yield f"  {style.bold(usage)}"
        else:
            yield f"  {style.bold(usage)}{' ' * (_HELP_COLUMN - 2 - len(usage))}{summary.pop(0)}"
        yield from (" " * _HELP_COLUMN + line for line in summary)
    yield ""
    keys = "Tab completes, the arrow keys show earlier lines, Ctrl-C cancels, Ctrl-D leaves."
    yield from wrap(keys, style.width)
    yield from wrap("A query that begins with a colon needs two: ::memory.", style.width)


def _about(command: ShellCommand, style: Style) -> Iterator[str]:
    yield style.bold(f":{command.name} {command.usage}".rstrip())
    text = f"{command.summary[0].upper()}{command.summary[1:]}. {command.details}"
    yield from wrap(text, style.width, INDENT)


@_command("quit", "", "leave; Ctrl-D does the same")
def _quit(_session: ShellSession, argument: str) -> ShellReply:
    _no_argument("quit", argument)
    return replace(_reply(""), ends=True)


def _no_argument(name: str, argument: str) -> None:
    if argument:
        raise InvalidArgument(f":{name} takes no argument", hint=f"Type `:{name}` alone.")
