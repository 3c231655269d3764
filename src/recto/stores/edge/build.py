"""The writer's side of a new generation: feed the worker, check what it made, publish it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import recto
from recto import errors
from recto._util.files import replace_text, sync_directory
from recto.errors import IndexDamaged, RectoError, StorageError, Unreachable
from recto.protocols import Index
from recto.stores.edge.layout import (
    LEXICON,
    CollectionDirectory,
    Manifest,
    digest,
    disk_errors,
    is_whole,
    note_seen,
)
from recto.stores.edge.worker import send
from recto.stores.lock import WriterLock
from recto.stores.payload import check_vectors, to_payload
from recto.types import Chunk, Fingerprint, IndexInfo, SparseVector, Vector

_LITTLE_SPACE = 64 << 20  # bytes; less than this left where a worker died is taken for the reason


class EdgeBuild:
    """Holds the collection's lock from beginning to end; the worker writes, nobody reads before `publish`."""

    def __init__(
        self,
        collection: str,
        directory: CollectionDirectory,
        dim: int,
        wait: Callable[[str], None] | None,
        on_publish: Callable[[str], None],
    ) -> None:
        self._collection = collection
        self._directory = directory
        self._dim = dim
        self._wait = wait
        self._on_publish = on_publish
        self._draft = directory.path / f"building-{os.getpid()}-{os.urandom(4).hex()}"
        self._held = ExitStack()
        self._worker: subprocess.Popen[bytes] | None = None
        self._count = 0
        self._complaints: IO[bytes] | None = None

    def __enter__(self) -> Self:
        """Take the lock."""
        with disk_errors(self._directory.path):
            self._directory.path.mkdir(parents=True, exist_ok=True)
            self._held.enter_context(
                WriterLock(self._directory.lock, f"Collection '{self._collection}'", self._wait)
            )
            self._directory.remove_drafts()
        return self

    def _started(self) -> subprocess.Popen[bytes]:
        """Return the worker; it is started when there is something to write."""
        if self._worker is not None:
            return self._worker
        self._complaints = self._held.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - closed with the build
        source = str(Path(recto.__file__).parent.parent)
        paths = os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))
        self._worker = subprocess.Popen(
            [sys.executable, "-P", "-m", "recto.stores.edge.worker", str(self._draft), str(self._dim)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            env={**os.environ, "PYTHONPATH": paths},
        )
        return self._worker

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Drop what was not published and let go of the lock."""
        with self._held:
            self._stop()
            shutil.rmtree(self._draft, ignore_errors=True)

    def add(
        self,
        chunks: Sequence[Chunk],
        vectors: Sequence[Vector],
        lexical: Sequence[SparseVector] | None = None,
    ) -> None:
        """Hand chunks to the worker."""
        check_vectors(chunks, vectors, self._dim)
        if not chunks:
            return
        self._send([(chunk.id, to_payload(chunk)) for chunk in chunks], vectors, lexical)
        self._count += len(chunks)

    def keep(
        self, chunks: Sequence[Chunk], current: Index, lexical: Sequence[SparseVector] | None = None
    ) -> None:
        """Copy chunks from the generation before: a generation is always whole."""
        vectors = current.vectors([chunk.id for chunk in chunks])
        self.add(chunks, [vectors[chunk.id] for chunk in chunks], lexical)

    def publish(self, fingerprint: Fingerprint, lexicon: bytes = b"") -> IndexInfo:
        """Let the worker finish, check its result and make it what readers see."""
        self._send([], [])
        result = self._result()
        if lexicon:
            with disk_errors(self._directory.path):
                result["files"][LEXICON] = write_synced(self._draft / LEXICON, lexicon)
        if result["count"] != self._count:
            raise IndexDamaged(
                f"The new index holds {result['count']} chunks, {self._count} were written",
                hint="Two chunks may have had the same id. The old index is untouched.",
            )
        manifest = Manifest(self._count, result["engine"], fingerprint, result["files"])
        with disk_errors(self._directory.path):
            name = self._swap(manifest)
            self._on_publish(self._collection)
        return IndexInfo(self._collection, name, self._count, fingerprint, dim=self._dim)

    def _swap(self, manifest: Manifest) -> str:
        """Give the draft its name and its manifest, point readers to it, and keep the last whole one before it for a rollback."""
        directory = self._directory
        name = directory.next_generation()
        before = directory.pointed() if directory.exists() else ""
        os.rename(self._draft, directory.generation(name))
        replace_text(directory.manifest(name), manifest.to_text())
        note_seen(directory.generation(name), manifest, directory.seen(name))
        directory.set_current(name)
        older = [
            before,
            *(generation for generation in directory.generations() if generation not in (before, name)),
        ]
        directory.prune(
            {name, *islice((generation for generation in older if is_whole(directory, generation)), 1)}
        )
        return name

    def _send(
        self,
        points: list[tuple[str, Any]],
        vectors: Sequence[Vector],
        lexical: Sequence[SparseVector] | None = None,
    ) -> None:
        pipe = _pipe(self._started())
        try:
            send(pipe, points, vectors, lexical or ())
        except BrokenPipeError:
            self._result()
            raise

    def _result(self) -> dict[str, Any]:
        """Read the worker's last word, or find out why there is none."""
        worker = self._worker
        if worker is None or worker.stdout is None:
            raise RuntimeError("the build has not begun")
        text = worker.stdout.read()
        self._stop()
        try:
            answer: dict[str, Any] = json.loads(text.strip().rpartition(b"\n")[2])
        except ValueError:
            raise self._died(worker.returncode) from None
        if "error" in answer:
            kind: type[RectoError] = getattr(errors, answer["error"])
            raise kind(
                answer["message"], hint=answer["hint"] or "Nothing was published; the old index is untouched."
            )
        return answer

    def _died(self, code: int) -> RectoError:
        free = shutil.disk_usage(self._directory.path).free
        if free < _LITTLE_SPACE:
            return StorageError(
                f"The disk is full: {free >> 20} MiB are left in {self._directory.path}",
                hint="Free some space, or set RECTO_HOME to another disk. The old index is untouched.",
            )
        last = ""
        if self._complaints is not None:
            self._complaints.seek(0)
            last = self._complaints.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
        return Unreachable(
            f"The embedded engine's process ended unexpectedly (exit code {code})"
            + (f": {last[:300]}" if last else ""),
            hint="Try again; nothing was published and the old index is untouched.",
        )

    def _stop(self) -> None:
        """End the worker; an open pipe that ends early tells it to drop everything."""
        worker = self._worker
        if worker is None:
            return
        for pipe in (worker.stdin, worker.stdout):
            with suppress(OSError):
                if pipe:
                    pipe.close()
        worker.wait()


def write_synced(path: Path, content: bytes) -> str:
    """Write a file to disk for good and return its digest."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    sync_directory(path.parent)
    return digest(path)


def _pipe(worker: subprocess.Popen[bytes] | None) -> IO[bytes]:
    if worker is None or worker.stdin is None:
        raise RuntimeError("the build has not begun")
    return worker.stdin
