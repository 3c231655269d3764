"""Test engines that are down, hang and return: the circuit breaker, the readiness check, and a service with Cohere and Qdrant."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from qdrant_client import models

from recto.errors import CollectionMissing, EmbeddingError, InvalidQuery, Unreachable
from recto.server.http import ServeOptions, monitoring
from recto.server.http.batching import CircuitBreaker
from recto.server.http.monitoring import Readiness
from recto.server.limits import CurrentRequest, _current
from recto.server.listening import JsonFormatter
from recto.settings import Settings
from recto.stores.qdrant.connection import ServerConnection, TransientError
from tests.conftest import COHERE_KEY, QDRANT_KEY
from tests.doubles.cohere import CohereDouble
from tests.doubles.qdrant import QdrantDouble
from tests.doubles.server import Double, hang, reset, status
from tests.running import wait_until
from tests.server.http.service import Service, indexed_in_cloud


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def call(breaker: CircuitBreaker, error: BaseException | None = None) -> bool:
    """Return whether the call was made."""
    let_through = False
    try:
        with breaker.watch():
            let_through = True
            if error is not None:
                raise error
    except (Unreachable, CollectionMissing, InvalidQuery, asyncio.CancelledError, KeyError):
        pass
    return let_through


def test_one_call_probes_after_a_pause() -> None:
    clock, opened = Clock(), [0]
    breaker = CircuitBreaker(clock, lambda change: opened.append(opened[-1] + change))
    for error in (TransientError("down"), TransientError("still down")):
        assert call(breaker, error)
        assert not call(breaker)
        clock.now += 1.1
    with breaker.watch():
        assert not call(breaker)
    assert call(breaker), "it is back"
    call(breaker, TransientError("rate limit", retry_after=3))
    clock.now += 2.9
    with pytest.raises(TransientError, match="rate limit"), breaker.watch():
        pass
    clock.now += 0.2
    assert call(breaker)
    assert opened == [0, 1, 0, 1, 0], "what the metric counts"


def test_errors_that_are_not_about_the_engine() -> None:
    clock = Clock()
    breaker = CircuitBreaker(clock)
    assert call(breaker, EmbeddingError("one question that cannot be embedded"))
    assert call(breaker, CollectionMissing("gone"))
    assert call(breaker)
    call(breaker, TransientError("down"))
    clock.now += 1.1
    for error in (InvalidQuery("empty"), KeyError("a fault of ours")):
        assert call(breaker, error)
        clock.now += 0.1
    assert call(breaker, CollectionMissing("it is back, without the collection"))
    assert call(breaker)


@pytest.mark.parametrize("disconnected", [True, False])
def test_a_client_that_leaves_says_nothing_about_the_engine(disconnected: bool) -> None:
    """Otherwise anyone could open the circuit for all by closing connections; a timeout opens it."""
    breaker, request = CircuitBreaker(), CurrentRequest("a")
    if disconnected:
        request.disconnected.set()

    def cancelled() -> None:
        _current.set(request)
        with pytest.raises(asyncio.CancelledError), breaker.watch():
            raise asyncio.CancelledError

    contextvars.copy_context().run(cancelled)
    if disconnected:
        assert call(breaker)
    else:
        with pytest.raises(Unreachable, match="did not answer in time"), breaker.watch():
            pass


class Engine:
    """Counts the checks; `error` makes them fail, `blocked` makes them wait."""

    def __init__(self) -> None:
        self.calls = 0
        self.error: Exception | None = None
        self.blocked = asyncio.Event()
        self.blocked.set()
        self.clock = Clock()
        self.readiness = Readiness(self.check, self.clock)

    async def check(self) -> None:
        self.calls += 1
        await self.blocked.wait()
        if self.error is not None:
            raise self.error


def test_callers_share_one_check() -> None:
    async def run() -> None:
        engine = Engine()
        ready = engine.readiness.is_ready
        assert [await ready() for _ in range(100)] == [True] * 100
        engine.error = Unreachable("down")
        assert await ready(), "a result counts for a second"
        engine.clock.now += 1
        assert [await ready() for _ in range(100)] == [False] * 100
        assert engine.calls == 2
        engine.error = None
        engine.blocked.clear()
        engine.clock.now += 1
        callers = [asyncio.create_task(ready()) for _ in range(100)]
        await asyncio.sleep(0)
        callers[0].cancel()  # a caller that leaves does not end the check of the others
        await asyncio.sleep(0)
        engine.blocked.set()
        assert await asyncio.gather(*callers[1:]) == [True] * 99
        assert engine.calls == 3

    asyncio.run(run())


def test_nobody_waits_for_an_engine_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitoring, "_READY_WAIT", 0.01)

    async def run() -> None:
        engine = Engine()
        engine.blocked.clear()
        assert [await engine.readiness.is_ready() for _ in range(3)] == [False] * 3
        engine.blocked.set()
        await asyncio.sleep(0)
        assert await engine.readiness.is_ready()

    asyncio.run(run())


def test_the_log_tells_why_and_only_once(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        engine = Engine()
        for error in (None, Unreachable("It is down", hint="Start it."), Unreachable("It is down"), None):
            engine.error = error
            await engine.readiness.is_ready()
            engine.clock.now += 1

    with caplog.at_level(logging.INFO, "recto"):
        asyncio.run(run())
    assert caplog.messages == ["not ready: Connection error: It is down Start it.", "ready"]


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
            assert "recto_circuits_open 0.0" not in service.get("/metrics").body.decode()
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
    monkeypatch.setattr("recto.stores.qdrant._FRESH_SECONDS", 0.1)
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
    connection = ServerConnection(settings.qdrant_url, QDRANT_KEY, print)
    params = models.VectorParams(size=1024, distance=models.Distance.COSINE)
    connection.write(lambda client: client.create_collection("bare", vectors_config=params))
    connection.close()
    with Service(settings, ServeOptions(collections=("bare",))) as service:
        reply = service.post("/retrieve", {"query": "soil", "collection": "bare"})
        assert (reply.status, reply.error) == (503, "Collection 'bare' is empty")
        assert int(reply.headers["retry-after"]) > 0
        body = service.get("/validate?collection=bare").json()
        assert list(body.values()) == [True, 0, False, None]
