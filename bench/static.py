"""Measure the static export with readers' questions: `uv run --group bench python -m bench.static`.

It compares static search (the exported client in Node) with the lexical and the hybrid mode of the service:
before the model is loaded ("static words"), and afterwards ("static"). It counts the bytes that a browser
loads for the first answer to each question, and up to the first answer by meaning. The int8 graph embeds the
questions, as in the browser.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import recto
from bench.books import DEPTH, answer, make_parser, parse, scratch_directory
from bench.common import local_settings, notify, table
from bench.question_sets import MEASURES, Answer, AnswerChunk, Book, lead, measure
from recto import Retriever
from recto.search.markdown import plain_text
from recto.server.static_export import StaticExport, export_static
from recto.types.search import Mode

STATIC = {"static words": "words", "static": "hits"}
SYSTEMS = ("hybrid", "lexical", *STATIC)
_MODES: tuple[Mode, ...] = ("hybrid", "lexical")
_RUN = """
import { readFile } from "node:fs/promises";
const [url, depth] = process.argv.slice(2);
const { RectoClient } = await import(new URL("static/client.js", url));
let loaded = [];
const sum = () => loaded.reduce((total, size) => total + size, 0);
globalThis.fetch = async (file) => {
  const body = await readFile(file);
  loaded.push(body.length);
  return new Response(body);
};
const deep = new RectoClient({ url, semantic: "on" });
const questions = JSON.parse(await readFile("queries.json"));
const hits = ({ results }) => results.map((hit) => [hit.url, hit.text]);
const options = { top_k: 6, group_by: "page" }; // as the widget does
await (await deep.search(questions[0], options)).improved;
const ready = sum();
const answers = [];
for (const query of questions) {
  loaded = [];
  await new RectoClient({ url, semantic: "off" }).search(query, options);
  const bytes = sum();
  const answer = await deep.search(query, { top_k: Number(depth) });
  const byWords = hits(await deep.search(query, { top_k: Number(depth), mode: "lexical" }));
  answers.push({ bytes, answerable: answer.answerable, words: byWords, hits: hits(answer) });
}
console.log(JSON.stringify({ ready, answers }));
"""


class Measured(NamedTuple):
    """The answers of each system, the export, and how well static search agrees with the service.

    The shares count questions with the same pages: the first five by words, the first one, the first five.
    `gap` is the largest difference of `answerable`. `loads` has the bytes of each first answer, `ready` the
    bytes up to the first answer by meaning.
    """

    answers: dict[str, list[Answer]]
    export: StaticExport
    ready: int
    loads: list[int]
    same_words: float
    same_first: float
    same_five: float
    gap: float


def search_static(directory: Path, questions: Sequence[str]) -> dict[str, Any]:
    """Return for each question the bytes of the first answer, and the URLs and texts of hits."""
    work = directory.parent
    (work / "package.json").write_text('{"type": "module"}')
    (work / "run.js").write_text(_RUN, "utf-8")
    (work / "queries.json").write_text(json.dumps(questions), "utf-8")
    command = ["node", "run.js", f"{directory.as_uri()}/", str(DEPTH)]
    done = subprocess.run(command, check=True, cwd=work, stdout=subprocess.PIPE)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measure_book(book: Book, retriever: Retriever, directory: Path) -> Measured:
    """Ask the questions about a book with the service and with static search."""
    queries = [question.query for question in book.questions]
    answers = {mode: [answer(retriever, query, mode) for query in queries] for mode in _MODES}
    probabilities = [response.answerable or 0.0 for response in answers["hybrid"]]
    index = retriever.open()
    export = export_static(index, directory, semantic="on")
    chunks = {(chunk.url, plain_text(chunk.text)): chunk for chunk in index.scroll()}
    found = search_static(directory, queries)
    systems: dict[str, list[Answer]] = {mode: answers[mode] for mode in _MODES}
    for system, key in STATIC.items():
        systems[system] = [
            Answer(tuple(AnswerChunk.of(chunks[url, text]) for url, text in result[key]))
            for result in found["answers"]
        ]
    return Measured(
        systems,
        export,
        found["ready"],
        sorted(result["bytes"] for result in found["answers"]),
        same_pages(systems["static words"], systems["lexical"], 5),
        same_pages(systems["static"], systems["hybrid"], 1),
        same_pages(systems["static"], systems["hybrid"], 5),
        max(
            abs(probability - result["answerable"])
            for probability, result in zip(probabilities, found["answers"], strict=True)
        ),
    )


def same_pages(some: Sequence[Answer], others: Sequence[Answer], count: int) -> float:
    """Return the share of questions whose answers begin with the same different pages."""
    pairs = zip(some, others, strict=True)
    return sum(_first_pages(left, count) == _first_pages(right, count) for left, right in pairs) / len(some)


def _first_pages(answer: Answer, count: int) -> list[str]:
    return list(dict.fromkeys(hit.page for hit in answer.hits))[:count]


def book_row(book: Book, retriever: Retriever, directory: Path) -> tuple[Measured, list[str]]:
    """Measure a book; return the figures, and its row in the table of exports."""
    measured = measure_book(book, retriever, directory)
    return measured, [
        book.name,
        str(measured.export.chunks),
        f"{measured.export.bytes / 1e6:.1f}",
        f"{median(measured.loads) / 1000:.0f} / {measured.loads[-1] / 1000:.0f}",
        f"{measured.ready / 1e6:.1f}",
        *(f"{share:.3f}" for share in (measured.same_words, measured.same_first, measured.same_five)),
        f"{measured.gap:.3f}",
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure all books and print the tables."""
    options, books = parse(make_parser(__doc__, "bench.static"), arguments)
    settings = replace(local_settings(options.home, options.threads), precision="int8")
    answers: dict[str, dict[str, list[Answer]]] = {system: {} for system in SYSTEMS}
    rows = []
    with scratch_directory(options) as scratch:
        for book in books:
            directory = scratch / book.name / "recto"
            directory.parent.mkdir()
            recto.index(book.docs, book.name, settings=settings)
            with recto.connect(book.name, settings=settings) as retriever:
                measured, row = book_row(book, retriever, directory)
            rows.append(row)
            for system in SYSTEMS:
                answers[system][book.name] = measured.answers[system]
            notify(f"{book.name}: done")
    results = {system: measure(books, answers[system]) for system in SYSTEMS}
    quality = []
    for system, result in results.items():
        gap = lead(results["hybrid"], result)
        difference = f"{gap.mean:+.3f} ({gap.low:+.3f} to {gap.high:+.3f})" if system != "hybrid" else "–"
        quality.append([system, *(f"{result.mean()[name]:.3f}" for name in MEASURES), difference])
    print(table(["system", *MEASURES, "hybrid minus this system: page MRR (95 % interval)"], quality))
    heads = [
        "book",
        "chunks",
        "export, MB",
        "data of the first answer, KB: median / maximum",
        "ready for meaning, MB",
        "same five pages: words, lexical",
        "same page: static, hybrid",
        "same five pages",
        "answerable: largest gap",
    ]
    print(table(heads, rows))


if __name__ == "__main__":
    main()
