"""Backups of embedded indexes: whole during publishes, safe against hostile archives; other formats."""

from __future__ import annotations

import errno
import hashlib
import json
import multiprocessing
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pytest

from recto.errors import (
    CollectionMissing,
    FormatMismatch,
    IndexDamaged,
    InvalidArgument,
    RectoError,
    StorageError,
    StoreBusy,
)
from recto.stores.edge import EdgeStore, backup, layout
from recto.testing.parts import chunk, publish
from tests.running import wait_until


@pytest.fixture
def archive(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(template / "books.recto", tmp_path))


@pytest.fixture
def other(tmp_path: Path) -> EdgeStore:
    """Return a store with an empty home."""
    return EdgeStore(tmp_path / "other")


def test_an_archive_is_small_and_private(store: EdgeStore, tmp_path: Path) -> None:
    file = tmp_path / "books.recto"
    store.backup("books", file)
    logical = sum(path.stat().st_size for path in tmp_path.rglob("gen-*/**/*") if path.is_file())
    assert file.stat().st_size < 4 << 20 < 32 << 20 < logical, "holes are not stored"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not list(tmp_path.glob(".*")), "no temporary file is left"
    with ZipFile(file) as unzipped:  # any tool for ZIP files can look into it
        assert unzipped.testzip() is None


def test_a_backup_does_not_depend_on_the_clock(
    store: EdgeStore, other: EdgeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine without a battery starts in 1970, which a ZIP file cannot state."""
    monkeypatch.setattr(time, "localtime", lambda *_: time.gmtime(0))
    target = tmp_path / "b.recto"
    assert store.backup("books", target).chunks == other.restore(target).chunks


def test_a_replaced_index_is_kept_and_an_alias_is_not_taken_over(archive: Path, store: EdgeStore) -> None:
    """Otherwise an archive of someone else could replace the book behind a default name."""
    publish(store, "books", [chunk(1)])
    assert store.restore(archive, replace=True).generation == "gen-000003"
    assert store.rollback("books").chunks == 1
    forge(archive, {**read_header(archive), "collection": "library"})
    with pytest.raises(InvalidArgument, match="'library' exists already"):
        store.restore(archive)
    assert store.aliases() == {"library": "books"}


def damage(home: Path) -> Path:
    """Change a byte of a file, and return its path."""
    file = next(home.rglob("chunk_0.mmap"))
    with file.open("r+b") as opened:
        opened.write(b"\x01")
    return file


def test_backups_that_cannot_be_made(store: EdgeStore, home: Path, tmp_path: Path) -> None:
    damage(home)
    with pytest.raises(IndexDamaged, match="does not match"):
        store.backup("books", tmp_path / "x.recto")
    assert not (tmp_path / "x.recto").exists()
    assert not list(tmp_path.glob(".*"))
    with pytest.raises(StorageError, match=r"missing/x\.recto cannot be written"):
        store.backup("books", tmp_path / "missing" / "x.recto")


def test_an_unreadable_file(store: EdgeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(size: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(backup, "FileDigest", broken)
    with pytest.raises(StorageError, match=r"gen-000001/.* cannot be read: Input/output error") as caught:
        store.backup("books", tmp_path / "x.recto")
    assert "x.recto" not in str(caught.value)
    assert not list(tmp_path.glob("*.recto"))


def test_a_missing_file_is_damage_unless_the_index_is_replaced_meanwhile(
    store: EdgeStore, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    next(home.rglob("chunk_0.mmap")).unlink()
    with pytest.raises(IndexDamaged, match=r"chunk_0\.mmap"):
        store.backup("books", tmp_path / "x.recto")

    def replaced(*_: object) -> None:
        publish(EdgeStore(home), "books", [chunk(1)])
        raise IndexDamaged("A file is missing")

    monkeypatch.setattr(backup, "_TRIES", 2)
    monkeypatch.setattr(backup, "_write_archive", replaced)
    with pytest.raises(StoreBusy, match="replaced again and again"):
        store.backup("books", tmp_path / "x.recto")


def read_header(archive: Path) -> dict[str, Any]:
    with ZipFile(archive) as file:
        header: dict[str, Any] = json.loads(file.read("recto.json"))
    return header


def forge(archive: Path, header: object, files: Mapping[str, bytes] | None = None, without: str = "") -> None:
    """Replace the header and some files of an archive, and correct its checksum, as an attacker does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the new files have the same names, and count
        with ZipFile(archive, "a") as file:
            file.writestr("recto.json", json.dumps(header))
            for name, data in (files or {}).items():
                file.writestr(f"files/{name}", data, ZIP_DEFLATED)
            file.filelist[:] = [info for info in file.filelist if info.filename != f"files/{without}"]
    data = archive.read_bytes()[:-64]
    archive.write_bytes(data + hashlib.sha256(data + b"0" * 64).hexdigest().encode())


def signed(manifest: dict[str, Any]) -> str:
    manifest.pop("checksum", None)
    checksum = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    return json.dumps({**manifest, "checksum": checksum})


Change = Callable[[dict[str, Any]], None]


def with_manifest(**changes: object) -> Change:
    return lambda header: header["content"].update(
        manifest=signed({**json.loads(header["content"]["manifest"]), **changes})
    )


def with_size(size: object) -> Change:
    return lambda header: header["files"].update({next(iter(header["files"])): size})


def with_header(**changes: object) -> Change:
    return lambda header: header.update(changes)


def with_content(**changes: object) -> Change:
    return lambda header: header["content"].update(changes)


def with_wrong_source(header: dict[str, Any]) -> None:
    fingerprint = json.loads(header["content"]["manifest"])["fingerprint"]
    with_manifest(fingerprint={**fingerprint, "source": ["a"]})(header)


HOSTILE: list[tuple[Change, str]] = [
    *((with_size(size), "too large for an archive of") for size in (1 << 40, 1 << 80)),
    *((with_size(size), "impossible size") for size in (-1, "1")),
    (with_size(0), "does not match the manifest"),
    *(
        (change, "usable collection name")
        for change in (with_header(collection="../x"), with_header(aliases=["/"]))
    ),
    (with_header(files={str(n): 0 for n in range(10_001)}), "too many files"),
    (with_header(files={}), "differ from the list"),
    *((change, "is damaged") for change in (with_header(content=[]), with_content(manifest=None))),
    (with_content(calibration={"x": 1}), "is damaged"),
    (with_manifest(chunks=7), "its manifest says 7"),
    *((change, "has the wrong type") for change in (with_manifest(chunks="50"), with_wrong_source)),
]
OTHERS: list[tuple[Change, str]] = [
    (with_header(kind="server"), "not an embedded index"),
    (with_manifest(format=99), "a newer version"),
    (with_manifest(format=1), "an older version"),
]


@pytest.mark.parametrize(
    ("change", "message", "expected"),
    [*((*case, IndexDamaged) for case in HOSTILE), *((*case, FormatMismatch) for case in OTHERS)],
)
def test_a_hostile_archive_changes_nothing(
    archive: Path, store: EdgeStore, tmp_path: Path, change: Change, message: str, expected: type[RectoError]
) -> None:
    header = read_header(archive)
    change(header)
    forge(archive, header)
    before = listing(tmp_path)
    with pytest.raises(expected, match=message) as caught:
        store.restore(archive, replace=True)
    assert caught.value.hint
    assert listing(tmp_path) == before


@pytest.mark.parametrize(
    "path",
    ["../../evil", "/tmp/evil", "a/./b", "..\\evil", "C:evil", "evil\x1b[2J", "segments", "a/" * 600 + "b"],
)
def test_files_are_written_into_the_collection_only(
    archive: Path, store: EdgeStore, tmp_path: Path, path: str
) -> None:
    """Not above, elsewhere, in a form of other systems, or where a directory is."""
    header = read_header(archive)
    manifest, first = json.loads(header["content"]["manifest"]), next(iter(header["files"]))
    with ZipFile(archive) as file:
        data = file.read(f"files/{first}")
    for files in (header["files"], manifest["files"]):
        files[path] = files.pop(first)
    header["content"]["manifest"] = signed(manifest)
    forge(archive, header, {path: data}, without=first)
    before = listing(tmp_path)
    with pytest.raises(IndexDamaged, match="path"):
        store.restore(archive, replace=True)
    assert listing(tmp_path) == before


def test_an_archive_cannot_expand_without_limits(
    archive: Path, other: EdgeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small archive of which all checksums and digests are right restored to gigabytes."""
    header = read_header(archive)
    manifest = json.loads(header["content"]["manifest"])
    name, data = next(iter(header["files"])), b"x" * (4 << 20)
    (tmp_path / "large").write_bytes(data)
    header["files"][name] = len(data)
    manifest["files"][name] = layout.digest(tmp_path / "large")
    manifest["chunks"] = 10**9
    header["content"]["manifest"] = signed(manifest)
    forge(archive, header, {name: data})
    monkeypatch.setattr(backup, "_SMALL_INDEX", 1 << 20)
    monkeypatch.setattr(backup, "_MAX_DATA_RATIO", 0)
    with pytest.raises(IndexDamaged, match="too large for an archive of"):
        other.restore(archive)
    assert not list((tmp_path / "other").rglob("building-*"))


def listing(root: Path) -> list[str]:
    return sorted(str(path) for path in root.rglob("*"))


@pytest.mark.parametrize("share", [0.001, 0.6, 0.99999])
def test_a_damaged_archive_is_noticed(archive: Path, other: EdgeStore, share: float) -> None:
    data = bytearray(archive.read_bytes())
    at = int(len(data) * share)
    archive.write_bytes(data[:at])
    with pytest.raises((IndexDamaged, InvalidArgument)):
        other.restore(archive)
    data[at] ^= 1
    archive.write_bytes(data)
    with pytest.raises(IndexDamaged, match="checksum"):
        other.restore(archive)
    assert other.collections() == ()


def test_files_other_than_the_header_and_manifest_name_are_noticed(archive: Path, other: EdgeStore) -> None:
    """The checksum of the archive is right."""
    header = read_header(archive)
    first = next(iter(header["files"]))
    forge(archive, header, {first: b"x" * header["files"][first]})
    with pytest.raises(IndexDamaged, match=f"{first} does not match the manifest"):
        other.restore(archive)
    forge(archive, header, {"extra": b"x"})
    with pytest.raises(IndexDamaged, match="files that its header does not name"):
        other.restore(archive)
    assert other.collections() == ()


def test_other_files_are_not_archives(other: EdgeStore, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello\n")
    os.mkfifo(tmp_path / "pipe")
    with ZipFile(tmp_path / "zip", "w") as file:
        file.writestr("other.json", "{}")
    for name in ("text", "pipe", "zip", "missing", "."):
        with pytest.raises(InvalidArgument, match="not an archive|not a file"):
            other.restore(tmp_path / name)


@pytest.mark.parametrize(("format", "age"), [(1, "an older"), (3, "a newer")])
def test_archives_of_other_versions_are_named(archive: Path, other: EdgeStore, format: int, age: str) -> None:
    forge(archive, {**read_header(archive), "format": format})
    with pytest.raises(FormatMismatch, match=f"{age} version of Recto"):
        other.restore(archive)


def set_format(home: Path, format: int, generation: str = "gen-000001") -> None:
    path = home / "collections" / "books" / f"{generation}.json"
    path.write_text(signed({**json.loads(path.read_text()), "format": format}))


def write_all_the_time(home: Path, ready: Event, stop: Event) -> None:
    """Publish, roll back and delete in turn."""
    store, number = EdgeStore(home), 0
    while not stop.is_set():
        number += 1
        publish(store, "books", [chunk(index, text=f"edition {number}") for index in range(10)])
        if number % 3 == 0:
            with suppress(CollectionMissing):  # there is no earlier one after a deletion
                store.rollback("books")
        if number % 7 == 0:
            store.delete("books")
        ready.set()


@pytest.mark.parametrize("count", [3, pytest.param(50, marks=pytest.mark.long)])
def test_a_backup_during_publishes_is_whole(home: Path, tmp_path: Path, count: int) -> None:
    context = multiprocessing.get_context("spawn")
    ready, stop = context.Event(), context.Event()
    writer = context.Process(target=write_all_the_time, args=(home, ready, stop))
    writer.start()
    try:
        wait_until(ready.is_set, 120)
        created, seen = 0, set()
        while created < count:
            path = tmp_path / f"{created}.recto"
            try:
                EdgeStore(home).backup("books", path)
            except CollectionMissing:
                continue
            created += 1
            restored = EdgeStore(tmp_path / f"home-{created}")
            restored.restore(path)
            texts = [one.text for one in restored.open("books").scroll()]
            assert len(texts) == 10
            assert len(set(texts)) == 1, "one edition, not parts of two"
            seen |= set(texts)
            shutil.rmtree(tmp_path / f"home-{created}")
            path.unlink()
        assert writer.is_alive()
    finally:
        stop.set()
        writer.join(120)
    assert writer.exitcode == 0
    assert len(seen) > 1


def test_a_generation_of_another_version_is_kept(store: EdgeStore, home: Path) -> None:
    set_format(home, 3)
    publish(store, "books", [chunk(1)])
    assert [one.name for one in store.generations("books")] == ["gen-000002", "gen-000001"]
    with pytest.raises(FormatMismatch):
        store.rollback("books")
    assert store.open("books").count() == 1


def test_a_fingerprint_with_new_fields_is_read(store: EdgeStore, home: Path) -> None:
    """A newer version may add a field without a new format."""
    path = home / "collections" / "books" / "gen-000001.json"
    manifest = json.loads(path.read_text())
    manifest["fingerprint"]["future"] = 1
    manifest["fingerprint"]["embedder"]["future"] = 1
    path.write_text(signed(manifest))
    assert EdgeStore(home).open("books").count() == 50


def test_as_many_generations_are_kept_as_asked_for(home: Path) -> None:
    store = EdgeStore(home, keep_generations=2)
    for number in range(1, 5):
        publish(store, "books", [chunk(index) for index in range(number)])
    result = store.generations("books")
    listed = [(one.name[-1], one.chunks, one.current) for one in result]
    assert listed == [("4", 4, True), ("3", 3, False), ("2", 2, False)]
    assert all(one.bytes and one.created_at for one in result)
    assert store.rollback("books", "gen-000002").chunks == 2
    assert store.rollback("books", "gen-000003").chunks == 3, "forward again"
    with pytest.raises(CollectionMissing, match="gen-000001"):
        store.rollback("books", "gen-000001")
    publish(store, "books", [chunk(1)])
    assert [one.name[-1] for one in store.generations("books")] == ["5", "3", "2"], "4 was skipped"
    assert store.rollback("books").chunks == 3


RESTORE = """
import os, signal, sys
from pathlib import Path
from recto.stores.edge import EdgeStore, layout
layout.CollectionDirectory.{step} = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
EdgeStore(Path(sys.argv[1])).restore(Path(sys.argv[2]))
"""


@pytest.mark.parametrize("step", ["publish", "set_current"])
def test_the_next_command_completes_a_killed_restore(archive: Path, tmp_path: Path, step: str) -> None:
    home = tmp_path / "other"
    killed = subprocess.run([sys.executable, "-c", RESTORE.format(step=step), home, archive], check=False)
    assert killed.returncode == -signal.SIGKILL
    other = EdgeStore(home)
    assert other.open("books").info.warnings == ()
    assert other.generations("books")[0].current
    (home / "collections" / "books" / "CURRENT").unlink()
    assert EdgeStore(home).open("books").info.warnings, "a lost pointer is not a killed restore"
