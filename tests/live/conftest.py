"""Real Qdrant servers: the one at RECTO_TEST_QDRANT_URL, or those that the tests start themselves."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.live.nodes import Cluster, Node


@pytest.fixture(scope="session")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server without a key."""
    if given := os.environ.get("RECTO_TEST_QDRANT_URL"):
        yield given
        return
    with Node(tmp_path_factory.mktemp("qdrant")) as node:
        node.wait_until_ready()
        yield node.url


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster
