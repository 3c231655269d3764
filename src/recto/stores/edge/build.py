"""Build a new generation: send chunks to a worker process, check its result, publish it.

Another process writes the generation, because the engine blocks the interpreter, and may die if the disk is
full. It reads points from its parent on standard input (see `send`) and writes one line of JSON to standard
output at the end. If its input ends early, it discards everything.
"""

from __future__ import annotations

import errno
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from array import array
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Self

import qdrant_edge as edge

import recto
from recto import errors
from recto._util.files import WriterLock, disk_errors, make_private, replace_bytes
from recto.errors import IndexDamaged, RectoError, StorageError, Unreachable
from recto.protocols import Index
from recto.stores import check_vectors, to_packed_payload
from recto.stores.edge import engine
from recto.stores.edge.layout import LEXICON, CollectionDirectory, Manifest, digest, digest_files, sync_files
from recto.types.index import Fingerprint, IndexInfo, SparseVector
from recto.types.search import Chunk, Payload, Vector

_DISK_FULL = 64 << 20  # bytes; if a worker dies with less space left, the disk is assumed to be full
_BATCH = 200  # points of one update of the engine; larger ones take more memory and are not faster
_SAMPLES = 16  # chunks that are searched for by their own vectors
_SAME_SCORE = 0.9999  # cosine similarity of copies
_SCORE_TOLERANCE = 0.05  # what HNSW finds counts as near enough if its score is this close to the best
_MAX_MISSED = 0.25  # of the samples; if HNSW misses more, its recall is too low


@dataclass
class EdgeBuild:
    """Holds the collection's lock while a worker process writes a new generation."""

    collection: str
    directory: CollectionDirectory
    dim: int
    wait: Callable[[str], None] | None
    on_publish: Callable[[str], None]
    keep_generations: int = 1
    _resources: ExitStack = field(default_factory=ExitStack)
    _worker: subprocess.Popen[bytes] | None = None
    _worker_errors: IO[bytes] | None = None
    _count: int = 0

    def __post_init__(self) -> None:
        """Choose the directory of the new generation."""
        self._draft = self.directory.new_draft()

    def __enter__(self) -> Self:
        """Take the lock."""
        with disk_errors(self.directory.path):
            make_private(self.directory.path)
            self._resources.enter_context(
                WriterLock(self.directory.lock, f"Collection '{self.collection}'", self.wait)
            )
            self.directory.remove_drafts()
            if not os.access(self.directory.path, os.W_OK):  # the engine would not name the directory
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self.directory.path))
        return self

    def __exit__(self, *_: object) -> None:
        """Discard what was not published, and release the lock."""
        with self._resources:
            self._stop()
            shutil.rmtree(self._draft, ignore_errors=True)

    def add(
        self,
        chunks: Sequence[Chunk],
        vectors: Sequence[Vector],
        lexical: Sequence[SparseVector] | None = None,
    ) -> None:
        """Send chunks to the worker."""
        check_vectors(chunks, vectors, self.dim)
        if chunks:
            self._send([(chunk.id, to_packed_payload(chunk)) for chunk in chunks], vectors, lexical or ())
            self._count += len(chunks)

    def keep(
        self, chunks: Sequence[Chunk], current: Index, lexical: Sequence[SparseVector] | None = None
    ) -> None:
        """Copy chunks from the current generation."""
        vectors = current.vectors([chunk.id for chunk in chunks])
        self.add(chunks, [vectors[chunk.id] for chunk in chunks], lexical)

    def publish(self, fingerprint: Fingerprint, lexicon: bytes = b"") -> IndexInfo:
        """Let the worker finish, check its result, and make it the current generation."""
        self._send([], [], [])
        result = self._result()
        if lexicon:
            with disk_errors(self.directory.path):
                replace_bytes(self._draft / LEXICON, [lexicon])
                result["files"][LEXICON] = digest(self._draft / LEXICON)
        if result["count"] != self._count:
            raise IndexDamaged(
                f"The new index has {result['count']} chunks, but {self._count} were written",
                hint="Two chunks may have had the same id. The old index is untouched.",
            )
        manifest = Manifest(self._count, result["engine"], fingerprint, result["files"])
        with disk_errors(self.directory.path):
            name = self.directory.add_generation(self._draft, manifest)
            self.directory.publish(name, self.keep_generations)
            self.on_publish(self.collection)
        return IndexInfo(self.collection, name, self._count, fingerprint, dim=self.dim)

    def _send(
        self, points: list[tuple[str, Any]], vectors: Sequence[Vector], lexical: Sequence[SparseVector]
    ) -> None:
        """Send points to the worker, which is started with the first of them."""
        if self._worker is None:
            self._worker_errors = self._resources.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
            self._worker = start_worker(self._draft, self.dim, self._worker_errors)
        if self._worker.stdin is None:
            raise RuntimeError("the worker has no input")
        try:
            send(self._worker.stdin, points, vectors, lexical)
        except BrokenPipeError:
            self._result()
            raise

    def _result(self) -> dict[str, Any]:
        """Return the worker's result, or raise the error that it reports."""
        worker = self._worker
        if worker is None or worker.stdout is None:
            raise RuntimeError("the worker has no output")
        text = worker.stdout.read()
        self._stop()
        try:
            result: dict[str, Any] = json.loads(text.strip().rpartition(b"\n")[2])
        except ValueError:
            raise self._worker_died(worker.returncode) from None
        if "error" in result:
            kind: type[RectoError] = getattr(errors, result["error"])
            raise kind(
                result["message"], hint=result["hint"] or "Nothing was published; the old index is untouched."
            )
        return result

    def _worker_died(self, code: int) -> RectoError:
        free = shutil.disk_usage(self.directory.path).free
        if free < _DISK_FULL:
            return StorageError(
                f"The disk is full: {free >> 20} MiB are left in {self.directory.path}",
                hint="Free some space, or set RECTO_HOME to another disk. The old index is untouched.",
            )
        last_line = ""
        if self._worker_errors is not None:
            self._worker_errors.seek(0)
            last_line = self._worker_errors.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
        return Unreachable(
            f"The embedded engine's process ended unexpectedly (exit code {code})"
            + (f": {last_line[:300]}" if last_line else ""),
            hint="Try again; nothing was published and the old index is untouched.",
        )

    def _stop(self) -> None:
        """Stop the worker: if its input ends early, it discards everything."""
        worker = self._worker
        if worker is None:
            return
        for pipe in (worker.stdin, worker.stdout):
            with suppress(OSError):
                if pipe:
                    pipe.close()
        worker.wait()


def start_worker(directory: Path, dim: int, errors: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start a process that builds a generation in a new directory."""
    source = str(Path(recto.__file__).parent.parent)
    paths = os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "recto.stores.edge.build", str(directory), str(dim)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        env={**os.environ, "PYTHONPATH": paths},
    )


def send(
    pipe: IO[bytes],
    points: Sequence[tuple[str, Payload]],
    vectors: Sequence[Vector],
    lexical: Sequence[SparseVector] = (),
) -> None:
    """Send points to the worker, with a lexical vector for each or for none; no points tell it to finish."""
    dense = [array("f", vector) for vector in vectors]  # half the bytes, and what the engine stores
    sparse: Sequence[SparseVector | None] = lexical or [None] * len(points)
    pickle.dump(list(zip(points, dense, sparse, strict=True)), pipe)
    pipe.flush()


def run_worker(directory: Path, dim: int, source: IO[bytes], target: IO[bytes]) -> bool:
    """Build a generation in a new directory; remove it after a failure, as the parent may have died."""
    try:
        with engine.engine_errors("writing"):
            result = _build(directory, dim, source)
    except RectoError as error:
        result = {"error": type(error).__name__, "message": error.message, "hint": error.hint}
    done = result is not None and "error" not in result
    if result is not None:
        try:
            target.write(json.dumps(result).encode() + b"\n")
        except BrokenPipeError:
            done = False
    if not done:
        shutil.rmtree(directory, ignore_errors=True)
    return done


def _build(directory: Path, dim: int, pipe: IO[bytes]) -> dict[str, Any] | None:
    shard = engine.create_shard(directory, dim)
    samples: list[tuple[str, Vector]] = []
    count = mapped = 0
    while True:
        points = _receive(pipe)
        if points is None:
            return None
        if not points:
            break
        if not count and any(payload.get("version") or payload.get("locales") for *_, payload in points):
            engine.index_editions(shard)
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


def _receive(pipe: IO[bytes]) -> list[tuple[str, Vector, SparseVector | None, Payload]] | None:
    """Return the next points; an empty list if the parent is done, None if it has died."""
    try:
        rows = pickle.load(pipe)  # noqa: S301 - from the parent process
    except (EOFError, pickle.UnpicklingError):
        return None
    return [(id, dense.tolist(), lexical, payload) for (id, payload), dense, lexical in rows]


def find_fault(shard: edge.EdgeShard, samples: Sequence[tuple[str, Vector]], chunks: int) -> str:
    """Search for some chunks by their own vectors, and return what is wrong.

    Exact search must find every chunk. HNSW may miss a few, and may find another chunk that is about as near:
    a book can have many versions of a page.
    """

    def search(vector: Vector, params: edge.SearchParams | None) -> list[Any]:
        return shard.query(engine.query_request(vector, 10, params=params))

    def contains(hits: Sequence[Any], id: str) -> bool:
        # A book can have many copies of a chunk: then the ten nearest may all be others.
        return any(str(hit.id) == id for hit in hits) or bool(hits and hits[-1].score > _SAME_SCORE)

    missed = 0
    for id, vector in samples:
        nearest = search(vector, engine.search_params(chunks))
        if contains(nearest, id):
            continue
        exact = search(vector, edge.SearchParams(exact=True))
        if not contains(exact, id):
            return f"chunk {id} is not found by its own vector"
        missed += not nearest or nearest[0].score < exact[0].score - _SCORE_TOLERANCE
    if missed > max(1, _MAX_MISSED * len(samples)):
        return f"{missed} of {len(samples)} chunks are not found by their own vectors"
    return ""


if __name__ == "__main__":
    os.umask(0o077)  # only this user can read the files of the engine
    with os.fdopen(1, "wb", buffering=0) as output:  # without a buffer that is flushed again at the end
        sys.exit(not run_worker(Path(sys.argv[1]), int(sys.argv[2]), sys.stdin.buffer, output))
