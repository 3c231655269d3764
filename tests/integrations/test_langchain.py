"""LangChain's own test suite for retrievers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langchain_core", reason="uv run --group langchain has it")
pytest.importorskip("langchain_tests", reason="uv run --group langchain has it")

from langchain_tests.integration_tests import RetrieversIntegrationTests

from recto.contracts import QUERY_COLLECTION
from recto.integrations.langchain import RectoLangChainRetriever
from recto.protocols import Embedder
from recto.search.retriever import Retriever
from recto.stores.edge import EdgeStore

QUESTION = "What is a ROS 2 node?"


@pytest.mark.anyio  # for the async tests of the suite
class TestStandard(RetrieversIntegrationTests):
    @pytest.fixture(autouse=True)
    def _use(self, embedder: Embedder, sample_home: Path) -> Iterator[None]:
        """Open the book; the test suite has its own fixture `retriever`."""
        store = EdgeStore(sample_home)
        self.book = Retriever(embedder, store, QUERY_COLLECTION)
        yield
        store.close()

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    @property
    def retriever_constructor(self) -> type[RectoLangChainRetriever]:
        return RectoLangChainRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"retriever": self.book}

    @property
    def retriever_query_example(self) -> str:
        return QUESTION
