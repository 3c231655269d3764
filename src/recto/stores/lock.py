"""One writer at a time: a lock that names its holder and is gone when the holder dies."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from recto.errors import StoreBusy

_POLL_SECONDS = 0.1


class WriterLock:
    """An exclusive lock on a file; another holder is an error, or is awaited if `wait` is given."""

    def __init__(self, path: Path, what: str, wait: Callable[[str], None] | None = None) -> None:
        self._path = path
        self._what = what
        self._wait = wait
        self._descriptor: int | None = None

    def __enter__(self) -> Self:
        """Take the lock."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        told = False
        while not _try_lock(descriptor):
            sentence = f"{self._what} is being written by process {_holder(descriptor) or '(unknown)'}"
            if self._wait is None:
                os.close(descriptor)
                raise StoreBusy(
                    sentence,
                    hint="Wait until it has finished and try again; readers keep the old index until then. Nothing was changed.",
                )
            if not told:
                self._wait(f"{sentence}: waiting for it")
                told = True
            time.sleep(_POLL_SECONDS)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode("ascii"))
        self._descriptor = descriptor
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go; the file stays, so that no two writers can lock two files of one name."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


if sys.platform == "win32":
    import msvcrt

    _LOCKED_BYTE = 1 << 20  # beyond the holder's number, which others may read

    def _try_lock(descriptor: int) -> bool:
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        os.lseek(descriptor, 0, os.SEEK_SET)
        return True

    def _holder(descriptor: int) -> str:
        os.lseek(descriptor, 0, os.SEEK_SET)
        return os.read(descriptor, 32).decode("ascii", "replace").strip()

else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _holder(descriptor: int) -> str:
        return os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
