"""Compare searches without and with HNSW by the number of chunks: the cost to build, open and search, recall.

The same chunks (`bench.synthetic`) are written once, then left as written, memory-mapped and quantized
without a graph, and with an HNSW graph. Each index is searched in a fresh process. Times are CPU times.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import quantiles
from time import process_time

from bench.scale import own_memory
from bench.synthetic import TOP, batches, make_questions, mixed_chunks, sample_book
from recto.search.lexical import LexiconBuilder
from recto.stores import to_payload
from recto.stores.edge import engine
from recto.types.search import NO_FILTERS

SIZES = "20000,50000"
KINDS = {"as written": 0, "int8": engine.MAPPED_FROM, "HNSW and int8": engine.HNSW_FROM}
"""The number of chunks whose configuration is used for each kind of index."""
_DIM = 384
_BATCH = 200


def search(path: Path, size: int, questions: list[list[float]]) -> tuple[list[float], list[list[str]]]:
    """Return the milliseconds to open, the megabytes, p50 and p95 in milliseconds, and the ids found."""
    before, began = own_memory(), process_time()
    shard = engine.load_shard(path)
    opened = process_time() - began
    spent, found = [], []
    for question in questions:
        began = process_time()
        request = engine.query_request(question, TOP, NO_FILTERS, params=engine.search_params(size))
        hits = shard.query(request)
        spent.append(process_time() - began)
        found.append([str(hit.id) for hit in hits])
    times = quantiles(spent, n=20)
    return [opened * 1e3, own_memory() - before, times[9] * 1e3, times[18] * 1e3], found


def measure(count: int) -> None:
    """Print a row for each kind of index."""
    base, texts = sample_book()
    questions = make_questions(base, texts, count)[0].tolist()
    lexicon, writing = LexiconBuilder(), 0.0
    with tempfile.TemporaryDirectory(prefix="recto-exact-") as scratch:
        written = Path(scratch, "written")
        shard = engine.create_shard(written, _DIM)
        for start, rows in batches(base, count):
            chunks = mixed_chunks(texts, start, len(rows))
            lexical = lexicon.vectors(chunks)
            began = process_time()
            for first in range(0, len(chunks), _BATCH):
                some = slice(first, first + _BATCH)
                points = zip(chunks[some], rows[some].tolist(), lexical[some], strict=True)
                engine.upsert(
                    shard, [(one.id, dense, terms, to_payload(one)) for one, dense, terms in points]
                )
            writing += process_time() - began
        shard.close()
        exact: list[list[str]] = []
        for kind, size in KINDS.items():
            path = Path(scratch, str(size))
            shutil.copytree(written, path)
            began = process_time()
            engine.finish_shard(engine.load_shard(path), path, size, _DIM)
            optimizing = process_time() - began
            asked = json.dumps([str(path), size, questions])
            command = [sys.executable, "-m", "bench.exact", "--search"]
            output = subprocess.run(command, input=asked, check=True, capture_output=True, text=True).stdout
            figures, found = json.loads(output)
            exact = exact or found
            pairs = zip(found, exact, strict=True)
            recall = sum(len({*one} & {*best}) for one, best in pairs) / sum(map(len, exact))
            costs = [f"{seconds / count * 1e6:.0f}" for seconds in (writing, optimizing)]
            opened, memory, p50, p95 = figures
            row = [*costs, f"{opened:.0f}", f"{memory:.0f}", f"{p50:.2f} / {p95:.2f}", f"{recall:.4f}"]
            print(f"| {count} | {kind} | {' | '.join(row)} |", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", default=SIZES, help="chunks, separated by commas")
    parser.add_argument("--search", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.search:
        path, size, questions = json.load(sys.stdin)
        print(json.dumps(search(Path(path), size, questions)))
        return
    print(
        "| chunks | index | write, µs a chunk | optimize, µs | open, ms | private MB | dense, ms | recall |"
    )
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for size in options.sizes.split(","):
        measure(int(size))


if __name__ == "__main__":
    main()
