"""Measure the built-in model on a GPU: `python -m bench.gpu [--scifact DIRECTORY]`.

It needs torch, numpy, onnxruntime, tokenizers and the model pack. The texts are random sequences of the
sample book's sentences. Throughput is measured with calls of `batch_size` texts, as `recto index` makes them,
and for each stage alone. `--scifact` compares the quality of vectors of the CPU and of the GPU. `--index`
indexes a generated book instead, and measures every stage of the run alone. With `--server`, it is indexed on
a Qdrant server, and searched when the server has built its HNSW graph.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import numpy as np

import recto
from recto.embedders.granite.embedder import MAX_TOKENS, built_in_embedder
from recto.embedders.granite.gpu import GpuEmbedder, TorchRunner
from recto.protocols import Store
from recto.settings import Device, Precision, Settings
from recto.types.search import Vector

_SAMPLE = 500  # texts whose vectors are compared with the CPU's
_PLAIN_BATCH = 256
_QUERIES = 200
_PRECISIONS: tuple[Precision, ...] = ("fp32", "bf16")


def main() -> None:
    """Print tables of throughput, of cosine similarities and of quality."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cuda", "mps", "cpu"), default="cuda", help="device of torch")
    parser.add_argument("--chunks", type=int, default=40_960, help="chunks to embed (default 40960)")
    parser.add_argument(
        "--words", type=int, nargs=2, default=(60, 240), metavar=("MIN", "MAX"), help="words of a chunk"
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds; the best counts (default 3)")
    parser.add_argument(
        "--precisions", nargs="+", choices=_PRECISIONS, default=_PRECISIONS, help="precisions of the GPU"
    )
    parser.add_argument(
        "--batch-tokens",
        type=int,
        nargs="*",
        default=(8192, 16_384, 32_768, 65_536, 131_072),
        help="sizes to try",
    )
    parser.add_argument("--scifact", type=Path, help="directory with corpus.jsonl, queries.jsonl and qrels")
    parser.add_argument("--index", type=int, metavar="PAGES", help="index a book of so many pages instead")
    parser.add_argument("--server", metavar="URL", help="index the book on this Qdrant server")
    parser.add_argument("--processes", type=int, default=8, help="processes that read the book (default 8)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        if options.index:
            index_stages(home, options)
            return
        texts = sentences(options.chunks, *options.words)
        count = built_in_embedder(home, 1).count_tokens
        texts = [text if count(text) <= MAX_TOKENS else text[: len(text) // 3] for text in texts]
        throughput(home, texts, options)
        cosines(home, texts[:_SAMPLE], options)
        if options.scifact:
            quality(home, options)


def open_gpu(home: Path, options: argparse.Namespace, precision: Precision) -> GpuEmbedder:
    """Return the embedder of the GPU, loaded."""
    threads = os.cpu_count() or 1
    device: Device = "cuda"  # required, also where torch runs on the CPU to try this module
    settings = Settings(
        "local", "edge", home, threads=threads, precision=precision, device=device, query_device="same"
    )
    embedder = GpuEmbedder(settings, options.device, print)
    embedder.embed_documents(["warm up " * 40] * 64)
    return embedder


def index_stages(home: Path, options: argparse.Namespace) -> None:
    """Index a book, and measure reading, embedding and writing alone."""
    from bench.ingest import generated
    from recto.api import open_store
    from recto.book.sources.tree import MarkdownTree
    from recto.evaluation.calibration import calibrate
    from recto.indexing.indexer import IndexJob, index_book, plan_book
    from recto.search.analyzer import ANALYZER
    from recto.search.lexical import LexiconBuilder, analyzed_text
    from recto.stores.qdrant import ServerStore

    embedder = open_gpu(home, options, "fp32")
    settings = Settings("local", "edge", home / "home")
    if options.server:
        settings = replace(settings, store="server", qdrant_url=options.server)
    store = open_store(settings, print)
    source = MarkdownTree(generated(home / "book", options.index))
    job = IndexJob(source, embedder, calibrate=calibrate, processes=options.processes)
    rows: dict[str, float] = {}

    began = perf_counter()
    plan_book(job, store, "book", journal=home / "journal")
    rows["reading and chunking"] = perf_counter() - began
    began = perf_counter()
    index_book(job, store, "book", journal=home / "journal")
    rows["complete run"] = perf_counter() - began
    if isinstance(store, ServerStore):
        while store.client.get_collection("book").status != "green":
            sleep(0.2)
        rows["complete run, until the server has built its HNSW graph"] = perf_counter() - began

    index = store.open("book")
    chunks = list(index.scroll(batch=1000))
    texts = [analyzed_text(chunk) for chunk in chunks]
    began = perf_counter()
    for start in range(0, len(texts), embedder.batch_size):
        embedder.embed_documents(texts[start : start + embedder.batch_size])
    rows["embedding"] = perf_counter() - began
    ids, found = [chunk.id for chunk in chunks], dict[str, Vector]()
    for start in range(0, len(ids), 1000):
        found |= index.vectors(ids[start : start + 1000])
    lexicon, made = LexiconBuilder(), index.info.fingerprint
    assert made is not None
    began = perf_counter()
    with store.build("copy", embedder.fingerprint, analyzer=ANALYZER) as build:
        for start in range(0, len(chunks), 1000):
            some = chunks[start : start + 1000]
            build.add(some, [found[chunk.id] for chunk in some], lexicon.vectors(some))
        rows["lexical vectors, and sending to the engine"] = perf_counter() - began
        build.publish(made, lexicon.to_bytes())
    rows["writing, without the HNSW graph" if options.server else "writing, with the HNSW graph"] = (
        perf_counter() - began
    )
    print(f"{options.index} pages, {len(chunks)} chunks\n\n| stage | s | chunks/s |\n|---|---|---|")
    for name, seconds in rows.items():
        print(f"| {name} | {seconds:.1f} | {len(chunks) / seconds:.0f} |")
    if options.server:
        print(f"\n{json.dumps(_searches(store, embedder, found), indent=2)}")
    store.close()


def _searches(store: Store, embedder: GpuEmbedder, vectors: dict[str, Vector]) -> dict[str, float]:
    """Search the book with sentences of the sample book; recall is relative to all vectors."""
    from bench.scale import search
    from bench.synthetic import TOP

    texts, ids = sentences(_QUERIES, 6, 16), list(vectors)
    questions = embedder.embed_queries(texts)
    scores = np.array(questions) @ np.array(list(vectors.values())).T
    exact = [[ids[number] for number in row] for row in np.argsort(-scores)[:, :TOP]]
    found = search(store, {"questions": questions, "texts": texts, "dense": exact}, "book")
    return {name: round(value, 4) for name, value in found.items() if "within" not in name}


def sentences(count: int, fewest: int, most: int) -> list[str]:
    """Return texts of random sentences of the sample book, uniform in their numbers of words."""
    pages = sorted((Path(recto.__file__).parent / "sample").rglob("*.md*"))
    found = [
        one
        for page in pages
        for one in re.split(r"(?<=[.!?])\s+|\n\n", page.read_text("utf-8"))
        if one.strip()
    ]
    numbers = random.Random(1)
    texts = []
    for _ in range(count):
        wanted, words = numbers.randint(fewest, most), list[str]()
        while len(words) < wanted:
            words += numbers.choice(found).split()
        texts.append(" ".join(words[:wanted]))
    return texts


def best(rounds: int, work: Callable[[], object]) -> float:
    """Return the seconds of the fastest round."""
    times = []
    for _ in range(rounds):
        began = perf_counter()
        work()
        times.append(perf_counter() - began)
    return min(times)


def throughput(home: Path, texts: list[str], options: argparse.Namespace) -> None:
    """Measure whole calls, each stage alone, and a plain loop."""
    embedders = {precision: open_gpu(home, options, precision) for precision in options.precisions}
    some = next(iter(embedders.values()))
    calls = [texts[start : start + some.batch_size] for start in range(0, len(texts), some.batch_size)]
    tokens: list[list[list[int]]] = []
    tokenizing = best(1, lambda: tokens.extend(some._document_tokens(call) for call in calls))
    rows = [row for call in tokens for row in call]
    print(
        f"{_name(options.device)}, {os.cpu_count()} cores, {len(texts)} chunks of "
        f"{sum(map(len, rows)) / len(rows):.0f} tokens on average ({max(map(len, rows))} at most)\n"
    )
    print("| what | chunks/s |\n|---|---|")
    show("tokenizing alone", len(texts), tokenizing)
    vectors = np.random.default_rng(1).random((len(texts), some.dim), np.float32)
    show("lists of floats alone", len(texts), best(options.rounds, vectors.tolist))
    for precision, embedder in embedders.items():
        measure(precision, embedder, calls, tokens, options)
    print()


def measure(
    precision: str,
    embedder: GpuEmbedder,
    calls: list[list[str]],
    tokens: list[list[list[int]]],
    options: argparse.Namespace,
) -> None:
    """Measure one precision: the model alone in batches of several sizes, a plain loop, and whole calls."""
    runner = embedder._started()
    assert runner
    count, room = sum(map(len, calls)), runner.batch_tokens

    def two_threads() -> None:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(embedder.embed_documents, calls))

    for size in options.batch_tokens:
        runner.batch_tokens = size
        seconds = best(options.rounds, lambda: alone(runner, tokens))
        show(f"{precision}: model alone, batches of {size} tokens", count, seconds)
    runner.batch_tokens = room
    show(
        f"{precision}: plain loop, batches of {_PLAIN_BATCH} texts",
        count,
        best(1, lambda: plain(embedder, runner, calls)),
    )
    seconds = best(options.rounds, lambda: [embedder.embed_documents(call) for call in calls])
    show(f"{precision}: Recto", count, seconds)
    show(f"{precision}: Recto, two calls at a time", count, best(options.rounds, two_threads))


def show(what: str, count: int, seconds: float) -> None:
    """Print a row of the table."""
    print(f"| {what} | {count / seconds:.0f} |", flush=True)


def alone(runner: TorchRunner, tokens: Sequence[list[list[int]]]) -> None:
    """Run the model on tokenized texts, without making lists of the vectors."""
    for launched in [runner.launch(rows) for rows in tokens]:
        launched.wait()


def plain(embedder: GpuEmbedder, runner: TorchRunner, calls: Sequence[Sequence[str]]) -> None:
    """Embed in the usual way: sort by length, then tokenize, compute and copy one batch after the other."""
    ordered = sorted((text for call in calls for text in call), key=len)
    for start in range(0, len(ordered), _PLAIN_BATCH):
        runner.finish(runner.launch(embedder._document_tokens(ordered[start : start + _PLAIN_BATCH])))


def _name(device: str) -> str:
    import torch

    name = torch.cuda.get_device_name() if device == "cuda" else device
    return f"{name}, torch {torch.__version__}"


def cosines(home: Path, texts: list[str], options: argparse.Namespace) -> None:
    """Compare vectors with the CPU's vectors in fp32."""
    expected = np.array(built_in_embedder(home, os.cpu_count() or 1, "fp32").embed_documents(texts))
    print(f"| cosine similarity to the CPU in fp32, {len(texts)} chunks | mean | min |\n|---|---|---|")
    found: dict[str, Any] = {
        f"GPU, {precision}": open_gpu(home, options, precision).embed_documents(texts)
        for precision in options.precisions
    }
    found["CPU, int8"] = built_in_embedder(home, os.cpu_count() or 1, "int8").embed_documents(texts)
    for what, vectors in found.items():
        values = (np.array(vectors) * expected).sum(axis=1)
        print(f"| {what} | {values.mean():.7f} | {values.min():.7f} |")
    print(flush=True)


def quality(home: Path, options: argparse.Namespace) -> None:
    """Rank the abstracts of SciFact by exact search; long ones are cut."""
    from bench.peers.workloads.scifact import load
    from bench.scifact import MEASURE, ndcg

    texts, claims = load(options.scifact)
    threads = os.cpu_count() or 1
    documents: dict[str, Any] = {}
    queries: dict[str, Any] = {}
    for form in ("fp32", "int8"):
        cpu = built_in_embedder(home, threads, form)
        documents[f"CPU, {form}"] = np.array(cpu.embed_queries(list(texts.values())))
        queries[form] = np.array(cpu.embed_queries(list(claims)))
    for precision in options.precisions:
        gpu = open_gpu(home, options, precision)
        documents[f"GPU, {precision}"] = np.array(gpu.embed_queries(list(texts.values())))
    print(f"{len(texts)} abstracts, {len(claims)} claims\n")
    print(f"| abstracts | {MEASURE}, queries: CPU, fp32 | {MEASURE}, queries: CPU, int8 |\n|---|---|---|")
    for what, vectors in documents.items():
        scores = [ndcg(asked @ vectors.T, list(texts), list(claims.values())) for asked in queries.values()]
        print(f"| {what} | {' | '.join(f'{np.mean(values):.4f}' for values in scores)} |")


if __name__ == "__main__":
    main()
