"""Indexes of these tests are built in threads."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _workers(thread_worker: None) -> None:
    """Tests of the worker process are in `tests/stores`."""
