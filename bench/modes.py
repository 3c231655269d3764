"""Measure what hybrid search costs: `python -m bench.modes --sizes 1000,100000`.

The figures are the CPU time of a search including the model, the index size and the memory. Two indexes of
the same chunks are compared, one of them without lexical vectors. Vectors are mixtures of the sample book's
vectors (`bench.synthetic`), texts are the sample book's. Searches alternate between the modes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

from bench.scale import own_memory
from bench.synthetic import batches, numbered_chunk, sample_book
from recto.api import open_embedder
from recto.evaluation.suites import load_suite
from recto.search.analyzer import ANALYZER
from recto.search.lexical import LexiconBuilder
from recto.search.retriever import Retriever
from recto.settings import load_settings
from recto.stores.edge import EdgeStore
from recto.types.index import EmbedderFingerprint, Fingerprint
from recto.types.search import Chunk

SUITE = Path(__file__).parent.parent / "src" / "recto" / "sample" / "development.json"
_ROUNDS = 9


def build(
    base: Any, texts: list[Chunk], count: int, home: Path, model: EmbedderFingerprint, *, lexical: bool
) -> float:
    """Write an index with a number of chunks and return its size on disk in megabytes."""
    lexicon = LexiconBuilder()
    with EdgeStore(home).build("modes", model) as work:
        for start, rows in batches(base, count):
            chunks = [numbered_chunk(texts, start + offset) for offset in range(len(rows))]
            work.add(chunks, rows.tolist(), lexicon.vectors(chunks) if lexical else None)
        made = Fingerprint(
            model, "synthetic", "modes", "synthetic", "", 1, "0", "", analyzer=ANALYZER if lexical else ""
        )
        work.publish(made, lexicon.to_bytes() if lexical else b"")
    return sum(path.stat().st_blocks * 512 for path in home.rglob("*") if path.is_file()) / 1e6


def search(home: Path, *, lexical: bool) -> dict[str, float]:
    """Measure a fresh process: the CPU time of a search in each mode, and its memory."""
    queries = [expectation.query for expectation in load_suite(SUITE).expectations]
    embedder = open_embedder(load_settings(), lambda _: None)
    spent: dict[str, list[float]] = {"dense": [], "hybrid": []}
    with Retriever(embedder, EdgeStore(home), "modes") as retriever:
        for query in queries[:20]:
            retriever.search(query, mode="hybrid" if lexical else "dense")
        for _ in range(_ROUNDS if lexical else 0):
            for query in queries:
                for mode in ("dense", "hybrid"):
                    began = process_time()
                    retriever.search(query, mode=mode)
                    spent[mode].append((process_time() - began) * 1e3)
        memory = own_memory()
    return {f"{mode} CPU ms": median(times) for mode, times in spent.items() if times} | {"memory MB": memory}


def main() -> None:
    """Build and search indexes of each size, and print the ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", default="1000,100000", help="numbers of chunks, separated by commas")
    parser.add_argument("--search", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--lexical", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.search:
        print(json.dumps(search(options.search, lexical=options.lexical)))
        return
    print(
        "| chunks | dense CPU ms | hybrid CPU ms | ratio | index size MB, without / with | ratio "
        "| memory MB, without / with | ratio |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for count in map(int, options.sizes.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            print(_row(count, Path(folder)), flush=True)


def _row(count: int, folder: Path) -> str:
    base, texts = sample_book()
    model = open_embedder(load_settings(), lambda _: None).fingerprint
    disk, found = [], []
    for lexical in (False, True):
        home = folder / str(lexical)
        disk.append(build(base, texts, count, home, model, lexical=lexical))
        command = [
            sys.executable,
            "-m",
            "bench.modes",
            "--search",
            str(home),
            *(["--lexical"] if lexical else []),
        ]
        found.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    dense, hybrid = found[1]["dense CPU ms"], found[1]["hybrid CPU ms"]
    memory = [each["memory MB"] for each in found]
    return (
        f"| {count:,} | {dense:.2f} | {hybrid:.2f} | {hybrid / dense:.2f} "
        f"| {disk[0]:.1f} / {disk[1]:.1f} | {disk[1] / disk[0]:.2f} "
        f"| {memory[0]:.0f} / {memory[1]:.0f} | {memory[1] / memory[0]:.2f} |"
    )


if __name__ == "__main__":
    main()
