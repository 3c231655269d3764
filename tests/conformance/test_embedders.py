"""Run the conformance suite on every built-in embedder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from recto.embedders.cohere import PACES, CohereEmbedder
from recto.embedders.openai import OpenAIEmbedder
from recto.protocols import Embedder
from recto.settings import OpenAIOptions
from recto.testing import EmbedderConformance, HashEmbedder
from tests.doubles.cohere import CohereDouble
from tests.doubles.openai import OpenAIDouble

KEY = "co_secret_key"


class TestBuiltInModel(EmbedderConformance):
    @pytest.fixture
    def embedder(self, real_embedder: Embedder) -> Embedder:
        return real_embedder


class TestCohere(EmbedderConformance):
    """On a double that speaks real HTTP."""

    @pytest.fixture
    def embedder(self, waits: list[float]) -> Iterator[Embedder]:
        with CohereDouble(api_key=KEY) as double:
            made = CohereEmbedder(KEY, "embed-english-v3.0", double.url, PACES["off"], print, waits.append)
            yield made
            made.close()


class TestOpenAI(EmbedderConformance):
    """On doubles of a server with prefixes, and one with input types and vectors that are not normalised."""

    @pytest.fixture(params=["ollama", "llamacpp"])
    def embedder(self, request: pytest.FixtureRequest) -> Iterator[Embedder]:
        input_types = ("query", "passage") if request.param == "llamacpp" else None
        with OpenAIDouble(request.param) as double:
            options = OpenAIOptions(url=double.base, max_tokens=500, input_types=input_types)
            embedder = OpenAIEmbedder(options, double.model, print, lambda _: None)
            yield embedder
            embedder.close()


class TestHashEmbedder(EmbedderConformance):
    @pytest.fixture
    def embedder(self) -> Embedder:
        return HashEmbedder()
