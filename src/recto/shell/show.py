"""The answer to a query, for people and for scripts: title, section, address, score, and a snippet with the matched words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from recto.cli.render import filters_dict, in_line, shown
from recto.search import display
from recto.search.lexical import QueryWord
from recto.search.snippets import make_snippet
from recto.shell.look import Look, cells, cut, wrapped
from recto.types import Hit, Outcome, PageGroup, SearchResponse

_FENCE = re.compile(r"\s*(?:```|~~~)")
_LAID_OUT = re.compile(r"\s*\||\s{4,}|\t")
_OTHER_SECTIONS = 4  # sections that are listed beneath the best chunk of a page
INDENT = " " * 4

Words = Sequence[QueryWord]


def results(response: SearchResponse, words: Words, look: Look, *, verbose: bool) -> str:
    """Return an answer as text; the words that match the query are marked where there is colour."""
    lines = [*_head(response, look)]
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
        "noise": _rounded(response.noise),
        "results": [_hit_data(rank, hit, response, words) for rank, hit in enumerate(response.hits, 1)],
    }
    if response.groups:
        data["groups"] = display.group_ranks(response)
    if (selection := response.selection) is not None:
        data["selection"] = {"text": selection.text, "given": selection.given, "cut": selection.cut, "left_out": selection.left_out}
    if response.outcome is not Outcome.FOUND:
        data |= {"outcome": response.outcome.value, "message": response.message}
    return json.dumps(data, indent=2, ensure_ascii=False)


def title_of(hit: Hit) -> str:
    """Return the title of a hit's page, or its address if it has none."""
    return in_line(hit.chunk.page_title or hit.chunk.page_url)


def _hit_data(rank: int, hit: Hit, response: SearchResponse, words: Words) -> dict[str, Any]:
    chunk = hit.chunk
    return {
        "rank": rank,
        "score": _rounded(hit.score),
        "dense": _rounded(hit.dense),
        "lexical": _rounded(hit.lexical),
        "above_noise": display.above_noise(hit, response),
        "module_name": chunk.module_name,
        "page_title": chunk.page_title,
        "page_url": chunk.page_url,
        "headings": list(chunk.headings),
        "anchor": chunk.anchor,
        "chunk_index": chunk.chunk_index,
        "snippet": make_snippet(chunk.text, words).text,
        "matches": list(display.chunk_matches(chunk, words)),
        "text": chunk.text,
    }


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 6)


def _head(response: SearchResponse, look: Look) -> Iterator[str]:
    count = len(response.groups or response.hits)
    noun = "page" if response.groups else "result"
    facts = [f"{count or 'No'} {noun}{'' if count == 1 else 's'} in {response.timings.total_ms:.0f} ms", response.mode]
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


def _hit(number: int, hit: Hit, response: SearchResponse, words: Words, look: Look, *, verbose: bool) -> Iterator[str]:
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
