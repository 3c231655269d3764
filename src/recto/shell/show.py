"""The answer to a question, for people: title, place, score against the noise, and the part of the passage that the question is about."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from recto.cli.render import clamped, filters_dict, in_line, shown
from recto.shell.look import Look, Terms, cells, terms_of, wrapped
from recto.types import Hit, Outcome, SearchResponse

_PREVIEW = 3  # lines
_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_FENCE = re.compile(r"\s*(?:```|~~~)")
_LAID_OUT = re.compile(r"\s*\||\s{4,}|\t")
INDENT = " " * 4


def results(response: SearchResponse, question: str, look: Look, *, verbose: bool) -> str:
    """Return an answer; `question` is where the words to mark come from."""
    terms = terms_of(question)
    lines = [*_head(response, look)]
    for number, hit in enumerate(response.hits, 1):
        lines += ["", *_hit(number, hit, response.noise, terms, look, verbose=verbose)]
    if response.outcome is not Outcome.FOUND or not response.hits:
        lines += wrapped(in_line(response.message or "Nothing was found."), look.width)
    return "\n".join(lines)


def title_of(hit: Hit) -> str:
    """Return the title of a hit's page, or its address if it has none."""
    return in_line(hit.chunk.page_title or hit.chunk.page_url)


def score_of(score: float, noise: float | None, look: Look) -> str:
    """Return a score and what it means beside the noise."""
    text = f"{clamped(score):.3f}"
    if noise is None:
        return text
    return f"{text} {look.doubtful('noise ')}" if score < noise else f"{text} {look.good(f'{score - noise:+.3f}')}"


def _head(response: SearchResponse, look: Look) -> Iterator[str]:
    count = len(response.hits)
    facts = [f"{count or 'No'} passage{'' if count == 1 else 's'} in {response.timings.total_ms:.0f} ms"]
    facts += [f"{name} {_names(value)}" for name, value in filters_dict(response.filters).items()]
    noise = response.noise
    if noise is not None and count:
        facts.append(f"noise is below {clamped(noise):.3f}")
    yield from (look.faint(line) for line in wrapped(" | ".join(facts), look.width))
    if response.selection is not None:
        left_out = response.selection.left_out
        held = f"; {left_out} that hold{'s' if left_out == 1 else ''} it left out" if left_out else ""
        yield look.faint(f"Goes with the selected text ({response.selection.given} characters{held})")
    if noise is not None and count and response.hits[0].score < noise:
        said = "Nothing is above the noise: the book does not seem to answer this."
        yield from (look.doubtful(line) for line in wrapped(said, look.width))


def _hit(number: int, hit: Hit, noise: float | None, terms: Terms, look: Look, *, verbose: bool) -> Iterator[str]:
    chunk = hit.chunk
    start = f"{number:>2}  {score_of(hit.score, noise, Look())}  "
    title = list(wrapped(f"{title_of(hit)} ({in_line(chunk.module_name)})", look.width - cells(start)))
    yield f"{look.strong(f'{number:>2}')}  {score_of(hit.score, noise, look)}  {look.strong(title[0])}"
    yield from (" " * cells(start) + look.strong(line) for line in title[1:])
    if len(chunk.headings) > 1:
        yield from (look.marked(line, terms) for line in wrapped(in_line(" > ".join(chunk.headings[1:])), look.width, INDENT))
    yield INDENT + look.address(in_line(chunk.link))
    text = whole(chunk.text, look.width, INDENT) if verbose else _preview(chunk.text, terms, look.width)
    yield from (look.marked(line, terms) for line in text)


def _preview(text: str, terms: Terms, width: int) -> Iterator[str]:
    """Yield a few lines from the sentence on that has most of the question's words."""
    sentences = _SENTENCE.split(in_line(text))
    first = _best(sentences, terms)
    begun = "... " if first else ""
    lines = list(islice(wrapped(begun + " ".join(sentences[first:]), width - 4, INDENT), _PREVIEW + 1))
    yield from lines[: _PREVIEW - 1]
    yield from (line + (" ..." if len(lines) > _PREVIEW else "") for line in lines[_PREVIEW - 1 : _PREVIEW])


def _best(sentences: Sequence[str], terms: Terms) -> int:
    """Return where to begin: at the first of two neighbouring sentences with as many of the words as any two have."""
    have = [set(terms.found(sentence)) for sentence in sentences]
    both = [len(one | two) for one, two in zip(have, [*have[1:], set()], strict=True)]
    first = both.index(max(both))
    return first if have[first] or first == 0 else first + 1


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
