"""Measure the static export with readers' questions: `python -m bench.static --home DIRECTORY`.

It compares static search (the exported client in Node) with the lexical and the hybrid mode, before and after
the model is loaded ("static words" and "static"), also for rare words with a typo. It counts the bytes that a
browser loads for the first answer to each question, for the model, and for the tokens of a later question. It
uses the books of `bench.books`; the directory keeps their indexes. The int8 graph embeds the questions, as in
the browser.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
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
from recto.embedders.granite.weights import find_pack, read_tokenizer
from recto.embedders.onnx import new_tokenizer
from recto.evaluation.calibration import calibrate
from recto.indexing.indexer import IndexJob, index_book
from recto.search.retriever import Retriever
from recto.server.semantic_export import SHARD_TOKENS
from recto.server.static_export import export_static
from recto.settings import Settings
from recto.stores.edge.store import EdgeStore
from recto.types.search import Chunk, Mode

SYSTEMS = ("hybrid", "lexical", "static words", "static")
_MODES: tuple[Mode, ...] = ("hybrid", "lexical")
_DEEP = 100  # chunks requested for each question
_RARE = 500  # rare words of each book
_RUN = """
import { readFile } from "node:fs/promises";
const [url] = process.argv.slice(2);
const { RectoClient } = await import(new URL("static/client.js", url));
let loaded = [];
const sum = () => loaded.reduce((total, size) => total + size, 0);
globalThis.fetch = async (file) => {
  const body = await readFile(file);
  loaded.push(body.length);
  return new Response(body);
};
const deep = new RectoClient({ url, semantic: "on" });
const { questions, words } = JSON.parse(await readFile("queries.json"));
const hits = ({ results }) => results.map((hit) => [hit.url, hit.text]);
const options = { top_k: 6, group_by: "page" }; // as the widget does
await (await deep.search(questions[0], options)).improved;
const ready = sum();
const answers = [];
for (const query of questions) {
  loaded = [];
  await new RectoClient({ url, semantic: "off" }).search(query, options);
  const first = { bytes: sum(), files: loaded.length };
  const answer = await deep.search(query, { top_k: 100 });
  const { answerable } = answer;
  const began = performance.now();
  await deep.search(query, options);
  const ms = performance.now() - began;
  const byWords = hits(await deep.search(query, { top_k: 100, mode: "lexical" }));
  answers.push({ ...first, ms, answerable, words: byWords, hits: hits(answer) });
}
const found = [];
for (const word of words) found.push(hits(await deep.search(word, { top_k: 20, mode: "lexical" })));
console.log(JSON.stringify({ ready, answers, found }));
"""


def search_static(directory: Path, questions: Sequence[str], words: Sequence[str]) -> dict[str, Any]:
    """Return for each question the bytes and files of the first answer, and the URLs and texts of hits."""
    work = directory.parent
    (work / "package.json").write_text('{"type": "module"}')
    (work / "run.js").write_text(_RUN, "utf-8")
    (work / "queries.json").write_text(json.dumps({"questions": questions, "words": words}), "utf-8")
    command = ["node", "run.js", f"{directory.as_uri()}/"]
    done = subprocess.run(command, check=True, cwd=work, capture_output=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def token_bytes(directory: Path, questions: Sequence[str]) -> list[int]:
    """Return the bytes of the token files that each question needs, smallest first."""
    tokenizer = new_tokenizer(read_tokenizer(find_pack()))
    sizes = {path.stem: path.stat().st_size for path in directory.glob("model/*/tokens-*.bin")}
    shards = ({f"tokens-{id // SHARD_TOKENS}" for id in one.ids} for one in tokenizer.encode_batch(questions))
    return sorted(sum(sizes.get(name, 0) for name in names) for names in shards)


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
    export = export_static(retriever.open(), directory, semantic="on")
    chunks = list(retriever.open().scroll())
    by_link = {(one.url, one.text): one for one in chunks}
    draws = rare_words.draw([one.text for one in chunks], _RARE, book.name)
    words = [word for one in draws for word in (one.word, one.typo)]
    found = search_static(directory, queries, words)
    results = found["answers"]
    texts = {word: [text for _, text in hits] for word, hits in zip(words, found["found"], strict=True)}
    rare = (
        rare_words.ask(draws, search)
        for search in (
            lambda word: [
                hit.chunk.text for hit in retriever.search(word, rare_words.TOP, mode="lexical").hits
            ],
            lambda word: texts[word][: rare_words.TOP],
        )
    )
    for system, name in (("static words", "words"), ("static", "hits")):
        answers[system] = [to_answer([by_link[url, text] for url, text in one[name]]) for one in results]
    same = (
        sum(
            first_pages(one, pages) == first_pages(other, pages)
            for one, other in zip(answers[static], answers[mode], strict=True)
        )
        for static, mode, pages in (
            ("static words", "lexical", 5),
            ("static", "hybrid", 1),
            ("static", "hybrid", 5),
        )
    )
    probabilities = (retriever.search(query, _DEEP).answerable or 0.0 for query in queries)
    gap = max(abs(one - found["answerable"]) for one, found in zip(probabilities, results, strict=True))
    tokens = token_bytes(directory, queries)
    data = sorted(one["bytes"] for one in results)
    files = median(one["files"] for one in results)
    sizes = (f"{size / 1000:.0f}" for size in (median(data), data[-1], export.bytes))
    row = [book.name, str(export.chunks), *sizes, f"{files:.0f}"]
    return answers, [
        *row,
        f"{found['ready'] / 1e6:.1f}",
        f"{median(tokens) / 1000:.0f} / {tokens[-1] / 1000:.0f}",
        f"{median(one['ms'] for one in results):.0f}",
        *(f"{count / len(queries):.3f}" for count in same),
        f"{gap:.3f}",
        *(f"{one.exact:.3f} / {one.typo:.3f}" for one in rare),
    ]


def first_pages(answer: Answer, count: int) -> list[str]:
    """Return the first different pages of an answer."""
    return list(dict.fromkeys(hit.page for hit in answer.hits))[:count]


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
    embedder = open_embedder(Settings("local", "edge", options.home, precision="int8"), lambda _: None)
    answers: dict[str, dict[str, list[Answer]]] = {system: {} for system in SYSTEMS}
    rows = []
    with tempfile.TemporaryDirectory() as folder, closing(EdgeStore(options.home)) as store:
        for book in books:
            job = IndexJob(open_book(book.docs, book=book.name), embedder, calibrate=calibrate)
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
    meaning = [
        "ready for meaning, MB",
        "tokens of a later question, KB: median / maximum",
        "ms in Node, median",
    ]
    same = [
        "same five pages: words, lexical",
        "same page: static, hybrid",
        "same five pages",
        "answerable: largest gap",
    ]
    rare = [f"rare words as written / with a typo: {system}" for system in SYSTEMS[1:3]]
    print(table(["book", "chunks", *sizes, *meaning, *same, *rare], rows))
    print(
        f"Widget: {sum(map(len, widget)) / 1000:.0f} KB, {sum(map(_compressed, widget)) / 1000:.0f} KB gzip"
    )


def _compressed(data: bytes) -> int:
    return len(gzip.compress(data))


if __name__ == "__main__":
    main()
