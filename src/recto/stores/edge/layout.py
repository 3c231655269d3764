"""What a generation must look like on disk; the engine itself does not notice when it does not."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recto._util.files import replace_text
from recto.errors import IndexDamaged, RectoError, StorageError
from recto.types import Calibration, Fingerprint

_BLOCK = 1 << 16
_EMPTY = bytes(_BLOCK)


def digest(path: Path) -> str:
    """Hash a file's length and its blocks that are not all zero, so that a hole and written zeros are the same."""
    total = hashlib.sha256(path.stat().st_size.to_bytes(8, "little"))
    for offset, block in _blocks(path):
        total.update(offset.to_bytes(8, "little"))
        total.update(block)
    return total.hexdigest()


def copy_tree(source: Path, target: Path) -> None:
    """Copy a directory; holes stay holes."""
    target.mkdir(parents=True, exist_ok=True)
    for entry in source.iterdir():
        if entry.is_dir():
            copy_tree(entry, target / entry.name)
        else:
            _copy_file(entry, target / entry.name)


def _copy_file(source: Path, target: Path) -> None:
    with target.open("wb") as file:
        file.truncate(source.stat().st_size)
        for offset, block in _blocks(source):
            file.seek(offset)
            file.write(block)


def _blocks(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the aligned blocks that hold anything but zeros."""
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        offset = _next_data(file.fileno(), 0, size)
        while offset < size:
            file.seek(offset)
            block = file.read(_BLOCK)
            if not block:
                return
            if block != _EMPTY[: len(block)]:
                yield offset, block
                offset += _BLOCK
            else:
                offset = _next_data(file.fileno(), offset + _BLOCK, size)


def _next_data(descriptor: int, offset: int, size: int) -> int:
    """Return the aligned block in which the next data lie, or the size."""
    if offset >= size or not hasattr(os, "SEEK_DATA"):
        return offset
    try:
        found = os.lseek(descriptor, offset, os.SEEK_DATA)
    except OSError as error:  # ENXIO: nothing but a hole up to the end; otherwise the file system cannot tell
        import errno

        return size if error.errno == errno.ENXIO else offset
    return max(offset, found - found % _BLOCK)


FileState = tuple[int, int, int]
_GENERATION = re.compile(r"gen-(\d{6,})")


@dataclass(frozen=True, slots=True)
class CollectionDirectory:
    """One collection on disk: immutable generations and a pointer to the current one."""

    path: Path

    @property
    def lock(self) -> Path:
        """The writers' lock."""
        return self.path / "LOCK"

    @property
    def pointer(self) -> Path:
        """The file that names the current generation."""
        return self.path / "CURRENT"

    def generation(self, name: str) -> Path:
        """The engine's directory of a generation."""
        return self.path / name

    def manifest(self, name: str) -> Path:
        """What a generation must look like."""
        return self.path / f"{name}.json"

    def seen(self, name: str) -> Path:
        """What was found in order before."""
        return self.path / f"{name}.seen"

    def notes(self, name: str) -> Path:
        """What was measured of a generation after it was published."""
        return self.path / f"{name}.notes"

    def exists(self) -> bool:
        """Whether anything was ever published here."""
        return self.pointer.exists() or bool(self.generations())

    def pointed(self) -> str:
        """Read what the pointer says, sense or not."""
        try:
            descriptor = os.open(self.pointer, os.O_RDONLY)
            try:
                return os.read(descriptor, 64).decode("utf-8", "replace").strip()
            finally:
                os.close(descriptor)
        except (FileNotFoundError, IsADirectoryError):
            return ""

    def current(self) -> str:
        """Name the current generation."""
        text = self.pointed()
        if not _GENERATION.fullmatch(text):
            raise IndexDamaged(f"{self.pointer} is missing or damaged: it names no generation")
        return text

    def set_current(self, name: str) -> None:
        """Let readers see a generation, at once."""
        if self.pointer.is_dir():
            shutil.rmtree(self.pointer)
        replace_text(self.pointer, f"{name}\n")

    def generations(self) -> list[str]:
        """Name the generations that have a manifest, newest first."""
        names = [path.stem for path in self.path.glob("gen-*.json") if _GENERATION.fullmatch(path.stem)]
        return sorted(names, key=_number, reverse=True)

    def next_generation(self) -> str:
        """Name the generation after the newest, whether that is whole or not."""
        numbers = [
            int(found[1]) for path in self.path.glob("gen-*") if (found := _GENERATION.match(path.name))
        ]
        return f"gen-{max(numbers, default=0) + 1:06}"

    def remove_drafts(self) -> None:
        """Remove what killed writers left. Only the lock's holder may."""
        for path in self.path.glob("building-*"):
            _remove(path)

    def prune(self, keep: set[str]) -> None:
        """Remove all other generations. Only the lock's holder may."""
        for path in self.path.iterdir():
            found = _GENERATION.match(path.name)
            if found and found[0] not in keep:
                _remove(path)


@dataclass(frozen=True, slots=True)
class Home:
    """All of an embedded store on disk."""

    path: Path

    @property
    def aliases_file(self) -> Path:
        """The file that says which alias leads where."""
        return self.path / "aliases.json"

    @property
    def aliases_lock(self) -> Path:
        """The lock for those who change aliases."""
        return self.path / "aliases.lock"

    def collection(self, name: str) -> CollectionDirectory:
        """One collection's directory."""
        return CollectionDirectory(self.path / "collections" / name)

    def collections(self) -> tuple[str, ...]:
        """Name the collections that were published."""
        root = self.path / "collections"
        if not root.exists():
            return ()
        return tuple(sorted(path.name for path in root.iterdir() if CollectionDirectory(path).exists()))

    def aliases(self) -> dict[str, str]:
        """Read the aliases."""
        try:
            found = json.loads(self.aliases_file.read_text("utf-8"))
        except FileNotFoundError:
            return {}
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise IndexDamaged(
                f"{self.aliases_file} is damaged",
                hint="Remove the file; the next `recto index` writes it again.",
            )
        return {str(alias): str(name) for alias, name in found.items()}

    def set_aliases(self, aliases: dict[str, str]) -> None:
        """Write the aliases, at once."""
        replace_text(self.aliases_file, json.dumps(aliases, indent=1, sort_keys=True) + "\n")


def file_state(path: str) -> FileState | None:
    """Return something that changes whenever a file is replaced, or None without a file; readers ask for it before every search.

    The new file is written beside the old one, so two states that follow each other are two inodes, whatever the clock says.
    """
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return (status.st_ino, status.st_mtime_ns, status.st_size)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn what the file system refuses into our errors."""
    try:
        yield
    except RectoError:
        raise
    except OSError as error:
        raise disk_error(error, path) from error


def disk_error(error: OSError, path: Path) -> StorageError:
    """Return our error for the file system's."""
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return StorageError(f"{path} is not a directory", hint="Set RECTO_HOME to a directory of your own.")
    return StorageError(
        f"{error.filename or path} cannot be used: {error.strerror or error}",
        hint="Check the permissions and the space there, or set RECTO_HOME to another directory.",
    )


def _number(name: str) -> int:
    return int(name.removeprefix("gen-"))


def _remove(path: Path) -> None:
    with suppress(OSError):  # where open files cannot be removed, the next writer does it
        if path.is_dir():
            shutil.rmtree(path)
        else:
            os.unlink(path)


FORMAT = 1
LEXICON = "lexicon.bin"
"""The vocabulary of a generation, in its directory."""
_ALWAYS_READ = 32 << 20  # bytes on disk; a smaller index is compared whole at every start
_SMALL_FILE = (
    2 << 20
)  # bytes; the engine touches most files up to this size whenever it opens an index, and changes nothing


@dataclass(frozen=True, slots=True)
class Manifest:
    """One generation: how many chunks, made how, in which files with which digests."""

    chunks: int
    engine: str
    fingerprint: Fingerprint
    files: dict[str, str]

    def to_text(self) -> str:
        """Return the manifest as JSON that carries its own checksum."""
        body = {
            "format": FORMAT,
            "chunks": self.chunks,
            "engine": self.engine,
            "fingerprint": self.fingerprint.to_dict(),
            "files": self.files,
        }
        return json.dumps({**body, "checksum": _checksum(body)}, indent=1) + "\n"


def digest_files(directory: Path) -> dict[str, str]:
    """Digest every file of a generation, by its path within."""
    return {
        path.relative_to(directory).as_posix(): digest(path)
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def read_manifest(path: Path) -> Manifest:
    """Read a manifest that is whole, or say that the generation is damaged."""
    try:
        body = json.loads(path.read_text("utf-8"))
        checksum = body.pop("checksum")
        if body["format"] != FORMAT:
            raise IndexDamaged(
                f"{path} has format {body['format']}, this version reads {FORMAT}",
                hint="Index the book again with `recto index`.",
            )
        if checksum != _checksum(body):
            raise ValueError("its checksum is wrong")
        return Manifest(
            body["chunks"], body["engine"], Fingerprint.from_dict(body["fingerprint"]), body["files"]
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise IndexDamaged(f"{path} is missing or damaged ({error})") from error


def write_notes(path: Path, calibration: Calibration) -> None:
    """Write what was measured of a generation, with its own checksum."""
    body = {"format": FORMAT, "calibration": calibration.to_dict()}
    replace_text(path, json.dumps({**body, "checksum": _checksum(body)}, indent=1) + "\n")


def read_notes(path: Path) -> Calibration | None:
    """Read what was measured of a generation; what is missing or damaged was not measured."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        body = json.loads(path.read_text("utf-8"))
        if body.pop("checksum") == _checksum(body) and body["format"] == FORMAT:
            return Calibration.from_dict(body["calibration"])
    return None


def verify_files(directory: Path, manifest: Manifest, seen: Path) -> None:
    """Compare every file with the manifest.

    A large index would take long to read at each start: there, a large file that was compared before and has kept its
    size and time of change since is trusted.
    """
    large = _large_files(directory, manifest)
    trusted = _read_seen(seen) if large else {}
    for name, expected in manifest.files.items():
        if name in large and trusted.get(name) == large[name]:
            continue
        if digest(directory / name) != expected:
            raise IndexDamaged(f"{directory / name} is not what the manifest says")
    if trusted != large:
        _remember(large, seen)


def note_seen(directory: Path, manifest: Manifest, seen: Path) -> None:
    """Trust the files of a generation whose digests were taken a moment ago: the first to open it has no need to read them again."""
    if large := _large_files(directory, manifest):
        _remember(large, seen)


def _remember(large: dict[str, list[int]], seen: Path) -> None:
    with suppress(OSError):  # a home that cannot be written costs a comparison at each start, nothing more
        replace_text(seen, json.dumps(large))


def _large_files(directory: Path, manifest: Manifest) -> dict[str, list[int]]:
    """Return size and time of change of the files that are worth trusting; of an index that is small as a whole there are none."""
    found: dict[str, list[int]] = {}
    on_disk = 0
    for name in manifest.files:
        try:
            status = (directory / name).stat()
        except OSError as error:
            raise IndexDamaged(f"{directory / name} is missing") from error
        if status.st_size > _SMALL_FILE:
            found[name] = [status.st_size, status.st_mtime_ns]
        on_disk += getattr(status, "st_blocks", 0) * 512 or status.st_size
    return found if on_disk > _ALWAYS_READ else {}


def is_whole(directory: CollectionDirectory, generation: str) -> bool:
    """Whether a generation is what its manifest says."""
    try:
        verify_files(
            directory.generation(generation),
            read_manifest(directory.manifest(generation)),
            directory.seen(generation),
        )
    except IndexDamaged:
        return False
    return True


def _read_seen(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        seen = json.loads(path.read_text("utf-8"))
        if isinstance(seen, dict):
            return seen
    return {}


def _checksum(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
