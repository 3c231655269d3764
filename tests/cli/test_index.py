"""`recto index` and its kin, as a user runs them; and what happens when things go wrong meanwhile."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.running import ROOT, SAMPLE_DOCS, environment, recto, retrieve

HEARS_CTRL_C = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a run in the background would ignore it
from recto.cli.main import main
main()
"""


def start(home: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HEARS_CTRL_C, *arguments],
        cwd=ROOT,
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_index_search_and_list(home: Path, small_book: Path) -> None:
    done = recto(home, "index", str(small_book), "--collection", "garden")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Indexed 4 pages as 4 chunks into 'garden' (gen-000001) in ")
    assert "garden 2, kitchen 1, intro 1" in done.stdout or "Chunks per module" in done.stdout
    data = json.loads(recto(home, "search", "compost", "--collection", "garden", "--json").stdout)
    assert data["results"][0]["page_url"] == "local://docs/docs/module-1-garden/01-soil"
    (row,) = json.loads(recto(home, "collections", "--json").stdout)
    assert (row["collection"], row["chunks"], row["pages"], row["aliases"]) == ("garden", 4, 4, [])
    assert "4 chunks of 4 pages" in recto(home, "collections").stdout


def test_json_report(home: Path, small_book: Path) -> None:
    (small_book / "bad.md").write_bytes(b"\xff")
    done = recto(home, "index", str(small_book), "--collection", "garden", "--json")
    assert done.returncode == 1
    assert "[WARNING] Left out bad.md: not UTF-8" in done.stderr
    data = json.loads(done.stdout)
    assert (data["pages"], data["chunks"], data["failed"]) == (4, 4, ["bad.md: not UTF-8 (byte 0)"])
    assert data["fingerprint"]["embedder"]["dim"] == 384


def test_a_book_without_a_name_answers_to_every_default_name(home: Path, small_book: Path) -> None:
    assert recto(home, "index", str(small_book)).returncode == 0
    assert "Bread" in retrieve(home, "dough").stdout
    for name in ("humanoid_robotics_book", "website_embeddings", "rag_embedding"):
        assert "Bread" in retrieve(home, "dough", COLLECTION_NAME=name).stdout


def test_the_collection_comes_from_the_environment(home: Path, small_book: Path) -> None:
    assert recto(home, "index", str(small_book), COLLECTION_NAME="mine").returncode == 0
    assert retrieve(home, "dough", COLLECTION_NAME="mine").returncode == 0
    assert retrieve(home, "dough").returncode == 2, "another book is indexed: the sample book does not come uninvited"


def test_rollback(home: Path, small_book: Path) -> None:
    recto(home, "index", str(small_book), "--collection", "garden")
    shutil.rmtree(small_book / "module-2-kitchen")
    recto(home, "index", str(small_book), "--collection", "garden")
    assert "Bread" not in recto(home, "search", "dough", "--collection", "garden").stdout
    done = recto(home, "rollback", "garden")
    assert done.returncode == 0
    assert "gen-000001" in done.stdout
    assert "Bread" in recto(home, "search", "dough", "--collection", "garden").stdout
    assert recto(home, "rollback", "garden").returncode == 2
    assert recto(home, "rollback", "unknown").returncode == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["index"], "either the PATH of a book or --sample"),
        (["index", "docs", "--sample"], "either the PATH of a book or --sample"),
        (["index", "/no/such/place"], "does not exist"),
        (["index", "src/recto/cli"], "no .md or .mdx file"),
        (["index", "docs", "--collection", "a/b"], "--collection is not a usable collection name"),
        (["index", "--sample", "--collection", "x"], "--sample has a collection of its own"),
        (["rollback"], "COLLECTION"),
        (["nonsense"], "nonsense"),
        (["search", "x", "--top-k", "0"], "--top-k must be between 1 and 100"),
    ],
)
def test_invalid_arguments(home: Path, arguments: list[str], words: str) -> None:
    done = recto(home, *arguments)
    assert (done.returncode, done.stdout) == (4, "")
    assert words in done.stderr
    assert done.stderr.startswith("[ERROR] Invalid argument: ")


def test_nothing_is_indexed_yet(home: Path) -> None:
    done = recto(home, "collections")
    assert done.returncode == 0
    assert "recto index" in done.stdout


def test_first_run_indexes_the_sample_book_once(home: Path) -> None:
    """Three newcomers at the same moment: one indexes, all are answered."""
    programs = [
        subprocess.Popen(
            [sys.executable, "retrieve.py", "What is ROS 2?", "--json"],
            cwd=ROOT,
            env=environment(home),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    results = [program.communicate(timeout=300) for program in programs]
    assert [program.returncode for program in programs] == [0, 0, 0]
    assert all(json.loads(output)["total_found"] == 5 for output, _ in results)
    assert sum("First run" in errors for _, errors in results) == 1
    assert sum("passages" in errors for _, errors in results) == 1, "progress is shown by the one that works"
    assert sum("waiting for it" in errors for _, errors in results) == 2
    assert [path.name for path in (home / "collections").iterdir()] == ["recto-sample"]


def test_progress_on_a_terminal(home: Path, small_book: Path) -> None:
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "recto", "index", str(small_book), "--collection", "garden"]
    program = subprocess.Popen(command, cwd=ROOT, env=environment(home, TERM="xterm"), stdout=slave, stderr=slave)
    os.close(slave)
    shown = b""
    while True:
        try:
            part = os.read(master, 4096)
        except OSError:
            break
        if not part:
            break
        shown += part
    os.close(master)
    assert program.wait() == 0
    assert b"passages" in shown
    assert b"Indexed 4 pages as 4 chunks" in shown


def test_two_at_once(home: Path) -> None:
    recto(home, "index", str(SAMPLE_DOCS / "docs" / "intro.md"), "--collection", "both")
    first = start(home, "index", str(SAMPLE_DOCS), "--collection", "both")
    _wait_for(lambda: list((home / "collections" / "both").glob("building-*")))
    second = start(home, "index", str(SAMPLE_DOCS), "--collection", "both")
    output, errors = second.communicate(timeout=60)
    assert (second.returncode, output) == (3, "")
    assert f"is being written by process {first.pid}" in errors
    assert recto(home, "search", "robot", "--collection", "both").returncode == 0, "the old index answers meanwhile"
    first.communicate(timeout=300)
    assert first.returncode == 0
    assert len(json.loads(recto(home, "search", "robot", "--collection", "both", "--top-k", "100", "--json").stdout)["results"]) == 100


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_killed_while_indexing(home: Path, small_book: Path, sign: signal.Signals) -> None:
    recto(home, "index", str(small_book), "--collection", "garden")
    program = start(home, "index", str(SAMPLE_DOCS), "--collection", "garden")
    _wait_for(lambda: list((home / "collections" / "garden").glob("building-*")))
    time.sleep(2)
    program.send_signal(sign)
    _, errors = program.communicate(timeout=60)
    assert program.returncode != 0
    assert "Traceback" not in errors
    data = json.loads(recto(home, "search", "dough", "--collection", "garden", "--json").stdout)
    assert data["results"][0]["page_title"] == "Bread"
    assert recto(home, "index", str(small_book), "--collection", "garden").returncode == 0
    _wait_for(lambda: not list((home / "collections" / "garden").glob("building-*")))


def test_a_damaged_index_is_told_and_repaired(home: Path, small_book: Path) -> None:
    recto(home, "index", str(small_book), "--collection", "garden")
    victim = next((home / "collections" / "garden" / "gen-000001").rglob("chunk_0.mmap"))
    with victim.open("r+b") as file:
        file.write(b"\x00\x01\x02\x03")
    done = recto(home, "search", "dough", "--collection", "garden")
    assert (done.returncode, done.stdout) == (3, "")
    assert "damaged" in done.stderr
    assert "recto index PATH --collection garden" in done.stderr
    (row,) = json.loads(recto(home, "collections", "--json").stdout)
    assert "damaged" in row["error"]
    assert recto(home, "index", str(small_book), "--collection", "garden").returncode == 0
    assert recto(home, "search", "dough", "--collection", "garden").returncode == 0
    victim = next((home / "collections" / "garden" / "gen-000002").rglob("segment.json"))
    victim.write_text("{}")
    assert recto(home, "index", str(small_book), "--collection", "garden").returncode == 0


def test_the_old_index_answers_for_a_damaged_one(home: Path, small_book: Path) -> None:
    for _ in range(2):
        recto(home, "index", str(small_book), "--collection", "garden")
    shutil.rmtree(home / "collections" / "garden" / "gen-000002")
    done = recto(home, "search", "dough", "--collection", "garden")
    assert done.returncode == 0
    assert done.stderr.startswith("[WARNING] The index of 'garden' is damaged")
    assert "Bread" in done.stdout


def test_a_home_that_cannot_be_used(tmp_path: Path, small_book: Path) -> None:
    (tmp_path / "file").touch()
    for home in (tmp_path / "file", tmp_path / "file" / "below"):
        for done in (retrieve(home, "robot"), recto(home, "index", str(small_book))):
            assert (done.returncode, done.stdout) == (3, "")
            assert done.stderr.startswith("[ERROR] Storage error: ")
            assert "RECTO_HOME" in done.stderr


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root to become someone else")
def test_a_home_of_someone_else(tmp_path: Path, small_book: Path) -> None:
    """Run as nobody: a home that may be read answers, one that may not is told."""
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, "-m", "recto"]
    home = Path(f"/tmp/recto-test-{os.getpid()}")
    try:
        recto(home, "index", str(small_book), "--collection", "garden")
        for path in (home, *home.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        probe = subprocess.run([*nobody, "--version"], cwd="/", env=environment(home, HOME="/tmp"), capture_output=True, check=False)
        if probe.returncode:
            pytest.skip("the environment of the tests cannot be read by others")
        done = subprocess.run(
            [*nobody, "search", "dough", "--collection", "garden"],
            cwd="/",
            env=environment(home, HOME="/tmp"),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "Bread" in done.stdout
        home.chmod(0o700)
        done = subprocess.run(
            [*nobody, "search", "dough", "--collection", "garden"],
            cwd="/",
            env=environment(home, HOME="/tmp"),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 3
        assert "Permission denied" in done.stderr
        assert "Traceback" not in done.stderr
    finally:
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200m", "tmpfs", str(place)], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("needs the right to mount a small file system")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk(tiny_disk: Path, small_book: Path) -> None:
    home = tiny_disk / "home"
    assert recto(home, "index", str(small_book), "--collection", "garden").returncode == 0
    with (tiny_disk / "filler").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 16))
        except OSError:
            pass
    done = recto(home, "search", "dough", "--collection", "garden")
    assert done.returncode == 0, done.stderr
    assert "Bread" in done.stdout, "the old index still answers"
    done = recto(home, "index", str(small_book), "--collection", "garden")
    assert (done.returncode, done.stdout) == (3, "")
    assert "disk is full" in done.stderr.lower() or "No space left" in done.stderr
    (tiny_disk / "filler").unlink()
    assert recto(home, "search", "dough", "--collection", "garden").returncode == 0
    assert recto(home, "index", str(small_book), "--collection", "garden").returncode == 0


def _wait_for(condition: object, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if callable(condition) and condition():
            return
        time.sleep(0.02)
    pytest.fail("it did not happen in time")
