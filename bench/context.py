"""Measure what a language model gets to read: `uv run --group bench python -m bench.context`.

Each question of a set has a quote of its answer. For each budget of tokens, the measure says how many
questions that the book answers have that quote in the context, and which share of the tokens repeats earlier
ones or is markup that says nothing: addresses, tags, attributes, half a code block. Frameworks get their hits
in order until the budget is spent. Texts are compared by their words. All systems use the same model and
tokenizer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from bench.books import make_parser, open_book, open_peer, parse, scratch_directory
from bench.common import table
from bench.peers.listing import load
from bench.peers.process import RunnerError
from bench.peers.runners.embedding import model
from bench.question_sets import Book
from recto import Retriever

BUDGETS = (400, 800, 1600, 3000)
RUN = 8
"""Consecutive words that repeat earlier ones; shorter runs occur in any text."""
_TOP = 30  # chunks requested from a framework: more than fit into the largest budget
_MARKUP = re.compile(
    r"""<!--[\s\S]*?-->|</?[a-zA-Z][^<>\n]*>|(?<=\])\([^()\s]*(?:\s+"[^"]*")?\)|(?<=\])\[[^\[\]\n]*\]|"""
    r"""(?<=\])\{[^{}\n]*\}|\{:?[ ]*[#.][^{}\n]*\}|data:[\w/+;,-]+=*|^[ \t]*(?::{3,}|/{3,})[^\n]*$|"""
    r"""\[\^[^\[\]\s]+\]|(?<![\w:]):[a-z][\w+-]*:(?![\w:])""",
    re.MULTILINE,
)
_CODE = re.compile(
    r"^[ \t>]*(`{3,}|~{3,})[^\n]*\n.*?^[ \t>]*\1[ \t]*$|(?<!`)(`+)(?!`)[^`].*?(?<!`)\2(?!`)",
    re.MULTILINE | re.DOTALL,
)
_FENCE = re.compile(r"^[ \t>]*(?:`{3,}|~{3,})", re.MULTILINE)

Texts = Mapping[int, Sequence[str]]
"""The contexts of all questions by budget."""


def words(text: str) -> list[str]:
    """Return the words of a text without addresses and tags, for comparison."""
    return re.findall(r"\w+", _MARKUP.sub(" ", text).lower())


def has_quote(text: str, quotes: Sequence[str], *, needs_all: bool) -> bool:
    """Return whether a context contains one of the quotes, or all of them."""
    context = f" {' '.join(words(text))} "
    found = [f" {' '.join(words(quote))} " in context for quote in quotes]
    return all(found) if needs_all else any(found)


def duplicated(text: str) -> float:
    """Return the share of a text's words that are in a run of words that occurred before."""
    all_words = re.findall(r"\w+", text.lower())
    seen: set[tuple[str, ...]] = set()
    repeated: set[int] = set()
    for start in range(len(all_words) - RUN + 1):
        run = tuple(all_words[start : start + RUN])
        if run in seen:
            repeated.update(range(start, start + RUN))
        seen.add(run)
    return len(repeated) / max(1, len(all_words))


def markup(text: str, count: Callable[[str], int]) -> float:
    """Return the share of a text's tokens that is markup outside of code."""
    prose = _CODE.sub(" ", text)
    marks = [match[0] for match in _MARKUP.finditer(prose)]
    if len(_FENCE.findall(text)) % 2:
        marks.append("```")
    return min(1.0, sum(map(count, marks)) / max(1, count(text)))


def figures(
    book: Book, quotes: Sequence[Sequence[str]], texts: Texts, count: Callable[[str], int]
) -> dict[str, float]:
    """Return the measures of one system on one book, over the questions that the book answers."""
    answered = [number for number, question in enumerate(book.questions) if not question.nothing]
    values: dict[str, float] = {}
    for budget, contexts in texts.items():
        values[f"{budget}"] = fmean(
            has_quote(contexts[n], quotes[n], needs_all=book.questions[n].key in book.need_all)
            for n in answered
        )
    whole = [text for contexts in texts.values() for text in contexts if text]
    values["duplicated"] = fmean(map(duplicated, whole))
    values["markup"] = fmean(markup(text, count) for text in whole)
    values["over budget"] = sum(
        count(text) > budget for budget, contexts in texts.items() for text in contexts
    )
    return values


def read_quotes(path: Path) -> list[list[str]]:
    """Return the quotes of each question of a set."""
    lines = path.read_text("utf-8").splitlines()
    return [json.loads(line)["evidence"] for line in lines if line.strip()]


def recto_texts(retriever: Retriever, book: Book) -> dict[int, list[str]]:
    """Return Recto's contexts."""
    texts: dict[int, list[str]] = {budget: [] for budget in BUDGETS}
    for budget, question in ((budget, question) for budget in BUDGETS for question in book.questions):
        context = retriever.context(question.query, max_tokens=budget)
        texts[budget].append("\n\n".join(section.text for section in context.sections))
    return texts


def filled(hits: Sequence[str], budget: int, count: Callable[[str], int]) -> str:
    """Return hits in their order until the budget is spent; the last one is cut between words."""
    text = ""
    for hit in hits:
        joined = f"{text}\n\n{hit}" if text else hit
        if count(joined) <= budget:
            text = joined
            continue
        parts = re.split(r"(\s+)", hit)
        low, high = 0, len(parts)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (
                (middle, high)
                if count(text + "\n\n" + "".join(parts[:middle])) <= budget
                else (low, middle - 1)
            )
        return f"{text}\n\n{''.join(parts[:low])}".strip()
    return text


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the chosen systems and print a table; `--json` keeps the figures of each book."""
    options, books = parse(make_parser(__doc__, "bench.context"), arguments)
    listing = load()
    chosen = options.systems or ["recto", *(system.name for system in listing.hybrid)]
    peers = [system for system in listing.hybrid if system.name in chosen]
    results: dict[str, dict[str, dict[str, float]]] = {}
    failed: dict[str, str] = {}
    with scratch_directory(options) as scratch:
        embedder = model(options.home, options.threads).embedder
        assert embedder is not None
        count = embedder.count_tokens
        for book in books:
            quotes = read_quotes(options.questions / f"{book.name}.jsonl")
            if "recto" in chosen:
                with open_book(options, book) as retriever:
                    texts = recto_texts(retriever, book)
                results.setdefault("recto", {})[book.name] = figures(book, quotes, texts, count)
            for system in peers:
                queries = [question.query for question in book.questions]
                try:
                    with open_peer(options, book, system, "memory", listing, scratch) as runner:
                        found = runner.ask("texts", questions=queries, top=_TOP)["texts"]
                except RunnerError as error:
                    failed[f"{system.name}: {book.name}"] = str(error)
                    continue
                texts = {budget: [filled(hits, budget, count) for hits in found] for budget in BUDGETS}
                results.setdefault(system.name, {})[book.name] = figures(book, quotes, texts, count)
    print(report(results, failed))
    if options.json:
        options.json.write_text(json.dumps({"systems": results, "failed": failed}, indent=1) + "\n", "utf-8")


def report(results: Mapping[str, Mapping[str, Mapping[str, float]]], failed: Mapping[str, str]) -> str:
    """Return the tables: each system's means over the books, then each book."""
    names = [*map(str, BUDGETS), "duplicated", "markup", "over budget"]
    rows = []
    for system, of_books in results.items():
        means = [fmean(values[name] for values in of_books.values()) for name in names]
        rows.append([f"**{system}**", "mean", *(f"{mean:.3f}" for mean in means)])
        rows += [
            [system, book, *(f"{values[name]:.3f}" for name in names)] for book, values in of_books.items()
        ]
    return "\n\n".join(
        [table(["system", "book", *names], rows), *(f"{name} failed: {why}" for name, why in failed.items())]
    )


if __name__ == "__main__":
    main()
