"""Document 004: methods, attributes, results and test cases of `TextbookRetriever`."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from recto import RectoError, RetrievalResult, TextbookRetriever
from recto.api import open_embedder, open_store
from recto.book.sources.tree import MarkdownTree
from recto.errors import CollectionMissing, ErrorKind, InvalidArgument, InvalidQuery, Unreachable
from recto.indexing.indexer import IndexJob, index_book
from recto.search.retriever import Retriever
from recto.settings import Settings
from recto.types.search import Outcome
from tests.conftest import COHERE_KEY, QDRANT_KEY
from tests.doubles.cohere import CohereDouble
from tests.doubles.qdrant import QdrantDouble
from tests.doubles.server import status

QUESTION = "What is a digital twin?"


@pytest.fixture(scope="module")
def textbook(sample_home: Path) -> Iterator[TextbookRetriever]:
    with TextbookRetriever(
        settings=Settings("local", "edge", sample_home, threads=1, precision="fp32")
    ) as made:
        yield made


def cloud_settings(cohere: CohereDouble, qdrant: QdrantDouble, home: Path) -> Settings:
    return Settings(
        "cohere",
        "server",
        home,
        model="embed-english-v3.0",
        qdrant_url=qdrant.url,
        qdrant_api_key=QDRANT_KEY,
        cohere_api_key=COHERE_KEY,
        cohere_api_url=cohere.url,
        cohere_pace="off",
    )


@pytest.fixture
def cloud(
    cohere: CohereDouble, qdrant: QdrantDouble, home: Path, small_book: Path
) -> Iterator[TextbookRetriever]:
    settings = cloud_settings(cohere, qdrant, home)
    embedder, store = open_embedder(settings, print), open_store(settings, print)
    index_book(IndexJob(MarkdownTree(small_book), embedder), store, "rag_embedding", journal=home / "journal")
    embedder.close()
    store.close()
    with TextbookRetriever(settings=settings) as made:
        yield made


class TestBasicSemanticSearch:
    """TC1: the most relevant chunks with all metadata."""

    def test_the_most_relevant_results_come_first(self, textbook: TextbookRetriever) -> None:
        results = textbook.search(QUESTION)
        assert len(results) == 5
        first = results[0]
        assert "05-digital-twins" in first.url
        assert first.title == "Digital Twins"
        assert "twin" in first.content.lower()
        assert 0 <= first.chunk_index < first.total_chunks
        assert first.metadata["module_name"] == "simulation"
        assert first.metadata["link"].startswith(first.url)
        scores = [result.relevance_score for result in results]
        assert scores == sorted(scores, reverse=True)
        assert all(0 <= score <= 1 for score in scores)

    def test_a_result_has_exactly_the_fields_of_the_contract(self) -> None:
        assert [field.name for field in dataclasses.fields(RetrievalResult)] == [
            "content",
            "url",
            "title",
            "relevance_score",
            "chunk_index",
            "total_chunks",
            "metadata",
        ]

    def test_methods_have_the_parameters_of_the_contract(self) -> None:
        def parameters(name: str) -> list[tuple[str, Any]]:
            signature = inspect.signature(getattr(TextbookRetriever, name))
            return [(parameter.name, parameter.default) for parameter in signature.parameters.values()][1:]

        nothing = inspect.Parameter.empty
        assert parameters("search") == [("query", nothing), ("top_k", 5), ("filters", None)]
        assert parameters("search_by_module") == [("query", nothing), ("module_ids", nothing), ("top_k", 5)]
        assert parameters("search_with_selection") == [
            ("selected_text", nothing),
            ("context_query", None),
            ("top_k", 5),
        ]
        assert parameters("validate_connection") == []

    @pytest.mark.parametrize("top_k", [3, 7, 10])
    def test_top_k_is_the_number_of_results(self, textbook: TextbookRetriever, top_k: int) -> None:
        assert len(textbook.search(QUESTION, top_k=top_k)) == top_k

    def test_results_equal_those_of_the_core(self, textbook: TextbookRetriever, retriever: Retriever) -> None:
        core = retriever.search(QUESTION, mode="dense")
        assert [
            (result.metadata["chunk_id"], result.metadata["score"]) for result in textbook.search(QUESTION)
        ] == [(hit.chunk.id, hit.score) for hit in core.hits]

    def test_hybrid_mode(self, sample_home: Path, retriever: Retriever) -> None:
        settings = Settings("local", "edge", sample_home, threads=1, precision="fp32")
        with TextbookRetriever(settings=settings, mode="hybrid") as textbook:
            results = textbook.search(QUESTION)
        core = retriever.search(QUESTION, mode="hybrid")
        assert [result.metadata["score"] for result in results] == [hit.score for hit in core.hits]
        assert [result.metadata["lexical"] for result in results] == [hit.lexical for hit in core.hits]
        assert all(0 <= result.relevance_score <= 1 for result in results)
        assert results.response.mode == "hybrid"
        with pytest.raises(InvalidArgument, match="mode must be one of dense, hybrid"):
            TextbookRetriever(settings=settings, mode="lexical")

    def test_attributes(self, textbook: TextbookRetriever) -> None:
        assert textbook.collection_name == "rag_embedding"
        assert "recto-sample" in textbook.qdrant_client.collections()
        assert textbook.cohere_client is None

    def test_attributes_in_the_cloud_profile(self, cloud: TextbookRetriever) -> None:
        import cohere as cohere_sdk
        from qdrant_client import QdrantClient

        assert isinstance(cloud.qdrant_client, QdrantClient)
        assert isinstance(cloud.cohere_client, cohere_sdk.ClientV2)
        assert cloud.qdrant_client.count(cloud.collection_name).count > 0


class TestModuleFiltering:
    """TC2: only results of the chosen modules."""

    @pytest.mark.parametrize("name", ["isaac", "module-3-isaac", "ISAAC"])
    def test_one_module_by_each_of_its_names(self, textbook: TextbookRetriever, name: str) -> None:
        assert {
            result.metadata["module_name"] for result in textbook.search_by_module(QUESTION, [name], top_k=10)
        } == {"isaac"}

    def test_several_modules(self, textbook: TextbookRetriever) -> None:
        found = textbook.search_by_module("sensors and transforms", ["ros2", "module-2-simulation"], top_k=10)
        assert {result.metadata["module_name"] for result in found} == {"ros2", "simulation"}

    @pytest.mark.parametrize(
        "filters",
        [
            {"module": "ros2"},
            {"module": ["ros2"]},
            {"modules": ("module-1-ros2",)},
            {"module_name": "ros2"},
            {"module_ids": ["ros2"]},
        ],
    )
    def test_filters(self, textbook: TextbookRetriever, filters: dict[str, Any]) -> None:
        assert {result.metadata["module_name"] for result in textbook.search(QUESTION, filters=filters)} == {
            "ros2"
        }

    def test_url_filter_and_empty_filters(self, textbook: TextbookRetriever) -> None:
        page = "local://docs/docs/module-3-isaac/04-nav2-humanoids"
        assert {result.url for result in textbook.search("costmaps", filters={"url": page})} == {page}
        assert (
            textbook.search(QUESTION, filters={})
            == textbook.search(QUESTION, filters={"module": None})
            == textbook.search(QUESTION)
        )

    def test_an_unknown_module_has_no_results_and_a_message(self, textbook: TextbookRetriever) -> None:
        found = textbook.search_by_module(QUESTION, ["rso2"])
        assert found == []
        assert found.response.outcome is Outcome.FILTERED_OUT
        assert "Did you mean 'ros2'" in found.message

    @pytest.mark.parametrize(
        "filters",
        [
            {"chapter": 1},
            {"module": 7},
            {"module": []},
            {"module": [""]},
            {"url": 3},
            {"url": " "},
            "ros2",
            5,
        ],
    )
    def test_invalid_filters(self, textbook: TextbookRetriever, filters: Any) -> None:
        with pytest.raises(InvalidArgument) as caught:
            textbook.search(QUESTION, filters=filters)
        assert caught.value.hint

    @pytest.mark.parametrize("modules", [[], [1], None, [" "]])
    def test_invalid_modules(self, textbook: TextbookRetriever, modules: Any) -> None:
        with pytest.raises(InvalidArgument):
            textbook.search_by_module(QUESTION, modules)


def test_tc3_a_search_takes_well_under_200_ms(textbook: TextbookRetriever) -> None:
    """TC3, in CPU time: the load of the machine does not matter."""
    questions = [
        f"What does chapter {number} say about {topic}?"
        for number in range(1, 6)
        for topic in ("sensors", "walking", "voice")
    ]
    textbook.search(questions[0])
    began = time.process_time()
    for question in questions:
        textbook.search(question)
        textbook.search_by_module(question, ["ros2"])
    per_search = (time.process_time() - began) / (2 * len(questions))
    assert per_search < 0.2


class TestSelectedText:
    """TC4: chunks related to a selected text; the tests of the core check how they are chosen."""

    def test_results_do_not_repeat_the_selection(self, textbook: TextbookRetriever) -> None:
        selected = textbook.search(QUESTION)[0].content
        found = textbook.search_with_selection(selected)
        assert len(found) == 5
        assert all(result.content != selected for result in found)
        assert len({result.url for result in found}) > 1

    def test_a_question_about_the_selection(self, textbook: TextbookRetriever) -> None:
        selected = "URDF is an XML format that describes a robot as rigid links connected by joints."
        found = textbook.search_with_selection(selected, "How do I load this in Unity?", top_k=3)
        assert any("04-unity-simulation" in result.url for result in found)

    def test_an_empty_question_is_ignored(self, textbook: TextbookRetriever) -> None:
        selected = "Costmaps mark where the robot may not walk."
        assert textbook.search_with_selection(selected, " ") == textbook.search_with_selection(selected)


class TestErrorHandling:
    """TC5: documented exceptions with hints, and recovery."""

    @pytest.mark.parametrize("query", ["", "   ", None, 5, b"bytes", ["a"], "x" * 2001])
    def test_bad_queries(self, textbook: TextbookRetriever, query: Any) -> None:
        for ask in (textbook.search, lambda query: textbook.search_by_module(query, ["ros2"])):
            with pytest.raises(InvalidQuery) as caught:
                ask(query)
            assert caught.value.hint

    @pytest.mark.parametrize("selection", ["", " \n ", None, 3])
    def test_bad_selections(self, textbook: TextbookRetriever, selection: Any) -> None:
        with pytest.raises(InvalidQuery, match="Selected text") as caught:
            textbook.search_with_selection(selection)
        assert caught.value.hint

    @pytest.mark.parametrize("top_k", [2, 11, 0, -1, 5.0, "5", None, True])
    def test_top_k_out_of_range(self, textbook: TextbookRetriever, top_k: Any) -> None:
        asked: list[Callable[[], object]] = [
            lambda: textbook.search(QUESTION, top_k),
            lambda: textbook.search_by_module(QUESTION, ["ros2"], top_k),
            lambda: textbook.search_with_selection(QUESTION, None, top_k),
            lambda: asyncio.run(textbook.asearch(QUESTION, top_k)),
        ]
        for ask in asked:
            with pytest.raises(InvalidArgument, match="between 3 and 10"):
                ask()

    def test_a_missing_collection(self, sample_home: Path, caplog: pytest.LogCaptureFixture) -> None:
        missing = TextbookRetriever("no-such-book", settings=Settings("local", "edge", sample_home))
        with pytest.raises(CollectionMissing):
            missing.search(QUESTION)
        with caplog.at_level(logging.WARNING, "recto"):
            assert missing.validate_connection() is False
        assert missing.connection_error is not None
        assert missing.connection_error.kind is ErrorKind.MISSING
        assert "no-such-book" in caplog.text

    def test_an_invalid_collection_name(self, sample_home: Path) -> None:
        with pytest.raises(RectoError):
            TextbookRetriever("../etc", settings=Settings("local", "edge", sample_home))

    def test_a_working_connection(self, textbook: TextbookRetriever) -> None:
        assert textbook.validate_connection() is True
        assert asyncio.run(textbook.avalidate_connection()) is True
        assert textbook.connection_error is None

    def test_a_store_that_is_down_for_a_while(self, cloud: TextbookRetriever, qdrant: QdrantDouble) -> None:
        question = "When are beans sown?"
        before = cloud.search(question, 3)
        qdrant.always(status(503, {"status": {"error": "down"}}))
        with pytest.raises(Unreachable) as caught:
            cloud.search(question, 3)
        assert caught.value.hint
        assert QDRANT_KEY not in str(caught.value)
        assert cloud.validate_connection() is False
        qdrant.always(None)
        assert cloud.search(question, 3) == before
        assert cloud.validate_connection() is True

    def test_a_store_that_is_down_at_first(
        self, cohere: CohereDouble, qdrant: QdrantDouble, home: Path
    ) -> None:
        settings = cloud_settings(cohere, qdrant, home)
        qdrant.always(status(503, {"status": {"error": "down"}}))
        with TextbookRetriever(settings=settings) as retriever:
            assert retriever.validate_connection() is False
            qdrant.always(None)
            with pytest.raises(CollectionMissing):
                retriever.search(QUESTION)


def test_async_methods_give_the_same_results(textbook: TextbookRetriever) -> None:
    selected = "Costmaps mark where the robot may not walk."

    async def ask() -> list[Any]:
        async with TextbookRetriever(settings=textbook._settings) as twin:
            return [
                await twin.asearch(QUESTION),
                await twin.asearch_by_module(QUESTION, ["isaac"]),
                await twin.asearch_with_selection(selected, "And in 3D?"),
            ]

    assert asyncio.run(ask()) == [
        textbook.search(QUESTION),
        textbook.search_by_module(QUESTION, ["isaac"]),
        textbook.search_with_selection(selected, "And in 3D?"),
    ]


def test_settings_from_the_environment(sample_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECTO_HOME", str(sample_home))
    monkeypatch.setenv("COLLECTION_NAME", "website_embeddings")
    with TextbookRetriever() as retriever:
        assert retriever.collection_name == "website_embeddings"
        assert len(retriever.search(QUESTION, 3)) == 3
        retriever.close()
        assert len(retriever.search(QUESTION, 3)) == 3
