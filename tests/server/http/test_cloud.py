"""Test the server with Cohere and Qdrant: engines that are down, hang, and return; no internals are exposed."""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from qdrant_client import models

from recto.server.http import ServeOptions, monitoring
from recto.server.listening import JsonFormatter
from recto.settings import Settings
from recto.stores.qdrant import store as store_module
from recto.stores.qdrant.connection import Connection
from tests.conftest import COHERE_KEY, QDRANT_KEY
from tests.doubles.cohere import CohereDouble
from tests.doubles.qdrant import QdrantDouble
from tests.doubles.server import Double, hang, reset, status
from tests.running import wait_until
from tests.server.http.service import Service, indexed_in_cloud


@pytest.fixture
def settings(cohere: CohereDouble, qdrant: QdrantDouble, home: Path, small_book: Path) -> Settings:
    """A book that is indexed as `garden`, in the cloud profile."""
    return indexed_in_cloud(home, small_book, cohere.url, qdrant.url)


def internals(settings: Settings, text: str) -> list[str]:
    """Return the internals that a text has."""
    addresses = (settings.qdrant_url.removeprefix("http://"), settings.cohere_api_url)
    return [word for word in (COHERE_KEY, QDRANT_KEY, "Traceback", *addresses) if word in text]


def recovers(service: Service) -> float:
    """Send requests until one succeeds, and return how long that took."""
    began = time.monotonic()
    while service.post("/retrieve", {"query": "knead the dough"}).status != 200:
        assert time.monotonic() < began + 60
        time.sleep(0.05)
    return time.monotonic() - began


def test_all_routes_with_remote_engines(settings: Settings) -> None:
    with Service(settings) as service:
        body = service.post("/retrieve", {"query": "knead the dough", "limit": 2}).json()
        assert [body["results"][0]["title"], body["total_results"]] == ["Bread", 2]
        assert service.get("/validate").json()["sample_search_works"] is True
        assert service.get("/readyz").status == 200
        modules = service.get("/v1/modules").json()["modules"]
        assert [one["name"] for one in modules] == ["garden", "kitchen", "intro"]
        assert service.post("/v1/related", {"selection": "Soil holds water and air."}).json()["results"]
        page = service.get("/v1/pages/" + body["results"][0]["url"].replace("/", "%2F")).json()
        assert page["title"] == "Bread"
        assert len(service.post("/v1/batch", {"queries": ["soil", "bread"]}).json()["responses"]) == 2
        with ThreadPoolExecutor(8) as pool:
            replies = pool.map(lambda _: service.post("/retrieve", {"query": "knead the dough"}), range(16))
            assert {reply.json()["results"][0]["title"] for reply in replies} == {"Bread"}
        assert service.post("/retrieve", {"query": "x", "collection": "physical-ai-book"}).status == 404


@pytest.mark.parametrize("engine", ["cohere", "qdrant"])
def test_an_engine_fails_and_recovers(
    settings: Settings,
    cohere: CohereDouble,
    qdrant: QdrantDouble,
    engine: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    double: Double = {"cohere": cohere, "qdrant": qdrant}[engine]
    caplog.set_level(logging.INFO)
    with Service(settings) as service:
        assert service.post("/retrieve", {"query": "knead the dough"}).status == 200
        for fault in (status(500), reset(), status(503, "<html>busy</html>")):
            double.always(fault)
            before = len(double.requests)
            replies = [service.post("/retrieve", {"query": "soil"}) for _ in range(15)]
            assert len(double.requests) - before < 15, "the circuit breaker limits the calls"
            replies.append(service.post("/v1/search", {"query": "soil"}))
            replies.append(service.post("/v1/related", {"selection": "soil"}))
            if engine == "qdrant":
                replies += [service.get("/v1/modules"), service.get("/v1/pages/local:%2F%2Fx")]
            for reply in replies:
                assert reply.status == 503, reply.body
                assert reply.error == "The engine behind this service is unreachable or does not answer"
                assert int(reply.headers["retry-after"]) >= 1
                assert internals(settings, reply.body.decode()) == []
            assert service.get("/healthz").status == 200
            if engine == "cohere":
                lexical = service.post("/v1/search", {"query": "dough", "mode": "lexical"})
                assert "bread" in lexical.json()["results"][0]["url"], "it needs no embedder"
            double.always(None)
            assert recovers(service) < 30
        assert 'recto_engine_errors_total{kind="connection"}' in service.get("/metrics").body.decode()
    formatter = JsonFormatter((*settings.secrets, *settings.addresses))
    log = "\n".join(map(formatter.format, caplog.records))
    assert "not available" in log, "the operator learns what is wrong"
    assert internals(settings, log) == []


def test_an_engine_that_hangs(settings: Settings, cohere: CohereDouble) -> None:
    with Service(settings, ServeOptions(timeout=0.5)) as service:
        recovers(service)  # a busy machine may need more than one try
        cohere.always(hang())
        with ThreadPoolExecutor(4) as pool:
            replies = list(pool.map(lambda _: service.post("/retrieve", {"query": "soil"}), range(4)))
        assert {reply.status for reply in replies} == {503}
        assert any("There was no answer within 0.5 s" in reply.error for reply in replies)
        cohere.always(None)
        recovers(service)


def test_an_engine_is_down_at_the_start(
    settings: Settings, qdrant: QdrantDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_FRESH_SECONDS", 0.1)
    monkeypatch.setattr(monitoring, "_READY_SECONDS", 0)
    qdrant.always(reset())
    with Service(settings) as service:
        assert service.get("/healthz").status == 200
        ready = service.get("/readyz")
        assert (ready.status, int(ready.headers["retry-after"]) > 0) == (503, True)
        assert service.post("/retrieve", {"query": "soil"}).status == 503
        assert service.get("/validate").status == 503
        assert service.get("/v1/health").status == 503
        qdrant.always(None)
        recovers(service)
        wait_until(lambda: service.get("/readyz").status == 200, 60)


def test_a_refused_key_and_a_rate_limit(settings: Settings, cohere: CohereDouble) -> None:
    with Service(settings) as service:
        service.post("/retrieve", {"query": "soil"})
        cohere.always(status(401))
        refused = service.post("/retrieve", {"query": "soil"})
        assert refused.status == 500
        assert "recto doctor" in refused.json()["hint"]
        assert internals(settings, refused.body.decode()) == []
        cohere.always(status(429, headers={"Retry-After": "17"}))
        limited = service.post("/retrieve", {"query": "soil"})
        assert (limited.status, limited.headers["retry-after"]) == (503, "17")


def test_an_empty_collection(settings: Settings) -> None:
    connection = Connection(settings.qdrant_url, QDRANT_KEY, print)
    params = models.VectorParams(size=1024, distance=models.Distance.COSINE)
    connection.write(lambda client: client.create_collection("bare", vectors_config=params))
    connection.close()
    with Service(settings, ServeOptions(collections=("bare",))) as service:
        reply = service.post("/retrieve", {"query": "soil", "collection": "bare"})
        assert (reply.status, reply.error) == (503, "Collection 'bare' is empty")
        assert int(reply.headers["retry-after"]) > 0
        body = service.get("/validate?collection=bare").json()
        assert list(body.values()) == [True, 0, False, None]
