"""Measure the static export with readers' questions: `python -m bench.static --home DIRECTORY`.

It compares static search (the exported client in Node) with the lexical and the hybrid mode, also for rare
words with a typo, and counts the bytes that a browser loads for the first answer to each question. It uses
the books of `bench.books`; the directory keeps their indexes.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any

from bench import rare_words
from bench.peers.environments import ROOT
from bench.peers.table import table
from bench.question_sets import MEASURES, Answer, AnswerChunk, Book, lead, load_books, measure
from recto.api import open_embedder
from recto.book.sources.tree import open_book
from recto.indexing.indexer import IndexJob, index_book
from recto.search.retriever import Retriever
from recto.server.static_export import export_static
from recto.settings import Settings
from recto.stores.edge.store import EdgeStore
from recto.types.search import Chunk, Mode

SYSTEMS = ("hybrid", "lexical", "static")
_MODES: tuple[Mode, ...] = ("hybrid", "lexical")
_DEEP = 100  # chunks requested for each question
_RARE = 500  # rare words of each book
_RUN = """
import { readFile } from "node:fs/promises";
const [url] = process.argv.slice(2);
const { RectoClient } = await import("./client.mjs");
let loaded = [];
globalThis.fetch = async (file) => {
  const body = await readFile(file);
  loaded.push(body.length);
  return new Response(body);
};
const deep = new RectoClient({ url });
const answers = [];
for (const query of JSON.parse(await readFile("queries.json"))) {
  loaded = [];
  await new RectoClient({ url }).search(query, { top_k: 6, group_by: "page" }); // as the widget does
  const bytes = loaded.reduce((sum, size) => sum + size, 0);
  const files = loaded.length;
  const { results } = await deep.search(query, { top_k: 100 });
  answers.push({ bytes, files, hits: results.map((hit) => [hit.url, hit.text]) });
}
console.log(JSON.stringify(answers));
"""


def search_static(directory: Path, queries: Sequence[str]) -> list[dict[str, Any]]:
    """Return for each query the bytes and files of the first answer, and the URLs and texts of the hits."""
    work = directory.parent
    shutil.copy(directory / "static" / "client.js", work / "client.mjs")
    (work / "run.mjs").write_text(_RUN, "utf-8")
    (work / "queries.json").write_text(json.dumps(queries), "utf-8")
    command = ["node", "run.mjs", f"{directory.as_uri()}/"]
    done = subprocess.run(command, check=True, cwd=work, capture_output=True)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def to_answer(chunks: Sequence[Chunk]) -> Answer:
    """Return what the measures need of the hits."""
    return Answer(
        tuple(
            AnswerChunk(one.source, one.headings, one.chunk_index == 0 or len(one.headings) <= 1)
            for one in chunks
        )
    )


def measure_book(
    book: Book, retriever: Retriever, directory: Path
) -> tuple[dict[str, list[Answer]], list[str]]:
    """Return the answers of each system, and the row of the book in the table of the export."""
    queries = [question.query for question in book.questions]
    answers: dict[str, list[Answer]] = {
        mode: [
            to_answer([hit.chunk for hit in retriever.search(query, _DEEP, mode=mode).hits])
            for query in queries
        ]
        for mode in _MODES
    }
    export = export_static(retriever.open(), directory)
    chunks = list(retriever.open().scroll())
    by_link = {(one.url, one.text): one for one in chunks}
    draws = rare_words.draw([one.text for one in chunks], _RARE, book.name)
    words = [word for one in draws for word in (one.word, one.typo)]
    results = search_static(directory, [*queries, *words])
    texts = {
        word: [text for _, text in one["hits"]]
        for word, one in zip(words, results[len(queries) :], strict=True)
    }
    rare = (
        rare_words.ask(draws, search)
        for search in (
            lambda word: [
                hit.chunk.text for hit in retriever.search(word, rare_words.TOP, mode="lexical").hits
            ],
            lambda word: texts[word][: rare_words.TOP],
        )
    )
    results = results[: len(queries)]
    answers["static"] = [to_answer([by_link[url, text] for url, text in one["hits"]]) for one in results]
    same = sum(
        [hit.page for hit in one.hits[:10]] == [hit.page for hit in other.hits[:10]]
        for one, other in zip(answers["static"], answers["lexical"], strict=True)
    )
    data = sorted(one["bytes"] for one in results)
    files = median(one["files"] for one in results)
    sizes = (f"{size / 1000:.0f}" for size in (median(data), data[-1], export.bytes))
    row = [book.name, str(export.chunks), *sizes, f"{files:.0f}"]
    return answers, [
        *row,
        f"{same} of {len(queries)}",
        *(f"{one.exact:.3f} / {one.typo:.3f}" for one in rare),
    ]


def main() -> None:
    """Measure all books and print the tables."""
    corpora = Path(os.environ.get("RECTO_CORPORA") or ROOT.parent / "shared" / "corpora")
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpora", type=Path, default=corpora, help="folder with questions and books")
    parser.add_argument("--home", type=Path, required=True, help="directory that keeps the indexes")
    options = parser.parse_args()
    books = load_books(options.corpora / "questions", options.corpora / "books", [])
    embedder = open_embedder(Settings("local", "edge", options.home), lambda _: None)
    answers: dict[str, dict[str, list[Answer]]] = {system: {} for system in SYSTEMS}
    rows = []
    with tempfile.TemporaryDirectory() as folder, closing(EdgeStore(options.home)) as store:
        for book in books:
            job = IndexJob(open_book(book.docs, book=book.name), embedder)
            index_book(job, store, book.name, journal=options.home / "journal")
            found, row = measure_book(book, Retriever(embedder, store, book.name), Path(folder) / book.name)
            rows.append(row)
            for system in SYSTEMS:
                answers[system][book.name] = found[system]
            widget = [path.read_bytes() for path in (Path(folder) / book.name).rglob("*.js")]
    results = {system: measure(books, answers[system]) for system in SYSTEMS}
    gaps = {system: lead(results["hybrid"], results[system]) for system in SYSTEMS[1:]}
    quality = []
    for system, result in results.items():
        gap = gaps.get(system)
        shown = f"{gap.mean:+.3f} ({gap.low:+.3f} to {gap.high:+.3f})" if gap else "–"
        quality.append([system, *(f"{result.mean()[name]:.3f}" for name in MEASURES), shown])
    print(table(["system", *MEASURES, "hybrid minus this system: page MRR (95 % interval)"], quality))
    sizes = ["data of the first answer, KB: median", "maximum", "export, KB", "files of the first answer"]
    rare = [f"rare words as written / with a typo: {system}" for system in SYSTEMS[1:]]
    print(table(["book", "chunks", *sizes, "same pages as lexical", *rare], rows))
    print(
        f"Widget: {sum(map(len, widget)) / 1000:.0f} KB, {sum(map(_compressed, widget)) / 1000:.0f} KB gzip"
    )


def _compressed(data: bytes) -> int:
    return len(gzip.compress(data))


if __name__ == "__main__":
    main()
