"""Test an engine that is down, and a book that is indexed while the server runs."""

from __future__ import annotations

import pytest
from mcp import Client

from recto.errors import CollectionMissing, EmbeddingError, RectoError, Unreachable
from recto.search.retriever import Retriever
from recto.server.mcp_server import build_server
from recto.server.mcp_tools import LazyRetriever
from tests.server.mcp.client import connected, failure

ASKED = {"query": "What is ROS 2?"}


def test_an_engine_is_down_at_the_start(retriever: Retriever, told: list[str]) -> None:
    errors: list[RectoError] = [Unreachable("down"), CollectionMissing("Collection 'garden' does not exist")]

    def prepare() -> None:
        if errors:
            raise errors[0]
        retriever.open()

    async def ask(client: Client) -> None:
        assert "Connection error: down" in failure(await client.call_tool("search_book", ASKED))
        del errors[0]
        assert "Collection 'garden' does not exist" in failure(await client.call_tool("search_book", ASKED))
        del errors[0]
        answer = await client.call_tool("search_book", ASKED)
        assert answer.structured_content["outcome"] == "found"

    connected(build_server(LazyRetriever(retriever, prepare, told.append)), ask)
    assert any(line.startswith("[WARNING] Connection error") for line in told)


def test_engines_fail_and_recover(retriever: Retriever, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise EmbeddingError("The model does not answer", hint="Check COHERE_API_KEY.")

    async def ask(client: Client) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(Retriever, "asearch", fail)
            said = failure(await client.call_tool("search_book", ASKED))
        assert said == "Embedding error: The model does not answer. Check COHERE_API_KEY."
        assert not (await client.call_tool("search_book", ASKED)).is_error

    connected(build_server(LazyRetriever(retriever, retriever.open, print)), ask)
