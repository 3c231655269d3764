"""Run the conformance suite on a real server, with and without a key."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from recto.protocols import Store
from tests.conformance.test_stores import BuiltInStore, on_server, opened

OURS = ("books--", "library--", "shelf--", "other--", "others--")


class TestRealServerStore(BuiltInStore):
    filters_to_check = 30

    @pytest.fixture
    def store(self, server_url: str, tmp_path: Path) -> Iterator[Store]:
        created = on_server(server_url, os.environ.get("RECTO_TEST_QDRANT_API_KEY", ""), tmp_path / "home")
        for entry in created.client.get_collections().collections:
            if entry.name.startswith(OURS):
                created.client.delete_collection(entry.name)
        with opened(created) as store:
            yield store

    @pytest.fixture
    def other_store(self, server_url: str, tmp_path: Path) -> Iterator[Store]:
        key = os.environ.get("RECTO_TEST_QDRANT_API_KEY", "")
        with opened(on_server(server_url, key, tmp_path / "home")) as store:
            yield store
