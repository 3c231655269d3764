"""Measure the overhead of Recto over the parts that it is made of: `python -m bench.spine`.

All figures are medians of interleaved rounds in one run, so that a busy machine slows both sides of a ratio
alike.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from recto import __version__
from recto.api import open_embedder, open_store, sample_source
from recto.book.chunking import ChunkSize, chunk_page
from recto.book.parsing import read
from recto.book.sources.tree import MarkdownTree
from recto.embedders.granite.embedder import MODELS
from recto.embedders.onnx import LocalEmbedder
from recto.indexing.indexer import IndexJob, index_book
from recto.protocols import Embedder, Source, Store
from recto.search.retriever import Retriever
from recto.settings import BUILT_IN_MODEL, Settings
from recto.types.search import NO_FILTERS, Filters, Vector

ROOT = Path(__file__).parent.parent
QUESTIONS = [
    "What is ROS 2?",
    "How do I set up Gazebo for robot simulation?",
    "robot navigation",
    "Why does my node receive nothing?",
    "How do VLA models work for robot control?",
]


def main() -> None:
    """Run all measurements and print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="rounds of each measurement (default 9)")
    parser.add_argument("--model", choices=MODELS, default=BUILT_IN_MODEL, help="built-in model")
    parser.add_argument("--book", type=Path, help="measure on this book instead of the sample book")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as home:
        settings = Settings("local", "edge", Path(home), model=options.model, threads=threads)
        embedder, store = open_embedder(settings, print), open_store(settings, print)
        source = MarkdownTree(options.book) if options.book else sample_source()
        index_book(IndexJob(source, embedder), store, "bench", journal=Path(home) / "journal")
        figures = {
            "machine": f"{platform.machine()}, {threads} threads, Python {platform.python_version()}",
            "recto": __version__,
            "model": options.model,
            "date": datetime.now(UTC).date().isoformat(),
            "rounds": options.rounds,
            **search_overhead(embedder, store, options.rounds),
            **cpu_overhead(embedder, store, options.rounds),
            **cold_start(Path(home), options.model, options.rounds),
            **indexing(source, embedder, store, Path(home) / "journal", max(1, options.rounds // 3)),
            **memory(Path(home)),
        }
    print(json.dumps(figures, indent=2) if options.json else table(figures))


def cold_start(home: Path, model: str, rounds: int) -> dict[str, Any]:
    """Compare a query in a fresh process with an interpreter that does nothing."""
    environment = {**os.environ, "RECTO_HOME": str(home), "RECTO_MODEL": model, "COLLECTION_NAME": "bench"}
    query = [sys.executable, str(ROOT / "retrieve.py"), "What is ROS 2?"]
    show_help = [sys.executable, str(ROOT / "retrieve.py"), "--help"]
    nothing = [sys.executable, "-c", "pass"]

    def timed(command: list[str]) -> Callable[[], None]:
        def run() -> None:
            subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)

        return run

    times = interleaved({"query": timed(query), "help": timed(show_help), "nothing": timed(nothing)}, rounds)
    return {
        "cold query, ms": round(times["query"] * 1e3),
        "--help, ms": round(times["help"] * 1e3),
        "python -c pass, ms": round(times["nothing"] * 1e3),
        "cold query / python -c pass": round(times["query"] / times["nothing"], 1),
        "--help / python -c pass": round(times["help"] / times["nothing"], 1),
    }


def search_overhead(embedder: Embedder, store: Store, rounds: int) -> dict[str, Any]:
    """Compare `Retriever.search` with direct calls of the tokenizer, onnxruntime and Edge."""
    import qdrant_edge as edge

    retriever = Retriever(embedder, store, "bench")
    retriever.warm_up()
    model: LocalEmbedder = embedder  # type: ignore[assignment]
    run = model._sessions.single()
    shard = store.open("bench")._shard  # type: ignore[attr-defined]
    bare, whole, embedding = [], [], []
    for _ in range(rounds * 20):
        for question in QUESTIONS:
            began = perf_counter()
            vector = list(run(model._query_tokens([question]))[0])
            embedded = perf_counter()
            shard.query(
                edge.QueryRequest(limit=5, offset=0, query=edge.Query.Nearest(vector), with_payload=True)
            )
            ended = perf_counter()
            retriever.search(question, mode="dense")
            whole.append(perf_counter() - ended)
            bare.append(ended - began)
            embedding.append(embedded - began)
    return {
        "Retriever.search p50, ms": round(statistics.median(whole) * 1e3, 2),
        "of which embedding, ms": round(statistics.median(embedding) * 1e3, 2),
        "Retriever.search / bare engine calls (goal <= 1.10)": round(
            statistics.median(whole) / statistics.median(bare), 3
        ),
    }


class PrecomputedEmbedder:
    """An embedder with precomputed query vectors, to measure everything else."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self.vectors = {question: embedder.embed_query(question) for question in QUESTIONS}

    def __getattr__(self, name: str) -> Any:
        """Forward everything else to the embedder."""
        return getattr(self._embedder, name)

    def embed_query(self, text: str) -> Vector:
        """Return the precomputed vector."""
        return self.vectors[text]

    def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        """Return the precomputed vectors."""
        return [self.vectors[text] for text in texts]


def cpu_overhead(embedder: Embedder, store: Store, rounds: int) -> dict[str, Any]:
    """Compare searches with precomputed vectors with the engine's calls, by minimum CPU time."""
    import qdrant_edge as edge

    ready: Any = PrecomputedEmbedder(embedder)
    retriever = Retriever(ready, store, "bench")
    index: Any = retriever.open()
    module = next(iter(index.modules()))
    figures: dict[str, Any] = {}
    for name, filters in (("", NO_FILTERS), (", one module", Filters((module,)))):

        def bare(filters: Filters = filters) -> None:
            for vector in ready.vectors.values():
                only = (
                    edge.Filter(must=[edge.FieldCondition(key="module_keys", match=edge.MatchValue(module))])
                    if filters
                    else None
                )
                index._shard.query(
                    edge.QueryRequest(
                        limit=5, offset=0, query=edge.Query.Nearest(vector), filter=only, with_payload=True
                    )
                )

        def whole(filters: Filters = filters) -> None:
            for question in QUESTIONS:
                retriever.search(question, filters=filters, mode="dense")

        def new(whole: Callable[[], None] = whole) -> None:
            index._cache = {}
            whole()

        jobs: dict[str, Callable[[], None]] = {
            f"engine call with payload{name}, CPU µs": bare,
            f"search without embedding{name}, CPU µs": whole,
            f"search without embedding, uncached chunks{name}, CPU µs": new,
        }
        spent: dict[str, list[float]] = {job: [] for job in jobs}
        for _ in range(rounds):
            for job, work in jobs.items():
                work()
                began = process_time()
                for _ in range(50):
                    work()
                spent[job].append((process_time() - began) / 50 / len(QUESTIONS))
        figures |= {job: round(min(times) * 1e6) for job, times in spent.items()}
    return figures


def indexing(source: Source, embedder: Embedder, store: Store, journal: Path, rounds: int) -> dict[str, Any]:
    """Compare a whole index run with embedding the same chunks alone."""
    texts = embedded_texts(source, embedder)

    def bare() -> None:
        embedder.embed_documents(texts)

    def whole() -> None:
        index_book(IndexJob(source, embedder, rebuild=True), store, "bench", journal=journal)

    times = interleaved({"bare": bare, "whole": whole}, rounds)
    return {
        "chunks": len(texts),
        "bare embedder, chunks/s": round(len(texts) / times["bare"], 1),
        "index run, chunks/s": round(len(texts) / times["whole"], 1),
        "index run / bare embedder (goal >= 0.9)": round(times["bare"] / times["whole"], 3),
    }


def embedded_texts(source: Source, embedder: Embedder) -> list[str]:
    """Return the texts that an index run embeds."""
    return [
        passage.embedded
        for page in source.pages()
        for passage in chunk_page(
            page,
            read(page),
            source.book,
            embedder.count_tokens,
            embedder.max_tokens,
            ChunkSize(),
        )
    ]


def memory(home: Path) -> dict[str, Any]:
    """Measure a fresh process after a few searches, with and without mapped files."""
    code = """
import json, sys, psutil
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from recto.settings import Settings
from recto.api import open_embedder, open_store
from recto.search.retriever import Retriever
settings = Settings("local", "edge", Path(sys.argv[2]), threads=2)
before = psutil.Process().memory_full_info()
retriever = Retriever(open_embedder(settings, print), open_store(settings, print), "bench")
for _ in range(20):
    retriever.search("What is ROS 2?")
after = psutil.Process().memory_full_info()
print(json.dumps([before.rss, after.rss, after.uss]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT / "src"), str(home)], capture_output=True, text=True, check=True
    )
    before, after, own = json.loads(done.stdout)
    return {
        "RSS of the interpreter, MB": round(before / 1e6),
        "RSS after 20 searches, MB": round(after / 1e6),
        "of which not file-mapped, MB": round(own / 1e6),
    }


def interleaved(jobs: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """Run all jobs in turn, several times, and return the median time of each."""
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(rounds):
        for name, job in jobs.items():
            began = perf_counter()
            job()
            times[name].append(perf_counter() - began)
    return {name: statistics.median(found) for name, found in times.items()}


def table(figures: dict[str, Any]) -> str:
    """Return the figures as a Markdown table."""
    rows = [f"| {name} | {value} |" for name, value in figures.items()]
    return "\n".join(["| measurement | figure |", "|---|---|", *rows])


if __name__ == "__main__":
    main()
