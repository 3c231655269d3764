"""Build indexes in threads; the tests of worker processes are in `tests/stores`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.thread_worker import thread_workers


@pytest.fixture(scope="package", autouse=True)
def _workers() -> Iterator[None]:
    with thread_workers():
        yield
