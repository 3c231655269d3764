"""The embedded store: damaged files, killed processes, readers during publishing, disk errors, the worker."""

from __future__ import annotations

import ctypes
import gc
import math
import mmap
import multiprocessing
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.synchronize import Event, Semaphore
from pathlib import Path
from typing import Any

import psutil
import pytest
import qdrant_edge

from recto._util.files import replace_text
from recto.errors import IndexDamaged, StorageError, Unreachable
from recto.stores.edge import EdgeStore, engine, layout
from recto.stores.edge import build as edge_build
from recto.stores.edge.build import find_fault, send
from recto.stores.edge.engine import engine_errors, to_recto_error
from recto.stores.edge.layout import file_state
from recto.testing.parts import EMBEDDER, chunk, fingerprint, publish, vector
from recto.testing.stores import nearest
from recto.types.index import IndexQuery
from recto.types.search import Vector
from tests.running import ROOT, environment, wait_until

START_WORKER = edge_build.start_worker


def directory(home: Path) -> Path:
    return home / "collections" / "books"


def files(home: Path) -> list[Path]:
    return sorted(path for path in (directory(home) / "gen-000001").rglob("*") if path.is_file())


def test_every_kind_of_file_damage_is_noticed(home: Path, store: EdgeStore) -> None:
    """Without the check, the engine would open most of these files, and some would crash the process."""
    for path in files(home):
        original, status = path.read_bytes(), path.stat()
        for damaged in (original[: len(original) // 2], _flipped(original), None):
            if damaged is None:
                path.unlink()
            else:
                path.write_bytes(damaged)
                os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
            with pytest.raises(IndexDamaged) as caught:
                EdgeStore(home).open("books")
            assert "recto index" in caught.value.hint
            path.write_bytes(original)
    assert EdgeStore(home).open("books").count() == 50


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"format": 1}', '{"format": 99, "checksum": ""}', "\x00\x01", "another model"]
)
def test_a_damaged_manifest_is_noticed(home: Path, store: EdgeStore, text: str) -> None:
    path = directory(home) / "gen-000001.json"
    path.write_text(path.read_text().replace("test-model", "other") if text == "another model" else text)
    with pytest.raises(IndexDamaged):
        store.open("books")


def test_an_older_generation_replaces_a_damaged_one_with_a_warning(home: Path, store: EdgeStore) -> None:
    publish(store, "books", [chunk(1), chunk(2)])
    shutil.rmtree(directory(home) / "gen-000002")
    reader = EdgeStore(home)
    index = reader.open("books")
    assert index.count() == 50
    assert "damaged" in index.info.warnings[0]
    assert "recto index" in index.info.warnings[0]
    assert reader.open("books") is index
    publish(store, "books", [chunk(number) for number in range(7)])
    assert reader.open("books").count() == 7, "a repaired index is noticed"
    assert reader.open("books").info.warnings == ()


def test_a_directory_in_place_of_a_file_is_damage(home: Path, store: EdgeStore) -> None:
    file = next(path for path in (directory(home) / "gen-000001").rglob("*") if path.is_file())
    file.unlink()
    file.mkdir()
    with pytest.raises(IndexDamaged, match="does not match the manifest"):
        EdgeStore(home).open("books")
    publish(store, "books", [chunk(1)])
    assert EdgeStore(home).open("books").info.warnings == ()
    lock = directory(home) / "LOCK"
    lock.unlink()
    lock.mkdir()
    with pytest.raises(StorageError, match="Is a directory") as failed:
        publish(store, "books", [chunk(2)])
    assert f"Move {lock} away" in failed.value.hint


@pytest.mark.parametrize("text", ["", "gen-999999\n", "../../etc\n", "\x00"])
def test_a_damaged_pointer_is_noticed(home: Path, store: EdgeStore, text: str) -> None:
    (directory(home) / "CURRENT").write_text(text)
    index = store.open("books")
    assert index.info.warnings, "the only intact generation is used, with a warning"
    assert index.count() == 50


def test_leftovers_of_a_killed_writer_are_removed(home: Path, store: EdgeStore) -> None:
    (directory(home) / "building-1-dead").mkdir()
    (directory(home) / "gen-000002").mkdir()
    assert store.open("books").count() == 50
    publish(store, "books", [chunk(1), chunk(2)])
    assert store.open("books").count() == 2
    assert {path.name for path in directory(home).iterdir() if path.is_dir()} == {"gen-000001", "gen-000003"}


WRITER = """
import sys, time
sys.path.insert(0, {root!r})
from pathlib import Path
from recto.stores.edge import EdgeStore
from recto.testing.parts import EMBEDDER, chunk, fingerprint, vector
with EdgeStore(Path({home!r})).build("books", EMBEDDER) as build:
    for start in range(0, 2000, 100):
        build.add([chunk(number) for number in range(start, start + 100)], [vector(number) for number in range(start, start + 100)])
        print(start, flush=True)
        time.sleep(0.02)
    build.publish(fingerprint())
    print("published", flush=True)
"""


@pytest.mark.parametrize("lines", [1, 20])
def test_killing_a_writer_leaves_the_old_index(home: Path, store: EdgeStore, lines: int) -> None:
    code = WRITER.format(root=str(ROOT), home=str(home))
    pipe: dict[str, Any] = {"stdout": subprocess.PIPE, "text": True, "env": environment(home)}
    with subprocess.Popen([sys.executable, "-c", code], **pipe) as process:
        assert process.stdout is not None
        for _ in range(lines):
            process.stdout.readline()
        workers = psutil.Process(process.pid).children()
        assert workers
        process.kill()
    assert EdgeStore(home).open("books").count() == 50
    publish(store, "books", [chunk(1), chunk(2), chunk(3)])
    assert EdgeStore(home).open("books").count() == 3
    assert psutil.wait_procs(workers, timeout=60)[1] == []
    wait_until(lambda: not list(directory(home).glob("building-*")))


def _read(home: Path, ready: Semaphore, stop: Event, answers: multiprocessing.Queue[list[object]]) -> None:
    """Search until the end, and report the sizes of the indexes, or a problem."""
    sizes: list[object] = []
    try:
        while not stop.is_set():
            store = EdgeStore(home)
            for _ in range(20):
                index = store.open("books")
                sizes.append(len(nearest(index, vector(1), 100)))
                if sizes[-1] != index.info.chunks or index.info.warnings:
                    raise AssertionError(index.info)
                ready.release()
    except Exception as error:
        sizes = [repr(error)]
    answers.put(sizes)


@pytest.mark.long
def test_ten_readers_during_publishes(home: Path, store: EdgeStore) -> None:
    context = multiprocessing.get_context("spawn")
    answers: multiprocessing.Queue[list[object]] = context.Queue()
    ready, stop = context.Semaphore(0), context.Event()
    shared = (home, ready, stop, answers)
    readers = [context.Process(target=_read, args=shared, daemon=True) for _ in range(10)]
    for reader in readers:
        reader.start()
    for _ in readers:
        assert ready.acquire(timeout=120)
    for published in range(2, 8):
        publish(store, "books", [chunk(number) for number in range(published)])
    stop.set()
    sizes = {size for _ in readers for size in answers.get(timeout=120)}
    for reader in readers:
        reader.join()
    assert sizes <= {50, *range(2, 8)}
    assert len(sizes) > 1, "readers saw new generations while they ran"


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_opens_the_index_anew(home: Path, store: EdgeStore) -> None:
    store.open("books")
    child = multiprocessing.get_context("fork").Process(target=lambda: os._exit(store.open("books").count()))
    child.start()
    child.join(20)
    child.kill()
    assert child.exitcode == 50


def test_a_read_only_home_is_searched(home: Path, store: EdgeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine writes when it opens an index. Tests may run as root, so the refusal is simulated."""
    real = qdrant_edge.EdgeShard.load
    opened: list[str] = []

    class Refusing:
        @staticmethod
        def load(path: str) -> object:
            opened.append(path)
            if path.startswith(str(home)):
                raise Exception("Failed to open mmap payload storage: Permission denied (os error 13)")
            return real(path)

    monkeypatch.setattr(qdrant_edge, "EdgeShard", Refusing)
    assert store.open("books").count() == 50
    assert not Path(opened[-1]).exists(), "the copy is removed at once"


@pytest.mark.usefixtures("store")
def test_a_full_disk_is_reported(home: Path) -> None:
    """A limit on file sizes simulates a full disk."""
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))\n"
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        + WRITER.format(root=str(ROOT), home=str(home))
    )
    pipes: dict[str, Any] = {"capture_output": True, "text": True, "env": environment(home)}
    done = subprocess.run([sys.executable, "-c", code], check=False, **pipes)
    assert done.returncode != 0
    assert "StorageError" in done.stderr or "Unreachable" in done.stderr
    assert EdgeStore(home).open("books").count() == 50
    assert not list(directory(home).glob("building-*"))


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("Service runtime error: No space left on device (os error 28)", "disk is full"),
        ("Failed to open mmap payload storage: Permission denied (os error 13)", "cannot be written"),
        ("Can't init WAL: Kind(WouldBlock)", "held by another process"),
        ("Vector dimension error: expected dim: 4, got 2", "do not fit"),
        ("something new", "failed while searching"),
    ],
)
def test_engine_messages_become_recto_errors(message: str, words: str) -> None:
    error = to_recto_error(message, "searching")
    assert words in str(error)
    assert error.hint


def test_engine_panics_become_recto_errors() -> None:
    class Panic(BaseException):
        pass

    with pytest.raises(Unreachable), engine_errors("searching"):
        raise Panic("index out of bounds")
    with pytest.raises(KeyboardInterrupt), engine_errors("searching"):
        raise KeyboardInterrupt


def test_sparse_and_full_files_have_the_same_digest(tmp_path: Path) -> None:
    hole, zeros = tmp_path / "hole", tmp_path / "zeros"
    with hole.open("wb") as file:
        file.truncate(1 << 20)
        file.seek(500_000)
        file.write(b"something")
    data = hole.read_bytes()
    zeros.write_bytes(data)
    assert layout.digest(hole) == layout.digest(zeros)
    (tmp_path / "original" / "deep").mkdir(parents=True)
    shutil.copy(hole, tmp_path / "original" / "deep" / "hole")
    layout.copy_tree(tmp_path / "original", tmp_path / "copy")
    assert (tmp_path / "copy" / "deep" / "hole").read_bytes() == data
    zeros.write_bytes(data[:-1])
    assert layout.digest(hole) != layout.digest(zeros)
    zeros.write_bytes(_flipped(data))
    assert layout.digest(hole) != layout.digest(zeros)


@pytest.fixture
def digested(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """A list that gets the path of every file that is digested."""
    paths: list[Path] = []
    digest = layout.digest
    monkeypatch.setattr(layout, "digest", lambda path: paths.append(path) or digest(path))  # type: ignore[func-returns-value]
    return paths


def test_large_files_are_trusted(home: Path, monkeypatch: pytest.MonkeyPatch, digested: list[Path]) -> None:
    monkeypatch.setattr(layout, "_ALWAYS_DIGEST", 0)
    publish(EdgeStore(home), "books", [chunk(number) for number in range(50)])
    large = {path for path in files(home) if path.stat().st_size > layout._SMALL_FILE}
    digested.clear()
    assert EdgeStore(home).open("books").count() == 50
    assert not large & set(digested), "the writer has digested them"
    os.utime(min(large))
    assert EdgeStore(home).open("books").count() == 50
    assert min(large) in digested
    with min(large).open("r+b") as file:
        file.write(b"\x01")
    with pytest.raises(IndexDamaged):
        EdgeStore(home).open("books")


def test_nothing_is_published_when_chunks_collide(home: Path, store: EdgeStore) -> None:
    refused = pytest.raises(IndexDamaged, match="has 1 chunks, but 2 were written")
    with refused, store.build("books", EMBEDDER) as build:
        build.add([chunk(1), chunk(1)], [vector(1), vector(2)])
        build.publish(fingerprint())
    assert store.open("books").count() == 50


def _used(data: bytes) -> int:
    """Return the position of a byte that is not zero."""
    return next((at for at in (len(data) // 2, 0, len(data) - 1) if data[at]), len(data) // 2)


def _flipped(data: bytes) -> bytes:
    at = _used(data)
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


def test_file_state_changes_even_if_the_clock_does_not(tmp_path: Path) -> None:
    states = [file_state(str(tmp_path / "CURRENT"))]
    for text in ("gen-000001", "gen-000002"):
        replace_text(tmp_path / "CURRENT", text)
        os.utime(tmp_path / "CURRENT", ns=(0, 0))
        states.append(file_state(str(tmp_path / "CURRENT")))
    assert len(set(states)) == 3


@pytest.mark.skipif(sys.platform != "linux", reason="needs mincore")
@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    "ending", ["index = store.open('books')", "store.open('books'); store.close(); del store"]
)
def test_a_process_leaves_the_index_in_the_page_cache(home: Path, ending: str) -> None:
    on_disk = [path for path in files(home) if path.stat().st_blocks >= 8]
    for path in on_disk:
        path.read_bytes()
    before = sum(map(cached_pages, on_disk))
    assert before > 0
    imports = "from pathlib import Path; from recto.stores.edge import EdgeStore"
    code = f"{imports}; store = EdgeStore(Path({str(home)!r}), close_at_exit=True); {ending}"
    subprocess.run([sys.executable, "-c", code], env=environment(home), check=True)
    assert sum(map(cached_pages, on_disk)) > before * 0.8  # opening the index drops some small files


def cached_pages(path: Path) -> int:
    """Count the pages of a file in the system's page cache."""
    size = path.stat().st_size
    with path.open("r+b") as file, mmap.mmap(file.fileno(), size) as mapped:
        position = ctypes.c_char.from_buffer(mapped)
        flags = ctypes.create_string_buffer(-(-size // mmap.PAGESIZE))
        address = ctypes.c_void_p(ctypes.addressof(position))
        assert ctypes.CDLL(None).mincore(address, ctypes.c_size_t(size), flags) == 0
        del position
        return sum(byte & 1 for byte in flags.raw)


def _rot(path: Path) -> None:
    """Change a byte as a damaged disk does: size and modification time stay.

    The byte is changed in place: a thread that verifies the file must never see it empty.
    """
    status, data = path.stat(), path.read_bytes()
    with path.open("r+b", buffering=0) as file:
        file.seek(_used(data))
        file.write(bytes([data[_used(data)] ^ 0xFF]))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.fixture
def large(home: Path, store: EdgeStore, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A verified file of an index that counts as large."""
    monkeypatch.setattr(layout, "_ALWAYS_DIGEST", 0)
    monkeypatch.setattr(layout, "_SMALL_FILE", 100)
    store.verify("books")
    return max(files(home), key=lambda path: path.stat().st_size)


def test_damage_of_a_large_file_is_found_once_a_day(
    home: Path, large: Path, monkeypatch: pytest.MonkeyPatch, digested: list[Path]
) -> None:
    reading = EdgeStore(home)
    reading.open("books")
    _rot(large)
    reading.verify_open()  # not due yet
    assert reading.open("books").count() == 50
    earlier = time.time() - 2 * 86_400  # the clock was set back
    monkeypatch.setattr("recto.stores.edge.layout.time.time", lambda: earlier)
    reading.verify_open()
    digested.clear()
    for opened in (reading, EdgeStore(home)):
        with pytest.raises(IndexDamaged, match=large.name):
            opened.open("books")
    assert large not in digested, "once found, the damage is known without digesting the file again"


def test_the_verifier_ends_with_its_store(home: Path, large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recto.stores.edge._VERIFY_PAUSE", 0.01)
    monkeypatch.setattr(layout, "VERIFIED_SECONDS", -1)
    store: EdgeStore | None = EdgeStore(home, verify_later=True)
    assert store is not None
    store.open("books")
    thread = store._verifying
    assert thread is not None
    _rot(large)

    def is_noticed() -> bool:
        assert store is not None
        try:
            return store.open("books").count() == 0
        except IndexDamaged:
            return True

    wait_until(is_noticed, 60)
    store = None
    thread.join(60)
    assert not thread.is_alive()


def test_verify_digests_everything(home: Path, store: EdgeStore, large: Path) -> None:
    _rot(large)
    EdgeStore(home).open("books")  # trusted for a day
    with pytest.raises(IndexDamaged, match=large.name):
        store.verify("books")
    _rot(large)  # the same byte again: the file is intact
    store.verify("books")
    assert EdgeStore(home).open("books").count() == 50


@pytest.mark.parametrize("name", ["CURRENT", "gen-000001.json"])
def test_a_pipe_instead_of_a_file_does_not_block(home: Path, store: EdgeStore, name: str) -> None:
    (directory(home) / name).unlink()
    os.mkfifo(directory(home) / name)
    if name == "CURRENT":
        (warning,) = store.open("books").info.warnings
        assert "is missing or damaged" in warning
    else:
        with pytest.raises(IndexDamaged):
            store.open("books")


def test_only_the_user_can_read_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edge_build, "start_worker", START_WORKER)  # in a process with its own mask
    home, archive = tmp_path / "new" / "home", tmp_path / "books.recto"
    before = os.umask(0o022)
    try:
        store = EdgeStore(home)
        publish(store, "books", [chunk(number) for number in range(5)])
        store.set_aliases(["other"], "books")
        store.open("books")
        store.backup("books", archive)
        store.restore(archive, "again")
        store.open("again")
        (directory(home) / ".CURRENT.1.abcd").write_text("")
        publish(store, "books", [chunk(7)])
        index = EdgeStore(home).open("again")
        assert index.candidates([IndexQuery([1.0] * 8)], 1)[0].dense
        del index, store
        gc.collect()  # when an index is closed, the engine writes again
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (home, *home.rglob("*"))}
    assert {path: mode for path, mode in modes.items() if mode != (0o700 if path.is_dir() else 0o600)} == {}
    assert not list(home.rglob(".CURRENT.*")), "the next run removes what a killed one left"


COUNT = 64
SAMPLES = [
    (f"00000000-0000-5000-8000-{number:012d}", [math.cos(number), math.sin(number), 0.1 * number])
    for number in range(16)
]


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Any]:
    created = engine.create_shard(tmp_path / "shard", 3)
    others = [(f"00000000-0000-5000-8000-9{one:011d}", [1.0, 0.3 * one, -9.0]) for one in range(COUNT)]
    engine.upsert(created, [(id, dense, None, {}) for id, dense in (*SAMPLES, *others)])
    yield created
    created.close()


class OtherShard:
    """A shard whose HNSW searches, which are not exact, return other hits."""

    def __init__(self, shard: Any, change: Callable[[Any], Any]) -> None:
        self._shard, self._change = shard, change

    def query(self, request: Any) -> Any:
        hits = self._shard.query(request)
        return hits if request.params is not None and request.params.exact else self._change(hits)


def fault(shard: Any, samples: list[tuple[str, Vector]]) -> str:
    return find_fault(shard, samples, COUNT)


def test_a_vector_of_another_chunk_is_a_fault(shard: Any) -> None:
    assert fault(shard, SAMPLES) == fault(shard, []) == ""
    swapped = [*SAMPLES[:-1], (SAMPLES[-1][0], [1.0, 0.0, -9.0])]
    assert fault(shard, swapped) == f"chunk {SAMPLES[-1][0]} is not found by its own vector"


@pytest.mark.parametrize(
    ("missed", "message"), [(4, ""), (5, "5 of 16 chunks are not found by their own vectors")]
)
def test_hnsw_may_miss_a_few_chunks(shard: Any, missed: int, message: str) -> None:
    left = iter(range(missed))
    assert fault(OtherShard(shard, lambda hits: hits if next(left, None) is None else []), SAMPLES) == message


def test_similar_versions_of_a_page_count_as_found(shard: Any) -> None:
    versions = [(f"00000000-0000-5000-8000-8{one:011d}", [1.0, 1.0, 1.0 + one / 20]) for one in range(8)]
    engine.upsert(shard, [(id, dense, None, {}) for id, dense in versions])
    neighbours = OtherShard(shard, lambda hits: hits[1:2])
    assert fault(neighbours, versions) == ""
    assert fault(neighbours, SAMPLES[:1] * 3) == "3 of 3 chunks are not found by their own vectors"


@pytest.mark.parametrize("removed", [True, False], ids=["its directory is removed", "its writer is killed"])
@pytest.mark.parametrize("finish", [True, False], ids=["told to finish", "not told to finish"])
def test_an_orphaned_worker_leaves_no_files(tmp_path: Path, removed: bool, finish: bool) -> None:
    """The worker of a killed writer runs for a moment, while the next writer removes its files."""
    draft = tmp_path / "building-1"
    with START_WORKER(draft, 3, sys.stderr.buffer) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        wait_until(lambda: any("page_key" in path.name for path in draft.glob("segments/*/payload_index/*")))
        process.stdout.close()
        if removed:
            shutil.rmtree(draft, ignore_errors=True)
        with suppress(BrokenPipeError):
            send(process.stdin, [(id, {}) for id, _ in SAMPLES], [dense for _, dense in SAMPLES])
            if finish:
                send(process.stdin, [], [])
            process.stdin.close()
        assert process.wait(60) == 1
    assert not draft.exists()
