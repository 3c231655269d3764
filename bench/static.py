"""Measure the static export with readers' questions: `python -m bench.static --home DIRECTORY`.

It compares static search (the exported client in Node) with the lexical and the hybrid mode: before the model
is loaded ("static words"), and afterwards ("static"). Rare words with a
typo are searched for, too. It counts the bytes that a browser loads for the first answer to each question,
for the model, and for the tokens of a later question. It uses the books of `bench.books`; the directory keeps
their indexes. The int8 graph embeds the questions, as in the browser. Chromium times questions of about 12
tokens, and the longest task of the page's thread. Pagefind, which npm installs into the directory, searches
the same pages and headings. It finds pages with all words of a question that the book has, so it is also
asked without the stop words.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench import chromium, pagefind, rare_words
from bench.peers.environments import ROOT
from bench.peers.table import table
from bench.question_sets import MEASURES, Answer, AnswerChunk, Book, lead, load_books, measure
from recto.api import open_embedder
from recto.book.sources.tree import open_book
from recto.embedders.granite.weights import find_pack, read_tokenizer
from recto.embedders.onnx import new_tokenizer
from recto.evaluation.calibration import calibrate
from recto.indexing.indexer import IndexJob, index_book
from recto.search.analyzer import query_words
from recto.search.markdown import plain_text
from recto.search.retriever import Retriever
from recto.server.semantic_export import SHARD_TOKENS
from recto.server.static_export import StaticExport, export_static
from recto.settings import Settings
from recto.stores.edge import EdgeStore
from recto.types.search import Chunk, Mode

PAGEFIND = ("pagefind", "pagefind, without stop words")
STATIC = {"static words": "words", "static": "hits"}
SYSTEMS = ("hybrid", "lexical", *STATIC, *PAGEFIND)
_MODES: tuple[Mode, ...] = ("hybrid", "lexical")
_DEEP = 100  # chunks requested for each question
_RARE = 500  # rare words of each book
_TIMED = 10  # questions about each book in Chromium
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


def middle_questions(questions: Sequence[str]) -> list[str]:
    """Return questions of about 12 tokens."""
    tokenizer = new_tokenizer(read_tokenizer(find_pack()))
    return [one for one in questions if 11 <= len(tokenizer.encode(one).ids) <= 13][:_TIMED]


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


class Measured(NamedTuple):
    """The answers of each system, the export, and how well static search agrees with the service.

    The shares count questions with the same pages: the first five by words, the first one, the first five.
    `gap` is the largest difference of `answerable`. `loads` has the bytes of each first answer.
    """

    answers: dict[str, list[Answer]]
    export: StaticExport
    found: dict[str, Any]
    loads: list[int]
    same_words: float
    same_first: float
    same_five: float
    gap: float


def measure_book(book: Book, retriever: Retriever, directory: Path, words: Sequence[str] = ()) -> Measured:
    """Ask the questions about a book, and search for words, with the service and with static search."""
    queries = [question.query for question in book.questions]
    answers: dict[str, list[Answer]] = {
        mode: [
            to_answer([hit.chunk for hit in retriever.search(query, _DEEP, mode=mode).hits])
            for query in queries
        ]
        for mode in _MODES
    }
    export = export_static(retriever.open(), directory, semantic="on")
    by_link = {(one.url, plain_text(one.text)): one for one in retriever.open().scroll()}
    found = search_static(directory, queries, words)
    found["found"] = [[by_link[url, text].text for url, text in hits] for hits in found["found"]]
    results = found["answers"]
    for system, name in STATIC.items():
        answers[system] = [to_answer([by_link[url, text] for url, text in one[name]]) for one in results]
    words_share, first_share, five_share = (
        sum(
            first_pages(one, pages) == first_pages(other, pages)
            for one, other in zip(answers[static], answers[mode], strict=True)
        )
        / len(queries)
        for static, mode, pages in (
            ("static words", "lexical", 5),
            ("static", "hybrid", 1),
            ("static", "hybrid", 5),
        )
    )
    probabilities = (retriever.search(query, _DEEP).answerable or 0.0 for query in queries)
    gap = max(abs(one - found["answerable"]) for one, found in zip(probabilities, results, strict=True))
    loads = sorted(one["bytes"] for one in results)
    return Measured(answers, export, found, loads, words_share, first_share, five_share, gap)


def find_rare_words(book: Book, retriever: Retriever) -> list[rare_words.Draw]:
    """Return words that few chunks have, each with a typo."""
    return rare_words.draw([one.text for one in retriever.open().scroll()], _RARE, book.name)


def book_row(
    book: Book,
    retriever: Retriever,
    draws: Sequence[rare_words.Draw],
    words: Sequence[str],
    measured: Measured,
    directory: Path,
) -> list[str]:
    """Return the row of a book in the table of exports."""
    found = measured.found
    texts = dict(zip(words, found["found"], strict=True))
    rare = (
        rare_words.ask(draws, search)
        for search in (
            lambda word: [
                hit.chunk.text for hit in retriever.search(word, rare_words.TOP, mode="lexical").hits
            ],
            lambda word: texts[word][: rare_words.TOP],
        )
    )
    queries = [question.query for question in book.questions]
    tokens = token_bytes(directory, queries)
    times = chromium.measure(directory, middle_questions(queries))
    sizes = (median(measured.loads), measured.loads[-1], measured.export.bytes)
    same = (measured.same_words, measured.same_first, measured.same_five)
    return [
        book.name,
        str(measured.export.chunks),
        *(f"{size / 1000:.0f}" for size in sizes),
        f"{median(one['files'] for one in found['answers']):.0f}",
        f"{found['ready'] / 1e6:.1f}",
        f"{median(tokens) / 1000:.0f} / {tokens[-1] / 1000:.0f}",
        f"{times.first:.0f} / {times.again:.0f}",
        f"{times.cpu:.0f}",
        f"{times.loading:.0f} / {times.searching:.0f}",
        *(f"{share:.3f}" for share in same),
        f"{measured.gap:.3f}",
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
    parser.add_argument("--sets", default="", help="question sets, separated by commas; default: all")
    options = parser.parse_args()
    sets = [name for name in options.sets.split(",") if name]
    books = load_books(options.corpora / "questions", options.corpora / "books", sets)
    embedder = open_embedder(Settings("local", "edge", options.home, precision="int8"), lambda _: None)
    program = pagefind.install(options.home / "pagefind")
    answers: dict[str, dict[str, list[Answer]]] = {system: {} for system in SYSTEMS}
    loads: dict[str, list[int]] = {system: [] for system in ("static words", *PAGEFIND)}
    times: dict[str, list[float]] = {"static": [], **{system: [] for system in PAGEFIND}}
    rows, scripts = [], {}
    with tempfile.TemporaryDirectory() as folder, closing(EdgeStore(options.home)) as store:
        for book in books:
            job = IndexJob(open_book(book.docs, book=book.name), embedder, calibrate=calibrate)
            index_book(job, store, book.name, journal=options.home / "journal")
            retriever, directory = Retriever(embedder, store, book.name), Path(folder, book.name, "recto")
            directory.parent.mkdir()
            draws = find_rare_words(book, retriever)
            words = [word for one in draws for word in (one.word, one.typo)]
            measured = measure_book(book, retriever, directory, words)
            rows.append(book_row(book, retriever, draws, words, measured, directory))
            work = Path(folder, f"{book.name}-pagefind")
            queries = [one.query for one in book.questions]
            queries += [" ".join(query_words(query)) for query in queries]
            found, size = pagefind.search(program, list(retriever.open().scroll()), queries, work)
            rows[-1].append(f"{size / 1000:.0f}")
            for system, others in zip(
                PAGEFIND, (found[: len(book.questions)], found[len(book.questions) :]), strict=True
            ):
                measured.answers[system] = [to_answer(one.chunks) for one in others]
                loads[system] += [one.bytes for one in others if one.bytes is not None]
                times[system] += [one.ms for one in others]
            for system in SYSTEMS:
                answers[system][book.name] = measured.answers[system]
            loads["static words"] += measured.loads
            times["static"] += [one["ms"] for one in measured.found["answers"]]
            scripts = {
                "static words": [path.read_bytes() for path in directory.rglob("*.js")],
                PAGEFIND[0]: pagefind.scripts(work),
            }
            print(f"{book.name}: done", file=sys.stderr)
    _print_quality(books, answers, loads, times, scripts)
    _print_books(rows)


def _print_quality(
    books: Sequence[Book],
    answers: dict[str, dict[str, list[Answer]]],
    loads: dict[str, list[int]],
    times: dict[str, list[float]],
    scripts: dict[str, list[bytes]],
) -> None:
    results = {system: measure(books, answers[system]) for system in SYSTEMS}
    gaps = {system: lead(results["hybrid"], results[system]) for system in SYSTEMS[1:]}
    quality = []
    for system, result in results.items():
        gap, sizes = gaps.get(system), sorted(loads.get(system, []))
        quality.append([
            system,
            *(f"{result.mean()[name]:.3f}" for name in MEASURES),
            f"{gap.mean:+.3f} ({gap.low:+.3f} to {gap.high:+.3f})" if gap else "–",
            f"{median(sizes) / 1000:.0f} / {sizes[-1] / 1000:.0f}" if sizes else "–",
            f"{sum(map(_compressed, scripts[system])) / 1000:.0f}" if system in scripts else "–",
            f"{median(times[system]):.0f}" if system in times else "–",
        ])  # fmt: skip
    columns = [
        "hybrid minus this system: page MRR (95 % interval)",
        "data of the first answer, KB: median / maximum",
        "scripts, KB gzip",
        "ms in Node, median",
    ]
    print(table(["system", *MEASURES, *columns], quality))


def _print_books(rows: list[list[str]]) -> None:
    sizes = ["data of the first answer, KB: median", "maximum", "export, KB", "files of the first answer"]
    meaning = [
        "ready for meaning, MB",
        "tokens of a later question, KB: median / maximum",
        "ms in Chromium, median: new / repeated",
        "CPU ms of the page's thread, repeated",
        "longest task, CPU ms: loading / searching",
    ]
    same = [
        "same five pages: words, lexical",
        "same page: static, hybrid",
        "same five pages",
        "answerable: largest gap",
    ]
    rare = [f"rare words as written / with a typo: {system}" for system in ("lexical", "static words")]
    print(table(["book", "chunks", *sizes, *meaning, *same, *rare, "index of Pagefind, KB"], rows))


def _compressed(data: bytes) -> int:
    return len(gzip.compress(data))


if __name__ == "__main__":
    main()
