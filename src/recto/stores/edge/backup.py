"""Write a generation into an archive, and publish an archive as a new generation.

An archive is a ZIP file: first `recto.json`, its header, which has the manifest of the generation, then the
files of the generation below `files/`. The comment at its end is a SHA-256 of all bytes before it.

An archive may come from a stranger. So everything in it is checked before it is used, and it becomes a draft
in the collection's directory, which is published only if every digest is right and the engine can open it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile

from recto import __version__
from recto._util.files import make_private, not_written, read_limited, replacing
from recto.errors import (
    FormatMismatch,
    IndexDamaged,
    InvalidArgument,
    StorageError,
    StoreBusy,
    other_format,
)
from recto.protocols import Progress
from recto.settings import check_collection_name
from recto.stores.edge.index import open_generation
from recto.stores.edge.layout import (
    BLOCK,
    LARGEST_MANIFEST,
    MALFORMED,
    CollectionDirectory,
    FileDigest,
    Manifest,
    is_hole,
    parse_manifest,
    read_calibration,
    sync_files,
    write_blocks,
    write_calibration,
)
from recto.types.index import Calibration, GenerationInfo, IndexInfo

ARCHIVE_FORMAT = 2
_KIND = "embedded"  # archives of servers, which Recto 0.3 wrote, have another one
_HEADER_FILE = "recto.json"
_FOLDER = "files/"
_CHECKSUM_PLACE = b"0" * 64  # digested instead of the checksum, which is written over it
_READ = 1 << 20  # bytes that are digested at a time
_MAX_HEADER = 2 * LARGEST_MANIFEST  # the quotes of the manifest are escaped in the header
_MAX_FILES = 10_000  # an index has some hundred
_MAX_PATH, _MAX_NAME = 1000, 255  # characters that common file systems accept
_MAX_COMPRESSION = 1100  # compressed by deflate, a byte stands for at most 1032 bytes
_MAX_DATA_RATIO = 8  # of the bytes that are not in holes to the bytes of the archive; it is about 1.6
_SMALL_INDEX = 64 << 20  # bytes; smaller indexes may have any ratio
_TRIES = 50  # of a backup while others publish and delete the collection
_UNCHANGED = "Nothing was changed. Use another backup."
# What reading a ZIP file raises if it is damaged, encrypted, or compressed in an unknown way.
_UNREADABLE = (BadZipFile, zlib.error, EOFError, KeyError, NotImplementedError, RuntimeError, ValueError)


def write_backup(
    find: Callable[[], CollectionDirectory], aliases: Iterable[str], target: Path, progress: Progress | None
) -> GenerationInfo:
    """Write the current generation into an archive, atomically.

    Writers are not blocked. If one removes the generation meanwhile, the new one is written instead.
    """
    for _ in range(_TRIES):
        directory = find()
        name, text = _read_current(directory)
        try:
            return _write_archive(directory, name, text, sorted(aliases), target, progress)
        except IndexDamaged:
            if _read_current(directory) == (name, text):
                raise
    raise StoreBusy("The collection is being replaced again and again", hint="Try again later.")


def _read_current(directory: CollectionDirectory) -> tuple[str, bytes]:
    """Return the name and the manifest of the current generation; no manifest if it cannot be read."""
    name = directory.read_pointer()
    with suppress(OSError, ValueError):
        return name, read_limited(directory.manifest(directory.current()), LARGEST_MANIFEST)
    return name, b""


def _write_archive(
    directory: CollectionDirectory,
    name: str,
    text: bytes,
    aliases: list[str],
    target: Path,
    progress: Progress | None,
) -> GenerationInfo:
    root = directory.generation(name)
    try:
        manifest = parse_manifest(text, directory.path.name)
        sizes = {file: (root / file).stat().st_size for file in manifest.files}
    except (OSError, *MALFORMED) as error:
        message = f"{root} is incomplete or damaged ({error})"
        raise IndexDamaged(message, hint="Index the book again.") from error
    calibration = read_calibration(directory.calibration(name))
    header = {
        "format": ARCHIVE_FORMAT,
        "kind": _KIND,
        "collection": directory.path.name,
        "generation": name,
        "aliases": aliases,
        "recto_version": __version__,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "content": {"manifest": text.decode(), "calibration": calibration and calibration.to_dict()},
        "files": sizes,
    }
    try:
        with replacing(target) as file:
            _write_zip(file, header, root, manifest, progress)
        size = target.stat().st_size
    except OSError as error:
        raise not_written(error, target) from error
    return GenerationInfo(name, manifest.fingerprint.created_at, manifest.chunks, size, current=True)


def _verified_blocks(path: Path, expected: str) -> Iterator[bytes]:
    """Yield the blocks of a file; raise `IndexDamaged` if its digest is another one."""
    try:
        with path.open("rb", buffering=0) as file:
            digest, offset = FileDigest(os.fstat(file.fileno()).st_size), 0
            while block := file.read(BLOCK):
                digest.update(offset, block)
                offset += len(block)
                yield block
    except FileNotFoundError as error:
        raise IndexDamaged(f"{path} is missing", hint="Index the book again.") from error
    except OSError as error:  # caught here, because the caller would say that the archive has failed
        message = f"{path} cannot be read: {error.strerror or error}"
        raise StorageError(message, hint="Check the disk. No archive was written.") from error
    if digest.hexdigest() != expected:
        hint = "Run `recto doctor`. No archive was written."
        raise IndexDamaged(f"{path} does not match the manifest", hint=hint)


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


def _write_zip(
    file: IO[bytes], header: Mapping[str, Any], root: Path, manifest: Manifest, progress: Progress | None
) -> None:
    """Write the ZIP file. Everything is compressed: the files of an index are mostly zeros."""
    stream = _ChecksumStream(file)
    done, total = 0, sum(header["files"].values())
    with ZipFile(stream, "w", ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open(_HEADER_FILE, "w") as member:  # `writestr` fails if the clock is before 1980
            member.write(json.dumps(header).encode())
        for name, size in header["files"].items():
            with archive.open(_FOLDER + name, "w", force_zip64=True) as member:
                member.writelines(_verified_blocks(root / name, manifest.files[name]))
            done += size
            if progress:
                progress(done, total)
        archive.comment = _CHECKSUM_PLACE
    file.seek(-len(_CHECKSUM_PLACE), os.SEEK_END)
    file.write(stream.checksum.hexdigest().encode())


@dataclass(frozen=True, slots=True)
class Archive:
    """An open archive whose checksum and header are right; `sizes` are the bytes of each file."""

    path: Path
    size: int
    file: IO[bytes]
    collection: str
    aliases: tuple[str, ...]
    sizes: Mapping[str, int]
    manifest: Manifest
    calibration: Calibration | None

    def extract(self, draft: Path, progress: Progress | None) -> None:
        """Write the files into a new directory; raise `IndexDamaged` if one does not match the manifest.

        A small archive could expand to any size. So the bytes that are written, which holes are not, are
        bounded by the size of the archive.
        """
        done, total, written = 0, sum(self.sizes.values()), 0

        def blocks(member: IO[bytes]) -> Iterator[tuple[int, bytes]]:
            nonlocal written
            offset = 0
            while block := member.read(BLOCK):
                written += 0 if is_hole(block) else len(block)
                if written > _SMALL_INDEX + _MAX_DATA_RATIO * self.size:
                    raise ValueError(f"its files are too large for an archive of {self.size} bytes")
                yield offset, block
                offset += len(block)

        draft.mkdir(mode=0o700)
        with ZipFile(self.file) as archive:
            for name, size in self.sizes.items():
                make_private((draft / name).parent)
                with archive.open(_FOLDER + name) as member:
                    if write_blocks(draft / name, size, blocks(member)) != self.manifest.files[name]:
                        raise ValueError(f"{name} does not match the manifest")
                done += size
                if progress:
                    progress(done, total)


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """Open an archive, and raise an error if it is damaged or cannot be used."""
    needed = "Pass a file that `recto backup` wrote."
    try:
        if not path.is_file():  # opening a pipe would wait for a writer
            raise InvalidArgument(f"{path} is not a file", hint=needed)
        opened = path.open("rb")
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be read: {error.strerror}", hint=needed) from error
    with opened as file:
        start = file.read(64)
        if not start.startswith(b"PK\3\4") or _HEADER_FILE.encode() not in start:
            raise InvalidArgument(f"{path} is not an archive of Recto", hint=needed)
        size = os.fstat(file.fileno()).st_size
        if _checksum(file, size) != file.read():
            raise IndexDamaged(f"{path} is damaged or incomplete: its checksum is wrong", hint=_UNCHANGED)
        with _named_damage(path):
            archive = _read_header(path, file, size)
        yield archive


def _checksum(file: IO[bytes], size: int) -> bytes:
    """Digest all bytes of a file before its checksum, which is then read next."""
    checksum, left = hashlib.sha256(), size - len(_CHECKSUM_PLACE)
    file.seek(0)
    while left > 0 and (part := file.read(min(left, _READ))):
        checksum.update(part)
        left -= len(part)
    checksum.update(_CHECKSUM_PLACE)
    return checksum.hexdigest().encode()


@contextmanager
def _named_damage(path: Path) -> Iterator[None]:
    """Turn what a malformed archive raises into `IndexDamaged`."""
    try:
        yield
    except (FileExistsError, IsADirectoryError, NotADirectoryError) as error:
        message = f"{path} is damaged: two of its paths exclude each other"
        raise IndexDamaged(message, hint=_UNCHANGED) from error
    except (*_UNREADABLE, *MALFORMED, IndexDamaged) as error:
        raise IndexDamaged(f"{path} is damaged: {error}", hint=_UNCHANGED) from error


def _read_header(path: Path, file: IO[bytes], size: int) -> Archive:
    """Check every field of the header."""
    with ZipFile(file) as archive:
        info = archive.getinfo(_HEADER_FILE)
        header = json.loads(archive.read(info) if info.file_size <= _MAX_HEADER else b"")
        names = set(archive.namelist())
    if header["format"] != ARCHIVE_FORMAT:
        hint = "Index the book again with `recto index PATH --collection NAME`."
        raise other_format(f"The archive {path}", int(header["format"]), ARCHIVE_FORMAT, hint)
    if header["kind"] != _KIND:
        raise FormatMismatch(
            f"{path} contains a snapshot of a Qdrant server or another kind of index, not an embedded index",
            hint="docs/how-to/backup.md shows how to restore such a snapshot. Nothing was changed.",
        )
    collection, aliases, sizes = header["collection"], header["aliases"], header["files"]
    for name in (collection, *aliases):
        check_collection_name(name, "a name")
    manifest = parse_manifest(header["content"]["manifest"].encode(), collection)
    saved = header["content"]["calibration"]
    if len(sizes) > _MAX_FILES:
        raise ValueError("it has too many files")
    for name, length in sizes.items():
        _check_path(name)
        if type(length) is not int or length < 0:
            raise ValueError("a file has an impossible size")
    if sum(sizes.values()) > _MAX_COMPRESSION * size:
        raise ValueError(f"its files are too large for an archive of {size} bytes")
    if set(sizes) != set(manifest.files):
        raise ValueError("its files differ from the list in the manifest")
    if names != {_HEADER_FILE, *(_FOLDER + name for name in sizes)}:
        raise ValueError("it has files that its header does not name")
    calibration = Calibration.from_dict(saved) if saved is not None else None
    return Archive(path, size, file, collection, tuple(aliases), sizes, manifest, calibration)


def _check_path(name: str) -> None:
    """Raise `ValueError` unless a path stays inside the directory that it is restored to, on every system."""
    parts = name.split("/")
    if len(name) > _MAX_PATH or any(len(part) > _MAX_NAME for part in parts):
        raise ValueError("a path is too long")
    if set(parts) & {"", ".", ".."} or not name.isprintable() or set(name) & set('\\:*?"<>|'):
        raise ValueError("a path may leave its directory")


def restore_archive(
    archive: Archive, directory: CollectionDirectory, keep: int, progress: Progress | None
) -> IndexInfo:
    """Publish the content of an archive as a new generation; the caller must hold the lock."""
    directory.remove_drafts()
    draft = directory.new_draft()
    try:
        with _named_damage(archive.path):
            archive.extract(draft, progress)
            sync_files(draft)
            name = directory.add_generation(draft, archive.manifest)
            try:
                if archive.calibration is not None:
                    write_calibration(directory.calibration(name), archive.calibration)
                info = open_generation(directory, directory.path.name, name).info
            except BaseException:
                directory.remove_generation(name)
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    directory.publish(name, keep)
    return info
