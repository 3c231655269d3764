"""The LangChain adapter: LangChain's own test suite, filters, modes and pickling."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langchain_core", reason="uv run --group langchain has it")
pytest.importorskip("langchain_tests", reason="uv run --group langchain has it")

from langchain_core.runnables import RunnableLambda
from langchain_tests.integration_tests import RetrieversIntegrationTests

from recto.contracts import QUERY_COLLECTION
from recto.errors import InvalidArgument, InvalidQuery
from recto.integrations.langchain import RectoLangChainRetriever
from recto.protocols import Embedder
from recto.search.retriever import Retriever
from recto.stores.edge.store import EdgeStore
from recto.types.search import Mode

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


def test_documents_have_citations(retriever: Retriever) -> None:
    expected = retriever.search(QUESTION, 3).hits
    documents = RectoLangChainRetriever(retriever=retriever, k=3).invoke(QUESTION)
    assert [document.id for document in documents] == [hit.chunk.id for hit in expected]
    for document, hit in zip(documents, expected, strict=True):
        assert document.page_content == hit.chunk.text
        assert document.metadata["url"] == hit.chunk.url
        assert document.metadata["title"] == hit.chunk.title
        assert document.metadata["module"] == hit.chunk.module
        assert document.metadata["score"] == hit.score


def test_filters_of_the_retriever_and_of_a_call(retriever: Retriever) -> None:
    adapter = RectoLangChainRetriever(retriever=retriever, module=("simulation",))
    assert {document.metadata["module"] for document in adapter.invoke("sensors")} == {"simulation"}
    assert {document.metadata["module"] for document in adapter.invoke("sensors", module=["isaac"])} == {
        "isaac"
    }
    page = retriever.search(QUESTION).hits[0].chunk.page_url
    found = RectoLangChainRetriever(retriever=retriever).invoke("sensors", url=page, k=2)
    assert [document.metadata["page_url"] for document in found] == [page, page]
    assert adapter.invoke("sensors", module=["simulaton"]) == []


def test_mode_of_the_retriever_and_of_a_call(retriever: Retriever) -> None:
    adapter = RectoLangChainRetriever(retriever=retriever, mode="dense")
    modes: tuple[Mode, Mode] = ("dense", "lexical")
    for documents, mode in zip(
        (adapter.invoke(QUESTION), adapter.invoke(QUESTION, mode="lexical")), modes, strict=True
    ):
        hits = retriever.search(QUESTION, mode=mode).hits
        wanted = [(hit.score, hit.dense, hit.lexical) for hit in hits]
        assert [
            tuple(document.metadata[part] for part in ("score", "dense", "lexical")) for document in documents
        ] == wanted


def test_async_and_in_a_chain(retriever: Retriever) -> None:
    adapter = RectoLangChainRetriever(retriever=retriever, k=2)
    chain = adapter | RunnableLambda(lambda documents: [document.metadata["url"] for document in documents])
    expected = [hit.chunk.url for hit in retriever.search(QUESTION, 2).hits]
    assert chain.invoke(QUESTION) == expected
    assert asyncio.run(chain.ainvoke(QUESTION)) == expected
    assert adapter.batch([QUESTION, "What is URDF?"])[0][0].metadata["url"] == expected[0]

    async def many() -> list[Any]:
        return await asyncio.gather(*(adapter.ainvoke(QUESTION) for _ in range(20)))

    assert {found[0].metadata["url"] for found in asyncio.run(many())} == {expected[0]}


def test_async_uses_no_thread(retriever: Retriever, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("the sync search was used")

    monkeypatch.setattr(retriever, "search", refuse)
    assert asyncio.run(RectoLangChainRetriever(retriever=retriever).ainvoke(QUESTION))


def test_pickling(retriever: Retriever, sample_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECTO_HOME", str(sample_home))
    monkeypatch.setenv("RECTO_PRECISION", "fp32")  # the precision of `retriever`
    adapter = RectoLangChainRetriever(retriever=retriever, k=2, module=("ros2",))
    copy = pickle.loads(pickle.dumps(adapter))
    assert (copy.collection, copy.k, copy.module, copy.retriever) == (
        retriever.collection,
        2,
        ("ros2",),
        None,
    )
    assert copy.invoke(QUESTION) == adapter.invoke(QUESTION)
    copy._client.retriever().close()


def test_errors(retriever: Retriever) -> None:
    adapter = RectoLangChainRetriever(retriever=retriever)
    with pytest.raises(InvalidQuery, match="Query cannot be empty"):
        adapter.invoke(" ")
    with pytest.raises(InvalidArgument):
        adapter.invoke(QUESTION, k=101)
    misspelt: dict[str, Any] = {"colection": "physical-ai-book"}
    with pytest.raises(ValueError, match="colection"):
        RectoLangChainRetriever(**misspelt)
    with pytest.raises(TypeError, match="modul"):
        adapter.invoke(QUESTION, modul="ros2")


def test_results_can_be_limited_to_a_language(retriever: Retriever) -> None:
    assert RectoLangChainRetriever(retriever=retriever, lang="en").invoke("sensors")
    assert RectoLangChainRetriever(retriever=retriever, lang="de").invoke("sensors") == []
    assert RectoLangChainRetriever(retriever=retriever).invoke("sensors", version="2.0") == []
