"""Benchmarks use the real embedder."""

from __future__ import annotations

import pytest

from recto.protocols import Embedder


@pytest.fixture(scope="session")
def embedder(real_embedder: Embedder) -> Embedder:
    return real_embedder
