"""The engine's files are mostly holes: read and copy only what is in them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

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
