"""Measure how an index scales in hybrid mode: time to build, disk, memory, opening, search and recall.

Sizes are from a thousand chunks to a million, of a synthetic book (`bench.synthetic`). The timed code is what
`recto search` does after embedding a query. Recall is relative to exact search over all chunks. With
`--server`, the chunks are written to a Qdrant server.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import quantiles
from time import perf_counter, process_time
from typing import Any

from bench.common import new_parser, notify, numbers, run_module
from bench.common import table as make_table
from bench.synthetic import MODULES, PAGE, TOP, Postings, batches, known_results, mixed_chunks, sample_book
from recto import Chunk, Filters, Hit, RectoError, Settings, load_settings
from recto.api import open_embedder
from recto.protocols import Index, Store
from recto.search.analyzer import ANALYZER
from recto.search.lexical import Lexicon, LexiconBuilder, analyze_query, read_lexicon
from recto.search.pipeline import nearest_chunks, rank, to_hits, with_ties
from recto.stores import LEXICAL
from recto.stores.edge import EdgeStore
from recto.stores.edge.index import EdgeIndex
from recto.stores.qdrant import open_server
from recto.types.index import EmbedderFingerprint, Fingerprint, IndexQuery
from recto.types.search import NO_FILTERS, Vector

SIZES = "1000,10000,100000"
COLLECTION = "scale"
_COMPARED = 50  # queries that are also searched exactly among their candidates, which is slow
_POLL_SECONDS = 2.0
_MODEL = EmbedderFingerprint("synthetic", "1", 384)

Figures = dict[str, float]


def build(store: Store, base: Any, texts: list[Chunk], count: int) -> tuple[Figures, Postings, bytes]:
    """Write an index with a number of chunks; return what it took, the lexical vectors and the lexicon."""
    began, worked, analysis = perf_counter(), os.times(), 0.0
    lexicon, postings = LexiconBuilder(), Postings()
    with store.build(COLLECTION, _MODEL, analyzer=ANALYZER, rebuild=True) as work:
        for start, rows in batches(base, count):
            chunks = mixed_chunks(texts, start, len(rows))
            before = process_time()
            lexical = lexicon.vectors(chunks)
            analysis += process_time() - before
            work.add(chunks, rows.tolist(), lexical)
            postings.add(lexical)
        before = process_time()
        encoded = lexicon.to_bytes()
        analysis += process_time() - before
        fingerprint = Fingerprint(
            _MODEL, "synthetic", "scale", "synthetic", "", count // PAGE, "0", "", analyzer=ANALYZER
        )
        work.publish(fingerprint, encoded)
    ended = os.times()
    spent = ended.user + ended.system + ended.children_user + ended.children_system
    spent -= worked.user + worked.system + worked.children_user + worked.children_system
    figures = {
        "index s": perf_counter() - began,
        "index CPU s": spent,
        "of which lexical analysis, CPU s": analysis,
        "terms per chunk": len(postings) / count,
        "terms of the lexicon": len(lexicon._terms),
        "lexicon MB": len(encoded) / 1e6,
    }
    return figures, postings, encoded


def hybrid_search(
    index: Index, lexicon: Lexicon, vector: Vector, text: str, filters: Filters = NO_FILTERS
) -> list[Hit]:
    """Return the best hits of a query, as `Retriever.search` does after embedding it."""
    query = analyze_query(text, lexicon)
    (candidates,) = index.candidates([IndexQuery(vector, query.vector)], TOP, filters)
    ranked = with_ties(rank(candidates, "hybrid", query.weight), TOP)
    return to_hits(ranked, candidates, index.chunks([id for id, _ in ranked]), TOP)


def search(store: Store, truth: dict[str, Any]) -> Figures:
    """Measure a process that has not searched yet: opening, the first search, other searches and recall."""
    questions, texts = truth["questions"], truth["texts"]
    began, worked = perf_counter(), process_time()
    index = store.open(COLLECTION)
    lexicon = read_lexicon(index)
    figures = {
        "open ms": (perf_counter() - began) * 1e3,
        "open CPU ms": (process_time() - worked) * 1e3,
    }
    if lexicon is None:
        sys.exit("There is no vocabulary: " + " ".join(index.info.warnings))
    vocabulary: Lexicon = lexicon
    pages = max(index.info.chunks // PAGE, 1)

    def module(number: int) -> Filters:
        return Filters(modules=(f"module-{number % MODULES}",))

    def page(number: int) -> Filters:
        return Filters(page_url=f"https://example.org/page-{number % pages}")

    def hybrid(number: int, filters: Filters = NO_FILTERS) -> list[Hit]:
        return hybrid_search(index, vocabulary, questions[number], texts[number], filters)

    ways: dict[str, Callable[[int], list[Hit]]] = {
        "hybrid search": hybrid,
        "hybrid search within a module": lambda number: hybrid(number, module(number)),
        "hybrid search within a page": lambda number: hybrid(number, page(number)),
        "dense search": lambda number: nearest_chunks(index, [questions[number]], TOP)[0],
    }
    began = perf_counter()
    hybrid(0)
    figures["first search ms"] = (perf_counter() - began) * 1e3
    for name, way in ways.items():
        spent, hits = _timed(way, len(questions))
        figures |= {f"{name} {unit}": value for unit, value in spent.items()}
        if expected := truth.get(name.removesuffix(" search")):
            found = [[hit.chunk.id for hit in answer] for answer in hits]
            common = sum(len({*mine} & {*best}) for mine, best in zip(found, expected, strict=True))
            figures[f"{name} recall@10"] = common / (TOP * len(questions))
            first = sum(mine[0] == best[0] for mine, best in zip(found, expected, strict=True))
            figures[f"{name} recall@1"] = first / len(questions)
    if isinstance(index, EdgeIndex):
        figures["hybrid search recall@10 among its candidates"] = _agreement(index, hybrid)
        figures["dense search within a module recall@10"] = _agreement(
            index, lambda number: nearest_chunks(index, [questions[number]], TOP, module(number))[0]
        )
    return figures


def _timed(way: Callable[[int], list[Hit]], count: int) -> tuple[Figures, list[list[Hit]]]:
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


def _agreement(index: EdgeIndex, search: Callable[[int], list[Hit]]) -> float:
    """Return the recall of a usual search relative to exact search of the same candidates."""
    import qdrant_edge as edge

    usual, found = index._params, []
    for params in (usual, edge.SearchParams(exact=True)):
        index._params = params
        found.append([{hit.chunk.id for hit in search(number)} for number in range(_COMPARED)])
    index._params = usual
    pairs = list(zip(*found, strict=True))
    return sum(len(hits & exact) for hits, exact in pairs) / sum(len(exact) for _, exact in pairs)


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
    mapped = [memory["Rss"] - memory["Anonymous"] for memory in (before, after)]
    return figures | {
        "memory with the model, MB": after["Anonymous"],
        "of which the index, MB": after["Anonymous"] - before["Anonymous"],
        "mapped files of the engine and the index, MB": mapped[1] - mapped[0],
    }


def measure(count: int, base: Any, texts: list[Chunk], keep: Path | None) -> Figures:
    """Build an embedded index, or reuse one, then search it in a fresh process."""
    with tempfile.TemporaryDirectory(prefix="recto-scale-") as scratch:
        folder = keep / str(count) if keep else Path(scratch)
        built = folder / "built.json"
        if not built.exists():
            figures, postings, lexicon = build(EdgeStore(folder / "home"), base, texts, count)
            figures |= _disk(_files(folder))
            truth = known_results(base, texts, postings, lexicon, count)
            (folder / "questions.json").write_text(json.dumps(truth))
            built.write_text(json.dumps(figures))
        else:
            notify(f"Reusing {folder} with the figures of its build")
        _search_fresh(folder)  # the first opening checks every digest; later ones trust unchanged files
        _forget(folder)
        cold = _search_fresh(folder)
        for path in _files(folder):
            path.read_bytes()  # into the page cache
        figures = json.loads(built.read_text()) | _search_fresh(folder)
    return figures | {f"{name}, cold cache": cold[name] for name in ("open ms", "first search ms")}


def _search_fresh(folder: Path) -> Figures:
    figures: Figures = run_module("bench.scale", "--search", str(folder))
    return figures


def _files(folder: Path) -> list[Path]:
    return [path for path in (folder / "home").rglob("*") if path.is_file()]


def _disk(files: Sequence[Path]) -> Figures:
    sizes = {path.as_posix(): path.stat().st_blocks * 512 / 1e6 for path in files}
    lexical = sum(size for path, size in sizes.items() if f"-{LEXICAL}/" in path)
    return {"disk MB": sum(sizes.values()), "of which lexical vectors, MB": lexical}


def _forget(folder: Path) -> None:
    """Drop the files from the page cache, as after a restart of the machine."""
    os.sync()
    for path in _files(folder):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure_server(
    url: str, count: int, base: Any, texts: list[Chunk], directory: Path | None, keep: Path | None
) -> Figures:
    """Build a collection on a server, or reuse one, and search it when it is optimized."""
    with tempfile.TemporaryDirectory(prefix="recto-scale-") as scratch:
        settings = replace(load_settings(), qdrant_url=url, home=Path(scratch))
        built = (keep or Path(scratch)) / f"server-{count}.json"
        with closing(open_server(settings, notify)) as store:
            if not built.exists():
                before = _server_memory(settings)
                figures, postings, lexicon = build(store, base, texts, count)
                began = perf_counter()
                while (found := store.client.get_collection(COLLECTION)).status != "green":
                    time.sleep(_POLL_SECONDS)
                figures["until it is optimized, s"] = perf_counter() - began
                figures["vectors with HNSW"] = found.indexed_vectors_count or 0
                figures["memory of the server before, MB"] = before
                figures["memory of the server, MB"] = _server_memory(settings)
                if directory:
                    figures |= _disk([path for path in directory.rglob("*") if path.is_file()])
                truth = known_results(base, texts, postings, lexicon, count)
                built.write_text(json.dumps({"figures": figures, "truth": truth}))
            kept = json.loads(built.read_text())
            figures = kept["figures"] | search(store, kept["truth"])
            figures["memory of the server after the searches, MB"] = _server_memory(settings)
            if not keep:
                store.delete(COLLECTION)
    return figures


def _server_memory(settings: Settings) -> float:
    """Return what the server has allocated, in megabytes; mapped files are not part of it."""
    import httpx

    headers = {"api-key": settings.qdrant_api_key} if settings.qdrant_api_key else {}
    answer = httpx.get(f"{settings.qdrant_url.rstrip('/')}/metrics", headers=headers, timeout=60)
    lines = answer.raise_for_status().text.split("\n")
    return next(float(line.split()[1]) / 1e6 for line in lines if line.startswith("memory_allocated"))


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
    parser.add_argument(
        "--keep", type=Path, metavar="DIRECTORY", help="keep the indexes here, and reuse them"
    )
    parser.add_argument(
        "--server", metavar="URL", help="measure this Qdrant server; QDRANT_API_KEY has its key"
    )
    parser.add_argument(
        "--server-directory", type=Path, metavar="DIRECTORY", help="the storage of the server, to measure it"
    )
    parser.add_argument("--search", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.search:
        print(json.dumps(search_fresh(options.search)))
        return
    base, texts = sample_book()
    rows: dict[int, Figures] = {}
    for size in sorted(options.sizes):
        notify(f"{size} chunks …")
        if options.server:
            rows[size] = measure_server(
                options.server, size, base, texts, options.server_directory, options.keep
            )
        else:
            rows[size] = measure(size, base, texts, options.keep)
    print(table(rows))


if __name__ == "__main__":
    try:
        main()
    except RectoError as error:
        sys.exit(str(error))
