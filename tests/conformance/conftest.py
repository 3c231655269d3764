"""Test the real embedder, without what it remembers, and build indexes in threads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from recto.protocols import Embedder
from tests.thread_worker import thread_workers


@pytest.fixture(scope="package", autouse=True)
def _workers() -> Iterator[None]:
    with thread_workers():
        yield


@pytest.fixture(scope="session")
def embedder(real_embedder: Embedder) -> Embedder:
    return real_embedder
