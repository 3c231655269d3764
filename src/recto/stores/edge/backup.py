"""Write a generation into an archive, publish an archive as a new generation, upgrade an older generation."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import IO, Any

from recto._util.files import make_private, read_limited
from recto.errors import FormatMismatch, IndexDamaged, RectoError, StorageError, StoreBusy
from recto.protocols import Progress
from recto.stores.archive import Archive, FileBlock, Header, write_archive
from recto.stores.edge.index import open_generation
from recto.stores.edge.layout import (
    INDEX_FORMAT,
    LARGEST_MANIFEST,
    MALFORMED,
    CollectionDirectory,
    FileDigest,
    Manifest,
    can_upgrade,
    copy_tree,
    digest,
    is_hole,
    manifest_mismatch,
    migrate,
    parse_manifest,
    read_blocks,
    read_calibration,
    sync_files,
    write_blocks,
    write_calibration,
)
from recto.types.index import Calibration, GenerationInfo, IndexInfo

KIND = "embedded"
_LARGEST_RATIO = 8  # of the bytes of an index without holes to its archive; it is about 1.6
_SMALL_INDEX = 64 << 20  # bytes; smaller indexes may have any ratio
_LARGEST_HOLES = 1100  # bytes with holes of an archive's byte; compression makes at most 1032 bytes of one
_TRIES, _PAUSE = 50, 0.02  # of opening a generation while others are published; seconds between two


@dataclass(frozen=True, slots=True)
class _OpenFiles:
    """A generation with all files open, so that nobody can remove them while they are read."""

    name: str
    manifest: str
    body: dict[str, Any]
    files: dict[str, IO[bytes]]
    calibration: Calibration | None


def write_backup(
    find: Callable[[], CollectionDirectory], aliases: Iterable[str], target: Path, progress: Progress | None
) -> GenerationInfo:
    """Write the current generation into an archive. Writers are not blocked."""
    with ExitStack() as resources:
        directory, opened = _open_current(find, resources)
        header = Header(
            KIND,
            directory.path.name,
            opened.name,
            tuple(sorted(aliases)),
            {name: os.fstat(file.fileno()).st_size for name, file in opened.files.items()},
            {
                "manifest": opened.manifest,
                "calibration": opened.calibration.to_dict() if opened.calibration else None,
            },
        )
        size = write_archive(target, header, _verified_files(directory, opened, header, progress))
    created = str(opened.body.get("fingerprint", {}).get("created_at", ""))
    return GenerationInfo(opened.name, created, opened.body.get("chunks", 0), size, current=True)


def _open_current(
    find: Callable[[], CollectionDirectory], resources: ExitStack
) -> tuple[CollectionDirectory, _OpenFiles]:
    """Open all files of the current generation; try again if a writer removes it meanwhile."""
    for number in range(_TRIES):
        if number:
            time.sleep(_PAUSE)
        directory = find()
        before = directory.read_pointer()
        try:
            with ExitStack() as files:
                opened = _open_files(directory, directory.current(), files)
                resources.push(files.pop_all())
                return directory, opened
        except IndexDamaged as error:
            failure: RectoError = error
        except FileNotFoundError as error:
            failure = IndexDamaged(f"{error.filename} is missing", hint="Index the book again.")
            if directory.read_pointer() != before:
                message = f"Collection '{directory.path.name}' is being replaced again and again"
                failure = StoreBusy(message, hint="Wait until the index runs have finished.")
        except OSError as error:
            if error.errno == errno.EMFILE:
                message = "The index has more files than this process can open"
                raise StorageError(message, hint="Raise `ulimit -n`.") from error
            raise
    raise failure


def _open_files(directory: CollectionDirectory, name: str, resources: ExitStack) -> _OpenFiles:
    path, root = directory.manifest(name), directory.generation(name)
    text = read_limited(path, LARGEST_MANIFEST)
    try:
        body = parse_manifest(text)
    except MALFORMED as error:
        raise IndexDamaged(f"{path} is damaged ({error})", hint="Index the book again.") from error
    files = {file: resources.enter_context((root / file).open("rb", buffering=0)) for file in body["files"]}
    if read_limited(path, LARGEST_MANIFEST) != text:  # the collection was deleted and made again
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    return _OpenFiles(name, text.decode(), body, files, read_calibration(directory.calibration(name)))


def _verified_files(
    directory: CollectionDirectory, opened: _OpenFiles, header: Header, progress: Progress | None
) -> Iterator[Iterator[bytes]]:
    """Yield the blocks of each file; raise `IndexDamaged` at the end of one that has another digest."""
    done, total = 0, sum(header.files.values())

    def blocks(name: str, file: IO[bytes]) -> Iterator[bytes]:
        nonlocal done
        path, file_digest = directory.generation(opened.name) / name, FileDigest(header.files[name])
        try:
            for offset, block in read_blocks(file):
                file_digest.update(offset, block)
                done += len(block)
                if progress:
                    progress(done, total)
                yield block
        except OSError as error:  # not one of the archive: nothing is written here
            message = f"{path} cannot be read: {error.strerror or error}"
            raise StorageError(message, hint="Check the disk. No archive was written.") from error
        if file_digest.hexdigest() != opened.body["files"][name]:
            raise IndexDamaged(
                f"{path} does not match the manifest",
                hint=f"Run `recto doctor --collection {directory.path.name}`. No archive was written.",
            )

    return (blocks(name, file) for name, file in opened.files.items())


def restore_archive(
    archive: Archive, directory: CollectionDirectory, keep: int, progress: Progress | None
) -> IndexInfo:
    """Publish the content of an archive as a new generation; the caller must hold the lock."""
    try:
        body = parse_manifest(str(archive.header.content["manifest"]).encode())
        saved = archive.header.content["calibration"]
        calibration = Calibration.from_dict(saved) if saved is not None else None
    except MALFORMED as error:
        raise archive.damaged(f"its manifest cannot be used ({error})") from error
    if set(body["files"]) != set(archive.header.files):
        raise archive.damaged("its files differ from the list in the manifest")
    if body["format"] > INDEX_FORMAT or not can_upgrade(body["format"]):
        raise manifest_mismatch(directory.path.name, body)
    _check_space(archive, directory)
    with _draft(directory) as draft:
        try:
            _extract(archive, body, draft, progress)
        except (FileExistsError, IsADirectoryError, NotADirectoryError) as error:
            raise archive.damaged("two of its paths exclude each other") from error
        try:
            manifest = migrate(draft, body)
            _check_types(manifest)
        except MALFORMED as error:
            raise archive.damaged(f"its manifest cannot be used ({error})") from error
        try:
            return _publish(directory, draft, manifest, calibration, keep)
        except IndexDamaged as error:
            raise archive.damaged(error.message) from error


def _check_types(manifest: Manifest) -> None:
    """Raise `TypeError` if a value of a manifest has the wrong type: it may come from someone else."""
    for record in (manifest, manifest.fingerprint, manifest.fingerprint.embedder):
        for field in fields(record):
            if field.type in ("int", "str") and type(getattr(record, field.name)).__name__ != field.type:
                raise TypeError(f"{field.name} has the wrong type")


def _check_space(archive: Archive, directory: CollectionDirectory) -> None:
    """Raise an error if the disk is too small; holes take no space there, and none in the archive."""
    needed, free = archive.size, shutil.disk_usage(directory.path).free
    if needed > free:
        raise StorageError(
            f"The index in {archive.path} needs {needed >> 20} MiB, but {free >> 20} MiB are free",
            hint="Free some space, or set RECTO_HOME to another disk. Nothing was changed.",
        )


def _extract(archive: Archive, body: dict[str, Any], draft: Path, progress: Progress | None) -> None:
    """Write the files of an archive into a new directory, and compare them with their digests.

    A small archive could expand to any size, so the sizes with and without holes are bounded by its own size,
    which is the only number in it that its author cannot invent.
    """
    done, total, written = 0, sum(archive.header.files.values()), 0
    too_large = archive.damaged(f"its files are too large for an archive of {archive.size} bytes")
    if total > 16 * _SMALL_INDEX + _LARGEST_HOLES * archive.size:
        raise too_large

    def bounded(blocks: Iterator[FileBlock]) -> Iterator[FileBlock]:
        nonlocal written
        for offset, block in blocks:
            written += 0 if is_hole(block) else len(block)
            if written > _SMALL_INDEX + _LARGEST_RATIO * archive.size:
                raise too_large
            yield offset, block

    draft.mkdir(mode=0o700)
    for name, size, blocks in archive.files():
        path = draft / name
        make_private(path.parent)
        if write_blocks(path, size, bounded(blocks)) != body["files"][name]:
            raise archive.damaged(f"{name} does not match the manifest")
        done += size
        if progress:
            progress(done, total)


def upgrade_current(directory: CollectionDirectory, keep: int) -> IndexInfo | None:
    """Publish an upgraded copy of the current generation, or return None if it needs no upgrade.

    The caller must hold the lock. Raise `FormatMismatch` if the book must be indexed again.
    """
    name = directory.current()
    try:
        directory.verify(name)
    except FormatMismatch:
        body = parse_manifest(read_limited(directory.manifest(name), LARGEST_MANIFEST))
        if body["format"] > INDEX_FORMAT or not can_upgrade(body["format"]):
            raise
    else:
        return None
    root = directory.generation(name)
    for file, expected in body["files"].items():
        try:
            is_intact = digest(root / file) == expected
        except FileNotFoundError as error:
            raise IndexDamaged(f"{root / file} is missing", hint="Index the book again.") from error
        if not is_intact:
            raise IndexDamaged(f"{root / file} does not match the manifest", hint="Index the book again.")
    calibration = read_calibration(directory.calibration(name))
    with _draft(directory) as draft:
        copy_tree(root, draft)
        return _publish(directory, draft, migrate(draft, body), calibration, keep)


def _publish(
    directory: CollectionDirectory,
    draft: Path,
    manifest: Manifest,
    calibration: Calibration | None,
    keep: int,
) -> IndexInfo:
    """Make a draft the current generation, if the engine can open it."""
    sync_files(draft)
    name = directory.add_generation(draft, manifest)
    try:
        if calibration is not None:
            write_calibration(directory.calibration(name), calibration)
        info = open_generation(directory, directory.path.name, name).info
        for path in directory.generation(name).rglob("*"):  # the engine has written some of them anew
            path.chmod(0o700 if path.is_dir() else 0o600)
    except BaseException:
        directory.remove_generation(name)
        raise
    directory.publish(name, keep)
    return info


@contextmanager
def _draft(directory: CollectionDirectory) -> Iterator[Path]:
    directory.remove_drafts()
    draft = directory.new_draft()
    try:
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)
