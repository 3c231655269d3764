"""Measure the overhead of a validation run over the engine calls: `python -m bench.validate`.

Both sides embed the same questions in the same batches and search the same index. Rounds alternate, so that a
busy machine slows both alike.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from pathlib import Path
from time import perf_counter

from recto.api import open_embedder, open_store, sample_source
from recto.book.sources.tree import MarkdownTree
from recto.evaluation.drafts import draft
from recto.evaluation.runs import DEFAULT_OPTIONS, run_suite
from recto.evaluation.suites import Suite
from recto.indexing.indexer import IndexJob, index_book
from recto.protocols import Embedder, Index
from recto.search.retriever import Retriever
from recto.settings import Settings

_BATCH = 32


def main() -> None:
    """Print both medians and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each side (default 5)")
    parser.add_argument("--book", type=Path, help="measure on this book instead of the sample book")
    parser.add_argument("--queries", type=int, default=500, help="how many questions (default 500)")
    options = parser.parse_args()
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as home:
        settings = Settings("local", "edge", Path(home), threads=threads)
        embedder, store = open_embedder(settings, print), open_store(settings, print)
        source = MarkdownTree(options.book) if options.book else sample_source()
        index_book(IndexJob(source, embedder), store, "bench", journal=Path(home) / "journal")
        retriever = Retriever(embedder, store, "bench")
        retriever.warm_up()
        index = retriever.open()
        suite = questions(index, options.queries)
        bare_times, run_times = [], []
        for _ in range(options.rounds):
            began = perf_counter()
            bare(embedder, index, suite)
            middle = perf_counter()
            run = run_suite(retriever, suite)
            run_times.append(perf_counter() - middle)
            bare_times.append(middle - began)
            began = perf_counter()
            run.to_dict()
            report = perf_counter() - began
    bare_s, run_s = statistics.median(bare_times), statistics.median(run_times)
    figures = {
        "queries": len(suite.expectations),
        "bare_s": round(bare_s, 3),
        "validate_s": round(run_s, 3),
        "report_s": round(report, 3),
    }
    print(json.dumps(figures | {"ratio": round(run_s / bare_s, 3)}))


def questions(index: Index, count: int) -> Suite:
    """Draft questions from the book; those of a small book are repeated in other words."""
    drafted = draft(index, count).expectations
    more = [(one, number) for number in range(count // len(drafted) + 1) for one in drafted]
    from dataclasses import replace

    return Suite(
        "bench",
        tuple(
            replace(one, query=f"{one.query} ({number})" if number else one.query)
            for one, number in more[:count]
        ),
    )


def bare(embedder: Embedder, index: Index, suite: Suite) -> None:
    """Send the same questions to the model and the engine directly."""
    for start in range(0, len(suite.expectations), _BATCH):
        batch = [expectation.query for expectation in suite.expectations[start : start + _BATCH]]
        index.query_batch(embedder.embed_queries(batch), DEFAULT_OPTIONS.depth)


if __name__ == "__main__":
    main()
