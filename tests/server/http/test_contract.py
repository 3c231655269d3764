"""Test document 002, `/retrieve` and `/validate`: examples, limits, errors."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from recto.contracts import DEFAULT_COLLECTIONS
from recto.contracts.http import QueryResponse, ValidationResponse
from recto.search.retriever import Retriever
from recto.server.http import ServeOptions
from recto.server.http.service import SearchService
from recto.settings import Settings
from recto.stores.edge import EdgeStore
from tests.server.http.service import Service

EXAMPLE = {"query": "natural language query text", "limit": 5, "collection": "humanoid_robotics_book"}


def test_the_example_of_a_request(service: Service, retriever: Retriever) -> None:
    reply = service.post("/retrieve", EXAMPLE)
    assert reply.status == 200
    body = reply.json()
    QueryResponse.model_validate(body)
    assert list(body) == ["query", "results", "total_results", "query_time_ms"]
    assert body["query"] == EXAMPLE["query"]
    assert body["total_results"] == len(body["results"]) == 5
    assert 0 < body["query_time_ms"] < 60_000
    hits = retriever.search(str(EXAMPLE["query"]), mode="dense").hits
    for result, hit in zip(body["results"], hits, strict=True):
        assert list(result) == ["score", "payload", "url", "title", "content"]
        fields = "url title content headings chunk_index source_document metadata"
        assert list(result["payload"]) == fields.split()
        assert result["score"] == pytest.approx(hit.score, abs=1e-5)
        assert result["payload"]["content"] == hit.chunk.text, "the payload holds the whole text"
        assert result["payload"]["headings"] == list(hit.chunk.headings)
        assert result["payload"]["chunk_index"] == hit.chunk.chunk_index
        assert result["url"] == result["payload"]["url"] == hit.chunk.page_url
        assert result["title"] == result["payload"]["title"] == hit.chunk.title
        assert len(result["content"]) <= 203
        assert " ".join(hit.chunk.text.split()).startswith(result["content"].removesuffix("...")), (
            "content is a preview"
        )


def test_hybrid_mode_is_opt_in(service: Service, retriever: Retriever) -> None:
    plain, dense, hybrid = (
        service.post("/retrieve", {"query": "QoS depth", **more}).json()["results"]
        for more in ({}, {"mode": "dense"}, {"mode": "hybrid"})
    )
    assert plain == dense
    scores = [result["score"] for result in dense]
    assert scores == sorted(scores, reverse=True)
    hits = retriever.search("QoS depth").hits
    assert [result["payload"]["metadata"]["id"] for result in hybrid] == [hit.chunk.id for hit in hits]
    assert all(0 <= result["score"] <= 1 for result in hybrid), "the contract's range"
    refused = service.post("/retrieve", {"query": "QoS depth", "mode": "lexical"})
    assert (refused.status, refused.error) == (400, "mode must be 'dense' or 'hybrid'")


def test_the_example_of_validate(service: Service, retriever: Retriever) -> None:
    reply = service.get("/validate")
    assert reply.status == 200
    body = reply.json()
    ValidationResponse.model_validate(body)
    assert list(body) == ["collection_exists", "vector_count", "sample_search_works", "last_updated"]
    assert body["collection_exists"] is True
    assert body["vector_count"] == retriever.open().info.chunks
    assert body["sample_search_works"] is True
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", body["last_updated"])


def test_limits(service: Service) -> None:
    for limit in (1, 10, 3.0):
        assert service.post("/retrieve", {"query": "robot", "limit": limit}).json()["total_results"] == limit
    for wrong in (0, 11, -1, 2.5, True, "5", None, [1], 10**17, 1e300):
        reply = service.post("/retrieve", {"query": "robot", "limit": wrong})
        assert reply.status == 400
        assert reply.error.startswith("limit must be ")


def test_queries(service: Service) -> None:
    reply = service.post("/retrieve", {"query": ""})
    assert (reply.status, reply.error) == (400, "Query cannot be empty")
    for query in ("   ", "\n\t", "a" * 2001, None, 5, ["robot"]):
        assert service.post("/retrieve", {"query": query}).status == 400, query
    for query in ("robot " * 333 + "ab", "  " + "a" * 2000 + "  "):
        assert service.post("/retrieve", {"query": query}).status == 200
    assert service.post("/retrieve", {"query": "robot", "collection": None}).json()["total_results"] == 5
    assert service.post("/retrieve", {"limit": 5}).error == "query is required"


def test_unknown_fields_are_refused(service: Service) -> None:
    assert service.post("/retrieve", {"query": "robot", "limt": 3}).error == "limt is not a known field"
    for name, shown in (("a" * 80, "a" * 80), ("a" * 81, "a" * 80 + "…")):
        assert service.post("/retrieve", {"query": "robot", name: 3}).error == f"{shown} is not a known field"


def test_names_of_collections(service: Service) -> None:
    for name in DEFAULT_COLLECTIONS:  # the sample book has them all
        reply = service.post("/retrieve", {"query": "robot", "limit": 1, "collection": name})
        assert reply.json()["total_results"] == 1
    for name in ("nope", "", "../../etc", "a" * 500, "house", "\ud800"):
        reply = service.post("/retrieve", {"query": "robot", "collection": name})
        assert (reply.status, reply.error) == (404, "There is no such collection here")
    assert service.ask("GET", "/validate?collection=nope").status == 404


def test_a_served_collection_that_does_not_exist(service: Service) -> None:
    reply = service.post("/retrieve", {"query": "robot", "collection": "not-there"})
    assert reply.status == 404
    assert reply.error == "Collection 'not-there' does not exist"
    assert "physical-ai-book" not in reply.body.decode(), "what else is stored is not told"
    assert list(service.get("/validate?collection=not-there").json().values()) == [False, 0, False, None]


def test_the_configured_collection_replaces_the_default(house_settings: Settings) -> None:
    with Service(house_settings) as service:
        for asked in ({}, {"collection": "house"}, {"collection": "humanoid_robotics_book"}):
            body = service.post("/retrieve", {"query": "When are beans sown?", "limit": 1, **asked}).json()
            assert body["results"][0]["payload"]["metadata"]["module"] == "garden"
        assert service.post("/retrieve", {"query": "beans", "collection": "physical-ai-book"}).status == 404
        (listed,) = service.get("/v1/collections").json()["collections"]
        assert listed == {"name": "house", "default": True, "title": "house", "logo": None, "versions": []}


def test_another_model_is_an_error_without_internals(house: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = EdgeStore(house / "home").open("house").info
    assert info.fingerprint is not None
    embedder = replace(info.fingerprint.embedder, revision="another")
    other = replace(info, fingerprint=replace(info.fingerprint, embedder=embedder))
    monkeypatch.setattr("recto.stores.edge.index.EdgeIndex.info", property(lambda _: other))
    with Service(Settings("local", "edge", house / "home", collection="house")) as service:
        reply = service.post("/retrieve", {"query": "beans"})
        assert reply.status == 500
        assert reply.error == "This service is not configured correctly for its index"
        assert str(house) not in reply.body.decode()
        body = service.get("/validate").json()
        assert body["collection_exists"]
        assert not body["sample_search_works"]
        assert service.get("/readyz").status == 503


def test_warnings_have_no_paths(house_settings: Settings) -> None:
    searches = SearchService(house_settings, ServeOptions(), print)
    path = f"{house_settings.home}/collections/house/gen-000001"
    (warning,) = searches.redact((f"The index of 'house' is damaged: {path} has other bytes",))
    assert str(house_settings.home) not in warning
    assert "is damaged" in warning
