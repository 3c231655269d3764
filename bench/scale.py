"""Measure how an index scales in hybrid mode: time to build, disk, memory, opening, search and recall.

Sizes are from a thousand chunks to a million, of a synthetic book (`bench.synthetic`). The timed code is what
`recto search` does after embedding a query. Recall is relative to exact search over all chunks.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import quantiles
from time import perf_counter, process_time
from typing import Any

from bench.common import new_parser, notify, numbers, run_module
from bench.common import table as make_table
from bench.synthetic import MODULES, PAGE, TOP, Postings, batches, known_results, mixed_chunks, sample_book
from recto import Chunk, Filters, Hit, RectoError, Retriever, load_settings
from recto.api import open_embedder
from recto.protocols import Store
from recto.search.analyzer import ANALYZER
from recto.search.lexical import LexiconBuilder
from recto.stores import LEXICAL
from recto.stores.edge import EdgeStore
from recto.types.index import EmbedderFingerprint, Fingerprint
from recto.types.search import NO_FILTERS, Vector

SIZES = "1000,10000,100000"
COLLECTION = "scale"
_MODEL = EmbedderFingerprint("synthetic", "1", 384)

Figures = dict[str, float]


def build(store: Store, base: Any, texts: list[Chunk], count: int) -> tuple[Figures, Postings, bytes]:
    """Write an index with a number of chunks; return what it took, the lexical vectors and the lexicon."""
    began, worked = perf_counter(), os.times()
    lexicon, postings = LexiconBuilder(), Postings()
    with store.build(COLLECTION, _MODEL, analyzer=ANALYZER, rebuild=True) as work:
        for start, rows in batches(base, count):
            chunks = mixed_chunks(texts, start, len(rows))
            lexical = lexicon.vectors(chunks)
            work.add(chunks, rows.tolist(), lexical)
            postings.add(lexical)
        encoded = lexicon.to_bytes()
        fingerprint = Fingerprint(
            _MODEL, "synthetic", "scale", "synthetic", "", count // PAGE, "0", "", analyzer=ANALYZER
        )
        work.publish(fingerprint, encoded)
    ended = os.times()
    spent = ended.user + ended.system + ended.children_user + ended.children_system
    spent -= worked.user + worked.system + worked.children_user + worked.children_system
    return {"index s": perf_counter() - began, "index CPU s": spent}, postings, encoded


class _GivenVectors:
    """The synthetic embedder: it returns the vector that a query was made with."""

    def __init__(self, texts: Sequence[str], vectors: Sequence[Vector]) -> None:
        self.fingerprint = _MODEL
        self._vectors = dict(zip(texts, vectors, strict=True))

    def embed_query(self, text: str) -> Vector:
        """Return the vector of a query."""
        return self._vectors[text]

    def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        """Return the vectors of queries."""
        return [self._vectors[text] for text in texts]

    def close(self) -> None:
        """Close nothing."""


def search(store: Store, truth: dict[str, Any]) -> Figures:
    """Measure a process that has not searched yet: opening, the first search, other searches and recall."""
    texts = truth["texts"]
    embedder: Any = _GivenVectors(texts, truth["questions"])
    retriever = Retriever(embedder, store, COLLECTION)
    began, worked = perf_counter(), process_time()
    pages = max(retriever.open().info.chunks // PAGE, 1)
    figures = {
        "open ms": (perf_counter() - began) * 1e3,
        "open CPU ms": (process_time() - worked) * 1e3,
    }

    def hybrid(number: int, filters: Filters = NO_FILTERS) -> Sequence[Hit]:
        return retriever.search(texts[number], top_k=TOP, filters=filters).hits

    def within_module(number: int) -> Sequence[Hit]:
        return hybrid(number, Filters(modules=(f"module-{number % MODULES}",)))

    def within_page(number: int) -> Sequence[Hit]:
        return hybrid(number, Filters(page_url=f"https://example.org/page-{number % pages}"))

    ways: dict[str, Callable[[int], Sequence[Hit]]] = {
        "hybrid search": hybrid,
        "hybrid search within a module": within_module,
        "hybrid search within a page": within_page,
        "dense search": lambda number: retriever.search(texts[number], top_k=TOP, mode="dense").hits,
    }
    began = perf_counter()
    hybrid(0)
    figures["first search ms"] = (perf_counter() - began) * 1e3
    for name, way in ways.items():
        spent, hits = _timed(way, len(texts))
        figures |= {f"{name} {unit}": value for unit, value in spent.items()}
        if expected := truth.get(name.removesuffix(" search")):
            found = [[hit.chunk.id for hit in answer] for answer in hits]
            common = sum(len({*mine} & {*best}) for mine, best in zip(found, expected, strict=True))
            figures[f"{name} recall@10"] = common / (TOP * len(texts))
            first = sum(mine[0] == best[0] for mine, best in zip(found, expected, strict=True))
            figures[f"{name} recall@1"] = first / len(texts)
    return figures


def _timed(way: Callable[[int], Sequence[Hit]], count: int) -> tuple[Figures, list[Sequence[Hit]]]:
    wall, cpu, hits = [], [], []
    for number in range(count):
        began, worked = perf_counter(), process_time()
        hits.append(way(number))
        cpu.append((process_time() - worked) * 1e3)
        wall.append((perf_counter() - began) * 1e3)
    times, work = quantiles(wall, n=20), quantiles(cpu, n=20)
    return {
        "ms p50": times[9],
        "ms p95": times[18],
        "CPU ms p50": work[9],
        "CPU ms p95": work[18],
    }, hits


def _memory() -> Figures:
    lines = Path("/proc/self/smaps_rollup").read_text("ascii").split("\n")[1:-1]
    return {name.rstrip(":"): int(value) / 1e3 for name, value, _ in map(str.split, lines)}


def search_fresh(folder: Path) -> Figures:
    """Search an embedded index in this process, which has nothing open but the model."""
    truth = json.loads((folder / "questions.json").read_text())
    embedder = open_embedder(load_settings(), lambda _: None)
    embedder.embed_query("What does it take to answer a question?")
    before = _memory()
    store = EdgeStore(folder / "home", close_at_exit=True)
    figures = search(store, truth)
    after = _memory()
    embedder.close()
    store.close()
    return figures | {
        "memory with the model, MB": after["Anonymous"],
        "of which the index, MB": after["Anonymous"] - before["Anonymous"],
    }


def measure(count: int, base: Any, texts: list[Chunk], folder: Path) -> Figures:
    """Build an embedded index, then search it in fresh processes."""
    figures, postings, lexicon = build(EdgeStore(folder / "home"), base, texts, count)
    sizes = {path.as_posix(): path.stat().st_blocks * 512 / 1e6 for path in _files(folder)}
    lexical = sum(size for path, size in sizes.items() if f"-{LEXICAL}/" in path)
    figures |= {"disk MB": sum(sizes.values()), "of which lexical vectors, MB": lexical}
    truth = known_results(base, texts, postings, lexicon, count)
    (folder / "questions.json").write_text(json.dumps(truth))
    fresh = ("bench.scale", "--search", str(folder))
    run_module(*fresh)  # the first opening checks every digest; later ones trust unchanged files
    _forget(folder)
    cold = run_module(*fresh)
    for path in _files(folder):
        path.read_bytes()  # into the page cache
    figures |= run_module(*fresh)
    return figures | {f"{name}, cold cache": cold[name] for name in ("open ms", "first search ms")}


def _files(folder: Path) -> list[Path]:
    return [path for path in (folder / "home").rglob("*") if path.is_file()]


def _forget(folder: Path) -> None:
    """Drop the files from the page cache, as after a restart of the machine."""
    os.sync()
    for path in _files(folder):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def table(rows: dict[int, Figures]) -> str:
    """Return the figures as a table with a column for each size, and the ratio of the last to the first.

    The figures with "p50" and "p95" at the end of their names share a row.
    """
    first, last = rows[min(rows)], rows[max(rows)]
    lines = []
    for name in first:
        if name.endswith("p95"):
            continue
        keys = [name, name.replace("p50", "p95")] if name.endswith("p50") else [name]
        cells = [" / ".join(_short(figures[key]) for key in keys) for figures in rows.values()]
        ratio = " / ".join(f"{last[key] / first[key]:.2f}" if first[key] else "" for key in keys)
        lines.append([" / ".join([name, "p95"][: len(keys)]), *cells, ratio])
    return make_table(["number of chunks", *map(_grouped, rows), "last / first"], lines)


def _short(value: float) -> str:
    return f"{value:.3f}" if value < 10 else _grouped(round(value))


def _grouped(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def main() -> None:
    """Print the table."""
    parser = new_parser(__doc__, "bench.scale")
    parser.add_argument("--sizes", type=numbers, default=SIZES, help="chunks, separated by commas")
    parser.add_argument("--search", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.search:
        print(json.dumps(search_fresh(options.search)))
        return
    base, texts = sample_book()
    rows: dict[int, Figures] = {}
    for size in sorted(options.sizes):
        notify(f"{size} chunks …")
        with tempfile.TemporaryDirectory(prefix="recto-scale-") as folder:
            rows[size] = measure(size, base, texts, Path(folder))
    print(table(rows))


if __name__ == "__main__":
    try:
        main()
    except RectoError as error:
        sys.exit(str(error))
