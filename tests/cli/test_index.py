"""`recto index`, `collections` and `rollback`, with damage, interruptions and full disks."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from recto._util.files import WriterLock
from tests.running import (
    SAMPLE_DOCS,
    Done,
    copy_home,
    recto,
    retrieve,
    retrieve_process,
    run,
    start,
    wait_until,
)

MODULE = SAMPLE_DOCS / "docs" / "module-1-ros2"


def garden(book: Path) -> tuple[str, ...]:
    return ("index", str(book), "--collection", "garden")


def test_index_search_and_list(home: Path, small_book: Path) -> None:
    done = recto(home, *garden(small_book))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Indexed 4 pages as 4 chunks into 'garden' (gen-000001) in ")
    modules = {" ".join(line.split()) for line in done.stdout.splitlines()[-5:-2]}
    assert modules == {"garden 2 2 Garden", "kitchen 1 1 Kitchen", "intro 1 1 Introduction"}
    data = json.loads(recto(home, "search", "compost", "--collection", "garden", "--json").stdout)
    assert data["results"][0]["page_url"] == "local://docs/docs/module-1-garden/01-soil"
    (row,) = json.loads(recto(home, "collections", "--json").stdout)
    assert (row["collection"], row["chunks"], row["pages"], row["aliases"]) == ("garden", 4, 4, [])
    assert "4 chunks of 4 pages" in recto(home, "collections").stdout
    (small_book / "bad.md").write_bytes(b"\xff")
    done = recto(home, *garden(small_book), "--rebuild", "--json")
    assert done.returncode == 1
    assert "[WARNING] Left out bad.md: not UTF-8" in done.stderr
    data = json.loads(done.stdout)
    assert (data["pages"], data["chunks"], data["failed"]) == (4, 4, ["bad.md: not UTF-8 (byte 0)"])
    assert data["fingerprint"]["embedder"]["dim"] == 384


def named_book(tmp_path: Path, name: str, text: str) -> Path:
    book = tmp_path / name
    (book / "docs").mkdir(parents=True)
    (book / "docs" / "page.md").write_text(f"# Page\n\n{text}\n")
    return book


def test_a_book_without_a_name_is_named_after_its_directory(home: Path, tmp_path: Path) -> None:
    garden = named_book(tmp_path, "My Garden", "Sow beans.")
    kitchen = named_book(tmp_path, "k", "Bake bread.")
    assert recto(home, "index", str(garden / "docs")).returncode == 0
    assert [row["collection"] for row in listed(home)] == ["my-garden"]
    assert listed(home)[0]["aliases"] == []
    assert "Sow beans" in recto(home, "search", "beans").stdout, "it is the only collection"
    missing = retrieve(home, "beans")
    assert missing.returncode == 2
    assert "Collection 'physical-ai-book' does not exist" in missing.stderr
    assert "my-garden" in missing.stderr
    assert recto(home, "index", str(kitchen), "--collection", "kitchen").returncode == 0
    several = recto(home, "search", "beans")
    assert several.returncode == 2
    assert "There are 2 collections: kitchen, my-garden" in several.stderr
    assert "--collection" in several.stderr
    assert recto(home, "search", "bread", COLLECTION_NAME="kitchen").returncode == 0
    other = named_book(tmp_path / "elsewhere", "My Garden", "Dig a pond.")
    refused = recto(home, "index", str(other / "docs"))
    assert refused.returncode == 4
    assert "Collection 'my-garden' already has another book" in refused.stderr
    assert recto(home, "index", str(garden / "docs")).returncode == 0, "the same book again"


def test_the_sample_book_is_the_default_until_a_book_is_indexed(sample_home: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    copy_home(sample_home, home)
    assert json.loads(recto(home, "search", "robot", "--json").stdout)["results"]
    book = named_book(tmp_path, "garden", "Sow beans.")
    assert recto(home, "index", str(book)).returncode == 0
    assert "Sow beans" in recto(home, "search", "beans").stdout
    assert "ros2" in retrieve(home, "What is ROS 2?").stdout, "the name of the document is the sample book"


def listed(home: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(recto(home, "collections", "--json").stdout)
    return rows


def test_delete(home: Path, small_book: Path) -> None:
    assert recto(home, *garden(small_book)).returncode == 0
    (home / "journal").mkdir(exist_ok=True)
    (home / "journal" / "garden.vectors").write_bytes(b"left by a killed run")
    done = recto(home, "delete", "garden", "--yes")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Deleted 'garden' with ")
    assert not [path for path in home.rglob("*garden*") if path.is_file()]
    assert "garden" not in recto(home, "collections").stdout


def test_rollback(home: Path, small_book: Path) -> None:
    recto(home, *garden(small_book))
    shutil.rmtree(small_book / "module-2-kitchen")
    recto(home, *garden(small_book))
    assert "Bread" not in recto(home, "search", "dough", "--collection", "garden").stdout
    done = recto(home, "rollback", "garden")
    assert done.returncode == 0
    assert "gen-000001" in done.stdout
    assert "Bread" in recto(home, "search", "dough", "--collection", "garden").stdout
    assert recto(home, "rollback", "garden").returncode == 2


@pytest.mark.long
def test_first_run_indexes_the_sample_book_once(home: Path) -> None:
    """Of three processes at the same time, one indexes and all get results."""
    with ThreadPoolExecutor(3) as pool:
        query = ("What is ROS 2?", "--json")
        results = list(pool.map(lambda _: retrieve_process(home, *query), range(3)))
    assert [done.returncode for done in results] == [0, 0, 0]
    assert all(json.loads(done.stdout)["total_found"] == 5 for done in results)
    for words, count in (("First run", 1), ("chunks", 1), ("waiting for it", 2)):
        assert sum(words in done.stderr for done in results) == count, words
    assert [path.name for path in (home / "collections").iterdir()] == ["recto-sample"]


def test_two_writers(home: Path, small_book: Path) -> None:
    recto(home, *garden(small_book))
    with WriterLock(home / "collections" / "garden" / "LOCK", "garden"):
        done = recto(home, *garden(small_book), "--rebuild")
        assert (done.returncode, done.stdout) == (4, "")
        assert f"is being written by process {os.getpid()}" in done.stderr
        assert recto(home, "search", "dough", "--collection", "garden").returncode == 0, "the old index"
    assert recto(home, *garden(small_book), "--rebuild").returncode == 0


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_signals_while_indexing(home: Path, small_book: Path, sign: signal.Signals) -> None:
    recto(home, *garden(small_book))
    program = start(home, *garden(MODULE))
    wait_until(lambda: list((home / "journal").glob("*")), 120)
    program.send_signal(sign)
    output, _ = program.communicate(timeout=60)
    assert program.returncode != 0
    assert "Traceback" not in output
    data = json.loads(recto(home, "search", "dough", "--collection", "garden", "--json").stdout)
    assert data["results"][0]["title"] == "Bread"
    assert recto(home, *garden(small_book)).returncode == 0
    wait_until(lambda: not list((home / "collections" / "garden").glob("building-*")))


def test_a_damaged_index_is_repaired(home: Path, small_book: Path) -> None:
    recto(home, *garden(small_book))
    victim = next((home / "collections" / "garden" / "gen-000001").rglob("chunk_0.mmap"))
    with victim.open("r+b") as file:
        file.write(b"\x00\x01\x02\x03")
    done = recto(home, "search", "dough", "--collection", "garden")
    assert (done.returncode, done.stdout) == (3, "")
    assert "damaged" in done.stderr
    assert "recto index PATH --collection garden" in done.stderr
    (row,) = json.loads(recto(home, "collections", "--json").stdout)
    assert "damaged" in row["error"]
    assert recto(home, *garden(small_book)).returncode == 0
    assert recto(home, "search", "dough", "--collection", "garden").returncode == 0


def test_a_damaged_index_falls_back_to_the_old_one(home: Path, small_book: Path) -> None:
    for _ in range(2):
        recto(home, *garden(small_book), "--rebuild")
    shutil.rmtree(home / "collections" / "garden" / "gen-000002")
    done = recto(home, "search", "dough", "--collection", "garden")
    assert done.returncode == 0
    assert done.stderr.startswith("[WARNING] The index of 'garden' is damaged")
    assert "Bread" in done.stdout
    recto(home, *garden(small_book))
    kept = {path.name for path in (home / "collections" / "garden").glob("gen-*.json")}
    assert kept == {"gen-000001.json", "gen-000003.json"}, "a repair keeps the last good index"
    assert "gen-000001" in recto(home, "rollback", "garden").stdout


def test_an_unusable_home(tmp_path: Path, small_book: Path) -> None:
    (tmp_path / "file").touch()
    for home in (tmp_path / "file", tmp_path / "file" / "below"):
        for done, code in ((retrieve(home, "robot"), 3), (recto(home, "index", str(small_book)), 4)):
            assert (done.returncode, done.stdout) == (code, "")
            assert done.stderr.startswith("[ERROR] Storage error: ")
            assert "RECTO_HOME" in done.stderr


@pytest.mark.skipif(
    os.name != "posix" or os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root"
)
def test_the_home_of_another_user(tmp_path: Path, small_book: Path) -> None:
    """Run as another user: a readable home works, another is an error."""
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, "-m", "recto"]
    home = Path(f"/tmp/recto-test-{os.getpid()}")

    def as_nobody(*arguments: str) -> Done:
        return run([*nobody, *arguments], home, "/", HOME="/tmp")

    try:
        recto(home, *garden(small_book))
        for path in (home, *home.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        if as_nobody("--version").returncode:
            pytest.skip("other users cannot read the test environment")
        done = as_nobody("search", "dough", "--collection", "garden")
        assert done.returncode == 0, done.stderr
        assert "Bread" in done.stdout
        home.chmod(0o700)
        done = as_nobody("search", "dough", "--collection", "garden")
        assert done.returncode == 3
        assert "Permission denied" in done.stderr
    finally:
        shutil.rmtree(home, ignore_errors=True)


def test_broken_files_are_reported_and_the_rest_is_indexed(home: Path, small_book: Path) -> None:
    os.mkfifo(small_book / "pipe.md")
    (small_book / "endless.md").symlink_to("/dev/zero")
    (small_book / "outside.md").symlink_to("/etc/passwd")
    (small_book / "inside.md").symlink_to(small_book / "welcome.md")
    (small_book / "self.md").symlink_to(small_book / "self.md")
    (small_book / "loop").symlink_to(small_book, target_is_directory=True)
    (small_book / "large.md").write_bytes(b"# Large\n" + bytes(5 << 20))
    (small_book / "latin.md").write_bytes("# Café\n\nGrüße\n".encode("latin-1"))
    Path(os.fsdecode(os.fsencode(small_book) + b"/caf\xe9.md")).write_text("# Name\n\ntext\n")
    (small_book / "UPPER.MD").write_text("# Upper\n\nThe extension in capitals.\n")
    (small_book / "nested.md").write_text("- " * 2_000 + "deep\n\n" + "> " * 2_000 + "quoted\n")
    (small_book / "pictures.md").write_text("![](a.png)\n\n<img src='b.png' />\n")
    done = recto(home, *garden(small_book), "--json")
    assert done.returncode == 1
    data = json.loads(done.stdout)
    names = sorted(failure.split(":")[0] for failure in data["failed"])
    assert len(names) == 7
    assert {"endless.md", "large.md", "latin.md", "outside.md", "pipe.md", "self.md"} < set(names)
    reasons = " ".join((*data["failed"], *data["notes"]))
    for words in (
        "not a regular file",
        "link that leaves the book",
        "it has 5.0 MiB, and the limit is 2 MiB",
        "its name is not UTF-8",
        "pictures.md has no text",
        "loop/ is a symbolic link to a directory",
    ):
        assert words in reasons
    search = ("search", "--collection", "garden", "--verbose", "--top-k", "20")
    assert "deep" in recto(home, *search, "deep nesting").stdout
    assert "Bread" in recto(home, *search, "dough").stdout


def test_a_damaged_pointer_is_not_a_first_run(home: Path, small_book: Path) -> None:
    book = ("index", str(small_book), "--collection", "physical-ai-book")
    recto(home, *book)
    pointer = home / "collections" / "physical-ai-book" / "CURRENT"
    for spoil in (pointer.unlink, pointer.mkdir):
        spoil()
        done = retrieve(home, "dough")
        assert (done.returncode, "Bread" in done.stdout) == (0, True)
        assert done.stderr.startswith("[WARNING]")
        assert "First run" not in done.stderr
        listed = recto(home, "collections")
        assert "[WARNING]" in listed.stderr
    assert recto(home, *book).returncode == 0
    assert retrieve(home, "dough").stderr == ""


@pytest.mark.long
def test_the_sample_book_takes_no_aliases_of_others(home: Path, small_book: Path) -> None:
    done = recto(home, "index", str(small_book), "--collection", "website_embeddings")
    assert done.returncode == 0
    assert recto(home, "index", "--sample").returncode == 0
    rows = {row["collection"]: row["aliases"] for row in listed(home)}
    assert rows["recto-sample"] == ["humanoid_robotics_book", "physical-ai-book", "rag_embedding"]
    assert rows["website_embeddings"] == []
    assert "Bread" in retrieve(home, "dough", COLLECTION_NAME="website_embeddings").stdout


@pytest.mark.parametrize("text", ["{bad", "[]"])
def test_damaged_aliases_stop_the_run(home: Path, small_book: Path, text: str) -> None:
    recto(home, *garden(small_book))
    (home / "aliases.json").write_text(text)
    done = recto(home, *garden(small_book))
    assert done.returncode == 4
    assert "aliases.json is damaged" in done.stderr
    assert not (home / "collections" / "garden" / "gen-000002.json").exists()
    assert recto(home, "collections").returncode == 3
    (home / "aliases.json").unlink()
    assert recto(home, *garden(small_book)).returncode == 0


def test_modules_in_the_directory_are_not_imported(home: Path, small_book: Path, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    for name in ("random.py", "array.py", "json.py"):
        (tmp_path / "work" / name).write_text("raise SystemExit('run')\n")
    program = str(Path(sys.executable).with_name("recto"))
    done = run([program, *garden(small_book)], home, tmp_path / "work")
    assert done.returncode == 0, done.stderr


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a small file system."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=200m", "tmpfs", str(disk)]
    mounted = subprocess.run(command, capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("needs the permission to mount")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk: Path, left: int = 0) -> None:
    with (disk / "filler").open("wb", buffering=0) as file, suppress(OSError):
        while not left or shutil.disk_usage(disk).free > left:
            file.write(bytes(1 << 16))


def test_a_full_disk(tiny_disk: Path, small_book: Path) -> None:
    home = tiny_disk / "home"
    assert recto(home, *garden(small_book)).returncode == 0
    fill(tiny_disk)
    done = recto(home, "search", "dough", "--collection", "garden")
    assert done.returncode == 0, done.stderr
    assert "Bread" in done.stdout, "the old index still works"
    done = recto(home, *garden(small_book), "--rebuild")
    assert (done.returncode, done.stdout) == (4, "")
    assert "disk is full" in done.stderr.lower() or "No space left" in done.stderr
    (tiny_disk / "filler").unlink()
    assert recto(home, "search", "dough", "--collection", "garden").returncode == 0
    assert recto(home, *garden(small_book)).returncode == 0
    archive = tiny_disk.parent / "garden.recto"
    assert recto(home, "backup", "garden", "--output", str(archive)).returncode == 0
    fill(tiny_disk, 20 << 20)
    done = recto(home, "restore", str(archive), "--collection", "copy")
    assert done.returncode == 0, done.stderr
    done = recto(home, "search", "dough", "--collection", "copy")
    assert "Bread" in done.stdout, "holes of mapped files have no room, so a copy elsewhere is opened"
    assert recto(home, "delete", "copy", "--yes").returncode == 0
    fill(tiny_disk)
    done = recto(home, "delete", "garden", "--yes")
    assert done.returncode == 0, done.stderr
    assert recto(home, "collections", "--json").stdout.strip() == "[]"
    assert not list(home.glob(".deleted-*"))
