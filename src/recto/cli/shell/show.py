"""What the commands other than a search show: modules, a collection, a page, the reasons for a result."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from recto._util.text import filter_keys
from recto.cli.output import filters_dict, in_line, shown
from recto.search import display
from recto.search.display import find_matches, make_snippet, matched_query_words
from recto.search.lexical import QueryWord
from recto.types import Hit, Outcome, PageGroup, SearchResponse

_WIDEST = 100  # columns; longer lines are hard to read
_NARROWEST = 40


@dataclass(frozen=True, slots=True)
class Look:
    """The columns there are, and whether there is colour."""

    width: int = 80
    colour: bool = False

    def strong(self, text: str) -> str:
        """Return a text in bold."""
        return self._styled("1", text)

    def faint(self, text: str) -> str:
        """Return a text that stays in the background."""
        return self._styled("2", text)

    def good(self, text: str) -> str:
        """Return a text in the colour of what is well."""
        return self._styled("32", text)

    def doubtful(self, text: str) -> str:
        """Return a text in the colour of what is to be doubted."""
        return self._styled("33", text)

    def bad(self, text: str) -> str:
        """Return a text in the colour of what went wrong."""
        return self._styled("31", text)

    def address(self, text: str) -> str:
        """Return a text in the colour of addresses."""
        return self._styled("36", text)

    def marked(self, text: str, words: Sequence[QueryWord]) -> str:
        """Return a text in which the words that match a query are bold."""
        if not self.colour:
            return text
        end, parts = 0, []
        for match in find_matches(text, words):
            parts += [text[end : match.start], self._styled("1", text[match.start : match.end])]
            end = match.end
        return "".join((*parts, text[end:]))

    def _styled(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and text else text


def is_dumb() -> bool:
    """Tell whether the terminal can show nothing but text."""
    return sys.platform != "win32" and os.environ.get("TERM", "") in ("", "dumb", "unknown")


def terminal_look() -> Look:
    """Return the width of the terminal, within what is readable, and whether it shows colours."""
    columns = shutil.get_terminal_size((Look().width, 24)).columns
    return Look(max(_NARROWEST, min(columns, _WIDEST)), not is_dumb() and not os.environ.get("NO_COLOR"))


def cells(text: str) -> int:
    """Count the columns that a text takes in a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(sign) else 2 if unicodedata.east_asian_width(sign) in "WF" else 1
        for sign in text
    )


def cut(text: str, width: int) -> str:
    """Return as much of a text as fits on a line."""
    return text if cells(text) <= width else f"{_head(text, width - 3)}..."


def wrapped(text: str, width: int, indent: str = "") -> Iterator[str]:
    """Yield the lines of a text, broken between words where that can be done."""
    room = max(width - cells(indent), 10)
    line = ""
    for word in text.split():
        rest = word
        if line and cells(line) + 1 + cells(rest) <= room:
            line += f" {rest}"
            continue
        if line:
            yield indent + line
        while cells(rest) > room:
            head = _head(rest, room)
            yield indent + head
            rest = rest[len(head) :]
        line = rest
    if line:
        yield indent + line


def _head(text: str, width: int) -> str:
    taken = used = 0
    for sign in text:
        used += cells(sign)
        if used > width:
            break
        taken += 1
    return text[: max(taken, 1)]


_FENCE = re.compile(r"\s*(?:```|~~~)")
_LAID_OUT = re.compile(r"\s*\||\s{4,}|\t")
_OTHER_SECTIONS = 4  # sections that are listed beneath the best chunk of a page
INDENT = " " * 4

Words = Sequence[QueryWord]


def results(response: SearchResponse, words: Words, look: Look, *, verbose: bool) -> str:
    """Return an answer as text; the words that match the query are marked where there is colour."""
    lines = [*_show_head(response, look)]
    entries: Sequence[Hit | PageGroup] = response.groups or response.hits
    if not display.is_covered(response):
        entries = entries[: display.WEAK_SHOWN]
    for number, entry in enumerate(entries, 1):
        hit = entry.hits[0] if isinstance(entry, PageGroup) else entry
        lines += ["", *_hit(number, hit, response, words, look, verbose=verbose)]
        if isinstance(entry, PageGroup):
            lines += _other_sections(entry, words, look)
    if response.outcome is not Outcome.FOUND or not response.hits:
        lines += wrapped(in_line(response.message or "Nothing was found."), look.width)
    return "\n".join(lines)


_DIGITS = 6
_JSON_FIELDS = (
    "score",
    "dense",
    "lexical",
    "above_noise",
    "title",
    "section",
    "url",
    "page_url",
    "module",
    "module_title",
    "headings",
    "anchor",
    "chunk_index",
    "snippet",
    "matches",
    "text",
)


def results_json(response: SearchResponse, words: Words) -> str:
    """Return an answer as JSON, with everything that is known about it."""
    data: dict[str, Any] = {
        "query": response.query,
        "mode": response.mode,
        "answerable": response.answerable,
        "corrections": {word: list(meant) for word, meant in response.corrections},
        "total_found": len(response.hits),
        "query_time_ms": round(response.timings.total_ms),
        "filters": filters_dict(response.filters),
        "noise_floor": None if response.noise_floor is None else round(response.noise_floor, _DIGITS),
        "results": [
            {"rank": rank} | display.pick(display.hit_to_dict(hit, response, words, _DIGITS), _JSON_FIELDS)
            for rank, hit in enumerate(response.hits, 1)
        ],
    }
    if response.groups:
        data["groups"] = display.group_ranks(response)
    if (selection := response.selection) is not None:
        data["selection"] = {
            "text": selection.text,
            "given": selection.given,
            "cut": selection.cut,
            "left_out": selection.left_out,
        }
    if response.outcome is not Outcome.FOUND:
        data |= {"outcome": response.outcome.value, "message": response.message}
    return json.dumps(data, indent=2, ensure_ascii=False)


def title_of(hit: Hit) -> str:
    """Return the title of a hit's page, or its address if it has none."""
    return in_line(hit.chunk.page_title or hit.chunk.page_url)


def _show_head(response: SearchResponse, look: Look) -> Iterator[str]:
    count = len(response.groups or response.hits)
    noun = "page" if response.groups else "result"
    facts = [
        f"{count or 'No'} {noun}{'' if count == 1 else 's'} in {response.timings.total_ms:.0f} ms",
        response.mode,
    ]
    if count > display.WEAK_SHOWN and not display.is_covered(response):
        facts.append(f"the best {display.WEAK_SHOWN} are shown")
    facts += [f"{name} {_names(value)}" for name, value in filters_dict(response.filters).items()]
    yield from (look.faint(line) for line in wrapped(" | ".join(facts), look.width))
    if response.selection is not None:
        left_out = response.selection.left_out
        held = f"; {left_out} that hold{'s' if left_out == 1 else ''} it left out" if left_out else ""
        yield look.faint(f"Goes with the selected text ({response.selection.given} characters{held})")
    for said in display.corrections_of(response):
        yield from (look.doubtful(line) for line in wrapped(in_line(said), look.width))
    if count and not display.is_covered(response):
        yield from (look.doubtful(line) for line in wrapped(display.NOT_COVERED, look.width))


def _hit(
    number: int, hit: Hit, response: SearchResponse, words: Words, look: Look, *, verbose: bool
) -> Iterator[str]:
    chunk = hit.chunk
    score, weak = f"{hit.score:.3f}", " weak" if display.is_weak(hit, response) else ""
    start = f"{number:>2}  {score}{weak}  "
    title = list(wrapped(f"{title_of(hit)} ({in_line(chunk.module_name)})", look.width - cells(start)))
    yield f"{look.strong(f'{number:>2}')}  {score}{look.doubtful(weak)}  {look.strong(title[0])}"
    yield from (" " * cells(start) + look.strong(line) for line in title[1:])
    if len(chunk.headings) > 1:
        yield from (look.marked(line, words) for line in wrapped(_section(hit), look.width, INDENT))
    yield INDENT + look.address(in_line(chunk.link))
    snippet = shown(make_snippet(chunk.text, words).text)
    text = whole(chunk.text, look.width, INDENT) if verbose else wrapped(snippet, look.width, INDENT)
    yield from (look.marked(line, words) for line in text)


def _other_sections(group: PageGroup, words: Words, look: Look) -> Iterator[str]:
    """Yield the other sections of a page that match, best first, each once."""
    sections: dict[str, Hit] = {}
    for hit in group.hits:
        sections.setdefault(hit.chunk.link, hit)
    _, *others = sections.values()
    for hit in others[:_OTHER_SECTIONS]:
        start = f"{INDENT}  {hit.score:.3f}  "
        yield start + look.marked(cut(_section(hit) or title_of(hit), look.width - cells(start)), words)
    if more := len(others[_OTHER_SECTIONS:]):
        yield look.faint(f"{INDENT}  and {more} more section{'' if more == 1 else 's'}")


def _section(hit: Hit) -> str:
    return in_line(" > ".join(hit.chunk.headings[1:]))


def whole(text: str, width: int, indent: str = "") -> Iterator[str]:
    """Yield a text as it is written: prose is wrapped, code and tables keep their lines."""
    fenced = False
    for line in shown(text).expandtabs(4).split("\n"):
        fence = _FENCE.match(line) is not None
        fenced ^= fence
        if fence or fenced or _LAID_OUT.match(line) or not line.strip():
            yield (indent + line).rstrip()
        else:
            yield from wrapped(line, width, indent + " " * (len(line) - len(line.lstrip())))


def _names(value: str | list[str]) -> str:
    return in_line(value if isinstance(value, str) else ", ".join(value))


if TYPE_CHECKING:
    from recto.evaluation.explain import Explanation, Ranked
    from recto.search.lexical import QueryWord
    from recto.search.pages import BookPage
    from recto.search.retriever import Retriever
    from recto.types import Hit, Module, SearchResponse

_AROUND = 2  # neighbours that are shown on either side of an explained result


def modules(known: Sequence[Module], chosen: Sequence[str], look: Look) -> str:
    """List the modules, those that are searched marked."""
    keys = filter_keys(chosen)
    rows = [f"{'*' if module.name in keys else ' '} {in_line(_module(module))}" for module in known]
    said = (
        f"Searching only {', '.join(chosen)}."
        if chosen
        else "Searching all of them; `:module NAMES` narrows it."
    )
    return "\n".join(
        [*(look.strong(row) if row[0] == "*" else row for row in rows), *wrapped(in_line(said), look.width)]
    )


def _module(module: Module) -> str:
    counted = f"{module.name}: {module.chunks} passage{'' if module.chunks == 1 else 's'}"
    return counted if module.title == module.name else f"{counted}, {module.title}"


def collection(retriever: Retriever, look: Look) -> str:
    """Describe the collection that is searched, and name the others."""
    info = retriever.open().info
    lines = [f"Searching '{retriever.collection}': {info.chunks} passages, {info.generation}."]
    if made := info.fingerprint:
        lines.append(
            f"{in_line(made.source)}, {made.pages} pages, indexed at {made.created_at} with {made.embedder.model}."
        )
    else:
        lines.append("It was made by another pipeline, so its model cannot be verified.")
    noise = info.noise_floor
    lines.append(
        "Its noise floor was not measured; `recto calibrate` does it."
        if noise is None
        else f"Its noise floor is a cosine of {noise:.3f}."
    )
    others = sorted({*retriever.store.collections(), *retriever.store.aliases()} - {retriever.collection})
    if others:
        lines.append(f"There are also: {', '.join(others)}.")
    return "\n".join(part for line in lines for part in wrapped(in_line(line), look.width))


def page(read: BookPage, anchor: str, look: Look, *, as_written: bool) -> str:
    """Return a page, or a section of it, as Markdown under its address; for people its prose is wrapped between words."""
    address = f"{read.url}#{anchor}" if anchor else read.url
    text = read.markdown(anchor)
    return "\n".join(
        [look.address(in_line(address)), "", *([shown(text)] if as_written else whole(text, look.width))]
    )


def explained(
    number: int,
    hit: Hit,
    response: SearchResponse,
    words: Sequence[QueryWord],
    around: Explanation | None,
    look: Look,
) -> str:
    """Say why a hit is among the results; `around` has the results near it, if that could be searched again."""
    lines = [look.strong(line) for line in wrapped(f"Why result {number}: {_named(hit)}", look.width)]
    lines.append(INDENT + look.address(in_line(hit.chunk.link)))
    facts = [_score(hit, response, around), _place(number, response, around)]
    if has := _words(hit, words):
        facts.append(has)
    if response.selection is not None:
        facts.append(
            "It goes with the selected text; passages that hold that text, and more than half from one page, are left out."
        )
    for fact in facts:
        first, *rest = wrapped(fact, look.width - 2)
        lines += [f"- {first}", *(f"  {line}" for line in rest)]
    if around is not None:
        lines += ["", *_neighbours(hit, around, look)]
    return "\n".join(lines)


def _score(hit: Hit, response: SearchResponse, around: Explanation | None) -> str:
    text = f"Its {response.mode} score is {hit.score:.3f}"
    parts = [
        f"{name} {part:.3f}"
        for name, part in (("cosine", hit.dense), ("BM25", hit.lexical))
        if part is not None
    ]
    text += f" ({', '.join(parts)})." if parts and response.mode != "dense" else "."
    cosine = hit.score if response.mode == "dense" else hit.dense
    if response.noise_floor is None:
        return f"{text} The noise floor of this index was not measured."
    if cosine is not None:
        side = "above" if cosine >= response.noise_floor else "below"
        text += f" Its cosine is {abs(cosine - response.noise_floor):.3f} {side} the noise floor ({response.noise_floor:.3f})."
    if around is not None and around.auroc is not None:
        text += f" Queries that the book covers are above others in {around.auroc:.0%} of cases."
    return text


def _place(number: int, response: SearchResponse, around: Explanation | None) -> str:
    hits = response.hits
    searched = f" among {around.candidates} chunks" if around is not None else ""
    text = f"It is at rank {number}{searched}"
    if number > 1:
        text += f", {hits[0].score - hits[number - 1].score:.3f} below the first"
    below = [hit.score for hit in hits[number:]] or [
        ranked.hit.score for ranked in (around.near_misses if around else ())
    ]
    if below:
        text += f", {hits[number - 1].score - below[0]:.3f} above the next"
    return f"{text}."


def _words(hit: Hit, words: Sequence[QueryWord]) -> str:
    if not words:
        return ""
    headings, text = (
        matched_query_words(hit.chunk.heading_path, words),
        matched_query_words(hit.chunk.text, words),
    )
    absent = [word.word for word in words if word.word not in (*headings, *text)]
    parts = [
        f"{', '.join(found)} {where}"
        for found, where in ((headings, "in its headings"), (text, "in its text"), (absent, "nowhere in it"))
        if found
    ]
    return in_line(f"Words of the query: {'; '.join(parts)}.")


def _neighbours(hit: Hit, around: Explanation, look: Look) -> Iterator[str]:
    """Yield the ranks near a hit, and the first that were not shown."""
    ranks = (*around.shown, *around.near_misses)
    here = next((place for place, ranked in enumerate(ranks) if ranked.hit.chunk.id == hit.chunk.id), None)
    if here is None:
        yield from wrapped(
            "It is no longer among the first: the book was indexed again. Use :again.", look.width
        )
        return
    first = max(0, here - _AROUND)
    for place in range(first, min(len(ranks), here + _AROUND + 1)):
        if place == around.top_k:
            yield look.faint(f"    --- the first {around.top_k} end here ---")
        yield _row(ranks[place], look, here=place == here)


def _row(ranked: Ranked, look: Look, *, here: bool) -> str:
    start = f"{'>' if here else ' '} {ranked.rank:>3}  {ranked.hit.score:.3f}  "
    name = cut(_named(ranked.hit), look.width - len(start))
    return f"{start}{look.strong(name) if here else name}"


def _named(hit: Hit) -> str:
    return in_line(" > ".join((title_of(hit), *hit.chunk.headings[1:])))
