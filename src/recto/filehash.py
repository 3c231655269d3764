"""SHA-256 of large files, remembered until the file changes."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path

from recto.atomic import replace_text


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
