"""Measure what a language model gets to read: `uv run --group bench python -m bench.context`.

Each question of a set has a quote of its answer. For each budget of tokens, the measure says how many
questions that the book answers have that quote in the context, and which share of the tokens repeats earlier
ones or is markup that says nothing: addresses, tags, attributes, half a code block. Frameworks get their hits
in order until the budget is spent. Texts are compared by their words. All systems use the same model and
tokenizer.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from bench import books
from bench.peers import table
from bench.peers.environments import build
from bench.peers.listing import Listing, System, load
from bench.peers.process import RunnerError, RunnerProcess
from bench.peers.runners.embedding import cached
from bench.peers.runners.recto import Counted
from bench.question_sets import Book, load_books
from recto.stores.edge import EdgeStore

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
    own = f" {' '.join(words(text))} "
    found = [f" {' '.join(words(quote))} " in own for quote in quotes]
    return all(found) if needs_all else any(found)


def duplicated(text: str) -> float:
    """Return the share of a text's words that are in a run of words that occurred before."""
    own = re.findall(r"\w+", text.lower())
    seen: set[tuple[str, ...]] = set()
    repeated: set[int] = set()
    for start in range(len(own) - RUN + 1):
        run = tuple(own[start : start + RUN])
        if run in seen:
            repeated.update(range(start, start + RUN))
        seen.add(run)
    return len(repeated) / max(1, len(own))


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


def recto_texts(retriever: Any, book: Book) -> dict[int, list[str]]:
    """Return Recto's contexts."""
    return {
        budget: [
            "\n\n".join(
                section.text for section in retriever.context(question.query, max_tokens=budget).sections
            )
            for question in book.questions
        ]
        for budget in BUDGETS
    }


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


def peer_texts(
    options: argparse.Namespace,
    book: Book,
    system: System,
    listing: Listing,
    scratch: Path,
    count: Callable[[str], int],
) -> dict[int, list[str]]:
    """Return the contexts that a framework's default retriever gives, with its own loader and splitter."""
    environment = build(system, listing, options.cache)
    folder = scratch / f"{system.name}-{book.name}"
    with RunnerProcess(replace(system, arguments=("memory",)), environment, scratch) as runner:
        runner.ask(
            "embed",
            how="cached",
            folder=str(options.cache.resolve()),
            home=str(scratch / "home"),
            threads=options.threads,
        )
        runner.ask("read", docs=str(book.docs.resolve()), folder=str(folder))
        runner.ask("open", folder=str(folder))
        found = runner.ask("texts", questions=[question.query for question in book.questions], top=_TOP)[
            "texts"
        ]
    return {budget: [filled(hits, budget, count) for hits in found] for budget in BUDGETS}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the chosen systems and print a table; `--json` keeps the figures of each book."""
    options = books.parse(arguments)
    listing = load()
    peers = [system for system in listing.hybrid if not options.systems or system.name in options.systems]
    chosen = load_books(options.questions, options.books, options.sets)
    options.cache.mkdir(parents=True, exist_ok=True)
    results: dict[str, dict[str, dict[str, float]]] = {}
    failed: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="recto-context-") as scratch:
        home = options.home or Path(scratch) / "home"
        embedder: Any = Counted(cached(options.cache, home, options.threads))
        with closing(EdgeStore(home)) as store:
            for book in chosen:
                quotes = read_quotes(options.questions / f"{book.name}.jsonl")
                if not options.systems or "recto" in options.systems:
                    texts = recto_texts(books.open_indexed(book, embedder, store, home), book)
                    results.setdefault("recto", {})[book.name] = figures(
                        book, quotes, texts, embedder.count_tokens
                    )
                for system in peers:
                    try:
                        texts = peer_texts(
                            options, book, system, listing, Path(scratch), embedder.count_tokens
                        )
                    except RunnerError as error:
                        failed[f"{system.name}: {book.name}"] = str(error)
                        continue
                    results.setdefault(system.name, {})[book.name] = figures(
                        book, quotes, texts, embedder.count_tokens
                    )
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
    shown = table.table(["system", "book", *names], rows)
    return "\n\n".join([shown, *(f"{name} failed: {why}" for name, why in failed.items())])


if __name__ == "__main__":
    main()
