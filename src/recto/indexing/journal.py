"""The journal: keep the vectors of every finished batch until the index is published."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from recto._util.files import disk_errors, make_private
from recto.types.index import EmbedderFingerprint
from recto.types.search import Vector

_FORMAT = "recto-journal-1"


def journal_path(directory: Path, collection: str) -> Path:
    """Return the file of a collection's journal."""
    return directory / f"{collection}.vectors"


class Journal:
    """Vectors by the hash of their text, for one embedder; a damaged file is read up to the damage.

    A batch is a line with a digest and the hashes of the texts, then the vectors. Only their
    offsets are in memory.
    """

    def __init__(self, path: Path, embedder: EmbedderFingerprint) -> None:
        self._path = path
        self._embedder = embedder
        self._size = embedder.dim * 4
        self._offsets: dict[bytes, int] = {}
        self._end = 0

    def load(self) -> None:
        """Read the complete batches; ignore a file of another embedder, or of another version of Recto."""
        with disk_errors(self._path), suppress(FileNotFoundError), self._path.open("rb") as file:
            if not self._is_readable(file.readline()):
                return
            self._end = file.tell()
            while (line := file.readline()).endswith(b"\n"):
                digest, _, hashes = line.strip().partition(b" ")
                names = hashes.decode("ascii", "replace").split()
                data = file.read(self._size * len(names))
                if digest != _digest(hashes, data):
                    break
                self._note(names, self._end + len(line))
                self._end = file.tell()

    def __len__(self) -> int:
        """Return the number of texts whose vectors are known."""
        return len(self._offsets)

    def __contains__(self, content_hash: str) -> bool:
        """Whether the vector of a text is known."""
        return _key(content_hash) in self._offsets

    def vectors(self, hashes: Sequence[str]) -> dict[str, Vector]:
        """Return the vectors of the texts that are known."""
        vectors: dict[str, Vector] = {}
        if offsets := sorted((self._offsets[_key(name)], name) for name in set(hashes) if name in self):
            with self._path.open("rb") as file:
                for offset, name in offsets:
                    file.seek(offset)
                    numbers = array("f")
                    numbers.frombytes(file.read(self._size))
                    vectors[name] = numbers.tolist()
        return vectors

    def add(self, hashes: Sequence[str], vectors: Sequence[Vector]) -> None:
        """Append a batch, over anything damaged."""
        names = " ".join(hashes).encode("ascii")
        data = b"".join(array("f", vector).tobytes() for vector in vectors)
        with disk_errors(self._path):
            make_private(self._path.parent)
            with self._path.open("r+b" if self._end else "wb") as file:
                file.truncate(self._end)
                file.seek(self._end)
                if not self._end:
                    mine = self._embedder
                    header = [_FORMAT, mine.model, mine.revision, mine.variant, mine.dim]
                    file.write(json.dumps(header).encode() + b"\n")
                file.write(_digest(names, data) + b" " + names + b"\n")
                self._note(hashes, file.tell())
                file.write(data)
                file.flush()
                self._end = file.tell()

    def clear(self) -> None:
        """Delete the journal: its vectors are in the index now."""
        self._offsets.clear()
        self._end = 0
        with disk_errors(self._path):
            self._path.unlink(missing_ok=True)

    def _is_readable(self, header: bytes) -> bool:
        """Return whether the vectors of a file are compatible with this embedder."""
        try:
            format, model, revision, variant, dim = json.loads(header)
            written_by = EmbedderFingerprint(str(model), str(revision), int(dim), str(variant))
        except (ValueError, TypeError):
            return False
        return bool(format == _FORMAT) and written_by.is_compatible(self._embedder)

    def _note(self, hashes: Sequence[str], start: int) -> None:
        self._offsets.update((_key(name), start + index * self._size) for index, name in enumerate(hashes))


def _key(content_hash: str) -> bytes:
    """Return a hash as bytes, which take half the memory of its text."""
    return bytes.fromhex(content_hash)


def _digest(names: bytes, data: bytes) -> bytes:
    return hashlib.sha256(names + b"\n" + data).hexdigest().encode("ascii")
