"""Backups of a collection on a real Qdrant server; the conformance suite restores one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest
from qdrant_client import models

from recto.errors import ConfigurationError, IndexDamaged, RectoError
from recto.settings import ServerOptions
from recto.stores.qdrant import ServerStore
from recto.stores.qdrant.connection import Connection
from recto.testing.parts import chunk, publish_lexical
from tests.stores.test_backup import forge, read_header

NAME, COPY, ALIAS = "backup-books", "backup-copy", "backup-library"


@pytest.fixture
def store(server_url: str, tmp_path: Path) -> Iterator[ServerStore]:
    """Return a store with a collection of fifty chunks and an alias."""
    store = ServerStore(Connection(server_url, "", print), tmp_path / "home", ServerOptions(), None)
    remove_all(store)
    publish_lexical(store, NAME, [chunk(number, text=f"soil {number}") for number in range(50)])
    store.set_aliases([ALIAS], NAME)
    yield store
    remove_all(store)
    store.close()


def remove_all(store: ServerStore) -> None:
    for name in store.collections():
        if name in (NAME, COPY):
            store.delete(name)


def physical(store: ServerStore) -> list[str]:
    names = [one.name for one in store.client.get_collections().collections]
    return sorted(name for name in names if name.startswith("backup-"))


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
    store.client.create_collection(
        "backup-foreign", vectors_config=models.VectorParams(size=4, distance=models.Distance.COSINE)
    )
    try:
        with pytest.raises(ConfigurationError, match="not made by Recto"):
            store.backup("backup-foreign", tmp_path / "x.recto")
    finally:
        store.client.delete_collection("backup-foreign")


def test_the_header_names_the_server_and_nothing_is_left_on_it(store: ServerStore, tmp_path: Path) -> None:
    generation = store.backup(NAME, tmp_path / "x.recto").name
    assert store.client.list_snapshots(generation) == []
    header = read_header(tmp_path / "x.recto")
    assert (header["kind"], header["aliases"]) == ("server", [ALIAS])
    assert header["content"]["server"].startswith("1.")
