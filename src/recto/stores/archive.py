"""Archives of `recto backup`: a header in JSON, the blocks of each file that are not zero, a checksum.

An archive may come from someone else: everything in it is checked before it is used. Nothing is compressed.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from recto import __version__
from recto._util.files import disk_advice, replace_bytes
from recto.errors import FormatMismatch, IndexDamaged, InvalidArgument, StorageError, other_format
from recto.settings import check_collection_name

FORMAT = 1
_MAGIC = b"recto-archive-"
_BLOCK = struct.Struct("<QI")  # offset in the file, number of bytes
_MAX_BLOCK = 1 << 20  # bytes
_MAX_HEADER = 32 << 20  # bytes; it contains the manifest
_MAX_SIZE = 1 << 50  # bytes of a file
_MAX_FILES = 10_000
_CHECKSUM = hashlib.sha256().digest_size
_READ = 1 << 20  # bytes
_WANTED = "Pass a file that `recto backup` wrote."
_UNCHANGED = "Nothing was changed. Use another backup."

Block = tuple[int, bytes]
"""An offset in a file, and the bytes that begin there."""


@dataclass(frozen=True, slots=True)
class Header:
    """What an archive contains; `files` are sizes by path, `content` depends on `kind`."""

    kind: str
    collection: str
    generation: str
    aliases: tuple[str, ...]
    files: Mapping[str, int]
    content: Mapping[str, Any]

    def to_line(self) -> bytes:
        """Return the header as a line of JSON."""
        body = {
            "kind": self.kind,
            "collection": self.collection,
            "generation": self.generation,
            "aliases": list(self.aliases),
            "recto_version": __version__,
            "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "content": self.content,
            "files": self.files,
        }
        return json.dumps(body).encode() + b"\n"


def write_archive(path: Path, header: Header, files: Iterable[Iterable[Block]]) -> int:
    """Write an archive atomically, readable by this user only, and return its size."""
    try:
        replace_bytes(path, _pack(header, files))
        return path.stat().st_size
    except OSError as error:
        raise StorageError(
            f"{path} cannot be written: {error.strerror or error}", hint=f"{disk_advice(error, path.parent)}."
        ) from error


def _pack(header: Header, files: Iterable[Iterable[Block]]) -> Iterator[bytes]:
    checksum = hashlib.sha256()

    def parts() -> Iterator[bytes]:
        yield _MAGIC + f"{FORMAT}\n".encode()
        yield header.to_line()
        for size, blocks in zip(header.files.values(), files, strict=True):
            for offset, block in blocks:
                yield _BLOCK.pack(offset, len(block))
                yield block
            yield _BLOCK.pack(size, 0)

    for part in parts():
        checksum.update(part)
        yield part
    yield checksum.digest()


class Archive:
    """An open archive whose checksum is correct; its files can be read in their order."""

    def __init__(self, path: Path, file: IO[bytes], header: Header) -> None:
        self.path = path
        self.header = header
        self.size = os.fstat(file.fileno()).st_size
        self._file = file
        self._start = file.tell()

    def files(self) -> Iterator[tuple[str, int, Iterator[Block]]]:
        """Yield the path, the size and the blocks of each file; read all blocks before the next file."""
        self._file.seek(self._start)
        for name, size in self.header.files.items():
            yield name, size, self._blocks(size)

    def damaged(self, reason: str) -> IndexDamaged:
        """Return the error for an archive whose content cannot be used."""
        return IndexDamaged(f"{self.path} is damaged: {reason}", hint=_UNCHANGED)

    def _blocks(self, size: int) -> Iterator[Block]:
        end = 0
        while True:
            place = self._file.read(_BLOCK.size)
            offset, length = _BLOCK.unpack(place) if len(place) == _BLOCK.size else (0, _MAX_BLOCK + 1)
            if length > _MAX_BLOCK or offset < end or offset + length > size:
                raise self.damaged("a block is not inside its file")
            if not length:
                return
            block = self._file.read(length)
            if len(block) < length:
                raise self.damaged("it ends too early")
            end = offset + length
            yield offset, block


@contextmanager
def open_archive(path: Path, kind: str) -> Iterator[Archive]:
    """Open an archive of a kind and verify its checksum; raise an error if any of it cannot be used."""
    try:
        if not path.is_file():  # opening a pipe would wait for a writer
            raise InvalidArgument(f"{path} is not a file", hint=_WANTED)
        opened = path.open("rb")
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be read: {error.strerror}", hint=_WANTED) from error
    with opened as file:
        header = _read_header(path, file)
        if header.kind != kind:
            raise _other_kind(path, header.kind)
        yield Archive(path, file, header)


def _read_header(path: Path, file: IO[bytes]) -> Header:
    size = os.fstat(file.fileno()).st_size
    first = file.readline(64)
    version = first.removeprefix(_MAGIC).strip()
    if not first.startswith(_MAGIC) or not version.isdigit():
        raise InvalidArgument(f"{path} is not an archive of Recto", hint=_WANTED)
    if int(version) != FORMAT:
        hint = "Restore it with the version that made it, and back it up again with this one."
        raise other_format(f"The archive {path}", int(version), FORMAT, hint)
    start = file.tell()
    if _checksum(file, size - _CHECKSUM) != file.read(_CHECKSUM):
        raise IndexDamaged(f"{path} is damaged or incomplete: its checksum is wrong", hint=_UNCHANGED)
    file.seek(start)
    try:
        return _parse_header(file.readline(_MAX_HEADER))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise IndexDamaged(
            f"{path} is damaged: its header cannot be used ({error})", hint=_UNCHANGED
        ) from error


def _checksum(file: IO[bytes], end: int) -> bytes:
    """Digest a file up to a position."""
    checksum = hashlib.sha256()
    file.seek(0)
    while end > 0 and (part := file.read(min(end, _READ))):
        checksum.update(part)
        end -= len(part)
    return checksum.digest()


def _parse_header(line: bytes) -> Header:
    body = json.loads(line)
    files, aliases, content = body["files"], body["aliases"], body["content"]
    if not isinstance(files, dict) or not isinstance(aliases, list) or not isinstance(content, dict):
        raise TypeError("a field has the wrong type")
    for name in (body["collection"], *aliases):
        check_collection_name(name, "a name")
    if len(files) > _MAX_FILES:
        raise ValueError("it has too many files")
    for name, size in files.items():
        _check_path(name)
        if type(size) is not int or not 0 <= size <= _MAX_SIZE:
            raise ValueError("a file has an impossible size")
    return Header(
        str(body["kind"]), body["collection"], str(body["generation"]), tuple(aliases), files, content
    )


def _check_path(name: str) -> None:
    """Raise `ValueError` unless a path stays inside the directory that it is restored to, on every system."""
    parts = name.split("/")
    if any(part in ("", ".", "..") or len(part) > 255 for part in parts):
        raise ValueError("a path leaves its directory")
    if not name.isprintable() or set(name) & set('\\:*?"<>|'):
        raise ValueError("a path has forbidden characters")


def already_exists(collection: str) -> InvalidArgument:
    """Return the error for restoring over a collection."""
    return InvalidArgument(
        f"Collection '{collection}' exists already",
        hint="Pass --replace to publish the archive as its new generation, or --collection NAME.",
    )


def _other_kind(path: Path, kind: str) -> FormatMismatch | InvalidArgument:
    if kind == "embedded":
        return InvalidArgument(
            f"{path} contains an embedded index, but the store is not the embedded one",
            hint="Restore it with RECTO_STORE=edge, then copy it to the server with `recto promote`.",
        )
    if kind == "server":
        return InvalidArgument(
            f"{path} contains a snapshot of a Qdrant server, but the store is not a Qdrant server",
            hint="Set QDRANT_URL, and RECTO_STORE=server if the profile is not the cloud one.",
        )
    return FormatMismatch(
        f"{path} contains an index of an unknown kind",
        hint="Install a newer version of Recto. Nothing was changed.",
    )
