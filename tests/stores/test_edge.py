"""The embedded store: damaged files, killed processes, readers during publishing, disk errors."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from multiprocessing.synchronize import Event, Semaphore
from pathlib import Path

import pytest

from recto._util.files import replace_text
from recto.errors import IndexDamaged, StorageError
from recto.stores.edge import layout
from recto.stores.edge import store as edge_store
from recto.stores.edge.engine import to_recto_error
from recto.stores.edge.layout import file_state
from recto.stores.edge.store import EdgeStore
from recto.testing.stores import nearest
from recto.testing.values import EMBEDDER, chunk, fingerprint, publish, vector
from recto.types.index import IndexQuery
from tests.running import ROOT, environment, wait_until


@pytest.fixture
def store(home: Path) -> EdgeStore:
    return EdgeStore(home)


def directory(home: Path) -> Path:
    return home / "collections" / "books"


def files(home: Path, generation: str) -> list[Path]:
    return sorted(path for path in (directory(home) / generation).rglob("*") if path.is_file())


def test_every_kind_of_file_damage_is_noticed(home: Path, store: EdgeStore) -> None:
    """Without the check, the engine would open most of these files, and some would crash the process."""
    publish(store, "books", [chunk(number) for number in range(50)])
    name = (directory(home) / "CURRENT").read_text().strip()
    for path in files(home, name):
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
    "text", ["", "{", "[]", '{"format": 1}', '{"format": 99, "checksum": ""}', "\x00\x01"]
)
def test_a_damaged_manifest_is_noticed(home: Path, store: EdgeStore, text: str) -> None:
    publish(store, "books", [chunk(1)])
    (directory(home) / "gen-000001.json").write_text(text)
    with pytest.raises(IndexDamaged):
        EdgeStore(home).open("books")


def test_a_manifest_with_another_model_is_noticed(home: Path, store: EdgeStore) -> None:
    publish(store, "books", [chunk(1)])
    path = directory(home) / "gen-000001.json"
    data = json.loads(path.read_text())
    data["fingerprint"]["embedder"]["model"] = "another"
    path.write_text(json.dumps(data))
    with pytest.raises(IndexDamaged, match="checksum"):
        EdgeStore(home).open("books")


def test_an_older_generation_replaces_a_damaged_one_with_a_warning(home: Path, store: EdgeStore) -> None:
    publish(store, "books", [chunk(1)])
    publish(store, "books", [chunk(1), chunk(2)])
    shutil.rmtree(directory(home) / "gen-000002")
    reader = EdgeStore(home)
    index = reader.open("books")
    assert index.count() == 1
    assert "damaged" in index.info.warnings[0]
    assert "recto index" in index.info.warnings[0]
    assert reader.open("books") is index
    publish(store, "books", [chunk(number) for number in range(7)])
    assert reader.open("books").count() == 7, "a repaired index is noticed"
    assert reader.open("books").info.warnings == ()


@pytest.mark.parametrize("text", ["", "gen-999999\n", "../../etc\n", "\x00"])
def test_a_damaged_pointer_is_noticed(home: Path, store: EdgeStore, text: str) -> None:
    publish(store, "books", [chunk(1)])
    (directory(home) / "CURRENT").write_text(text)
    index = EdgeStore(home).open("books")
    assert index.info.warnings, "the only intact generation is used, with a warning"
    assert index.count() == 1


def test_leftovers_of_a_killed_writer_are_removed(home: Path, store: EdgeStore) -> None:
    publish(store, "books", [chunk(1)])
    (directory(home) / "building-1-dead").mkdir()
    (directory(home) / "gen-000002").mkdir()
    assert store.open("books").count() == 1
    publish(store, "books", [chunk(1), chunk(2)])
    assert store.open("books").count() == 2
    assert {path.name for path in directory(home).iterdir() if path.is_dir()} == {"gen-000001", "gen-000003"}


WRITER = """
import sys, time
sys.path.insert(0, {root!r})
from pathlib import Path
from recto.stores.edge.layout import file_state
from recto.stores.edge.store import EdgeStore
from recto.testing.values import EMBEDDER, chunk, fingerprint, vector
from recto.types.index import IndexQuery
with EdgeStore(Path({home!r})).build("books", EMBEDDER) as build:
    for start in range(0, 2000, 100):
        build.add([chunk(number) for number in range(start, start + 100)], [vector(number) for number in range(start, start + 100)])
        print(start, flush=True)
        time.sleep(0.02)
    build.publish(fingerprint())
    print("published", flush=True)
"""


def writer(home: Path) -> subprocess.Popen[str]:
    code = WRITER.format(root=str(ROOT), home=str(home))
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment(home)
    )


@pytest.mark.parametrize("lines", [1, 7, 20])
def test_killing_a_writer_leaves_the_old_index(home: Path, store: EdgeStore, lines: int) -> None:
    publish(store, "books", [chunk(1), chunk(2)])
    process = writer(home)
    assert process.stdout is not None
    for _ in range(lines):
        process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert EdgeStore(home).open("books").count() == 2
    publish(store, "books", [chunk(1), chunk(2), chunk(3)])
    assert EdgeStore(home).open("books").count() == 3
    wait_until(lambda: not list(directory(home).glob("building-*")))


def test_the_worker_ends_with_its_parent(home: Path) -> None:
    import psutil

    process = writer(home)
    assert process.stdout is not None
    process.stdout.readline()
    children = psutil.Process(process.pid).children()
    assert children
    process.kill()
    process.wait()
    process.stdout.close()
    wait_until(lambda: not any(child.is_running() and child.status() != "zombie" for child in children))


def _read_many(
    home: Path, ready: Semaphore, stop: Event, answers: multiprocessing.Queue[tuple[set[int], str]]
) -> None:
    seen, searches, problem = set(), 0, ""
    store, deadline = EdgeStore(home), time.monotonic() + 300
    try:
        while not stop.is_set() and time.monotonic() < deadline:
            index = store.open("books")
            result = len(nearest(index, vector(searches), 100))
            if result != index.info.chunks or index.info.warnings:
                problem = f"{result} hits of {index.info}"
                break
            seen.add(result)
            searches += 1
            if searches == 1:
                ready.release()
            if searches % 20 == 0:
                store = EdgeStore(home)
    except Exception as error:
        problem = repr(error)
    ready.release()
    answers.put((seen, problem))


@pytest.mark.long
def test_ten_readers_during_publishes(home: Path, store: EdgeStore) -> None:
    publish(store, "books", [chunk(0)])
    context = multiprocessing.get_context("spawn")
    answers: multiprocessing.Queue[tuple[set[int], str]] = context.Queue()
    ready, stop = context.Semaphore(0), context.Event()
    readers = [
        context.Process(target=_read_many, args=(home, ready, stop, answers), daemon=True) for _ in range(10)
    ]
    for reader in readers:
        reader.start()
    for _ in readers:
        assert ready.acquire(timeout=120)
    for published in range(2, 8):
        publish(store, "books", [chunk(number) for number in range(published)])
    stop.set()
    results = [answers.get(timeout=120) for _ in readers]
    for reader in readers:
        reader.join()
    assert [problem for _, problem in results if problem] == []
    assert len(set.union(*(seen for seen, _ in results))) > 1, "readers saw new generations while they ran"


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_opens_the_index_anew(home: Path, store: EdgeStore) -> None:
    publish(store, "books", [chunk(1), chunk(2)])
    store.open("books")
    child = os.fork()
    if child == 0:
        os._exit(store.open("books").count())
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.05)
    else:
        os.kill(child, signal.SIGKILL)
        pytest.fail("the child hung")
    assert os.waitstatus_to_exitcode(status) == 2


def test_a_home_that_is_a_file_is_reported(tmp_path: Path) -> None:
    home = tmp_path / "file"
    home.touch()
    store = EdgeStore(home)
    with pytest.raises(StorageError, match="is not a directory"):
        store.open("books")
    with pytest.raises(StorageError, match="is not a directory") as caught:
        publish(store, "books", [chunk(1)])
    assert "RECTO_HOME" in caught.value.hint


def test_a_read_only_home_can_be_searched(
    home: Path, store: EdgeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine writes when it opens an index. Tests may run as root, so the refusal is simulated."""
    import qdrant_edge

    publish(store, "books", [chunk(1), chunk(2)])
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
    index = EdgeStore(home).open("books")
    assert index.count() == 2
    assert len(opened) == 2
    assert not Path(opened[1]).exists(), "the copy is removed at once"


def test_a_full_disk_is_reported(home: Path) -> None:
    """A limit on file sizes simulates a full disk."""
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))\n"
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        + WRITER.format(root=str(ROOT), home=str(home))
    )
    publish(EdgeStore(home), "books", [chunk(1)])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(home), check=False
    )
    assert done.returncode != 0
    assert "StorageError" in done.stderr or "Unreachable" in done.stderr
    assert EdgeStore(home).open("books").count() == 1
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
    from recto.errors import Unreachable
    from recto.stores.edge.engine import engine_errors

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


def record_digests(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return a list that gets the path of every file that is digested from now on."""
    paths: list[Path] = []
    digest = layout.digest

    def recorded(path: Path) -> str:
        paths.append(path)
        return digest(path)

    monkeypatch.setattr(layout, "digest", recorded)
    return paths


def test_large_files_are_not_digested_at_every_start(
    home: Path, store: EdgeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "_ALWAYS_DIGEST", 0)
    publish(store, "books", [chunk(number) for number in range(50)])
    large = {path for path in files(home, "gen-000001") if path.stat().st_size > layout._SMALL_FILE}
    digested = record_digests(monkeypatch)
    assert store.open("books").count() == 50
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
    publish(store, "books", [chunk(7)])
    with (
        pytest.raises(IndexDamaged, match="has 1 chunks, but 2 were written"),
        store.build("books", EMBEDDER) as build,
    ):
        build.add([chunk(1), chunk(1)], [vector(1), vector(2)])
        build.publish(fingerprint())
    assert store.open("books").count() == 1


def _flipped(data: bytes) -> bytes:
    """Change a byte that is not zero."""
    used = [index for index in (len(data) // 2, 0, len(data) - 1) if data[index]] or [len(data) // 2]
    return data[: used[0]] + bytes([data[used[0]] ^ 0xFF]) + data[used[0] + 1 :]


def test_file_state_changes_even_if_the_clock_does_not(tmp_path: Path) -> None:
    path = tmp_path / "CURRENT"
    assert file_state(str(path)) is None
    states = []
    for text in ("gen-000001", "gen-000002"):
        replace_text(path, text)
        os.utime(path, ns=(0, 0))
        states.append(file_state(str(path)))
    assert states[0] != states[1]


@pytest.mark.skipif(sys.platform != "linux", reason="needs mincore")
@pytest.mark.parametrize(
    "ending", ["index = store.open('books')", "store.open('books'); store.close(); del store"]
)
def test_a_process_leaves_the_index_in_the_page_cache(home: Path, store: EdgeStore, ending: str) -> None:
    publish(store, "books", [chunk(number) for number in range(50)])
    on_disk = [path for path in files(home, "gen-000001") if path.stat().st_blocks >= 8]
    for path in on_disk:
        path.read_bytes()
    before = sum(map(cached_pages, on_disk))
    assert before > 0
    imports = "from pathlib import Path; from recto.stores.edge.store import EdgeStore"
    code = f"{imports}; store = EdgeStore(Path({str(home)!r}), close_at_exit=True); {ending}"
    subprocess.run([sys.executable, "-c", code], env=environment(home), check=True)
    assert sum(map(cached_pages, on_disk)) > before * 0.8  # opening the index drops some small files


def cached_pages(path: Path) -> int:
    """Count the pages of a file in the system's page cache."""
    import ctypes
    import mmap

    size = path.stat().st_size
    with path.open("r+b") as file, mmap.mmap(file.fileno(), size) as mapped:
        position = ctypes.c_char.from_buffer(mapped)
        flags = ctypes.create_string_buffer(-(-size // mmap.PAGESIZE))
        assert (
            ctypes.CDLL(None).mincore(
                ctypes.c_void_p(ctypes.addressof(position)), ctypes.c_size_t(size), flags
            )
            == 0
        )
        del position
        return sum(byte & 1 for byte in flags.raw)


def _rot(path: Path) -> None:
    """Change a byte as a damaged disk does: size and modification time stay.

    The byte is changed in place: a thread that verifies the file must never see it empty.
    """
    status, data = path.stat(), path.read_bytes()
    damaged = _flipped(data)
    (at,) = (index for index, byte in enumerate(data) if byte != damaged[index])
    with path.open("r+b", buffering=0) as file:
        file.seek(at)
        file.write(damaged[at : at + 1])
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.fixture
def large(home: Path, store: EdgeStore, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of an index that counts as large."""
    monkeypatch.setattr(layout, "_ALWAYS_DIGEST", 0)
    monkeypatch.setattr(layout, "_SMALL_FILE", 100)
    publish(store, "books", [chunk(number) for number in range(50)])
    name = (directory(home) / "CURRENT").read_text().strip()
    return max(files(home, name), key=lambda path: path.stat().st_size)


def test_damage_of_a_large_file_is_found_once_a_day(
    home: Path, large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = EdgeStore(home)
    reading.open("books")
    _rot(large)
    reading.verify_open()  # not due yet
    assert reading.open("books").count() == 50
    earlier = time.time() - 2 * 86_400  # the clock was set back
    monkeypatch.setattr("recto.stores.edge.layout.time.time", lambda: earlier)
    reading.verify_open()
    digested = record_digests(monkeypatch)
    for opened in (reading, EdgeStore(home), EdgeStore(home)):
        with pytest.raises(IndexDamaged, match=large.name):
            opened.open("books")
    assert large not in digested, "once found, the damage is known without digesting the file again"


def test_the_thread_that_verifies_ends_with_its_store(
    home: Path, large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edge_store, "_VERIFY_PAUSE", 0.01)
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


def test_verify_digests_everything(home: Path, large: Path) -> None:
    store = EdgeStore(home)
    store.verify("books")
    _rot(large)
    EdgeStore(home).open("books")  # trusted for a day
    with pytest.raises(IndexDamaged, match=large.name):
        store.verify("books")
    _rot(large)  # the same byte again: the file is intact
    store.verify("books")
    assert EdgeStore(home).open("books").count() == 50


@pytest.mark.parametrize("name", ["CURRENT", "gen-000001.json"])
def test_a_pipe_instead_of_a_file_does_not_block(home: Path, store: EdgeStore, name: str) -> None:
    publish(store, "books", [chunk(1)])
    (directory(home) / name).unlink()
    os.mkfifo(directory(home) / name)
    if name == "CURRENT":
        (warning,) = EdgeStore(home).open("books").info.warnings
        assert "is missing or damaged" in warning
    else:
        with pytest.raises(IndexDamaged):
            EdgeStore(home).open("books")


def test_only_the_user_can_read_the_home(tmp_path: Path) -> None:
    home = tmp_path / "new" / "home"
    before = os.umask(0o022)
    try:
        store = EdgeStore(home)
        publish(store, "books", [chunk(1)])
        store.set_aliases(["other"], "books")
    finally:
        os.umask(before)
    for path in (home, *home.rglob("*")):
        mode = path.stat().st_mode & 0o777
        assert mode == (0o700 if path.is_dir() else 0o600), path


def test_everything_below_the_home_is_private(tmp_path: Path) -> None:
    home, archive = tmp_path / "home", tmp_path / "books.recto"
    before = os.umask(0o022)
    try:
        store = EdgeStore(home)
        publish(store, "books", [chunk(number) for number in range(5)])
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
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in home.rglob("*")}
    assert {path: mode for path, mode in modes.items() if mode != (0o700 if path.is_dir() else 0o600)} == {}
    assert not list(home.rglob(".CURRENT.*")), "the next run removes what a killed one left"
