"""What the commands other than a search show: modules, a collection, a page, the reasons for a result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from recto.cli.render import in_line, shown
from recto.modules import filter_keys
from recto.search.snippets import found_words
from recto.shell.look import Look, cut, wrapped
from recto.shell.show import INDENT, title_of, whole

if TYPE_CHECKING:
    from recto.evaluation.explain import Explanation, Ranked
    from recto.pages import BookPage
    from recto.retriever import Retriever
    from recto.search.lexical import QueryWord
    from recto.types import Hit, Module, SearchResponse

_AROUND = 2  # neighbours that are shown on either side of an explained result


def modules(known: Sequence[Module], chosen: Sequence[str], look: Look) -> str:
    """List the modules, those that are searched marked."""
    keys = filter_keys(chosen)
    rows = [f"{'*' if module.name in keys else ' '} {in_line(_module(module))}" for module in known]
    said = f"Searching only {', '.join(chosen)}." if chosen else "Searching all of them; `:module NAMES` narrows it."
    return "\n".join([*(look.strong(row) if row[0] == "*" else row for row in rows), *wrapped(in_line(said), look.width)])


def _module(module: Module) -> str:
    counted = f"{module.name}: {module.chunks} passage{'' if module.chunks == 1 else 's'}"
    return counted if module.title == module.name else f"{counted}, {module.title}"


def collection(retriever: Retriever, look: Look) -> str:
    """Describe the collection that is searched, and name the others."""
    info = retriever.open().info
    lines = [f"Searching '{retriever.collection}': {info.chunks} passages, {info.generation}."]
    if made := info.fingerprint:
        lines.append(f"{in_line(made.source)}, {made.pages} pages, indexed at {made.created_at} with {made.embedder.model}.")
    else:
        lines.append("It was made by another pipeline, so its model cannot be verified.")
    noise = info.noise
    lines.append(
        "Its noise floor was not measured; `recto calibrate` does it." if noise is None else f"Its noise floor is a cosine of {noise:.3f}."
    )
    others = sorted({*retriever.store.collections(), *retriever.store.aliases()} - {retriever.collection})
    if others:
        lines.append(f"There are also: {', '.join(others)}.")
    return "\n".join(part for line in lines for part in wrapped(in_line(line), look.width))


def page(read: BookPage, anchor: str, look: Look, *, as_written: bool) -> str:
    """Return a page, or a section of it, as Markdown under its address; for people its prose is wrapped between words."""
    address = f"{read.url}#{anchor}" if anchor else read.url
    text = read.markdown(anchor)
    return "\n".join([look.address(in_line(address)), "", *([shown(text)] if as_written else whole(text, look.width))])


def explained(number: int, hit: Hit, response: SearchResponse, words: Sequence[QueryWord], around: Explanation | None, look: Look) -> str:
    """Say why a hit is among the results; `around` has the results near it, if that could be searched again."""
    lines = [look.strong(line) for line in wrapped(f"Why result {number}: {_named(hit)}", look.width)]
    lines.append(INDENT + look.address(in_line(hit.chunk.link)))
    facts = [_score(hit, response, around), _place(number, response, around)]
    if has := _words(hit, words):
        facts.append(has)
    if response.selection is not None:
        facts.append("It goes with the selected text; passages that hold that text, and more than half from one page, are left out.")
    for fact in facts:
        first, *rest = wrapped(fact, look.width - 2)
        lines += [f"- {first}", *(f"  {line}" for line in rest)]
    if around is not None:
        lines += ["", *_neighbours(hit, around, look)]
    return "\n".join(lines)


def _score(hit: Hit, response: SearchResponse, around: Explanation | None) -> str:
    text = f"Its {response.mode} score is {hit.score:.3f}"
    parts = [f"{name} {part:.3f}" for name, part in (("cosine", hit.dense), ("BM25", hit.lexical)) if part is not None]
    text += f" ({', '.join(parts)})." if parts and response.mode != "dense" else "."
    cosine = hit.score if response.mode == "dense" else hit.dense
    if response.noise is None:
        return f"{text} The noise floor of this index was not measured."
    if cosine is not None:
        side = "above" if cosine >= response.noise else "below"
        text += f" Its cosine is {abs(cosine - response.noise):.3f} {side} the noise floor ({response.noise:.3f})."
    if around is not None and around.separation is not None:
        text += f" Queries that the book covers are above others in {around.separation:.0%} of cases."
    return text


def _place(number: int, response: SearchResponse, around: Explanation | None) -> str:
    hits = response.hits
    searched = f" among {around.candidates} chunks" if around is not None else ""
    text = f"It is at rank {number}{searched}"
    if number > 1:
        text += f", {hits[0].score - hits[number - 1].score:.3f} below the first"
    below = [hit.score for hit in hits[number:]] or [ranked.hit.score for ranked in (around.near_misses if around else ())]
    if below:
        text += f", {hits[number - 1].score - below[0]:.3f} above the next"
    return f"{text}."


def _words(hit: Hit, words: Sequence[QueryWord]) -> str:
    if not words:
        return ""
    headings, text = found_words(hit.chunk.heading_path, words), found_words(hit.chunk.text, words)
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
        yield from wrapped("It is no longer among the first: the book was indexed again. Use :again.", look.width)
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
