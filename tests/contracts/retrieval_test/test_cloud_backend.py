"""The contract on Cohere and Qdrant: every failure is JSON with exit code 2 that names the failed service."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from qdrant_client import QdrantClient, models

from recto.embedders import cohere as cohere_module
from recto.stores.qdrant import connection as connection_module
from tests.conftest import QDRANT_KEY
from tests.contracts.retrieval_test.conftest import Call
from tests.doubles.cohere import CohereDouble, bag_of_words
from tests.doubles.qdrant import QdrantDouble
from tests.doubles.server import Fault, delay, hang, refused_url, rubbish, status

FAULTS = {
    "401": (status(401), "configuration"),
    "429": (status(429), "connection"),
    "500": (status(500), "connection"),
    "503 with HTML": (status(503, b"<html>no</html>", content_type="text/html"), "connection"),
    "200 with {}": (rubbish({}), "connection"),
    "hanging": (hang(30), "connection"),
}


@contextmanager
def client_of(qdrant: QdrantDouble) -> Iterator[QdrantClient]:
    with pytest.warns(UserWarning, match="insecure"):
        client = QdrantClient(url=qdrant.url, api_key=QDRANT_KEY, check_compatibility=False)
    try:
        yield client
    finally:
        client.close()


@pytest.fixture
def short_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use shorter timeouts."""
    monkeypatch.setattr(cohere_module, "_QUERY_SECONDS", 2.0)
    monkeypatch.setattr(connection_module, "_READ_SECONDS", 1)


def test_a_query(call: Call, cloud: None, cohere: CohereDouble) -> None:
    outcome = call("--query", "knead the dough", "--top-k", "2")
    assert outcome.code == 0
    first = outcome.document["results"][0]
    assert "Knead the dough" in first["text"]
    assert first["metadata"]["source"] == "module-2-kitchen/01-bread.md"
    assert cohere.requests[-1].body["input_type"] == "search_query"


@pytest.mark.parametrize(("fault", "kind"), FAULTS.values(), ids=FAULTS)
def test_cohere_fails(
    call: Call, cloud: None, short_timeouts: None, cohere: CohereDouble, fault: Fault, kind: str
) -> None:
    before = len(cohere.requests)
    cohere.always(fault)
    outcome = call("--query", "dough")
    assert (outcome.code, outcome.error["component"], outcome.error["kind"]) == (2, "EMBED", kind)
    assert "Cohere" in outcome.error["message"]
    assert outcome.error["hint"]
    assert len(cohere.requests) == before + 1, "a failed query embedding is not retried"


@pytest.mark.parametrize(("fault", "kind"), FAULTS.values(), ids=FAULTS)
def test_qdrant_fails(
    call: Call, cloud: None, short_timeouts: None, qdrant: QdrantDouble, fault: Fault, kind: str
) -> None:
    before = len(qdrant.requests)
    qdrant.always(fault)
    outcome = call("--query", "dough")
    assert (outcome.code, outcome.error["component"], outcome.error["kind"]) == (2, "SEARCH", kind)
    assert len(qdrant.requests) - before <= (2 if kind == "configuration" else 3)


def test_qdrant_fails_during_the_search(call: Call, cloud: None, qdrant: QdrantDouble) -> None:
    qdrant.always(status(500), path="*/points/query*")
    outcome = call("--query", "dough")
    assert (outcome.code, outcome.error["component"]) == (2, "SEARCH")


def test_qdrant_recovers_within_three_tries(call: Call, cloud: None, qdrant: QdrantDouble) -> None:
    qdrant.script(status(500), status(500), path="*/points/query*")
    assert call("--query", "dough").code == 0


@pytest.mark.parametrize(("variable", "component"), [("COHERE_API_URL", "EMBED"), ("QDRANT_URL", "SEARCH")])
def test_connection_refused(
    call: Call, cloud: None, monkeypatch: pytest.MonkeyPatch, variable: str, component: str
) -> None:
    monkeypatch.setenv(variable, refused_url())
    outcome = call("--query", "dough")
    assert (outcome.code, outcome.error["component"], outcome.error["kind"]) == (2, component, "connection")
    assert "Cannot connect to" in outcome.error["message"]


def test_missing_and_empty_collections(
    call: Call, check: Call, configured: None, qdrant: QdrantDouble
) -> None:
    missing = call("--query", "dough")
    assert (missing.code, missing.error["kind"]) == (2, "missing")
    assert "'website_embeddings' does not exist" in missing.error["message"]
    assert "recto index" in missing.error["hint"]
    with client_of(qdrant) as client:
        client.create_collection(
            "website_embeddings",
            vectors_config=models.VectorParams(size=1024, distance=models.Distance.COSINE),
        )
    for empty in (call("--query", "dough"), check(), call("--test-suite", write_suite({"query": "dough"}))):
        assert (empty.code, empty.error["kind"]) == (2, "empty")
        assert "'website_embeddings' is empty" in empty.error["message"]


def test_a_collection_of_another_model_is_an_error(
    call: Call, configured: None, qdrant: QdrantDouble
) -> None:
    with client_of(qdrant) as client:
        client.create_collection(
            "website_embeddings",
            vectors_config=models.VectorParams(size=384, distance=models.Distance.COSINE),
        )
        client.upsert(
            "website_embeddings",
            [models.PointStruct(id=1, vector=[0.1] * 384, payload={"text": "x"})],
            wait=True,
        )
    outcome = call("--query", "dough")
    assert (outcome.code, outcome.error["kind"]) == (2, "configuration")
    assert "384" in outcome.error["message"]


def test_no_results_is_exit_code_3(call: Call, configured: None, qdrant: QdrantDouble) -> None:
    """A collection of points without vectors is not empty, but has no results."""
    params = {"dense": models.VectorParams(size=1024, distance=models.Distance.COSINE)}
    with client_of(qdrant) as client:
        client.create_collection("website_embeddings", vectors_config=params)
        client.upsert(
            "website_embeddings", [models.PointStruct(id=1, vector={}, payload={"text": "x"})], wait=True
        )
    outcome = call("--query", "dough")
    assert outcome.code == 3
    assert (outcome.document["result_count"], outcome.document["results"]) == (0, [])
    assert "no result" in outcome.document["message"]
    assert call("--test-suite", write_suite({"query": "dough"}), "--delay", "0").code == 3


def test_a_collection_of_another_pipeline_with_missing_fields(
    call: Call, check: Call, configured: None, qdrant: QdrantDouble
) -> None:
    payloads: list[dict[str, Any]] = [
        {"content": "Knead the dough", "source": "docs/bread.md"},
        {
            "text": "Let the dough rise",
            "url": "https://b.example.org/rise it",
            "chunk_index": 7,
            "total_chunks": 3,
        },
        {"text": "Bake the dough", "chunk_index": "2"},
    ]
    with client_of(qdrant) as client:
        client.create_collection(
            "website_embeddings",
            vectors_config=models.VectorParams(size=1024, distance=models.Distance.COSINE),
        )
        points = [
            models.PointStruct(
                id=number,
                vector=bag_of_words(str(payload.get("text") or payload.get("content"))),
                payload=payload,
            )
            for number, payload in enumerate(payloads)
        ]
        client.upsert("website_embeddings", points, wait=True)
    outcome = call("--query", "dough")
    assert outcome.code == 0
    found = {result["text"]: result["metadata"] for result in outcome.document["results"]}
    assert len(found) == 3
    assert found["Knead the dough"]["url"] == "local://docs/bread.md"
    assert found["Let the dough rise"]["url"] == "https://b.example.org/rise%20it"
    assert (found["Let the dough rise"]["chunk_index"], found["Let the dough rise"]["total_chunks"]) == (7, 8)
    assert all(
        metadata["page_title"] and metadata["total_chunks"] > metadata["chunk_index"]
        for metadata in found.values()
    )
    assert check().document["model_verified"] is False


def write_suite(*entries: dict[str, Any]) -> str:
    path = Path("suite.json")
    path.write_text(json.dumps({"queries": list(entries)}), "utf-8")
    return str(path)


def test_a_suite_continues_after_a_failure(call: Call, cloud: None, cohere: CohereDouble) -> None:
    suite = write_suite(
        {"id": "one", "query": "dough"}, {"id": "two", "query": "soil"}, {"id": "three", "query": "beans"}
    )
    cohere.script(delay(0), delay(0), status(500))  # the probe, the first query, the second
    outcome = call("--test-suite", suite, "--delay", "0")
    assert outcome.code == 2
    assert [entry["passed"] for entry in outcome.document["queries"]] == [True, False, True]
    assert outcome.document["queries"][1]["response"]["error"]["component"] == "EMBED"
    assert (outcome.document["summary"]["success_rate"], outcome.document["summary"]["failure_rate"]) == (
        0.6667,
        0.3333,
    )


def test_a_failed_run_is_not_saved_as_the_baseline(
    call: Call, cloud: None, cohere: CohereDouble, workdir: Path
) -> None:
    cohere.script(delay(0), status(500))
    outcome = call(
        "--test-suite", write_suite({"query": "dough"}), "--delay", "0", "--update-expected", "kept.json"
    )
    assert outcome.code == 2
    assert not (workdir / "kept.json").exists()


def test_a_service_that_is_down_stops_a_suite(call: Call, cloud: None, cohere: CohereDouble) -> None:
    before = len(cohere.requests)
    cohere.always(status(500))
    outcome = call("--test-suite", write_suite(*({"query": f"soil {number}"} for number in range(20))))
    assert (outcome.code, outcome.error["component"]) == (2, "EMBED")
    assert len(cohere.requests) == before + 1
