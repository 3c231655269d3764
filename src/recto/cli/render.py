"""Print search results for people and as JSON, with the width and the colors of the terminal."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partialmethod

from recto._util.markdown import FENCE_MARKS
from recto._util.text import plural, to_json
from recto.cli import filters_dict, one_line, printable
from recto.search import display
from recto.search.display import find_matches, make_snippet
from recto.search.lexical import QueryWord
from recto.types.search import Hit, Outcome, PageGroup, SearchResponse

INDENT = " " * 4
Words = Sequence[QueryWord]

_MIN_WIDTH, _MAX_WIDTH = 40, 100  # longer lines are hard to read
_NOT_FIRST = frozenset("、。，．！？：；」』）】》〉ー々")  # characters that do not begin a line
_FENCE = re.compile(rf"\s*(?:{FENCE_MARKS})")
_PREFORMATTED = re.compile(r"\s*\||\s{4,}|\t")
_OTHER_SECTIONS = 4  # sections that are listed below the best chunk of a page


@dataclass(frozen=True, slots=True)
class Style:
    """The width of the output, and whether it has colors."""

    width: int = 80
    color: bool = False

    def _styled(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.color and text else text

    bold = partialmethod(_styled, "1")
    dim = partialmethod(_styled, "2")
    yellow = partialmethod(_styled, "33")
    cyan = partialmethod(_styled, "36")

    def highlight(self, text: str, words: Words) -> str:
        """Return text with the words that match a query in bold."""
        if not self.color:
            return text
        end, parts = 0, []
        for match in find_matches(text, words):
            parts += [text[end : match.start], self.bold(text[match.start : match.end])]
            end = match.end
        return "".join((*parts, text[end:]))


def is_dumb() -> bool:
    """Return whether the terminal can show only plain text."""
    return sys.platform != "win32" and os.environ.get("TERM", "") in ("", "dumb", "unknown")


def terminal_style() -> Style:
    """Return the width of the terminal, within limits, and whether it shows colors."""
    columns = shutil.get_terminal_size((Style().width, 24)).columns
    width = max(_MIN_WIDTH, min(columns, _MAX_WIDTH))
    return Style(width, not is_dumb() and not os.environ.get("NO_COLOR"))


def cells(text: str) -> int:
    """Count the columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def cut(text: str, width: int) -> str:
    """Shorten a text to a width."""
    return text if cells(text) <= width else f"{_head(text, width - 3)}..."


def wrap(text: str, width: int, indent: str = "") -> Iterator[str]:
    """Yield the lines of a text, broken between words where possible."""
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


def wrap_message(text: str, width: int) -> Iterator[str]:
    """Yield the lines of a message; all but the first are indented, so that no name looks like a message."""
    for number, line in enumerate(wrap(one_line(text), width - 2)):
        yield f"  {line}" if number else line


def wrap_markdown(text: str, width: int, indent: str = "") -> Iterator[str]:
    """Yield the lines of a Markdown text: prose is wrapped, code and tables keep their lines."""
    fenced = False
    for line in printable(text).expandtabs(4).split("\n"):
        fence = _FENCE.match(line) is not None
        fenced ^= fence
        if fence or fenced or _PREFORMATTED.match(line) or not line.strip():
            yield (indent + line).rstrip()
        else:
            yield from wrap(line, width, indent + " " * (len(line) - len(line.lstrip())))


def _head(text: str, width: int) -> str:
    """Return the beginning of a text that fits into a width, and at least one character."""
    if text.isascii():
        return text[: max(width, 1)]
    from rich.cells import chop_cells

    from recto._util.languages import is_between_characters

    head = next(filter(None, chop_cells(text, max(width, 1))))
    cuts = (cut for cut in range(len(head), 0, -1) if is_between_characters(text, cut))
    return text[: next((cut for cut in cuts if text[cut : cut + 1] not in _NOT_FIRST), len(head))]


def results(response: SearchResponse, words: Words, style: Style, *, verbose: bool) -> str:
    """Return a response as text."""
    lines = [*_summary(response, style)]
    entries: Sequence[Hit | PageGroup] = response.groups or response.hits
    if not response.covered:
        entries = entries[: display.WEAK_SHOWN]
    for number, entry in enumerate(entries, 1):
        hit = entry.hits[0] if isinstance(entry, PageGroup) else entry
        lines += ["", *_hit(number, hit, response, words, style, verbose=verbose)]
        if isinstance(entry, PageGroup):
            lines += _other_sections(entry, words, style)
    if response.outcome is not Outcome.FOUND or not response.hits:
        lines += wrap_message(response.message or "No results.", style.width)
    return "\n".join(lines)


def results_json(response: SearchResponse, words: Words) -> str:
    """Return a response as JSON."""
    return to_json(
        {
            "query": response.query,
            "total_found": len(response.hits),
            "query_time_ms": round(response.timings.total_ms),
            "filters": filters_dict(response.filters),
        }
        | display.response_to_dict(response, words)
    )


def title_of(hit: Hit) -> str:
    """Return the title of a hit's page, or its URL if it has none."""
    return one_line(hit.chunk.title or hit.chunk.page_url)


def _summary(response: SearchResponse, style: Style) -> Iterator[str]:
    count = len(response.groups or response.hits)
    total = plural(count, "page" if response.groups else "result") if count else "No results"
    facts = [f"{total} in {response.timings.total_ms:.0f} ms", response.mode]
    covered = response.covered
    if count > display.WEAK_SHOWN and not covered:
        facts.append(f"the best {display.WEAK_SHOWN} are shown")
    for name, value in filters_dict(response.filters).items():
        facts.append(f"{name} {value if isinstance(value, str) else ', '.join(value)}")
    yield from (style.dim(line) for line in wrap_message(" | ".join(facts), style.width))
    if (selection := response.selection) is not None:
        left_out = f"; {plural(selection.left_out, 'chunk')} with it left out" if selection.left_out else ""
        yield style.dim(f"Related to the selected text ({plural(selection.given, 'character')}{left_out})")
    notes = [*display.corrections_of(response)]
    if count and not covered:
        notes.append(display.NOT_COVERED)
    elif count and response.coverage == "unclear":
        notes.append(display.UNCLEAR)
    for note in notes:
        yield from (style.yellow(line) for line in wrap_message(note, style.width))


def _hit(
    number: int, hit: Hit, response: SearchResponse, words: Words, style: Style, *, verbose: bool
) -> Iterator[str]:
    chunk = hit.chunk
    score, weak = f"{hit.score:.3f}", " weak" if display.is_weak(hit, response) else ""
    start = f"{number:>2}  {score}{weak}  "
    title = list(wrap(f"{title_of(hit)} ({one_line(chunk.module)})", style.width - cells(start)))
    yield f"{style.bold(f'{number:>2}')}  {score}{style.yellow(weak)}  {style.bold(title[0])}"
    yield from (" " * cells(start) + style.bold(line) for line in title[1:])
    yield from (style.highlight(line, words) for line in wrap(_section(hit), style.width, INDENT))
    yield INDENT + style.cyan(one_line(chunk.url))
    if verbose:
        text = wrap_markdown(chunk.text, style.width, INDENT)
    else:
        text = wrap(printable(make_snippet(chunk.text, words).text), style.width, INDENT)
    yield from (style.highlight(line, words) for line in text)


def _other_sections(group: PageGroup, words: Words, style: Style) -> Iterator[str]:
    """Yield the other sections of a page that match, best first, each once."""
    sections: dict[str, Hit] = {}
    for hit in group.hits:
        sections.setdefault(hit.chunk.url, hit)
    _, *others = sections.values()
    for hit in others[:_OTHER_SECTIONS]:
        start = f"{INDENT}  {hit.score:.3f}  "
        yield start + style.highlight(cut(_section(hit) or title_of(hit), style.width - cells(start)), words)
    if more := len(others[_OTHER_SECTIONS:]):
        yield style.dim(f"{INDENT}  and {plural(more, 'more section')}")


def _section(hit: Hit) -> str:
    """Return the headings of a hit below the title of its page."""
    return one_line(" > ".join(hit.chunk.headings[1:]))
