"""Archives of `recto backup`: ZIP files with a header, the files of an index, and a checksum of everything.

An archive may come from someone else: everything in it is checked before it is used. Recto 0.2 wrote another
format, which can still be restored.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile

from recto import __version__
from recto._util.files import not_written, replacing
from recto.errors import FormatMismatch, IndexDamaged, InvalidArgument, other_format
from recto.settings import check_collection_name

ARCHIVE_FORMAT = 2
_MAGIC = b"PK\3\4"
_HEADER_FILE = "recto.json"  # the first file of the archive, which tells it from other ZIP files
_FOLDER = "files/"
# The comment at the end of the ZIP file is a SHA-256 of all bytes before it, and of this in its place.
_NO_CHECKSUM = b"0" * 64
_BLOCK = 1 << 16  # bytes; the digests of an embedded index need blocks of this size
_READ = 1 << 20  # bytes
_MAX_HEADER = 32 << 20  # bytes; it contains the manifest
_MAX_SIZE = 1 << 50  # bytes of a file
_MAX_FILES = 10_000
_MAX_PATH = 1000  # characters
_NEEDED = "Pass a file that `recto backup` wrote."
_UNCHANGED = "Nothing was changed. Use another backup."
# What reading a ZIP file raises if it is damaged, encrypted, or compressed in an unknown way.
_UNREADABLE = (BadZipFile, zlib.error, EOFError, KeyError, NotImplementedError, RuntimeError, ValueError)

FileBlock = tuple[int, bytes]
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

    def to_json(self) -> str:
        """Return the header as JSON."""
        body = {
            "format": ARCHIVE_FORMAT,
            "kind": self.kind,
            "collection": self.collection,
            "generation": self.generation,
            "aliases": list(self.aliases),
            "recto_version": __version__,
            "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "content": self.content,
            "files": self.files,
        }
        return json.dumps(body)


class _ChecksumStream:
    """Computes the checksum of what is written; it has no `tell`, so that `ZipFile` never goes back."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.checksum = hashlib.sha256()

    def write(self, data: bytes) -> int:
        """Write the next part of the file."""
        self.checksum.update(data)
        return self._file.write(data)

    def flush(self) -> None:
        """Do nothing: the file is flushed when it is complete."""

    def close(self) -> None:
        """Do nothing: the file is closed by its owner."""


def write_archive(path: Path, header: Header, files: Iterable[Iterable[bytes]]) -> int:
    """Write an archive atomically, readable by this user only, and return its size.

    Everything is compressed: the files of an index are mostly zeros.
    """
    try:
        with replacing(path) as file:
            stream = _ChecksumStream(file)
            with ZipFile(stream, "w", ZIP_DEFLATED, compresslevel=1) as archive:
                archive.writestr(_HEADER_FILE, header.to_json())
                for name, blocks in zip(header.files, files, strict=True):
                    with archive.open(_FOLDER + name, "w", force_zip64=True) as member:
                        for block in blocks:
                            member.write(block)
                archive.comment = _NO_CHECKSUM
            file.seek(-len(_NO_CHECKSUM), os.SEEK_END)
            file.write(stream.checksum.hexdigest().encode())
        return path.stat().st_size
    except OSError as error:
        raise not_written(error, path) from error


class Archive:
    """An open archive whose checksum is correct; its files can be read in their order."""

    def __init__(self, path: Path, file: IO[bytes], header: Header) -> None:
        self.path = path
        self.header = header
        self.size = os.fstat(file.fileno()).st_size
        self._file = file

    def files(self) -> Iterator[tuple[str, int, Iterator[FileBlock]]]:
        """Yield the path, the size and the blocks of each file; read all blocks before the next file."""
        try:
            with ZipFile(self._file) as archive:
                for name, size in self.header.files.items():
                    yield name, size, self._blocks(archive, name, size)
        except _UNREADABLE as error:
            raise self.damaged(str(error)) from error

    def damaged(self, reason: str) -> IndexDamaged:
        """Return the error for an archive whose content cannot be used."""
        return IndexDamaged(f"{self.path} is damaged: {reason}", hint=_UNCHANGED)

    def _blocks(self, archive: ZipFile, name: str, size: int) -> Iterator[FileBlock]:
        try:
            info = archive.getinfo(_FOLDER + name)
            if info.file_size != size:
                raise self.damaged(f"{name} does not have {size} bytes")
            with archive.open(info) as member:
                for offset in range(0, size, _BLOCK):
                    yield offset, member.read(_BLOCK)
                member.read(1)  # at the end, the checksum of the file is compared
        except _UNREADABLE as error:
            raise self.damaged(str(error)) from error


@contextmanager
def open_archive(path: Path, kind: str) -> Iterator[Archive]:
    """Open an archive of a kind and verify its checksum; raise an error if any of it cannot be used."""
    try:
        if not path.is_file():  # opening a pipe would wait for a writer
            raise InvalidArgument(f"{path} is not a file", hint=_NEEDED)
        opened = path.open("rb")
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be read: {error.strerror}", hint=_NEEDED) from error
    with opened as file:
        first = file.read(64)
        if first.startswith(_MAGIC) and _HEADER_FILE.encode() in first:
            archive = Archive(path, file, _read_header(path, file))
        elif first.startswith(_MAGIC_1):
            archive = _Archive1(path, file, _read_header_1(path, file))
        else:
            raise InvalidArgument(f"{path} is not an archive of Recto", hint=_NEEDED)
        if archive.header.kind != kind:
            raise _other_kind(path, archive.header.kind)
        yield archive


def _read_header(path: Path, file: IO[bytes]) -> Header:
    """Verify the checksum of an archive before anything else of it is used."""
    checksum = _checksum(file, len(_NO_CHECKSUM))
    checksum.update(_NO_CHECKSUM)
    if file.read() != checksum.hexdigest().encode():
        raise _wrong_checksum(path)
    try:
        with ZipFile(file) as archive:
            info = archive.getinfo(_HEADER_FILE)
            header = _parse_header(path, archive.read(info) if info.file_size <= _MAX_HEADER else b"")
            if set(archive.namelist()) != {_HEADER_FILE, *(_FOLDER + name for name in header.files)}:
                raise ValueError("it has files that its header does not name")
            return header
    except _UNREADABLE as error:
        raise _wrong_header(path, error) from error


def _checksum(file: IO[bytes], but: int) -> hashlib._Hash:
    """Digest all bytes of a file but the last ones."""
    checksum = hashlib.sha256()
    left = os.fstat(file.fileno()).st_size - but
    file.seek(0)
    while left > 0 and (part := file.read(min(left, _READ))):
        checksum.update(part)
        left -= len(part)
    return checksum


def _wrong_checksum(path: Path) -> IndexDamaged:
    return IndexDamaged(f"{path} is damaged or incomplete: its checksum is wrong", hint=_UNCHANGED)


def _wrong_header(path: Path, error: Exception) -> IndexDamaged:
    return IndexDamaged(f"{path} is damaged: its header cannot be used ({error})", hint=_UNCHANGED)


def _parse_header(path: Path, text: bytes) -> Header:
    """Check every field of a header."""
    try:
        body = json.loads(text)
        format = body.get("format", 1)
        if format not in (1, ARCHIVE_FORMAT):
            hint = "Restore it with the version that made it, and back it up again with this one."
            raise other_format(f"The archive {path}", int(format), ARCHIVE_FORMAT, hint)
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
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _wrong_header(path, error) from error


def _check_path(name: str) -> None:
    """Raise `ValueError` unless a path stays inside the directory that it is restored to, on every system."""
    parts = name.split("/")
    if len(name) > _MAX_PATH:
        raise ValueError("a path is too long")
    if any(part in ("", ".", "..") or len(part) > 255 for part in parts):
        raise ValueError("a path leaves its directory")
    if not name.isprintable() or set(name) & set('\\:*?"<>|'):
        raise ValueError("a path has forbidden characters")


_MAGIC_1 = b"recto-archive-1\n"
_BLOCK_1 = struct.Struct("<QI")  # offset in the file, number of bytes
_MAX_BLOCK_1 = 1 << 20  # bytes
_CHECKSUM_1 = hashlib.sha256().digest_size


class _Archive1(Archive):
    """An archive of Recto 0.2: after the header, the blocks of each file that are not zero."""

    def files(self) -> Iterator[tuple[str, int, Iterator[FileBlock]]]:
        """Yield the path, the size and the blocks of each file; read all blocks before the next file."""
        self._file.seek(0)
        self._file.readline()
        self._file.readline()
        for name, size in self.header.files.items():
            yield name, size, self._blocks_1(size)

    def _blocks_1(self, size: int) -> Iterator[FileBlock]:
        end = 0
        while True:
            prefix = self._file.read(_BLOCK_1.size)
            if len(prefix) < _BLOCK_1.size:
                raise self.damaged("it ends too early")
            offset, length = _BLOCK_1.unpack(prefix)
            if length > _MAX_BLOCK_1 or offset < end or offset + length > size:
                raise self.damaged("a block is not inside its file")
            if not length:
                return
            block = self._file.read(length)
            if len(block) < length:
                raise self.damaged("it ends too early")
            end = offset + length
            yield offset, block


def _read_header_1(path: Path, file: IO[bytes]) -> Header:
    if _checksum(file, _CHECKSUM_1).digest() != file.read(_CHECKSUM_1):
        raise _wrong_checksum(path)
    file.seek(0)
    file.readline()
    return _parse_header(path, file.readline(_MAX_HEADER))


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
