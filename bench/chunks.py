"""Compare sizes of chunks on a book with suites of questions: `uv run python -m bench.chunks`.

For each size: how often the right module comes first, the right page first, the right page in the top 5.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from recto.book.chunker import ChunkSize
from recto.evaluation.suite import load_suite
from recto.evaluation.validation import validate
from recto.indexer import Work, index_book
from recto.retriever import Retriever
from recto.settings import Settings
from recto.wiring import open_embedder, open_store, sample_source

ROOT = Path(__file__).parent.parent
SUITES = [ROOT / "src" / "recto" / "sample" / "development.json", ROOT / "tests" / "evaluation" / "heldout.json"]
SIZES = ["128/32", "192/64", "256/64", "320/64", "384/64", "448/64"]


def main() -> None:
    """Index the sample book once for each size and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", default=SIZES, help="largest/crumb, in tokens")
    options = parser.parse_args()
    suites = [load_suite(path) for path in SUITES]
    print("| largest / crumb | chunks | " + " | ".join(f"{suite.name} ({len(suite.expectations)})" for suite in suites) + " |")
    print("|---|---|" + "---|" * len(suites))
    with tempfile.TemporaryDirectory() as home:
        settings = Settings("local", "edge", Path(home), threads=os.cpu_count() or 1)
        embedder, store = open_embedder(settings, print), open_store(settings, print)
        for size in options.sizes:
            largest, _, crumb = size.partition("/")
            work = Work(sample_source(), embedder, ChunkSize(int(largest), int(crumb)), rebuild=True)
            report = index_book(work, store, "bench", journal=Path(home))
            cells = [validate(Retriever(embedder, store, "bench"), suite) for suite in suites]
            shown = " | ".join(f"{cell.accuracy:.3f} / {cell.page_hits(1):.3f} / {cell.page_hits(5):.3f}" for cell in cells)
            print(f"| {size} | {report.info.chunks} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
