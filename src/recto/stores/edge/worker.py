"""The process that writes a generation: the engine blocks the interpreter, and may die if the disk is full.

It reads messages from its parent on standard input (see `send`) and writes one line of JSON to standard
output at the end. If its input ends early, it discards everything.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import sys
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import qdrant_edge as edge

from recto.errors import RectoError
from recto.stores.edge import engine
from recto.stores.edge.layout import digest_files, sync_files
from recto.types.index import SparseVector
from recto.types.search import NO_FILTERS, Payload, Vector

_HEADER = struct.Struct("<QQQ")  # the lengths of the JSON, of the dense and of the lexical vectors, in bytes
_BATCH = 200
_SAMPLES = 16
_SCORE_TOLERANCE = 0.05
_MAX_MISSED = 0.25  # of the samples; if HNSW misses more, its recall is too low
_SAME_SCORE = 0.9999


def send(
    pipe: IO[bytes],
    points: Sequence[tuple[str, Payload]],
    vectors: Sequence[Vector],
    lexical: Sequence[SparseVector] = (),
) -> None:
    """Send points to the worker, with a lexical vector for each or for none; no points tell it to finish."""
    numbers = array("f")
    for vector in vectors:
        numbers.extend(vector)
    sizes, indices, values = array("I", [len(sparse.indices) for sparse in lexical]), array("I"), array("f")
    for sparse in lexical:
        indices.extend(sparse.indices)
        values.extend(sparse.values)
    text, dense = json.dumps(list(points)).encode(), numbers.tobytes()
    terms = sizes.tobytes() + indices.tobytes() + values.tobytes()
    pipe.write(_HEADER.pack(len(text), len(dense), len(terms)))
    for part in (text, dense, terms):
        pipe.write(part)
    pipe.flush()


def main(directory: Path, dim: int) -> int:
    """Build a generation in a new directory; remove it after a failure, as the parent may have died."""
    os.umask(0o077)  # only this user can read the files of the engine
    try:
        with engine.engine_errors("writing"):
            result = _build(directory, dim, sys.stdin.buffer)
    except RectoError as error:
        result = {"error": type(error).__name__, "message": error.message, "hint": error.hint}
    failed = result is None or "error" in result
    if result is not None:
        try:
            sys.stdout.write(json.dumps(result) + "\n")
            sys.stdout.flush()
        except BrokenPipeError:
            failed = True
            # Otherwise the interpreter would try to flush again when it exits.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if failed:
        shutil.rmtree(directory, ignore_errors=True)
    return int(failed)


def _build(directory: Path, dim: int, pipe: IO[bytes]) -> dict[str, Any] | None:
    shard = engine.create_shard(directory, dim)
    samples: list[tuple[str, Vector]] = []
    count = mapped = 0
    while True:
        points = _receive(pipe, dim)
        if points is None:
            return None
        if not points:
            break
        for start in range(0, len(points), _BATCH):
            engine.upsert(shard, points[start : start + _BATCH])
        count += len(points)
        if mapped + engine.MAPPED_FROM <= count < engine.HNSW_FROM:
            shard, mapped = engine.map_segment(shard, directory, dim), count
        samples.append((points[0][0], points[0][1]))
        if len(samples) > _SAMPLES:
            samples = samples[::2]
    engine.finish_shard(shard, directory, count, dim)
    # Loading checks the index, and changes the files that the engine rewrites at every start.
    shard = engine.load_shard(directory)
    count = shard.info().points_count
    fault = find_fault(shard, samples, count)
    shard.close()
    if fault:
        return {"error": "IndexDamaged", "message": fault, "hint": ""}
    sync_files(directory)
    return {"count": count, "files": digest_files(directory), "engine": engine.engine_version()}


def _receive(pipe: IO[bytes], dim: int) -> list[tuple[str, Vector, SparseVector | None, Payload]] | None:
    """Return the next points; an empty list if the parent is done, None if it has died."""
    header = pipe.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None
    lengths = _HEADER.unpack(header)
    parts = [pipe.read(length) for length in lengths]
    if any(len(part) < length for part, length in zip(parts, lengths, strict=True)):
        return None
    points = json.loads(parts[0])
    numbers = array("f")
    numbers.frombytes(parts[1])
    lexical = _sparse_vectors(parts[2], len(points)) if parts[2] else [None] * len(points)
    return [
        (id, numbers[index * dim : (index + 1) * dim].tolist(), lexical[index], payload)
        for index, (id, payload) in enumerate(points)
    ]


def _sparse_vectors(data: bytes, count: int) -> list[SparseVector | None]:
    """Read the lexical vectors: their sizes, then all indices, then all values."""
    sizes, indices, values = array("I"), array("I"), array("f")
    sizes.frombytes(data[: count * sizes.itemsize])
    rest = data[count * sizes.itemsize :]
    indices.frombytes(rest[: len(rest) // 2])
    values.frombytes(rest[len(rest) // 2 :])
    vectors: list[SparseVector | None] = []
    start = 0
    for size in sizes:
        vectors.append(
            SparseVector(tuple(indices[start : start + size]), tuple(values[start : start + size]))
        )
        start += size
    return vectors


def find_fault(shard: edge.EdgeShard, samples: Sequence[tuple[str, Vector]], chunks: int) -> str:
    """Search for some chunks by their own vectors, and return what is wrong.

    Exact search must find every chunk. HNSW may miss a few, and may find another chunk that is about as near:
    a book can have many versions of a page.
    """

    def search(vector: Vector, params: edge.SearchParams | None) -> list[Any]:
        return shard.query(engine.query_request(vector, 10, NO_FILTERS, params=params))

    missed = 0
    for id, vector in samples:
        nearest = search(vector, engine.search_params(chunks))
        if _contains(nearest, id):
            continue
        exact = search(vector, edge.SearchParams(exact=True))
        if not _contains(exact, id):
            return f"chunk {id} is not found by its own vector"
        missed += not nearest or nearest[0].score < exact[0].score - _SCORE_TOLERANCE
    if missed > max(1, _MAX_MISSED * len(samples)):
        return f"{missed} of {len(samples)} chunks are not found by their own vectors"
    return ""


def _contains(hits: Sequence[Any], id: str) -> bool:
    """Return whether the hits contain a chunk, or nothing but copies of it."""
    return any(str(hit.id) == id for hit in hits) or bool(hits and hits[-1].score > _SAME_SCORE)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
