"""The process that builds a generation: the engine holds the interpreter while it writes, and may die of a full disk.

Reads messages from its parent on standard input (see `send`), writes one JSON line on standard output at the end. When
the parent goes away before it asked to finish, everything is dropped.
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
from typing import IO, TYPE_CHECKING, Any

from recto._util.files import sync_directory
from recto.errors import RectoError
from recto.stores.edge import engine
from recto.stores.edge.engine import search_params
from recto.stores.edge.layout import digest_files
from recto.types import Payload, SparseVector, Vector

if TYPE_CHECKING:
    import qdrant_edge

_HEADER = struct.Struct("<QQQ")  # bytes of JSON, of dense vectors and of lexical vectors
_BATCH = 200
_SAMPLES = 16
_AS_NEAR = 0.05  # of the score
_MOST_MISSED = 0.25  # of the samples: a graph that misses more is not worth searching


def send(
    pipe: IO[bytes],
    points: Sequence[tuple[str, Payload]],
    vectors: Sequence[Vector],
    lexical: Sequence[SparseVector] = (),
) -> None:
    """Hand points to the worker, with a lexical vector for each or for none; no points at all asks it to finish."""
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
    """Build a generation in an empty directory from what the parent sends; of one that failed nothing is left: the parent may be gone."""
    try:
        with engine.engine_errors("writing"):
            finished = _build(directory, dim, sys.stdin.buffer)
    except RectoError as error:
        finished = {"error": type(error).__name__, "message": error.message, "hint": error.hint}
    failed = finished is None or "error" in finished
    if finished is not None:
        try:
            _answer(finished)
        except BrokenPipeError:
            failed = True
            os.dup2(
                os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
            )  # or the interpreter would try once more at its end
    if failed:
        shutil.rmtree(directory, ignore_errors=True)
    return int(failed)


def _build(directory: Path, dim: int, pipe: IO[bytes]) -> dict[str, Any] | None:
    shard = engine.create_shard(directory, dim)
    samples: list[tuple[str, Vector]] = []
    count = 0
    while True:
        message = _receive(pipe, dim)
        if message is None:
            return None
        if not message:
            break
        for start in range(0, len(message), _BATCH):
            engine.upsert(shard, message[start : start + _BATCH])
        count += len(message)
        samples = _thinned([*samples, (message[0][0], message[0][1])])
    engine.finish_shard(shard, directory, count, dim)
    # Opening settles the files that the engine rewrites at every start, and shows that the index can be opened at all.
    shard = engine.load_shard(directory)
    found = shard.info().points_count
    fault = _fault(shard, samples, found)
    shard.close()
    if fault:
        return {"error": "IndexDamaged", "message": fault, "hint": ""}
    _sync(directory)
    return {"count": found, "files": digest_files(directory), "engine": engine.engine_version()}


def _receive(pipe: IO[bytes], dim: int) -> list[tuple[str, Vector, SparseVector | None, Payload]] | None:
    """Return the next points, none if the parent is done, None if it is gone."""
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
    """Read what `send` wrote of the lexical vectors: their sizes, then all indices, then all values."""
    sizes, indices, values = array("I"), array("I"), array("f")
    sizes.frombytes(data[: count * sizes.itemsize])
    rest = data[count * sizes.itemsize :]
    indices.frombytes(rest[: len(rest) // 2])
    values.frombytes(rest[len(rest) // 2 :])
    found: list[SparseVector | None] = []
    start = 0
    for size in sizes:
        found.append(SparseVector(tuple(indices[start : start + size]), tuple(values[start : start + size])))
        start += size
    return found


def _fault(shard: qdrant_edge.EdgeShard, samples: Sequence[tuple[str, Vector]], chunks: int) -> str:
    """Search some chunks by their own vectors; a graph may miss one now and then, a comparison with all may not.

    What a graph finds in place of a chunk is as good if it is as near: a library may have a page in hundreds of versions.
    """
    import qdrant_edge as edge

    usual, exact = search_params(chunks), edge.SearchParams(exact=True)
    missed = 0
    for id, vector in samples:
        found = _nearest(shard, vector, usual)
        if _holds(found, id):
            continue
        best = _nearest(shard, vector, exact)
        if not _holds(best, id):
            return f"chunk {id} is not found by its own vector"
        missed += not found or found[0].score < best[0].score - _AS_NEAR
    if missed > max(1, _MOST_MISSED * len(samples)):
        return f"{missed} of {len(samples)} chunks are not found by their own vectors"
    return ""


def _nearest(
    shard: qdrant_edge.EdgeShard, vector: Vector, params: qdrant_edge.SearchParams | None
) -> list[Any]:
    from recto.types import NO_FILTERS

    return shard.query(engine.request(vector, 10, NO_FILTERS, None, params))


def _holds(found: Sequence[Any], id: str) -> bool:
    """Whether a chunk was found by its own vector; copies of it may stand before it."""
    return any(str(hit.id) == id for hit in found) or bool(found and found[-1].score > 0.9999)


def _thinned(samples: list[tuple[str, Vector]]) -> list[tuple[str, Vector]]:
    """Keep a bounded number of samples, spread over all."""
    return samples[::2] if len(samples) > _SAMPLES else samples


def _sync(directory: Path) -> None:
    for path in sorted(directory.rglob("*")):
        if path.is_dir():
            sync_directory(path)
        else:
            with path.open("rb") as file:
                os.fsync(file.fileno())
    sync_directory(directory)


def _answer(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
