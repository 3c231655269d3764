"""Replace a file whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def replace_text(path: Path, text: str) -> None:
    """Write a file so that readers, and a crash at any moment, see the old text or the new one and nothing between."""
    replace_bytes(path, [text.encode()])


def replace_bytes(path: Path, parts: Iterable[bytes]) -> None:
    """Write a file of bytes in the same way, part by part."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        with draft.open("wb") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make a directory's entries durable, where the system can."""
    if os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
