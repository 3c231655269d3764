"""Backups of collections on a server: what the double can do that a real server does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from recto.errors import (
    ConfigurationError,
    FormatMismatch,
    IndexDamaged,
    InvalidArgument,
    RectoError,
    Unreachable,
)
from recto.settings import ServerOptions
from recto.stores.edge import EdgeStore
from recto.stores.qdrant import ServerStore
from recto.stores.qdrant.connection import Connection
from recto.testing.parts import chunk, publish_lexical
from tests.conftest import QDRANT_KEY
from tests.doubles.qdrant import QdrantDouble
from tests.doubles.server import delay, drop, rubbish, status
from tests.stores.test_backup import forge, read_header, to_format_1


@pytest.fixture
def store(qdrant: QdrantDouble, home: Path, told: list[str]) -> Iterator[ServerStore]:
    store = on_server(qdrant, home, told)
    publish_lexical(store, "books", [chunk(number, text=f"soil {number}") for number in range(20)])
    yield store
    store.close()


def on_server(qdrant: QdrantDouble, home: Path, told: list[str], shards: int | None = None) -> ServerStore:
    connection = Connection(qdrant.url, QDRANT_KEY, told.append, sleep=lambda _: None)
    return ServerStore(connection, home, ServerOptions(shards=shards), None)


@pytest.mark.parametrize("fault", [drop(), status(500), status(403), status(429), rubbish()])
@pytest.mark.parametrize("path", ["*/snapshots", "*.snapshot"])
def test_a_failed_backup_leaves_no_file_and_no_snapshot(
    store: ServerStore, qdrant: QdrantDouble, tmp_path: Path, path: str, fault: object
) -> None:
    qdrant.script(fault, path=path)  # type: ignore[arg-type]
    with pytest.raises(RectoError) as caught:
        store.backup("books", tmp_path / "x.recto")
    assert caught.value.hint
    assert QDRANT_KEY not in str(caught.value) + caught.value.hint
    assert [one.name for one in tmp_path.iterdir()] == ["home"]
    assert qdrant.snapshots == {}


def test_what_is_left_on_the_server_is_named(
    store: ServerStore,
    qdrant: QdrantDouble,
    tmp_path: Path,
    told: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    qdrant.script(delay(0), status(500), path="*.snapshot")  # it can be downloaded, but not deleted
    assert store.backup("books", tmp_path / "x.recto").chunks == 20
    assert told.pop().startswith("[WARNING] A snapshot is left on the server.")

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    qdrant.script(drop(done=True), path="*/snapshots")  # the name is lost
    for error in (Unreachable, KeyboardInterrupt):
        with pytest.raises(error):
            store.backup("books", tmp_path / "y.recto")
        assert told[-1].startswith("The server may keep creating the snapshot.")
        assert told[-1].endswith("/snapshots/NAME")
        monkeypatch.setattr(httpx.Client, "post", interrupt)  # Ctrl-C


def test_a_changed_snapshot_is_noticed(store: ServerStore, qdrant: QdrantDouble, tmp_path: Path) -> None:
    def change(exchange: object) -> None:
        for name, data in qdrant.snapshots.items():
            qdrant.snapshots[name] = data.replace(b"soil 1", b"soil 2")
        exchange.send(exchange.normal())  # type: ignore[attr-defined]

    qdrant.script(change, path="*.snapshot")
    with pytest.raises(Unreachable, match="another snapshot"):
        store.backup("books", tmp_path / "x.recto")
    assert not (tmp_path / "x.recto").exists()


@pytest.mark.parametrize("fault", [drop(), status(500), status(403)])
def test_a_failed_restore(store: ServerStore, qdrant: QdrantDouble, tmp_path: Path, fault: object) -> None:
    store.backup("books", tmp_path / "x.recto")
    before = dict(qdrant.aliases), set(qdrant.collections)
    for path in ("*/upload", "/collections/aliases"):
        for _ in range(6):
            qdrant.script(fault, path=path)  # type: ignore[arg-type]
        with pytest.raises(RectoError):
            store.restore(tmp_path / "x.recto", replace=True)
        assert (qdrant.aliases, set(qdrant.collections)) == before
        qdrant._script.clear()


def test_a_cluster_is_refused_if_shards_are_elsewhere(
    store: ServerStore, qdrant: QdrantDouble, home: Path, told: list[str], tmp_path: Path
) -> None:
    publish_lexical(on_server(qdrant, home, told, shards=3), "parts", [chunk(1)])
    qdrant.peers = 3
    with pytest.raises(ConfigurationError, match="2 shards of the collection are on other nodes") as caught:
        store.backup("parts", tmp_path / "x.recto")
    assert "docs/how-to/backup.md" in caught.value.hint
    store.backup("books", tmp_path / "x.recto")
    with pytest.raises(ConfigurationError, match="cluster of 3 nodes"):
        store.restore(tmp_path / "x.recto", "copy")


def test_archives_fit_their_store(store: ServerStore, template: Path, home: Path, tmp_path: Path) -> None:
    store.backup("books", tmp_path / "server.recto")
    with pytest.raises(InvalidArgument, match="embedded index") as caught:
        store.restore(template / "books.recto")
    assert "recto promote" in caught.value.hint
    with pytest.raises(InvalidArgument, match="snapshot of a Qdrant server"):
        EdgeStore(home).restore(tmp_path / "server.recto")


@pytest.mark.parametrize(
    "change",
    [{"files": {"snapshot": 5}}, {"files": {}}, {"content": {"chunks": "20"}}, {"content": {"chunks": 19}}],
)
def test_a_hostile_archive_is_refused(
    store: ServerStore, qdrant: QdrantDouble, tmp_path: Path, change: dict[str, object]
) -> None:
    store.backup("books", tmp_path / "x.recto")
    before = set(qdrant.collections)
    forge(tmp_path / "x.recto", {**read_header(tmp_path / "x.recto"), **change})
    with pytest.raises(IndexDamaged):
        store.restore(tmp_path / "x.recto", "copy")
    assert set(qdrant.collections) == before


def test_an_archive_of_recto_0_2_is_restored(store: ServerStore, tmp_path: Path) -> None:
    store.backup("books", tmp_path / "x.recto")
    to_format_1(tmp_path / "x.recto")
    assert store.restore(tmp_path / "x.recto", "copy").chunks == 20


def test_metadata_of_another_version_is_named(store: ServerStore, qdrant: QdrantDouble, home: Path) -> None:
    (collection,) = qdrant.collections.values()
    metadata = collection.config["metadata"]
    assert metadata is not None
    for format, age in ((0, "an older"), (2, "a newer")):
        metadata["recto"]["format"] = format
        with pytest.raises(FormatMismatch, match=f"{age} version of Recto"):
            on_server(qdrant, home, []).open("books")
