"""Build a new generation: send chunks to the worker process, check its result, publish it."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import recto
from recto import errors
from recto._util.files import WriterLock, disk_errors, make_private, replace_bytes
from recto.errors import IndexDamaged, RectoError, StorageError, Unreachable
from recto.protocols import Index
from recto.stores.edge.layout import LEXICON, CollectionDirectory, Manifest, digest
from recto.stores.edge.worker import send
from recto.stores.points import check_vectors, to_packed_payload
from recto.types.index import Fingerprint, IndexInfo, SparseVector
from recto.types.search import Chunk, Vector

_DISK_FULL = 64 << 20  # bytes; if a worker dies with less space left, the disk is assumed to be full


class EdgeBuild:
    """Holds the collection's lock while a worker process writes a new generation."""

    def __init__(
        self,
        collection: str,
        directory: CollectionDirectory,
        dim: int,
        wait: Callable[[str], None] | None,
        on_publish: Callable[[str], None],
        keep_generations: int = 1,
    ) -> None:
        self._collection = collection
        self._directory = directory
        self._dim = dim
        self._wait = wait
        self._on_publish = on_publish
        self._keep_generations = keep_generations
        self._draft = directory.new_draft()
        self._resources = ExitStack()
        self._worker: subprocess.Popen[bytes] | None = None
        self._worker_errors: IO[bytes] | None = None
        self._count = 0

    def __enter__(self) -> Self:
        """Take the lock."""
        with disk_errors(self._directory.path):
            make_private(self._directory.path)
            self._resources.enter_context(
                WriterLock(self._directory.lock, f"Collection '{self._collection}'", self._wait)
            )
            self._directory.remove_drafts()
            if not os.access(self._directory.path, os.W_OK):  # the engine would not name the directory
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self._directory.path))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        check_vectors(chunks, vectors, self._dim)
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
            with disk_errors(self._directory.path):
                replace_bytes(self._draft / LEXICON, [lexicon])
                result["files"][LEXICON] = digest(self._draft / LEXICON)
        if result["count"] != self._count:
            raise IndexDamaged(
                f"The new index has {result['count']} chunks, but {self._count} were written",
                hint="Two chunks may have had the same id. The old index is untouched.",
            )
        manifest = Manifest(self._count, result["engine"], fingerprint, result["files"])
        with disk_errors(self._directory.path):
            name = self._directory.add_generation(self._draft, manifest)
            self._directory.publish(name, self._keep_generations)
            self._on_publish(self._collection)
        return IndexInfo(self._collection, name, self._count, fingerprint, dim=self._dim)

    def _start_worker(self) -> subprocess.Popen[bytes]:
        self._worker_errors = self._resources.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        source = str(Path(recto.__file__).parent.parent)
        paths = os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "recto.stores.edge.worker", str(self._draft), str(self._dim)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._worker_errors,
            env={**os.environ, "PYTHONPATH": paths},
        )

    def _send(
        self, points: list[tuple[str, Any]], vectors: Sequence[Vector], lexical: Sequence[SparseVector]
    ) -> None:
        """Send points to the worker, which is started with the first of them."""
        self._worker = self._worker or self._start_worker()
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
        free = shutil.disk_usage(self._directory.path).free
        if free < _DISK_FULL:
            return StorageError(
                f"The disk is full: {free >> 20} MiB are left in {self._directory.path}",
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
