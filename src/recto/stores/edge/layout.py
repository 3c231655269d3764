"""Where an embedded store keeps what: collections, their generations, the pointer to the current one, aliases."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from recto.atomic import replace_text
from recto.errors import IndexDamaged, RectoError, StorageError

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
        numbers = [int(found[1]) for path in self.path.glob("gen-*") if (found := _GENERATION.match(path.name))]
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
            raise IndexDamaged(f"{self.aliases_file} is damaged", hint="Remove the file; the next `recto index` writes it again.")
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
