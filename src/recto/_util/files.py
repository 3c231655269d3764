"""SHA-256 of large files, remembered until the file changes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from contextlib import suppress
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


def sha256(path: Path) -> str:
    """Hash a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def checked_sha256(path: Path, cache: Path) -> str:
    """Hash a file, or return the remembered hash if neither its size nor its time of change moved since."""
    status = path.stat()
    signature = [status.st_size, status.st_mtime_ns, status.st_ino]
    with suppress(OSError, ValueError, TypeError):
        known = json.loads(cache.read_text("utf-8"))
        if known["path"] == str(path) and known["signature"] == signature:
            return str(known["sha256"])
    digest = sha256(path)
    with suppress(OSError):  # a home that cannot be written costs a hash at each start, nothing more
        cache.parent.mkdir(exist_ok=True)  # in a home that exists: looking at a plan makes none
        replace_text(cache, json.dumps({"path": str(path), "signature": signature, "sha256": digest}))
    return digest
