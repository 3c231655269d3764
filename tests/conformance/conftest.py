"""Test the real embedder, without what it remembers."""

from __future__ import annotations

import pytest

from recto.protocols import Embedder


@pytest.fixture(scope="session")
def embedder(real_embedder: Embedder) -> Embedder:
    return real_embedder
