"""The files of the embedded store: generations, manifests with digests, the pointer to the current one.

    COLLECTION/CURRENT          the name of the current generation
    COLLECTION/LOCK             the lock of writers
    COLLECTION/gen-000002/      the files of the engine, which never change
    COLLECTION/gen-000002.json  the manifest: the digests of these files, and how they were made
    COLLECTION/gen-000002.seen  the sizes and times of large files that were verified
    COLLECTION/gen-000002.notes the calibration
    COLLECTION/building-*/      a new generation that is being written

A process can be killed, and a machine can lose power, at any moment. So a new generation is written and
flushed to disk elsewhere (`building-*`), renamed, and described by its manifest. Replacing CURRENT, one
atomic step, publishes it. What a killed writer leaves is not a generation, and the next writer removes it.

The engine does not notice damaged files, and may crash on them, so every generation is compared with its
manifest when it is opened.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

from recto._util.files import VERIFIED_SECONDS, read_limited, replace_text, sync_directory
from recto.errors import FormatMismatch, IndexDamaged, other_format
from recto.settings import index_command
from recto.types.index import Calibration, Fingerprint, GenerationInfo

INDEX_FORMAT = 2
"""Counts the changes of the files that other versions of Recto cannot read.

The manifests of all formats have `format`, `files` (digests by path) and `checksum`, so that indexes of other
versions can be recognised.
"""
LEXICON = "lexicon.bin"
"""The vocabulary of a generation, in its directory."""
BLOCK = 1 << 16
"""Bytes of a block; the digest of a file depends on this size."""
_ZEROS = bytes(BLOCK)
_ALWAYS_DIGEST = 32 << 20  # bytes on disk; all files of a smaller index are digested at every start
_SMALL_FILE = 2 << 20  # bytes; the engine touches most files up to this size whenever it opens an index
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
_LONGEST_POINTER = 64  # bytes
LARGEST_MANIFEST = 16 << 20
"""Bytes of a manifest or a calibration."""
_DAMAGED = "damaged"  # after the size and time of a file that does not match its digest
_GENERATION = re.compile(r"gen-(\d{6,})")
MALFORMED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""What reading a damaged manifest raises."""

FileState = tuple[int, int, int]


class CollectionDirectory(NamedTuple):
    """One collection on disk: immutable generations, and a pointer to the current one."""

    path: Path

    @property
    def lock(self) -> Path:
        """The lock file of writers."""
        return self.path / "LOCK"

    @property
    def pointer(self) -> Path:
        """The file that names the current generation."""
        return self.path / "CURRENT"

    @property
    def unpublished(self) -> Path:
        """The file that says that there was no pointer yet when a generation was added."""
        return self.path / "UNPUBLISHED"

    def generation(self, name: str) -> Path:
        """Return the engine's directory of a generation."""
        return self.path / name

    def manifest(self, name: str) -> Path:
        """Return the file with the digests of a generation."""
        return self.path / f"{name}.json"

    def verified(self, name: str) -> Path:
        """Return the file with the sizes and times of the large files that were digested."""
        return self.path / f"{name}.seen"

    def calibration(self, name: str) -> Path:
        """Return the file with the calibration of a generation."""
        return self.path / f"{name}.notes"

    def exists(self) -> bool:
        """Return whether anything was ever published here."""
        return self.pointer.exists() or bool(self.generations())

    def read_pointer(self) -> str:
        """Return the content of the pointer, valid or not."""
        try:
            return read_limited(self.pointer, _LONGEST_POINTER).decode("utf-8", "replace").strip()
        except (FileNotFoundError, IsADirectoryError, ValueError):  # ValueError: not a file, or too long
            return ""

    def current(self) -> str:
        """Return the name of the current generation."""
        name = self.read_pointer()
        if not _GENERATION.fullmatch(name):
            raise IndexDamaged(f"{self.pointer} is missing or damaged: it does not name a generation")
        return name

    def set_current(self, name: str) -> None:
        """Make a generation the current one, atomically."""
        if self.pointer.is_dir():
            shutil.rmtree(self.pointer)
        replace_text(self.pointer, f"{name}\n")
        _remove(self.unpublished)

    def complete(self) -> bool:
        """Publish what a writer that was killed left in a new collection; tell whether there is anything.

        The caller must hold the lock. A lost pointer is damage, which is repaired with a warning.
        """
        intact = next(filter(self.is_intact, self.generations()), "")
        if not intact or self.pointer.exists() or not self.unpublished.exists():
            return False
        self.set_current(intact)
        return True

    def generations(self) -> list[str]:
        """Return the names of the generations that have a manifest, newest first."""
        names = [path.stem for path in self.path.glob("gen-*.json") if _GENERATION.fullmatch(path.stem)]
        return sorted(names, key=lambda name: int(name.removeprefix("gen-")), reverse=True)

    def next_generation(self) -> str:
        """Return a name for a new generation: its number is higher than all others, damaged ones included."""
        matches = [_GENERATION.match(path.name) for path in self.path.glob("gen-*")]
        numbers = [int(match[1]) for match in matches if match]
        return f"gen-{max(numbers, default=0) + 1:06}"

    def is_intact(self, name: str) -> bool:
        """Return whether a generation matches its manifest, or is of another version of Recto."""
        try:
            self.verify(name)
        except FormatMismatch:
            return True
        except IndexDamaged:
            return False
        return True

    def describe(self, name: str, *, current: bool) -> GenerationInfo:
        """Return when a generation was made, how many chunks it has, and its size on disk."""
        size = 0
        with suppress(FileNotFoundError):  # a writer may be removing it
            files = (path for path in self.generation(name).rglob("*") if path.is_file())
            size = sum(size_on_disk(path.stat()) for path in files)
        try:
            manifest = read_manifest(self.manifest(name))
        except (FormatMismatch, IndexDamaged) as error:
            return GenerationInfo(name, "", 0, size, current, error.message)
        return GenerationInfo(name, manifest.fingerprint.created_at, manifest.chunks, size, current)

    def verify(self, name: str, *, everything: bool = False) -> Manifest:
        """Return the manifest of a generation; raise `IndexDamaged` if a file does not match it.

        Digesting a large index would take long. There, a large file is trusted if it was digested before and
        still has the same size and modification time, unless `everything` is to be digested.
        """
        directory, manifest = self.generation(name), read_manifest(self.manifest(name))
        large = _large_files(directory, manifest)
        trusted = _read_verified(self.verified(name)) if large and not everything else {}
        for file, expected in manifest.files.items():
            seen = trusted.get(file) if file in large else None
            if seen == large.get(file, ()):
                continue
            damaged = [*large.get(file, ()), _DAMAGED]
            if seen == damaged or (directory / file).is_dir() or digest(directory / file) != expected:
                if file in large:  # so that the next search need not digest it again
                    self._save_verified(name, {**large, file: damaged})
                raise IndexDamaged(f"{directory / file} does not match the manifest")
        if trusted != large:
            self._save_verified(name, large)
        return manifest

    def verification_is_due(self, name: str) -> bool:
        """Return whether the large files of a generation were digested more than a day ago."""
        try:
            return abs(time.time() - self.verified(name).stat().st_mtime) > VERIFIED_SECONDS
        except OSError:
            return False

    def _save_verified(self, name: str, large: Mapping[str, Sequence[int | str]]) -> None:
        with suppress(OSError):  # without a writable home, the files are digested at every start
            replace_text(self.verified(name), json.dumps(large))

    def new_draft(self) -> Path:
        """Return a directory for a new generation, which does not exist yet."""
        return self.path / f"building-{os.getpid()}-{os.urandom(4).hex()}"

    def remove_drafts(self) -> None:
        """Remove what killed writers left; the caller must hold the lock."""
        for path in (*self.path.glob("building-*"), *self.path.glob(".CURRENT.*")):
            _remove(path)

    def add_generation(self, draft: Path, manifest: Manifest) -> str:
        """Turn a draft into a generation that is not current yet; the caller must hold the lock."""
        name = self.next_generation()
        if not self.pointer.exists():
            self.unpublished.touch()
        os.rename(draft, self.generation(name))
        # The manifest comes last: a directory without one is a leftover of a killed writer.
        replace_text(self.manifest(name), manifest.to_text())
        if large := _large_files(self.generation(name), manifest):
            self._save_verified(name, large)  # the writer has just digested them
        return name

    def publish(self, name: str, keep: int) -> None:
        """Make a new generation the current one, and keep earlier ones; the caller must hold the lock.

        Generations that a rollback skipped are removed, so that the next rollback does not return to them.
        """
        before = self.read_pointer()
        self.set_current(name)
        older = [other for other in self.generations() if other != name]
        # After a rollback, `before` is not the newest of them.
        at = older.index(before) if before in older else 0
        kept = list(islice(filter(self.is_intact, older[at:]), keep))
        # If all of those are damaged, one that the rollback skipped is better than none.
        self._prune({name, *(kept or islice(filter(self.is_intact, older[:at]), 1))})

    def remove_generation(self, name: str) -> None:
        """Remove a generation that was never current; the caller must hold the lock."""
        # The manifest first, so that a killed process does not leave half a generation with a manifest.
        for path in (self.manifest(name), self.verified(name), self.calibration(name), self.generation(name)):
            _remove(path)

    def _prune(self, keep: set[str]) -> None:
        for path in self.path.iterdir():
            match = _GENERATION.match(path.name)
            if match and match[0] not in keep:
                _remove(path)


@dataclass(frozen=True, slots=True)
class Manifest:
    """One generation: the number of chunks, how it was made, and the digests of its files."""

    chunks: int
    engine: str
    fingerprint: Fingerprint
    files: dict[str, str]

    def to_text(self) -> str:
        """Return the manifest as JSON with a checksum."""
        return _with_checksum(
            {
                "format": INDEX_FORMAT,
                "chunks": self.chunks,
                "engine": self.engine,
                "fingerprint": self.fingerprint.to_dict(),
                "files": self.files,
            }
        )


def read_manifest(path: Path) -> Manifest:
    """Read a manifest; raise `IndexDamaged` if it is damaged, `FormatMismatch` if another version made it."""
    try:
        return parse_manifest(read_limited(path, LARGEST_MANIFEST), path.parent.name)
    except (OSError, *MALFORMED) as error:
        raise IndexDamaged(f"{path} is missing or damaged ({error})") from error


def parse_manifest(text: bytes, collection: str) -> Manifest:
    """Parse a manifest; raise one of `MALFORMED` if it is damaged, `FormatMismatch` as `read_manifest`."""
    body = json.loads(text)
    if body.pop("checksum") != _checksum(body):
        raise ValueError("its checksum is wrong")
    if not isinstance(body["format"], int) or not isinstance(body["files"], dict):
        raise TypeError("it has no format")
    if body["format"] != INDEX_FORMAT:
        raise _other_format(collection, body)
    fingerprint = Fingerprint.from_dict(body["fingerprint"])
    manifest = Manifest(body["chunks"], body["engine"], fingerprint, body["files"])
    for record in (manifest, fingerprint, fingerprint.embedder):  # an archive may come from a stranger
        for field in fields(record):
            if field.type in ("int", "str") and type(getattr(record, field.name)).__name__ != field.type:
                raise TypeError(f"{field.name} has the wrong type")
    return manifest


def _other_format(collection: str, body: Mapping[str, Any]) -> FormatMismatch:
    """Return the error for a generation of another version of Recto."""
    fingerprint = body.get("fingerprint")
    recorded = fingerprint if isinstance(fingerprint, dict) else {}
    source, options = str(recorded.get("source", "")), dict(recorded.get("options", {})).items()
    command = index_command(collection, source, options=options, rebuild=True)
    hint = f"Index the book again with `{command}`."
    return other_format(f"The index of '{collection}'", body["format"], INDEX_FORMAT, hint)


def write_calibration(path: Path, calibration: Calibration) -> None:
    """Write the calibration of a generation, with a checksum."""
    replace_text(path, _with_checksum({"format": INDEX_FORMAT, "calibration": calibration.to_dict()}))


def read_calibration(path: Path) -> Calibration | None:
    """Read the calibration of a generation, or return None if it is missing or damaged."""
    with suppress(OSError, *MALFORMED):
        body = json.loads(read_limited(path, LARGEST_MANIFEST))
        if body.pop("checksum") == _checksum(body) and body["format"] == INDEX_FORMAT:
            return Calibration.from_dict(body["calibration"])
    return None


def _with_checksum(body: dict[str, Any]) -> str:
    return json.dumps({**body, "checksum": _checksum(body)}, indent=1) + "\n"


def _checksum(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _large_files(directory: Path, manifest: Manifest) -> dict[str, list[int]]:
    """Return the size and modification time of the large files; none if the whole index is small."""
    large: dict[str, list[int]] = {}
    on_disk = 0
    for name in manifest.files:
        try:
            status = (directory / name).stat()
        except OSError as error:
            raise IndexDamaged(f"{directory / name} is missing") from error
        if status.st_size > _SMALL_FILE:
            large[name] = [status.st_size, status.st_mtime_ns]
        on_disk += size_on_disk(status)
    return large if on_disk > _ALWAYS_DIGEST else {}


def _read_verified(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        verified = json.loads(read_limited(path, LARGEST_MANIFEST))
        if isinstance(verified, dict):
            return verified
    return {}


def digest_files(directory: Path) -> dict[str, str]:
    """Return the digests of all files of a generation, by their relative paths."""
    return {
        path.relative_to(directory).as_posix(): digest(path)
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def digest(path: Path) -> str:
    """Hash a file's length and its blocks that are not all zero, so that holes count as zeros."""
    with path.open("rb", buffering=0) as file:
        file_digest = FileDigest(os.fstat(file.fileno()).st_size)
        for offset, block in data_blocks(file):
            file_digest.update(offset, block)
    return file_digest.hexdigest()


class FileDigest:
    """The digest of a file whose blocks come one by one; blocks of zeros may be left out."""

    def __init__(self, size: int) -> None:
        self._sha256 = hashlib.sha256(size.to_bytes(8, "little"))

    def update(self, offset: int, block: bytes) -> None:
        """Add the next block."""
        if not is_hole(block):
            self._sha256.update(offset.to_bytes(8, "little"))
            self._sha256.update(block)

    def hexdigest(self) -> str:
        """Return the digest of all blocks."""
        return self._sha256.hexdigest()


def copy_tree(source: Path, target: Path) -> None:
    """Copy a directory; sparse files stay sparse."""
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    for entry in source.iterdir():
        if entry.is_dir():
            copy_tree(entry, target / entry.name)
            continue
        with entry.open("rb", buffering=0) as original:
            write_blocks(target / entry.name, entry.stat().st_size, data_blocks(original))


def write_blocks(path: Path, size: int, blocks: Iterable[tuple[int, bytes]]) -> str:
    """Write a sparse file, and return its digest."""
    file_digest = FileDigest(size)
    with os.fdopen(os.open(path, _NEW_FILE, 0o600), "wb") as file:
        file.truncate(size)
        for offset, block in blocks:
            file_digest.update(offset, block)
            if not is_hole(block):
                file.seek(offset)
                file.write(block)
    return file_digest.hexdigest()


def sync_files(directory: Path) -> None:
    """Flush all files to disk, so that a crash after publishing does not damage them."""
    for path in (*directory.rglob("*"), directory):
        if path.is_dir():
            sync_directory(path)
        else:
            with path.open("rb+") as file:
                os.fsync(file.fileno())


def is_hole(block: bytes) -> bool:
    """Return whether a block has nothing but zeros."""
    return block == _ZEROS[: len(block)]


def data_blocks(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the aligned blocks of an open file that contain anything but zeros."""
    size = os.fstat(file.fileno()).st_size
    offset = _next_data(file.fileno(), 0, size)
    while offset < size:
        file.seek(offset)
        block = file.read(BLOCK)
        if not block:
            return
        if not is_hole(block):
            yield offset, block
            offset += BLOCK
        else:
            offset = _next_data(file.fileno(), offset + BLOCK, size)


def _next_data(descriptor: int, offset: int, size: int) -> int:
    """Return the offset of the next aligned block with data, or the size if there is none."""
    if offset >= size or not hasattr(os, "SEEK_DATA"):
        return offset
    try:
        data = os.lseek(descriptor, offset, os.SEEK_DATA)
    except OSError as error:  # ENXIO: only a hole is left; otherwise the file system does not support it
        return size if error.errno == errno.ENXIO else offset
    return max(offset, data - data % BLOCK)


def size_on_disk(status: os.stat_result) -> int:
    """Return the bytes that a file takes on disk, without its holes."""
    return getattr(status, "st_blocks", 0) * 512 or status.st_size


def file_state(path: str) -> FileState | None:
    """Return a value that changes whenever a file is replaced, or None if it does not exist.

    `replace_text` writes a new file next to the old one, so the inode changes even if the clock does not.
    """
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return (status.st_ino, status.st_mtime_ns, status.st_size)


def _remove(path: Path) -> None:
    with suppress(OSError):  # where open files cannot be removed, the next writer removes them
        if path.is_dir():
            shutil.rmtree(path)
        else:
            os.unlink(path)
