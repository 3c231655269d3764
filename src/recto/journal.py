"""Vectors that were paid for are kept: every finished batch is written down at once, until the index is published."""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from recto.types import EmbedderFingerprint, Vector

_HEADER = "recto-journal-1"


class Journal:
    """Vectors by the hash of their text, for one embedder; a file that ends in the middle of a batch is read up to there."""

    def __init__(self, path: Path, embedder: EmbedderFingerprint) -> None:
        self._path = path
        self._dim = embedder.dim
        self._header = json.dumps([_HEADER, embedder.model, embedder.revision, embedder.variant, embedder.dim])
        self._known: dict[str, bytes] = {}
        self._good = 0

    def load(self) -> None:
        """Read what an interrupted run left; another embedder's vectors are of no use."""
        with suppress(FileNotFoundError), self._path.open("rb") as file:
            if file.readline().decode("utf-8", "replace").strip() != self._header:
                self._path.unlink()
                return
            self._good = file.tell()
            size = self._dim * 4
            while (line := file.readline()).endswith(b"\n"):
                hashes = line.decode("ascii", "replace").split()
                data = file.read(size * len(hashes))
                if len(data) < size * len(hashes):
                    break
                self._known.update((key, data[index * size : (index + 1) * size]) for index, key in enumerate(hashes))
                self._good = file.tell()

    def get(self, content_hash: str) -> Vector | None:
        """Return a vector that is known."""
        data = self._known.get(content_hash)
        if data is None:
            return None
        numbers = array("f")
        numbers.frombytes(data)
        return numbers.tolist()

    def add(self, hashes: Sequence[str], vectors: Sequence[Vector]) -> None:
        """Write a batch down."""
        numbers = array("f")
        for vector in vectors:
            numbers.extend(vector)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("r+b" if self._good else "wb") as file:
            if not self._good:
                file.write(self._header.encode() + b"\n")
            else:
                file.seek(self._good)
                file.truncate()
            file.write(" ".join(hashes).encode("ascii") + b"\n")
            file.write(numbers.tobytes())
            file.flush()
            self._good = file.tell()
        size = self._dim * 4
        data = numbers.tobytes()
        self._known.update((key, data[index * size : (index + 1) * size]) for index, key in enumerate(hashes))

    def clear(self) -> None:
        """Forget everything: it is in the index now."""
        self._known.clear()
        self._good = 0
        self._path.unlink(missing_ok=True)
