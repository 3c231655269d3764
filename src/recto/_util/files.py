"""Files: atomic writes, cached hashes, a lock for writers, and errors of the file system."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from recto.errors import InvalidArgument, RectoError, StorageError, StoreBusy

_POLL_SECONDS = 0.1
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
_FULL = (errno.ENOSPC, errno.EDQUOT)
_PERMISSIONS = {"read": os.R_OK, "write": os.W_OK, "search": os.X_OK}
VERIFIED_SECONDS = 24 * 60 * 60
"""How long a file counts as verified if its size and modification time do not change."""
_STAGING = ".recto-export-"
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)


def make_private(directory: Path) -> None:
    """Create a directory and those above it that are missing, readable by this user only."""
    missing = [folder for folder in (directory, *directory.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)
    if not directory.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "it is not a directory", str(directory))


def replace_text(path: Path, text: str, *, private: bool = True) -> None:
    """Write a file atomically: readers see the old text or the new one, also after a crash.

    Only this user can read a `private` file.
    """
    replace_bytes(path, [text.encode()], private=private)


def replace_bytes(path: Path, parts: Iterable[bytes], *, private: bool = True) -> None:
    """Write a file of bytes atomically, part by part."""
    with replacing(path, private=private) as file:
        file.writelines(parts)


@contextmanager
def replacing(path: Path, *, private: bool = True) -> Iterator[IO[bytes]]:
    """Open a new file, which replaces a file atomically at the end of the block, unless the block fails."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        with os.fdopen(os.open(draft, _NEW_FILE, 0o600 if private else 0o666), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    sync_directory(path.parent)


@contextmanager
def staging(directory: Path) -> Iterator[Path]:
    """Yield a new directory; at the end of the block, its files move to `directory`, which may have others.

    Raise `InvalidArgument` if a link is in the way: the directory may come from a repository of others, and
    the link would lead a file elsewhere.
    """
    from shutil import rmtree
    from tempfile import mkdtemp

    refuse_link(directory)
    directory.mkdir(parents=True, exist_ok=True)
    for left in directory.glob(f"{_STAGING}*"):  # a killed process left it
        if not left.is_symlink():
            rmtree(left, ignore_errors=True)
    # Inside, because files cannot move to another file system, such as a mounted directory.
    draft = Path(mkdtemp(prefix=_STAGING, dir=directory))
    try:
        yield draft
        files = sorted(path.relative_to(draft) for path in draft.rglob("*") if path.is_file())
        for file in files:
            for path in (*reversed(file.parents), file):
                refuse_link(directory / path)
        for file in files:
            (directory / file).parent.mkdir(parents=True, exist_ok=True)
            os.replace(draft / file, directory / file)
    finally:
        rmtree(draft, ignore_errors=True)


def refuse_link(path: Path) -> None:
    """Raise `InvalidArgument` if a path is a link."""
    if path.is_symlink():
        raise InvalidArgument(
            f"{path} is a link to {path.readlink()}, and nothing is written through links",
            hint="Remove the link, or choose another directory.",
        )


def read_limited(path: Path, limit: int) -> bytes:
    """Read a regular file; raise `ValueError` if it is larger than a limit or not a regular file."""
    # Without O_NONBLOCK, opening a pipe would wait for a writer.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("it is not a regular file")
        data = file.read(limit + 1)
    if len(data) > limit:
        raise ValueError(f"it is larger than {limit >> 10} KiB")
    return data


def read_text(path: Path, max_bytes: int, hint: str = "Check the path.") -> str:
    """Read a UTF-8 text file of limited size; `hint` is for a file that cannot be read."""
    try:
        with path.open("rb") as stream:
            data = stream.read(max_bytes + 1)
    except (OSError, ValueError) as error:  # a path with a NUL byte is a ValueError
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise InvalidArgument(f"{path} cannot be read: {reason}", hint=hint) from error
    if len(data) > max_bytes:
        message = f"{path} is larger than {max_bytes // 1_000_000} MB"
        raise InvalidArgument(message, hint="Split it into several files.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"{path}, byte {error.start + 1}: not UTF-8 text"
        raise InvalidArgument(message, hint="Save the file as UTF-8.") from error


def sync_directory(path: Path) -> None:
    """Flush a directory's entries to disk, on systems that support it."""
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
    """Hash a file, or return the cached hash if the file's size and modification time are the same.

    A cached hash is used for a day: a damaged disk changes neither size nor time.
    """
    status = path.stat()
    signature = [status.st_size, status.st_mtime_ns, status.st_ino]
    with suppress(OSError, ValueError, TypeError):
        cached = json.loads(cache.read_text("utf-8"))
        recent = abs(time.time() - cache.stat().st_mtime) < VERIFIED_SECONDS  # clocks can be set back
        if recent and cached["path"] == str(path) and cached["signature"] == signature:
            return str(cached["sha256"])
    digest = sha256(path)
    with suppress(OSError):  # without a writable home, the file is hashed at each start
        cache.parent.mkdir(mode=0o700, exist_ok=True)  # not `parents`: a dry run must not create the home
        replace_text(cache, json.dumps({"path": str(path), "signature": signature, "sha256": digest}))
    return digest


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn errors of the file system into `StorageError`."""
    try:
        yield
    except RectoError:
        raise
    except OSError as error:
        raise disk_error(error, path) from error


def disk_error(error: OSError, path: Path) -> StorageError:
    """Return the `StorageError` for an error in RECTO_HOME: which path, what is missing, what to do."""
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return StorageError(f"{path} is not a directory", hint="Set RECTO_HOME to a directory of your own.")
    culprit = error.filename or path
    return StorageError(
        f"{culprit} cannot be used: {error.strerror or error}",
        hint=f"{disk_advice(error, path)}, or set RECTO_HOME to another directory.",
    )


def disk_advice(error: OSError, path: Path, needed: Iterable[str] = _PERMISSIONS) -> str:
    """Return what to do about an error of the file system; `needed` are the permissions that are needed."""
    if error.errno in _FULL:
        return "Free some space there"
    culprit = Path(os.fsdecode(error.filename or path)).absolute()
    if error.errno == errno.EISDIR:
        return f"Move {culprit} away, because a file belongs there"
    if error.errno not in _DENIED:
        return "Check the path and the disk"
    there = next(path for path in (culprit, *culprit.parents) if os.path.exists(path))  # noqa: PTH110 - never raises
    kinds = [name for name in needed if name != "search" or there.is_dir()]
    missing = " and ".join(name for name in kinds if not os.access(there, _PERMISSIONS[name]))
    return f"Give yourself {missing or 'every'} permission for {there}"


def write_file(path: Path, text: str) -> None:
    """Replace a file atomically, or raise a `StorageError`."""
    try:
        replace_text(path, text, private=False)
    except OSError as error:
        raise not_written(error, path) from error


def not_written(error: OSError, path: Path) -> StorageError:
    """Return the error for a file that cannot be written."""
    return StorageError(
        f"{path} cannot be written: {error.strerror or error}", hint=f"{disk_advice(error, path)}."
    )


@contextmanager
def export_errors(directory: Path) -> Iterator[None]:
    """Turn errors of the file system into a `StorageError` about the directory of an export."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"Cannot write to {directory}: {error.strerror or error}",
            hint=f"{disk_advice(error, directory)}, or choose another directory.",
        ) from error


def read_problem(error: OSError) -> str:
    """Return why a file of a book cannot be read, and what to do about it."""
    reason = error.strerror or str(error)
    return f"{reason} (give yourself permission to read it)" if error.errno in _DENIED else reason


class WriterLock:
    """Lock a file exclusively, and release the lock when the process ends.

    If another process has the lock, raise `StoreBusy`, or wait for it if `wait` is set. `wait` is called
    once, with a message that names the other process.
    """

    def __init__(self, path: Path, what: str, wait: Callable[[str], None] | None = None) -> None:
        self._path = path
        self._what = what
        self._wait = wait
        self._descriptor: int | None = None

    def __enter__(self) -> Self:
        """Take the lock."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        notified = False
        while not _try_lock(descriptor):
            message = f"{self._what} is being written by process {_holder(descriptor) or '(unknown)'}"
            if self._wait is None:
                os.close(descriptor)
                raise StoreBusy(
                    message,
                    hint="Wait until it has finished and try again; readers keep the old index until then. "
                    "Nothing was changed.",
                )
            if not notified:
                self._wait(f"{message}: waiting for it")
                notified = True
            time.sleep(_POLL_SECONDS)
        with suppress(OSError):  # on a full disk, others cannot see who has the lock
            os.ftruncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, str(os.getpid()).encode("ascii"))
        self._descriptor = descriptor
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the lock but keep its file: otherwise two writers could lock two files of one name."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


if sys.platform == "win32":
    import msvcrt

    _LOCKED_BYTE = 1 << 20  # beyond the process id, which others can then still read

    def _try_lock(descriptor: int) -> bool:
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def lock_holder(path: Path) -> str:
    """Return the id of the process that has a lock; "" if it is free."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return "" if _try_lock(descriptor) else _holder(descriptor) or "(unknown)"
    finally:
        os.close(descriptor)


def _holder(descriptor: int) -> str:
    """Return the id of the process that has the lock."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    return os.read(descriptor, 32).decode("ascii", "replace").strip()
