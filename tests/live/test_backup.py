"""Backups of a collection on a real Qdrant server: snapshots in archives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

from recto.errors import ConfigurationError, IndexDamaged, InvalidArgument, RectoError
from recto.settings import ServerOptions
from recto.stores.qdrant.connection import Connection
from recto.stores.qdrant.store import ServerStore
from recto.testing.stores import nearest
from recto.testing.values import chunk, publish_lexical, vector
from recto.types.index import Calibration
from tests.stores.test_backup import forge, read_header

NAME, COPY, ALIAS = "backup-books", "backup-copy", "backup-library"


@pytest.fixture
def store(server_url: str, tmp_path: Path) -> Iterator[ServerStore]:
    """Return a store with a collection of fifty chunks, an alias and a calibration."""
    store = ServerStore(Connection(server_url, "", print), tmp_path / "home", ServerOptions(), None)
    remove_all(store)
    publish_lexical(store, NAME, [chunk(number, text=f"soil {number}") for number in range(50)])
    store.set_aliases([ALIAS], NAME)
    store.save_calibration(store.open(NAME).info, Calibration(0.6, 0.97, 20, 30))
    yield store
    remove_all(store)
    store.close()


def remove_all(store: ServerStore) -> None:
    for name in store.collections():
        if name in (NAME, COPY):
            store.delete(name)


def physical(store: ServerStore) -> list[str]:
    return sorted(
        one.name for one in store.client.get_collections().collections if one.name.startswith("backup-")
    )


def test_a_restored_collection_is_the_same(store: ServerStore, tmp_path: Path) -> None:
    before = store.open(NAME)
    expected = [nearest(before, vector(number), 5) for number in range(5)]
    created = store.backup(ALIAS, tmp_path / "x.recto")
    assert (created.name, created.chunks) == (before.info.generation, 50)
    assert created.bytes == (tmp_path / "x.recto").stat().st_size
    assert store.client.list_snapshots(before.info.generation) == [], "it is deleted on the server"
    with pytest.raises(InvalidArgument, match="exists already"):
        store.restore(tmp_path / "x.recto")
    store.delete(NAME)
    info = store.restore(tmp_path / "x.recto")
    after = store.open(ALIAS)
    assert info.generation != before.info.generation
    assert after.info.fingerprint == before.info.fingerprint
    assert after.info.calibration == before.info.calibration is not None
    assert after.lexicon() == before.lexicon() != b""
    assert [nearest(after, vector(number), 5) for number in range(5)] == expected
    assert store.missing_fields(NAME) == ()


def test_a_collection_can_be_restored_as_another_one_and_replaced(store: ServerStore, tmp_path: Path) -> None:
    store.backup(NAME, tmp_path / "x.recto")
    assert store.restore(tmp_path / "x.recto", COPY).collection == COPY
    assert store.aliases()[ALIAS] == NAME, "an alias that is taken is not changed"
    publish_lexical(store, NAME, [chunk(1, text="new")], rebuild=True)
    assert store.restore(tmp_path / "x.recto", replace=True).chunks == 50
    assert store.open(NAME).count() == 50


def test_a_wrong_snapshot_changes_nothing(store: ServerStore, tmp_path: Path) -> None:
    path = tmp_path / "x.recto"
    store.backup(NAME, path)
    before = physical(store)
    header = read_header(path)
    header["content"]["chunks"] = 49
    forge(path, header)
    with pytest.raises(IndexDamaged, match="50 chunks, but 49"):
        store.restore(path, COPY)
    header["content"]["chunks"] = 50
    with ZipFile(path) as archive:
        snapshot = bytearray(archive.read("files/snapshot"))
    snapshot[5000] ^= 1
    forge(path, header, {"snapshot": bytes(snapshot)})
    with pytest.raises(RectoError):
        store.restore(path, COPY)
    assert physical(store) == before


def test_a_collection_of_another_pipeline_is_not_backed_up(store: ServerStore, tmp_path: Path) -> None:
    from qdrant_client import models

    store.client.create_collection(
        "backup-foreign", vectors_config=models.VectorParams(size=4, distance=models.Distance.COSINE)
    )
    try:
        with pytest.raises(ConfigurationError, match="not made by Recto"):
            store.backup("backup-foreign", tmp_path / "x.recto")
    finally:
        store.client.delete_collection("backup-foreign")


def test_the_header_names_the_server(store: ServerStore, tmp_path: Path) -> None:
    store.backup(NAME, tmp_path / "x.recto")
    header = read_header(tmp_path / "x.recto")
    assert header["kind"] == "server"
    assert header["content"]["server"].startswith("1.")
    assert header["aliases"] == [ALIAS]
