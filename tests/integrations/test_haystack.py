"""The Haystack component: in sync and async pipelines, and serialized."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("haystack", reason="uv run --group haystack has it")

from haystack import Pipeline
from haystack.core.errors import DeserializationError

from recto.errors import InvalidQuery
from recto.integrations.haystack import RectoHaystackRetriever
from recto.search.retriever import Retriever

QUESTION = "What is a ROS 2 node?"


def pipeline(component: RectoHaystackRetriever) -> Any:
    made = Pipeline()
    made.add_component("book", component)
    return made


def test_documents_have_citations(retriever: Retriever) -> None:
    expected = retriever.search(QUESTION, 3).hits
    found = pipeline(RectoHaystackRetriever(retriever=retriever, top_k=3)).run({"book": {"query": QUESTION}})[
        "book"
    ]["documents"]
    assert [document.id for document in found] == [hit.chunk.id for hit in expected]
    for document, hit in zip(found, expected, strict=True):
        assert document.content == hit.chunk.text
        assert document.score == hit.score
        assert document.meta["url"] == hit.chunk.url
        assert document.meta["title"] == hit.chunk.title


def test_arguments_override_the_configuration(retriever: Retriever) -> None:
    component = RectoHaystackRetriever(retriever=retriever, top_k=2, module=["simulation"])
    assert [document.meta["module"] for document in component.run("sensors")["documents"]] == [
        "simulation"
    ] * 2
    assert [
        document.meta["module"]
        for document in component.run("sensors", top_k=1, module=["isaac"])["documents"]
    ] == ["isaac"]
    page = retriever.search(QUESTION).hits[0].chunk.page_url
    assert {
        document.meta["page_url"] for document in component.run("sensors", module=[], url=page)["documents"]
    } == {page}
    assert {document.meta["mode"] for document in component.run("sensors", mode="lexical")["documents"]} == {
        "lexical"
    }


def test_async(retriever: Retriever, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [hit.chunk.id for hit in retriever.search(QUESTION).hits]

    def refuse(*_: Any) -> None:
        raise AssertionError("the sync search was used")

    monkeypatch.setattr(retriever, "search", refuse)
    running = pipeline(RectoHaystackRetriever(retriever=retriever))
    found = asyncio.run(running.run_async({"book": {"query": QUESTION}}))
    assert [document.id for document in found["book"]["documents"]] == expected


def test_serialization(retriever: Retriever, sample_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    component = RectoHaystackRetriever(retriever=retriever, top_k=3, module=("ros2",))
    data = component.to_dict()
    assert data == {
        "type": "recto.integrations.haystack.RectoHaystackRetriever",
        "init_parameters": {
            "collection": retriever.collection,
            "top_k": 3,
            "module": ["ros2"],
            "url": None,
            "mode": "hybrid",
            "section_tokens": None,
            "lang": None,
            "version": None,
        },
    }
    assert RectoHaystackRetriever.from_dict(data).to_dict() == data
    text = pipeline(component).dumps()
    with pytest.raises(DeserializationError):
        Pipeline.loads(text)
    monkeypatch.setenv("RECTO_HOME", str(sample_home))
    copy = Pipeline.loads(text, allowed_modules=["recto.integrations.haystack"])
    found = copy.run({"book": {"query": QUESTION}})["book"]["documents"]
    assert [document.id for document in found] == [
        document.id for document in component.run(QUESTION)["documents"]
    ]
    copy.get_component("book")._client.retriever().close()


def test_warm_up(retriever: Retriever) -> None:
    from recto.errors import CollectionMissing

    RectoHaystackRetriever(retriever=retriever).warm_up()
    with pytest.raises(CollectionMissing):
        RectoHaystackRetriever(retriever=retriever.with_collection("nowhere")).warm_up()


def test_errors(retriever: Retriever) -> None:
    with pytest.raises(InvalidQuery, match="Query cannot be empty"):
        RectoHaystackRetriever(retriever=retriever).run(" ")


def test_results_can_be_limited_to_a_language(retriever: Retriever) -> None:
    assert RectoHaystackRetriever(retriever=retriever).run("sensors", lang="en")["documents"]
    assert RectoHaystackRetriever(retriever=retriever).run("sensors", lang="de")["documents"] == []
    assert RectoHaystackRetriever(retriever=retriever).run("sensors", version="2.0")["documents"] == []
