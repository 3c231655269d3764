"""Run the conformance suite on every built-in embedder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from recto.embedders.cohere import PACES, CohereEmbedder
from recto.protocols import Embedder
from recto.testing import EmbedderConformance, HashEmbedder
from tests.doubles.cohere import CohereDouble

KEY = "co_secret_key"


class TestBuiltInModel(EmbedderConformance):
    @pytest.fixture
    def embedder(self, embedder: Embedder) -> Embedder:
        return embedder


class TestCohere(EmbedderConformance):
    """On a double that speaks real HTTP."""

    @pytest.fixture
    def embedder(self, waits: list[float]) -> Iterator[Embedder]:
        with CohereDouble(api_key=KEY) as double:
            made = CohereEmbedder(KEY, "embed-english-v3.0", double.url, PACES["off"], print, waits.append)
            yield made
            made.close()


class TestHashEmbedder(EmbedderConformance):
    @pytest.fixture
    def embedder(self) -> Embedder:
        return HashEmbedder()
