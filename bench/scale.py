"""Measure how the embedded engine scales: index time, disk, memory, cold open, search and recall.

Sizes are from a thousand chunks to a million. Vectors are synthetic: mixtures of the sample book's vectors
with noise, so that they are distributed like real ones; each has the text of a real chunk. The timed code is
the store's own: writing through the build, opening a generation, `Index.query` with ten hits.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import quantiles
from time import perf_counter, process_time
from typing import Any

from recto.api import connect, open_embedder
from recto.settings import load_settings
from recto.stores.edge.engine import query_request
from recto.stores.edge.index import EdgeIndex
from recto.stores.edge.layout import digest
from recto.stores.edge.store import EdgeStore
from recto.types import Chunk, EmbedderFingerprint, Filters, Fingerprint, Vector

SIZES = (1_000, 10_000, 100_000)
QUESTIONS = 200
TOP = 10
_COMPARED = 50
_BATCH = 1_000
_PAGE = 20
_MODULES = 5
_NOISE = 0.035
_MODEL = EmbedderFingerprint("synthetic", "1", 384)


def vectors(base: Any, count: int, seed: int) -> Any:
    """Return vectors between two real ones, with noise."""
    import numpy as np

    random = np.random.default_rng(seed)
    one, other = (base[random.integers(0, len(base), count)] for _ in range(2))
    share = random.random((count, 1), np.float32) * 0.5 + 0.5
    mixed = (
        one * share
        + other * (1 - share)
        + random.standard_normal((count, base.shape[1]), np.float32) * _NOISE
    )
    return mixed / np.linalg.norm(mixed, axis=1, keepdims=True)


def batches(base: Any, count: int) -> Iterator[Any]:
    """Yield the rows of an index in batches; the same in every run."""
    for start in range(0, count, _BATCH):
        yield start, vectors(base, min(_BATCH, count - start), start + 1)


def build(base: Any, texts: list[Chunk], count: int, home: Path) -> dict[str, float]:
    """Write an index with a number of chunks and return what it took."""
    began, worked = perf_counter(), os.times()
    with EdgeStore(home).build("scale", _MODEL) as work:
        for start, rows in batches(base, count):
            work.add([numbered_chunk(texts, start + offset) for offset in range(len(rows))], rows.tolist())
        work.publish(Fingerprint(_MODEL, "synthetic", "scale", "synthetic", "", count // _PAGE, "0", ""))
    ended = os.times()
    spent = ended.user + ended.system + ended.children_user + ended.children_system
    spent -= worked.user + worked.system + worked.children_user + worked.children_system
    disk = sum(path.stat().st_blocks * 512 for path in home.rglob("*") if path.is_file())
    return {"index s": perf_counter() - began, "index CPU s": spent, "disk MB": disk / 1e6}


def numbered_chunk(texts: list[Chunk], number: int) -> Chunk:
    """Return the chunk with a number, with one of the texts."""
    text = texts[number % len(texts)]
    page, module = f"https://example.org/page-{number // _PAGE}", f"module-{number // _PAGE % _MODULES}"
    return replace(
        text,
        id=f"00000000-0000-5000-8000-{number:012d}",
        page_url=page,
        module_name=module,
        module_keys=(module,),
        chunk_index=number % _PAGE,
        total_chunks=_PAGE,
    )


def truth(base: Any, count: int, questions: Any) -> list[list[str]]:
    """Return the ids of the nearest chunks of each query, found by exact search."""
    import numpy as np

    best = np.full((len(questions), TOP), -2.0, np.float32)
    ids = np.zeros((len(questions), TOP), np.int64)
    for start, rows in batches(base, count):
        scores = np.hstack([best, questions @ rows.T.astype(np.float32)])
        places = np.hstack([ids, np.tile(np.arange(start, start + len(rows)), (len(questions), 1))])
        order = np.argsort(-scores, axis=1)[:, :TOP]
        best, ids = np.take_along_axis(scores, order, 1), np.take_along_axis(places, order, 1)
    return [[f"00000000-0000-5000-8000-{number:012d}" for number in row] for row in ids]


def search(home: Path, questions: list[Vector], known: list[list[str]]) -> dict[str, float]:
    """Measure a fresh process that is ready to search: opening, searching, memory and recall."""
    embedder = open_embedder(load_settings(), lambda _: None)
    embedder.embed_query("What does it take to answer a question?")
    before = own_memory()
    store = EdgeStore(home, close_at_exit=True)
    began = perf_counter()
    index = store.open("scale")
    opened = perf_counter()
    index.query(questions[0], TOP)
    figures = {"open ms": (opened - began) * 1e3, "first search ms": (perf_counter() - opened) * 1e3}
    pages = max(index.info.chunks // _PAGE, 1)
    asked = {
        "search": [Filters()] * len(questions),
        "module": [Filters(modules=(f"module-{number % _MODULES}",)) for number in range(len(questions))],
        "page": [
            Filters(page_url=f"https://example.org/page-{number % pages}") for number in range(len(questions))
        ],
    }
    for name, filters in asked.items():
        index.query(questions[0], TOP, filters[0])
        wall, cpu, found = [], [], 0
        for question, narrowed, ids in zip(questions, filters, known, strict=True):
            began, worked = perf_counter(), process_time()
            hits = index.query(question, TOP, narrowed)
            cpu.append((process_time() - worked) * 1e3)
            wall.append((perf_counter() - began) * 1e3)
            found += len({hit.chunk.id for hit in hits} & set(ids))
        cut = quantiles(wall, n=20)
        figures |= {
            f"{name} p50 ms": cut[9],
            f"{name} p95 ms": cut[18],
            f"{name} CPU p50 ms": quantiles(cpu, n=20)[9],
        }
        if name == "search":
            figures["recall@10"] = found / (TOP * len(questions))
        elif name == "module":
            figures["recall@10 with a module filter"] = _agreement(index, questions[:_COMPARED], filters)
    after = own_memory()
    embedder.close()
    store.close()
    return figures | {"memory with the model, MB": after, "of which the index, MB": after - before}


def _agreement(index: EdgeIndex, questions: list[Vector], filters: list[Filters]) -> float:
    """Return the recall of a usual search relative to exact search."""
    import qdrant_edge as edge

    usual, exact, found, there = index._params, edge.SearchParams(exact=True), 0, 0
    for question, narrowed in zip(questions, filters, strict=False):
        ways = [
            {point.id for point in index._shard.query(query_request(question, TOP, narrowed, None, way))}
            for way in (usual, exact)
        ]
        found, there = found + len(ways[0] & ways[1]), there + len(ways[1])
    return found / there


def own_memory() -> float:
    """Return the anonymous memory of this process in megabytes: neither files nor shared."""
    lines = Path("/proc/self/smaps_rollup").read_text("ascii").split("\n")
    return next(int(line.split()[1]) / 1e3 for line in lines if line.startswith("Anonymous:"))


def measure(count: int, base: Any, texts: list[Chunk], keep: Path | None) -> dict[str, float]:
    """Build an index, or reuse one, then search it in a fresh process."""
    with tempfile.TemporaryDirectory(prefix="recto-scale-") as scratch:
        folder = keep / str(count) if keep else Path(scratch)
        built = folder / "built.json"
        if not built.exists():
            made = build(base, texts, count, folder / "home")
            questions = vectors(base, QUESTIONS, 10**9)
            asked = {"questions": questions.tolist(), "known": truth(base, count, questions)}
            (folder / "questions.json").write_text(json.dumps(asked))
            built.write_text(json.dumps(made))
        else:
            print(f"Reusing {folder} with the figures of its build", file=sys.stderr)
        _searched(folder)  # the first opening checks every digest; later ones trust unchanged files
        _forget(folder)
        cold = _searched(folder)
        for path in _files(folder):
            digest(path)
        figures: dict[str, float] = json.loads(built.read_text()) | _searched(folder)
    return figures | {f"{name}, cold cache": cold[name] for name in ("open ms", "first search ms")}


def _searched(folder: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.scale", "--search", str(folder)]
    figures: dict[str, float] = json.loads(
        subprocess.run(command, check=True, capture_output=True, text=True).stdout
    )
    return figures


def _files(folder: Path) -> list[Path]:
    return [path for path in (folder / "home").rglob("*") if path.is_file()]


def _forget(folder: Path) -> None:
    """Drop the files from the page cache, as after a restart of the machine."""
    os.sync()
    for path in _files(folder):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def sample_book() -> tuple[Any, list[Chunk]]:
    """Return the vectors and the chunks of the sample book."""
    import numpy as np

    with connect() as retriever:
        index = retriever.open()
        texts = list(index.scroll())
        found = index.vectors([chunk.id for chunk in texts])
        return np.asarray([found[chunk.id] for chunk in texts], np.float32), texts


def table(rows: dict[int, dict[str, float]]) -> str:
    """Return the figures as a table with a column for each size, and the ratio of the last to the first."""
    names = list(next(iter(rows.values())))
    first, last = rows[min(rows)], rows[max(rows)]
    lines = [
        "| number of chunks | "
        + " | ".join(f"{size:,}".replace(",", " ") for size in rows)
        + " | last / first |",
        "|---" * (len(rows) + 2) + "|",
    ]
    for name in names:
        values = " | ".join(
            f"{figures[name]:.3f}" if figures[name] < 10 else f"{figures[name]:.0f}"
            for figures in rows.values()
        )
        lines.append(f"| {name} | {values} | {last[name] / first[name]:.2f} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="chunks, separated by commas")
    parser.add_argument("--rounds", type=int, default=0, help="1: a short run, with the smallest size only")
    parser.add_argument("--book", help="not used: the vectors are made from those of the sample book")
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="DIRECTORY",
        help="keep the indexes here, and reuse existing ones",
    )
    parser.add_argument("--search", help=argparse.SUPPRESS)
    given = parser.parse_args()
    try:
        given.sizes = sorted(map(int, given.sizes.split(",")))
    except ValueError:
        parser.error(f"--sizes: {given.sizes!r} is not a list of numbers with commas")
    if given.search:
        asked = json.loads(Path(given.search, "questions.json").read_text())
        print(json.dumps(search(Path(given.search, "home"), asked["questions"], asked["known"])))
        return
    base, texts = sample_book()
    rows: dict[int, dict[str, float]] = {}
    for size in given.sizes[: given.rounds or None]:
        print(f"{size} chunks …", file=sys.stderr)
        rows[size] = measure(size, base, texts, given.keep)
    print(table(rows))


if __name__ == "__main__":
    main()
