"""Measure how an index scales in hybrid mode: time to build, disk, memory, opening, search and recall.

Sizes are from a thousand chunks to a million, of a synthetic book (`bench.synthetic`). The timed code is what
`recto search` does after embedding a query. Recall is relative to exact search over all chunks. With
`--server`, the chunks are written to a Qdrant server. `--extrapolate` calculates larger sizes.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import zlib
from base64 import b64encode
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import quantiles
from time import perf_counter, process_time
from typing import Any, NamedTuple

from bench.synthetic import MODULES, PAGE, TOP, Postings, batches, known_results, mixed_chunks, sample_book
from recto.api import open_embedder
from recto.errors import RectoError
from recto.protocols import Index, Store
from recto.search.analyzer import ANALYZER
from recto.search.lexical import Lexicon, LexiconBuilder, analyze_query, read_lexicon
from recto.search.pipeline import nearest_chunks, rank, to_hits, with_ties
from recto.settings import Settings, load_settings
from recto.stores import LEXICAL
from recto.stores.edge import EdgeStore
from recto.stores.edge.index import EdgeIndex
from recto.stores.edge.layout import digest
from recto.stores.qdrant import open_server
from recto.stores.qdrant.collections import MAX_LEXICON
from recto.types.index import EmbedderFingerprint, Fingerprint, IndexQuery
from recto.types.search import NO_FILTERS, Chunk, Filters, Hit, Vector

SIZES = (1_000, 10_000, 100_000)
COLLECTION = "scale"
_COMPARED = 50
_POLL_SECONDS = 2.0
_MODEL = EmbedderFingerprint("synthetic", "1", 384)

Figures = dict[str, float]


class Measured(NamedTuple):
    """What `extrapolate` needs of a size: terms, megabytes, and milliseconds.

    The CPU time of lexical search is the difference between hybrid and dense search.
    """

    terms: int
    per_chunk: float
    lexicon: float
    stored: float
    vectors: float
    search: float


_MEASURED = {
    10_000: Measured(38_507, 60.36, 0.718, 0.352, 5.57, 2.863 - 1.856),
    1_000_000: Measured(582_120, 60.32, 12.03, 5.307, 897.7, 6.695 - 2.656),
}
"""Figures of a run of this benchmark, which docs/how-to/deploy.md shows."""


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
        made = Fingerprint(
            _MODEL, "synthetic", "scale", "synthetic", "", count // PAGE, "0", "", analyzer=ANALYZER
        )
        work.publish(made, encoded)
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
        "lexicon as a server stores it, MB": len(b64encode(zlib.compress(encoded, 9))) / 1e6,
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


def search(store: Store, asked: dict[str, Any], collection: str = COLLECTION) -> Figures:
    """Measure a process that has not searched yet: opening, the first search, other searches and recall."""
    questions, texts = asked["questions"], asked["texts"]
    began, worked = perf_counter(), process_time()
    index = store.open(collection)
    lexicon = read_lexicon(index)
    figures = {
        "open ms": (perf_counter() - began) * 1e3,
        "open CPU ms": (process_time() - worked) * 1e3,
    }
    if lexicon is None:
        sys.exit("There is no vocabulary: " + " ".join(index.info.warnings))
    known: Lexicon = lexicon
    pages = max(index.info.chunks // PAGE, 1)

    def module(number: int) -> Filters:
        return Filters(modules=(f"module-{number % MODULES}",))

    def page(number: int) -> Filters:
        return Filters(page_url=f"https://example.org/page-{number % pages}")

    def hybrid(number: int, filters: Filters = NO_FILTERS) -> list[Hit]:
        return hybrid_search(index, known, questions[number], texts[number], filters)

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
        if expected := asked.get(name.removesuffix(" search")):
            found = sum(
                len({hit.chunk.id for hit in one} & set(ids)) for one, ids in zip(hits, expected, strict=True)
            )
            figures[f"{name} recall@10"] = found / (TOP * len(questions))
            first = sum(one[0].chunk.id == ids[0] for one, ids in zip(hits, expected, strict=True))
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
    return sum(len(one & exact) for one, exact in pairs) / sum(len(exact) for _, exact in pairs)


def own_memory() -> float:
    """Return the anonymous memory of this process in megabytes: neither files nor shared."""
    return _memory()["Anonymous"]


def _memory() -> Figures:
    lines = Path("/proc/self/smaps_rollup").read_text("ascii").split("\n")[1:-1]
    return {name.rstrip(":"): int(value) / 1e3 for name, value, _ in map(str.split, lines)}


def search_fresh(folder: Path) -> Figures:
    """Search an embedded index in this process, which has nothing open but the model."""
    asked = json.loads((folder / "questions.json").read_text())
    embedder = open_embedder(load_settings(), lambda _: None)
    embedder.embed_query("What does it take to answer a question?")
    before = _memory()
    store = EdgeStore(folder / "home", close_at_exit=True)
    figures = search(store, asked)
    after = _memory()
    embedder.close()
    store.close()
    own, files = (
        [one["Anonymous"] for one in (before, after)],
        [one["Rss"] - one["Anonymous"] for one in (before, after)],
    )
    return figures | {
        "memory with the model, MB": own[1],
        "of which the index, MB": own[1] - own[0],
        "mapped files of the engine and the index, MB": files[1] - files[0],
    }


def measure(count: int, base: Any, texts: list[Chunk], keep: Path | None) -> Figures:
    """Build an embedded index, or reuse one, then search it in a fresh process."""
    with tempfile.TemporaryDirectory(prefix="recto-scale-") as scratch:
        folder = keep / str(count) if keep else Path(scratch)
        built = folder / "built.json"
        if not built.exists():
            made, postings, lexicon = build(EdgeStore(folder / "home"), base, texts, count)
            files = _files(folder)
            made["disk MB"] = _on_disk(files)
            made["of which lexical vectors, MB"] = _on_disk_lexical(files)
            asked = known_results(base, texts, postings, lexicon, count)
            (folder / "questions.json").write_text(json.dumps(asked))
            built.write_text(json.dumps(made))
        else:
            print(f"Reusing {folder} with the figures of its build", file=sys.stderr)
        _searched(folder)  # the first opening checks every digest; later ones trust unchanged files
        _forget(folder)
        cold = _searched(folder)
        for path in _files(folder):
            digest(path)
        figures: Figures = json.loads(built.read_text()) | _searched(folder)
    return figures | {f"{name}, cold cache": cold[name] for name in ("open ms", "first search ms")}


def _searched(folder: Path) -> Figures:
    command = [sys.executable, "-m", "bench.scale", "--search", str(folder)]
    figures: Figures = json.loads(
        subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    )
    return figures


def _files(folder: Path) -> list[Path]:
    return [path for path in (folder / "home").rglob("*") if path.is_file()]


def _on_disk(files: Sequence[Path]) -> float:
    return sum(path.stat().st_blocks * 512 for path in files) / 1e6


def _on_disk_lexical(files: Sequence[Path]) -> float:
    return _on_disk([path for path in files if f"-{LEXICAL}/" in path.as_posix()])


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
        with closing(open_server(settings, lambda message: print(message, file=sys.stderr))) as store:
            if not built.exists():
                before = _server_memory(settings)
                made, postings, lexicon = build(store, base, texts, count)
                began = perf_counter()
                while (found := store.client.get_collection(COLLECTION)).status != "green":
                    time.sleep(_POLL_SECONDS)
                made["until it is optimized, s"] = perf_counter() - began
                made["vectors with HNSW"] = found.indexed_vectors_count or 0
                made["memory of the server before, MB"] = before
                made["memory of the server, MB"] = _server_memory(settings)
                if directory:
                    files = [path for path in directory.rglob("*") if path.is_file()]
                    made["disk MB"] = _on_disk(files)
                    made["of which lexical vectors, MB"] = _on_disk_lexical(files)
                asked = known_results(base, texts, postings, lexicon, count)
                built.write_text(json.dumps({"made": made, "asked": asked}))
            known = json.loads(built.read_text())
            figures: Figures = known["made"] | search(store, known["asked"])
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


def extrapolate() -> str:
    """Return a table of what hybrid search adds at larger sizes, calculated from `_MEASURED`."""
    sizes = (1_000_000, 10_000_000, 100_000_000, 1_000_000_000)
    small, large = min(_MEASURED), max(_MEASURED)
    less, measured = _MEASURED[small], _MEASURED[large]
    many = measured.terms
    exponent = math.log(many / less.terms) / math.log(large / small)
    slope = (measured.search - less.search) / (large - small)

    def terms(chunks: float) -> float:
        return float(many * (chunks / large) ** exponent)

    per_term = [size * 1e6 / many for size in (measured.lexicon, measured.stored)]
    per_posting = measured.vectors * 1e6 / (large * measured.per_chunk)
    most: float = large * (MAX_LEXICON / per_term[1] / many) ** (1 / exponent)
    rows = {
        "terms of the lexicon, million": [terms(size) / 1e6 for size in sizes],
        "lexicon in the memory of a process, MB": [terms(size) * per_term[0] / 1e6 for size in sizes],
        "lexicon as a server stores it, MB": [terms(size) * per_term[1] / 1e6 for size in sizes],
        "terms that share an id with another term, %": [
            100 * -math.expm1(-terms(size) / 2**32) for size in sizes
        ],
        "lexical vectors of one replica, GB": [
            size * measured.per_chunk * per_posting / 1e9 for size in sizes
        ],
        "CPU time of lexical search, all shards, s": [
            (measured.search + slope * (size - large)) / 1e3 for size in sizes
        ],
    }
    lines = [
        "| number of chunks | " + " | ".join(map(_grouped, sizes)) + " |",
        "|---" * (len(sizes) + 1) + "|",
        *(f"| {name} | {' | '.join(map(_short, values))} |" for name, values in rows.items()),
    ]
    return "\n".join(
        (
            f"The vocabulary grows with the number of chunks to the power of {exponent:.2f}. A term takes "
            f"{per_term[0]:.1f} bytes in the lexicon and {per_term[1]:.1f} bytes on a server.",
            f"A chunk has {measured.per_chunk:.0f} terms, each of them takes {per_posting:.1f} bytes.",
            f"The lexicon of {_grouped(1000 * round(most / 1000))} chunks is as large as a server can store "
            f"({MAX_LEXICON >> 20} MiB).",
            "",
            *lines,
        )
    )


def table(rows: dict[int, Figures]) -> str:
    """Return the figures as a table with a column for each size, and the ratio of the last to the first.

    The figures with "p50" and "p95" at the end of their names share a row.
    """
    columns = list(rows.values())
    first, last = rows[min(rows)], rows[max(rows)]
    lines = [
        "| number of chunks | " + " | ".join(map(_grouped, rows)) + " | last / first |",
        "|---" * (len(rows) + 2) + "|",
    ]
    for name in columns[0]:
        if name.endswith("p95"):
            continue
        names = [name, name.replace("p50", "p95")] if name.endswith("p50") else [name]
        cells = [" / ".join(_short(figures[one]) for one in names) for figures in columns]
        ratio = " / ".join(f"{last[one] / first[one]:.2f}" if first[one] else "" for one in names)
        lines.append(f"| {name}{' / p95' if len(names) > 1 else ''} | {' | '.join(cells)} | {ratio} |")
    return "\n".join(lines)


def _short(value: float) -> str:
    return f"{value:.3f}" if value < 10 else _grouped(round(value))


def _grouped(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="chunks, separated by commas")
    parser.add_argument("--rounds", type=int, default=0, help="1: a short run, with the smallest size only")
    parser.add_argument("--book", help="not used: the vectors are made from the sample book")
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="DIRECTORY",
        help="keep the indexes here, and reuse existing ones",
    )
    parser.add_argument(
        "--server", metavar="URL", help="measure this Qdrant server; QDRANT_API_KEY has its key"
    )
    parser.add_argument(
        "--server-directory", type=Path, metavar="DIRECTORY", help="the storage of the server, to measure it"
    )
    parser.add_argument("--extrapolate", action="store_true", help="calculate larger sizes; measure nothing")
    parser.add_argument("--search", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    try:
        sizes = sorted(map(int, given.sizes.split(",")))[: given.rounds or None]
    except ValueError:
        parser.error(f"--sizes: {given.sizes!r} is not a list of numbers with commas")
    if given.search:
        print(json.dumps(search_fresh(given.search)))
        return
    if given.extrapolate:
        print(extrapolate())
        return
    base, texts = sample_book()
    rows: dict[int, Figures] = {}
    for size in sizes:
        print(f"{size} chunks …", file=sys.stderr)
        if given.server:
            rows[size] = measure_server(given.server, size, base, texts, given.server_directory, given.keep)
        else:
            rows[size] = measure(size, base, texts, given.keep)
    print(table(rows))


if __name__ == "__main__":
    try:
        main()
    except RectoError as error:
        sys.exit(str(error))
