"""The LlamaIndex adapter: nodes with citations, filters, async."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("llama_index.core", reason="uv run --group llamaindex has it")

from llama_index.core.llms import MockLLM
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.schema import MetadataMode, QueryBundle

from recto.errors import InvalidQuery
from recto.integrations.llamaindex import RectoLlamaIndexRetriever
from recto.search.retriever import Retriever

QUESTION = "What is a ROS 2 node?"


def test_nodes_have_citations(retriever: Retriever) -> None:
    expected = retriever.search(QUESTION, 3).hits
    nodes = RectoLlamaIndexRetriever(retriever=retriever, similarity_top_k=3).retrieve(QUESTION)
    assert [node.node_id for node in nodes] == [hit.chunk.id for hit in expected]
    assert [node.score for node in nodes] == [hit.score for hit in expected]
    for node, hit in zip(nodes, expected, strict=True):
        assert node.text == hit.chunk.text
        assert node.metadata["url"] == hit.chunk.url
        assert node.metadata["module"] == hit.chunk.module
        assert hit.chunk.url in node.node.get_content(MetadataMode.LLM)
        assert "content_hash" not in node.node.get_content(MetadataMode.LLM)
        assert "start_line" not in node.node.get_content(MetadataMode.LLM)


def test_filters(retriever: Retriever) -> None:
    found = RectoLlamaIndexRetriever(
        retriever=retriever, module=["simulation", "isaac"], similarity_top_k=20
    ).retrieve("sensors")
    assert {node.metadata["module"] for node in found} == {"simulation", "isaac"}
    page = retriever.search(QUESTION).hits[0].chunk.page_url
    assert {
        node.metadata["page_url"]
        for node in RectoLlamaIndexRetriever(retriever=retriever, url=page).retrieve("sensors")
    } == {page}
    lexical = RectoLlamaIndexRetriever(retriever=retriever, mode="lexical").retrieve("sensors")
    assert [node.score for node in lexical] == [
        hit.score for hit in retriever.search("sensors", mode="lexical").hits
    ]
    assert {node.metadata["mode"] for node in lexical} == {"lexical"}


def test_async(retriever: Retriever, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [hit.chunk.id for hit in retriever.search(QUESTION).hits]

    def refuse(*_: Any) -> None:
        raise AssertionError("the sync search was used")

    monkeypatch.setattr(retriever, "search", refuse)
    adapter = RectoLlamaIndexRetriever(retriever=retriever)

    async def many() -> list[Any]:
        return await asyncio.gather(*(adapter.aretrieve(QueryBundle(QUESTION)) for _ in range(20)))

    assert all([node.node_id for node in nodes] == expected for nodes in asyncio.run(many()))


def test_in_a_query_engine(retriever: Retriever) -> None:
    engine = RetrieverQueryEngine(
        RectoLlamaIndexRetriever(retriever=retriever, similarity_top_k=2),
        get_response_synthesizer(response_mode="simple_summarize", llm=MockLLM()),
        [SimilarityPostprocessor(similarity_cutoff=0.1)],
    )
    response = engine.query(QUESTION)
    assert [node.node_id for node in response.source_nodes] == [
        hit.chunk.id for hit in retriever.search(QUESTION, 2).hits
    ]


def test_errors(retriever: Retriever) -> None:
    with pytest.raises(InvalidQuery, match="Query cannot be empty"):
        RectoLlamaIndexRetriever(retriever=retriever).retrieve(" ")


def test_results_can_be_limited_to_a_language(retriever: Retriever) -> None:
    assert RectoLlamaIndexRetriever(retriever=retriever, lang="en").retrieve("sensors")
    assert RectoLlamaIndexRetriever(retriever=retriever, lang="de").retrieve("sensors") == []
    assert RectoLlamaIndexRetriever(retriever=retriever, version="2.0").retrieve("sensors") == []
